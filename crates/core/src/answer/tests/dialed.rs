//! What a client dials: addresses of nodes and Services, blocks of addresses, and notes on them.

use super::{answer, on_a_node, with_policies};
use crate::answer::{FlowEvaluator, FlowVerdict};
use crate::compile::compile;
use crate::fixture::{PolicyDraft, allow, block, netpol, port, service};
use crate::model::{Cluster, PodId};
use crate::query::FlowQuery;

/// The Service of `x/a`, at the node port 30080 and the external address 198.51.100.1.
fn published(policies: Vec<PolicyDraft>) -> Cluster<'static> {
    let mut cluster = on_a_node(policies);
    let mut web = service("x", "web", (PodId(0), 8080));
    web.cluster_addresses = vec!["10.96.0.1".parse().unwrap()];
    web.external_addresses = vec!["198.51.100.1".parse().unwrap()];
    web.ports[0].node_port = Some(port(30080));
    cluster.services = vec![web];
    cluster
}

#[test]
fn an_address_of_a_node_with_a_node_port_is_the_service() {
    // D141. From outside the flow enters at that node (D79).
    let from_outside = || netpol("x", "np").ingress(allow(block("203.0.113.0/24")));
    let cluster = published(vec![from_outside()]);
    let denied = "ingress Isolation by netpol/x/np";
    for (query, expected) in [
        (
            "203.0.113.7 192.0.2.1 tcp/30080",
            "ingress NetworkPolicyRule",
        ),
        ("203.0.113.7 192.0.2.2 tcp/30080", denied),
        ("y/c 192.0.2.2 tcp/30080", denied),
        ("node/n2 192.0.2.1 tcp/30080", denied),
        ("203.0.113.7 192.0.2.1 tcp/30081", "ingress NotApplicable"),
        ("203.0.113.7 192.0.2.1 udp/30080", "ingress NotApplicable"),
        (
            "203.0.113.7 198.51.100.1 tcp/80",
            "ingress NetworkPolicyRule",
        ),
    ] {
        let answer = answer(&cluster, query);
        assert!(answer.contains(expected), "{query}: {answer}");
    }
    let contradiction = answer(&cluster, "203.0.113.7 192.0.2.1 tcp/30080 via node/n2");
    assert!(
        contradiction.starts_with("`via` must be"),
        "{contradiction}"
    );
}

#[test]
fn a_block_of_addresses_is_every_address_of_it() {
    let half = netpol("x", "np").ingress(allow(block("198.51.100.0/25")));
    let mut cluster = with_policies(vec![half]);
    cluster.pods[1].addresses = vec!["198.51.100.200".parse().unwrap()];
    let program = compile(&cluster);
    let evaluator = FlowEvaluator::new(&cluster, &program);
    let verdicts = |query: &str| {
        let answer = evaluator.answer(&FlowQuery::parse(query).unwrap()).unwrap();
        let flows = answer.flows.iter().map(|flow| {
            let source = flow.source.text(&cluster);
            format!("{source} {:?}", flow.outcome.verdict)
        });
        (answer.outcome.verdict, flows.collect::<Vec<String>>())
    };
    // The pod with an address of the block is a source of its own.
    let (verdict, flows) = verdicts("198.51.100.0/24 x/a tcp/80");
    assert_eq!(verdict, FlowVerdict::Mixed);
    let expected = [
        "x/b Deny",
        "198.51.100.0/25 Allow",
        "198.51.100.128/25 Deny",
    ];
    assert_eq!(flows, expected);
    assert_eq!(
        verdicts("198.51.100.64/26 x/a tcp/80"),
        (
            FlowVerdict::Allow,
            vec!["198.51.100.64/26 Allow".to_owned()]
        )
    );
    assert_eq!(
        answer(&cluster, "224.0.0.0/24 x/a tcp/80"),
        "no endpoint can have an address in 224.0.0.0/24"
    );
}

#[test]
fn notes_say_what_a_verdict_does_not_show() {
    let cluster = published(vec![netpol("x", "np").ingress_isolates()]);
    let program = compile(&cluster);
    let evaluator = FlowEvaluator::new(&cluster, &program);
    for (query, expected) in [
        // D142: the cluster address; the other ways to the Service are open to the outside.
        (
            "203.0.113.7 10.96.0.1 tcp/80",
            "[ClusterAddressFromOutside]",
        ),
        ("203.0.113.7 198.51.100.1 tcp/80", "[]"),
        ("203.0.113.7 192.0.2.1 tcp/30080", "[]"),
        ("203.0.113.7 x/svc/web tcp/80", "[]"),
        ("y/c 10.96.0.1 tcp/80", "[]"),
        // D75, D77, D14.
        ("x/a node/n1 tcp/53", "[OwnNode]"),
        ("x/a 192.0.2.1 tcp/53", "[OwnNode]"),
        ("x/a node/n2 tcp/53", "[]"),
        ("x/a x/svc/web tcp/80", "[SelfThroughService]"),
        ("x/a x/a tcp/80", "[]"),
        ("y/c x/a icmp", "[WithoutPorts]"),
        ("x/a y/c icmp", "[]"),
    ] {
        let answer = evaluator.answer(&FlowQuery::parse(query).unwrap()).unwrap();
        let notes: Vec<_> = answer
            .flows
            .iter()
            .map(|it| format!("{:?}", it.notes))
            .collect();
        assert_eq!(notes, [expected], "{query}");
    }
}
