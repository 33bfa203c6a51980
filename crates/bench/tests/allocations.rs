//! Verdicts allocate no memory, for any ends and any deciding rule.

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
use palisade_bench::allocated::allocated;
use palisade_core::answer::Reason;
use palisade_core::compile::compile;
use palisade_core::decide::{Flow, FlowEnd, Identity, Traffic};
use palisade_core::model::{Cluster, NodeId, Peer, PodId, PolicyRank};
use palisade_core::net::Protocol;
use palisade_core::policy::{Direction, Tier};
use palisade_core::program::Program;
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// A small cluster with policies of every generation and peers of every kind.
const CLUSTER: &str = include_str!("allocations.yaml");

/// The sorts of peers and of places that the cluster's policies have.
fn features(cluster: &Cluster<'_>) -> BTreeSet<&'static str> {
    use palisade_core::model::NamespaceSet;
    let mut features = BTreeSet::new();
    for policy in &cluster.policies {
        features.insert(match policy.rank {
            PolicyRank::EarlyAdmin => "early admin",
            PolicyRank::Ordered(Tier::Admin, _) => "admin",
            PolicyRank::Ordered(Tier::Baseline, _) => "baseline",
            PolicyRank::NetworkPolicy => "network policy",
            PolicyRank::DefaultGroup => "default group",
        });
        for direction in Direction::BOTH {
            let rules = policy.rules(direction).list.iter();
            let effects = rules.filter_map(|rule| rule.effect.as_ref());
            for peer in effects.flat_map(|effect| effect.peers.iter().flatten()) {
                features.insert(match peer {
                    Peer::Pods(set) => match set.namespaces {
                        NamespaceSet::Exact(_) => "one namespace",
                        NamespaceSet::Selected { .. } => "selected namespaces",
                        NamespaceSet::Own => "own namespace",
                        NamespaceSet::NotOwn => "other namespaces",
                        NamespaceSet::SameLabels(_) => "same labels",
                        NamespaceSet::NotSameLabels(_) => "other labels",
                    },
                    Peer::Nodes(_) => "nodes",
                    Peer::Block { .. } => "block",
                    Peer::Domains(_) => "domains",
                    Peer::All => "all",
                });
            }
        }
    }
    features
}

/// All possible ends of a flow.
fn parties(cluster: &Cluster<'_>, program: &Program) -> Vec<FlowEnd> {
    let mut parties = Vec::new();
    let mut add = |who, address: &IpAddr| {
        let address = program.address_atom(*address);
        parties.push(FlowEnd {
            identity: who,
            address,
        });
    };
    for (id, pod) in (0..).map(PodId).zip(&cluster.pods) {
        for address in &pod.addresses {
            add(Identity::Pod(id), address);
        }
    }
    for (id, node) in (0..).map(NodeId).zip(&cluster.nodes) {
        for address in &node.addresses {
            add(Identity::Node(Some(id)), address);
            add(Identity::Node(None), address);
        }
    }
    for address in ["203.0.113.7", "198.51.100.9", "8.8.8.8", "2001:db8::1"] {
        add(Identity::External, &address.parse().unwrap());
    }
    parties
}

fn traffic() -> Vec<Traffic> {
    let mut traffic = vec![Traffic::Portless, Traffic::NeighborDiscovery];
    for protocol in Protocol::ALL {
        for port in [1, 53, 80, 443, 8080, 9090, 30_000, 65_535] {
            traffic.push(Traffic::Port(protocol, NonZeroU16::new(port).unwrap()));
        }
    }
    traffic
}

fn all_flows(cluster: &Cluster<'_>, program: &Program) -> Vec<Flow> {
    let parties = parties(cluster, program);
    let mut flows = Vec::new();
    for source in &parties {
        for destination in &parties {
            for traffic in traffic() {
                for (via_service, node_local) in [(false, false), (true, false), (false, true)] {
                    flows.push(Flow {
                        source: *source,
                        destination: *destination,
                        traffic,
                        via_service,
                        node_local,
                    });
                }
            }
        }
    }
    flows
}

/// One test, because the allocator counts for the whole process.
#[test]
fn verdicts_allocate_nothing() {
    let sources = [Source::new("allocations.yaml", CLUSTER.as_bytes().to_vec())];
    let manifests = read(&sources, Options::default(), &|_| {});
    let errors = manifests.problems.iter().filter(|it| it.is_error());
    let errors: Vec<_> = errors.map(|it| (it.code, &it.message)).collect();
    assert!(errors.is_empty(), "{errors:?}");
    let learned = [("www.example.com", "198.51.100.9")]
        .map(|(name, address)| (name.to_owned(), address.parse().unwrap()));
    let lowered = lower(&manifests.objects, learned.to_vec());
    let cluster = &lowered.cluster;
    assert_eq!(features(cluster).len(), 5 + 10, "{:?}", features(cluster));

    let program = compile(cluster);
    let flows = all_flows(cluster, &program);
    let decisions = flows.iter().map(|flow| program.decide(flow));
    let reasons = decisions.flat_map(|it| [it.egress, it.ingress].map(Reason::of));
    let reasons: BTreeSet<Reason> = reasons.collect();
    assert_eq!(reasons.len(), 8, "only {reasons:?}");

    // The allocator would notice: this much is allocated by a single number.
    let noticed = {
        ALLOCATOR.reset_peak_usage();
        let before = ALLOCATOR.current_usage();
        drop(std::hint::black_box(Box::new(1_u8)));
        ALLOCATOR.peak_usage() - before
    };
    assert!(noticed >= 1);
    assert_eq!(allocated(&ALLOCATOR, &program, &flows), 0);
}
