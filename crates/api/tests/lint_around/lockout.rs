//! What a cluster depends on: its DNS, API server, components and kubelets.

use palisade_core::analysis::lint::Code;

use super::{EVERYONE, Pod, check, cnp, early, namespace, netpol, node, object};

const DNS_PORTS: &str =
    "{name: dns, containerPort: 53, protocol: UDP}, {name: dns-tcp, containerPort: 53}";

/// A cluster with a DNS, a component, an ordinary pod, and a node of the control plane.
fn cluster(policies: &[String]) -> Vec<String> {
    let mut all = vec![
        namespace("kube-system", ""),
        namespace("shop", ""),
        Pod("kube-system", "coredns").yaml("k8s-app: kube-dns", DNS_PORTS, &["10.0.0.53"]),
        Pod("kube-system", "metrics-server").ports("{containerPort: 4443}", &["10.0.0.2"]),
        Pod("shop", "web").ips(&["10.0.1.1"]),
        Pod("shop", "db").ips(&["10.0.1.2"]),
        node(
            "n1",
            "192.0.2.1",
            "node-role.kubernetes.io/control-plane: \"\"",
        ),
    ];
    all.extend_from_slice(policies);
    all
}

fn egress(rules: &str) -> String {
    cnp("p", "Admin", &format!("{EVERYONE}, egress: [{rules}]"))
}

const DENY_ALL: &str = "{action: Deny, to: [{namespaces: {}}, {networks: [0.0.0.0/0]}]}";
const ALLOW_DNS: &str = "{action: Accept, to: [{namespaces: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}], \
     protocols: [{udp: {destinationPort: {number: 53}}}, {tcp: {destinationPort: {number: 53}}}]}";

#[test]
fn a_deny_for_everyone_takes_the_dns_away() {
    // The DNS is no client of itself.
    check(
        Code::LockoutDns,
        &cluster(&[egress(DENY_ALL)]),
        &["cnp/p#egress[0]: 3 of 3"],
    );
    let with_dns = format!("{ALLOW_DNS}, {DENY_ALL}");
    check(Code::LockoutDns, &cluster(&[egress(&with_dns)]), &[]);
    // Without the protocol that clients fall back to.
    let udp_only = with_dns.replace(", {tcp: {destinationPort: {number: 53}}}", "");
    check(
        Code::LockoutDns,
        &cluster(&[egress(&udp_only)]),
        &["cnp/p#egress[1]: 3 of 3"],
    );
    // Passed on, and no later policy denies it.
    let passed = with_dns.replace("Accept", "Pass");
    check(Code::LockoutDns, &cluster(&[egress(&passed)]), &[]);
    // A cluster whose DNS is not in the input.
    check(
        Code::LockoutDns,
        &[egress(DENY_ALL), Pod("shop", "web").ips(&["10.0.1.1"])],
        &[],
    );
}

#[test]
fn the_dns_can_be_closed_from_its_own_side() {
    let system = "subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}";
    let deny = "ingress: [{action: Deny, from: [{namespaces: {matchLabels: {kubernetes.io/metadata.name: shop}}}]}]";
    let policy = cnp("p", "Baseline", &format!("{system}, {deny}"));
    check(
        Code::LockoutDns,
        &cluster(std::slice::from_ref(&policy)),
        &["cnp/p#ingress[0]: 2 of 3"],
    );
    // Where NetworkPolicies isolate the DNS, the Baseline tier is not evaluated (D12).
    let owned = "podSelector: {matchLabels: {k8s-app: kube-dns}}, ingress: [{}]";
    check(
        Code::LockoutDns,
        &cluster(&[policy, netpol("kube-system", "dns", owned)]),
        &[],
    );
}

#[test]
fn default_isolation_locks_out_as_well() {
    let isolates = early("DefaultNetworkPolicy", "d", "egress: []");
    let another = early(
        "DefaultNetworkPolicy",
        "e",
        "egress: [{onlyTo: [{ipBlock: {cidr: 203.0.113.0/24}}]}]",
    );
    // Of several isolating policies, the finding names the one with rules.
    check(
        Code::LockoutDns,
        &cluster(&[isolates, another]),
        &["dnp/e by dnp/d (egress): 3 of 3"],
    );
    let open = early("DefaultNetworkPolicy", "d", "egress: [{}]");
    check(Code::LockoutDns, &cluster(&[open]), &[]);
}

#[test]
fn the_ports_of_the_service_count() {
    let service = "clusterIP: 10.96.0.10, selector: {k8s-app: kube-dns}, \
                   ports: [{name: dns, port: 53, protocol: UDP, targetPort: 5353}, {name: metrics, port: 9153}]";
    let service = object(
        "v1",
        "Service",
        "name: kube-dns, namespace: kube-system",
        service,
    );
    let deny = |port: u16| {
        egress(&format!(
            "{{action: Deny, to: [{{namespaces: {{}}}}], protocols: [{{udp: {{destinationPort: {{number: {port}}}}}}}]}}"
        ))
    };
    check(
        Code::LockoutDns,
        &cluster(&[service.clone(), deny(5353)]),
        &["cnp/p#egress[0]: 3 of 3"],
    );
    check(Code::LockoutDns, &cluster(&[service, deny(53)]), &[]);
}

#[test]
fn components_need_the_api_server() {
    let deny = egress("{action: Deny, to: [{networks: [192.0.2.0/24]}]}");
    check(
        Code::LockoutApiServer,
        &cluster(&[deny]),
        &["cnp/p#egress[0]: 2 of 2"],
    );
    let nodes = egress(
        "{action: Deny, to: [{nodes: {}}], protocols: [{tcp: {destinationPort: {number: 22}}}]}",
    );
    check(Code::LockoutApiServer, &cluster(&[nodes]), &[]);
    // Others are not the cluster's own components.
    let shop = "subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: shop}}}";
    let deny = format!("{shop}, egress: [{{action: Deny, to: [{{networks: [192.0.2.0/24]}}]}}]");
    check(
        Code::LockoutApiServer,
        &cluster(&[cnp("p", "Admin", &deny)]),
        &[],
    );
    // The Service decides which pods are the DNS.
    let service = object(
        "v1",
        "Service",
        "name: kubernetes, namespace: default",
        "clusterIP: 10.96.0.1, ports: [{name: https, port: 443}]",
    );
    let slice = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
                 metadata: {name: kubernetes, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}\n\
                 endpoints: [{addresses: [198.51.100.7], conditions: {ready: true}}]\nports: [{name: https, port: 443, protocol: TCP}]\n";
    let deny = egress("{action: Deny, to: [{networks: [198.51.100.0/24]}]}");
    check(
        Code::LockoutApiServer,
        &cluster(&[deny, service, slice.to_owned()]),
        &["cnp/p#egress[0]: 2 of 2"],
    );
}

#[test]
fn components_need_the_kubelets() {
    let deny = |port: u16| {
        egress(&format!(
            "{{action: Deny, to: [{{nodes: {{}}}}], protocols: [{{tcp: {{destinationPort: {{number: {port}}}}}}}]}}"
        ))
    };
    check(
        Code::LockoutKubelet,
        &cluster(&[deny(10250)]),
        &["cnp/p#egress[0]: 2 of 2"],
    );
    check(Code::LockoutKubelet, &cluster(&[deny(10255)]), &[]);
}

#[test]
fn components_need_each_other() {
    let deny = |port: u16| {
        let ports = format!("protocols: [{{tcp: {{destinationPort: {{number: {port}}}}}}}]");
        cnp(
            "p",
            "Admin",
            &format!(
                "{EVERYONE}, ingress: [{{action: Deny, from: [{{namespaces: {{}}}}], {ports}}}]"
            ),
        )
    };
    // The DNS may not reach the metrics server; there is no other component.
    check(
        Code::LockoutControlPlane,
        &cluster(&[deny(4443)]),
        &["cnp/p#ingress[0]: 1 of 2"],
    );
    check(Code::LockoutControlPlane, &cluster(&[deny(8443)]), &[]);
    // The ports of the DNS have a code of their own.
    check(Code::LockoutControlPlane, &cluster(&[deny(53)]), &[]);
    check(
        Code::LockoutDns,
        &cluster(&[deny(53)]),
        &["cnp/p#ingress[0]: 3 of 3"],
    );
}

#[test]
fn network_policies_without_dns() {
    let to_db = "podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], \
                 egress: [{to: [{podSelector: {matchLabels: {app: db}}}]}]";
    let to_db = || netpol("shop", "web", to_db);
    check(
        Code::NoDns,
        &cluster(&[to_db()]),
        &["netpol/shop/web: 1 of 1"],
    );
    check(Code::LockoutDns, &cluster(&[to_db()]), &[]);
    // A pod that may send nothing needs no names.
    let closed = || netpol("shop", "closed", "podSelector: {}, policyTypes: [Egress]");
    check(Code::NoDns, &cluster(&[closed()]), &[]);
    check(
        Code::NoDns,
        &cluster(&[to_db(), closed()]),
        &["netpol/shop/web by netpol/shop/closed (egress): 1 of 1"],
    );
    let dns = "podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}, \
               podSelector: {matchLabels: {k8s-app: kube-dns}}}], ports: [{port: 53, protocol: UDP}]}]";
    check(
        Code::NoDns,
        &cluster(&[to_db(), netpol("shop", "dns", dns)]),
        &[],
    );
    // An Admin rule can allow it for all.
    check(Code::NoDns, &cluster(&[to_db(), egress(ALLOW_DNS)]), &[]);
}

#[test]
fn the_resolver_of_the_node() {
    let dns = "podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}, \
               podSelector: {matchLabels: {k8s-app: kube-dns}}}], ports: [{port: 53, protocol: UDP}]}]";
    let dns = || netpol("shop", "dns", dns);
    let local = || Pod("kube-system", "cache").labels("k8s-app: node-local-dns", &["10.0.0.9"]);
    check(
        Code::NodeLocalDns,
        &cluster(&[dns(), local()]),
        &["netpol/shop/dns: 2 of 2"],
    );
    // There is none.
    check(Code::NodeLocalDns, &cluster(&[dns()]), &[]);
    let both = "podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 169.254.20.10/32}}], \
                ports: [{port: 53, protocol: UDP}]}]";
    check(
        Code::NodeLocalDns,
        &cluster(&[dns(), netpol("shop", "local", both), local()]),
        &[],
    );
}
