//! Policies in the kernel: what random clusters do not show, each expectation from the
//! specification.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

#[path = "common/cluster.rs"]
mod cluster;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use palisade_core::compile::compile;
use palisade_core::net::CidrText;
use palisade_core::plan::plan;
use palisade_core::program::Program;
use palisade_lab::complete::CompletedCluster;
use palisade_lab::lab::{Lab, node_options, node_ruleset, node_settings};
use palisade_lab::packet::ProbePayload;
use palisade_lab::probe_plan::ProbePlanner;
use palisade_lab::topology::Location;
use palisade_lab::wire::Probe;
use palisade_nft::node::{Generation, NodeOptions, Settings, ruleset};

const TESTS: [(&str, fn()); 6] = [
    ("connections_carry_data", connections_carry_data),
    ("unknown_pods_are_closed", unknown_pods_are_closed),
    (
        "the_own_node_may_be_left_open",
        the_own_node_may_be_left_open,
    ),
    (
        "a_swap_keeps_what_is_allowed_and_denied",
        a_swap_keeps_what_is_allowed_and_denied,
    ),
    (
        "a_new_generation_evaluates_again",
        a_new_generation_evaluates_again,
    ),
    (
        "a_removed_table_opens_everything",
        a_removed_table_opens_everything,
    ),
];

fn main() -> ExitCode {
    palisade_need::run_inside(TESTS)
}

/// Three pods: a and b on n1, c on n2. Selected pods allow ingress from a on port 8080 only.
const CLUSTER: &str = "\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: InternalIP, address: 'fd00:ff::1'}]}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
status: {addresses: [{type: InternalIP, address: 192.0.2.2}, {type: InternalIP, address: 'fd00:ff::2'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: x, labels: {app: a}}
spec: {nodeName: n1, containers: [{name: c, image: i}]}
status: {podIPs: [{ip: 10.0.1.1}, {ip: 'fd00:1::1'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: x, labels: {app: b}}
spec: {nodeName: n1, containers: [{name: c, image: i}]}
status: {podIPs: [{ip: 10.0.1.2}, {ip: 'fd00:1::2'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: c, namespace: x, labels: {app: c, closed: 'yes'}}
spec: {nodeName: n2, containers: [{name: c, image: i}]}
status: {podIPs: [{ip: 10.0.2.1}, {ip: 'fd00:2::1'}]}
---
apiVersion: v1
kind: Service
metadata: {name: s, namespace: x}
spec: {clusterIPs: [10.96.0.1, 'fd00:96::1'], clusterIP: 10.96.0.1, selector: {app: c}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: x}
spec: {podSelector: {matchLabels: {closed: 'yes'}}, ingress: [{from: [{podSelector: {matchLabels: {app: a}}}], ports: [{port: 8080}]}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: egress, namespace: x}
spec: {podSelector: {matchLabels: {app: b}}, policyTypes: [Egress], egress: []}
";

/// A host outside the cluster.
const OUTSIDE: (&str, &str) = ("203.0.113.9", "2001:db8::9");

const A: Location = Location::Pod(0);
const B: Location = Location::Pod(1);
const C: Location = Location::Pod(2);

struct Bench<'b, 'a> {
    furnished: &'b CompletedCluster<'a>,
    program: &'b Program,
    lab: Lab,
}

/// Builds the cluster, without rules yet.
fn with(work: impl FnOnce(Bench<'_, '_>)) {
    with_more("", work);
}

/// Builds the cluster with more objects.
fn with_more(more: &str, work: impl FnOnce(Bench<'_, '_>)) {
    let text = format!("{CLUSTER}{more}");
    cluster::with(&text, &[OUTSIDE.0, OUTSIDE.1], |furnished| {
        let program = compile(&furnished.cluster);
        let realiser = ProbePlanner::new(furnished);
        let lab = Lab::build(furnished, &realiser.entries, &|_| {}).unwrap();
        work(Bench {
            furnished,
            program: &program,
            lab,
        });
    });
}

impl Bench<'_, '_> {
    fn install(&mut self, generation: Generation, choose: impl Fn(&mut NodeOptions)) {
        let mut options = node_options();
        choose(&mut options);
        let settings = Settings::of_node(generation, &options);
        for node in 0..self.furnished.topology.nodes.len() {
            let ruleset = node_ruleset(self.furnished, self.program, &settings, node);
            self.lab.install(node, &ruleset).unwrap();
        }
    }

    /// Whether a packet gets from one place to another.
    fn passes(
        &mut self,
        from: Location,
        source: &str,
        destination: &str,
        carried: ProbePayload,
    ) -> bool {
        let probe = Probe {
            from,
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            carried,
            source_port: None,
        };
        let measured = self.lab.wire().probe(&[probe], &|_| {}).unwrap();
        measured[0].arrived.is_some()
    }
}

const TCP_8080: ProbePayload = ProbePayload::Tcp { port: 8080 };
const TCP_81: ProbePayload = ProbePayload::Tcp { port: 81 };

/// Opens a connection from a pod, and exchanges data. A refusal or a loss is an error.
fn exchange_data(bench: &Bench<'_, '_>, from: usize, to: SocketAddr) -> std::io::Result<Vec<u8>> {
    bench
        .lab
        .world()
        .in_pod(from, || {
            let mut stream = TcpStream::connect_timeout(&to, Duration::from_millis(600))?;
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            stream.write_all(b"hello")?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)?;
            Ok(answer)
        })
        .unwrap()
}

/// Real connections of real sockets, directly and through a Service, in both families (D78).
fn connections_carry_data() {
    with(|mut bench| {
        bench.install(Generation::FIRST, |_| {});
        let servers: Vec<TcpListener> = ["10.0.2.1", "fd00:2::1"]
            .iter()
            .flat_map(|it| {
                [
                    (it.parse::<IpAddr>().unwrap(), 8080),
                    (it.parse().unwrap(), 81),
                ]
            })
            .map(|address| {
                let world = bench.lab.world();
                world
                    .in_pod(2, || TcpListener::bind(address))
                    .unwrap()
                    .unwrap()
            })
            .collect();
        for server in &servers {
            let server = server.try_clone().unwrap();
            std::thread::spawn(move || {
                while let Ok((mut stream, _)) = server.accept() {
                    let mut word = [0; 5];
                    let _ = stream.read_exact(&mut word);
                    let _ = stream.write_all(&[&word[..], b" yourself"].concat());
                }
            });
        }
        for (direct, service) in [("10.0.2.1", "10.96.0.1"), ("fd00:2::1", "fd00:96::1")] {
            let direct: IpAddr = direct.parse().unwrap();
            let service: IpAddr = service.parse().unwrap();
            for address in [(direct, 8080), (service, 80)] {
                let answer = exchange_data(&bench, 0, address.into()).unwrap();
                assert_eq!(answer, b"hello yourself", "{address:?}");
            }
            // The port is not allowed; b is not allowed, at either address.
            for (from, address) in [(0, (direct, 81)), (1, (direct, 8080)), (1, (service, 80))] {
                let error = exchange_data(&bench, from, address.into()).unwrap_err();
                // Silence, never a refusal (D5).
                assert_eq!(
                    error.kind(),
                    std::io::ErrorKind::TimedOut,
                    "{from} {address:?}"
                );
            }
        }
    });
}

/// An address of the node's own block that no known pod has is dropped, as client and as server
/// (D84).
fn unknown_pods_are_closed() {
    // A policy that allows all peers does not allow unknown pods.
    let open = "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: open, namespace: x}\n\
                spec: {podSelector: {matchLabels: {app: a}}, ingress: [{}]}\n";
    with_more(open, |mut bench| {
        let block = |text: &str| CidrText::parse(text).unwrap().cidr;
        // n1 does not know b.
        let cluster = &bench.furnished.cluster;
        let mut plan = plan(cluster, bench.program, "n1");
        for address in ["10.0.1.2", "fd00:1::2"] {
            plan.pods.remove(&address.parse().unwrap()).unwrap();
        }
        for (blocks, is_open) in [
            (vec![], true),
            (vec![block("10.0.1.0/24"), block("fd00:1::/64")], false),
        ] {
            let options = NodeOptions {
                pod_blocks: blocks,
                ..node_options()
            };
            let settings = Settings::of_node(Generation::FIRST, &options);
            bench.lab.install(0, &ruleset(&plan, &settings)).unwrap();
            for (a, b, c) in [
                ("10.0.1.1", "10.0.1.2", "10.0.2.1"),
                ("fd00:1::1", "fd00:1::2", "fd00:2::1"),
            ] {
                assert_eq!(bench.passes(B, b, c, TCP_81), is_open);
                assert_eq!(bench.passes(C, c, b, TCP_81), is_open);
                assert_eq!(bench.passes(A, a, b, TCP_81), is_open);
                assert!(bench.passes(A, a, c, TCP_81));
                assert!(bench.passes(C, c, a, TCP_81));
            }
        }
    });
}

/// Egress to the pod's own node is evaluated, unless that is switched off (D75).
fn the_own_node_may_be_left_open() {
    with(|mut bench| {
        for (is_evaluated, is_open) in [(true, false), (false, true)] {
            bench.install(Generation::FIRST, |it| it.evaluate_own_node = is_evaluated);
            for (b, node, other) in [
                ("10.0.1.2", "192.0.2.1", "192.0.2.2"),
                ("fd00:1::2", "fd00:ff::1", "fd00:ff::2"),
            ] {
                assert_eq!(bench.passes(B, b, node, TCP_81), is_open);
                // Another node is evaluated in both cases.
                assert!(!bench.passes(B, b, other, TCP_81));
                // The node's own connections to its pods are exempt (D74).
                assert!(bench.passes(Location::Node(0), node, b, TCP_81));
            }
        }
    });
}

fn a_swap_keeps_what_is_allowed_and_denied() {
    with(|mut bench| {
        for number in 1..40 {
            bench.install(Generation::new(number).unwrap(), |_| {});
            for (a, b, c) in [
                ("10.0.1.1", "10.0.1.2", "10.0.2.1"),
                ("fd00:1::1", "fd00:1::2", "fd00:2::1"),
            ] {
                assert!(bench.passes(A, a, c, TCP_8080));
                assert!(!bench.passes(A, a, c, TCP_81));
                assert!(!bench.passes(B, b, a, TCP_8080));
            }
            let kernel = bench.lab.kernel(0).unwrap();
            assert_eq!(kernel.generation().unwrap(), Some(number.into()));
            let tables = kernel.tables().unwrap();
            let ours = tables.iter().filter(|it| it.starts_with("palisade"));
            assert_eq!(ours.count(), 1, "{tables:?}");
        }
    });
}

/// An allowed connection is evaluated again with its next packet (D94).
fn a_new_generation_evaluates_again() {
    with(|mut bench| {
        let cluster = &bench.furnished.cluster;
        // At first n2 has no table.
        let plan = plan(cluster, bench.program, "no such node");
        let settings = node_settings(Generation::FIRST);
        bench.lab.install(1, &ruleset(&plan, &settings)).unwrap();
        let probe = Probe {
            from: B,
            source: "10.0.1.2".parse().unwrap(),
            destination: "10.0.2.1".parse().unwrap(),
            carried: ProbePayload::Udp { port: 7 },
            // The same connection both times.
            source_port: Some(40_000),
        };
        let before = bench.lab.wire().probe(&[probe], &|_| {}).unwrap();
        assert_eq!(before[0].arrived, Some(C));
        bench.install(Generation::new(2).unwrap(), |_| {});
        let after = bench.lab.wire().probe(&[probe], &|_| {}).unwrap();
        assert_eq!(after[0].arrived, None);
    });
}

fn a_removed_table_opens_everything() {
    with(|mut bench| {
        bench.install(Generation::FIRST, |_| {});
        assert!(!bench.passes(B, "10.0.1.2", "10.0.1.1", TCP_81));
        for node in 0..2 {
            assert_eq!(bench.lab.kernel(node).unwrap().remove().unwrap(), 1);
        }
        assert!(bench.passes(B, "10.0.1.2", "10.0.1.1", TCP_81));
        assert!(bench.passes(B, "10.0.1.2", "10.0.2.1", TCP_81));
    });
}
