//! The CRDs on a real API server: they are established, and it rejects the same objects as `check`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test fails by panicking, and prints its counts"
)]

#[path = "apiserver/fixtures.rs"]
mod fixtures;
#[path = "apiserver/server.rs"]
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use palisade_crds::{Channel, crds, legacy};
use palisade_testbed::{API_SERVER, group};
use serde_json::Value;

use fixtures::{Fixture, fixtures};
use server::{Server, errors};

fn main() -> ExitCode {
    let tests: [(&str, fn()); 6] = [
        ("standard: the server and check agree", || agree(Standard)),
        ("experimental: the server and check agree", || {
            agree(Experimental)
        }),
        ("palisade: the server and check agree", || agree(Palisade)),
        ("nulls are dropped before validation", nulls),
        (
            "fields in `all` are rejected, also without strict validation",
            all_is_empty,
        ),
        (
            "a group of Kubernetes' own is not served",
            legacy_is_not_served,
        ),
    ];
    group("api", API_SERVER, tests.to_vec())
}

/// The side that rejects an object which the other accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Check,
    Server,
}
use Channel::{Experimental, Palisade, Standard};
use Side::{Check, Server as ServerSide};

/// The known differences with their channels and reasons. A rejection by `check` is named by its
/// codes, one by the server only by its message.
const EXPLAINED: [(Side, &str, &[Channel], &str); 12] = [
    (
        Check,
        "CIDR-EXCEPT",
        &[Palisade],
        "2021: lists without limits leave no room for CEL",
    ),
    (
        Check,
        "CIDR-INVALID",
        &Channel::ALL,
        "NetworkPolicy: the server still reads old texts, with a warning",
    ),
    (
        Check,
        "DOMAIN-ACTION",
        &[Experimental],
        "D53: upstream has it in prose only",
    ),
    (
        Check,
        "DUPLICATE-KEY",
        &Channel::ALL,
        "D25: kubectl sends the last one only",
    ),
    (
        Check,
        "INVALID-SUBJECT UNKNOWN-VALUE",
        &[Standard, Experimental],
        "upstream does not validate operators",
    ),
    (
        Check,
        "NULL-LABEL",
        &Channel::ALL,
        "D24: the server drops it, which widens the selector, or keeps it",
    ),
    (
        Check,
        "PORT-NAME",
        &[Standard, Experimental],
        "upstream accepts the empty name",
    ),
    (
        Check,
        "PORT-RANGE",
        &[Standard, Experimental],
        "v1alpha1: upstream has it in prose only",
    ),
    (
        Check,
        "UNKNOWN-VALUE",
        &[Standard, Experimental],
        "upstream validates neither operators nor protocols",
    ),
    (
        ServerSide,
        "shape before v0.1.3",
        &[Standard, Experimental],
        "check cannot know the cluster's release",
    ),
    (
        ServerSide,
        "namedPort",
        &[Standard],
        "v1alpha1: the early releases have it in their only channel",
    ),
    (
        ServerSide,
        "ports: []",
        &[Standard, Experimental],
        "D39: the releases before v0.1.7 have it",
    ),
];

/// The name of a difference in the table.
fn named(fixture: &Fixture, message: Option<&String>) -> (Side, String) {
    let Some(message) = message else {
        let codes: Vec<&str> = fixture.errors().into_iter().collect();
        return (Check, codes.join(" "));
    };
    let unknown = |field: &str| message.contains("unknown field") && message.contains(field);
    let early = [
        "namespaces.namespaceSelector\"",
        "pods.namespaces\"",
        "ameLabels\"",
        "namespaces.related\"",
    ];
    let name = if early.into_iter().any(unknown) {
        "shape before v0.1.3"
    } else if unknown("namedPort\"") {
        "namedPort"
    } else if message.contains(".ports in body should have at least 1 items") {
        "ports: []"
    } else {
        message
    };
    (ServerSide, name.to_owned())
}

/// The draft's CRDs in a group that an API server serves, to test their schemas.
fn movable(mut crds: Vec<Value>) -> Vec<Value> {
    for crd in &mut crds {
        let plural = crd["spec"]["names"]["plural"].as_str().unwrap().to_owned();
        crd["metadata"]["name"] = format!("{plural}.draft.palisade.dev").into();
        crd["spec"]["group"] = "draft.palisade.dev".into();
    }
    crds
}

fn agree(channel: Channel) {
    let server = Server::start();
    server.install(&crds(channel), true);
    let has_legacy = channel == Palisade;
    if has_legacy {
        server.install(&movable(legacy()), true);
    }
    let fixtures = fixtures();
    let namespaces = fixtures.iter().filter_map(|it| it.namespace.clone());
    server.namespaces(&namespaces.collect());
    let (objects, others): (Vec<&Fixture>, Vec<&Fixture>) = fixtures
        .iter()
        .filter(|it| has_legacy || !it.is_legacy)
        .partition(|it| it.is_object);
    let texts: Vec<String> = objects
        .iter()
        .map(|it| match it.is_legacy {
            true => it
                .text
                .replace("networking.k8s.io/v1alpha1", "draft.palisade.dev/v1alpha1"),
            false => it.text.clone(),
        })
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let refused = server.refused(&texts, "strict");
    let mut differences: BTreeMap<(Side, String), Vec<&str>> = BTreeMap::new();
    for (index, fixture) in objects.iter().enumerate() {
        let message = refused.get(&index);
        if message.is_some() != fixture.is_refused(channel) {
            let name = named(fixture, message);
            differences.entry(name).or_default().push(&fixture.file);
        }
    }
    // A document that `check` does not read as an object is mostly none for kubectl either.
    for fixture in &others {
        assert!(fixture.is_refused(channel), "{}", fixture.file);
        if server.accepts(&fixture.text) {
            let name = named(fixture, None);
            differences.entry(name).or_default().push(&fixture.file);
        }
    }
    eprintln!(
        "{}: {} documents, {} rejected by the server; {} that are no objects",
        channel.name(),
        objects.len(),
        refused.len(),
        others.len()
    );
    let explained = EXPLAINED.iter().filter(|it| it.2.contains(&channel));
    let explained: BTreeSet<_> = explained.map(|it| (it.0, it.1.to_owned())).collect();
    for ((side, name), files) in &differences {
        eprintln!("  {side:?} rejects {name}: {}", files.len());
        let is_explained = explained.contains(&(*side, name.clone()));
        assert!(is_explained, "{side:?} alone rejects {files:?}: {name}");
    }
    let found: BTreeSet<_> = differences.into_keys().collect();
    assert_eq!(found, explained, "a row of the table explains nothing");
    assert!(objects.len() > 600, "{}", objects.len());
}

const NULLS: &str = "
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: nulls}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}, pods: null}
  ingress:
  - action: Deny
    from: [{namespaces: {matchLabels: {team: null}}, pods: null}]
";
const NO_MEMBER: &str = "
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: no-member}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  ingress:
  - action: Deny
    from: [{namespaces: null}]
";

/// Open point 1 of the specification: how a server stores null label values and null members.
fn nulls() {
    // Upstream's CRDs drop the label, which widens the selector. Ours keep it: readers of the
    // object fail closed.
    for (channel, stored) in [(Experimental, "{}"), (Palisade, r#"{"team":null}"#)] {
        let server = Server::start();
        server.install(&crds(channel), true);
        let peer = server.stored(NULLS, "{.spec.ingress[0].from[0]}");
        assert_eq!(
            peer,
            format!(r#"{{"namespaces":{{"matchLabels":{stored}}}}}"#)
        );
        let subject = server.stored(NULLS, "{.spec.subject}");
        assert_eq!(subject, r#"{"namespaces":{}}"#);
        let message = server.refusal(NO_MEMBER);
        assert!(
            message.contains("should have at least 1 properties"),
            "{message}"
        );
    }
}

fn all_is_empty() {
    let server = Server::start();
    server.install(&crds(Palisade), true);
    let with = |all: &str| NO_MEMBER.replace("namespaces: null", all);
    let texts = [
        with("all: {}"),
        with("all: {cluster: true}"),
        with("all: {}, namespaces: {}"),
    ];
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let refused = server.refused(&texts, "ignore");
    assert_eq!(refused.keys().collect::<Vec<_>>(), [&1, &2]);
}

/// Kubernetes serves the group itself: the CRDs of the draft are established, and none of their
/// objects can be stored.
fn legacy_is_not_served() {
    let server = Server::start();
    server.install(&legacy(), false);
    let output = server.kubectl(&["get", "--raw=/apis/networking.k8s.io/v1alpha1"]);
    assert!(!output.status.success() && errors(&output).contains("NotFound"));
    let policies = server.kubectl(&["get", "networkpolicies.v1.networking.k8s.io", "-A"]);
    assert!(policies.status.success(), "{}", errors(&policies));
}
