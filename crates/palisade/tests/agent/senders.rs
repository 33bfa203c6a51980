//! Senders who are not who they say (D147), on nodes that agents enforce for.

use std::net::IpAddr;

use palisade_lab::packet::{ProbePayload, ProbeSpec, build};
use palisade_lab::topology::Location;

use crate::node::{self, A, B, C, Nodes, TCP_81, TCP_8080, UDP_53, addresses};

/// A packet with a sender's address, not necessarily one of who sends it.
#[derive(Clone, Copy)]
struct SentPacket {
    from: Location,
    source: IpAddr,
    to: Location,
    carried: ProbePayload,
    source_port: u16,
    hops: u8,
}

impl SentPacket {
    /// A packet from one place to another with a source address, in a family.
    fn new(
        from: Location,
        who: Location,
        to: Location,
        carried: ProbePayload,
        family: usize,
    ) -> SentPacket {
        SentPacket {
            from,
            source: addresses(who)[family].parse().unwrap(),
            to,
            carried,
            source_port: 0,
            hops: 64,
        }
    }

    fn arrives(self, nodes: &mut Nodes) -> bool {
        let id = nodes.take_id();
        let family = usize::from(self.source.is_ipv6());
        let draft = ProbeSpec {
            source: self.source,
            destination: addresses(self.to)[family].parse().unwrap(),
            carried: self.carried,
            source_port: match self.source_port {
                0 => 20_000 + id as u16,
                port => port,
            },
            id,
        };
        let mut packet = Vec::new();
        build(&draft, &mut packet).unwrap();
        if self.source.is_ipv6() {
            packet[7] = self.hops;
        }
        let seen = nodes.exchange(self.from, &packet);
        seen.iter()
            .any(|(place, seen)| *place == self.to && seen.id == Some(id))
    }
}

/// Who lies, as whom, to whom: on one node and between two.
const LIES: [(Location, Location, Location); 6] = [
    (B, A, C),
    (B, C, A),
    (A, C, B),
    (C, A, B),
    (C, B, A),
    (A, Location::Node(0), C),
];

const N1: Location = Location::Node(0);

pub(crate) fn no_pod_sends_with_another_address() {
    for (option, is_heard) in [("drop", false), ("drop-every", false), ("allow", true)] {
        let mut nodes = Nodes::new();
        nodes.write("policies.yaml", "");
        nodes.start(&["--false-sender", option]);
        nodes.wait_until_ready();
        for family in [0, 1] {
            for carried in [UDP_53, ProbePayload::Echo, TCP_8080] {
                for (from, who, to) in LIES {
                    let packet = SentPacket::new(from, who, to, carried, family);
                    // Again and again.
                    for _ in 0..5 {
                        let arrives = packet.arrives(&mut nodes);
                        assert_eq!(arrives, is_heard, "{from} as {who} to {to}, {carried:?}");
                    }
                }
            }
            for to in [C, A, N1] {
                let packet = SentPacket::new(B, B, to, UDP_53, family);
                assert!(packet.arrives(&mut nodes), "{to}");
            }
        }
        let metrics = nodes.get(0, "/metrics").1;
        let unchecked = if is_heard { 4 } else { 0 };
        let line = format!("palisade_senders_unchecked {unchecked}");
        assert!(metrics.lines().any(|it| it == line), "{metrics}");
    }
}

/// The policies let only a reach c, and b no pod.
pub(crate) fn a_false_name_opens_nothing() {
    let mut nodes = Nodes::new();
    nodes.start(&[]);
    nodes.wait_until_ready();
    for family in [0, 1] {
        assert!(SentPacket::new(A, A, C, TCP_8080, family).arrives(&mut nodes));
        assert!(!SentPacket::new(B, A, C, TCP_8080, family).arrives(&mut nodes));
        assert!(!SentPacket::new(B, A, N1, TCP_81, family).arrives(&mut nodes));
    }
    // What another node lets out is refused where the address is at home, too.
    nodes.stop(1);
    for family in [0, 1] {
        assert!(!SentPacket::new(C, A, B, TCP_8080, family).arrives(&mut nodes));
        assert!(!SentPacket::new(Location::Outside, A, B, TCP_8080, family).arrives(&mut nodes));
        assert!(SentPacket::new(C, C, B, TCP_8080, family).arrives(&mut nodes));
    }
}

/// Only its two ends send in an evaluated connection, if every packet is checked. Otherwise no
/// other pod can begin one, but a pod that knows its ports can send a packet in it.
pub(crate) fn no_pod_sends_in_the_connection_of_another() {
    for (option, rides) in [("drop-every", false), ("drop", true)] {
        let mut nodes = Nodes::new();
        nodes.write("policies.yaml", "");
        nodes.start(&["--false-sender", option]);
        nodes.wait_until_ready();
        try_to_ride(&mut nodes, rides);
    }
}

fn try_to_ride(nodes: &mut Nodes, rides: bool) {
    for family in [0, 1] {
        let (mut there, mut back) = (
            SentPacket::new(A, A, C, UDP_53, family),
            SentPacket::new(C, C, A, ProbePayload::Udp { port: 5_300 }, family),
        );
        there.source_port = 5_300;
        back.source_port = 53;
        for _ in 0..3 {
            assert!(there.arrives(nodes) && back.arrives(nodes));
            // On the client's node, as each of the ends.
            for packet in [there, back] {
                let packet = SentPacket { from: B, ..packet };
                assert_eq!(packet.arrives(nodes), rides);
            }
        }
    }
}

/// Router advertisements and redirects of a pod are not for its node; neighbor discovery works as
/// before.
pub(crate) fn pods_are_no_routers() {
    for (option, is_heard) in [("drop", false), ("allow", true)] {
        let mut nodes = Nodes::new();
        nodes.start(&["--false-sender", option]);
        nodes.wait_until_ready();
        for (kind, is_heard) in [(134, is_heard), (137, is_heard), (135, true)] {
            let mut packet = SentPacket::new(B, B, N1, ProbePayload::Icmpv6 { kind }, 1);
            packet.hops = 255;
            assert_eq!(packet.arrives(&mut nodes), is_heard, "{kind}");
        }
        let mut packet = SentPacket::new(
            Location::Outside,
            N1,
            N1,
            ProbePayload::Icmpv6 { kind: 134 },
            1,
        );
        packet.hops = 255;
        assert!(packet.arrives(&mut nodes), "a real router");
    }
}

/// What goes elsewhere need not come back the same way: the agent knows the interface that leads
/// there. The node's own address is such a one, as it is not reached by any interface.
pub(crate) fn ways_may_differ_elsewhere() {
    for option in ["drop", "drop-every"] {
        let mut nodes = Nodes::new();
        nodes.write("policies.yaml", "");
        nodes.start(&["--false-sender", option]);
        nodes.wait_until_ready();
        for family in [0, 1] {
            let mut packet = SentPacket::new(Location::Outside, N1, A, UDP_53, family);
            // First and later.
            packet.source_port = 7_000;
            assert!(packet.arrives(&mut nodes) && packet.arrives(&mut nodes));
        }
    }
}

/// Two pods on a bridge: the node cannot tell which of them sends, and says so.
pub(crate) fn unchecked_senders_are_reported() {
    let mut nodes = Nodes::new();
    nodes.ip(0, "link add cni0 type bridge");
    nodes.ip(0, "link set cni0 up");
    nodes.ip(0, "addr add 10.0.7.254/24 dev cni0");
    for (name, address) in [("d", "10.0.7.1"), ("e", "10.0.7.2")] {
        let pod = node::POD_B
            .replace("name: b,", &format!("name: {name},"))
            .replace(
                "{ip: 10.0.1.2}, {ip: 'fd00:1::2'}",
                &format!("{{ip: {address}}}"),
            );
        nodes.write(&format!("{name}.yaml"), &pod);
    }
    nodes.start(&[]);
    nodes.wait_until_metric(0, "palisade_senders_unchecked 2");
    nodes.wait_until_log(0, "pods behind cni0 can send with each other's addresses");
    // No other pod sends with their addresses.
    nodes.wait_until_log(0, "table installed");
    let mut packet = SentPacket::new(A, A, C, TCP_8080, 0);
    assert!(packet.arrives(&mut nodes));
    packet.source = "10.0.7.1".parse().unwrap();
    assert!(!packet.arrives(&mut nodes));
}
