//! Policies without their pods, the usual layout of a repository: what cannot be compared is
//! reported, and `--fail-on-wider` fails.

use serde_json::Value;

use super::{PODS, Ran, diff, json};

/// A NetworkPolicy of `shop` with these fields of its spec.
fn policy(spec: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: db, namespace: shop}}\nspec:\n{spec}"
    )
}

const DB: &str = "  podSelector: {matchLabels: {app: db}}\n";

fn db(ingress: &str) -> String {
    policy(&format!("{DB}  ingress: {ingress}\n"))
}

const FROM_API: &str = "[{from: [{podSelector: {matchLabels: {app: api}}}]}]";

/// The pod of `shop` with this label.
fn pod(app: &str) -> String {
    let last = app.len();
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {app}, namespace: shop, labels: {{app: {app}}}}}\n\
         spec: {{containers: [{{name: c}}]}}\nstatus: {{phase: Running, podIP: 10.0.1.{last}}}\n"
    )
}

fn with(policy: &str, apps: &[&str]) -> String {
    let pods: Vec<String> = apps.iter().map(|it| pod(it)).collect();
    format!("{policy}{}", pods.concat())
}

/// The selections of the undecided list, each as `DIRECTION ROLE SELECTS`.
#[track_caller]
fn selections(ran: &Ran) -> Vec<String> {
    let document = json(ran);
    let blocks = document["undecided"].as_array().unwrap().iter();
    let symbolic = blocks.filter(|it| it["symbolic"] == true);
    let text = |it: &Value, key: &str| it[key].as_str().unwrap().to_owned();
    symbolic
        .map(|it| {
            let words = ["direction", "selectedAs", "selects"].map(|key| text(it, key));
            words.join(" ")
        })
        .collect()
}

#[track_caller]
fn check(old: &str, new: &str, expected: &[&str]) {
    let ran = diff(old, new, &["-o", "json"]);
    assert_eq!(selections(&ran), expected, "{}{}", ran.out, ran.err);
    let is_different = ran.code;
    let ran = diff(old, new, &["--fail-on-wider"]);
    if expected.is_empty() {
        return;
    }
    assert_eq!((is_different, ran.code), (1, 1), "{}", ran.out);
    assert!(!ran.out.contains("as before"), "{}", ran.out);
    assert!(
        ran.err
            .contains("may allow more flows of pods that are not in the input"),
        "{}",
        ran.err
    );
}

/// Asserts that nothing differs for any pod.
#[track_caller]
fn check_same(old: &str, new: &str) {
    for args in [&[][..], &["--fail-on-wider"]] {
        let ran = diff(old, new, args);
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        assert!(
            ran.out.contains("no flow changed") || ran.out.contains("no object differs"),
            "{}",
            ran.out
        );
        assert_eq!(ran.err, "");
    }
}

#[test]
fn an_opened_policy_without_pods_fails() {
    let (old, new) = (db(FROM_API), db("[{}]"));
    check(
        &old,
        &new,
        &[
            "Ingress Subject pods of shop with app=db",
            "Ingress Peer pods of shop with app=api",
        ],
    );
    let ran = diff(&old, &new, &[]);
    assert_eq!(ran.code, 1);
    assert_eq!(
        ran.out,
        "netpol/shop/db changed\n  \
         ? it selects pods of shop with app=db, none in the input\n      \
         ingress: was netpol/shop/db#ingress[0], now netpol/shop/db#ingress[0]\n  \
         ? its ingress rules select pods of shop with app=api, none in the input\n      \
         ingress: was netpol/shop/db#ingress[0], now no rule\n\
         \n\
         1 object undecided; 1 object changed\n"
    );
    assert_eq!(diff(&old, &new, &["--exit-zero"]).code, 0);
    let block = &json(&diff(&old, &new, &["-o", "json"]))["undecided"][1];
    let expected = serde_json::json!({
        "symbolic": true,
        "direction": "Ingress",
        "selects": "pods of shop with app=api",
        "selectedAs": "Peer",
        "policy": "netpol/shop/db",
        "oldRules": ["netpol/shop/db#ingress[0]"],
        "causedBy": "netpol/shop/db",
    });
    assert_eq!(*block, expected);
}

#[test]
fn added_and_removed_policies_without_pods_fail() {
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
    let subject = "Ingress Subject pods of shop with app=db";
    check(&db("[]"), namespace, &[subject]);
    check(namespace, &db("[]"), &[subject]);
}

#[test]
fn absent_peers_are_reported_beside_the_flows_that_differ() {
    let (old, new) = (with(&db(FROM_API), &["db"]), with(&db("[{}]"), &["db"]));
    check(&old, &new, &["Ingress Peer pods of shop with app=api"]);
    let ran = diff(&old, &new, &[]);
    assert!(
        ran.out.contains("  + all endpoints -> shop/db  any\n"),
        "{}",
        ran.out
    );
    assert!(
        ran.out
            .contains("1 pair gained, 1 object undecided; 1 object changed"),
        "{}",
        ran.out
    );
    let all = ["db", "api"];
    check(&with(&db(FROM_API), &all), &with(&db("[{}]"), &all), &[]);
}

#[test]
fn each_value_of_a_list_needs_a_pod() {
    let from = |values: &str| {
        db(&format!(
            "[{{from: [{{podSelector: {{matchExpressions: [{{key: app, operator: In, values: {values}}}]}}}}]}}]"
        ))
    };
    let (old, new) = (from("[api]"), from("[api, admin]"));
    check(
        &with(&old, &["db", "api"]),
        &with(&new, &["db", "api"]),
        &["Ingress Peer pods of shop with app=admin"],
    );
    check_same(
        &with(&from("[api, admin]"), &["db", "api"]),
        &with(&from("[admin, api]"), &["db", "api"]),
    );
}

#[test]
fn an_edit_that_no_pod_could_notice_is_as_before() {
    let old = db(
        "[{from: [{podSelector: {matchLabels: {app: api}}}, {namespaceSelector: {}}], ports: [{port: 80}, {port: 81}]}]",
    );
    check_same(&old, &format!("# A comment.\n{old}"));
    check_same(
        &old,
        &db(
            "[{ports: [{port: 81}, {port: 80}], from: [{namespaceSelector: {}}, {podSelector: {matchLabels: {app: api}}}]}]",
        ),
    );
    check_same(
        &old,
        &db(
            "[{from: [{namespaceSelector: {}}], ports: [{port: 80}, {port: 81}]}, \
             {from: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [api]}]}}], ports: [{port: 80}, {port: 81}]}]",
        ),
    );
    // Isolation without a rule, by the default or by name.
    check_same(
        &db("[]"),
        &policy(&format!("{DB}  policyTypes: [Ingress]\n")),
    );
}

#[test]
fn priority_and_order_of_a_cluster_policy_count() {
    let cnp = |priority: u32, rules: &str| {
        format!(
            "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {{name: c}}\n\
             spec:\n  tier: Admin\n  priority: {priority}\n  subject: {{namespaces: {{matchLabels: {{team: red}}}}}}\n  ingress:\n{rules}"
        )
    };
    let deny = "  - {action: Deny, from: [{namespaces: {matchLabels: {team: blue}}}]}\n";
    let accept = "  - {action: Accept, from: [{namespaces: {}}]}\n";
    let (one, other) = (format!("{deny}{accept}"), format!("{accept}{deny}"));
    let both = [
        "Ingress Subject pods in namespaces with team=red",
        "Ingress Peer pods in any namespace",
        "Ingress Peer pods in namespaces with team=blue",
    ];
    check(&cnp(1, &one), &cnp(1, &other), &both);
    check(&cnp(1, &one), &cnp(2, &one), &both);
    check_same(&cnp(1, &one), &cnp(1, &format!("{deny}{deny}{accept}")));
}

#[test]
fn labels_of_a_namespace_without_pods_are_reported() {
    let namespace = |labels: &str| {
        format!(
            "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: other, labels: {{{labels}}}}}\n"
        )
    };
    let policy = with(
        &db("[{from: [{namespaceSelector: {matchLabels: {team: red}}}]}]"),
        &["db"],
    );
    let of = |labels: &str| format!("{policy}{}", namespace(labels));
    check(
        &of("team: blue"),
        &of("team: red"),
        &["Ingress Peer pods of other"],
    );
    // A namespace that is not in the input has its name only.
    check(&policy, &of("team: red"), &["Ingress Peer pods of other"]);
    check_same(&of("team: blue"), &of("team: green"));
    check_same(&policy, &of(""));
    let ran = diff(&of("team: blue"), &of("team: red"), &[]);
    assert!(
        ran.out.starts_with(
            "namespace/other changed\n  \
             ? ingress rules of netpol/shop/db select pods of other, none in the input\n      \
             ingress: netpol/shop/db#ingress[0]\n"
        ),
        "{}",
        ran.out
    );
}

#[test]
fn nodes_and_names_that_are_absent_are_reported() {
    let cnp = |to: &str| {
        format!(
            "{PODS}apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {{name: c}}\n\
             spec:\n  tier: Admin\n  priority: 1\n  subject: {{namespaces: {{}}}}\n  egress:\n  - {{action: Accept, to: [{to}]}}\n"
        )
    };
    check(
        &cnp("{networks: [203.0.113.0/24]}"),
        &cnp("{nodes: {matchLabels: {role: edge}}}"),
        &["Egress Peer nodes with role=edge"],
    );
    check(
        &cnp("{networks: [203.0.113.0/24]}"),
        &cnp("{domainNames: ['*.example.com']}"),
        &["Egress Peer addresses of *.example.com"],
    );
}

#[test]
fn every_form_has_what_is_not_compared() {
    let (old, new) = (db(FROM_API), db("[{}]"));
    let csv = diff(&old, &new, &["-o", "csv"]).out;
    let lines: Vec<&str> = csv.lines().skip(1).collect();
    let rule = "netpol/shop/db#ingress[0]";
    assert_eq!(
        lines,
        [
            &format!(
                "undecided,,pods of shop with app=db,,,symbolic,ingress,{rule},{rule},netpol/shop/db"
            ),
            &format!(
                "undecided,pods of shop with app=api,,,,symbolic,ingress,{rule},,netpol/shop/db"
            ),
        ]
    );
    let jsonl = diff(&old, &new, &["-o", "jsonl"]).out;
    let first: Value = serde_json::from_str(jsonl.lines().next().unwrap()).unwrap();
    assert_eq!(first["change"], "undecided");
    assert_eq!(first["selects"], "pods of shop with app=db");
    let md = diff(&old, &new, &["-o", "md"]).out;
    for text in [
        "### \u{26a0}\u{fe0f} Network policy: 1 object undecided; 1 object changed\n",
        "| netpol/shop/db (changed) | - | - | 2 |\n",
        "<details><summary>Not compared, because the input lacks it: 2 selections</summary>\n",
        "| it selects pods of shop with app=db, none in the input |",
    ] {
        assert!(md.contains(text), "{text}\n{md}");
    }
    // Text of selectors is no command to a terminal, and no markup.
    let hostile = |app: &str| {
        policy(&format!(
            "  podSelector: {{matchLabels: {{app: \"{app}\"}}}}\n  ingress: []\n"
        ))
    };
    let (old, new) = (hostile("a"), hostile("<b>|\\e[31m"));
    for form in ["table", "wide", "md", "csv", "json", "jsonl"] {
        let ran = diff(&old, &new, &["--lenient", "-o", form]);
        assert!(!ran.out.contains('\u{1b}'), "{form}: {:?}", ran.out);
        assert!(form != "md" || !ran.out.contains("<b>"), "{}", ran.out);
    }
}
