//! Findings from the shape of single policies, or of a few together.

use rustc_hash::FxHashMap;

use super::context::CheckContext;
use super::{Code, Finding, FindingDetail, FindingTarget, always, now};
use crate::analysis::affect::Decider;
use crate::compile::count;
use crate::labels::{Operator, Selector};
use crate::model::{
    Cluster, NamespaceId, NamespaceSet, Peer, PodSet, Policy, PolicyId, PolicyRank, label,
};
use crate::policy::{Direction, PolicyApi, Tier};
use crate::program::RulePlace;

pub(super) fn find(context: &CheckContext<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (id, policy) in context.policies() {
        if has_no_effect(policy) {
            findings.push(always(Code::NoEffect, FindingTarget::Policy(id)));
        }
        if policy.api == PolicyApi::Default {
            findings.push(Finding {
                detail: FindingDetail::Text(isolated(policy).to_owned()),
                ..always(Code::DefaultIsolation, FindingTarget::Policy(id))
            });
        }
        same_names(id, policy, &mut findings);
    }
    mixed_api_versions(context.cluster, &mut findings);
    either_peer(context, &mut findings);
    findings
}

/// Whether a policy has no rule and does not isolate either (D8). In the API of 2016, the
/// annotation of the namespace isolates; a policy only adds exceptions.
fn has_no_effect(policy: &Policy<'_>) -> bool {
    let has_rules = !policy.ingress.list.is_empty() || !policy.egress.list.is_empty();
    match policy.rank {
        PolicyRank::EarlyAdmin | PolicyRank::Ordered(..) => !has_rules,
        PolicyRank::NetworkPolicy => policy.api == PolicyApi::NetworkPolicy2016 && !has_rules,
        PolicyRank::DefaultGroup => false,
    }
}

/// Returns the directions that a default policy isolates (D63).
fn isolated(policy: &Policy<'_>) -> &'static str {
    match (policy.ingress.isolates, policy.egress.isolates) {
        (true, true) => "ingress and egress",
        (true, false) => "ingress",
        (false, true) => "egress",
        (false, false) => "nothing",
    }
}

/// Finds rules that share a name. Explanations, logs and metrics show names, and a shared one leads
/// to the wrong rule.
fn same_names(id: PolicyId, policy: &Policy<'_>, findings: &mut Vec<Finding>) {
    let mut seen: FxHashMap<&str, RulePlace> = FxHashMap::default();
    for direction in Direction::BOTH {
        for (index, rule) in policy.rules(direction).list.iter().enumerate() {
            let place = RulePlace {
                policy: id,
                direction,
                index: count(index),
            };
            let Some(name) = rule.name.filter(|name| !name.is_empty()) else {
                continue;
            };
            let first = *seen.entry(name).or_insert(place);
            if first != place {
                findings.push(Finding {
                    by: vec![Decider::Rule(first)],
                    detail: FindingDetail::Text(name.to_owned()),
                    ..always(Code::RuleNameDup, FindingTarget::Rule(place))
                });
            }
        }
    }
}

/// Finds policies of API versions whose order is undefined (D68), each with one policy of the same
/// tier.
fn mixed_api_versions(cluster: &Cluster<'_>, findings: &mut Vec<Finding>) {
    let applies = |policy: &Policy<'_>, direction| {
        let rules = policy.rules(direction);
        let has_subject = policy.subject.is_some() && !policy.audited;
        has_subject && (rules.isolates || !rules.list.is_empty())
    };
    let policies = || (0_u32..).map(PolicyId).zip(&cluster.policies);
    // One example for each tier and direction is enough; a list of all pairs would be quadratic.
    let ordered = |tier: Tier| {
        Direction::BOTH.map(|direction| {
            let is_of_tier =
                |it: &Policy<'_>| matches!(it.rank, PolicyRank::Ordered(its, _) if its == tier);
            let mut found = policies().filter(|(_, it)| is_of_tier(it) && applies(it, direction));
            found.next().map(|(id, _)| id)
        })
    };
    let (admin, baseline) = (ordered(Tier::Admin), ordered(Tier::Baseline));
    let mut by_namespace: FxHashMap<NamespaceId, [Option<PolicyId>; 2]> = FxHashMap::default();
    for (id, policy) in policies() {
        let others = match policy.rank {
            PolicyRank::EarlyAdmin => &admin,
            PolicyRank::DefaultGroup => &baseline,
            PolicyRank::NetworkPolicy => {
                if let Some(namespace) = policy.namespace.filter(|_| !policy.audited) {
                    let [of_2016, newer] = by_namespace.entry(namespace).or_default();
                    if policy.api.is_of_2016() {
                        of_2016.get_or_insert(id);
                    } else {
                        newer.get_or_insert(id);
                    }
                }
                continue;
            }
            // Reported once, from the side of the older API version.
            PolicyRank::Ordered(..) => continue,
        };
        let mut others = Direction::BOTH.into_iter().zip(others);
        let met = others.find_map(|(direction, it)| it.filter(|_| applies(policy, direction)));
        if let Some(met) = met {
            findings.push(Finding {
                detail: FindingDetail::Others(vec![FindingTarget::Policy(met)]),
                ..always(Code::MixedGeneration, FindingTarget::Policy(id))
            });
        }
    }
    for (namespace, policies) in by_namespace {
        if let [Some(of_2016), Some(newer)] = policies {
            findings.push(Finding {
                detail: FindingDetail::Others(vec![
                    FindingTarget::Policy(of_2016),
                    FindingTarget::Policy(newer),
                ]),
                ..always(Code::MixedGeneration, FindingTarget::Namespace(namespace))
            });
        }
    }
}

/// Finds adjacent peers of NetworkPolicies, one with namespaces only and one with pods only, that
/// were probably meant as one peer with both selectors.
///
/// If the input has pods, they decide: the finding needs such pods in the other namespaces and none
/// in the policy's own. Without pods, only rules with exactly these two peers have the finding,
/// since longer lists are mostly intended.
fn either_peer(context: &CheckContext<'_>, findings: &mut Vec<Finding>) {
    // Built for the first candidate only: most inputs have none, and the index has every label of
    // every class.
    let mut index: Option<LabelIndex<'_>> = None;
    for (place, effect) in context.rules() {
        let policy = context.policy(place.policy);
        let is_v1 = policy.is_some_and(|it| it.api == PolicyApi::NetworkPolicy);
        let peers = effect.peers.as_deref().filter(|_| is_v1);
        let Some(peers) = peers.filter(|peers| peers.len() > 1) else {
            continue;
        };
        for (first, pair) in (0_u32..).zip(peers.windows(2)) {
            let [before, after] = pair else { continue };
            let split = Split::of(before, after).or_else(|| Split::of(after, before));
            let Some(split) = split else { continue };
            let finding = if context.has_pods() {
                let index = index.get_or_insert_with(|| LabelIndex::new(context));
                split
                    .is_likely_one_peer(context, index)
                    .then(|| now(Code::PeerOr, FindingTarget::Peer(place, first + 1)))
            } else {
                (peers.len() == 2)
                    .then(|| always(Code::PeerOr, FindingTarget::Peer(place, first + 1)))
            };
            findings.extend(finding.map(|it| Finding {
                detail: FindingDetail::Others(vec![FindingTarget::Peer(place, first)]),
                ..it
            }));
        }
    }
}

/// A peer with namespaces only, and a peer with pods only.
struct Split<'c> {
    namespaces: &'c Selector<&'c str>,
    own: NamespaceId,
    pods: &'c Selector<&'c str>,
}

impl<'c> Split<'c> {
    fn of(namespaces: &'c Peer<'c>, pods: &'c Peer<'c>) -> Option<Split<'c>> {
        let (Peer::Pods(namespaces), Peer::Pods(pods)) = (namespaces, pods) else {
            return None;
        };
        let PodSet {
            namespaces: NamespaceSet::Selected { selector, .. },
            pods: None,
        } = namespaces
        else {
            return None;
        };
        let PodSet {
            namespaces: NamespaceSet::Exact(own),
            pods: Some(pods),
        } = pods
        else {
            return None;
        };
        // An empty selector is a statement of its own: all namespaces, or all pods.
        let is_specific = !selector.selects_everything() && !pods.selects_everything();
        is_specific.then_some(Split {
            namespaces: selector,
            own: *own,
            pods,
        })
    }

    /// Whether the pods of the input suggest that one peer was meant.
    fn is_likely_one_peer(&self, context: &CheckContext<'_>, index: &LabelIndex<'_>) -> bool {
        let is_selected = |class: u32| {
            let pod = context.pod_of(class);
            pod.is_some_and(|pod| self.pods.matches(|key| label(&pod.labels, key)))
        };
        // A selected pod in the policy's own namespace shows that the second peer is intended.
        let own = context.classes_in(self.own).iter();
        if own.map(|class| class.id).any(is_selected) {
            return false;
        }
        let mut with_label = index.candidates(self.pods);
        with_label.any(|class| {
            let pod = context.pod_of(class).filter(|_| is_selected(class));
            pod.is_some_and(|pod| {
                let namespace = context.cluster.namespaces.get(pod.namespace.0 as usize);
                let has = |key: &str| namespace.and_then(|it| label(&it.labels, key));
                self.namespaces.matches(has)
            })
        })
    }
}

/// An index of classes by label.
struct LabelIndex<'c> {
    classes: FxHashMap<(&'c str, &'c str), Vec<u32>>,
}

impl<'c> LabelIndex<'c> {
    fn new(context: &CheckContext<'c>) -> LabelIndex<'c> {
        let mut classes: FxHashMap<(&str, &str), Vec<u32>> = FxHashMap::default();
        for (class, pod) in context.classes() {
            for (key, value) in pod.labels.iter() {
                classes.entry((*key, *value)).or_default().push(class.id);
            }
        }
        LabelIndex { classes }
    }

    /// Returns the classes that a selector can select, by the first of its requirements that lists
    /// values; none if no requirement does.
    fn candidates<'s>(&'s self, selector: &'s Selector<&str>) -> impl Iterator<Item = u32> + 's {
        let mut requirements = selector.requirements.iter();
        let named = requirements.find(|it| it.operator == Operator::In);
        let pairs = named.into_iter().flat_map(|it| {
            let values = it.values.iter();
            values.map(|value| (it.key, *value))
        });
        let classes = pairs.filter_map(|pair| self.classes.get(&pair));
        classes.flatten().copied()
    }
}
