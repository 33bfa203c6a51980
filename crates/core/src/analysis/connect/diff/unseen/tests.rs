//! Changes of policies without the pods that they select, and without those of their peers.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use super::{NamespaceTerm, SelectedSet};
use crate::analysis::connect::diff::{ChangedObject, Difference, Limits, Version, diff};
use crate::compile::compile;
use crate::fixture::{
    PolicyDraft, admin, all, allow, any_namespace, baseline, block, cluster, cluster_in, has, is,
    labelled, namespace, netpol, node, pod, rule, selected, tcp,
};
use crate::labels::{Operator, Requirement, Selector};
use crate::model::{Cluster, NamespaceId, NamespaceSet, Peer, Pod, PodSet, PortMatch, Rule};
use crate::policy::Action;

/// What the difference of two clusters lists as not in the input.
fn unseen(old: &Cluster<'static>, new: &Cluster<'static>) -> Vec<String> {
    let programs = [compile(old), compile(new)];
    let [old_program, new_program] = &programs;
    let old = Version {
        cluster: old,
        program: old_program,
    };
    let new = Version {
        cluster: new,
        program: new_program,
    };
    let difference = diff(old, new, Limits::default(), &|_, _| {}).unwrap();
    let texts = difference.unseen.iter().map(|it| {
        let cause = match it.cause {
            ChangedObject::Policy(_) => "policy",
            ChangedObject::Namespace(_) => "namespace",
            ChangedObject::Pod(_) => "pod",
            ChangedObject::Node(_) => "node",
        };
        let name = name(&difference, it.policy.old, it.policy.new);
        let [before, after] = &it.rules;
        format!(
            "{cause}: {name} {} {:?} {} {before:?} {after:?}",
            it.direction,
            it.role,
            text(&it.set)
        )
    });
    texts.collect()
}

fn name(
    difference: &Difference<'_>,
    old: Option<crate::model::PolicyId>,
    new: Option<crate::model::PolicyId>,
) -> String {
    match (old, new) {
        (_, Some(id)) => difference.new.cluster.policy_name(id),
        (Some(id), None) => difference.old.cluster.policy_name(id),
        (None, None) => String::new(),
    }
}

fn text(set: &SelectedSet<'_>) -> String {
    let labels = |selector: &Selector<&str>| {
        let requirements = selector.requirements.iter();
        let texts = requirements
            .map(|it| format!("{} {} {}", it.key, it.operator.name(), it.values.join("|")));
        texts.collect::<Vec<String>>().join(" and ")
    };
    match set {
        SelectedSet::Pods(NamespaceTerm::Named(name), pods) => format!("{name}({})", labels(pods)),
        SelectedSet::Pods(NamespaceTerm::Selected(namespaces, _), pods) => {
            format!("[{}]({})", labels(namespaces), labels(pods))
        }
        SelectedSet::Pods(term, pods) => format!("{term:?}({})", labels(pods)),
        SelectedSet::Nodes(nodes) => format!("nodes({})", labels(nodes)),
        SelectedSet::Everything | SelectedSet::Block(..) | SelectedSet::Domain(_) => {
            format!("{set:?}")
        }
    }
}

/// The pods of `x` with a label, in `shop` of these tests.
fn app(values: &[&'static str]) -> Selector<&'static str> {
    Selector {
        requirements: vec![Requirement {
            key: "app",
            operator: Operator::In,
            values: values.to_vec(),
        }],
    }
}

/// Pods of `x` as a peer.
fn of_x(pods: Selector<&'static str>) -> Vec<Peer<'static>> {
    vec![Peer::Pods(PodSet {
        namespaces: NamespaceSet::Exact(NamespaceId(0)),
        pods: Some(pods),
    })]
}

/// A NetworkPolicy `netpol/x/p` for `app=db`.
fn db(rules: Vec<Rule<'static>>) -> PolicyDraft {
    let draft = netpol("x", "p").pods(is("app", "db")).ingress_isolates();
    rules.into_iter().fold(draft, PolicyDraft::ingress)
}

fn with(pods: &[&'static str], policies: Vec<PolicyDraft>) -> Cluster<'static> {
    let pods = pods.iter().map(|it| pod("x", it));
    cluster(pods.collect(), policies)
}

#[track_caller]
fn check(pods: &[&'static str], [old, new]: [Vec<PolicyDraft>; 2], expected: &[&str]) {
    assert_eq!(unseen(&with(pods, old), &with(pods, new)), expected);
}

fn everyone() -> Rule<'static> {
    Rule {
        effect: Some(crate::model::Effect {
            action: Action::Accept,
            peers: None,
            ports: None,
        }),
        ..allow(all())
    }
}

#[test]
fn a_changed_policy_without_subjects_is_listed() {
    let api = || vec![allow(of_x(app(&["api"])))];
    check(
        &[],
        [vec![db(api())], vec![db(vec![everyone()])]],
        &[
            "policy: netpol/x/p ingress Subject x(app In db) [0] [0]",
            "policy: netpol/x/p ingress Peer x(app In api) [0] []",
        ],
    );
    // With both pods, blocks have the difference.
    check(
        &["api", "db"],
        [vec![db(api())], vec![db(vec![everyone()])]],
        &[],
    );
    // Without the peer, its own flows are not compared.
    check(
        &["db", "web"],
        [vec![db(api())], vec![db(vec![everyone()])]],
        &["policy: netpol/x/p ingress Peer x(app In api) [0] []"],
    );
}

#[test]
fn added_and_removed_policies_are_changes() {
    let subject = "policy: netpol/x/p ingress Subject x(app In db)";
    check(
        &["api"],
        [vec![], vec![db(vec![allow(of_x(app(&["api"])))])]],
        &[&format!("{subject} [] [0]")],
    );
    check(
        &["api"],
        [vec![db(vec![allow(of_x(app(&["api"])))])], vec![]],
        &[&format!("{subject} [0] []")],
    );
    check(
        &[],
        [vec![], vec![db(vec![])]],
        &[&format!("{subject} [] []")],
    );
}

#[test]
fn each_value_of_a_list_is_searched() {
    let from = |values: &[&'static str]| vec![db(vec![allow(of_x(app(values)))])];
    check(
        &["db", "api"],
        [from(&["api"]), from(&["api", "admin"])],
        &["policy: netpol/x/p ingress Peer x(app In admin) [] [0]"],
    );
    check(
        &["db", "api", "admin"],
        [from(&["api"]), from(&["api", "admin"])],
        &[],
    );
    // What stays the same is no change, whether pods have it or not.
    check(
        &["db", "api"],
        [from(&["absent"]), from(&["absent", "api"])],
        &[],
    );
    check(
        &["db"],
        [vec![db(vec![])], from(&["one", "two", "db"])],
        &["policy: netpol/x/p ingress Peer x(app In one|two) [] [0]"],
    );
    // The subject alone differs.
    let subject = |values: &[&'static str]| {
        vec![
            netpol("x", "p")
                .pods(app(values))
                .ingress(allow(of_x(app(&["api"])))),
        ]
    };
    check(
        &["db", "api"],
        [subject(&["db"]), subject(&["db", "cache"])],
        &["policy: netpol/x/p ingress Subject x(app In cache) [0] [0]"],
    );
}

#[test]
fn long_lists_stay_whole_and_each_value_is_searched() {
    let names: Vec<&'static str> = (0..400)
        .map(|it| &*Box::leak(format!("v{it}").into_boxed_str()))
        .collect();
    let from = |values: &[&'static str]| vec![db(vec![allow(of_x(app(values)))])];
    let found = unseen(
        &with(&["db", "v0"], from(&names)),
        &with(&["db", "v0"], from(&names[1..])),
    );
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        unseen(&with(&["db"], from(&names)), &with(&["db"], from(&names))).len(),
        0
    );
}

#[test]
fn equal_unions_are_the_same() {
    let api = || allow(of_x(app(&["api"])));
    let web = || allow(of_x(app(&["web"])));
    let at = |number| {
        let ports: Vec<PortMatch<'static>> = vec![tcp(number)];
        rule(Action::Accept, of_x(app(&["api"])), Some(ports))
    };
    let both = || {
        rule(
            Action::Accept,
            of_x(app(&["api"])),
            Some(vec![tcp(81), tcp(80)]),
        )
    };
    for [old, new] in [
        [vec![api(), web()], vec![web(), api()]],
        [vec![api()], vec![api(), api()]],
        [vec![api(), web()], vec![allow(of_x(app(&["web", "api"])))]],
        [vec![at(80), at(81)], vec![both()]],
        [vec![allow(all())], vec![everyone()]],
        [vec![api()], vec![api(), at(80)]],
        [vec![api(), allow(vec![])], vec![api()]],
    ] {
        check(&[], [vec![db(old)], vec![db(new)]], &[]);
    }
    // A namespace by its name is the same as by the label with its name.
    let by_label = PodSet {
        namespaces: selected(is("kubernetes.io/metadata.name", "x")),
        pods: Some(app(&["api"])),
    };
    let by_label = vec![allow(vec![Peer::Pods(by_label)])];
    check(&[], [vec![db(vec![api()])], vec![db(by_label)]], &[]);
}

#[test]
fn the_order_of_actions_is_a_difference() {
    let deny = || rule(Action::Deny, labelled("app", "a"), None);
    let accept = || rule(Action::Accept, labelled("app", "b"), None);
    let pass = || rule(Action::Pass, labelled("app", "c"), None);
    let list = |rules: Vec<Rule<'static>>| {
        vec![rules.into_iter().fold(admin("p", 1), PolicyDraft::ingress)]
    };
    let subject = "policy: cnp/p ingress Subject []()";
    // The rules at the start and at the end stay.
    check(
        &[],
        [
            list(vec![deny(), pass()]),
            list(vec![deny(), accept(), pass()]),
        ],
        &[
            &format!("{subject} [] [1]"),
            "policy: cnp/p ingress Peer [](app In b) [] [1]",
        ],
    );
    check(
        &[],
        [list(vec![deny(), accept()]), list(vec![accept(), deny()])],
        &[
            &format!("{subject} [0, 1] [0, 1]"),
            "policy: cnp/p ingress Peer [](app In a|b) [0, 1] [0, 1]",
        ],
    );
    check(&[], [list(vec![deny()]), list(vec![deny(), deny()])], &[]);
}

#[test]
fn priority_tier_and_enforcement_count() {
    let of =
        |draft: PolicyDraft| vec![draft.ingress(rule(Action::Accept, labelled("app", "a"), None))];
    let both = [
        "policy: cnp/p ingress Subject []() [0] [0]",
        "policy: cnp/p ingress Peer [](app In a) [0] [0]",
    ];
    check(&[], [of(admin("p", 1)), of(admin("p", 2))], &both);
    check(&[], [of(admin("p", 1)), of(baseline("p", 1))], &both);
    let audited = |is_audited| {
        let mut cluster = with(&[], of(admin("p", 1)));
        cluster.policies[0].audited = is_audited;
        cluster
    };
    assert_eq!(unseen(&audited(true), &audited(false)).len(), 2);
    assert_eq!(unseen(&audited(true), &with(&[], vec![])).len(), 0);
    // A subject that cannot be read selects nothing (D20).
    let mut unreadable = with(&[], of(admin("p", 1)));
    unreadable.policies[0].subject = None;
    assert_eq!(unseen(&unreadable, &with(&[], vec![])).len(), 0);
}

#[test]
fn nodes_and_names_are_searched() {
    let to =
        |peers: Vec<Peer<'static>>| vec![admin("p", 1).egress(rule(Action::Accept, peers, None))];
    let nodes = || vec![Peer::Nodes(is("name", "n1"))];
    check(
        &["a"],
        [to(vec![]), to(nodes())],
        &["policy: cnp/p egress Peer nodes(name In n1) [] [0]"],
    );
    let with_node = |policies| Cluster {
        nodes: vec![node("n1", "192.0.2.1")],
        ..with(&["a"], policies)
    };
    assert_eq!(
        unseen(&with_node(to(vec![])), &with_node(to(nodes()))).len(),
        0
    );
    let pattern = crate::domain::DomainPattern::parse("a.example.com").unwrap();
    let names = || vec![Peer::Domains(vec![pattern.clone()])];
    assert_eq!(
        unseen(&with(&["a"], to(vec![])), &with(&["a"], to(names()))).len(),
        1
    );
    let learned = |policies| Cluster {
        learned: vec![("a.example.com".to_owned(), "203.0.113.1".parse().unwrap())],
        ..with(&["a"], policies)
    };
    assert_eq!(unseen(&learned(to(vec![])), &learned(to(names()))).len(), 0);
    // Addresses outside are always compared.
    check(&["a"], [to(vec![]), to(block("203.0.113.0/24"))], &[]);
}

#[test]
fn peers_are_relative_to_seen_subjects() {
    let to = |namespaces: NamespaceSet<'static>| {
        let peer = Peer::Pods(PodSet {
            namespaces,
            pods: None,
        });
        vec![admin("p", 1).namespaces(is("team", "blue")).egress(rule(
            Action::Accept,
            vec![peer],
            None,
        ))]
    };
    let set = |namespaces| unseen(&with(&["a"], vec![]), &with(&["a"], to(namespaces)));
    assert_eq!(set(NamespaceSet::Own).len(), 0);
    assert_eq!(set(NamespaceSet::SameLabels(vec!["team"])).len(), 0);
    assert_eq!(set(NamespaceSet::NotOwn).len(), 1);
    assert_eq!(set(NamespaceSet::NotSameLabels(vec!["team"])).len(), 1);
    let more = |policies| {
        let pods: Vec<Pod<'static>> = vec![pod("x", "a"), pod("y", "b")];
        cluster(pods, policies)
    };
    for namespaces in [
        NamespaceSet::NotOwn,
        NamespaceSet::NotSameLabels(vec!["team"]),
    ] {
        assert_eq!(unseen(&more(vec![]), &more(to(namespaces))).len(), 0);
    }
}

/// `x` with the pods, and `v` without any, with these labels.
fn labelled_namespaces(
    labels: &[(&'static str, &'static str)],
    pods: &[&'static str],
    policies: Vec<PolicyDraft>,
) -> Cluster<'static> {
    let namespaces = vec![namespace("v", labels), namespace("x", &[])];
    let pods = pods.iter().map(|it| pod(NamespaceId(1), it));
    cluster_in(namespaces, pods.collect(), policies)
}

#[test]
fn labels_of_a_namespace_without_pods_decide_what_policies_select() {
    let peer = || {
        vec![Peer::Pods(PodSet {
            namespaces: selected(is("team", "red")),
            pods: None,
        })]
    };
    let from = || vec![netpol(NamespaceId(1), "p").ingress(allow(peer()))];
    let of = |labels: &[_], policies| labelled_namespaces(labels, &["a"], policies);
    assert_eq!(
        unseen(&of(&[], from()), &of(&[("team", "red")], from())),
        ["namespace: netpol/x/p ingress Peer v() [0] [0]"]
    );
    // No policy distinguishes the labels.
    assert_eq!(
        unseen(&of(&[], from()), &of(&[("team", "blue")], from())).len(),
        0
    );
    // The cluster that does not name the namespace knows its name only (D23).
    let without = cluster_in(
        vec![namespace("x", &[])],
        vec![pod(NamespaceId(0), "a")],
        vec![netpol(NamespaceId(0), "p").ingress(allow(peer()))],
    );
    assert_eq!(unseen(&without, &of(&[("team", "red")], from())).len(), 1);
    assert_eq!(unseen(&without, &of(&[], from())).len(), 0);
    // As subjects, and relative to the subject.
    let on = || {
        vec![
            admin("p", 1)
                .namespaces(has("team"))
                .ingress(rule(Action::Accept, all(), None)),
        ]
    };
    assert_eq!(
        unseen(&of(&[], on()), &of(&[("team", "red")], on())),
        ["namespace: cnp/p ingress Subject v() [0] [0]"]
    );
    let same = || {
        let peer = Peer::Pods(PodSet {
            namespaces: NamespaceSet::SameLabels(vec!["team"]),
            pods: None,
        });
        vec![admin("p", 1).ingress(rule(Action::Accept, vec![peer], None))]
    };
    let found = unseen(&of(&[], same()), &of(&[("team", "red")], same()));
    assert!(
        found.contains(&"namespace: cnp/p ingress Subject v() [0] [0]".to_owned()),
        "{found:?}"
    );
    assert!(
        found.contains(&"namespace: cnp/p ingress Peer v() [0] [0]".to_owned()),
        "{found:?}"
    );
}

#[test]
fn labels_of_pods_and_nodes_decide_flows_with_what_is_not_in_the_input() {
    let policies = || vec![db(vec![allow(of_x(app(&["api"])))])];
    let relabelled = |value: &'static str| {
        let mut cluster = with(&["a"], policies());
        cluster.pods[0].labels = [("app", value)].into();
        cluster
    };
    assert_eq!(
        unseen(&relabelled("a"), &relabelled("db")),
        ["pod: netpol/x/p ingress Peer x(app In api) [0] [0]"]
    );
    assert_eq!(
        unseen(&relabelled("a"), &relabelled("api")),
        ["pod: netpol/x/p ingress Subject x(app In db) [0] [0]"]
    );
    assert_eq!(unseen(&relabelled("a"), &relabelled("b")).len(), 0);
    let nodes = |role: &'static str| {
        let peers = vec![Peer::Nodes(is("role", "edge"))];
        let policy = admin("p", 1)
            .subject(PodSet {
                namespaces: any_namespace(),
                pods: Some(is("app", "db")),
            })
            .ingress(rule(Action::Accept, peers, None));
        let mut cluster = with(&["a"], vec![policy]);
        cluster.nodes = vec![node("n1", "192.0.2.1")];
        cluster.nodes[0].labels = [("role", role)].into();
        cluster
    };
    assert_eq!(
        unseen(&nodes("core"), &nodes("edge")),
        ["node: cnp/p ingress Subject [](app In db) [0] [0]"]
    );
    assert_eq!(unseen(&nodes("core"), &nodes("other")).len(), 0);
}
