//! Small clusters whose connectivity follows from the specification.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::analysis::connect::diff::{self, ChangeKind, ChangedObject, Limits, Version};
use crate::analysis::connect::{Connectivity, Member, PortFilter, Selection, Summary};
use crate::answer::PortSet;
use crate::compile::compile;
use crate::fixture::{
    PolicyDraft, admin, all, allow, block, cluster, deny, netpol, node, pod, pods_of, rule,
    service, tcp,
};
use crate::model::{Cluster, Peer, Pod, PodId, PortMatch};
use crate::net::{CidrText, Protocol};
use crate::policy::Action;

/// The pods `x/a`, `x/b` and `y/c`.
fn with_policies(policies: Vec<PolicyDraft>) -> Cluster<'static> {
    cluster(vec![pod("x", "a"), pod("x", "b"), pod("y", "c")], policies)
}

fn all_of_tcp() -> PortSet {
    let mut ports = PortSet::default();
    ports.add_run(Protocol::Tcp, 1, u16::MAX);
    ports
}

/// Returns whether a member has a name: `x/a`, `node/n1`, `x/svc/web`, or an address outside.
fn is_called(
    cluster: &Cluster<'_>,
    connectivity: &Connectivity<'_>,
    member: Member,
    name: &str,
) -> bool {
    match member {
        Member::Pod(id) => cluster.pod_name(id) == name,
        Member::Node(id) => format!("node/{}", cluster.nodes[id.0 as usize].name) == name,
        Member::Service(id) => cluster.service_name(id) == name,
        Member::Network(id) => {
            let network = &connectivity.networks()[id.0 as usize];
            let address = name.parse::<IpAddr>();
            address.is_ok_and(|it| network.blocks.iter().any(|block| block.contains(it)))
        }
    }
}

/// Returns the TCP ports on which a member reaches another one, such as `allowed tcp/80`.
fn reach(cluster: &Cluster<'_>, from: &str, to: &str) -> String {
    let program = compile(cluster);
    let selection = Selection {
        ports: vec![PortFilter::Set(all_of_tcp())],
        ..Selection::ALL
    };
    let connectivity = Connectivity::new(cluster, &program, &selection);
    let blocks = connectivity.blocks(1000, &|_, _| {}).unwrap();
    let has = |group, name: &str| {
        let members = connectivity.group(&blocks, group).into_iter();
        let mut members = members.map(|id| connectivity.members()[id.0 as usize]);
        members.any(|it| is_called(cluster, &connectivity, it, name))
    };
    let mut found = blocks.list.iter();
    let Some(block) = found.find(|it| has(it.from, from) && has(it.to, to)) else {
        return "denied".to_owned();
    };
    let reach = &block.reach;
    let sets = [
        ("allowed", &reach.allowed),
        ("mixed", &reach.mixed),
        ("unknown", &reach.unknown),
    ];
    let sets = sets.into_iter().filter(|(_, ports)| !ports.is_empty());
    let sets = sets.map(|(name, ports)| format!("{name} {}", ports.text().join(" ")));
    sets.collect::<Vec<_>>().join(", ")
}

fn on_ports(numbers: &[u16]) -> Option<Vec<PortMatch<'static>>> {
    Some(numbers.iter().map(|it| tcp(*it)).collect())
}

#[test]
fn a_pair_is_allowed_on_the_ports_that_both_directions_allow() {
    // D2.
    let egress = |numbers: &[u16]| rule(Action::Accept, all(), on_ports(numbers));
    let to_80 = || netpol("x", "in").ingress(rule(Action::Accept, pods_of("y"), on_ports(&[80])));
    let one = with_policies(vec![to_80()]);
    assert_eq!(reach(&one, "y/c", "x/a"), "allowed tcp/80");
    assert_eq!(reach(&one, "x/b", "x/a"), "denied");
    assert_eq!(reach(&one, "x/a", "y/c"), "allowed tcp/*");
    let both = |numbers| with_policies(vec![to_80(), netpol("y", "out").egress(egress(numbers))]);
    assert_eq!(reach(&both(&[80, 443]), "y/c", "x/a"), "allowed tcp/80");
    assert_eq!(reach(&both(&[443]), "y/c", "x/a"), "denied");
}

#[test]
fn the_own_node_reaches_a_pod_that_is_closed() {
    // D74, D75.
    let mut cluster = with_policies(vec![netpol("x", "np").ingress_isolates().egress_isolates()]);
    cluster.nodes = vec![node("n1", "192.0.2.1"), node("n2", "192.0.2.2")];
    cluster.pods[0].node = Some("n1");
    assert_eq!(reach(&cluster, "node/n1", "x/a"), "allowed tcp/*");
    assert_eq!(reach(&cluster, "node/n2", "x/a"), "denied");
    assert_eq!(reach(&cluster, "node/n1", "x/b"), "denied");
    assert_eq!(reach(&cluster, "x/a", "node/n1"), "denied");
    // No policy applies to nodes.
    assert_eq!(reach(&cluster, "y/c", "node/n1"), "allowed tcp/*");
}

#[test]
fn a_host_network_pod_is_no_subject_and_no_peer_of_pods() {
    // D73.
    let mut cluster = with_policies(vec![netpol("x", "np").ingress(allow(pods_of("x")))]);
    cluster.nodes = vec![node("n1", "192.0.2.1")];
    cluster.pods.push(Pod {
        host_network: true,
        node: Some("n1"),
        addresses: vec!["192.0.2.1".parse().unwrap()],
        ..pod("x", "h")
    });
    assert_eq!(reach(&cluster, "y/c", "x/h"), "allowed tcp/*");
    assert_eq!(reach(&cluster, "x/h", "x/a"), "denied");
    assert_eq!(reach(&cluster, "x/b", "x/a"), "allowed tcp/*");
}

#[test]
fn what_depends_on_an_unknown_address_is_unknown() {
    // D83, D136.
    let from = |peers| {
        let mut cluster = with_policies(vec![netpol("x", "np").ingress(allow(peers))]);
        cluster.pods[2].addresses.clear();
        reach(&cluster, "y/c", "x/a")
    };
    assert_eq!(from(block("10.0.0.0/8")), "unknown tcp/*");
    assert_eq!(from(block("0.0.0.0/0")), "allowed tcp/*");
    assert_eq!(from(block("224.0.0.0/4")), "denied");
}

#[test]
fn families_with_different_verdicts_are_mixed() {
    // D87, E22.
    let mut cluster = with_policies(vec![admin("p", 1).egress(deny(block("0.0.0.0/0")))]);
    for (index, pod) in cluster.pods.iter_mut().enumerate() {
        pod.addresses
            .push(format!("fd00::{index}").parse().unwrap());
    }
    assert_eq!(reach(&cluster, "x/a", "y/c"), "mixed tcp/*");
    cluster.pods[2].addresses.remove(0);
    assert_eq!(reach(&cluster, "x/a", "y/c"), "allowed tcp/*");
}

#[test]
fn a_service_is_reached_on_its_own_ports() {
    // D78, D129: TCP port 80 leads to 8080.
    let to_8080 = rule(Action::Accept, pods_of("y"), on_ports(&[8080]));
    let mut cluster = with_policies(vec![netpol("x", "np").ingress(to_8080)]);
    cluster.services = vec![service("x", "web", (PodId(0), 8080))];
    assert_eq!(reach(&cluster, "y/c", "x/svc/web"), "allowed tcp/80");
    assert_eq!(reach(&cluster, "x/b", "x/svc/web"), "denied");
}

#[test]
fn outside_addresses_are_distinguished_by_the_blocks_of_rules() {
    // D22, D100.
    let cidr = |text: &str| CidrText::parse(text).unwrap().cidr;
    let peer = Peer::Block {
        cidr: cidr("203.0.113.0/24"),
        except: vec![cidr("203.0.113.128/25")],
    };
    let cluster = with_policies(vec![netpol("x", "np").ingress(allow(vec![peer]))]);
    assert_eq!(reach(&cluster, "203.0.113.7", "x/a"), "allowed tcp/*");
    assert_eq!(reach(&cluster, "203.0.113.200", "x/a"), "denied");
    assert_eq!(reach(&cluster, "198.51.100.1", "x/a"), "denied");
    assert_eq!(reach(&cluster, "x/a", "198.51.100.1"), "allowed tcp/*");
}

#[test]
fn the_summary_counts_ordered_pairs_of_different_pods() {
    let summary = |cluster: &Cluster<'_>| {
        let program = compile(cluster);
        let connectivity = Connectivity::new(cluster, &program, &Selection::ALL);
        connectivity.summary(&|_, _| {})
    };
    // Both pods of `x` are closed: to each of them from two pods. To `y/c` all is allowed.
    let mut cluster = with_policies(vec![netpol("x", "np").ingress_isolates()]);
    let expected = Summary {
        endpoints: 3,
        allowed: 2,
        denied: 4,
        ..Summary::default()
    };
    assert_eq!(summary(&cluster), expected);
    // `y/c` shares no family with the others.
    cluster.pods[2].addresses = vec!["fd00::1".parse().unwrap()];
    let expected = Summary {
        endpoints: 3,
        denied: 2,
        no_family: 4,
        ..Summary::default()
    };
    assert_eq!(summary(&cluster), expected);
}

#[test]
fn a_difference_has_the_flows_of_the_changed_policy_and_names_it() {
    let old = with_policies(Vec::new());
    let to_80 = rule(Action::Accept, pods_of("y"), on_ports(&[80]));
    let new = with_policies(vec![netpol("x", "np").ingress(to_80)]);
    let programs = [&old, &new].map(compile);
    let [before, after] = [(&old, &programs[0]), (&new, &programs[1])];
    let version = |(cluster, program)| Version { cluster, program };
    let found = diff::diff(
        version(before),
        version(after),
        Limits::default(),
        &|_, _| {},
    )
    .unwrap();
    // The only changed policy.
    let changed = ChangedObject::Policy(0);
    // Blocks may split the ports of a pair.
    let mut lost: BTreeMap<(String, String), PortSet> = BTreeMap::new();
    for block in &found.blocks {
        assert_eq!(block.kind, ChangeKind::Lost);
        assert_eq!(block.causes, [changed]);
        let [from, to] = [block.from, block.to].map(|group| {
            let ends = found.groups.get(group).into_iter();
            let ends = ends.map(|id| found.endpoints[id.0 as usize].new.unwrap());
            let names = ends.filter_map(|it| match it {
                Member::Pod(id) => Some(new.pod_name(id)),
                Member::Node(_) | Member::Network(_) | Member::Service(_) => None,
            });
            names.collect::<Vec<_>>()
        });
        for from in &from {
            for to in to.iter().filter(|to| *to != from) {
                let lost = lost.entry((from.clone(), to.clone())).or_default();
                lost.add(&block.ports.and(&all_of_tcp()));
            }
        }
    }
    let lost = lost.iter().map(|((from, to), ports)| {
        let ports = ports.text().join(" ");
        format!("{from} -> {to} {ports}")
    });
    assert_eq!(
        lost.collect::<Vec<_>>(),
        [
            "x/a -> x/b tcp/*",
            "x/b -> x/a tcp/*",
            "y/c -> x/a tcp/1-79 tcp/81-65535",
            "y/c -> x/b tcp/1-79 tcp/81-65535",
        ]
    );
}
