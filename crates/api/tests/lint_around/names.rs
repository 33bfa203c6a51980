//! Names of ports, domains and labels.

use palisade_core::analysis::lint::Code;

use super::{EVERYONE, Pod, anp, check, check_with, cnp, early, namespace, netpol, node};

const HTTP: &str = "{name: http, containerPort: 8080}";

#[test]
fn a_port_that_no_subject_has() {
    let spec = "podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: http}, {port: metrics}]}]";
    let policy = || netpol("x", "web", spec);
    check(
        Code::PortUnexposed,
        &[policy(), Pod("x", "web").ports(HTTP, &["10.0.0.1"])],
        &["netpol/x/web#ingress[0].port[1]: metrics"],
    );
    // Other pods may have it: only pods that the rule matches count, and the protocol counts (D33).
    let metrics = "{name: metrics, containerPort: 9090}";
    let udp =
        "{name: http, containerPort: 8080, protocol: UDP}, {name: metrics, containerPort: 9090}";
    let other = Pod("x", "other").ports(metrics, &["10.0.0.2"]);
    check(
        Code::PortUnexposed,
        &[policy(), other, Pod("x", "web").ports(udp, &["10.0.0.1"])],
        &["netpol/x/web#ingress[0].port[0]: http"],
    );
    let both = format!("{HTTP}, {metrics}");
    check(
        Code::PortUnexposed,
        &[policy(), Pod("x", "web").ports(&both, &["10.0.0.1"])],
        &[],
    );
    // A rule that selects no pod has another code, and without pods the names are unknown.
    check(
        Code::PortUnexposed,
        &[policy(), Pod("x", "db").ports("", &["10.0.0.1"])],
        &[],
    );
    check(Code::PortUnexposed, &[policy()], &[]);
}

#[test]
fn a_port_that_no_peer_has() {
    let to = "egress: [{action: Deny, to: [{pods: {podSelector: {matchLabels: {app: web}}}}], \
              protocols: [{destinationNamedPort: http}]}]";
    let policy = || cnp("p", "Admin", &format!("{EVERYONE}, {to}"));
    let client = || Pod("x", "client").ports(HTTP, &["10.0.0.9"]);
    check(
        Code::PortUnexposed,
        &[policy(), client(), Pod("x", "web").ports("", &["10.0.0.1"])],
        &["cnp/p#egress[0].port[0]: http"],
    );
    check(
        Code::PortUnexposed,
        &[
            policy(),
            client(),
            Pod("x", "web").ports(HTTP, &["10.0.0.1"]),
        ],
        &[],
    );
}

#[test]
fn a_named_port_at_addresses() {
    let rule = |to: &str| {
        let ports = "protocols: [{destinationNamedPort: http}]";
        let to = format!("egress: [{{action: Deny, to: [{to}], {ports}}}]");
        cnp("p", "Admin", &format!("{EVERYONE}, {to}"))
    };
    let pods = "{pods: {podSelector: {}}}";
    let expected = ["cnp/p#egress[0].peer[1]: http (always)"];
    check(
        Code::NamedPortAddresses,
        &[rule(&format!("{pods}, {{networks: [0.0.0.0/0]}}"))],
        &expected,
    );
    check(
        Code::NamedPortAddresses,
        &[rule(&format!("{pods}, {{all: {{}}}}"))],
        &expected,
    );
    check(
        Code::NamedPortAddresses,
        &[rule(&format!("{pods}, {{nodes: {{}}}}"))],
        &expected,
    );
    check(Code::NamedPortAddresses, &[rule(pods)], &[]);
    // Ports of traffic from addresses to a pod have the names of the pod.
    let ingress = "podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: http}]}]";
    check(Code::NamedPortAddresses, &[netpol("x", "in", ingress)], &[]);
}

#[test]
fn a_domain_without_learned_addresses() {
    let to = "egress: [{action: Accept, to: [{domainNames: [a.example.com, \"*.example.org\", \"*.example.com\"]}]}]";
    let policy = || cnp("p", "Admin", &format!("{EVERYONE}, {to}"));
    let learned = [("A.example.com.", "192.0.2.1")];
    check_with(
        Code::DomainUnlearned,
        &[policy()],
        &learned,
        &["cnp/p#egress[0].peer[0]: *.example.org"],
    );
    let learned = [
        ("a.example.com", "192.0.2.1"),
        ("x.y.example.org", "192.0.2.2"),
    ];
    check_with(Code::DomainUnlearned, &[policy()], &learned, &[]);
    // Without learned addresses the names are unknown.
    check_with(Code::DomainUnlearned, &[policy()], &[], &[]);
}

#[test]
fn labels_that_are_nearly_others() {
    let subject = |labels: &str| {
        netpol(
            "x",
            "p",
            &format!("podSelector: {{matchLabels: {{{labels}}}}}"),
        )
    };
    let pods = || {
        [
            Pod("x", "frontend").ips(&["10.0.0.1"]),
            Pod("x", "web-1").ips(&["10.0.0.2"]),
        ]
    };
    let with = |policy: String| {
        let [a, b] = pods();
        [policy, a, b]
    };
    check(
        Code::LabelTypo,
        &with(subject("app: fronted")),
        &["netpol/x/p#subject: app=fronted -> app=frontend"],
    );
    check(
        Code::LabelTypo,
        &with(subject("app.kubernets.io/name: a")),
        &["netpol/x/p#subject: app.kubernets.io/name -> app.kubernetes.io/name"],
    );
    check(
        Code::LabelTypo,
        &with(subject("apps: frontend")),
        &["netpol/x/p#subject: apps -> app"],
    );
    check(Code::LabelTypo, &with(subject("app: frontend")), &[]);
    check(Code::LabelTypo, &with(subject("app: web-2")), &[]);
    check(Code::LabelTypo, &with(subject("app: database")), &[]);
    check(
        Code::LabelTypo,
        &with(subject("app.kubernetes.io/name: a")),
        &[],
    );
    check(Code::LabelTypo, &[subject("app: fronted")], &[]);
}

#[test]
fn labels_of_namespaces_and_nodes() {
    let from = |namespace: &str| {
        let from = format!(
            "namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}"
        );
        netpol(
            "shop",
            "p",
            &format!("podSelector: {{}}, ingress: [{{from: [{{{from}}}]}}]"),
        )
    };
    let given = [
        namespace("monitoring", ""),
        Pod("shop", "web").ips(&["10.0.0.1"]),
    ];
    let with = |policy: String| [given.as_slice(), &[policy]].concat();
    let expected =
        "kubernetes.io/metadata.name=monitorin -> kubernetes.io/metadata.name=monitoring";
    let expected = format!("netpol/shop/p#ingress[0].peer[0]: {expected}");
    check(
        Code::LabelTypo,
        &with(from("monitorin")),
        &[expected.as_str()],
    );
    check(Code::LabelTypo, &with(from("monitoring")), &[]);
    let nodes = |key: &str| {
        let to =
            format!("egress: [{{action: Deny, to: [{{nodes: {{matchLabels: {{{key}: z}}}}}}]}}]");
        cnp("zones", "Admin", &format!("{EVERYONE}, {to}"))
    };
    let given = [
        node("n1", "192.0.2.1", ""),
        Pod("shop", "web").ips(&["10.0.0.1"]),
    ];
    let with = |policy: String| [given.as_slice(), &[policy]].concat();
    check(
        Code::LabelTypo,
        &with(nodes("topology.kubernetes.io/zome")),
        &[
            "cnp/zones#egress[0].peer[0]: topology.kubernetes.io/zome -> topology.kubernetes.io/zone",
        ],
    );
    check(
        Code::LabelTypo,
        &with(nodes("topology.kubernetes.io/zone")),
        &[],
    );
}

#[test]
fn the_label_of_the_draft_does_not_exist() {
    let except = |key: &str| {
        let from =
            format!("namespaces: {{selector: {{}}, except: [{{matchLabels: {{{key}: dmz}}}}]}}");
        early(
            "ClusterNetworkPolicy",
            "gateway",
            &format!("ingress: [{{action: Deny, from: [{{{from}}}]}}]"),
        )
    };
    check(
        Code::LabelTypo,
        &[except("k8s.metadata.io/name")],
        &[
            "cnp0/gateway#ingress[0].peer[0]: k8s.metadata.io/name -> kubernetes.io/metadata.name (always)",
        ],
    );
    check(
        Code::LabelTypo,
        &[except("kubernetes.io/metadata.name")],
        &[],
    );
    check(
        Code::LabelTypo,
        &[
            except("k8s.metadata.io/name"),
            namespace("dmz", "k8s.metadata.io/name: dmz"),
        ],
        &[],
    );
}

#[test]
fn keys_of_tenants_are_labels_too() {
    let from = "subject: {namespaces: {matchLabels: {tenant: a}}}, \
                ingress: [{action: Deny, from: [{namespaces: {notSameLabels: [tennant]}}]}]";
    let spaces = [
        namespace("x", "tenant: a"),
        Pod("x", "web").ips(&["10.0.0.1"]),
    ];
    check(
        Code::LabelTypo,
        &[spaces.as_slice(), &[anp("t", from)]].concat(),
        &["anp/t#ingress[0].peer[0]: tennant -> tenant"],
    );
}
