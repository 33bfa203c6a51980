//! Fields of objects are found in documents of any style.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use palisade_api::PathStep::{Field, Index};
use palisade_api::{Layout, Locator, Options, PathStep, Source, locate, path_text, read};

const BLOCK: &str = "\
# first
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: db
spec:
  podSelector: {matchLabels: {app: db}, matchExpressions: []}  # who
  policyTypes: [Ingress, Egress]
  ingress:
  # the shop
  - from:
    - podSelector: {}   # all
    - ipBlock:
        cidr: 10.0.0.0/8

  - ports:
    - {port: 80}
    - {port: 81}
  egress: []
";

const PEERS: [PathStep<'_>; 5] = [
    Field("spec"),
    Field("ingress"),
    Index(0),
    Field("from"),
    Index(1),
];

fn found(name: &str, text: &str, which: usize, path: &[PathStep<'_>]) -> Option<String> {
    let sources = [Source::new(name, text.as_bytes().to_vec())];
    let manifests = read(&sources, Options::default(), &|_| {});
    let span = locate(&sources[0], &manifests.objects[which], path)?;
    Some(text[span.range()].to_owned())
}

#[test]
fn values_of_block_style_are_found_whole() {
    let check = |path: &[PathStep<'_>], expected: Option<&str>| {
        assert_eq!(found("a.yaml", BLOCK, 0, path).as_deref(), expected);
    };
    check(&PEERS, Some("ipBlock:\n        cidr: 10.0.0.0/8"));
    check(&[Field("metadata"), Field("name")], Some("db"));
    check(
        &[Field("spec"), Field("podSelector")],
        Some("{matchLabels: {app: db}, matchExpressions: []}"),
    );
    check(
        &[Field("spec"), Field("policyTypes")],
        Some("[Ingress, Egress]"),
    );
    check(
        &[Field("spec"), Field("policyTypes"), Index(1)],
        Some("Egress"),
    );
    check(
        &[Field("spec"), Field("ingress")],
        Some(
            "from:\n    - podSelector: {}   # all\n    - ipBlock:\n        cidr: 10.0.0.0/8\n\n  - ports:\n    - {port: 80}\n    - {port: 81}",
        ),
    );
    check(&[Field("spec"), Field("egress")], Some("[]"));
    check(&[Field("spec"), Field("egress"), Index(0)], None);
    check(&[Field("spec"), Field("ingress"), Index(2)], None);
    check(&[Field("spec"), Field("nothing")], None);
    check(&[Field("kind"), Field("nothing")], None);
    let whole = found("a.yaml", BLOCK, 0, &[]).unwrap();
    assert!(whole.starts_with("apiVersion") && whole.ends_with("egress: []"));
}

#[test]
fn values_of_json_and_of_lists_are_found() {
    let json = r#"{"kind":"List","apiVersion":"v1","items":[
      {"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}},
      {"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"b"},
       "spec":{"podSelector":{},"ingress":[{"from":[{"podSelector":{}}, {"ipBlock": {"cidr":"10.0.0.0/8"}} ]}]}}]}"#;
    let expected = Some(r#"{"ipBlock": {"cidr":"10.0.0.0/8"}}"#);
    assert_eq!(found("a.json", json, 1, &PEERS).as_deref(), expected);
    let list = "\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: a}
- apiVersion: networking.k8s.io/v1
  kind: NetworkPolicy
  metadata: {name: b}
  spec:
    podSelector: {}
    ingress:
    - from:
      - podSelector: {}
      - ipBlock: {cidr: 10.0.0.0/8}
";
    let expected = Some("ipBlock: {cidr: 10.0.0.0/8}");
    assert_eq!(found("a.yaml", list, 1, &PEERS).as_deref(), expected);
    let flow = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: b}, \
                spec: {podSelector: {}, ingress: [{from: [{podSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8}}]}]}}\n";
    let expected = Some("{ipBlock: {cidr: 10.0.0.0/8}}");
    assert_eq!(found("a.yaml", flow, 0, &PEERS).as_deref(), expected);
}

#[test]
fn fields_that_need_the_full_parser_have_the_layout_other() {
    let text = BLOCK.replace("cidr: 10.0.0.0/8", "cidr: &all 10.0.0.0/8");
    let sources = [Source::new("a.yaml", text.clone().into_bytes())];
    let manifests = read(&sources, Options::default(), &|_| {});
    let mut locator = Locator::new(&sources[0]);
    let located = locator.locate(&manifests.objects[0], &PEERS).unwrap();
    assert_eq!(located.layout, Layout::Other);
    assert!(text[located.value.range()].starts_with("ipBlock:"));
    let windows = BLOCK.replace('\n', "\r\n");
    let peer = found("a.yaml", &windows, 0, &PEERS);
    assert_eq!(
        peer.as_deref(),
        Some("ipBlock:\r\n        cidr: 10.0.0.0/8")
    );
}

#[test]
fn paths_are_written_as_kubectl_writes_them() {
    assert_eq!(path_text(&PEERS).unwrap(), "spec.ingress[0].from[1]");
    assert_eq!(path_text(&[]), None);
}
