//! NetworkPolicies that do not fit into the budget of their namespace (D148), in every command that
//! evaluates policies, by running them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Three entries each: the older policy allows port 80, the newer one port 81.
const CLUSTER: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {nodeName: n1, containers: [{name: w, image: w}]}
status: {phase: Running, podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: api, namespace: shop, labels: {app: api}}
spec: {nodeName: n2, containers: [{name: w, image: w}]}
status: {phase: Running, podIPs: [{ip: 10.0.0.2}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: z-old, namespace: shop, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: api}}}]
    ports: [{port: 80}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: a-new, namespace: shop, creationTimestamp: "2026-01-02T00:00:00Z"}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: api}}}]
    ports: [{port: 81}]
"#;

fn palisade(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(args)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn run(args: &[&str]) -> (i32, String, String) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("c.yaml"), CLUSTER).unwrap();
    let output = palisade(directory.path(), args);
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

fn explained(budget: &str, port: &str) -> (i32, String, String) {
    let flow = ["shop/api", "shop/web", port];
    let options = ["explain", "-f", "c.yaml", "--namespace-budget", budget];
    run(&[&options[..], &flow[..]].concat())
}

#[test]
fn the_newest_policy_does_not_fit_and_isolates() {
    let (code, _, printed) = explained("6", "tcp/81");
    assert_eq!(code, 0, "both fit: {printed}");
    assert_eq!(printed, "");
    let (code, _, printed) = explained("5", "tcp/80");
    assert_eq!(code, 0, "the older one still allows: {printed}");
    let (code, answer, printed) = explained("5", "tcp/81");
    assert_eq!(code, 1);
    let why = "netpol/shop/a-new does not fit into the budget of its namespace; none of its rules has an effect";
    assert!(answer.contains(why), "{answer}");
    assert!(printed.contains("warning[OVER-BUDGET]"), "{printed}");
    assert!(printed.contains("c.yaml:29:18"), "{printed}");
    // Neither fits, and the pod is isolated all the same.
    let (code, answer, _) = explained("2", "tcp/80");
    assert_eq!(code, 1);
    assert!(
        answer.contains("isolated by netpol/shop/a-new, netpol/shop/z-old"),
        "{answer}"
    );
    // No limit, and the default limit.
    assert_eq!(explained("0", "tcp/81").0, 0);
    let flow = ["explain", "-f", "c.yaml", "shop/api", "shop/web", "tcp/81"];
    assert_eq!(run(&flow).0, 0);
}

#[test]
fn json_names_what_does_not_fit() {
    let flow = ["shop/api", "shop/web", "tcp/81", "-o", "json"];
    let options = ["explain", "-f", "c.yaml", "--namespace-budget", "5"];
    let (_, answer, _) = run(&[&options[..], &flow[..]].concat());
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["ingress"]["reason"], "Isolation");
    let over = serde_json::json!(["netpol/shop/a-new"]);
    assert_eq!(answer["ingress"]["overBudget"], over);
}

#[test]
fn advice_fits_too() {
    let advice = "to allow it: add tcp/81 to netpol/shop/z-old#ingress[0]";
    let (_, answer, _) = explained("5", "tcp/81");
    assert!(answer.contains(advice), "{answer}");
    // There is no room for one port more, and what does not fit itself is no help.
    let (_, answer, _) = explained("3", "tcp/81");
    assert!(!answer.contains("to allow it"), "{answer}");
}

#[test]
fn affecting_says_who_allows_nothing() {
    let options = ["affecting", "-f", "c.yaml", "--namespace-budget", "5"];
    let (_, table, _) = run(&[&options[..], &["shop/web"]].concat());
    let of = |policy: &str| {
        table
            .lines()
            .find(|it| it.contains(policy))
            .unwrap_or_default()
    };
    assert!(of("a-new").contains("isolates; over budget"), "{table}");
    assert!(of("z-old").contains("isolates; allows [0]"), "{table}");
}

#[test]
fn a_change_that_does_not_fit_is_no_wider() {
    let directory = tempfile::tempdir().unwrap();
    let (old, _) = CLUSTER.rsplit_once("---").unwrap();
    std::fs::write(directory.path().join("old.yaml"), old).unwrap();
    std::fs::write(directory.path().join("new.yaml"), CLUSTER).unwrap();
    let diff = ["diff", "old.yaml", "new.yaml", "--fail-on-wider"];
    let fits = palisade(directory.path(), &diff);
    assert_eq!(fits.status.code(), Some(1));
    let budget = ["--namespace-budget", "5"];
    let over = palisade(directory.path(), &[&diff[..], &budget[..]].concat());
    assert_eq!(over.status.code(), Some(0));
}

#[test]
fn one_default_limit_holds_everywhere() {
    let entries = palisade_core::budget::Budget::default().entries();
    for command in [
        "explain",
        "diff",
        "lint",
        "connectivity",
        "affecting",
        "lab",
        "agent",
    ] {
        let (_, help, _) = run(&[command, "--help"]);
        let words: Vec<&str> = help.split_whitespace().collect();
        let default = format!("[default: {entries}]");
        assert!(words.join(" ").contains(&default), "{command}");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (file, line) in [
        ("values.yaml", format!("namespaceBudget: {entries}")),
        (
            "templates/daemonset.yaml",
            format!("ne (int .Values.namespaceBudget) {entries})"),
        ),
    ] {
        let text = std::fs::read_to_string(root.join("deploy/helm/palisade").join(file)).unwrap();
        assert!(text.contains(&line), "{file}");
    }
}
