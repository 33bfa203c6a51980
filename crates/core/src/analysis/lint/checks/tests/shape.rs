//! Findings from the shape of policies.

use super::{Code, NOTHING, findings, pods_of_selected};
use crate::fixture::{
    PolicyDraft, admin, all, allow, baseline, block, cluster, cluster_in, default_policy, deny,
    early, is, namespace, netpol, pod, pods_of, policy, rule, selected,
};
use crate::model::{NamespaceId, NamespaceSet, Peer, Pod, PodSet, PolicyRank, Rule};
use crate::policy::{Action, PolicyApi};

/// A policy of the API of 2016 in the namespace `x`.
fn of_2016(api: PolicyApi, name: &'static str) -> PolicyDraft {
    policy(api, name, PolicyRank::NetworkPolicy)
        .in_namespace("x")
        .ingress_isolates()
}

/// The isolation of the namespace by its annotation, as lowering names it (D69).
fn isolation() -> PolicyDraft {
    of_2016(PolicyApi::IsolationAnnotation, "(isolation)")
}

#[test]
fn a_cluster_policy_without_rules_has_no_effect() {
    let without_effect = |policies| findings(Code::NoEffect, &cluster(Vec::new(), policies));
    assert_eq!(
        without_effect(vec![admin("empty", 10)]),
        ["cnp/empty (always)"]
    );
    let with_rule = admin("some", 10).egress(deny(all()));
    assert_eq!(without_effect(vec![with_rule]), NOTHING);
    // These isolate without any rule.
    let isolating = vec![
        netpol("x", "closed").ingress_isolates(),
        default_policy("d").ingress_isolates().egress_isolates(),
    ];
    assert_eq!(without_effect(isolating), NOTHING);
}

#[test]
fn a_policy_of_2016_without_rules_adds_nothing_to_the_isolation() {
    let policies = vec![
        isolation(),
        of_2016(PolicyApi::NetworkPolicy2016, "a"),
        of_2016(PolicyApi::NetworkPolicy2016, "b").ingress(allow(pods_of("y"))),
    ];
    assert_eq!(
        findings(Code::NoEffect, &cluster(Vec::new(), policies)),
        ["np0/x/a (always)"]
    );
}

#[test]
fn two_rules_of_a_policy_must_not_share_a_name() {
    let duplicates = |names: &[&'static str]| {
        let rules = names.iter().map(|name| Rule {
            name: Some(*name),
            ..deny(all())
        });
        let policy = rules.fold(admin("p", 10), PolicyDraft::egress);
        findings(Code::RuleNameDup, &cluster(Vec::new(), vec![policy]))
    };
    assert_eq!(
        duplicates(&["a", "b", "a"]),
        ["cnp/p#egress[2] by cnp/p#egress[0]: a (always)"]
    );
    assert_eq!(duplicates(&["a", "b"]), NOTHING);
}

#[test]
fn the_directions_that_a_default_policy_isolates_are_reported() {
    let policies = vec![
        default_policy("both").ingress_isolates().egress_isolates(),
        default_policy("in").ingress_isolates(),
        default_policy("out").egress(allow(all())),
    ];
    assert_eq!(
        findings(Code::DefaultIsolation, &cluster(Vec::new(), policies)),
        [
            "dnp/both: ingress and egress (always)",
            "dnp/in: ingress (always)",
            "dnp/out: egress (always)",
        ]
    );
}

#[test]
fn the_order_of_api_versions_in_a_tier_is_undefined() {
    let mixed = |policies| findings(Code::MixedGeneration, &cluster(Vec::new(), policies));
    let old = || early("old").ingress(deny(pods_of("y")));
    let new = || admin("new", 10).ingress(deny(all()));
    assert_eq!(
        mixed(vec![old(), new()]),
        ["cnp0/old: with cnp/new (always)"]
    );
    // Rules of different tiers or directions do not meet.
    let other_tier = baseline("new", 10).ingress(deny(all()));
    assert_eq!(mixed(vec![old(), other_tier]), NOTHING);
    let other_direction = admin("new", 10).egress(deny(all()));
    assert_eq!(mixed(vec![old(), other_direction]), NOTHING);
    let default = default_policy("d").ingress_isolates();
    let baseline = baseline("base", 10).ingress(deny(all()));
    assert_eq!(
        mixed(vec![default, baseline, new()]),
        ["dnp/d: with cnp/base (always)"]
    );
}

#[test]
fn policies_of_2016_and_newer_ones_of_a_namespace_are_mixed() {
    let mixed = |newer: &str| {
        let newer = netpol(newer, "new").ingress_isolates();
        let cluster = cluster(Vec::new(), vec![isolation(), newer]);
        findings(Code::MixedGeneration, &cluster)
    };
    assert_eq!(
        mixed("x"),
        ["ns/x: with np0/x/(isolation), netpol/x/new (always)"]
    );
    assert_eq!(mixed("y"), NOTHING);
}

const OPS: NamespaceId = NamespaceId(0);
const SHOP: NamespaceId = NamespaceId(1);

/// All pods of the team `ops`.
fn of_ops() -> Peer<'static> {
    pods_of_selected(is("team", "ops"))
}

/// The pods with the label `app: prometheus` in the policy's own namespace.
fn prometheus() -> Peer<'static> {
    Peer::Pods(PodSet {
        namespaces: NamespaceSet::Exact(SHOP),
        pods: Some(is("app", "prometheus")),
    })
}

fn split_peers(pods: Vec<Pod<'static>>, peers: Vec<Peer<'static>>) -> Vec<String> {
    let namespaces = vec![namespace("ops", &[("team", "ops")]), namespace("shop", &[])];
    let rule = rule(Action::Accept, peers, None);
    let policy = netpol(SHOP, "scrape").ingress(rule);
    findings(Code::PeerOr, &cluster_in(namespaces, pods, vec![policy]))
}

#[test]
fn pods_decide_whether_two_peers_were_meant_as_one() {
    let with = |others: &[(NamespaceId, &'static str)]| {
        let mut pods = vec![pod(SHOP, "web")];
        pods.extend(others.iter().map(|(namespace, name)| pod(*namespace, name)));
        pods.sort_by_key(|pod| (pod.namespace, pod.name));
        split_peers(pods, vec![of_ops(), prometheus()])
    };
    assert_eq!(
        with(&[(OPS, "prometheus")]),
        ["netpol/shop/scrape#ingress[0].peer[1]: with netpol/shop/scrape#ingress[0].peer[0]"]
    );
    // The policy's own namespace has such a pod, so two peers may be meant.
    assert_eq!(with(&[(OPS, "prometheus"), (SHOP, "prometheus")]), NOTHING);
    // No pod has the label.
    assert_eq!(with(&[]), NOTHING);
}

#[test]
fn without_pods_only_a_rule_with_two_peers_is_reported() {
    let without_pods = |peers| split_peers(Vec::new(), peers);
    let expected = "netpol/shop/scrape#ingress[0].peer[1]: \
                    with netpol/shop/scrape#ingress[0].peer[0] (always)";
    assert_eq!(without_pods(vec![of_ops(), prometheus()]), [expected]);
    let three = [block("192.0.2.0/24"), vec![of_ops(), prometheus()]].concat();
    assert_eq!(without_pods(three), NOTHING);
    let one = Peer::Pods(PodSet {
        namespaces: selected(is("team", "ops")),
        pods: Some(is("app", "prometheus")),
    });
    assert_eq!(without_pods(vec![one]), NOTHING);
}
