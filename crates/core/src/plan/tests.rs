//! Plans of small clusters, as the specification defines them.

use std::net::IpAddr;

use super::{
    Group, GroupId, GroupKind, PeerCondition, PeerScope, Plan, PodChains, PortBlock, PortCondition,
    RuleChain, Step, plan, plan_merging, ranges,
};
use crate::compile::compile;
use crate::fixture::{
    PolicyDraft, admin, all, allow, baseline, block, cluster, declared, default_policy, deny,
    everything, is, labelled, named, netpol, node, pass, pod, pods_of, rule, tcp,
};
use crate::model::{Cluster, Peer, Pod, PodPhase};
use crate::net::{CidrText, Family, Protocol};
use crate::policy::{Action, Direction};

/// `10.0.0.98`, `10.0.0.99` and `10.1.0.100`: the pods `x/a`, `x/b` and `y/c`, all on the node
/// `n1`.
fn with_policies(policies: Vec<PolicyDraft>) -> Cluster<'static> {
    let pods = [pod("x", "a"), pod("x", "b"), pod("y", "c")];
    let pods = pods.map(|pod| Pod {
        node: Some("n1"),
        ..pod
    });
    cluster(pods.into(), policies)
}

fn plan_of(cluster: &Cluster<'_>) -> Plan {
    plan(cluster, &compile(cluster), "n1")
}

fn chain(plan: &Plan, address: &str, direction: Direction) -> Option<RuleChain> {
    let address: IpAddr = address.parse().unwrap();
    let id = plan.pods[&address].chain(direction)?;
    Some((*plan.chains[&id]).clone())
}

/// The steps of an ingress chain, a line between the Admin tier and the rest, and the verdict.
fn ingress(cluster: &Cluster<'_>, address: &str) -> Vec<String> {
    steps(cluster, address, Direction::Ingress)
}

fn egress(cluster: &Cluster<'_>, address: &str) -> Vec<String> {
    steps(cluster, address, Direction::Egress)
}

fn steps(cluster: &Cluster<'_>, address: &str, direction: Direction) -> Vec<String> {
    let plan = plan_of(cluster);
    let Some(chain) = chain(&plan, address, direction) else {
        return Vec::new();
    };
    let mut lines: Vec<String> = chain.admin.iter().map(|it| step(&plan, it)).collect();
    lines.push("---".to_owned());
    lines.extend(chain.rest.iter().map(|it| step(&plan, it)));
    lines.push(chain.verdict.to_string());
    lines
}

/// `Deny TCP/80 for 10.1.0.100`.
fn step(plan: &Plan, step: &Step) -> String {
    let port = |it: &PortCondition| {
        let at = it.at.map(|id| format!(" at {}", members(plan, id)));
        let ports = format!("{}-{}", it.range.start(), it.range.end());
        format!("{}/{ports}{}", it.protocol, at.unwrap_or_default())
    };
    let peer = |it: &PeerCondition| {
        let within = match it.within {
            PeerScope::Family(family) => family.to_string(),
            PeerScope::Group(id) => members(plan, id),
        };
        let except = it
            .except
            .iter()
            .map(|id| format!(" except {}", members(plan, *id)));
        format!("{within}{}", except.collect::<String>())
    };
    let ports = step
        .ports
        .as_ref()
        .map_or("every port".to_owned(), |ports| {
            ports.iter().map(port).collect::<Vec<_>>().join(", ")
        });
    let peers = step
        .peers
        .as_ref()
        .map_or("every peer".to_owned(), |peers| {
            peers.iter().map(peer).collect::<Vec<_>>().join(", ")
        });
    format!("{} {ports} for {peers}", step.action)
}

/// `10.1.0.100+203.0.113.7`, `10.0.0.0/8`, or `10.0.0.0..11.0.0.0`.
fn members(plan: &Plan, id: GroupId) -> String {
    let Group { kind, addresses } = &plan.groups[&id];
    let members: Vec<String> = match kind {
        GroupKind::Hosts => addresses.iter().map(IpAddr::to_string).collect(),
        GroupKind::Nets(_, length) => {
            let nets = addresses.iter();
            nets.map(|it| format!("{it}/{length}")).collect()
        }
        GroupKind::Ranges(_) => ranges(addresses)
            .map(|(first, end)| format!("{first}..{}", end.unwrap()))
            .collect(),
    };
    members.join("+")
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_plan_has_the_pods_of_its_node() {
    let mut cluster = with_policies(Vec::new());
    cluster.pods[1].node = Some("n2");
    cluster.pods[2].node = None;
    let plan = plan_of(&cluster);
    let address = "10.0.0.98".parse().unwrap();
    assert_eq!(Vec::from_iter(plan.pods), [(address, PodChains::default())]);
    assert!(plan.chains.is_empty() && plan.groups.is_empty());
}

#[test]
fn a_chain_evaluates_the_admin_tier_and_then_the_network_policies() {
    let to_80 = rule(Action::Deny, pods_of("y"), Some(vec![tcp(80)]));
    let cluster = with_policies(vec![
        admin("late", 20).ingress(pass(all())),
        admin("early", 10).ingress(to_80),
        netpol("x", "np").ingress(allow(pods_of("y"))),
    ]);
    let expected = [
        "Deny TCP/80-80 for 10.1.0.100",
        "Pass every port for every peer",
        "---",
        "Accept every port for 10.1.0.100",
        "Deny",
    ];
    assert_eq!(ingress(&cluster, "10.0.0.98"), expected);
    // No policy applies to egress.
    assert_eq!(egress(&cluster, "10.0.0.98"), NOTHING);
}

#[test]
fn network_policies_replace_the_baseline_in_the_directions_that_they_isolate() {
    // D12.
    let cluster = with_policies(vec![
        netpol("x", "np").pods(is("app", "a")).ingress_isolates(),
        baseline("b", 1).ingress(deny(all())).egress(deny(all())),
    ]);
    assert_eq!(ingress(&cluster, "10.0.0.98"), ["---", "Deny"]);
    let of_baseline = ["---", "Deny every port for every peer", "Allow"];
    assert_eq!(egress(&cluster, "10.0.0.98"), of_baseline);
    assert_eq!(ingress(&cluster, "10.0.0.99"), of_baseline);
}

#[test]
fn a_pass_of_the_baseline_accepts() {
    // D10: after the Baseline tier only the default follows.
    let cluster = with_policies(vec![
        baseline("b", 1)
            .ingress(pass(pods_of("y")))
            .ingress(deny(all())),
    ]);
    assert_eq!(
        ingress(&cluster, "10.0.0.98"),
        [
            "---",
            "Accept every port for 10.1.0.100",
            "Deny every port for every peer",
            "Allow",
        ]
    );
}

#[test]
fn no_step_follows_the_isolation_of_default_policies() {
    // D62, D116.
    let cluster = with_policies(vec![
        baseline("early", 1000).ingress(deny(labelled("app", "b"))),
        default_policy("d").ingress(allow(pods_of("y"))),
        baseline("late", 2000).ingress(allow(all())),
    ]);
    assert_eq!(
        ingress(&cluster, "10.0.0.98"),
        [
            "---",
            "Deny every port for 10.0.0.99",
            "Accept every port for 10.1.0.100",
            "Deny",
        ]
    );
}

#[test]
fn a_named_port_of_ingress_is_that_of_the_subject() {
    // D33: `x/b` has no port of the name, so the rule matches nothing there.
    let http = rule(Action::Accept, all(), Some(vec![named("http")]));
    let mut cluster = with_policies(vec![netpol("x", "np").ingress(http)]);
    cluster.pods[0].ports = [declared("http", 8080, Protocol::Tcp)].into();
    assert_eq!(
        ingress(&cluster, "10.0.0.98"),
        ["---", "Accept TCP/8080-8080 for every peer", "Deny"]
    );
    assert_eq!(ingress(&cluster, "10.0.0.99"), ["---", "Deny"]);
}

#[test]
fn a_named_port_of_egress_is_that_of_each_destination() {
    // D33, E9.
    let http = rule(Action::Accept, all(), Some(vec![named("http")]));
    let mut cluster = with_policies(vec![netpol("x", "np").egress(http)]);
    cluster.pods[1].ports = [declared("http", 8080, Protocol::Tcp)].into();
    cluster.pods[2].ports = [declared("http", 9090, Protocol::Tcp)].into();
    assert_eq!(
        egress(&cluster, "10.0.0.98"),
        [
            "---",
            "Accept TCP/8080-8080 at 10.0.0.99, TCP/9090-9090 at 10.1.0.100 for every peer",
            "Deny",
        ]
    );
}

#[test]
fn host_network_and_terminated_pods_are_neither_subjects_nor_peers() {
    // D73, D81.
    let mut cluster = with_policies(vec![netpol("x", "np").ingress(allow(pods_of("x")))]);
    cluster.pods.push(Pod {
        host_network: true,
        node: Some("n1"),
        ..pod("x", "d")
    });
    cluster.pods.push(Pod {
        phase: PodPhase::Terminated,
        node: Some("n1"),
        ..pod("x", "e")
    });
    assert_eq!(
        ingress(&cluster, "10.0.0.98"),
        ["---", "Accept every port for 10.0.0.98+10.0.0.99", "Deny"]
    );
    let plan = plan_of(&cluster);
    assert_eq!(plan.pods.len(), 3);
}

#[test]
fn a_node_is_its_addresses() {
    // D43.
    let nodes = vec![Peer::Nodes(everything())];
    let mut cluster = with_policies(vec![admin("p", 10).egress(deny(nodes))]);
    cluster.nodes = vec![node("n1", "192.0.2.1"), node("n2", "192.0.2.2")];
    assert_eq!(
        egress(&cluster, "10.0.0.98"),
        ["Deny every port for 192.0.2.1+192.0.2.2", "---", "Allow"]
    );
}

#[test]
fn blocks_of_one_length_are_one_condition_and_single_addresses_are_hosts() {
    let peers = [
        block("10.0.0.0/8"),
        block("172.16.0.0/12"),
        block("203.0.113.0/24"),
        block("198.51.100.0/24"),
        block("192.0.2.7/32"),
        pods_of("y"),
    ];
    let cluster = with_policies(vec![netpol("x", "np").egress(allow(peers.concat()))]);
    let expected = "Accept every port for 10.1.0.100+192.0.2.7, 10.0.0.0/8, 172.16.0.0/12, \
                    198.51.100.0/24+203.0.113.0/24";
    assert_eq!(egress(&cluster, "10.0.0.98"), ["---", expected, "Deny"]);
}

#[test]
fn exceptions_narrow_their_own_block_only() {
    // D100. A block of one family matches no address of the other (D44).
    let cidr = |text: &str| CidrText::parse(text).unwrap().cidr;
    let with_exception = Peer::Block {
        cidr: cidr("0.0.0.0/0"),
        except: vec![cidr("10.0.0.0/8")],
    };
    let peers = vec![with_exception, block("10.1.0.0/16").pop().unwrap()];
    let cluster = with_policies(vec![netpol("x", "np").egress(allow(peers))]);
    assert_eq!(
        egress(&cluster, "10.0.0.98"),
        [
            "---",
            "Accept every port for IPv4 except 10.0.0.0/8, 10.1.0.0/16",
            "Deny",
        ]
    );
}

#[test]
fn an_address_of_two_pods_has_the_chains_of_its_owner() {
    // D82: of two running pods the newer one owns the address.
    let mut cluster = with_policies(vec![
        netpol("x", "np").pods(is("app", "b")).ingress_isolates(),
    ]);
    cluster.pods[1].addresses = cluster.pods[0].addresses.clone();
    cluster.pods[0].created = Some("2026-01-01T00:00:00Z");
    cluster.pods[1].created = Some("2026-01-02T00:00:00Z");
    assert_eq!(ingress(&cluster, "10.0.0.98"), ["---", "Deny"]);
    cluster.pods[0].created = Some("2026-01-03T00:00:00Z");
    assert_eq!(ingress(&cluster, "10.0.0.98"), NOTHING);
}

#[test]
fn pods_with_the_same_rules_share_a_chain() {
    let cluster = with_policies(vec![
        netpol("x", "one").ingress_isolates(),
        netpol("y", "two").ingress_isolates(),
    ]);
    let plan = plan_of(&cluster);
    assert_eq!(plan.pods.len(), 3);
    assert_eq!(plan.chains.len(), 1);
}

#[test]
fn a_large_union_is_merged_by_ports() {
    let to = |peers, number| rule(Action::Accept, peers, Some(vec![tcp(number)]));
    let cluster = with_policies(vec![
        netpol("x", "one")
            .pods(is("app", "a"))
            .ingress(to(labelled("app", "b"), 80))
            .ingress(to(pods_of("y"), 80))
            .ingress(to(block("203.0.113.0/24"), 443))
            .ingress(to(block("0.0.0.0/0"), 53)),
        netpol("x", "two")
            .pods(is("app", "a"))
            .ingress(allow(pods_of("y"))),
    ]);
    let plan = plan_merging(&cluster, &compile(&cluster), "n1", 1);
    let chain = chain(&plan, "10.0.0.98", Direction::Ingress).unwrap();
    assert!(chain.admin.is_empty() && chain.rest.is_empty());
    let merged = &chain.merged;
    let tcp = |number| PortBlock::single(Protocol::Tcp, number);
    // Both rules on port 80 are one group.
    let of_80 = members(&plan, merged.of_ports[&tcp(80)]);
    assert_eq!(of_80, "10.0.0.99+10.1.0.100");
    assert_eq!(members(&plan, merged.any_port.unwrap()), "10.1.0.100");
    let of_443 = members(&plan, merged.nets_of_ports(Family::V4)[&tcp(443)]);
    assert_eq!(of_443, "203.0.113.0..203.0.114.0");
    assert!(merged.open(Family::V4).contains(&tcp(53)));
    assert!(merged.open(Family::V6).is_empty());
}
