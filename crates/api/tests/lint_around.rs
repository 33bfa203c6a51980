//! Findings that do not compare rules: for each kind a small cluster with the finding, and a
//! similar one without it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "lint_around/addresses.rs"]
mod addresses;
#[path = "lint_around/lockout.rs"]
mod lockout;
#[path = "lint_around/names.rs"]
mod names;
#[path = "lint_around/shape.rs"]
mod shape;

use std::net::IpAddr;

use palisade_api::{Options, Severity, Source, lower, read};
use palisade_core::analysis::affect::Decider;
use palisade_core::analysis::lint::{Code, FindingDetail, FindingTarget, lint};
use palisade_core::compile::compile;
use palisade_core::model::Cluster;
use palisade_core::policy::Verdict;
use palisade_core::program::RulePlace;

/// The findings of one kind in manifests, as `place` or `place: detail`.
#[track_caller]
fn check(code: Code, documents: &[String], expected: &[&str]) {
    check_with(code, documents, &[], expected);
}

#[track_caller]
fn check_with(code: Code, documents: &[String], learned: &[(&str, &str)], expected: &[&str]) {
    let text = documents.join("---\n");
    let sources = [Source::new("a.yaml", text.clone().into_bytes())];
    let manifests = read(&sources, Options::default(), &|_| {});
    let errors = manifests.problems.iter();
    let errors: Vec<_> = errors
        .filter(|it| it.severity() == Severity::Error)
        .collect();
    assert!(errors.is_empty(), "{errors:#?}\n{text}");
    let learned = learned.iter();
    let learned = learned.map(|(name, it)| ((*name).to_owned(), it.parse::<IpAddr>().unwrap()));
    let lowered = lower(&manifests.objects, learned.collect());
    let cluster = &lowered.cluster;
    let program = compile(cluster);
    let findings = lint(cluster, &program);
    let found = findings.iter().filter(|it| it.code == code).map(|it| {
        if let Some(witness) = &it.witness {
            let decision = program.decide(&witness.flow);
            assert_eq!(decision.verdict(), Verdict::Deny, "{it:?}");
        }
        let by: Vec<String> = it
            .by
            .iter()
            .map(|it| format!(" by {}", part(cluster, *it)))
            .collect();
        let always = if it.always { " (always)" } else { "" };
        let detail = detail(cluster, &it.detail);
        format!("{}{}{detail}{always}", at(cluster, it.at), by.concat())
    });
    assert_eq!(found.collect::<Vec<_>>(), expected, "{text}");
}

fn rule(cluster: &Cluster<'_>, place: RulePlace) -> String {
    let policy = cluster.policy_name(place.policy);
    format!("{policy}#{}[{}]", place.direction, place.index)
}

fn part(cluster: &Cluster<'_>, part: Decider) -> String {
    match part {
        Decider::Rule(place) => rule(cluster, place),
        Decider::Isolation(policy, direction) => {
            format!("{} ({direction})", cluster.policy_name(policy))
        }
    }
}

fn at(cluster: &Cluster<'_>, at: FindingTarget) -> String {
    match at {
        FindingTarget::Policy(policy) => cluster.policy_name(policy),
        FindingTarget::Subject(policy) => format!("{}#subject", cluster.policy_name(policy)),
        FindingTarget::Rule(place) => rule(cluster, place),
        FindingTarget::Peer(place, index) => format!("{}.peer[{index}]", rule(cluster, place)),
        FindingTarget::Port(place, index) => format!("{}.port[{index}]", rule(cluster, place)),
        FindingTarget::Namespace(id) => format!("ns/{}", cluster.namespace_name(id)),
        FindingTarget::Pod(id) => cluster.pod_name(id),
        FindingTarget::Service(id) => cluster.service_name(id),
    }
}

fn detail(cluster: &Cluster<'_>, detail: &FindingDetail) -> String {
    match detail {
        FindingDetail::Nothing => String::new(),
        FindingDetail::Text(text) => format!(": {text}"),
        FindingDetail::Share(some, all) => format!(": {some} of {all}"),
        FindingDetail::Others(others) => {
            let others: Vec<String> = others.iter().map(|it| at(cluster, *it)).collect();
            format!(": with {}", others.join(", "))
        }
    }
}

/// `name: shop, labels: {team: red}`.
fn namespace(name: &str, labels: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{{labels}}}}}\n")
}

/// A pod `shop/web` with the label `app: web`, and more.
struct Pod(&'static str, &'static str);

impl Pod {
    fn ips(&self, ips: &[&str]) -> String {
        self.yaml("", "", ips)
    }

    fn labels(&self, labels: &str, ips: &[&str]) -> String {
        self.yaml(labels, "", ips)
    }

    fn ports(&self, ports: &str, ips: &[&str]) -> String {
        self.yaml("", ports, ips)
    }

    fn yaml(&self, labels: &str, ports: &str, ips: &[&str]) -> String {
        let Pod(namespace, name) = self;
        let labels = if labels.is_empty() {
            format!("app: {name}")
        } else {
            labels.to_owned()
        };
        let ips: Vec<String> = ips.iter().map(|ip| format!("{{ip: \"{ip}\"}}")).collect();
        let ips = ips.join(", ");
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}, labels: {{{labels}}}}}\n\
             spec: {{nodeName: n1, containers: [{{name: c, ports: [{ports}]}}]}}\n\
             status: {{phase: Running, podIPs: [{ips}], conditions: [{{type: Ready, status: \"True\"}}]}}\n"
        )
    }
}

fn netpol(namespace: &str, name: &str, spec: &str) -> String {
    object(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        &format!("name: {name}, namespace: {namespace}"),
        spec,
    )
}

fn cnp(name: &str, tier: &str, spec: &str) -> String {
    let spec = format!("tier: {tier}, priority: 10, {spec}");
    object(
        "policy.networking.k8s.io/v1alpha2",
        "ClusterNetworkPolicy",
        &format!("name: {name}"),
        &spec,
    )
}

fn anp(name: &str, spec: &str) -> String {
    let spec = format!("priority: 10, {spec}");
    object(
        "policy.networking.k8s.io/v1alpha1",
        "AdminNetworkPolicy",
        &format!("name: {name}"),
        &spec,
    )
}

fn early(kind: &str, name: &str, spec: &str) -> String {
    let spec = format!("appliedTo: {{namespaceSelector: {{}}}}, {spec}");
    object(
        "networking.k8s.io/v1alpha1",
        kind,
        &format!("name: {name}"),
        &spec,
    )
}

fn object(version: &str, kind: &str, metadata: &str, spec: &str) -> String {
    format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{{metadata}}}\nspec: {{{spec}}}\n")
}

fn node(name: &str, ip: &str, labels: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{{labels}}}}}\n\
         status: {{addresses: [{{type: InternalIP, address: {ip}}}]}}\n"
    )
}

const EVERYONE: &str = "subject: {namespaces: {}}";
