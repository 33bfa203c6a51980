//! Real packets through namespaces that this test makes itself.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use palisade_lab::network::LabNetwork;
use palisade_lab::packet::fragment::split;
use palisade_lab::packet::read::{IcmpReason, PacketKind};
use palisade_lab::packet::segment::{ACK, PSH, Segment};
use palisade_lab::packet::{ProbePayload, ProbeSpec, datagram};
use palisade_lab::topology::{Location, NodeSpec, PodSpec, Topology};
use palisade_lab::wire::{Probe, ProbeResult, Wire};

const TESTS: [(&str, fn()); 11] = [
    (
        "every_kind_of_packet_goes_everywhere",
        every_kind_of_packet_goes_everywhere,
    ),
    ("a_stack_that_can_answer_does", a_stack_that_can_answer_does),
    (
        "neighbour_discovery_is_carried",
        neighbour_discovery_is_carried,
    ),
    (
        "a_drop_is_detected_without_a_timeout",
        a_drop_is_detected_without_a_timeout,
    ),
    (
        "only_those_absent_are_probed_again",
        only_those_absent_are_probed_again,
    ),
    ("fragments_arrive", fragments_arrive),
    (
        "a_segment_in_mid_stream_is_refused",
        a_segment_in_mid_stream_is_refused,
    ),
    ("a_large_mesh_is_complete", a_large_mesh_is_complete),
    ("a_cluster_may_be_empty", a_cluster_may_be_empty),
    (
        "a_thread_comes_back_from_a_namespace",
        a_thread_comes_back_from_a_namespace,
    ),
    ("a_wrong_topology_is_refused", a_wrong_topology_is_refused),
];

fn main() -> ExitCode {
    palisade_need::run_inside(TESTS)
}

/// Nodes and pods with two addresses each; the pods are dealt out to the nodes in turn.
fn topology(nodes: usize, pods: usize) -> Topology {
    let both = |ipv4: String, ipv6: String| vec![address(&ipv4), address(&ipv6)];
    Topology {
        nodes: (0..nodes)
            .map(|index| NodeSpec {
                addresses: both(
                    format!("10.0.0.{}", index + 1),
                    format!("fd00::{:x}", index + 1),
                ),
            })
            .collect(),
        pods: (0..pods)
            .map(|index| PodSpec {
                node: index % nodes,
                addresses: both(
                    format!("10.1.{}.{}", index / 250, index % 250 + 1),
                    format!("fd01::{:x}", index + 1),
                ),
            })
            .collect(),
        outside: vec![address("192.0.2.1"), address("2001:db8::1")],
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn open(topology: &Topology) -> (LabNetwork, Wire) {
    let world = LabNetwork::build(topology, &|_| ()).unwrap();
    let wire = Wire::open(&world).unwrap();
    (world, wire)
}

/// The address of a place, of one family.
fn at(topology: &Topology, place: Location, ipv6: bool) -> IpAddr {
    topology
        .addresses()
        .find(|(address, owner)| *owner == place && address.is_ipv6() == ipv6)
        .unwrap()
        .0
}

fn probe(
    topology: &Topology,
    from: Location,
    to: Location,
    ipv6: bool,
    carried: ProbePayload,
) -> Probe {
    Probe {
        from,
        source: at(topology, from, ipv6),
        destination: at(topology, to, ipv6),
        carried,
        source_port: None,
    }
}

const KINDS: [ProbePayload; 8] = [
    ProbePayload::Tcp { port: 80 },
    ProbePayload::Udp { port: 53 },
    ProbePayload::Sctp { port: 3868 },
    ProbePayload::Echo,
    ProbePayload::Other { protocol: 47 },
    ProbePayload::Other { protocol: 50 },
    ProbePayload::Other { protocol: 51 },
    ProbePayload::Other { protocol: 253 },
];

/// Pods 0 and 2 are on node 0, pod 1 on node 1.
const PLACES: [Location; 6] = [
    Location::Pod(0),
    Location::Pod(1),
    Location::Pod(2),
    Location::Node(0),
    Location::Node(1),
    Location::Outside,
];

fn everywhere(topology: &Topology, kinds: &[ProbePayload]) -> Vec<(Probe, Location)> {
    let mut all = Vec::new();
    for ipv6 in [false, true] {
        for from in PLACES {
            for to in PLACES {
                for carried in kinds {
                    all.push((probe(topology, from, to, ipv6, *carried), to));
                }
            }
        }
    }
    all
}

fn measure(wire: &mut Wire, probes: &[(Probe, Location)]) -> Vec<ProbeResult> {
    let probes: Vec<Probe> = probes.iter().map(|(probe, _)| *probe).collect();
    wire.probe(&probes, &|_| ()).unwrap()
}

fn every_kind_of_packet_goes_everywhere() {
    let topology = topology(2, 3);
    let (_, mut wire) = open(&topology);
    let probes = everywhere(&topology, &KINDS);
    for ((probe, to), measured) in probes.iter().zip(measure(&mut wire, &probes)) {
        assert_eq!(measured.arrived, Some(*to), "{probe:?}");
    }
}

fn a_stack_that_can_answer_does() {
    let topology = topology(2, 3);
    let (_, mut wire) = open(&topology);
    let kinds = [
        ProbePayload::Tcp { port: 80 },
        ProbePayload::Udp { port: 53 },
        ProbePayload::Echo,
    ];
    let probes = everywhere(&topology, &kinds);
    for ((probe, to), measured) in probes.iter().zip(measure(&mut wire, &probes)) {
        // A pod's own address is not outside the pod: it does not send the answer out again.
        let to_itself = probe.from == *to && matches!(to, Location::Pod(_));
        assert_eq!(measured.answered, !to_itself, "{probe:?}");
    }
}

fn neighbour_discovery_is_carried() {
    let topology = topology(2, 3);
    let (_, mut wire) = open(&topology);
    let kinds: Vec<ProbePayload> = (128..=143)
        .filter(|kind| *kind != 129)
        .map(|kind| ProbePayload::Icmpv6 { kind })
        .collect();
    let mut probes = everywhere(&topology, &kinds);
    probes.retain(|(probe, _)| probe.source.is_ipv6());
    for ((probe, to), measured) in probes.iter().zip(measure(&mut wire, &probes)) {
        assert_eq!(measured.arrived, Some(*to), "{probe:?}");
    }
}

fn a_drop_is_detected_without_a_timeout() {
    let topology = topology(2, 3);
    let (_, mut wire) = open(&topology);
    for (source, unused) in [("10.1.0.1", "10.9.9.9"), ("fd01::1", "fd09::9")] {
        let lost = Probe {
            from: Location::Pod(0),
            source: address(source),
            destination: address(unused),
            carried: ProbePayload::Udp { port: 53 },
            source_port: None,
        };
        let mut shortest = Duration::MAX;
        for _ in 0..5 {
            let started = Instant::now();
            let measured = wire.probe(&[lost], &|_| ()).unwrap();
            shortest = shortest.min(started.elapsed());
            assert_eq!(measured, [ProbeResult::default()]);
        }
        assert!(shortest < Duration::from_millis(100), "{shortest:?}");
    }
}

fn only_those_absent_are_probed_again() {
    let topology = topology(1, 2);
    let (_, mut wire) = open(&topology);
    let there = probe(
        &topology,
        Location::Pod(0),
        Location::Pod(1),
        false,
        ProbePayload::Echo,
    );
    let lost = Probe {
        destination: address("10.9.9.9"),
        ..there
    };
    let wrong = ProbeResult {
        arrived: Some(Location::Outside),
        answered: false,
    };
    let mut measured = [ProbeResult::default(), wrong, ProbeResult::default()];
    wire.probe_again(&[there, there, lost], &mut measured)
        .unwrap();
    let arrived = ProbeResult {
        arrived: Some(Location::Pod(1)),
        answered: true,
    };
    assert_eq!(measured, [arrived, wrong, ProbeResult::default()]);
}

fn fragments_arrive() {
    let topology = topology(2, 3);
    let (_, mut wire) = open(&topology);
    for ipv6 in [false, true] {
        let draft = ProbeSpec {
            source: at(&topology, Location::Pod(0), ipv6),
            destination: at(&topology, Location::Pod(1), ipv6),
            carried: ProbePayload::Udp { port: 53 },
            source_port: 40_000,
            id: u32::MAX,
        };
        let pieces = split(&datagram(&draft, 4_000).unwrap(), 1_400, 9).unwrap();
        let seen = wire
            .exchange(Location::Pod(0), pieces.iter().map(Vec::as_slice))
            .unwrap();
        let arrived = seen.iter().filter(|(place, _)| *place == Location::Pod(1));
        assert_eq!(arrived.count(), 3, "{seen:?}");
        // The stack reassembled them, and found no listening socket.
        let refused = seen.iter().any(|(place, seen)| {
            *place == Location::Pod(0)
                && seen.kind == PacketKind::Error(IcmpReason::PortUnreachable)
                && seen.id == Some(draft.id)
        });
        assert!(refused, "{seen:?}");

        // A node sees the whole.
        let draft = ProbeSpec {
            destination: at(&topology, Location::Node(1), ipv6),
            ..draft
        };
        let pieces = split(&datagram(&draft, 4_000).unwrap(), 1_400, 10).unwrap();
        let seen = wire
            .exchange(Location::Pod(0), pieces.iter().map(Vec::as_slice))
            .unwrap();
        let arrived: Vec<_> = seen
            .iter()
            .filter(|(place, _)| *place == Location::Node(1))
            .collect();
        assert!(
            matches!(arrived[..], [(_, seen)] if seen.id == Some(draft.id)),
            "{seen:?}"
        );
    }
}

fn a_segment_in_mid_stream_is_refused() {
    let topology = topology(1, 2);
    let (_, mut wire) = open(&topology);
    let segment = Segment {
        source: "10.1.0.1:40000".parse().unwrap(),
        destination: "10.1.0.2:80".parse().unwrap(),
        flags: PSH | ACK,
        sequence: 70,
        acknowledgment: 71,
        data: b"hello",
    };
    let packet = segment.build().unwrap();
    let seen = wire
        .exchange(Location::Pod(0), [packet.as_slice()])
        .unwrap();
    let kinds: Vec<_> = seen
        .iter()
        .map(|(place, seen)| (*place, seen.kind))
        .collect();
    assert_eq!(
        kinds,
        [
            (Location::Pod(1), PacketKind::Segment(PSH | ACK)),
            (Location::Pod(0), PacketKind::Reset)
        ]
    );
}

fn a_large_mesh_is_complete() {
    let topology = topology(3, 50);
    let (_, mut wire) = open(&topology);
    let mut probes = Vec::new();
    for ipv6 in [false, true] {
        for from in 0..50 {
            for to in (0..50).filter(|to| *to != from) {
                let [from, to] = [from, to].map(Location::Pod);
                let probe = probe(&topology, from, to, ipv6, ProbePayload::Udp { port: 53 });
                probes.push((probe, to));
            }
        }
    }
    let measured = measure(&mut wire, &probes);
    assert_eq!(measured.len(), 4_900);
    for ((probe, to), measured) in probes.iter().zip(measured) {
        let expected = ProbeResult {
            arrived: Some(*to),
            answered: true,
        };
        assert_eq!(measured, expected, "{probe:?}");
    }
}

fn a_cluster_may_be_empty() {
    let (_, mut wire) = open(&Topology::default());
    assert_eq!(wire.probe(&[], &|_| ()).unwrap(), []);
    assert_eq!(wire.exchange(Location::Outside, []).unwrap(), []);
}

fn a_thread_comes_back_from_a_namespace() {
    let here = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let home = here();
    let world = LabNetwork::build(&topology(1, 1), &|_| ()).unwrap();
    assert_eq!(here(), home);
    let inside = world.in_pod(0, here).unwrap();
    assert_ne!(inside, home);
    assert_eq!(here(), home);
    let nested = world.in_node(0, || world.in_pod(0, here).unwrap()).unwrap();
    assert_eq!((nested, here()), (inside.clone(), home.clone()));

    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        world.in_fabric(|| panic!("on purpose"))
    }));
    std::panic::set_hook(hook);
    assert!(panicked.is_err());
    assert_eq!(here(), home);

    let path = world.namespace_path(Location::Pod(0)).unwrap();
    assert_eq!(std::fs::read_link(path).unwrap(), inside);
    assert_eq!(world.pod_interface(0), "pod0");
    assert!(world.in_pod(1, || ()).is_err());
}

fn a_wrong_topology_is_refused() {
    let mut wrong = topology(1, 2);
    wrong.pods[1].node = 7;
    let error = LabNetwork::build(&wrong, &|_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "pod 1 is on node 7; the topology has 1 nodes"
    );
}
