//! The plans of nodes equal the program's verdicts: plans of random clusters, read literally, for
//! every pair of addresses and both directions.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU16;

use palisade_api::{Options, Source, lower, read};
use palisade_campaigns::plan_reader;
use palisade_core::compile::compile;
use palisade_core::decide::{Flow, FlowEnd, Identity, Traffic};
use palisade_core::model::Cluster;
use palisade_core::net::{Family, Protocol};
use palisade_core::plan::{MERGE_OVER, Plan, plan, plan_merging};
use palisade_core::policy::{Direction, Verdict};
use palisade_core::program::{Owner, Program};
use palisade_oracle::generate::scenario;
use serde_json::{Value, json};

const SEEDS: std::ops::Range<u64> = 0..2_000;

#[test]
fn a_plan_equals_the_program() {
    let (mut compared, mut denied) = (0u64, 0u64);
    for seed in SEEDS {
        let scenario = scenario(seed, 0);
        let text = serde_json::to_vec(&scenario.objects).unwrap();
        let sources = [Source::new("objects.json", text)];
        let manifests = read(&sources, Options::default(), &|_| {});
        let lowered = lower(&manifests.objects, scenario.dns);
        let program = compile(&lowered.cluster);
        let cluster = TestCluster::new(&lowered.cluster, &program);
        for node in &lowered.cluster.nodes {
            // Every third cluster has set lookups for all unions.
            let merge_over = if seed % 3 == 0 { 0 } else { MERGE_OVER };
            let plan = plan_merging(&lowered.cluster, &program, node.name, merge_over);
            for own in plan.pods.keys() {
                for direction in Direction::BOTH {
                    for traffic in TRAFFIC {
                        let (n, d) = cluster.compare(seed, &plan, *own, direction, traffic);
                        compared += n;
                        denied += d;
                    }
                }
            }
        }
    }
    println!("{compared} compared, {denied} denied");
    assert!(
        compared > 500_000 && denied > compared / 20,
        "{compared} {denied}"
    );
}

const fn at(protocol: Protocol, number: u16) -> Traffic {
    match NonZeroU16::new(number) {
        Some(port) => Traffic::Port(protocol, port),
        None => Traffic::Portless,
    }
}

const TRAFFIC: [Traffic; 10] = [
    at(Protocol::Tcp, 80),
    at(Protocol::Tcp, 81),
    at(Protocol::Tcp, 8080),
    at(Protocol::Tcp, 9090),
    at(Protocol::Tcp, 53),
    at(Protocol::Udp, 53),
    at(Protocol::Udp, 80),
    at(Protocol::Sctp, 9003),
    at(Protocol::Sctp, 80),
    Traffic::Portless,
];

fn port_of(traffic: Traffic) -> plan_reader::Port {
    match traffic {
        Traffic::Port(protocol, port) => Some((protocol, port)),
        Traffic::Portless | Traffic::NeighborDiscovery => None,
    }
}

/// The addresses of a cluster and outside.
struct TestCluster<'p> {
    program: &'p Program,
    addresses: Vec<IpAddr>,
}

impl<'p> TestCluster<'p> {
    fn new(cluster: &Cluster<'_>, program: &'p Program) -> TestCluster<'p> {
        let pods = cluster.pods.iter().flat_map(|pod| &pod.addresses);
        let nodes = cluster.nodes.iter().flat_map(|node| &node.addresses);
        let mut addresses: Vec<IpAddr> = pods.chain(nodes).copied().collect();
        for outside in [
            "203.0.113.7",
            "203.0.113.77",
            "198.51.100.200",
            "2001:db8:ffff::7",
            "fd00:9::9",
        ] {
            addresses.push(outside.parse().unwrap());
        }
        addresses.sort_unstable();
        addresses.dedup();
        TestCluster { program, addresses }
    }

    fn end(&self, address: IpAddr) -> FlowEnd {
        let identity = match self.program.owner(address) {
            Some(Owner::Pod(pod)) => Identity::Pod(pod),
            Some(Owner::Node(node)) => Identity::Node(node),
            None => Identity::External,
        };
        FlowEnd {
            identity,
            address: self.program.address_atom(address),
        }
    }

    fn compare(
        &self,
        seed: u64,
        plan: &Plan,
        own: IpAddr,
        direction: Direction,
        traffic: Traffic,
    ) -> (u64, u64) {
        let (mut compared, mut denied) = (0, 0);
        for other in &self.addresses {
            if Family::of(own) != Family::of(*other) {
                continue;
            }
            let (subject, peer) = (self.end(own), self.end(*other));
            let (source, destination) = match direction {
                Direction::Egress => (subject, peer),
                Direction::Ingress => (peer, subject),
            };
            let flow = Flow {
                source,
                destination,
                traffic,
                via_service: true,
                node_local: false,
            };
            let decided = self.program.direction(&flow, direction).verdict();
            let planned = plan_reader::verdict(plan, (own, direction), *other, port_of(traffic));
            assert_eq!(
                decided, planned,
                "seed {seed}: {own} {direction:?} {other} {traffic:?}"
            );
            compared += 1;
            denied += u64::from(decided == Verdict::Deny);
        }
        (compared, denied)
    }
}

/// Exceptions of too many lengths for lookups: the rest of the block becomes ranges.
#[test]
fn many_exceptions_leave_ranges() {
    let lengths = 9..=31u8;
    let except: Vec<String> = lengths
        .clone()
        .map(|length| {
            // The second half of the rest.
            let bits = (10u32 << 24) | (1 << (32 - length));
            format!(
                "{}/{length}",
                std::net::Ipv4Addr::from(bits & !0 << (32 - length))
            )
        })
        .collect();
    let objects = json!([
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "x"},
         "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
         "status": {"podIP": "192.0.2.1"}},
        {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
         "metadata": {"name": "p", "namespace": "x"},
         "spec": {"podSelector": {}, "ingress": [
            {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": except}}]}]}}]);
    let sources = [Source::new(
        "objects.json",
        objects.to_string().into_bytes(),
    )];
    let manifests = read(&sources, Options::default(), &|_| {});
    assert!(
        manifests.problems.iter().all(|it| !it.is_error()),
        "{:?}",
        manifests.problems
    );
    let lowered = lower(&manifests.objects, Vec::new());
    let program = compile(&lowered.cluster);
    let mut cluster = TestCluster::new(&lowered.cluster, &program);
    for length in 1..=32u8 {
        for around in [0u32, 1, u32::MAX] {
            let bits = (10u32 << 24).wrapping_add((1u64 << (32 - length)) as u32);
            let address = std::net::Ipv4Addr::from(bits.wrapping_add(around));
            cluster.addresses.push(IpAddr::V4(address));
        }
    }
    let plan = plan(&lowered.cluster, &program, "n1");
    let own = "192.0.2.1".parse().unwrap();
    let chain = &plan.chains[&plan.pods[&own].ingress.unwrap()];
    assert!(chain.rest.is_empty(), "{:?}", chain.rest);
    let group = chain.merged.nets_of_any_port(Family::V4).unwrap();
    // The exceptions cover all but the first two addresses.
    let bounds: [IpAddr; 2] = ["10.0.0.0", "10.0.0.2"].map(|it| it.parse().unwrap());
    assert_eq!(plan.groups[&group].addresses, bounds);
    let traffic = at(Protocol::Tcp, 80);
    let (compared, denied) = cluster.compare(0, &plan, own, Direction::Ingress, traffic);
    assert!(
        compared > 90 && denied > 20 && denied < compared,
        "{compared} {denied}"
    );
}

/// Ingress rules whose port ranges overlap for different peers, and blocks with exceptions.
fn range_rules() -> Vec<Value> {
    let port = |from: u16, to: u16, protocol: &str| json!({"port": from, "endPort": to, "protocol": protocol});
    let block = |cidr: &str, except: &[&str]| json!({"ipBlock": {"cidr": cidr, "except": except}});
    let pod = json!({"podSelector": {"matchLabels": {"app": "b"}}});
    let rules = [
        (
            vec![port(1, 100, "TCP"), port(50, 200, "TCP")],
            vec![pod.clone()],
        ),
        (
            vec![port(150, 1000, "TCP")],
            vec![block("203.0.113.0/24", &["203.0.113.64/26"])],
        ),
        (
            vec![port(999, 1001, "UDP")],
            vec![block("0.0.0.0/0", &["198.51.100.0/24"])],
        ),
        (
            vec![port(1024, 65535, "TCP")],
            vec![block("2001:db8::/32", &["2001:db8:1::/48"])],
        ),
        (vec![port(1, 65535, "SCTP")], vec![block("::/0", &[]), pod]),
        (
            vec![port(8192, 12287, "TCP")],
            vec![block("0.0.0.0/0", &[])],
        ),
    ];
    let rules = rules.into_iter();
    rules
        .map(|(ports, from)| json!({"ports": ports, "from": from}))
        .collect()
}

/// Addresses at the edges of the blocks of [`range_rules`].
const BLOCK_EDGES: [&str; 21] = [
    "203.0.112.255",
    "203.0.113.0",
    "203.0.113.63",
    "203.0.113.64",
    "203.0.113.127",
    "203.0.113.128",
    "203.0.113.255",
    "203.0.114.0",
    "198.51.99.255",
    "198.51.100.0",
    "198.51.100.255",
    "198.51.101.0",
    "0.0.0.0",
    "255.255.255.255",
    "2001:db8::",
    "2001:db8:0:ffff:ffff:ffff:ffff:ffff",
    "2001:db8:1::",
    "2001:db8:2::",
    "2001:db9::",
    "::",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
];

/// Ports at the edges of the ranges of [`range_rules`].
fn port_edges() -> BTreeSet<u16> {
    let edges = [
        1, 50, 100, 150, 200, 999, 1000, 1001, 1024, 8192, 12287, 65535u16,
    ];
    let edges = edges
        .into_iter()
        .flat_map(|it| [it - 1, it, it.saturating_add(1)]);
    edges.filter(|it| *it > 0).collect()
}

/// Ranges of ports and blocks with exceptions, enough of both for set lookups.
#[test]
fn ranges_equal_the_program() {
    let pod = |name: &str, v4: &str, v6: &str| {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "x", "labels": {"app": name}},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
            "status": {"podIP": v4, "podIPs": [{"ip": v4}, {"ip": v6}]}})
    };
    let objects = json!([
        pod("a", "192.0.2.1", "2001:db8:a::1"),
        pod("b", "192.0.2.2", "2001:db8:a::2"),
        {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
         "metadata": {"name": "p", "namespace": "x"},
         "spec": {"podSelector": {"matchLabels": {"app": "a"}}, "ingress": range_rules()}}]);
    let sources = [Source::new(
        "objects.json",
        objects.to_string().into_bytes(),
    )];
    let manifests = read(&sources, Options::default(), &|_| {});
    let lowered = lower(&manifests.objects, Vec::new());
    let program = compile(&lowered.cluster);
    let mut cluster = TestCluster::new(&lowered.cluster, &program);
    let outside = BLOCK_EDGES.map(|it| it.parse::<IpAddr>().unwrap());
    cluster.addresses.extend(outside);
    let (mut compared, mut denied) = (0, 0);
    for merge_over in [0, usize::MAX] {
        let plan = plan_merging(&lowered.cluster, &program, "n1", merge_over);
        for own in ["192.0.2.1", "2001:db8:a::1"].map(|it| it.parse().unwrap()) {
            let chain = &plan.chains[&plan.pods[&own].ingress.unwrap()];
            assert_eq!(chain.rest.is_empty(), merge_over == 0, "{chain:?}");
            for protocol in Protocol::ALL {
                for number in port_edges() {
                    let traffic = at(protocol, number);
                    let (n, d) = cluster.compare(0, &plan, own, Direction::Ingress, traffic);
                    compared += n;
                    denied += d;
                }
            }
        }
    }
    assert!(
        compared > 5_000 && denied > 1_000 && compared - denied > 1_000,
        "{compared} {denied}"
    );
}

/// A pod with named ports.
fn with_ports(name: &str, address: &str, ports: &[(&str, u16, &str)]) -> Value {
    let ports: Vec<Value> = ports
        .iter()
        .map(|(name, port, protocol)| {
            json!({"name": name, "containerPort": port, "protocol": protocol})
        })
        .collect();
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "x", "labels": {"app": name}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i", "ports": ports}]},
        "status": {"podIP": address, "podIPs": [{"ip": address}]}})
}

/// A named port is the port of each destination (D33), which must be a pod even if the peer is a
/// block (D35).
#[test]
fn named_ports_are_those_of_each_destination() {
    let rules = json!([
        {"ports": [{"port": "http"}], "to": [{"podSelector": {"matchLabels": {"app": "b"}}}]},
        {"ports": [{"port": "http"}], "to": [{"podSelector": {"matchLabels": {"app": "c"}}}]},
        {"ports": [{"port": "dns", "protocol": "UDP"}],
         "to": [{"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.4/32"]}}]},
        {"ports": [{"port": "web"}], "to": [{"ipBlock": {"cidr": "2001:db8::/32"}}]},
        {"ports": [{"port": "all"}]},
        {"ports": [{"port": 9000}], "to": [{"podSelector": {"matchLabels": {"app": "b"}}}]}]);
    let objects = json!([
        with_ports("a", "192.0.2.1", &[]),
        with_ports("b", "192.0.2.2", &[("http", 80, "TCP"), ("dns", 53, "UDP"), ("all", 7, "TCP")]),
        with_ports("c", "192.0.2.3", &[("http", 8080, "TCP"), ("dns", 53, "TCP"), ("all", 8, "TCP")]),
        with_ports("d", "192.0.2.4", &[("http", 80, "TCP"), ("dns", 53, "UDP"), ("all", 7, "UDP")]),
        with_ports("e", "192.0.2.5", &[("dns", 5353, "UDP"), ("web", 81, "TCP")]),
        with_ports("f", "2001:db8:a::1", &[]),
        with_ports("g", "2001:db8:a::2", &[("web", 81, "TCP"), ("all", 8, "TCP")]),
        {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
         "metadata": {"name": "p", "namespace": "x"},
         "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": rules}}]);
    let sources = [Source::new(
        "objects.json",
        objects.to_string().into_bytes(),
    )];
    let manifests = read(&sources, Options::default(), &|_| {});
    let lowered = lower(&manifests.objects, Vec::new());
    let program = compile(&lowered.cluster);
    // The allowed flows, by the specification; all others are denied.
    let allowed = [
        ("192.0.2.1", "192.0.2.2", Protocol::Tcp, 80),
        ("192.0.2.1", "192.0.2.2", Protocol::Udp, 53),
        ("192.0.2.1", "192.0.2.2", Protocol::Tcp, 7),
        ("192.0.2.1", "192.0.2.2", Protocol::Tcp, 9000),
        ("192.0.2.1", "192.0.2.3", Protocol::Tcp, 8080),
        ("192.0.2.1", "192.0.2.3", Protocol::Tcp, 8),
        ("192.0.2.1", "192.0.2.5", Protocol::Udp, 5353),
        ("2001:db8:a::1", "2001:db8:a::2", Protocol::Tcp, 81),
        ("2001:db8:a::1", "2001:db8:a::2", Protocol::Tcp, 8),
    ];
    let allowed = allowed.map(|(from, to, protocol, port)| {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        (address(from), address(to), protocol, port)
    });
    let others = [
        "192.0.2.2",
        "192.0.2.3",
        "192.0.2.4",
        "192.0.2.5",
        "192.0.2.77",
        "2001:db8:a::2",
        "2001:db8:a::7",
    ];
    let others = others.map(|it| it.parse::<IpAddr>().unwrap());
    for merge_over in [0, MERGE_OVER] {
        let plan = plan_merging(&lowered.cluster, &program, "n1", merge_over);
        let mut found = 0;
        for own in ["192.0.2.1", "2001:db8:a::1"].map(|it| it.parse::<IpAddr>().unwrap()) {
            let chain = &plan.chains[&plan.pods[&own].egress.unwrap()];
            assert_eq!(chain.rest.is_empty(), merge_over == 0, "{chain:?}");
            for other in others
                .into_iter()
                .filter(|it| it.is_ipv4() == own.is_ipv4())
            {
                for protocol in Protocol::ALL {
                    for port in [7, 8, 53, 80, 81, 5353, 8080, 9000] {
                        let verdict = plan_reader::verdict(
                            &plan,
                            (own, Direction::Egress),
                            other,
                            port_of(at(protocol, port)),
                        );
                        let is_allowed = allowed.contains(&(own, other, protocol, port));
                        assert_eq!(
                            verdict == Verdict::Allow,
                            is_allowed,
                            "{own} {other} {protocol} {port}"
                        );
                        found += usize::from(is_allowed);
                    }
                }
            }
        }
        assert_eq!(found, allowed.len());
    }
}
