//! What nodes are told to enforce is what the program decides: plans of random clusters, read
//! literally, against verdicts, for every pair of parties, in both directions.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use palisade_api::{Options, Source, lower, read};
use palisade_core::compile::compile;
use palisade_core::decide::{Flow, Party, Traffic, Who};
use palisade_core::model::Cluster;
use palisade_core::net::{Cidr, CidrText, Family, Protocol};
use palisade_core::plan::{
    Body, GroupId, GroupKind, MERGE_OVER, Merged, Plan, Step, Within, plan, plan_merging,
};
use palisade_core::policy::{Action, Direction, Verdict};
use palisade_core::program::{Owner, Program};
use palisade_oracle::generate::scenario;

const SEEDS: std::ops::Range<u64> = 0..2_000;

#[test]
fn a_plan_says_what_the_program_decides() {
    let (mut compared, mut denied) = (0u64, 0u64);
    for seed in SEEDS {
        let scenario = scenario(seed, 0);
        let text = serde_json::to_vec(&scenario.objects).unwrap();
        let sources = [Source::new("objects.json", text)];
        let manifests = read(&sources, Options::default(), &|_| {});
        let lowered = lower(&manifests.objects, scenario.dns);
        let program = compile(&lowered.cluster);
        let world = World::new(&lowered.cluster, &program);
        for node in &lowered.cluster.nodes {
            // Every third cluster asks all unions at once.
            let merge_over = if seed % 3 == 0 { 0 } else { MERGE_OVER };
            let plan = plan_merging(&lowered.cluster, &program, node.name, merge_over);
            for own in plan.pods.keys() {
                for direction in Direction::BOTH {
                    for traffic in TRAFFIC {
                        let (n, d) = world.compare(seed, &plan, *own, direction, traffic);
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

/// Everyone who could be at an end.
struct World<'p> {
    program: &'p Program,
    addresses: Vec<IpAddr>,
}

impl<'p> World<'p> {
    fn new(cluster: &Cluster<'_>, program: &'p Program) -> World<'p> {
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
        World { program, addresses }
    }

    fn party(&self, address: IpAddr) -> Party {
        let who = match self.program.owner(address) {
            Some(Owner::Pod(pod)) => Who::Pod(pod),
            Some(Owner::Node(node)) => Who::Node(node),
            None => Who::External,
        };
        Party {
            who,
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
            let (subject, peer) = (self.party(own), self.party(*other));
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
            let planned = match plan.pods[&own].body(direction) {
                None => Verdict::Allow,
                Some(id) => read_body(plan, &plan.bodies[&id], *other, traffic),
            };
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

/// Exceptions of so many lengths that they cannot all be asked: what is left of the block is named
/// instead.
#[test]
fn many_exceptions_are_taken_out() {
    let lengths = 9..=31u8;
    let except: Vec<String> = lengths
        .clone()
        .map(|length| {
            // The second half of what the one before left.
            let bits = (10u32 << 24) | (1 << (32 - length));
            format!(
                "{}/{length}",
                std::net::Ipv4Addr::from(bits & !0 << (32 - length))
            )
        })
        .collect();
    let objects = serde_json::json!([
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
    let mut world = World::new(&lowered.cluster, &program);
    for length in 1..=32u8 {
        for around in [0u32, 1, u32::MAX] {
            let bits = (10u32 << 24).wrapping_add((1u64 << (32 - length)) as u32);
            let address = std::net::Ipv4Addr::from(bits.wrapping_add(around));
            world.addresses.push(IpAddr::V4(address));
        }
    }
    let plan = plan(&lowered.cluster, &program, "n1");
    let own = "192.0.2.1".parse().unwrap();
    let body = &plan.bodies[&plan.pods[&own].ingress.unwrap()];
    let peers = body.rest[0].peers.as_ref().unwrap();
    assert!(peers.iter().all(|it| it.except.is_empty()), "{peers:?}");
    let traffic = at(Protocol::Tcp, 80);
    let (compared, denied) = world.compare(0, &plan, own, Direction::Ingress, traffic);
    assert!(
        compared > 90 && denied > 20 && denied < compared,
        "{compared} {denied}"
    );
}

fn read_body(plan: &Plan, body: &Body, peer: IpAddr, traffic: Traffic) -> Verdict {
    let verdict = |action| match action {
        Action::Accept => Some(Verdict::Allow),
        Action::Deny => Some(Verdict::Deny),
        Action::Pass => None,
    };
    let first = |steps: &[Arc<Step>]| {
        let mut steps = steps.iter();
        steps
            .find(|step| matches(plan, step, peer, traffic))
            .map(|step| step.action)
    };
    if let Some(verdict) = first(&body.admin).and_then(verdict) {
        return verdict;
    }
    if merged(plan, &body.merged, peer, traffic) {
        return Verdict::Allow;
    }
    first(&body.rest).and_then(verdict).unwrap_or(body.end)
}

fn merged(plan: &Plan, merged: &Merged, peer: IpAddr, traffic: Traffic) -> bool {
    let any_port = merged.any_port.is_some_and(|it| is_in(plan, it, peer));
    any_port
        || match traffic {
            Traffic::Port(protocol, port) => {
                let key = (protocol, port.get());
                let group = merged.of_ports.get(&key);
                merged.open(Family::of(peer)).contains(&key)
                    || group.is_some_and(|it| is_in(plan, *it, peer))
            }
            Traffic::Portless | Traffic::NeighborDiscovery => false,
        }
}

fn matches(plan: &Plan, step: &Step, peer: IpAddr, traffic: Traffic) -> bool {
    let ports = step.ports.as_ref().is_none_or(|ports| {
        ports.iter().any(|condition| match traffic {
            Traffic::Port(protocol, port) => {
                condition.protocol == protocol
                    && condition.range.contains(port)
                    && condition.at.is_none_or(|at| is_in(plan, at, peer))
            }
            Traffic::Portless | Traffic::NeighborDiscovery => false,
        })
    });
    let peers = step.peers.as_ref().is_none_or(|peers| {
        peers.iter().any(|condition| {
            let within = match condition.within {
                Within::Family(family) => Family::of(peer) == family,
                Within::Group(group) => is_in(plan, group, peer),
            };
            within
                && !condition
                    .except
                    .iter()
                    .any(|group| is_in(plan, *group, peer))
        })
    });
    ports && peers
}

fn is_in(plan: &Plan, group: GroupId, peer: IpAddr) -> bool {
    let group = &plan.groups[&group];
    match group.kind {
        GroupKind::Hosts => group.addresses.binary_search(&peer).is_ok(),
        GroupKind::Nets(_, length) => group.addresses.iter().any(|net| {
            let text = format!("{net}/{length}");
            let cidr: Cidr = CidrText::parse(&text).unwrap().cidr;
            cidr.contains(peer)
        }),
    }
}
