//! Findings from the text of policies alone.

use palisade_core::analysis::lint::Code;

use super::{EVERYONE, Pod, check, cnp, early, namespace, netpol, object};

#[test]
fn a_cluster_policy_without_rules_has_no_effect() {
    check(
        Code::NoEffect,
        &[cnp("empty", "Admin", EVERYONE)],
        &["cnp/empty (always)"],
    );
    let deny = "egress: [{action: Deny, to: [{namespaces: {}}]}]";
    check(
        Code::NoEffect,
        &[cnp("some", "Admin", &format!("{EVERYONE}, {deny}"))],
        &[],
    );
    // Policies of other kinds isolate without rules.
    let isolates = netpol("x", "closed", "podSelector: {}");
    check(
        Code::NoEffect,
        &[isolates, early("DefaultNetworkPolicy", "d", "")],
        &[],
    );
}

#[test]
fn a_policy_of_2016_without_rules_adds_nothing() {
    let isolated = "apiVersion: v1\nkind: Namespace\nmetadata: {name: x, annotations: \
                    {net.beta.kubernetes.io/network-isolation: \"true\"}}\n";
    let empty = object(
        "v1beta",
        "NetworkPolicy",
        "name: a, namespace: x",
        "podSelector: {}",
    );
    let some = "podSelector: {}, ingress: [{from: [{namespaces: {}}]}]";
    let some = object("v1beta", "NetworkPolicy", "name: b, namespace: x", some);
    check(
        Code::NoEffect,
        &[isolated.to_owned(), empty, some],
        &["np0/x/a (always)"],
    );
}

#[test]
fn duplicate_names_of_rules_are_found() {
    let rule = |name: &str| format!("{{name: {name}, action: Deny, to: [{{namespaces: {{}}}}]}}");
    let twice = format!(
        "{EVERYONE}, egress: [{}, {}, {}]",
        rule("a"),
        rule("b"),
        rule("a")
    );
    check(
        Code::RuleNameDup,
        &[cnp("p", "Admin", &twice)],
        &["cnp/p#egress[2] by cnp/p#egress[0]: a (always)"],
    );
    let once = format!("{EVERYONE}, egress: [{}, {}]", rule("a"), rule("b"));
    check(Code::RuleNameDup, &[cnp("p", "Admin", &once)], &[]);
}

#[test]
fn a_finding_lists_what_a_default_policy_isolates() {
    let both = early("DefaultNetworkPolicy", "both", "");
    let ingress = early("DefaultNetworkPolicy", "in", "ingress: []");
    let egress = early("DefaultNetworkPolicy", "out", "egress: [{}]");
    check(
        Code::DefaultIsolation,
        &[both, ingress, egress],
        &[
            "dnp/both: ingress and egress (always)",
            "dnp/in: ingress (always)",
            "dnp/out: egress (always)",
        ],
    );
}

#[test]
fn api_versions_whose_order_is_not_defined() {
    let deny = "ingress: [{action: Deny, from: [{namespaces: {selector: {}}}]}]";
    let old = early("ClusterNetworkPolicy", "old", deny);
    let deny = format!("{EVERYONE}, ingress: [{{action: Deny, from: [{{namespaces: {{}}}}]}}]");
    let admin = cnp("new", "Admin", &deny);
    check(
        Code::MixedGeneration,
        &[old.clone(), admin.clone()],
        &["cnp0/old: with cnp/new (always)"],
    );
    // In another tier or another direction there is no conflict.
    check(
        Code::MixedGeneration,
        &[old.clone(), cnp("new", "Baseline", &deny)],
        &[],
    );
    let out = format!("{EVERYONE}, egress: [{{action: Deny, to: [{{namespaces: {{}}}}]}}]");
    check(
        Code::MixedGeneration,
        &[old, cnp("new", "Admin", &out)],
        &[],
    );
    let default = early("DefaultNetworkPolicy", "d", "ingress: []");
    check(
        Code::MixedGeneration,
        &[default, cnp("base", "Baseline", &deny), admin],
        &["dnp/d: with cnp/base (always)"],
    );
}

#[test]
fn a_namespace_with_policies_of_2016_and_newer_ones() {
    let isolated = "apiVersion: v1\nkind: Namespace\nmetadata: {name: x, annotations: \
                    {net.beta.kubernetes.io/network-isolation: \"true\"}}\n";
    let newer = |namespace: &str| netpol(namespace, "new", "podSelector: {}");
    check(
        Code::MixedGeneration,
        &[isolated.to_owned(), newer("x")],
        &["ns/x: with np0/x/(isolation), netpol/x/new (always)"],
    );
    check(
        Code::MixedGeneration,
        &[isolated.to_owned(), newer("other")],
        &[],
    );
}

const EITHER: &str = "podSelector: {}, ingress: [{from: [\
    {namespaceSelector: {matchLabels: {team: ops}}}, {podSelector: {matchLabels: {app: prometheus}}}]}]";

#[test]
fn two_peers_that_were_meant_as_one() {
    let spaces = || {
        vec![
            namespace("shop", ""),
            namespace("ops", "team: ops"),
            netpol("shop", "scrape", EITHER),
        ]
    };
    let expected =
        ["netpol/shop/scrape#ingress[0].peer[1]: with netpol/shop/scrape#ingress[0].peer[0]"];
    let mut slip = spaces();
    slip.push(Pod("shop", "web").ips(&["10.0.0.1"]));
    slip.push(Pod("ops", "prometheus").ips(&["10.0.0.2"]));
    check(Code::PeerOr, &slip, &expected);
    // The namespace has such a pod of its own: the list may be intended.
    slip.push(Pod("shop", "prometheus").ips(&["10.0.0.3"]));
    check(Code::PeerOr, &slip, &[]);
    // No pod has the label.
    let mut without_label = spaces();
    without_label.push(Pod("shop", "web").ips(&["10.0.0.1"]));
    check(Code::PeerOr, &without_label, &[]);
    let always = format!("{} (always)", expected[0]);
    check(Code::PeerOr, &spaces(), &[always.as_str()]);
    let three = EITHER.replace("{from: [", "{from: [{ipBlock: {cidr: 192.0.2.0/24}}, ");
    check(Code::PeerOr, &[netpol("shop", "list", &three)], &[]);
    let one = EITHER.replace("}}}, {podSelector", "}}, podSelector");
    check(Code::PeerOr, &[netpol("shop", "one", &one)], &[]);
}
