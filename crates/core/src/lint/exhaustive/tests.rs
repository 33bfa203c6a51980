//! Small clusters whose findings are read off the definitions.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use super::*;
use crate::affect::Decider;
use crate::affect::tests::world::{
    admin, all, allow, any_namespace, baseline, block, cluster, deny, everyone, is, labelled,
    netpol, node, pass, pod, pods_of, policy, rule, tcp, template,
};
use crate::compile::compile;
use crate::labels::{Operator, Requirement, Selector};
use crate::lint::{Code, FindingDetail, FindingTarget};
use crate::model::{NamespaceSet, Peer, PodSet, PolicyRank, Rule};
use crate::policy::{Action, PolicyApi};

fn part(cluster: &Cluster<'_>, part: Decider) -> String {
    let policy = cluster.policy_name(part.policy());
    match part {
        Decider::Rule(place) => format!("{policy}#{}[{}]", place.direction, place.index),
        Decider::Isolation(_, direction) => format!("{policy} ({direction})"),
    }
}

/// `SHADOWED cnp/p#ingress[1] by cnp/p#ingress[0]`, with `always` where it is so.
fn told(cluster: &Cluster<'_>) -> Vec<String> {
    let program = compile(cluster);
    let mut findings = find(cluster, &program);
    findings.sort_by(|a, b| (a.at, a.code, &a.by).cmp(&(b.at, b.code, &b.by)));
    let words = findings.iter().map(|it| {
        let mut words = format!("{} ", it.code);
        words += &match it.at {
            FindingTarget::Policy(id) => cluster.policy_name(id),
            FindingTarget::Subject(id) => format!("{} subject", cluster.policy_name(id)),
            FindingTarget::Rule(place) => part(cluster, Decider::Rule(place)),
            FindingTarget::Peer(place, at) => {
                format!("{} peer {at}", part(cluster, Decider::Rule(place)))
            }
            FindingTarget::Port(..)
            | FindingTarget::Namespace(_)
            | FindingTarget::Pod(_)
            | FindingTarget::Service(_) => String::new(),
        };
        let by: Vec<String> = it.by.iter().map(|it| part(cluster, *it)).collect();
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

/// Two pods in `x` and two in `y`, so that everyone meets someone of each.
fn pods() -> Vec<crate::model::Pod<'static>> {
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
        told(&wider_first),
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
    assert_eq!(told(&narrower_first), NOTHING);
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
        told(&now),
        ["SHADOWED cnp/p#ingress[2] by cnp/p#ingress[0], cnp/p#ingress[1]"]
    );
    // A rule that matches nothing now is told only if it is covered always.
    let nothing = cluster(
        pods(),
        vec![
            admin("p", 1)
                .ingress(deny(all()))
                .ingress(allow(labelled("app", "none"))),
        ],
    );
    assert_eq!(
        told(&nothing),
        [
            "SHADOWED cnp/p#ingress[1] by cnp/p#ingress[0] always",
            "PEER-MATCHES-NOTHING cnp/p#ingress[1] peer 0",
        ]
    );
    let mut without_pods = nothing;
    without_pods.pods.clear();
    assert_eq!(
        told(&without_pods),
        ["SHADOWED cnp/p#ingress[1] by cnp/p#ingress[0] always"]
    );
}

#[test]
fn a_pod_that_is_alone_does_not_meet_itself() {
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
        told(&alone),
        ["SHADOWED cnp/p#ingress[1] by cnp/p#ingress[0]"]
    );
    let two = cluster(vec![template("x", "a"), pod("x", "b")], policies());
    assert_eq!(told(&two), NOTHING);
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
        told(&shadowed),
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
        told(&isolated),
        ["UNREACHABLE cnp/late by netpol/x/closed (ingress)"]
    );
    // What the Admin tier decides need not be isolated.
    let decided = cluster(
        pods(),
        vec![
            admin("first", 1).ingress(deny(pods_of("y"))),
            baseline("late", 1).ingress(allow(pods_of("y"))),
        ],
    );
    assert_eq!(
        told(&decided),
        ["UNREACHABLE cnp/late by cnp/first#ingress[0]"]
    );
    let asked = cluster(
        pods(),
        vec![
            netpol("x", "closed").ingress_isolates(),
            baseline("late", 1).ingress(deny(all())),
        ],
    );
    // The policy of `x` is not needed for what it denies, and the Baseline tier is for `y`.
    assert_eq!(told(&asked), ["REDUNDANT-POLICY netpol/x/closed"]);
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
        let meant = |it: &&Finding| it.code == code && matches!(it.at, FindingTarget::Peer(..));
        findings.iter().filter(meant).count()
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
    let told = |set: NamespaceSet<'static>| {
        let cluster = cluster(pods(), vec![admin("p", 1).ingress(from(set, None))]);
        told(&cluster)
    };
    let never = ["NEVER-MATCHES cnp/p#ingress[0] peer 0 always"];
    assert_eq!(
        told(namespaces(vec![needs(NAME, DoesNotExist, &[])], vec![])),
        never
    );
    assert_eq!(
        told(namespaces(vec![needs(NAME, In, &["No_Name"])], vec![])),
        never
    );
    assert_eq!(told(namespaces(vec![], vec![everyone()])), never);
    let team = selector(vec![needs("team", Exists, &[])]);
    assert_eq!(
        told(namespaces(
            vec![needs("team", In, &["red"])],
            vec![team.clone()]
        )),
        never
    );
    assert_eq!(
        told(namespaces(vec![], vec![team])),
        ["PEER-MATCHES-NOTHING cnp/p#ingress[0] peer 0"]
    );
    assert_eq!(
        told(namespaces(vec![needs(NAME, In, &["y"])], vec![])),
        NOTHING
    );
}

#[test]
fn what_is_not_given_is_told_and_only_if_something_is_given() {
    let nobody = PodSet {
        namespaces: any_namespace(),
        pods: Some(is("app", "nobody")),
    };
    let policies = || {
        vec![
            admin("p", 1).subject(nobody.clone()).ingress(deny(all())),
            netpol("x", "np").egress(allow(labelled("app", "nobody"))),
            netpol("z", "np").ingress_isolates(),
        ]
    };
    let mut cluster = cluster(pods(), policies());
    assert_eq!(
        told(&cluster),
        [
            "SELECTS-NOTHING cnp/p subject",
            "SELECTS-NOTHING netpol/z/np subject",
            "PEER-MATCHES-NOTHING netpol/x/np#egress[0] peer 0",
        ]
    );
    cluster.pods.clear();
    assert_eq!(told(&cluster), NOTHING);
}

#[test]
fn peers_as_seen_from_the_subject_and_nodes() {
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
    // Without any node nothing is said of nodes.
    let expected = ["PEER-MATCHES-NOTHING cnp/p#ingress[0] peer 0"];
    assert_eq!(told(&cluster), expected);
    cluster.nodes = vec![node("n1", "192.0.2.1")];
    assert_eq!(
        told(&cluster),
        [
            "PEER-MATCHES-NOTHING cnp/p#ingress[0] peer 0",
            "PEER-MATCHES-NOTHING cnp/p#egress[0] peer 0",
        ]
    );
    cluster.nodes = vec![node("n2", "192.0.2.1")];
    assert_eq!(told(&cluster), expected);
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
        told(&twice),
        [
            "REDUNDANT-POLICY netpol/x/other",
            "REDUNDANT-RULE netpol/x/np#ingress[1] by netpol/x/np#ingress[0]",
        ]
    );
    // What two others cover together is redundant, too.
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
        told(&together),
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
    assert_eq!(told(&apart), NOTHING);
}

#[test]
fn a_policy_that_changes_nothing_is_redundant_and_one_that_alone_isolates_is_not() {
    // Who is allowed everything is not isolated in effect.
    let open = cluster(pods(), vec![netpol("x", "open").ingress(allow(all()))]);
    assert_eq!(told(&open), ["REDUNDANT-POLICY netpol/x/open"]);
    // Of two that isolate one can go.
    let closed = cluster(
        pods(),
        vec![
            netpol("x", "a").ingress_isolates(),
            netpol("x", "b").ingress_isolates(),
        ],
    );
    assert_eq!(told(&closed), ["REDUNDANT-POLICY netpol/x/b"]);
    // The Baseline tier would deny what the policy allows, and allow what it denies.
    let not_open = cluster(
        pods(),
        vec![
            netpol("x", "open").ingress(allow(all())),
            baseline("b", 1).ingress(deny(pods_of("y"))),
        ],
    );
    assert_eq!(told(&not_open), NOTHING);
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
        told(&wholly),
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
        told(&partly),
        ["OVERRIDDEN-PARTLY netpol/x/np#ingress[0] by cnp/top#ingress[0]"]
    );
    // What is passed on is not decided; what is accepted in part is not denied.
    let passed = cluster(
        pods(),
        vec![
            admin("top", 1)
                .ingress(pass(pods_of("y")))
                .ingress(deny(all())),
            netpol("x", "np").ingress(allow(pods_of("y"))),
        ],
    );
    // Without the policy the flows that are passed on would be allowed as well.
    assert_eq!(told(&passed), ["REDUNDANT-POLICY netpol/x/np"]);
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
        told(&cluster(pods(), policies(false))),
        ["PASS-NO-EFFECT cnp/top#ingress[0]"]
    );
    assert_eq!(told(&cluster(pods(), policies(true))), NOTHING);
    // Behind the Baseline tier everything is allowed.
    let last = cluster(
        pods(),
        vec![
            baseline("b", 1)
                .ingress(pass(pods_of("y")))
                .ingress(deny(labelled("app", "b"))),
        ],
    );
    assert_eq!(told(&last), ["PASS-NO-EFFECT cnp/b#ingress[0]"]);
}

#[test]
fn of_two_tied_policies_the_worst_is_told() {
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
    assert_eq!(told(&apart), ["TIE cnp/p with cnp/q always"]);
    // They agree about every flow of the pods that are given, and a pod could be in both.
    let overlap = cluster(
        pods(),
        vec![
            admin("p", 1)
                .subject(team("blue"))
                .ingress(deny(pods_of("y"))),
            admin("q", 1).ingress(allow(pods_of("x"))),
        ],
    );
    assert_eq!(told(&overlap), ["TIE-OVERLAP cnp/p with cnp/q always"]);
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
        told(&conflict),
        [
            "TIE-CONFLICT cnp/p by cnp/p#ingress[0], cnp/q#ingress[0] with cnp/q",
            // By name, the other goes first.
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
        !told(&settled)
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
    let is_told = |closed| {
        let told = told(&cluster(pods(), policies(closed)));
        told.iter().any(|it| it.starts_with("TIE-CONFLICT"))
    };
    assert!(!is_told(false));
    assert!(is_told(true));
}

#[test]
fn default_policies_are_a_union_and_early_denies_go_first() {
    let default = |name| policy(PolicyApi::Default, name, PolicyRank::DefaultGroup);
    let early = |name| policy(PolicyApi::EarlyCluster, name, PolicyRank::EarlyAdmin);
    let union = cluster(
        pods(),
        vec![
            default("d").ingress(allow(pods_of("y"))),
            default("e").ingress(allow(pods_of("y"))),
        ],
    );
    assert_eq!(told(&union), NOTHING);
    // The Deny is behind the Allow in the list, and before it in effect (D61).
    let classes = cluster(
        pods(),
        vec![early("e").ingress(allow(pods_of("y"))).ingress(deny(all()))],
    );
    assert_eq!(
        told(&classes),
        ["SHADOWED cnp0/e#ingress[0] by cnp0/e#ingress[1] always"]
    );
}

#[test]
fn an_address_that_is_not_known_could_be_any() {
    // The template could be in the block, or not.
    let cluster = cluster(
        vec![pod("x", "a"), template("y", "t")],
        vec![
            admin("p", 1)
                .ingress(deny(block("10.9.0.0/16")))
                .ingress(allow(pods_of("y"))),
        ],
    );
    assert_eq!(told(&cluster), NOTHING);
}
