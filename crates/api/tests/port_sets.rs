//! Every set of ports with its own answer: where the sets start and end.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use palisade_api::{Options, Source, lower, read};
use palisade_core::answer::{FlowEvaluator, FlowVerdict};
use palisade_core::compile::compile;
use palisade_core::query::FlowQuery;

const OBJECTS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: x}
spec: {containers: [{name: main, image: i, ports: [{name: http, containerPort: 8080}]}]}
status: {phase: Running, podIPs: [{ip: 10.0.1.1}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: np, namespace: x}
spec:
  podSelector: {}
  ingress:
  - ports: [{port: http}, {port: 9000, endPort: 9010}, {protocol: UDP, port: 65535}]
";

#[test]
fn a_named_port_is_a_set_of_its_own_and_ranges_include_their_end() {
    let sources = [Source::new("objects.yaml", OBJECTS.as_bytes().to_vec())];
    let manifests = read(&sources, Options::default(), &|_| {});
    let lowered = lower(&manifests.objects, Vec::new());
    let program = compile(&lowered.cluster);
    let respondent = FlowEvaluator::new(&lowered.cluster, &program);
    let question = FlowQuery::parse("203.0.113.7 x/a any").unwrap();
    let answers = respondent.answer_ports(&question).unwrap();
    let answers_of_sets: Vec<(FlowVerdict, String)> = answers
        .iter()
        .map(|it| (it.answer.outcome.verdict, it.ports.text().join(" ")))
        .collect();
    let denied = "tcp/1-8079 tcp/8081-8999 tcp/9011-65535 udp/1-65534 sctp/* icmp ip/*";
    assert_eq!(
        answers_of_sets,
        [
            (FlowVerdict::Deny, denied.to_owned()),
            (
                FlowVerdict::Allow,
                "tcp/8080 tcp/9000-9010 udp/65535".to_owned()
            ),
        ]
    );
}
