//! Small clusters whose findings follow from the definitions.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use super::*;
use crate::analysis::affect::Decider;
use crate::analysis::lint::{Code, FindingDetail, FindingTarget};
use crate::compile::compile;
use crate::fixture::{
    admin, all, allow, any_namespace, baseline, block, cluster, decider, default_policy, deny,
    early, everything, is, labelled, netpol, node, pass, pod, pods_of, rule, tcp, template,
};
use crate::labels::{Operator, Requirement, Selector};
use crate::model::{NamespaceSet, Peer, Pod, PodSet, Rule};
use crate::policy::Action;

/// Formats findings as `SHADOWED cnp/p#ingress[1] by cnp/p#ingress[0]`, with `always` if set.
fn report(cluster: &Cluster<'_>) -> Vec<String> {
    let program = compile(cluster);
    let mut findings = find(cluster, &program);
    findings.sort_by(|a, b| (a.at, a.code, &a.by).cmp(&(b.at, b.code, &b.by)));
    let words = findings.iter().map(|it| {
        let mut words = format!("{} ", it.code);
        words += &match it.at {
            FindingTarget::Policy(id) => cluster.policy_name(id),
            FindingTarget::Subject(id) => format!("{} subject", cluster.policy_name(id)),
            FindingTarget::Rule(place) => decider(cluster, Decider::Rule(place)),
            FindingTarget::Peer(place, at) => {
                format!("{} peer {at}", decider(cluster, Decider::Rule(place)))
            }
            FindingTarget::Port(..)
            | FindingTarget::Namespace(_)
            | FindingTarget::Pod(_)
            | FindingTarget::Service(_) => String::new(),
        };
        let by: Vec<String> = it.by.iter().map(|it| decider(cluster, *it)).collect();
        if !by.is_empty() {
            words += &format!(" by {}", by.join(", "));
        }
        if let FindingDetail::Others(others) = &it.detail {
            for other in others {
                if let FindingTarget::Policy(id) = other {
                    words += &format!(" with {}", cluster.policy_name(*id));
                }
            }
        }
        if it.always {
            words += " always";
        }
        words
    });
    words.collect()
}

const NOTHING: [&str; 0] = [];

/// Two pods in `x` and two in `y`, so every pod has a peer in each.
fn pods() -> Vec<Pod<'static>> {
    vec![pod("x", "a"), pod("x", "b"), pod("y", "a"), pod("y", "c")]
}

#[test]
fn a_rule_behind_one_that_matches_more_is_shadowed_always() {
    let wider_first = cluster(
        pods(),
        vec![admin("p", 1).ingress(deny(pods_of("y"))).ingress(rule(
            Action::Accept,
            pods_of("y"),
            Some(vec![tcp(80)]),
        ))],
    );
    assert_eq!(
        report(&wider_first),
        ["SHADOWED cnp/p#ingress[1] by cnp/p#ingress[0] always"]
    );
    let narrower_first = cluster(
        pods(),
        vec![
            admin("p", 1)
                .ingress(rule(Action::Accept, pods_of("y"), Some(vec![tcp(80)])))
                .ingress(deny(pods_of("y"))),
        ],
    );
    assert_eq!(report(&narrower_first), NOTHING);
}

#[test]
fn a_rule_that_others_cover_only_with_these_pods_is_shadowed_now() {
    // All pods of `y` are `a` or `c`.
    let now = cluster(
        pods(),
        vec![
            admin("p", 1)
                .ingress(deny(labelled("app", "a")))
                .ingress(allow(labelled("app", "c")))
                .ingress(deny(pods_of("y"))),
        ],
    );
    assert_eq!(
        report(&now),
        ["SHADOWED cnp/p#ingress[2] by cnp/p#ingress[0], cnp/p#ingress[1]"]
    );
    // A rule that matches nothing now is reported only if it is always covered.
    let nothing = cluster(
        pods(),
        vec![
            admin("p", 1)
                .ingress(deny(all()))
                .ingress(allow(labelled("app", "none"))),
        ],
    );
    assert_eq!(
        report(&nothing),
        [
            "SHADOWED cnp/p#ingress[1] by cnp/p#ingress[0] always",
            "PEER-MATCHES-NOTHING cnp/p#ingress[1] peer 0",
        ]
    );
    let mut without_pods = nothing;
    without_pods.pods.clear();
    assert_eq!(
        report(&without_pods),
        ["SHADOWED cnp/p#ingress[1] by cnp/p#ingress[0] always"]
    );
}

#[test]
fn a_single_pod_is_no_peer_of_itself() {
    // The second rule would be the first for flows from `x/a` to `x/a` only.
    let policies = || {
        vec![
            admin("p", 1)
                .subject(PodSet {
                    namespaces: any_namespace(),
                    pods: Some(is("app", "a")),
                })
                .ingress(deny(labelled("app", "b")))
                .ingress(allow(pods_of("x"))),
        ]
    };
    let alone = cluster(vec![pod("x", "a"), pod("x", "b")], policies());
    assert_eq!(
        report(&alone),
        ["SHADOWED cnp/p#ingress[1] by cnp/p#ingress[0]"]
    );
    let two = cluster(vec![template("x", "a"), pod("x", "b")], policies());
    assert_eq!(report(&two), NOTHING);
}

#[test]
fn a_policy_whose_rules_all_come_too_late_is_unreachable() {
    let shadowed = cluster(
        pods(),
        vec![
            admin("first", 1).ingress(deny(pods_of("y"))),
            admin("second", 2).ingress(allow(pods_of("y"))),
        ],
    );
    assert_eq!(
        report(&shadowed),
        ["UNREACHABLE cnp/second by cnp/first#ingress[0]"]
    );
    let isolated = cluster(
        vec![pod("x", "a"), pod("x", "b")],
        vec![
            netpol("x", "closed").ingress_isolates(),
            baseline("late", 1).ingress(allow(all())),
        ],
    );
    assert_eq!(
        report(&isolated),
        ["UNREACHABLE cnp/late by netpol/x/closed (ingress)"]
    );
    // The Admin tier decides first, without any isolation.
    let decided = cluster(
        pods(),
        vec![
            admin("first", 1).ingress(deny(pods_of("y"))),
            baseline("late", 1).ingress(allow(pods_of("y"))),
        ],
    );
    assert_eq!(
        report(&decided),
        ["UNREACHABLE cnp/late by cnp/first#ingress[0]"]
    );
    let reached = cluster(
        pods(),
        vec![
            netpol("x", "closed").ingress_isolates(),
            baseline("late", 1).ingress(deny(all())),
        ],
    );
    // The Baseline tier denies in `x` too, so the policy is not needed; in `y` the tier decides.
    assert_eq!(report(&reached), ["REDUNDANT-POLICY netpol/x/closed"]);
}

fn needs(
    key: &'static str,
    operator: Operator,
    values: &[&'static str],
) -> Requirement<&'static str> {
    Requirement {
        key,
        operator,
        values: values.to_vec(),
    }
}

fn selector(requirements: Vec<Requirement<&'static str>>) -> Selector<&'static str> {
    Selector { requirements }
}

fn from(namespaces: NamespaceSet<'static>, pods: Option<Selector<&'static str>>) -> Rule<'static> {
    deny(vec![Peer::Pods(PodSet { namespaces, pods })])
}

#[test]
fn contradictions_never_match() {
    use Operator::{DoesNotExist, Exists, In, NotIn};
    let never = [
        vec![needs("a", In, &["x"]), needs("a", In, &["y"])],
        vec![needs("a", Exists, &[]), needs("a", DoesNotExist, &[])],
        vec![needs("a", In, &["x"]), needs("a", NotIn, &["x", "y"])],
        vec![needs("a", In, &["x"]), needs("a", DoesNotExist, &[])],
    ];
    let sometimes = [
        vec![needs("a", In, &["x", "y"]), needs("a", NotIn, &["x"])],
        vec![needs("a", NotIn, &["x"]), needs("a", DoesNotExist, &[])],
        vec![needs("a", Exists, &[]), needs("a", NotIn, &["x"])],
        vec![needs("a", In, &["x"]), needs("b", In, &["y"])],
    ];
    let count = |list: &[Vec<Requirement<&'static str>>], code: Code| {
        let mut draft = admin("p", 1);
        for it in list {
            draft = draft.ingress(from(any_namespace(), Some(selector(it.clone()))));
        }
        let cluster = cluster(pods(), vec![draft]);
        let program = compile(&cluster);
        let findings = find(&cluster, &program);
        let is_it = |it: &&Finding| it.code == code && matches!(it.at, FindingTarget::Peer(..));
        findings.iter().filter(is_it).count()
    };
    assert_eq!(count(&never, Code::NeverMatches), 4);
    assert_eq!(count(&never, Code::PeerMatchesNothing), 0);
    assert_eq!(count(&sometimes, Code::NeverMatches), 0);
}

#[test]
fn the_name_of_a_namespace_is_a_label_that_is_always_there() {
    use Operator::{DoesNotExist, Exists, In};
    const NAME: &str = "kubernetes.io/metadata.name";
    let namespaces = |requirements, except: Vec<Selector<&'static str>>| NamespaceSet::Selected {
        selector: selector(requirements),
        except,
    };
    let report = |set: NamespaceSet<'static>| {
        let cluster = cluster(pods(), vec![admin("p", 1).ingress(from(set, None))]);
        report(&cluster)
    };
    let never = ["NEVER-MATCHES cnp/p#ingress[0] peer 0 always"];
    assert_eq!(
        report(namespaces(vec![needs(NAME, DoesNotExist, &[])], vec![])),
        never
    );
    assert_eq!(
        report(namespaces(vec![needs(NAME, In, &["No_Name"])], vec![])),
        never
    );
    assert_eq!(report(namespaces(vec![], vec![everything()])), never);
    let team = selector(vec![needs("team", Exists, &[])]);
    assert_eq!(
        report(namespaces(
            vec![needs("team", In, &["red"])],
            vec![team.clone()]
        )),
        never
    );
    assert_eq!(
        report(namespaces(vec![], vec![team])),
        ["PEER-MATCHES-NOTHING cnp/p#ingress[0] peer 0"]
    );
    assert_eq!(
        report(namespaces(vec![needs(NAME, In, &["y"])], vec![])),
        NOTHING
    );
}

#[test]
fn selectors_without_objects_are_reported_only_if_the_input_has_pods() {
    let no_pod = PodSet {
        namespaces: any_namespace(),
        pods: Some(is("app", "none")),
    };
    let policies = || {
        vec![
            admin("p", 1).subject(no_pod.clone()).ingress(deny(all())),
            netpol("x", "np").egress(allow(labelled("app", "none"))),
            netpol("z", "np").ingress_isolates(),
        ]
    };
    let mut cluster = cluster(pods(), policies());
    assert_eq!(
        report(&cluster),
        [
            "SELECTS-NOTHING cnp/p subject",
            "SELECTS-NOTHING netpol/z/np subject",
            "PEER-MATCHES-NOTHING netpol/x/np#egress[0] peer 0",
        ]
    );
    cluster.pods.clear();
    assert_eq!(report(&cluster), NOTHING);
}

#[test]
fn relative_peers_and_node_peers_without_objects_are_reported() {
    let own = |set| {
        vec![Peer::Pods(PodSet {
            namespaces: set,
            pods: Some(is("app", "c")),
        })]
    };
    let nodes = || vec![Peer::Nodes(is("name", "n2"))];
    let mut cluster = cluster(
        pods(),
        vec![
            admin("p", 1)
                .subject(PodSet {
                    namespaces: any_namespace(),
                    pods: Some(is("app", "b")),
                })
                .ingress(deny(own(NamespaceSet::Own)))
                .ingress(deny(own(NamespaceSet::NotOwn)))
                .egress(deny(nodes())),
        ],
    );
    // Without any node, peers of nodes have no finding.
    let expected = ["PEER-MATCHES-NOTHING cnp/p#ingress[0] peer 0"];
    assert_eq!(report(&cluster), expected);
    cluster.nodes = vec![node("n1", "192.0.2.1")];
    assert_eq!(
        report(&cluster),
        [
            "PEER-MATCHES-NOTHING cnp/p#ingress[0] peer 0",
            "PEER-MATCHES-NOTHING cnp/p#egress[0] peer 0",
        ]
    );
    cluster.nodes = vec![node("n2", "192.0.2.1")];
    assert_eq!(report(&cluster), expected);
}

#[test]
fn of_rules_that_replace_each_other_the_first_stays() {
    let twice = cluster(
        pods(),
        vec![
            netpol("x", "np")
                .ingress(allow(pods_of("y")))
                .ingress(allow(pods_of("y"))),
            netpol("x", "other").ingress(rule(Action::Accept, pods_of("y"), Some(vec![tcp(80)]))),
            netpol("x", "rest").ingress(allow(pods_of("x"))),
        ],
    );
    assert_eq!(
        report(&twice),
        [
            "REDUNDANT-POLICY netpol/x/other",
            "REDUNDANT-RULE netpol/x/np#ingress[1] by netpol/x/np#ingress[0]",
        ]
    );
    // A rule that two others cover together is redundant too.
    let together = cluster(
        vec![pod("x", "a"), pod("x", "d"), pod("y", "b"), pod("y", "c")],
        vec![
            netpol("x", "np")
                .ingress(allow(labelled("app", "b")))
                .ingress(allow(labelled("app", "c")))
                .ingress(allow(pods_of("y"))),
        ],
    );
    assert_eq!(
        report(&together),
        ["REDUNDANT-RULE netpol/x/np#ingress[2] by netpol/x/np#ingress[0], netpol/x/np#ingress[1]"]
    );
    let apart = cluster(
        pods(),
        vec![
            netpol("x", "np")
                .ingress(rule(Action::Accept, pods_of("y"), Some(vec![tcp(80)])))
                .ingress(rule(Action::Accept, pods_of("y"), Some(vec![tcp(81)]))),
        ],
    );
    assert_eq!(report(&apart), NOTHING);
}

#[test]
fn a_policy_that_changes_nothing_is_redundant_and_one_that_alone_isolates_is_not() {
    // A policy that allows everything does not isolate in effect.
    let open = cluster(pods(), vec![netpol("x", "open").ingress(allow(all()))]);
    assert_eq!(report(&open), ["REDUNDANT-POLICY netpol/x/open"]);
    // Of two policies that isolate, one is redundant.
    let closed = cluster(
        pods(),
        vec![
            netpol("x", "a").ingress_isolates(),
            netpol("x", "b").ingress_isolates(),
        ],
    );
    assert_eq!(report(&closed), ["REDUNDANT-POLICY netpol/x/b"]);
    // The Baseline tier would deny what the policy allows, and allow what it denies.
    let not_open = cluster(
        pods(),
        vec![
            netpol("x", "open").ingress(allow(all())),
            baseline("b", 1).ingress(deny(pods_of("y"))),
        ],
    );
    assert_eq!(report(&not_open), NOTHING);
}

#[test]
fn what_the_admin_tier_decides_is_overridden() {
    let wholly = cluster(
        pods(),
        vec![
            admin("top", 1).ingress(deny(pods_of("y"))),
            netpol("x", "np")
                .ingress(allow(pods_of("y")))
                .ingress(allow(labelled("app", "b"))),
        ],
    );
    assert_eq!(
        report(&wholly),
        ["OVERRIDDEN netpol/x/np#ingress[0] by cnp/top#ingress[0]"]
    );
    let partly = cluster(
        pods(),
        vec![
            admin("top", 1).ingress(deny(pods_of("y"))),
            netpol("x", "np").ingress(allow(labelled("app", "a"))),
        ],
    );
    assert_eq!(
        report(&partly),
        ["OVERRIDDEN-PARTLY netpol/x/np#ingress[0] by cnp/top#ingress[0]"]
    );
    // A passed flow is not decided, and no flow of the rule is denied.
    let passed = cluster(
        pods(),
        vec![
            admin("top", 1)
                .ingress(pass(pods_of("y")))
                .ingress(deny(all())),
            netpol("x", "np").ingress(allow(pods_of("y"))),
        ],
    );
    // Without the policy, the passed flows would be allowed too.
    assert_eq!(report(&passed), ["REDUNDANT-POLICY netpol/x/np"]);
}

#[test]
fn a_pass_has_an_effect_if_a_verdict_depends_on_it() {
    let policies = |np: bool| {
        let mut policies = vec![
            admin("top", 1)
                .ingress(pass(pods_of("y")))
                .ingress(allow(all())),
        ];
        if np {
            policies.push(netpol("x", "closed").ingress_isolates());
        }
        policies
    };
    assert_eq!(
        report(&cluster(pods(), policies(false))),
        ["PASS-NO-EFFECT cnp/top#ingress[0]"]
    );
    assert_eq!(report(&cluster(pods(), policies(true))), NOTHING);
    // Behind the Baseline tier everything is allowed.
    let last = cluster(
        pods(),
        vec![
            baseline("b", 1)
                .ingress(pass(pods_of("y")))
                .ingress(deny(labelled("app", "b"))),
        ],
    );
    assert_eq!(report(&last), ["PASS-NO-EFFECT cnp/b#ingress[0]"]);
}

#[test]
fn of_two_tied_policies_the_most_severe_finding_is_reported() {
    let team = |value| PodSet {
        namespaces: NamespaceSet::Selected {
            selector: is("team", value),
            except: Vec::new(),
        },
        pods: None,
    };
    let apart = cluster(
        pods(),
        vec![
            admin("p", 1).subject(team("blue")).ingress(deny(all())),
            admin("q", 1).subject(team("red")).ingress(allow(all())),
        ],
    );
    assert_eq!(report(&apart), ["TIE cnp/p with cnp/q always"]);
    // They agree about every flow in the input, and both can select the same pod.
    let overlap = cluster(
        pods(),
        vec![
            admin("p", 1)
                .subject(team("blue"))
                .ingress(deny(pods_of("y"))),
            admin("q", 1).ingress(allow(pods_of("x"))),
        ],
    );
    assert_eq!(report(&overlap), ["TIE-OVERLAP cnp/p with cnp/q always"]);
    // As in the examples of the specification: one accepts and one denies.
    let conflict = cluster(
        pods(),
        vec![
            admin("p", 1).ingress(allow(pods_of("y"))),
            admin("q", 1)
                .ingress(deny(pods_of("y")))
                .ingress(deny(pods_of("x"))),
        ],
    );
    assert_eq!(
        report(&conflict),
        [
            "TIE-CONFLICT cnp/p by cnp/p#ingress[0], cnp/q#ingress[0] with cnp/q",
            // By name, the other policy takes precedence.
            "SHADOWED cnp/q#ingress[0] by cnp/p#ingress[0]",
        ]
    );
    // An earlier priority decides first.
    let settled = cluster(
        pods(),
        vec![
            admin("p", 1).ingress(allow(pods_of("y"))),
            admin("q", 1).ingress(deny(labelled("app", "c"))),
            admin("r", 0)
                .ingress(deny(labelled("app", "c")))
                .ingress(allow(labelled("app", "a"))),
        ],
    );
    assert!(
        !report(&settled)
            .iter()
            .any(|it| it.starts_with("TIE-CONFLICT"))
    );
}

#[test]
fn a_tied_pass_conflicts_only_where_the_later_tiers_disagree() {
    let policies = |closed: bool| {
        let mut policies = vec![
            admin("p", 1).ingress(pass(pods_of("y"))),
            admin("q", 1).ingress(allow(pods_of("y"))),
        ];
        if closed {
            policies.push(netpol("x", "closed").ingress_isolates());
        }
        policies
    };
    let has_conflict = |closed| {
        let findings = report(&cluster(pods(), policies(closed)));
        findings.iter().any(|it| it.starts_with("TIE-CONFLICT"))
    };
    assert!(!has_conflict(false));
    assert!(has_conflict(true));
}

#[test]
fn default_policies_are_a_union_and_early_denies_take_precedence() {
    let union = cluster(
        pods(),
        vec![
            default_policy("d").ingress(allow(pods_of("y"))),
            default_policy("e").ingress(allow(pods_of("y"))),
        ],
    );
    assert_eq!(report(&union), NOTHING);
    // The Deny comes after the Allow in the list, and takes precedence (D61).
    let classes = cluster(
        pods(),
        vec![early("e").ingress(allow(pods_of("y"))).ingress(deny(all()))],
    );
    assert_eq!(
        report(&classes),
        ["SHADOWED cnp0/e#ingress[0] by cnp0/e#ingress[1] always"]
    );
}

#[test]
fn an_unknown_address_can_be_any() {
    // The address of the template can be in the block, or not.
    let cluster = cluster(
        vec![pod("x", "a"), template("y", "t")],
        vec![
            admin("p", 1)
                .ingress(deny(block("10.9.0.0/16")))
                .ingress(allow(pods_of("y"))),
        ],
    );
    assert_eq!(report(&cluster), NOTHING);
}
