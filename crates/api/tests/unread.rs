//! What `--lenient` continues without: policies and documents that have no effect.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use palisade_api::{Options, Source, UnreadScope, read, unread};
use palisade_core::policy::Direction;

/// `OBJECT CODE SCOPE DIRECTIONS` of everything without an effect.
fn found(name: &str, text: &[u8]) -> Vec<String> {
    let sources = [Source::new(name, text.to_vec())];
    let manifests = read(&sources, Options::default(), &|_| {});
    let unread = unread(&manifests).into_iter().map(|it| {
        let object = it.object.clone().unwrap_or_else(|| "?".to_owned());
        let scope = match &it.scope {
            UnreadScope::Cluster => "cluster",
            UnreadScope::Namespace(name) => name,
            UnreadScope::Unknown => "?",
        };
        let directions = Direction::BOTH.into_iter();
        let directions = directions.filter(|direction| it.could_select(*direction, scope));
        let directions: Vec<String> = directions.map(|it| it.to_string()).collect();
        let code = it.problem.code;
        format!("{object} {code} {scope} {}", directions.join("+"))
    });
    unread.collect()
}

#[track_caller]
fn yaml(text: &str, expected: &[&str]) {
    assert_eq!(found("a.yaml", text.as_bytes()), expected, "{text}");
}

fn policy(spec: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: a, namespace: x}}\nspec: {spec}\n"
    )
}

fn cluster_policy(spec: &str) -> String {
    format!(
        "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {{name: a}}\n\
         spec: {{tier: Admin, priority: 1, {spec}}}\n"
    )
}

#[test]
fn policies_without_a_readable_subject() {
    yaml(
        &policy("{podSelector: {matchLabel: {}}}"),
        &["netpol/x/a UNKNOWN-FIELD x ingress"],
    );
    yaml(
        &policy("{podSelector: 7, policyTypes: [Egress]}"),
        &["netpol/x/a WRONG-TYPE x egress"],
    );
    let rule = "{name: a, action: Deny, to: [{networks: [0.0.0.0/0]}]}";
    yaml(
        &cluster_policy(&format!("subject: {{}}, egress: [{rule}]")),
        &["cnp/a INVALID-SUBJECT cluster egress"],
    );
    // Without a rule it decides nothing.
    yaml(&cluster_policy("subject: {}"), &[]);
    let early = "apiVersion: networking.k8s.io/v1alpha1\nkind: DefaultNetworkPolicy\nmetadata: {name: a}\nspec: {}\n";
    yaml(early, &["dnp/a INVALID-SUBJECT cluster ingress+egress"]);
    // What fails closed has an effect.
    yaml(&policy("{podSelector: {}, ingress: [{from: [{}]}]}"), &[]);
    yaml(&policy("{podSelector: {}}"), &[]);
}

#[test]
fn policies_of_2016_count_where_their_namespace_is_isolated() {
    let policy = policy("{podSelector: 7}").replace("networking.k8s.io/v1", "extensions/v1beta1");
    yaml(&policy, &[]);
    let annotation = "net.beta.kubernetes.io/network-policy";
    let isolated = format!(
        "{policy}---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: x\n  annotations:\n    {annotation}: '{{\"ingress\": {{\"isolation\": \"DefaultDeny\"}}}}'\n"
    );
    yaml(&isolated, &["np0/x/a WRONG-TYPE x ingress"]);
}

#[test]
fn unreadable_policies() {
    yaml(&policy("7"), &["netpol/x/a WRONG-TYPE x ingress+egress"]);
    let namespace = policy("{podSelector: {}}").replace("namespace: x", "namespace: 7");
    yaml(
        &namespace,
        &["netpol/default/a WRONG-TYPE ? ingress+egress"],
    );
    let metadata = policy("{podSelector: {}}").replace("{name: a, namespace: x}", "7");
    yaml(&metadata, &["? WRONG-TYPE ? ingress+egress"]);
    // The later object counts.
    let twice = [
        policy("{podSelector: 7}"),
        policy("{podSelector: {}}"),
        String::new(),
    ];
    yaml(&twice.join("---\n"), &[]);
    let twice = [
        policy("{podSelector: {}}"),
        policy("{podSelector: 7}"),
        String::new(),
    ];
    yaml(&twice.join("---\n"), &["netpol/x/a WRONG-TYPE x ingress"]);
    let meant = cluster_policy("subject: {namespaces: {}}").replace("v1alpha2", "v1alpha1");
    yaml(&meant, &["cnp/a UNKNOWN-VERSION cluster ingress+egress"]);
}

#[test]
fn unreadable_documents() {
    for (text, code) in [
        ("a: [", "YAML-SYNTAX"),
        ("a: b\u{1}", "CONTROL-CHARACTER"),
        ("a: {{ .Values.a }}", "HELM-TEMPLATE"),
        ("7", "NOT-AN-OBJECT"),
        ("kind: NetworkPolicy", "API-VERSION-MISSING"),
        ("apiVersion: networking.k8s.io/v1", "KIND-MISSING"),
        (
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolcy",
            "UNKNOWN-KIND",
        ),
        (
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicyList",
            "REQUIRED",
        ),
        ("apiVersion: v1\nkind: List\nitems: 7", "WRONG-TYPE"),
    ] {
        // The next document is read, and has no part in it.
        let text = format!("{text}\n---\n{}", policy("{podSelector: {}}"));
        yaml(&text, &[&*format!("? {code} ? ingress+egress")]);
    }
    let twice = policy("{podSelector: {}, podSelector: {}}");
    yaml(&twice, &["? DUPLICATE-KEY ? ingress+egress"]);
    let several = "a: *b\nb: *c\n";
    yaml(several, &["? ALIAS-UNDEFINED ? ingress+egress"]);
    assert_eq!(
        found("a.json", b"{\"kind\": "),
        ["? JSON-SYNTAX ? ingress+egress"]
    );
    assert_eq!(found("a.yaml", b"a: \xff"), ["? NOT-UTF8 ? ingress+egress"]);
    assert_eq!(
        found("a.gz", b"no gzip"),
        ["? BROKEN-GZIP ? ingress+egress"]
    );
}

#[test]
fn documents_of_other_kinds() {
    for text in [
        "apiVersion: apps/v2\nkind: Deployment\nmetadata: {name: a}",
        "apiVersion: v1\nkind: ConfigMap\ndata: {a: b, a: c}",
        "apiVersion: cert-manager.io/v1\nkind: Certificate\nspec: {a: b, a: c}",
        "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"data\": {\"a\": 1, \"a\": 2}}",
        "kind: Deployment",
        "apiVersion: v1\nkind: PodList\nitems: 7",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: 7",
        "apiVersion: v1\nkind: Pod\nmetadata: {}",
        "replicas: 3",
        "",
    ] {
        yaml(text, &[]);
    }
}

#[test]
fn items_of_lists() {
    let item = policy("{podSelector: 7}").replace('\n', "\n  ");
    let list = format!("apiVersion: v1\nkind: List\nitems:\n- {item}\n");
    yaml(&list, &["netpol/x/a WRONG-TYPE x ingress"]);
    let flawed = policy("{podSelector: {}, podSelector: {}}").replace('\n', "\n  ");
    let list = format!("{list}- {flawed}\n").replace("podSelector: 7", "podSelector: {}");
    yaml(&list, &["? DUPLICATE-KEY ? ingress+egress"]);
    let number = "apiVersion: v1\nkind: List\nitems:\n- 7\n";
    yaml(number, &["? NOT-AN-OBJECT ? ingress+egress"]);
}
