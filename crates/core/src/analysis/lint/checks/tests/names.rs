//! Names of ports, domains and labels.

use super::{Code, METADATA_NAME, NOTHING, findings, pods_of_selected};
use crate::domain::DomainPattern;
use crate::fixture::{
    PolicyDraft, admin, all, any_namespace, block, cluster, cluster_in, declared, deny, early,
    everything, is, labelled, named, namespace, netpol, node, pod, policy, rule,
};
use crate::labels::Selector;
use crate::model::{
    Cluster, ContainerPort, Namespace, NamespaceId, NamespaceSet, Peer, Pod, PodSet, PolicyRank,
    PortMatch,
};
use crate::net::Protocol;
use crate::policy::{Action, PolicyApi, Tier};

fn with_ports(pod: Pod<'static>, ports: &[ContainerPort<'static>]) -> Pod<'static> {
    Pod {
        ports: ports.into(),
        ..pod
    }
}

fn http() -> ContainerPort<'static> {
    declared("http", 8080, Protocol::Tcp)
}

fn metrics() -> ContainerPort<'static> {
    declared("metrics", 9090, Protocol::Tcp)
}

#[test]
fn a_named_port_of_an_ingress_rule_must_be_one_of_the_subjects() {
    let unexposed = |pods| {
        let tcp = |name| PortMatch::Named(Some(Protocol::Tcp), name);
        let ports = Some(vec![tcp("http"), tcp("metrics")]);
        let policy =
            netpol("x", "web")
                .pods(is("app", "web"))
                .ingress(rule(Action::Accept, all(), ports));
        findings(Code::PortUnexposed, &cluster(pods, vec![policy]))
    };
    let web = |ports: &[_]| with_ports(pod("x", "web"), ports);
    assert_eq!(
        unexposed(vec![web(&[http()])]),
        ["netpol/x/web#ingress[0].port[1]: metrics"]
    );
    // The policy does not select the other pod, and the protocol must be the same (D33).
    let other = with_ports(pod("x", "other"), &[http()]);
    let udp = declared("http", 8080, Protocol::Udp);
    assert_eq!(
        unexposed(vec![other, web(&[udp, metrics()])]),
        ["netpol/x/web#ingress[0].port[0]: http"]
    );
    assert_eq!(unexposed(vec![web(&[http(), metrics()])]), NOTHING);
    // Without a selected pod the ports of subjects are unknown.
    assert_eq!(unexposed(vec![pod("x", "db")]), NOTHING);
    assert_eq!(unexposed(Vec::new()), NOTHING);
}

#[test]
fn a_named_port_of_an_egress_rule_must_be_one_of_the_peers() {
    let unexposed = |web| {
        let ports = Some(vec![named("http")]);
        let policy = admin("p", 10).egress(rule(Action::Deny, labelled("app", "web"), ports));
        let client = with_ports(pod("x", "client"), &[http()]);
        findings(
            Code::PortUnexposed,
            &cluster(vec![client, web], vec![policy]),
        )
    };
    assert_eq!(
        unexposed(pod("x", "web")),
        ["cnp/p#egress[0].port[0]: http"]
    );
    assert_eq!(unexposed(with_ports(pod("x", "web"), &[http()])), NOTHING);
}

#[test]
fn a_named_port_does_not_match_at_addresses() {
    let combined = |peer: Option<Peer<'static>>| {
        let pods = Peer::Pods(PodSet {
            namespaces: any_namespace(),
            pods: None,
        });
        let peers = [pods].into_iter().chain(peer).collect();
        let rule = rule(Action::Deny, peers, Some(vec![named("http")]));
        let policy = admin("p", 10).egress(rule);
        findings(Code::NamedPortAddresses, &cluster(Vec::new(), vec![policy]))
    };
    let expected = ["cnp/p#egress[0].peer[1]: http (always)"];
    assert_eq!(combined(block("0.0.0.0/0").pop()), expected);
    assert_eq!(combined(Some(Peer::All)), expected);
    assert_eq!(combined(Some(Peer::Nodes(everything()))), expected);
    assert_eq!(combined(None), NOTHING);
    // For ingress the names are those of the subject, and addresses are its clients.
    let ports = Some(vec![named("http")]);
    let rule = rule(Action::Accept, block("192.0.2.0/24"), ports);
    let ingress = cluster(Vec::new(), vec![netpol("x", "in").ingress(rule)]);
    assert_eq!(findings(Code::NamedPortAddresses, &ingress), NOTHING);
}

#[test]
fn a_domain_name_without_a_learned_address_matches_nothing() {
    let unlearned = |learned: &[(&str, &str)]| {
        let names = ["a.example.com", "*.example.org", "*.example.com"];
        let patterns = names.map(|it| DomainPattern::parse(it).unwrap());
        let peer = Peer::Domains(patterns.into());
        let policy = admin("p", 10).egress(rule(Action::Accept, vec![peer], None));
        let learned = learned.iter();
        let learned = learned.map(|(name, it)| ((*name).to_owned(), it.parse().unwrap()));
        let cluster = Cluster {
            learned: learned.collect(),
            ..cluster(Vec::new(), vec![policy])
        };
        findings(Code::DomainUnlearned, &cluster)
    };
    // Names are compared without case and without the final dot (D54).
    assert_eq!(
        unlearned(&[("A.example.com.", "192.0.2.1")]),
        ["cnp/p#egress[0].peer[0]: *.example.org"]
    );
    let every = [
        ("a.example.com", "192.0.2.1"),
        ("x.y.example.org", "192.0.2.2"),
    ];
    assert_eq!(unlearned(&every), NOTHING);
    // An input without any learned name says nothing about names.
    assert_eq!(unlearned(&[]), NOTHING);
}

#[test]
fn a_label_of_a_subject_is_compared_with_those_of_pods() {
    let subject = |key, value| netpol("x", "p").pods(is(key, value));
    let typos = |key, value| {
        let pods = vec![pod("x", "frontend"), pod("x", "web-1")];
        findings(Code::LabelTypo, &cluster(pods, vec![subject(key, value)]))
    };
    assert_eq!(
        typos("app", "fronted"),
        ["netpol/x/p#subject: app=fronted -> app=frontend"]
    );
    assert_eq!(
        typos("app.kubernets.io/name", "a"),
        ["netpol/x/p#subject: app.kubernets.io/name -> app.kubernetes.io/name"]
    );
    assert_eq!(
        typos("apps", "frontend"),
        ["netpol/x/p#subject: apps -> app"]
    );
    assert_eq!(typos("app", "frontend"), NOTHING);
    assert_eq!(typos("app", "web-2"), NOTHING);
    assert_eq!(typos("app", "database"), NOTHING);
    assert_eq!(typos("app.kubernetes.io/name", "a"), NOTHING);
    let without_pods = cluster(Vec::new(), vec![subject("app", "fronted")]);
    assert_eq!(findings(Code::LabelTypo, &without_pods), NOTHING);
}

#[test]
fn a_label_of_a_peer_is_compared_with_those_of_its_kind() {
    const SHOP: NamespaceId = NamespaceId(1);
    let typos = |policy: PolicyDraft| {
        let namespaces = vec![namespace("monitoring", &[]), namespace("shop", &[])];
        let cluster = Cluster {
            nodes: vec![node("n1", "192.0.2.1")],
            ..cluster_in(namespaces, vec![pod(SHOP, "web")], vec![policy])
        };
        findings(Code::LabelTypo, &cluster)
    };
    let from = |name| {
        let peers = vec![pods_of_selected(is(METADATA_NAME, name))];
        netpol(SHOP, "p").ingress(rule(Action::Accept, peers, None))
    };
    assert_eq!(
        typos(from("monitorin")),
        [format!(
            "netpol/shop/p#ingress[0].peer[0]: {METADATA_NAME}=monitorin -> {METADATA_NAME}=monitoring"
        )]
    );
    assert_eq!(typos(from("monitoring")), NOTHING);
    let to_nodes = |key| admin("zones", 10).egress(deny(vec![Peer::Nodes(is(key, "z"))]));
    assert_eq!(
        typos(to_nodes("topology.kubernetes.io/zome")),
        ["cnp/zones#egress[0].peer[0]: topology.kubernetes.io/zome -> topology.kubernetes.io/zone"]
    );
    assert_eq!(typos(to_nodes("topology.kubernetes.io/zone")), NOTHING);
}

#[test]
fn the_name_label_of_the_2021_draft_does_not_exist() {
    // C14: the draft writes `k8s.metadata.io/name` for `kubernetes.io/metadata.name`.
    const OF_DRAFT: &str = "k8s.metadata.io/name";
    let typos = |key, namespaces: Vec<Namespace<'static>>| {
        let except = |selector: Selector<&'static str>| NamespaceSet::Selected {
            selector: everything(),
            except: vec![selector],
        };
        let peer = Peer::Pods(PodSet {
            namespaces: except(is(key, "dmz")),
            pods: None,
        });
        let policy = early("gateway").ingress(deny(vec![peer]));
        let cluster = cluster_in(namespaces, Vec::new(), vec![policy]);
        findings(Code::LabelTypo, &cluster)
    };
    assert_eq!(
        typos(OF_DRAFT, Vec::new()),
        [format!(
            "cnp0/gateway#ingress[0].peer[0]: {OF_DRAFT} -> {METADATA_NAME} (always)"
        )]
    );
    assert_eq!(typos(METADATA_NAME, Vec::new()), NOTHING);
    let with_label = vec![namespace("dmz", &[(OF_DRAFT, "dmz")])];
    assert_eq!(typos(OF_DRAFT, with_label), NOTHING);
}

#[test]
fn the_keys_of_a_tenant_peer_are_labels_of_namespaces() {
    let peer = Peer::Pods(PodSet {
        namespaces: NamespaceSet::NotSameLabels(vec!["tennant"]),
        pods: None,
    });
    let rank = PolicyRank::Ordered(Tier::Admin, 10);
    let policy = policy(PolicyApi::Admin, "t", rank)
        .namespaces(is("tenant", "a"))
        .ingress(deny(vec![peer]));
    let namespaces = vec![namespace("x", &[("tenant", "a")])];
    let cluster = cluster_in(namespaces, vec![pod(NamespaceId(0), "web")], vec![policy]);
    assert_eq!(
        findings(Code::LabelTypo, &cluster),
        ["anp/t#ingress[0].peer[0]: tennant -> tenant"]
    );
}
