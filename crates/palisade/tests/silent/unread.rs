//! What `--lenient` continues without is beside every answer that it could change.

use serde_json::json;

use crate::{CLUSTER, document, run};

/// The subject has an unknown field; the policy would deny what enters its pods.
const SUBJECT: &str = "---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: deny-all}
spec:
  tier: Admin
  priority: 10
  subject:
    namespace: {}
  ingress:
  - {name: all, action: Deny, from: [{namespaces: {}}]}
";

/// A NetworkPolicy with an unreadable selector.
const SELECTOR: &str = "---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: shop}
spec:
  podSelector: {matchLabel: {app: db}}
  policyTypes: [Ingress, Egress]
";

/// A policy whose `spec` has another type.
const SPEC: &str = "---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: strange}
spec: 7
";

/// A document that is no YAML.
const SYNTAX: &str = "---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: broken
";

/// A policy of an unknown version.
const VERSION: &str = "---
apiVersion: networking.k8s.io/v3
kind: NetworkPolicy
metadata: {name: new, namespace: shop}
spec: {podSelector: {}}
";

/// The line of a text in the cluster with these documents.
fn line(documents: &str, text: &str) -> usize {
    let all = format!("{CLUSTER}{documents}");
    let mut lines = all.lines().enumerate();
    let (at, _) = lines.find(|(_, it)| it.contains(text)).unwrap();
    at + 1
}

/// The notes of an explanation, from a pod to another in the same namespace.
fn notes(documents: &str, flow: [&str; 3]) -> Vec<String> {
    let cluster = format!("{CLUSTER}{documents}");
    let args = [&["explain", "--lenient", "-f", "c.yaml"], flow.as_slice()].concat();
    let ran = run(&cluster, &args);
    let notes = ran.out.lines().filter_map(|it| it.strip_prefix("  note: "));
    notes.map(str::to_owned).collect()
}

const FLOW: [&str; 3] = ["shop/web", "shop/db", "tcp/5432"];
const ELSEWHERE: [&str; 3] = ["red/batch", "192.0.2.9", "tcp/5432"];

#[test]
fn a_policy_without_a_readable_subject_is_beside_the_verdict() {
    let at = line(SUBJECT, "namespace: {}");
    let expected = format!(
        "cnp/deny-all has no effect: unknown field `namespace` (c.yaml:{at}); it could select shop/db"
    );
    assert_eq!(notes(SUBJECT, FLOW), [expected]);
    // The policy has no egress rules.
    assert!(notes(SUBJECT, ELSEWHERE).is_empty());
    let at = line(SELECTOR, "matchLabel:");
    let expected = format!(
        "netpol/shop/closed has no effect: unknown field `matchLabel` (c.yaml:{at}); it could select shop/db and shop/web"
    );
    assert_eq!(notes(SELECTOR, FLOW), [expected]);
    // It is of another namespace.
    assert!(notes(SELECTOR, ELSEWHERE).is_empty());
    assert!(notes(SELECTOR, ["node/n1", "192.0.2.9", "tcp/80"]).is_empty());
}

#[test]
fn unreadable_policies_and_documents_are_beside_the_verdict() {
    let found = notes(SPEC, ELSEWHERE);
    assert_eq!(found.len(), 1, "{found:?}");
    let at = line(SPEC, "spec: 7");
    assert!(
        found[0].starts_with("anp/strange has no effect: "),
        "{found:?}"
    );
    let end = format!("(c.yaml:{at}); it could select red/batch");
    assert!(found[0].ends_with(&end), "{found:?}");
    for (documents, start) in [
        (SYNTAX, "a document has no effect: "),
        (
            VERSION,
            "a document has no effect: API version `networking.k8s.io/v3` has no kind `NetworkPolicy` ",
        ),
    ] {
        let found = notes(documents, ELSEWHERE);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(start), "{found:?}");
        let end = "); if it is a policy, it could select red/batch";
        assert!(found[0].ends_with(end), "{found:?}");
    }
}

#[test]
fn objects_of_other_kinds_are_not_beside_the_verdict() {
    for document in [
        "---\napiVersion: apps/v2\nkind: Deployment\nmetadata: {name: a, namespace: shop}\n",
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b, a: c}\n",
        "---\napiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: shop}\nspec: 7\n",
        "---\nreplicas: 3\n",
    ] {
        assert!(notes(document, FLOW).is_empty(), "{document}");
    }
    // Rules that fail closed are in effect.
    let rule = "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a, namespace: shop}\n\
                spec: {podSelector: {}, ingress: [{from: [{pods: {}}]}]}\n";
    assert!(notes(rule, FLOW).is_empty());
    // An audited policy has no effect anyway.
    let audited = "{name: closed, namespace: shop, annotations: {palisade.dev/enforcement: audit}}";
    let audited = SELECTOR.replace("{name: closed, namespace: shop}", audited);
    assert!(notes(&audited, FLOW).is_empty());
    // A 2016 policy of a namespace that is not isolated.
    let early = SELECTOR.replace("networking.k8s.io/v1", "extensions/v1beta1");
    assert!(notes(&early, FLOW).is_empty());
}

#[test]
fn many_are_counted() {
    let documents: Vec<String> = (0..9)
        .map(|it| SELECTOR.replace("name: closed", &format!("name: closed-{it}")))
        .collect();
    let found = notes(&documents.concat(), FLOW);
    assert_eq!(found.len(), 6);
    assert_eq!(
        found[5],
        "4 more have no effect; `palisade check` shows their problems"
    );
}

#[test]
fn the_documents_of_explain_have_them() {
    let cluster = format!("{CLUSTER}{SUBJECT}");
    let at = line(SUBJECT, "namespace: {}");
    let expected = json!([{"object": "cnp/deny-all", "code": "UNKNOWN-FIELD",
        "message": "unknown field `namespace`", "file": "c.yaml", "line": at}]);
    let explain = |more: &[&str]| {
        let args = [&["explain", "--lenient", "-f", "c.yaml"], more].concat();
        run(&cluster, &args)
    };
    let ran = explain(&[FLOW.as_slice(), &["-o", "json"]].concat());
    assert_eq!(ran.out.matches("\"unread\"").count(), 1, "{}", ran.out);
    assert_eq!(document(&ran)["unread"], expected);
    let ran = explain(&[FLOW.as_slice(), &["-o", "jsonl"]].concat());
    assert_eq!(document(&ran)["unread"], expected);
    let ran = explain(&[&FLOW[..2], &["-o", "json"]].concat());
    let set = document(&ran);
    assert_eq!(set["kind"], "ExplanationSet");
    assert_eq!(set["unread"], expected);
    assert_eq!(set["explanations"][0]["unread"], expected);
    let ran = explain(&[ELSEWHERE.as_slice(), &["-o", "json"]].concat());
    assert!(document(&ran).get("unread").is_none(), "{}", ran.out);
    // Every port, for people: once for all.
    let ran = explain(&FLOW[..2]);
    assert_eq!(
        ran.out.matches("note: cnp/deny-all").count(),
        1,
        "{}",
        ran.out
    );
    let syntax = format!("{CLUSTER}{SYNTAX}");
    let args = ["explain", "--lenient", "-f", "c.yaml", "-o", "json"];
    let ran = run(&syntax, &[args.as_slice(), &FLOW].concat());
    let unread = &document(&ran)["unread"];
    assert!(unread[0].get("object").is_none(), "{unread}");
    assert_eq!(unread[0]["code"], "YAML-SYNTAX");
}

#[test]
fn other_commands_have_them_in_one_line_and_in_the_document() {
    let cluster = format!("{CLUSTER}{SUBJECT}");
    let at = line(SUBJECT, "namespace: {}");
    let one = format!(
        "note: cnp/deny-all has no effect: unknown field `namespace` (c.yaml:{at}); the answer ignores it"
    );
    let commands: [&[&str]; 6] = [
        &["affecting", "-f", "c.yaml", "shop/db"],
        &["affecting", "-f", "c.yaml", "cnp/deny-all"],
        &["connectivity", "-f", "c.yaml"],
        &["connectivity", "-f", "c.yaml", "--pairs"],
        &["lint", "-f", "c.yaml"],
        &["diff", "c.yaml", "c.yaml"],
    ];
    for args in commands {
        let args = [args, &["--lenient"]].concat();
        let ran = run(&cluster, &args);
        assert_eq!(ran.out.lines().last(), Some(&*one), "{args:?}");
        assert_eq!(
            ran.out.matches("cnp/deny-all has no").count(),
            1,
            "{args:?}"
        );
        let ran = run(&cluster, &[&*args, &["-o", "json"]].concat());
        let unread = &document(&ran)["unread"];
        assert_eq!(unread[0]["object"], "cnp/deny-all", "{args:?}");
        assert_eq!(unread.as_array().unwrap().len(), 1, "{args:?}");
        let ran = run(&cluster, &[&*args, &["-o", "yaml"]].concat());
        assert!(ran.out.contains("\nunread:"), "{args:?}: {}", ran.out);
    }
    let ran = run(
        &cluster,
        &["connectivity", "--lenient", "-f", "c.yaml", "-o", "csv"],
    );
    assert!(!ran.out.contains("deny-all"), "{}", ran.out);
    assert!(
        ran.err.contains("palisade: cnp/deny-all has no effect: "),
        "{}",
        ran.err
    );
    let two = format!("{CLUSTER}{SUBJECT}{SELECTOR}");
    let ran = run(&two, &["connectivity", "--lenient", "-f", "c.yaml"]);
    let last = ran.out.lines().last().unwrap();
    let start = "note: 2 policies or documents have no effect, and the answer ignores them: cnp/deny-all (c.yaml:";
    assert!(last.starts_with(start), "{last}");
    // Policies of another namespace cannot select the pod.
    let ran = run(
        &two,
        &["affecting", "--lenient", "-f", "c.yaml", "red/batch"],
    );
    assert_eq!(ran.out.lines().last(), Some(&*one));
}

/// An object of a cluster that is refused, and one that is unreadable, are in one list.
#[test]
fn kinds_and_objects_that_are_unread_are_in_one_list() {
    let policies = "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies";
    let forbidden = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
        "message": "clusternetworkpolicies is forbidden", "code": 403});
    let discovery = json!({"kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": "policy.networking.k8s.io/v1alpha2",
        "resources": [{"name": "clusternetworkpolicies", "namespaced": false, "kind": "ClusterNetworkPolicy"}]});
    let server = crate::server::Server::start(&[
        (policies, forbidden),
        ("/apis/policy.networking.k8s.io/v1alpha2", discovery),
    ]);
    server.write("c.yaml", &format!("{CLUSTER}{SELECTOR}"));
    let args = [
        "explain",
        "--lenient",
        "--with-cluster",
        "-f",
        "c.yaml",
        "-o",
        "json",
    ];
    let ran = server.palisade(&[args.as_slice(), &FLOW].concat());
    assert_eq!(
        ran.out.matches("\"unread\"").count(),
        1,
        "{}{}",
        ran.out,
        ran.err
    );
    let unread = document(&ran)["unread"].clone();
    let resource = "clusternetworkpolicies.policy.networking.k8s.io";
    assert_eq!(unread[0]["resource"], resource, "{unread}");
    assert_eq!(unread[1]["object"], "netpol/shop/closed", "{unread}");
}
