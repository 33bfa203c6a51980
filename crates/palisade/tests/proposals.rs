//! `explain` proposes changes that allow a denied flow, and `--fix` makes the first one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Pods `web/web` (labels as given) and `shop/db`, `shop/db2`, with a Service for both.
const PODS: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {tenant: a}}
---
apiVersion: v1
kind: Namespace
metadata: {name: web, labels: {tenant: b}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: web, labels: {app: 'on'}}
status: {phase: Running, podIPs: [{ip: 10.0.0.1}, {ip: 'fd00::1'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec: {containers: [{name: a, image: i, ports: [{name: sql, containerPort: 5432}]}]}
status: {phase: Running, podIPs: [{ip: 10.0.0.2}, {ip: 'fd00::2'}], conditions: [{type: Ready, status: 'True'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db2, namespace: shop, labels: {app: db}}
spec: {containers: [{name: a, image: i, ports: [{name: sql, containerPort: 5433}]}]}
status: {phase: Running, podIPs: [{ip: 10.0.0.3}, {ip: 'fd00::3'}], conditions: [{type: Ready, status: 'True'}]}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: 10.96.0.1, selector: {app: db}, ports: [{port: 80, targetPort: sql}]}
";

const ISOLATED: &str = "apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: shop}
spec:
  podSelector: {}
  # Rules follow.
  ingress: []
";

struct Ran {
    code: i32,
    out: String,
    err: String,
}

/// Runs `palisade explain` in a directory.
fn explain(directory: &Path, args: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .arg("explain")
        .args(args)
        .current_dir(directory)
        .output()
        .unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A directory with the pods, and policies in a file of their own.
fn directory(policies: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("pods.yaml"), PODS).unwrap();
    std::fs::write(directory.path().join("policies.yaml"), policies).unwrap();
    directory
}

fn proposals(directory: &Path, flow: &[&str]) -> Value {
    let args = [&["-f", ".", "-o", "json"], flow].concat();
    let ran = explain(directory, &args);
    assert_eq!(ran.code, 1, "{}", ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn one_rule_covers_all_backends_of_a_service_on_their_ports() {
    let directory = directory(ISOLATED);
    let flow = ["web/web", "shop/svc/db", "tcp/80"];
    let ran = explain(directory.path(), &[&["-f", "."], &flow[..]].concat());
    let expected = "  to allow it: add this ingress rule to netpol/shop/closed:
      - from:
        - namespaceSelector:
            matchLabels:
              kubernetes.io/metadata.name: web
          podSelector:
            matchLabels:
              app: \"on\"
        ports:
        - port: 5432
        - port: 5433
    changes nothing else
";
    assert!(
        ran.out.contains("  2 backends have this verdict\n"),
        "{}",
        ran.out
    );
    assert!(ran.out.ends_with(expected), "{}", ran.out);
    // Written, the flow is allowed for both backends and both families, and the comment stays.
    let fixed = explain(
        directory.path(),
        &[&["-f", ".", "--fix"], &flow[..]].concat(),
    );
    assert_eq!(fixed.code, 0, "{}", fixed.err);
    assert_eq!(
        fixed.err,
        "palisade: the flow is allowed now; changed ./policies.yaml\n"
    );
    let again = explain(directory.path(), &[&["-f", "."], &flow[..]].concat());
    assert_eq!(again.code, 0, "{}{}", again.out, again.err);
    let text = std::fs::read_to_string(directory.path().join("policies.yaml")).unwrap();
    assert!(
        text.contains("# Rules follow.\n  ingress:\n  - from:\n    - namespaceSelector:\n"),
        "{text}"
    );
    assert!(text.contains("app: \"on\""), "{text}");
}

#[test]
fn a_dry_run_prints_a_diff_that_patch_takes_and_changes_nothing() {
    let directory = directory(&ISOLATED.replace("ingress: []", "policyTypes: [Ingress]"));
    let args = [
        "-f",
        ".",
        "web/web",
        "shop/db",
        "udp/53",
        "--fix",
        "--dry-run",
    ];
    let ran = explain(directory.path(), &args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let expected = "--- ./policies.yaml
+++ ./policies.yaml
@@ -5,3 +5,14 @@
   podSelector: {}
   # Rules follow.
   policyTypes: [Ingress]
+  ingress:
+  - from:
+    - namespaceSelector:
+        matchLabels:
+          kubernetes.io/metadata.name: web
+      podSelector:
+        matchLabels:
+          app: \"on\"
+    ports:
+    - protocol: UDP
+      port: 53
";
    assert_eq!(ran.out, expected);
    let text = std::fs::read_to_string(directory.path().join("policies.yaml")).unwrap();
    assert!(!text.contains("53"), "{text}");
}

#[test]
fn a_policy_of_the_first_releases_gets_a_rule_of_its_own_shape() {
    let policy = "apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: tenants}
spec:
  priority: 10
  subject: {namespaces: {matchLabels: {tenant: a}}}
  ingress:
  - action: Deny
    from:
    - namespaces: {notSameLabels: [tenant]}
";
    let directory = directory(policy);
    let answer = proposals(directory.path(), &["web/web", "shop/db", "tcp/5432"]);
    let first = &answer["proposals"][0];
    assert_eq!(first["actor"], "Administrator");
    let expected = "- action: Allow
  from:
  - pods:
      namespaces:
        namespaceSelector:
          matchLabels:
            kubernetes.io/metadata.name: web
      podSelector:
        matchLabels:
          app: \"on\"
  ports:
  - portNumber:
      protocol: TCP
      port: 5432
";
    assert_eq!(first["edits"][0]["manifest"], expected);
    // The policy selects both databases.
    assert_eq!(first["allows"]["pairs"], 2);
    let must_act = answer["mustAct"].as_str().unwrap();
    assert_eq!(
        must_act,
        "no NetworkPolicy can allow it: anp/tenants#ingress[0] denies before NetworkPolicies are evaluated; an administrator of the cluster must change anp/tenants"
    );
    let text = explain(
        directory.path(),
        &["-f", ".", "web/web", "shop/db", "tcp/5432"],
    )
    .out;
    assert!(text.contains("    also allows 1 other pair\n"), "{text}");
    assert!(text.contains(must_act), "{text}");
}

#[test]
fn developers_get_a_network_policy_where_the_baseline_denies() {
    let policy = "apiVersion: policy.networking.k8s.io/v1alpha1
kind: BaselineAdminNetworkPolicy
metadata: {name: default}
spec:
  subject: {namespaces: {}}
  ingress:
  - action: Deny
    from:
    - namespaces: {}
";
    let directory = directory(policy);
    let answer = proposals(directory.path(), &["web/web", "shop/db", "tcp/5432"]);
    let all = answer["proposals"].as_array().unwrap();
    let developer = all.iter().find(|it| it["actor"] == "Developer").unwrap();
    let edit = &developer["edits"][0];
    assert_eq!(edit["newFile"], "./allow-ingress-db.yaml");
    assert_eq!(edit["object"], "netpol/shop/allow-ingress-db");
    // The new policy isolates its pods: what the node and the outside reached is denied.
    assert!(
        developer["denies"]["pairs"].as_u64().unwrap() > 0,
        "{developer}"
    );
    assert!(answer["mustAct"].is_null());
    let manifest = edit["manifest"].as_str().unwrap();
    assert_eq!(edit["patch"], manifest);
    std::fs::write(directory.path().join("allow-ingress-db.yaml"), manifest).unwrap();
    let flow = ["-f", ".", "web/web", "shop/db", "tcp/5432"];
    let ran = explain(directory.path(), &flow);
    assert_eq!(ran.code, 0, "{}", ran.out);
}

#[test]
fn no_proposal_changes_a_label() {
    // A label of the pod would do, and so would one of the namespace.
    let policies = format!(
        "{ISOLATED}---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{name: from-api, namespace: shop}}
spec:
  podSelector: {{}}
  ingress:
  - from: [{{podSelector: {{matchLabels: {{app: api}}}}}}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{name: from-tenant, namespace: shop}}
spec:
  podSelector: {{}}
  ingress:
  - from: [{{namespaceSelector: {{matchLabels: {{tenant: c}}}}}}]
"
    );
    let directory = directory(&policies);
    for flow in [
        ["shop/db2", "shop/db", "tcp/1"],
        ["web/web", "shop/db", "tcp/1"],
    ] {
        let text = explain(directory.path(), &[&["-f", "."], &flow[..]].concat()).out;
        assert!(
            text.contains("to allow it: add this ingress rule to"),
            "{text}"
        );
        assert!(!text.contains("label "), "{text}");
    }
}

#[test]
fn a_rule_and_a_new_policy_may_go_to_the_end_of_one_file() {
    // The pods and the policy are in one file, which ends with the list that gets the rule.
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let closed = "apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: shop}
spec:
  podSelector: {}
  ingress:
  - from: [{podSelector: {}}]
";
    let egress = closed
        .replace(
            "name: closed, namespace: shop",
            "name: closed, namespace: web",
        )
        .replace(
            "  ingress:\n  - from: [{podSelector: {}}]\n",
            "  policyTypes: [Egress]\n",
        );
    std::fs::write(
        at.join("all.yaml"),
        format!("{PODS}---\n{egress}---\n{closed}"),
    )
    .unwrap();
    let answer = explain(
        at,
        &[
            "-f", "all.yaml", "web/web", "shop/db", "tcp/1", "-o", "json",
        ],
    );
    let answer: Value = serde_json::from_str(&answer.out).unwrap();
    let edits: Vec<Vec<&str>> = answer["proposals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            let edits = it["edits"].as_array().unwrap().iter();
            edits.map(|it| it["object"].as_str().unwrap()).collect()
        })
        .collect();
    let both = vec!["netpol/shop/closed", "netpol/web/allow-egress-on"];
    assert!(edits.contains(&both), "{edits:?}");
}

#[test]
fn what_cannot_be_written_is_an_error() {
    let directory = directory(ISOLATED);
    let at = directory.path();
    let any = explain(at, &["-f", ".", "web/web", "shop/db", "--fix"]);
    assert_eq!((any.code, any.out.as_str()), (2, ""));
    assert!(
        any.err.contains("--fix needs a port, as in `tcp/8080`"),
        "{}",
        any.err
    );
    let allowed = explain(at, &["-f", ".", "shop/db", "web/web", "tcp/1", "--fix"]);
    assert_eq!(allowed.code, 0);
    assert_eq!(
        allowed.err,
        "palisade: the flow is allowed; nothing to change\n"
    );
    // Standard input has no file.
    let all = format!("{PODS}---\n{ISOLATED}");
    std::fs::write(at.join("all.yaml"), all).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
    let command = command.args(["explain", "-f", "-", "web/web", "shop/db", "tcp/1", "--fix"]);
    let input = std::fs::File::open(at.join("all.yaml")).unwrap();
    let output = command.stdin(input).current_dir(at).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(
        err.contains("netpol/shop/closed is not in a file that can be changed"),
        "{err}"
    );
}
