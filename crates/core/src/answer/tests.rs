//! Answers to flow queries that follow from the specification, many of them its worked examples.

mod dialed;

use super::{Answer, FlowEvaluator, FlowVerdict};
use crate::compile::compile;
use crate::domain::DomainPattern;
use crate::fixture::{
    PolicyDraft, admin, all, allow, any_namespace, baseline, block, cluster, declared, deny, is,
    labelled, named, netpol, node, pass, pod, pods_of, port, ports, rule, service, tcp,
};
use crate::model::{
    Cluster, ContainerPort, NamespaceId, Node, Peer, Pod, PodId, PodSet, PortMatch, Service,
    ServicePort, Workload,
};
use crate::net::Protocol;
use crate::policy::{Action, Direction};
use crate::query::FlowQuery;

/// Answers a query as `Deny: egress Default, ingress Isolation by netpol/x/np`, or with the error.
fn answer(cluster: &Cluster<'_>, query: &str) -> String {
    let program = compile(cluster);
    let evaluator = FlowEvaluator::new(cluster, &program);
    let answer = match evaluator.answer(&FlowQuery::parse(query).unwrap()) {
        Ok(answer) => answer,
        Err(error) => return error.to_string(),
    };
    let direction = |direction| {
        let it = answer.outcome.direction(direction);
        let reason = it.reason.map_or(it.verdict.name(), |it| it.name());
        let policies = it.deciding.map(|it| it.policies(&program));
        let policies = policies.into_iter().flatten();
        let policies: Vec<String> = policies.map(|id| cluster.policy_name(id)).collect();
        if policies.is_empty() {
            reason.to_owned()
        } else {
            format!("{reason} by {}", policies.join(", "))
        }
    };
    let [ingress, egress] = Direction::BOTH.map(direction);
    let verdict = answer.outcome.verdict;
    format!("{verdict:?}: egress {egress}, ingress {ingress}")
}

/// The pods `x/a`, `x/b` and `y/c`.
fn with_policies(policies: Vec<PolicyDraft>) -> Cluster<'static> {
    cluster(vec![pod("x", "a"), pod("x", "b"), pod("y", "c")], policies)
}

fn any_pod() -> Vec<Peer<'static>> {
    vec![Peer::Pods(PodSet {
        namespaces: any_namespace(),
        pods: None,
    })]
}

#[test]
fn without_policies_everything_is_allowed() {
    // E1.
    let cluster = with_policies(Vec::new());
    let expected = "Allow: egress Default, ingress Default";
    assert_eq!(answer(&cluster, "y/c x/a tcp/8080"), expected);
}

#[test]
fn both_directions_are_evaluated_even_if_one_denies() {
    // D1.
    let cluster = with_policies(vec![
        netpol("x", "in").ingress_isolates(),
        netpol("y", "out").egress_isolates(),
    ]);
    assert_eq!(
        answer(&cluster, "y/c x/a tcp/80"),
        "Deny: egress Isolation by netpol/y/out, ingress Isolation by netpol/x/in"
    );
    assert_eq!(
        answer(&cluster, "x/b x/a tcp/80"),
        "Deny: egress Default, ingress Isolation by netpol/x/in"
    );
}

#[test]
fn an_accept_is_final_for_its_own_direction_only() {
    // D2, E14.
    let accept = || admin("p", 10).ingress(allow(pods_of("y")));
    let closed = || netpol("x", "closed").ingress_isolates();
    let source_closed = netpol("y", "closed").egress_isolates();
    assert_eq!(
        answer(
            &with_policies(vec![accept(), closed(), source_closed]),
            "y/c x/a tcp/80"
        ),
        "Deny: egress Isolation by netpol/y/closed, ingress AdminRule by cnp/p"
    );
    assert_eq!(
        answer(&with_policies(vec![accept(), closed()]), "y/c x/a tcp/80"),
        "Allow: egress Default, ingress AdminRule by cnp/p"
    );
}

#[test]
fn a_passed_flow_to_an_isolated_pod_never_reaches_the_baseline() {
    // D11, E16.
    let cluster = with_policies(vec![
        admin("p", 10).ingress(pass(pods_of("y"))),
        netpol("x", "np").ingress(allow(pods_of("z"))),
        baseline("b", 1).ingress(allow(any_pod())),
    ]);
    assert_eq!(
        answer(&cluster, "y/c x/a tcp/80"),
        "Deny: egress Default, ingress Isolation by netpol/x/np"
    );
}

#[test]
fn the_baseline_applies_in_directions_that_no_network_policy_isolates() {
    // D12, E17.
    let cluster = with_policies(vec![
        netpol("x", "np").ingress(allow(all())),
        baseline("b", 1)
            .namespaces(is("kubernetes.io/metadata.name", "x"))
            .egress(deny(any_pod())),
    ]);
    assert_eq!(
        answer(&cluster, "x/a y/c tcp/80"),
        "Deny: egress BaselineRule by cnp/b, ingress Default"
    );
}

#[test]
fn policies_that_isolate_together_are_all_named() {
    let cluster = with_policies(vec![
        netpol("x", "one").ingress_isolates(),
        netpol("x", "two").ingress(allow(pods_of("z"))),
    ]);
    assert_eq!(
        answer(&cluster, "y/c x/a tcp/80"),
        "Deny: egress Default, ingress Isolation by netpol/x/one, netpol/x/two"
    );
}

/// `x/a` on the node `n1`, and a second node.
fn on_a_node(policies: Vec<PolicyDraft>) -> Cluster<'static> {
    let mut cluster = with_policies(policies);
    cluster.nodes = vec![node("n1", "192.0.2.1"), node("n2", "192.0.2.2")];
    cluster.pods[0].node = Some("n1");
    cluster
}

#[test]
fn traffic_of_the_own_node_is_exempt_from_ingress() {
    // D74, E25.
    let cluster = on_a_node(vec![
        admin("p", 0).ingress(deny(all())),
        netpol("x", "np").ingress_isolates(),
    ]);
    assert_eq!(
        answer(&cluster, "node/n1 x/a tcp/80"),
        "Allow: egress NotApplicable, ingress Exempt"
    );
    let denied = "Deny: egress NotApplicable, ingress AdminRule by cnp/p";
    assert_eq!(answer(&cluster, "node/n2 x/a tcp/80"), denied);
    // D130: an address shows no origin.
    assert_eq!(answer(&cluster, "192.0.2.1 x/a tcp/80"), denied);
}

#[test]
fn egress_to_the_own_node_is_evaluated() {
    // D75.
    let cluster = on_a_node(vec![netpol("x", "np").egress_isolates()]);
    assert_eq!(
        answer(&cluster, "x/a node/n1 tcp/53"),
        "Deny: egress Isolation by netpol/x/np, ingress NotApplicable"
    );
}

#[test]
fn a_host_network_pod_is_its_node() {
    // D73, E24: a peer of pods does not match it, a block does.
    let deny_to = |peers| {
        let mut cluster = on_a_node(vec![admin("p", 10).egress(deny(peers))]);
        cluster.pods.push(Pod {
            host_network: true,
            node: Some("n1"),
            addresses: vec!["192.0.2.1".parse().unwrap()],
            ..pod("x", "h")
        });
        answer(&cluster, "y/c x/h tcp/80")
    };
    assert_eq!(
        deny_to(pods_of("x")),
        "Allow: egress Default, ingress NotApplicable"
    );
    assert_eq!(
        deny_to(block("192.0.2.0/24")),
        "Deny: egress AdminRule by cnp/p, ingress NotApplicable"
    );
}

#[test]
fn a_pod_reaches_its_own_address_and_itself_through_a_service_by_policy() {
    // D76, D77, E26.
    let mut cluster = with_policies(vec![admin("p", 0).ingress(deny(all())).egress(deny(all()))]);
    cluster.services = vec![service("x", "web", (PodId(0), 8080))];
    assert_eq!(
        answer(&cluster, "x/a x/a tcp/8080"),
        "Allow: egress Exempt, ingress Exempt"
    );
    let denied = "Deny: egress AdminRule by cnp/p, ingress AdminRule by cnp/p";
    assert_eq!(answer(&cluster, "x/a x/svc/web tcp/80"), denied);
    assert_eq!(answer(&cluster, "x/a x/a tcp/8080 via x/svc/web"), denied);
    // D139: loopback is the pod itself.
    assert_eq!(
        answer(&cluster, "x/a 127.0.0.1 tcp/8080"),
        "Allow: egress Exempt, ingress Exempt"
    );
}

#[test]
fn icmp_matches_rules_without_ports_only() {
    // D14, E21.
    let with_ports = |ports: Option<Vec<PortMatch<'static>>>| {
        let rule = rule(Action::Deny, any_pod(), ports);
        let cluster = with_policies(vec![admin("p", 10).ingress(rule)]);
        answer(&cluster, "y/c x/a icmp")
    };
    assert_eq!(
        with_ports(Some(vec![ports(Protocol::Tcp, 1, 65535)])),
        "Allow: egress Default, ingress Default"
    );
    assert_eq!(
        with_ports(None),
        "Deny: egress Default, ingress AdminRule by cnp/p"
    );
}

/// The pods `x/a` with both families, `x/b` with IPv4 and `y/c` with IPv6.
fn families(policies: Vec<PolicyDraft>) -> Cluster<'static> {
    let mut cluster = with_policies(policies);
    let addresses: [&[&str]; 3] = [&["10.0.0.1", "fd00::1"], &["10.0.0.2"], &["fd00::3"]];
    for (pod, addresses) in cluster.pods.iter_mut().zip(addresses) {
        pod.addresses = addresses.iter().map(|it| it.parse().unwrap()).collect();
    }
    cluster
}

#[test]
fn neighbor_discovery_is_exempt_and_icmpv6_echo_is_not() {
    // D89, D131.
    let cluster = families(vec![netpol("x", "np").ingress_isolates()]);
    assert_eq!(
        answer(&cluster, "y/c x/a icmpv6/135"),
        "Allow: egress Exempt, ingress Exempt"
    );
    assert_eq!(
        answer(&cluster, "y/c x/a icmpv6"),
        "Deny: egress Default, ingress Isolation by netpol/x/np"
    );
}

#[test]
fn flows_are_evaluated_in_every_common_family() {
    // E22, D132: the block matches IPv4 only.
    let mut cluster = families(vec![admin("p", 10).egress(deny(block("0.0.0.0/0")))]);
    assert_eq!(
        answer(&cluster, "x/a x/b tcp/80"),
        "Deny: egress AdminRule by cnp/p, ingress Default"
    );
    assert_eq!(
        answer(&cluster, "x/a y/c tcp/80"),
        "Allow: egress Default, ingress Default"
    );
    assert_eq!(
        answer(&cluster, "x/b y/c tcp/80"),
        "source and destination share no address family"
    );
    assert_eq!(
        answer(&cluster, "x/a x/b icmpv6"),
        "`icmpv6` exists only in IPv6; source and destination do not share that family"
    );
    cluster.pods[1].addresses.push("fd00::2".parse().unwrap());
    assert_eq!(
        answer(&cluster, "x/a x/b tcp/80"),
        "Mixed: egress Mixed, ingress Default"
    );
}

#[test]
fn a_service_leads_to_the_ports_of_its_backends() {
    // D78, D129.
    let to_8080 = rule(Action::Accept, all(), Some(vec![tcp(8080)]));
    let mut cluster = with_policies(vec![netpol("x", "np").ingress(to_8080)]);
    let of_a = service("x", "web", (PodId(0), 8080));
    cluster.services = vec![
        Service {
            name: "empty",
            cluster_addresses: Vec::new(),
            ports: vec![ServicePort {
                backends: Vec::new(),
                ..of_a.ports[0].clone()
            }],
            ..of_a.clone()
        },
        of_a,
    ];
    let allowed = "Allow: egress Default, ingress NetworkPolicyRule by netpol/x/np";
    assert_eq!(answer(&cluster, "y/c x/svc/web tcp/80"), allowed);
    assert_eq!(answer(&cluster, "y/c 10.96.0.1 tcp/80"), allowed);
    // The same number at the pod itself is another port.
    assert_eq!(
        answer(&cluster, "y/c x/a tcp/80"),
        "Deny: egress Default, ingress Isolation by netpol/x/np"
    );
    assert_eq!(
        answer(&cluster, "y/c x/svc/web tcp/81"),
        "`x/svc/web` does not offer this port; it offers tcp/80"
    );
    assert_eq!(
        answer(&cluster, "y/c x/svc/empty tcp/80"),
        "`x/svc/empty` has no ready backend for this port"
    );
    assert_eq!(
        answer(&cluster, "y/c x/svc/web icmp"),
        "`x/svc/web` is a Service; it translates TCP, UDP and SCTP only"
    );
    assert_eq!(
        answer(&cluster, "x/svc/web x/a tcp/80"),
        "`x/svc/web` is a Service: it cannot be a source"
    );
}

#[test]
fn a_named_port_is_looked_up_at_each_destination() {
    // D33, E9: 8080 at `x/a`, 9090 at `x/b`.
    let http = rule(Action::Accept, all(), Some(vec![named("http")]));
    let mut cluster = with_policies(vec![netpol("x", "np").ingress(http)]);
    let ports: [&[ContainerPort<'static>]; 2] = [
        &[declared("http", 8080, Protocol::Tcp)],
        &[declared("http", 9090, Protocol::Tcp)],
    ];
    for (pod, ports) in cluster.pods.iter_mut().zip(ports) {
        pod.ports = ports.into();
    }
    let allowed = "Allow: egress Default, ingress NetworkPolicyRule by netpol/x/np";
    let denied = "Deny: egress Default, ingress Isolation by netpol/x/np";
    assert_eq!(answer(&cluster, "y/c x/a tcp/8080"), allowed);
    assert_eq!(answer(&cluster, "y/c x/b tcp/9090"), allowed);
    assert_eq!(answer(&cluster, "y/c x/b tcp/8080"), denied);
    assert_eq!(answer(&cluster, "y/c x/b tcp/http"), allowed);
    assert_eq!(
        answer(&cluster, "y/c x/a tcp/https"),
        "the destination has no TCP port named `https`; did you mean `http`?"
    );
}

fn without_address() -> Pod<'static> {
    Pod {
        addresses: Vec::new(),
        ..pod("y", "t")
    }
}

#[test]
fn a_verdict_that_depends_on_an_unknown_address_is_unknown() {
    // D83, D136.
    let from = |blocks: &[&str]| {
        let blocks = blocks.iter().flat_map(|it| block(it)).collect();
        let policy = netpol("x", "np").ingress(allow(blocks));
        let pods = vec![pod("x", "a"), without_address()];
        answer(&cluster(pods, vec![policy]), "y/t x/a tcp/80")
    };
    assert_eq!(
        from(&["10.0.0.0/8"]),
        "Unknown: egress Default, ingress Unknown"
    );
    // Every address that the pod can have is in the blocks.
    assert_eq!(
        from(&["0.0.0.0/1", "128.0.0.0/1"]),
        "Allow: egress Default, ingress NetworkPolicyRule by netpol/x/np"
    );
    // No pod has a multicast address.
    assert_eq!(
        from(&["224.0.0.0/4"]),
        "Deny: egress Default, ingress Isolation by netpol/x/np"
    );
}

#[test]
fn the_verdict_stands_if_only_the_deciding_policy_depends_on_the_address() {
    // D136.
    let policies = vec![
        admin("p", 1).ingress(allow(block("10.0.0.0/8"))),
        admin("q", 2).ingress(allow(all())),
    ];
    let cluster = cluster(vec![pod("x", "a"), without_address()], policies);
    assert_eq!(
        answer(&cluster, "y/t x/a tcp/80"),
        "Allow: egress Default, ingress AdminRule"
    );
}

#[test]
fn a_domain_name_matches_its_learned_addresses() {
    // D54, E50 without expiry.
    let names = vec![DomainPattern::parse("*.example.com").unwrap()];
    let learned = rule(
        Action::Accept,
        vec![Peer::Domains(names)],
        Some(vec![tcp(443)]),
    );
    let mut cluster = with_policies(vec![
        admin("p", 10).egress(learned),
        admin("q", 20).egress(deny(block("0.0.0.0/0"))),
    ]);
    let address = "198.51.100.4".parse().unwrap();
    cluster.learned = vec![("a.b.example.com".to_owned(), address)];
    assert_eq!(
        answer(&cluster, "x/a 198.51.100.4 tcp/443"),
        "Allow: egress AdminRule by cnp/p, ingress NotApplicable"
    );
    assert_eq!(
        answer(&cluster, "x/a 198.51.100.5 tcp/443"),
        "Deny: egress AdminRule by cnp/q, ingress NotApplicable"
    );
}

#[test]
fn a_workload_stands_for_all_its_pods() {
    let cluster = Cluster {
        workloads: vec![Workload {
            kind: "deploy",
            namespace: NamespaceId(0),
            name: "web",
            pods: vec![PodId(0), PodId(1)],
            is_owned: false,
            replicas: None,
        }],
        ..with_policies(vec![
            netpol("x", "np").pods(is("app", "b")).ingress_isolates(),
        ])
    };
    let program = compile(&cluster);
    let evaluator = FlowEvaluator::new(&cluster, &program);
    let query = FlowQuery::parse("y/c x/deploy/web tcp/80").unwrap();
    let Answer { outcome, flows, .. } = evaluator.answer(&query).unwrap();
    assert_eq!(outcome.verdict, FlowVerdict::Mixed);
    let verdicts = flows.iter().map(|it| it.outcome.verdict);
    let verdicts: Vec<FlowVerdict> = verdicts.collect();
    assert_eq!(verdicts, [FlowVerdict::Allow, FlowVerdict::Deny]);
}

#[test]
fn a_node_without_an_address_needs_an_object_or_an_address() {
    let with_node = |node| {
        let mut cluster = with_policies(Vec::new());
        cluster.pods[0].node = Some("n1");
        cluster.nodes = vec![node];
        cluster
    };
    let without_object = with_node(Node {
        has_object: false,
        addresses: Vec::new(),
        ..node("n1", "192.0.2.1")
    });
    let expected = "the node `n1` has no Node object in the input; add it";
    assert_eq!(answer(&without_object, "node/n1 y/c tcp/80"), expected);
    assert_eq!(answer(&without_object, "y/c node/n1 tcp/80"), expected);
    let via = "203.0.113.7 y/c tcp/80 via node/n1";
    assert_eq!(answer(&without_object, via), expected);
    // D106: these are the addresses that count.
    let without_address = with_node(Node {
        addresses: Vec::new(),
        ..node("n1", "192.0.2.1")
    });
    assert_eq!(
        answer(&without_address, "y/c node/n1 tcp/80"),
        "the Node object of `n1` has no InternalIP or ExternalIP; add one to `status.addresses`"
    );
}

#[test]
fn addresses_that_no_endpoint_has_are_errors() {
    // D139.
    let cluster = with_policies(Vec::new());
    assert_eq!(
        answer(&cluster, "203.0.113.7 127.0.0.1 tcp/80"),
        "127.0.0.1 is a loopback address; only the pod or node itself reaches it"
    );
    assert_eq!(
        answer(&cluster, "x/a 0.0.0.0 tcp/80"),
        "0.0.0.0 is the unspecified address; no endpoint has it"
    );
}

#[test]
fn every_port_set_has_an_answer_of_its_own() {
    // `http` is 8080 at the destination.
    let ports = vec![
        PortMatch::Named(Some(Protocol::Tcp), "http"),
        ports(Protocol::Tcp, 9000, 9010),
        ports(Protocol::Udp, 65535, 65535),
    ];
    let policy = netpol("x", "np").ingress(rule(Action::Accept, all(), Some(ports)));
    let mut cluster = with_policies(vec![policy]);
    cluster.pods[0].ports = [declared("http", 8080, Protocol::Tcp)].into();
    let program = compile(&cluster);
    let evaluator = FlowEvaluator::new(&cluster, &program);
    let query = FlowQuery::parse("203.0.113.7 x/a any").unwrap();
    let answers = evaluator.answer_ports(&query).unwrap();
    let answers = answers
        .iter()
        .map(|it| (it.answer.outcome.verdict, it.ports.text().join(" ")));
    let answers: Vec<(FlowVerdict, String)> = answers.collect();
    let denied = "tcp/1-8079 tcp/8081-8999 tcp/9011-65535 udp/1-65534 sctp/* icmp ip/*";
    let allowed = "tcp/8080 tcp/9000-9010 udp/65535";
    assert_eq!(
        answers,
        [
            (FlowVerdict::Deny, denied.to_owned()),
            (FlowVerdict::Allow, allowed.to_owned()),
        ]
    );
}

#[test]
fn a_service_has_answers_for_the_ports_that_it_offers() {
    let mut cluster = with_policies(vec![netpol("x", "np").pods(is("app", "a")).ingress(rule(
        Action::Accept,
        labelled("app", "c"),
        Some(vec![tcp(8080)]),
    ))]);
    let mut web = service("x", "web", (PodId(0), 8080));
    let mut metrics = web.ports[0].clone();
    metrics.port = port(90);
    metrics.backends[0].port = port(9090);
    web.ports.push(metrics);
    cluster.services = vec![web];
    let program = compile(&cluster);
    let evaluator = FlowEvaluator::new(&cluster, &program);
    let query = FlowQuery::parse("y/c x/svc/web any").unwrap();
    let answers = evaluator.answer_ports(&query).unwrap();
    let answers = answers
        .iter()
        .map(|it| (it.answer.outcome.verdict, it.ports.text().join(" ")));
    assert_eq!(
        answers.collect::<Vec<_>>(),
        [
            (FlowVerdict::Allow, "tcp/80".to_owned()),
            (FlowVerdict::Deny, "tcp/90".to_owned()),
        ]
    );
}
