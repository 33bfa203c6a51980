//! The agent as people run it: the binary, in the namespaces of nodes, on a directory that changes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

#[path = "../../lab/tests/common/cluster.rs"]
mod cluster;
#[path = "agent/node.rs"]
mod node;
#[path = "agent/senders.rs"]
mod senders;
#[path = "agent/silence.rs"]
mod silence;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::Signal;

use palisade_lab::topology::Location;

use node::{A, B, C, Nodes, TCP_81, TCP_8080, UDP_53};
use palisade_need::{Need, Test, run_inside};

const TESTS: [(&str, fn()); 19] = [
    (
        "enforces_what_a_directory_says",
        enforces_what_a_directory_says,
    ),
    ("follows_the_files", follows_the_files),
    (
        "policies_that_do_not_fit_allow_nothing",
        policies_that_do_not_fit_allow_nothing,
    ),
    (
        "a_broken_file_keeps_its_last_objects",
        a_broken_file_keeps_its_last_objects,
    ),
    ("ends_without_letting_go", ends_without_letting_go),
    ("another_agent_has_to_wait", another_agent_has_to_wait),
    (
        "unknown_pods_are_closed_or_not",
        unknown_pods_are_closed_or_not,
    ),
    (
        "established_connections_stop_and_go_on",
        established_connections_stop_and_go_on,
    ),
    ("kept_connections_go_on", kept_connections_go_on),
    (
        "pods_are_closed_until_everything_is_known",
        pods_are_closed_until_everything_is_known,
    ),
    (
        "pods_are_open_at_first_only_with_the_option",
        pods_are_open_at_first_only_with_the_option,
    ),
    (
        "no_pod_sends_with_another_address",
        senders::no_pod_sends_with_another_address,
    ),
    (
        "a_false_name_opens_nothing",
        senders::a_false_name_opens_nothing,
    ),
    (
        "no_pod_sends_in_the_connection_of_another",
        senders::no_pod_sends_in_the_connection_of_another,
    ),
    ("pods_are_no_routers", senders::pods_are_no_routers),
    (
        "ways_may_differ_elsewhere",
        senders::ways_may_differ_elsewhere,
    ),
    (
        "unknown_blocks_are_reported",
        silence::unknown_blocks_are_reported,
    ),
    (
        "a_taken_port_keeps_nothing_from_being_enforced",
        silence::a_taken_port_keeps_nothing_from_being_enforced,
    ),
    ("closed_before_any_agent", silence::closed_before_any_agent),
];

fn main() -> ExitCode {
    let bridge = Test::new(
        "unchecked_senders_are_reported",
        senders::unchecked_senders_are_reported,
    );
    let all = TESTS.map(|(name, test)| Test::new(name, test));
    let past = Test::new(
        "ways_past_policies_are_reported",
        silence::ways_past_policies_are_reported,
    );
    let with_ip = [bridge, past].map(|it| it.needs(&[Need::IP]));
    run_inside(all.into_iter().chain(with_ip))
}

/// a may reach c at 8080 and nothing else; b may reach no pod; everyone may reach a and b (but b's
/// egress is closed: only flows to b count).
fn enforces_what_a_directory_says() {
    let mut nodes = Nodes::new();
    nodes.start(&[]);
    nodes.wait_until_ready();
    nodes.assert_passes(A, C, TCP_8080, true);
    nodes.assert_passes(A, C, TCP_81, false);
    nodes.assert_passes(A, C, UDP_53, false);
    nodes.assert_passes(B, C, TCP_8080, false);
    nodes.assert_passes(B, A, TCP_8080, false);
    nodes.assert_passes(A, B, TCP_8080, true);
    nodes.assert_passes(C, A, TCP_81, true);
    let metrics = nodes.get(0, "/metrics").1;
    for line in [
        "palisade_ready 1",
        "palisade_generation 1",
        "palisade_table_replacements_total{reason=\"start\"} 1",
        "palisade_problems{severity=\"error\"} 0",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
    }
    assert_eq!(nodes.get(0, "/healthz").0, 200);
    // What it frees is given back to the system by a thread of the allocator.
    let threads = nodes.threads(0);
    assert!(
        threads.iter().any(|it| it == "jemalloc_bg_thd"),
        "{threads:?}"
    );
    assert_eq!(nodes.get(0, "/elsewhere").0, 404);
}

fn follows_the_files() {
    let mut nodes = Nodes::new();
    nodes.start(&[]);
    nodes.wait_until_ready();
    nodes.assert_passes(A, C, TCP_81, false);
    // One more rule; then one fewer; then a pod that loses its label; then no policy at all.
    nodes.write("more.yaml", node::ALLOW_81);
    nodes.wait_until(A, C, TCP_81, true);
    nodes.assert_passes(B, C, TCP_81, false);
    nodes.remove("more.yaml");
    nodes.wait_until(A, C, TCP_81, false);
    nodes.assert_passes(A, C, TCP_8080, true);
    nodes.write("c.yaml", &node::pod_c("{app: c}"));
    nodes.wait_until(A, C, TCP_81, true);
    nodes.write("c.yaml", &node::pod_c("{app: c, closed: 'yes'}"));
    nodes.wait_until(A, C, TCP_81, false);
    nodes.remove("policies.yaml");
    nodes.wait_until(A, C, TCP_81, true);
    nodes.wait_until(B, C, TCP_8080, true);
    let log = nodes.log(1);
    assert!(!log.contains("ERROR"), "{log}");
    // Changes are written to the table, which was installed once, at the start.
    let metrics = nodes.get(1, "/metrics").1;
    let replaced = metrics
        .lines()
        .filter(|it| it.starts_with("palisade_table_replacements_total"));
    assert_eq!(
        replaced.collect::<Vec<_>>(),
        ["palisade_table_replacements_total{reason=\"start\"} 1"]
    );
}

/// Each of the two policies with rules has three entries (D148).
fn policies_that_do_not_fit_allow_nothing() {
    let mut nodes = Nodes::new();
    nodes.start(&["--namespace-budget", "5"]);
    nodes.wait_until_ready();
    nodes.write("more.yaml", node::ALLOW_81);
    nodes.wait_until_metric(1, "palisade_over_budget_policies 1");
    nodes.assert_passes(A, C, TCP_81, false);
    nodes.assert_passes(A, C, TCP_8080, true);
    // That is no reason not to be ready: the author of a policy has no say in that.
    nodes.wait_until_ready();
    // Without the other one there is room, and it isolates as before.
    nodes.remove("policies.yaml");
    nodes.wait_until(A, C, TCP_81, true);
    nodes.wait_until_metric(1, "palisade_over_budget_policies 0");
    nodes.assert_passes(A, C, TCP_8080, false);
    nodes.assert_passes(B, C, TCP_81, false);
}

fn a_broken_file_keeps_its_last_objects() {
    let mut nodes = Nodes::new();
    nodes.start(&[]);
    nodes.wait_until_ready();
    nodes.write(
        "policies.yaml",
        "apiVersion: networking.k8s.io/v1\nkind: [\n",
    );
    let file = nodes.source().join("policies.yaml");
    nodes.wait_until_not_ready(&format!("cannot read parts of {}", file.display()));
    nodes.assert_passes(A, C, TCP_81, false);
    nodes.assert_passes(A, C, TCP_8080, true);
    assert!(
        nodes.log(1).contains("its previous content stays enforced"),
        "{}",
        nodes.log(1)
    );
    // A rule that cannot be read fails closed, and does not keep the others from being enforced.
    nodes.write("policies.yaml", node::POLICIES);
    nodes.write(
        "more.yaml",
        &node::ALLOW_81.replace("port: 81", "port: 999999"),
    );
    nodes.wait_until_log(1, "the affected rules fail closed");
    nodes.wait_until_ready();
    nodes.assert_passes(A, C, TCP_81, false);
    nodes.assert_passes(A, C, TCP_8080, true);
}

fn ends_without_letting_go() {
    let mut nodes = Nodes::new();
    for signal in [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGINT] {
        nodes.start(&[]);
        nodes.wait_until_ready();
        nodes.assert_passes(A, C, TCP_81, false);
        nodes.signal(signal);
        assert_eq!(nodes.end(), signal != Signal::SIGKILL);
        nodes.assert_passes(A, C, TCP_81, false);
        nodes.assert_passes(A, C, TCP_8080, true);
    }
    // What changed meanwhile is enforced from the start of the next one on.
    nodes.write("more.yaml", node::ALLOW_81);
    nodes.start(&[]);
    nodes.wait_until_ready();
    nodes.assert_passes(A, C, TCP_81, true);
    nodes.signal(Signal::SIGHUP);
    nodes.wait_until_log(1, "SIGHUP");
    nodes.wait_until_ready();
    nodes.assert_passes(B, C, TCP_8080, false);
    nodes.signal(Signal::SIGTERM);
    assert!(nodes.end());
    nodes.clean_up();
    nodes.assert_passes(B, C, TCP_8080, true);
    nodes.assert_passes(A, C, TCP_81, true);
    // There is nothing left to remove.
    assert!(nodes.clean_up().contains("removed 0 tables"));
}

fn another_agent_has_to_wait() {
    let mut nodes = Nodes::new();
    nodes.start(&[]);
    nodes.wait_until_ready();
    let mut second = nodes.start_second(1);
    nodes.wait_until_second_says(&mut second, "another running program owns the table");
    nodes.assert_passes(A, C, TCP_81, false);
    nodes.assert_passes(A, C, TCP_8080, true);
    nodes.signal(Signal::SIGTERM);
    assert!(nodes.end());
    nodes.wait_until_second_says(&mut second, "table installed");
    nodes.assert_passes(A, C, TCP_81, false);
    nodes.assert_passes(A, C, TCP_8080, true);
}

fn unknown_pods_are_closed_or_not() {
    for (option, is_open) in [("drop", false), ("allow", true)] {
        let mut nodes = Nodes::new();
        nodes.remove("b.yaml");
        nodes.write("policies.yaml", "");
        nodes.start_first_with(&[
            "--unknown-pod",
            option,
            "--pod-cidr",
            "10.0.1.0/24",
            "--pod-cidr",
            "fd00:1::/64",
        ]);
        nodes.wait_until_ready();
        nodes.assert_passes(B, C, TCP_8080, is_open);
        nodes.assert_passes(C, B, TCP_8080, is_open);
        nodes.assert_passes(A, C, TCP_8080, true);
        nodes.write("b.yaml", node::POD_B);
        nodes.wait_until(B, C, TCP_8080, true);
        nodes.assert_passes(C, B, TCP_8080, true);
    }
}

/// A connection of a to c at 8080, and what answers.
fn connection(nodes: &Nodes, server: &str) -> (TcpStream, TcpStream) {
    let address: IpAddr = server.parse().unwrap();
    let address = SocketAddr::from((address, 8080));
    let listener = nodes.in_pod(2, || TcpListener::bind(address).unwrap());
    let client = nodes.in_pod(0, || {
        TcpStream::connect_timeout(&address, Duration::from_secs(2)).unwrap()
    });
    let (server, _) = listener.accept().unwrap();
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(700)))
            .unwrap();
    }
    (client, server)
}

/// Whether what one end says arrives at the other.
fn carries(from: &mut TcpStream, to: &mut TcpStream) -> bool {
    from.write_all(b"x").unwrap();
    let mut word = [0; 1];
    to.read_exact(&mut word).is_ok()
}

const SERVERS: [&str; 2] = ["10.0.2.1", "fd00:2::1"];

fn established_connections_stop_and_go_on() {
    let mut nodes = Nodes::new();
    nodes.start(&[]);
    nodes.wait_until_ready();
    let mut connections: Vec<_> = SERVERS.iter().map(|it| connection(&nodes, it)).collect();
    for (client, server) in &mut connections {
        assert!(carries(client, server) && carries(server, client));
    }
    nodes.write(
        "policies.yaml",
        &node::POLICIES.replace("port: 8080", "port: 8081"),
    );
    nodes.wait_until(A, C, TCP_8080, false);
    for (client, server) in &mut connections {
        assert!(!carries(client, server));
        assert!(!carries(server, client));
    }
    nodes.write("policies.yaml", node::POLICIES);
    nodes.wait_until(A, C, TCP_8080, true);
    for (client, server) in &mut connections {
        // What was lost meanwhile is sent again.
        server
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        assert!(carries(client, server) && carries(server, client));
    }
}

fn kept_connections_go_on() {
    let mut nodes = Nodes::new();
    nodes.start(&["--established", "keep"]);
    nodes.wait_until_ready();
    let mut connections: Vec<_> = SERVERS.iter().map(|it| connection(&nodes, it)).collect();
    for (client, server) in &mut connections {
        assert!(carries(client, server) && carries(server, client));
    }
    nodes.write(
        "policies.yaml",
        &node::POLICIES.replace("port: 8080", "port: 8081"),
    );
    nodes.wait_until(A, C, TCP_8080, false);
    for (client, server) in &mut connections {
        assert!(carries(client, server) && carries(server, client));
    }
    // But another pod that gets the address does not get the connections of the one before.
    let another =
        node::pod_c("{app: c, closed: 'yes'}").replace("name: c, namespace", "name: d, namespace");
    nodes.write("c.yaml", &another);
    nodes.wait_until_changed_hands();
    for (client, server) in &mut connections {
        assert!(!carries(client, server) && !carries(server, client));
    }
}

const BLOCKS: [&str; 4] = ["--pod-cidr", "10.0.1.0/24", "--pod-cidr", "fd00:1::/64"];

/// D146: after a reboot, with an API server that is away, only the node itself reaches its pods.
fn pods_are_closed_until_everything_is_known() {
    let mut nodes = Nodes::new();
    // Connections that the kernel tracks, and then no table.
    nodes.start(&[]);
    nodes.wait_until_ready();
    let mut connections: Vec<_> = SERVERS.iter().map(|it| connection(&nodes, it)).collect();
    for (client, server) in &mut connections {
        assert!(carries(client, server) && carries(server, client));
    }
    nodes.signal(Signal::SIGTERM);
    assert!(nodes.end());
    nodes.clean_up();
    nodes.assert_passes(A, C, TCP_81, true);
    nodes.start_without_server(&BLOCKS);
    nodes.wait_until_log(0, "pods of this node are closed");
    nodes.wait_until_first_says("cannot read pods");
    let is_closed = |nodes: &mut Nodes| {
        for carried in [TCP_8080, TCP_81, UDP_53] {
            for (from, to) in [(A, C), (C, A), (A, B), (B, A)] {
                nodes.assert_passes(from, to, carried, false);
            }
            nodes.assert_passes(Location::Node(0), A, carried, true);
        }
    };
    is_closed(&mut nodes);
    let metrics = nodes.get(0, "/metrics").1;
    let replaced = "palisade_table_replacements_total{reason=\"boot\"} 1";
    assert!(metrics.lines().any(|it| it == replaced), "{metrics}");
    // Of what had begun before only answers pass.
    for (client, server) in &mut connections {
        assert!(carries(server, client) && !carries(client, server));
    }
    // A crash opens nothing, and the next agent has no reason to close anything.
    nodes.kill();
    is_closed(&mut nodes);
    nodes.start_without_server(&BLOCKS);
    nodes.wait_until_first_says("cannot read pods");
    is_closed(&mut nodes);
    // With everything known, it is as the policies say.
    nodes.start(&[]);
    nodes.wait_until_ready();
    nodes.assert_passes(A, C, TCP_8080, true);
    nodes.assert_passes(A, C, TCP_81, false);
    nodes.assert_passes(C, A, TCP_81, true);
    nodes.assert_passes(B, A, TCP_8080, false);
}

fn pods_are_open_at_first_only_with_the_option() {
    let mut nodes = Nodes::new();
    // The blocks to close are unknown, which is reported.
    nodes.start_without_server(&[]);
    nodes.wait_until_first_says("pods of this node are open");
    nodes.assert_passes(A, C, TCP_81, true);
    let open = [&BLOCKS[..], &["--boot-policy", "open"]].concat();
    nodes.start_without_server(&open);
    nodes.wait_until_first_says("cannot read pods");
    assert!(!nodes.get(0, "/readyz").1.contains("are open"));
    nodes.assert_passes(A, C, TCP_81, true);
}
