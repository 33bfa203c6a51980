//! Tests of the oracle: the worked examples, details of the semantics, and the generator.

#![allow(
    clippy::needless_pass_by_value,
    clippy::cloned_ref_to_slice_refs,
    reason = "literals read better"
)]

mod details;
mod examples;
mod examples_early;
mod scenarios;

use crate::{Answer, Oracle, Side};
use serde_json::{Value, json};
use std::net::IpAddr;

/// An answer in the syntax of a flows file.
pub(crate) fn answer_text(a: &Answer) -> String {
    if a.error {
        return "error".to_owned();
    }
    let side = |s: &Side| {
        let mut words = vec![format!("{:?}", s.verdict)];
        match (s.detail, s.reason) {
            (Some(d), _) => words.push(format!("{d:?}")),
            (None, Some(r)) => words.push(format!("{r:?}")),
            (None, None) => {}
        }
        match &s.rule {
            Some(r) => words.push(r.clone()),
            None if !s.policies.is_empty() => words.push(s.policies.join(",")),
            None => {}
        }
        words.join(" ")
    };
    let mut out = format!("{:?}", a.verdict);
    for (word, s) in [("egress", &a.egress), ("ingress", &a.ingress)] {
        if let Some(s) = s {
            out += &format!(" ; {word} {}", side(s));
        }
    }
    out
}

/// Each line is `QUERY : EXPECTED`; the answer must have every expected part.
#[track_caller]
pub(crate) fn check(name: &str, objects: &[Value], dns: &[(&str, &str)], lines: &str) {
    let dns: Vec<(String, IpAddr)> = dns
        .iter()
        .map(|(n, a)| ((*n).to_owned(), a.parse().unwrap()))
        .collect();
    let oracle = Oracle::new(objects, &dns);
    for line in lines.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (query, expected) = line.split_once(" : ").unwrap();
        let answer = answer_text(&oracle.answer(query));
        let parts: Vec<&str> = answer.split(" ; ").collect();
        for want in expected.split(" ; ") {
            let want = want.trim();
            assert!(
                parts.contains(&want),
                "{name}: {query}\n expected {want}\n answer {answer}"
            );
        }
    }
}

/// The cluster of section 5.
pub(crate) fn world() -> Vec<Value> {
    let ns = |n: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n, "labels": labels}});
    let mut all = vec![
        ns("x", json!({"team": "red", "tenant": "t1"})),
        ns("y", json!({"team": "blue", "tenant": "t1"})),
        ns("z", json!({"team": "red", "tenant": "t2"})),
        ns("u", json!({})),
        node("n1", &["192.0.2.1"], json!({})),
        node("n2", &["192.0.2.2"], json!({"role": "control-plane"})),
        pod(
            "x/a",
            "web",
            "n1",
            1,
            json!([{"name": "http", "containerPort": 8080}, {"name": "dns", "containerPort": 53, "protocol": "UDP"}]),
        ),
        pod(
            "x/b",
            "db",
            "n2",
            2,
            json!([{"name": "http", "containerPort": 9090}]),
        ),
        pod("y/c", "client", "n2", 3, json!([])),
        pod("z/d", "client", "n2", 4, json!([])),
        pod("u/e", "client", "n2", 5, json!([])),
    ];
    let mut host = pod("x/h", "host", "n1", 0, json!([]));
    host["spec"]["hostNetwork"] = json!(true);
    host["status"]["podIPs"] = json!([{"ip": "192.0.2.1"}]);
    all.push(host);
    all
}

/// A node.
pub(crate) fn node(name: &str, ips: &[&str], labels: Value) -> Value {
    let addresses: Vec<Value> = ips
        .iter()
        .map(|i| json!({"type": "InternalIP", "address": i}))
        .collect();
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": {"addresses": addresses}})
}

/// A dual-stack pod.
pub(crate) fn pod(id: &str, app: &str, node: &str, n: u8, ports: Value) -> Value {
    let (ns, name) = id.split_once('/').unwrap();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": ns, "labels": {"app": app}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "ports": ports}]},
        "status": {"phase": "Running", "podIPs": [{"ip": format!("10.0.0.{n}")}, {"ip": format!("fd00::{n}")}]}})
}

/// A NetworkPolicy.
pub(crate) fn np(id: &str, spec: Value) -> Value {
    let (ns, name) = id.split_once('/').unwrap();
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name, "namespace": ns}, "spec": spec})
}

/// A ClusterNetworkPolicy v1alpha2; `A10` is tier Admin, priority 10; subject namespace x unless
/// the spec has one.
pub(crate) fn cnp(name: &str, tier: &str, mut spec: Value) -> Value {
    let (t, p) = tier.split_at(1);
    spec["tier"] = json!(if t == "A" { "Admin" } else { "Baseline" });
    spec["priority"] = json!(p.parse::<i64>().unwrap());
    if spec.get("subject").is_none() {
        spec["subject"] =
            json!({"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": "x"}}});
    }
    json!({"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy", "metadata": {"name": name}, "spec": spec})
}

/// Any cluster-wide object.
pub(crate) fn cluster(api: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// An AdminNetworkPolicy, or the baseline one.
pub(crate) fn anp(kind: &str, name: &str, spec: Value) -> Value {
    cluster("policy.networking.k8s.io/v1alpha1", kind, name, spec)
}

/// The example of the crate's description.
#[test]
fn a_pod_without_policies_is_open() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "x"},
        "status": {"podIPs": [{"ip": "10.0.0.1"}]}});
    let answer = Oracle::new(&[pod], &[]).answer("203.0.113.7 x/a tcp/80");
    assert_eq!(answer.verdict, crate::Verdict::Allow);
}
