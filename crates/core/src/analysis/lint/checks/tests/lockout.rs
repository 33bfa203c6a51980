//! What a cluster depends on: its DNS, API server, components and kubelets.

use super::{Code, METADATA_NAME, NOTHING, findings};
use crate::fixture::{
    PolicyDraft, admin, all, allow, any_namespace, baseline, block, cluster_in, declared,
    default_policy, deny, everything, is, labelled, namespace, netpol, node, pod, pod_id, pods_of,
    port, ports, rule, selected, service, tcp,
};
use crate::model::{
    Backend, BackendTarget, Cluster, ContainerPort, NamespaceId, NamespaceSet, Node, Peer, Pod,
    PodId, PodSet, PortMatch, Rule, Service,
};
use crate::net::Protocol;
use crate::policy::Action;

const DEFAULT: NamespaceId = NamespaceId(0);
const SYSTEM: NamespaceId = NamespaceId(1);
const SHOP: NamespaceId = NamespaceId(2);

/// A cluster with a DNS, another component, two pods of users, and a node of the control plane.
fn cluster_with(policies: Vec<PolicyDraft>) -> Cluster<'static> {
    let namespaces = ["default", "kube-system", "shop"].map(|name| namespace(name, &[]));
    let unnamed = ContainerPort {
        name: None,
        ..declared("", 4443, Protocol::Tcp)
    };
    let pods = vec![
        Pod {
            labels: [("k8s-app", "kube-dns")].into(),
            ports: [
                declared("dns", 53, Protocol::Udp),
                declared("dns-tcp", 53, Protocol::Tcp),
            ]
            .into(),
            ..pod(SYSTEM, "coredns")
        },
        Pod {
            ports: [unnamed].into(),
            ..pod(SYSTEM, "metrics-server")
        },
        pod(SHOP, "db"),
        pod(SHOP, "web"),
    ];
    let node = Node {
        labels: [("node-role.kubernetes.io/control-plane", "")].into(),
        ..node("n1", "192.0.2.1")
    };
    Cluster {
        nodes: vec![node],
        ..cluster_in(namespaces.into(), pods, policies)
    }
}

fn lockouts(code: Code, policies: Vec<PolicyDraft>) -> Vec<String> {
    findings(code, &cluster_with(policies))
}

/// An Admin policy on the egress of all pods.
fn egress(rules: Vec<Rule<'static>>) -> PolicyDraft {
    rules.into_iter().fold(admin("p", 10), PolicyDraft::egress)
}

/// All pods, and all IPv4 addresses.
fn everywhere() -> Vec<Peer<'static>> {
    let pods = Peer::Pods(PodSet {
        namespaces: any_namespace(),
        pods: None,
    });
    [vec![pods], block("0.0.0.0/0")].concat()
}

fn udp(number: u16) -> PortMatch<'static> {
    ports(Protocol::Udp, number, number)
}

/// A rule on some ports of the pods of `kube-system`.
fn to_system(action: Action, ports: &[PortMatch<'static>]) -> Rule<'static> {
    let system = Peer::Pods(PodSet {
        namespaces: selected(is(METADATA_NAME, "kube-system")),
        pods: None,
    });
    rule(action, vec![system], Some(ports.to_vec()))
}

#[test]
fn a_deny_of_everything_blocks_clients_from_the_dns() {
    let blocked = |rules| lockouts(Code::LockoutDns, vec![egress(rules)]);
    // The DNS is not a client of itself.
    assert_eq!(
        blocked(vec![deny(everywhere())]),
        ["cnp/p#egress[0]: 3 of 3"]
    );
    let dns = |action| to_system(action, &[udp(53), tcp(53)]);
    assert_eq!(
        blocked(vec![dns(Action::Accept), deny(everywhere())]),
        NOTHING
    );
    // Clients fall back to TCP.
    let udp_only = to_system(Action::Accept, &[udp(53)]);
    assert_eq!(
        blocked(vec![udp_only, deny(everywhere())]),
        ["cnp/p#egress[1]: 3 of 3"]
    );
    // No later tier denies what is passed.
    assert_eq!(
        blocked(vec![dns(Action::Pass), deny(everywhere())]),
        NOTHING
    );
    let mut without_dns = cluster_with(vec![egress(vec![deny(everywhere())])]);
    without_dns.pods.retain(|pod| pod.namespace == SHOP);
    assert_eq!(findings(Code::LockoutDns, &without_dns), NOTHING);
}

#[test]
fn ingress_rules_of_the_dns_block_clients() {
    let closed = || {
        baseline("p", 10)
            .namespaces(is(METADATA_NAME, "kube-system"))
            .ingress(deny(pods_of(SHOP)))
    };
    assert_eq!(
        lockouts(Code::LockoutDns, vec![closed()]),
        ["cnp/p#ingress[0]: 2 of 3"]
    );
    // A NetworkPolicy that isolates the DNS decides before the Baseline tier (D12).
    let open = netpol(SYSTEM, "dns")
        .pods(is("k8s-app", "kube-dns"))
        .ingress(allow(all()));
    assert_eq!(lockouts(Code::LockoutDns, vec![closed(), open]), NOTHING);
}

#[test]
fn the_isolation_of_default_policies_is_reported_at_the_first_with_rules() {
    let policies = vec![
        default_policy("d").egress_isolates(),
        default_policy("e").egress(allow(block("203.0.113.0/24"))),
    ];
    assert_eq!(
        lockouts(Code::LockoutDns, policies),
        ["dnp/e by dnp/d (egress): 3 of 3"]
    );
    let open = default_policy("d").egress(allow(all()));
    assert_eq!(lockouts(Code::LockoutDns, vec![open]), NOTHING);
}

#[test]
fn the_backends_of_the_dns_service_have_its_ports() {
    let blocked = |number| {
        let rule = rule(
            Action::Deny,
            labelled("k8s-app", "kube-dns"),
            Some(vec![udp(number)]),
        );
        let mut cluster = cluster_with(vec![egress(vec![rule])]);
        let mut dns = service(
            SYSTEM,
            "kube-dns",
            (pod_id(&cluster, "kube-system/coredns"), 5353),
        );
        dns.ports[0].port = port(53);
        dns.ports[0].protocol = Protocol::Udp;
        cluster.services = vec![dns];
        findings(Code::LockoutDns, &cluster)
    };
    assert_eq!(blocked(5353), ["cnp/p#egress[0]: 3 of 3"]);
    assert_eq!(blocked(53), NOTHING);
}

/// Clients whose address is unknown, and a DNS that accepts clients at some addresses only.
fn clients_of_unknown_address(rules: Vec<Rule<'static>>) -> Vec<String> {
    let policy = baseline("p", 10).namespaces(is(METADATA_NAME, "kube-system"));
    let policy = rules.into_iter().fold(policy, PolicyDraft::ingress);
    let mut cluster = cluster_with(vec![policy]);
    cluster.pods.retain(|pod| pod.namespace == SYSTEM);
    cluster.pods[1].addresses.clear();
    findings(Code::LockoutDns, &cluster)
}

#[test]
fn a_client_of_unknown_address_is_blocked_only_if_every_address_is() {
    assert_eq!(
        clients_of_unknown_address(vec![deny(all())]),
        ["cnp/p#ingress[0]: 1 of 1"]
    );
    // The address may be in the block (D83), which has neither the first nor the last address.
    assert_eq!(
        clients_of_unknown_address(vec![allow(block("10.0.0.0/8")), deny(block("0.0.0.0/0"))]),
        NOTHING
    );
    // A block of addresses that no pod has makes no difference.
    let multicast = allow(block("224.0.0.0/4"));
    assert_eq!(
        clients_of_unknown_address(vec![multicast, deny(all())]),
        ["cnp/p#ingress[1]: 1 of 1"]
    );
}

#[test]
fn a_dns_of_unknown_address_is_blocked_only_if_every_address_is() {
    let blocked = |rules| {
        let mut cluster = cluster_with(vec![egress(rules)]);
        let PodId(dns) = pod_id(&cluster, "kube-system/coredns");
        cluster.pods[dns as usize].addresses.clear();
        findings(Code::LockoutDns, &cluster)
    };
    assert_eq!(blocked(vec![deny(all())]), ["cnp/p#egress[0]: 3 of 3"]);
    assert_eq!(
        blocked(vec![allow(block("10.0.0.0/8")), deny(block("0.0.0.0/0"))]),
        NOTHING
    );
}

#[test]
fn components_need_the_api_server() {
    let blocked = |rules| lockouts(Code::LockoutApiServer, vec![egress(rules)]);
    assert_eq!(
        blocked(vec![deny(block("192.0.2.0/24"))]),
        ["cnp/p#egress[0]: 2 of 2"]
    );
    let nodes = vec![Peer::Nodes(everything())];
    let ssh = rule(Action::Deny, nodes, Some(vec![tcp(22)]));
    assert_eq!(blocked(vec![ssh]), NOTHING);
    // The pods of users are not components of the cluster.
    let of_shop = admin("p", 10)
        .namespaces(is(METADATA_NAME, "shop"))
        .egress(deny(block("192.0.2.0/24")));
    assert_eq!(lockouts(Code::LockoutApiServer, vec![of_shop]), NOTHING);
}

#[test]
fn the_service_of_the_api_server_has_its_addresses() {
    let rule = deny(block("198.51.100.0/24"));
    let mut cluster = cluster_with(vec![egress(vec![rule])]);
    let mut api_server: Service<'static> = service(DEFAULT, "kubernetes", (PodId(0), 6443));
    api_server.ports[0].backends = vec![Backend {
        target: BackendTarget::Address("198.51.100.7".parse().unwrap()),
        port: port(6443),
    }];
    cluster.services = vec![api_server];
    assert_eq!(
        findings(Code::LockoutApiServer, &cluster),
        ["cnp/p#egress[0]: 2 of 2"]
    );
}

#[test]
fn components_need_the_kubelets() {
    let blocked = |number| {
        let nodes = vec![Peer::Nodes(everything())];
        let rule = rule(Action::Deny, nodes, Some(vec![tcp(number)]));
        lockouts(Code::LockoutKubelet, vec![egress(vec![rule])])
    };
    assert_eq!(blocked(10250), ["cnp/p#egress[0]: 2 of 2"]);
    assert_eq!(blocked(10255), NOTHING);
}

#[test]
fn components_need_each_other() {
    let blocked = |code, number| {
        let pods = vec![Peer::Pods(PodSet {
            namespaces: any_namespace(),
            pods: None,
        })];
        let rule = rule(Action::Deny, pods, Some(vec![tcp(number)]));
        lockouts(code, vec![admin("p", 10).ingress(rule)])
    };
    // The DNS may not reach the metrics server; the other pods are not components.
    assert_eq!(
        blocked(Code::LockoutControlPlane, 4443),
        ["cnp/p#ingress[0]: 1 of 2"]
    );
    assert_eq!(blocked(Code::LockoutControlPlane, 8443), NOTHING);
    // The port of the DNS has a code of its own.
    assert_eq!(blocked(Code::LockoutControlPlane, 53), NOTHING);
    assert_eq!(blocked(Code::LockoutDns, 53), ["cnp/p#ingress[0]: 3 of 3"]);
}

/// A NetworkPolicy that allows `shop/web` to reach `shop/db` only.
fn web_to_db() -> PolicyDraft {
    let db = Peer::Pods(PodSet {
        namespaces: NamespaceSet::Exact(SHOP),
        pods: Some(is("app", "db")),
    });
    netpol(SHOP, "web")
        .pods(is("app", "web"))
        .egress(allow(vec![db]))
}

/// A NetworkPolicy that allows the pods of `shop` to reach the DNS only.
fn to_dns() -> PolicyDraft {
    let dns = labelled("k8s-app", "kube-dns");
    netpol(SHOP, "dns").egress(rule(Action::Accept, dns, Some(vec![udp(53)])))
}

#[test]
fn isolated_pods_with_some_egress_need_the_dns() {
    assert_eq!(
        lockouts(Code::NoDns, vec![web_to_db()]),
        ["netpol/shop/web: 1 of 1"]
    );
    assert_eq!(lockouts(Code::LockoutDns, vec![web_to_db()]), NOTHING);
    // A pod without any allowed egress needs no names.
    let closed = || netpol(SHOP, "closed").egress_isolates();
    assert_eq!(lockouts(Code::NoDns, vec![closed()]), NOTHING);
    assert_eq!(
        lockouts(Code::NoDns, vec![web_to_db(), closed()]),
        ["netpol/shop/web by netpol/shop/closed (egress): 1 of 1"]
    );
    assert_eq!(lockouts(Code::NoDns, vec![web_to_db(), to_dns()]), NOTHING);
    // An Admin rule allows it for all pods.
    let accept = to_system(Action::Accept, &[udp(53), tcp(53)]);
    assert_eq!(
        lockouts(Code::NoDns, vec![web_to_db(), egress(vec![accept])]),
        NOTHING
    );
}

#[test]
fn pods_that_reach_the_dns_need_the_resolver_of_their_node() {
    let blocked = |policies, has_resolver: bool| {
        let mut cluster = cluster_with(policies);
        if has_resolver {
            let cache = Pod {
                labels: [("k8s-app", "node-local-dns")].into(),
                ..pod(SYSTEM, "cache")
            };
            cluster.pods.insert(0, cache);
        }
        findings(Code::NodeLocalDns, &cluster)
    };
    assert_eq!(blocked(vec![to_dns()], true), ["netpol/shop/dns: 2 of 2"]);
    assert_eq!(blocked(vec![to_dns()], false), NOTHING);
    let local = rule(
        Action::Accept,
        block("169.254.20.10/32"),
        Some(vec![udp(53)]),
    );
    let both = vec![to_dns(), netpol(SHOP, "local").egress(local)];
    assert_eq!(blocked(both, true), NOTHING);
}
