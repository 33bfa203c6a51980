//! Small clusters, evaluated as a whole and flow by flow. In the tests of this crate nearly all set
//! hashes collide, so these results depend on members being compared.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod examples;

use std::collections::BTreeSet;

use super::diff::{self, ChangeKind, Limits, Version};
use super::{Connectivity, Member, Selection};
use crate::answer::PortSet;
use crate::compile::compile;
use crate::decide::{Flow, FlowEnd, Identity, Traffic};
use crate::fixture::{
    PolicyDraft, Random, admin, all, allow, block, cluster, everything, is, labelled, netpol, node,
    pod, pods_of, port, rule, tcp,
};
use crate::model::{Cluster, NodeId, Peer, PodId, PodSet, Rule};
use crate::net::Protocol;
use crate::policy::{Action, Verdict};
use crate::program::Program;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const NAMESPACES: [&str; 3] = ["x", "y", "z"];
const PORTS: [u16; 5] = [80, 81, 82, 83, 84];
/// The addresses of all pods of a namespace, of some, of one, and of the nodes.
const BLOCKS: [&str; 6] = [
    "10.0.0.0/16",
    "10.1.0.96/30",
    "10.0.0.98/32",
    "10.2.0.100/31",
    "192.0.2.0/24",
    "192.0.2.2/32",
];

fn peers(random: &mut Random) -> Vec<Peer<'static>> {
    match random.below(8) {
        0 => all(),
        1 => pods_of(random.one(&NAMESPACES)),
        2 | 3 => block(random.one(&BLOCKS)),
        _ => labelled("app", random.one(&NAMES)),
    }
}

fn some_rule(random: &mut Random) -> Rule<'static> {
    let peers = peers(random);
    let port = tcp(random.one(&PORTS));
    match random.below(3) {
        0 => allow(peers),
        _ => rule(Action::Accept, peers, Some(vec![port])),
    }
}

/// A policy of each name: two clusters then have the same policies with other rules.
fn policies(random: &mut Random) -> Vec<PolicyDraft> {
    let names = ["p", "q", "r", "s", "t"];
    let mut drafts: Vec<PolicyDraft> = Vec::new();
    for name in names {
        let namespace = random.one(&NAMESPACES);
        let pods = match random.below(3) {
            0 => everything(),
            _ => is("app", random.one(&NAMES)),
        };
        let mut draft = netpol(namespace, name);
        if let Some(Peer::Pods(own)) = pods_of(namespace).pop() {
            let pods = Some(pods);
            draft = draft.subject(PodSet { pods, ..own });
        }
        for _ in 0..random.below(5) {
            let rule = some_rule(random);
            draft = if random.below(3) == 0 {
                draft.egress(rule)
            } else {
                draft.ingress(rule)
            };
        }
        drafts.push(draft);
    }
    for (name, priority) in [("one", 1), ("two", 2)] {
        let mut draft = admin(name, priority);
        for _ in 0..random.below(4) {
            let action = random.one(&[Action::Accept, Action::Deny, Action::Pass]);
            let ports = vec![tcp(random.one(&PORTS))];
            let rule = rule(action, peers(random), Some(ports));
            draft = if random.below(2) == 0 {
                draft.ingress(rule)
            } else {
                draft.egress(rule)
            };
        }
        drafts.push(draft);
    }
    drafts
}

/// Eighteen pods on two nodes, and some policies.
fn some_cluster(random: &mut Random) -> Cluster<'static> {
    let mut pods = Vec::new();
    for namespace in NAMESPACES {
        for name in NAMES {
            let mut pod = pod(namespace, name);
            pod.node = Some(["n1", "n2"][pods.len() % 2]);
            pods.push(pod);
        }
    }
    let policies = policies(random);
    Cluster {
        nodes: vec![node("n1", "192.0.2.1"), node("n2", "192.0.2.2")],
        ..cluster(pods, policies)
    }
}

/// The allowed flows: source, destination pod and port.
type Allowed = BTreeSet<(Member, Member, u16)>;

/// Evaluates flow by flow.
fn by_flow(cluster: &Cluster<'_>, program: &Program) -> Allowed {
    let mut allowed = Allowed::new();
    let pods = (0..).zip(&cluster.pods);
    let pods: Vec<_> = pods.map(|(id, pod)| (PodId(id), pod)).collect();
    let nodes = (0..).zip(&cluster.nodes);
    let nodes = nodes.map(|(id, node)| {
        let id = NodeId(id);
        let (identity, address) = (Identity::Node(Some(id)), node.addresses[0]);
        (Member::Node(id), identity, address, Some(node.name))
    });
    let sources = pods
        .iter()
        .map(|(id, pod)| (Member::Pod(*id), Identity::Pod(*id), pod.addresses[0], None));
    for (from, identity, address, runs_on) in sources.chain(nodes) {
        for (id, pod) in &pods {
            let to = Member::Pod(*id);
            for number in PORTS.into_iter().filter(|_| from != to) {
                let flow = Flow {
                    source: FlowEnd {
                        identity,
                        address: program.address_atom(address),
                    },
                    destination: FlowEnd {
                        identity: Identity::Pod(*id),
                        address: program.address_atom(pod.addresses[0]),
                    },
                    traffic: Traffic::Port(Protocol::Tcp, port(number)),
                    via_service: false,
                    node_local: runs_on.is_some() && runs_on == pod.node,
                };
                if program.decide(&flow).verdict() == Verdict::Allow {
                    allowed.insert((from, to, number));
                }
            }
        }
    }
    allowed
}

fn add(into: &mut Allowed, from: &[Member], to: &[Member], ports: &PortSet) {
    let is_source = |it: &&Member| matches!(it, Member::Pod(_) | Member::Node(_));
    for from in from.iter().filter(is_source) {
        for to in to.iter().filter(|it| matches!(it, Member::Pod(_))) {
            for number in PORTS.into_iter().filter(|_| from != to) {
                if ports.contains(Protocol::Tcp, port(number)) {
                    into.insert((*from, *to, number));
                }
            }
        }
    }
}

/// Evaluates the whole cluster by blocks.
fn folded(cluster: &Cluster<'_>, program: &Program) -> Allowed {
    let connectivity = Connectivity::new(cluster, program, &Selection::ALL);
    let blocks = connectivity.blocks(100_000, &|_, _| {}).unwrap();
    let members = connectivity.members();
    let mut allowed = Allowed::new();
    let mut groups: BTreeSet<Vec<Member>> = BTreeSet::new();
    for block in &blocks.list {
        let [from, to] = [block.from, block.to].map(|group| -> Vec<Member> {
            let ids = connectivity.group(&blocks, group).into_iter();
            ids.map(|id| members[id.0 as usize]).collect()
        });
        add(&mut allowed, &from, &to, &block.reach.allowed);
        groups.extend([from, to]);
    }
    // The same members are one group, however they were found.
    assert_eq!(groups.len(), blocks.n_groups());
    allowed
}

#[test]
fn blocks_equal_single_flows() {
    for seed in 0..150 {
        let cluster = some_cluster(&mut Random(seed));
        let program = compile(&cluster);
        assert_eq!(
            folded(&cluster, &program),
            by_flow(&cluster, &program),
            "seed {seed}"
        );
    }
}

#[test]
fn a_difference_equals_single_flows_before_and_after() {
    let mut n_changed = 0;
    for seed in 0..150 {
        let mut random = Random(1000 + seed);
        let clusters = [some_cluster(&mut random), some_cluster(&mut random)];
        let programs = clusters.each_ref().map(|it| compile(it));
        let [old, new] = [0, 1].map(|side| Version {
            cluster: &clusters[side],
            program: &programs[side],
        });
        let found = diff::diff(old, new, Limits::default(), &|_, _| {}).unwrap();
        let mut by_kind = [ChangeKind::Gained, ChangeKind::Lost].map(|_| Allowed::new());
        let mut groups = BTreeSet::new();
        for block in &found.blocks {
            let [from, to] = [block.from, block.to].map(|group| -> Vec<Member> {
                let list = found.groups.get(group).into_iter();
                list.filter_map(|id| found.endpoints[id.0 as usize].new)
                    .collect()
            });
            let into = &mut by_kind[usize::from(block.kind == ChangeKind::Lost)];
            add(into, &from, &to, &block.ports);
            groups.extend([block.from, block.to].map(|it| found.groups.get(it)));
        }
        assert_eq!(groups.len(), found.groups.len(), "seed {seed}");
        let [before, after] = [old, new].map(|it| by_flow(it.cluster, it.program));
        n_changed += before.symmetric_difference(&after).count();
        let [gained, lost] = by_kind;
        let expected: Allowed = after.difference(&before).copied().collect();
        assert_eq!(gained, expected, "seed {seed}");
        let expected: Allowed = before.difference(&after).copied().collect();
        assert_eq!(lost, expected, "seed {seed}");
    }
    assert!(n_changed > 50_000, "{n_changed}");
}
