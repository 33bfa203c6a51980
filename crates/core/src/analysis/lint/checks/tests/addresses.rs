//! Families of addresses, clients behind Services, and namespaces without a tenant label.

use super::{Code, METADATA_NAME, NOTHING, findings};
use crate::fixture::{
    PolicyDraft, admin, allow, block, cluster, cluster_in, deny, has, is, namespace, netpol, node,
    pod, policy, port, rule, service, tcp,
};
use crate::model::{
    Cluster, NamespaceId, NamespaceSet, Peer, Pod, PodId, PodSet, PolicyRank, Rule, Service,
};
use crate::net::CidrText;
use crate::policy::{Action, PolicyApi, Tier};

/// The pod `x/a` with these addresses.
fn with_addresses(addresses: &[&str]) -> Pod<'static> {
    Pod {
        addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
        ..pod("x", "a")
    }
}

fn dual_stack() -> Pod<'static> {
    with_addresses(&["10.0.0.1", "fd00::1"])
}

/// The findings for a policy on the egress of a pod with addresses of both families.
fn open_families(rules: Vec<Rule<'static>>) -> Vec<String> {
    let policy = rules.into_iter().fold(admin("p", 10), PolicyDraft::egress);
    findings(Code::V6Open, &cluster(vec![dual_stack()], vec![policy]))
}

#[test]
fn a_deny_of_one_family_leaves_the_other_open() {
    let ipv4 = || deny(block("0.0.0.0/0"));
    let ipv6 = || deny(block("::/0"));
    assert_eq!(
        open_families(vec![ipv4()]),
        ["cnp/p#egress[0].peer[0]: IPv6"]
    );
    assert_eq!(
        open_families(vec![ipv6()]),
        ["cnp/p#egress[0].peer[0]: IPv4"]
    );
    let both = [block("0.0.0.0/0"), block("::/0")].concat();
    assert_eq!(open_families(vec![deny(both)]), NOTHING);
    // A block of some addresses is not the whole family.
    assert_eq!(open_families(vec![deny(block("10.0.0.0/8"))]), NOTHING);
    // Another rule for the other family is enough, whatever its action.
    assert_eq!(open_families(vec![ipv4(), ipv6()]), NOTHING);
    assert_eq!(open_families(vec![allow(block("::/0")), ipv4()]), NOTHING);
    // A rule for one port leaves the other ports of the family open.
    let one_port = rule(Action::Deny, block("::/0"), Some(vec![tcp(80)]));
    assert_eq!(
        open_families(vec![ipv4(), one_port]),
        ["cnp/p#egress[0].peer[0]: IPv6"]
    );
}

#[test]
fn only_subjects_with_both_families_have_an_open_one() {
    let policy = || admin("p", 10).egress(deny(block("0.0.0.0/0")));
    let ipv4_only = cluster(vec![with_addresses(&["10.0.0.1"])], vec![policy()]);
    assert_eq!(findings(Code::V6Open, &ipv4_only), NOTHING);
    // The policy selects the pods of `y`, and the pod with two families is in `x`.
    let of_y = policy().namespaces(is(METADATA_NAME, "y"));
    let apart = cluster(vec![dual_stack(), pod("y", "b")], vec![of_y]);
    assert_eq!(findings(Code::V6Open, &apart), NOTHING);
}

/// The Service `x/svc/web` of the pod `x/web`, on a port of every node.
fn node_port() -> Service<'static> {
    let mut service = service("x", "web", (PodId(1), 8080));
    service.ports[0].node_port = Some(port(30080));
    service
}

/// The pods `x/other` and `x/web` and the node `n1` with a Service and a NetworkPolicy on one pod
/// that allows some clients.
fn behind(
    service: Service<'static>,
    app: &'static str,
    (peers, number): (Vec<Peer<'static>>, u16),
) -> Cluster<'static> {
    let rule = rule(Action::Accept, peers, Some(vec![tcp(number)]));
    let policy = netpol("x", "web").pods(is("app", app)).ingress(rule);
    Cluster {
        nodes: vec![node("n1", "192.0.2.1")],
        services: vec![service],
        ..cluster(vec![pod("x", "other"), pod("x", "web")], vec![policy])
    }
}

#[test]
fn a_node_port_hides_the_addresses_of_clients() {
    let hidden = |service, app, peer| {
        let cluster = behind(service, app, peer);
        findings(Code::SnatIpBlock, &cluster)
    };
    let clients = || (block("203.0.113.0/24"), 8080);
    let expected = ["netpol/x/web#ingress[0].peer[0]: with x/svc/web"];
    assert_eq!(hidden(node_port(), "web", clients()), expected);
    let local = Service {
        external_traffic_local: true,
        ..node_port()
    };
    assert_eq!(hidden(local, "web", clients()), NOTHING);
    // A Service without a node port serves clients inside the cluster.
    let inside = service("x", "web", (PodId(1), 8080));
    assert_eq!(hidden(inside, "web", clients()), NOTHING);
    assert_eq!(hidden(node_port(), "web", (clients().0, 9090)), NOTHING);
    // The Service has no backend among the pods that the policy selects.
    assert_eq!(hidden(node_port(), "other", clients()), NOTHING);
}

#[test]
fn a_block_with_all_nodes_matches_hidden_clients_as_well() {
    let hidden = |peer| {
        let cluster = behind(node_port(), "web", (vec![peer], 8080));
        findings(Code::SnatIpBlock, &cluster)
    };
    let cidr = |text: &str| CidrText::parse(text).unwrap().cidr;
    let block = |text, except| Peer::Block {
        cidr: cidr(text),
        except,
    };
    assert_eq!(hidden(block("0.0.0.0/0", Vec::new())), NOTHING);
    assert_eq!(hidden(block("192.0.0.0/8", Vec::new())), NOTHING);
    assert_eq!(
        hidden(block("0.0.0.0/0", vec![cidr("192.0.2.0/24")])),
        ["netpol/x/web#ingress[0].peer[0]: with x/svc/web"]
    );
}

#[test]
fn namespaces_without_the_label_belong_to_no_tenant() {
    let names = [NamespaceId(0), NamespaceId(1), NamespaceId(2)];
    let unlabelled = |policy: PolicyDraft, pods_in: &[NamespaceId]| {
        let namespaces = vec![
            namespace("a", &[("tenant", "a")]),
            namespace("b", &[("tenant", "b")]),
            namespace("u", &[]),
        ];
        let pods = pods_in.iter().map(|id| pod(*id, "web")).collect();
        let others = Peer::Pods(PodSet {
            namespaces: NamespaceSet::NotSameLabels(vec!["tenant"]),
            pods: None,
        });
        let policy = policy.ingress(deny(vec![others]));
        findings(
            Code::TenantUnlabelled,
            &cluster_in(namespaces, pods, vec![policy]),
        )
    };
    let anp = || {
        let rank = PolicyRank::Ordered(Tier::Admin, 10);
        policy(PolicyApi::Admin, "t", rank)
    };
    let tenants = || anp().namespaces(has("tenant"));
    assert_eq!(
        unlabelled(tenants(), &names),
        ["anp/t#ingress[0].peer[0]: 1 of 3"]
    );
    // A namespace without pods sends nothing.
    assert_eq!(unlabelled(tenants(), &names[..2]), NOTHING);
    // A policy on all namespaces does not select tenants only.
    assert_eq!(unlabelled(anp(), &names), NOTHING);
}
