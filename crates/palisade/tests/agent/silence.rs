//! What must not happen without a word: pods that are open, policies that do not hold, and what
//! comes before any agent.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use palisade_lab::topology::Location;
use palisade_need::Need;

use crate::node::{self, A, B, C, Nodes, TCP_81, TCP_8080};
use crate::{BLOCKS, carries};

/// A port of the second node's pod that nothing allows b to reach.
const PORT: u16 = 9;

/// No block of addresses is known, and pods that are not known should be dropped (D84).
pub(crate) fn unknown_blocks_are_reported() {
    let mut nodes = Nodes::new();
    nodes.write("nodes.yaml", &node::without_blocks());
    nodes.start(&[]);
    let words = "packets of unknown pods are not dropped";
    nodes.wait_until_first_says(words);
    nodes.wait_until_metric(0, "palisade_pods_unclosed 1");
    nodes.wait_until_log(0, words);
    // What the policies say is enforced none the less.
    nodes.assert_passes(B, C, TCP_8080, false);
    nodes.write("nodes.yaml", node::NODES);
    nodes.wait_until_ready();
    nodes.wait_until_metric(0, "palisade_pods_unclosed 0");
    nodes.write("nodes.yaml", &node::without_blocks());
    nodes.wait_until_first_says(words);
    // With the option that lets them pass nothing is reported.
    nodes.start(&["--unknown-pod", "allow"]);
    nodes.wait_until_ready();
    nodes.wait_until_metric(0, "palisade_pods_unclosed 0");
}

/// What takes packets past the policies makes the agent not ready while it is there (D103).
pub(crate) fn ways_past_policies_are_reported() {
    let mut nodes = Nodes::new();
    nodes.start(&[]);
    nodes.wait_until_ready();
    // Root of a user namespace may not ask for programs of tcx, and says so; root of the machine
    // may.
    let unchecked = u8::from((Need::ROOT.look)().is_err());
    nodes.wait_until_metric(0, &format!("palisade_programs_unchecked {unchecked}"));
    for (interface, words) in [
        ("kube-ipvs0", "IPVS translates Services"),
        ("cilium_host", "Cilium is on this node (cilium_host)"),
    ] {
        nodes.ip(0, &format!("link add {interface} type bridge"));
        nodes.wait_until_first_says(words);
        nodes.wait_until_metric(0, "palisade_policies_bypassed 1");
        nodes.wait_until_log(0, words);
        nodes.ip(0, &format!("link del {interface}"));
        nodes.wait_until_ready();
    }
    // An option allows programs, and none allows IPVS.
    nodes.ip(0, "link add cilium_host type bridge");
    nodes.start_first_with(&["--bpf", "allow"]);
    nodes.wait_until_ready();
    nodes.wait_until_metric(0, "palisade_programs_unchecked 0");
    nodes.ip(0, "link add kube-ipvs0 type bridge");
    nodes.wait_until_first_says("IPVS translates Services");
    nodes.wait_until_metric(0, "palisade_policies_bypassed 1");
}

/// Another program has the port for health and metrics.
pub(crate) fn a_taken_port_keeps_nothing_from_being_enforced() {
    let mut nodes = Nodes::new();
    let taken = nodes.in_node(0, || TcpListener::bind(("127.0.0.1", node::PORT)).unwrap());
    nodes.start(&[]);
    nodes.wait_until(B, C, TCP_8080, false);
    nodes.wait_until_log(0, "table installed");
    nodes.wait_until_log(0, "cannot serve health and metrics at 127.0.0.1:9477");
    // It is reported once, and tried again.
    std::thread::sleep(Duration::from_millis(500));
    let log = nodes.log(0);
    assert_eq!(log.matches("cannot serve health").count(), 1, "{log}");
    drop(taken);
    nodes.wait_until_ready();
    let metrics = nodes.get(0, "/metrics").1;
    let failures = metrics
        .lines()
        .find_map(|it| it.strip_prefix("palisade_listen_failures_total "));
    assert!(failures.unwrap().parse::<u32>().unwrap() > 1, "{metrics}");
}

/// `--close-only`, before any agent: closed but for what the node does itself; and nothing of what
/// the policies deny gets through from then on, while the agent starts and takes over.
pub(crate) fn closed_before_any_agent() {
    let mut nodes = Nodes::new();
    let flood = Flood::new(&nodes);
    flood.wait_for_one();

    let printed = nodes.close_only(&BLOCKS);
    assert!(printed.contains("are closed until"), "{printed}");
    flood.forget();
    let is_closed = |nodes: &mut Nodes| {
        for (from, to) in [(A, C), (C, A), (A, B), (B, A)] {
            nodes.assert_passes(from, to, TCP_8080, false);
            nodes.assert_passes(from, to, TCP_81, false);
        }
        nodes.assert_passes(Location::Node(0), A, TCP_81, true);
    };
    is_closed(&mut nodes);
    // What the node asks its pods is answered.
    let address = SocketAddr::from(([10, 0, 1, 1], 8080));
    let listener = nodes.in_pod(0, || TcpListener::bind(address).unwrap());
    let mut client = nodes.in_node(0, || TcpStream::connect(address).unwrap());
    let (mut server, _) = listener.accept().unwrap();
    assert!(carries(&mut client, &mut server) && carries(&mut server, &mut client));
    // Once more is no harm, also with other blocks.
    nodes.close_only(&BLOCKS[..2]);
    nodes.close_only(&BLOCKS);
    is_closed(&mut nodes);
    // The agent takes it over without an API server, and then with all objects.
    nodes.start_without_server(&[]);
    nodes.wait_until_first_says("cannot read pods");
    nodes.wait_until_log(0, "existing closed table adopted");
    is_closed(&mut nodes);
    nodes.start(&[]);
    nodes.wait_until_ready();
    assert_eq!(flood.seen(), 0, "packets passed while the agent took over");
    nodes.assert_passes(A, C, TCP_8080, true);
    nodes.assert_passes(A, C, TCP_81, false);
    nodes.assert_passes(B, C, TCP_81, false);
    // Policies are not closed again, whether an agent runs or has ended.
    assert!(nodes.close_only(&BLOCKS).contains("an agent runs"));
    nodes.kill();
    let printed = nodes.close_only(&BLOCKS);
    assert!(
        printed.contains("policies are already enforced"),
        "{printed}"
    );
    nodes.assert_passes(A, C, TCP_8080, true);
}

/// More than were sent before anything was closed.
const MANY: usize = 20_000;

/// Packets of b to c, whose egress is closed, without end.
struct Flood {
    receiver: UdpSocket,
    is_over: Arc<AtomicBool>,
}

impl Flood {
    fn new(nodes: &Nodes) -> Flood {
        let to: SocketAddr = SocketAddr::from(([10, 0, 2, 1], PORT));
        let receiver = nodes.in_pod(2, || UdpSocket::bind(to).unwrap());
        receiver
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        // From another port each time: none of them is a connection that has begun.
        let senders: Vec<UdpSocket> = nodes.in_pod(1, || {
            let any = || UdpSocket::bind("0.0.0.0:0").unwrap();
            std::iter::repeat_with(any).take(200).collect()
        });
        let ends = Arc::clone(&is_over);
        std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                for sender in &senders {
                    let _ = sender.send_to(b"x", to);
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        });
        Flood { receiver, is_over }
    }

    fn wait_for_one(&self) {
        let mut word = [0; 8];
        self.receiver.recv(&mut word).unwrap();
    }

    /// What has arrived so far does not count.
    fn forget(&self) {
        assert!(self.seen() < MANY, "packets go on arriving");
    }

    /// How many have arrived. If they go on arriving, it is enough to know of many.
    fn seen(&self) -> usize {
        let mut word = [0; 8];
        let arrived = std::iter::from_fn(|| self.receiver.recv(&mut word).ok());
        arrived.take(MANY).count()
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
