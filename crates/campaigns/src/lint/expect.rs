//! The expected findings of a small cluster, by their definitions, flow by flow.

use std::collections::{BTreeMap, BTreeSet};

use palisade_core::analysis::affect::Decider;
use palisade_core::analysis::lint::{Code, FindingTarget};
use palisade_core::labels::Selector;
use palisade_core::model::{
    NamespaceSet, Peer, PodId, PodSet, Policy, PolicyId, PolicyRank, label,
};
use palisade_core::policy::{Action, Direction, PolicyApi, Tier, Verdict};
use palisade_core::program::RulePlace;

use super::reference::{Cell, Mask, ReferenceCluster, tier};

/// Removed policies and rules, and two policies in exchanged order.
#[derive(Clone, Debug, Default)]
struct Variation {
    policies: BTreeSet<PolicyId>,
    rules: Mask,
    swapped: Option<(PolicyId, PolicyId)>,
}

/// The expected findings, each with its deciders if they are exact.
pub(super) type Expected = BTreeMap<(Code, FindingTarget), Option<BTreeSet<Decider>>>;

/// The decision on a flow in a direction.
struct Decided {
    verdict: Verdict,
    /// The first matching rule of the Admin tier, and that of the Baseline tier if it is evaluated.
    admin: Option<usize>,
    baseline: Option<usize>,
}

impl ReferenceCluster<'_> {
    fn policy(&self, id: PolicyId) -> Option<&Policy<'_>> {
        self.cluster.policies.get(id.0 as usize)
    }

    fn policy_of(&self, rule: usize) -> Option<PolicyId> {
        Some(self.rules.get(rule)?.place.policy)
    }

    fn rank_of(&self, rule: usize) -> Option<PolicyRank> {
        Some(self.policy(self.policy_of(rule)?)?.rank)
    }

    fn action(&self, rule: usize) -> Option<Action> {
        Some(self.rules.get(rule)?.action)
    }

    /// The matching rules of a tier, in order (1.2).
    fn in_order(&self, of: Tier, mask: Mask, variation: &Variation) -> Vec<usize> {
        let mut rules: Vec<usize> = (0..self.rules.len())
            .filter(|at| mask & !variation.rules & 1 << at != 0)
            .filter(|at| self.rank_of(*at).and_then(tier) == Some(of))
            .filter(|at| {
                let policy = self.policy_of(*at);
                policy.is_none_or(|it| !variation.policies.contains(&it))
            })
            .collect();
        let key = |at: &usize| {
            let rule = self.rules.get(*at)?;
            let id = match variation.swapped {
                Some((a, b)) if a == rule.place.policy => b,
                Some((a, b)) if b == rule.place.policy => a,
                Some(_) | None => rule.place.policy,
            };
            let policy = self.policy(id)?;
            let (class, priority) = match policy.rank {
                PolicyRank::EarlyAdmin => (u8::from(rule.action != Action::Deny), 0),
                PolicyRank::Ordered(_, priority) => (2, priority),
                PolicyRank::DefaultGroup => (2, 1002),
                PolicyRank::NetworkPolicy => (2, 0),
            };
            let kind = policy.api;
            Some((class, priority, kind, policy.name, rule.place.index))
        };
        rules.sort_by_key(key);
        rules
    }

    /// The policies of a rank that isolate the subject of a cell.
    fn isolators(&self, cell: &Cell, place: PolicyRank, variation: &Variation) -> Vec<PolicyId> {
        let policies = (0..).map(PolicyId).zip(&self.cluster.policies);
        let isolating = policies.filter(|(id, policy)| {
            policy.rank == place
                && !policy.audited
                && policy.rules(cell.direction).isolates
                && !variation.policies.contains(id)
                && self.selects(*id, PodId(cell.subject))
        });
        isolating.map(|it| it.0).collect()
    }

    /// The first match of the Baseline tier. Rules after the default policies count only if those
    /// do not isolate (D62).
    fn baseline(&self, cell: &Cell, variation: &Variation) -> (Option<usize>, bool) {
        let isolated = !self
            .isolators(cell, PolicyRank::DefaultGroup, variation)
            .is_empty();
        let first = self
            .in_order(Tier::Baseline, cell.mask, variation)
            .first()
            .copied();
        let is_after_default = |at: &usize| match self.rank_of(*at) {
            Some(PolicyRank::Ordered(_, priority)) => priority > 1002,
            Some(_) | None => false,
        };
        (
            first.filter(|at| !(isolated && is_after_default(at))),
            isolated,
        )
    }

    fn decide(&self, cell: &Cell, variation: &Variation) -> Decided {
        let admin = self
            .in_order(Tier::Admin, cell.mask, variation)
            .first()
            .copied();
        let mut decided = Decided {
            verdict: Verdict::Allow,
            admin,
            baseline: None,
        };
        match admin.and_then(|at| self.action(at)) {
            Some(Action::Accept) => return decided,
            Some(Action::Deny) => {
                decided.verdict = Verdict::Deny;
                return decided;
            }
            Some(Action::Pass) | None => {}
        }
        if !self
            .isolators(cell, PolicyRank::NetworkPolicy, variation)
            .is_empty()
        {
            let allowed = (0..self.rules.len()).any(|at| {
                cell.mask & !variation.rules & 1 << at != 0
                    && self.rank_of(at) == Some(PolicyRank::NetworkPolicy)
                    && self
                        .policy_of(at)
                        .is_some_and(|it| !variation.policies.contains(&it))
            });
            if !allowed {
                decided.verdict = Verdict::Deny;
            }
            return decided;
        }
        let (first, isolated) = self.baseline(cell, variation);
        decided.baseline = first;
        decided.verdict = match first.and_then(|at| self.action(at)) {
            Some(Action::Accept | Action::Pass) => Verdict::Allow,
            Some(Action::Deny) => Verdict::Deny,
            None if isolated => Verdict::Deny,
            None => Verdict::Allow,
        };
        decided
    }

    fn verdict(&self, cell: &Cell, variation: &Variation) -> Verdict {
        self.decide(cell, variation).verdict
    }

    /// Whether a rule can have findings.
    fn is_reportable(&self, rule: usize) -> bool {
        let policy = self.policy_of(rule).and_then(|it| self.policy(it));
        self.rules.get(rule).is_some_and(|it| !it.failed_closed)
            && policy.is_some_and(|it| !it.name.starts_with('('))
    }

    fn cells_of(&self, rule: usize) -> impl Iterator<Item = &Cell> {
        self.cells
            .iter()
            .filter(move |cell| cell.mask & 1 << rule != 0)
    }

    fn decider(&self, rule: usize) -> Option<Decider> {
        Some(Decider::Rule(self.rules.get(rule)?.place))
    }

    /// The expected findings.
    pub(super) fn expected(&self) -> Expected {
        let mut expected = Expected::new();
        self.ordered(&mut expected);
        self.passes(&mut expected);
        self.overridden(&mut expected);
        self.redundant(&mut expected);
        self.ties(&mut expected);
        self.selectors(&mut expected);
        expected
    }

    fn ordered(&self, expected: &mut Expected) {
        let none = Variation::default();
        let mut decides: BTreeSet<usize> = BTreeSet::new();
        let mut first: BTreeSet<usize> = BTreeSet::new();
        for cell in &self.cells {
            let decided = self.decide(cell, &none);
            decides.extend(decided.admin);
            decides.extend(decided.baseline);
            first.extend(decided.admin);
            let (baseline, _) = self.baseline(cell, &none);
            first.extend(baseline);
            // Default policies are a union.
            if baseline.and_then(|at| self.rank_of(at)) == Some(PolicyRank::DefaultGroup) {
                let rules = self.in_order(Tier::Baseline, cell.mask, &none).into_iter();
                let group = rules.filter(|at| self.rank_of(*at) == Some(PolicyRank::DefaultGroup));
                first.extend(group);
            }
        }
        let mut unreachable: BTreeMap<PolicyId, (bool, bool)> = BTreeMap::new();
        for at in 0..self.rules.len() {
            let (Some(place), Some(policy)) = (self.rank_of(at), self.policy_of(at)) else {
                continue;
            };
            if tier(place).is_some() && place != PolicyRank::DefaultGroup {
                let it = unreachable.entry(policy).or_default();
                it.0 |= self.cells_of(at).next().is_some();
                it.1 |= decides.contains(&at);
            }
        }
        unreachable.retain(|id, (matched, decides)| {
            let rules = self.policy(*id).into_iter().flat_map(|policy| {
                let lists = Direction::BOTH.into_iter();
                lists.flat_map(|it| &policy.rules(it).list)
            });
            *matched && !*decides && rules.into_iter().all(|it| !it.failed_closed)
        });
        for id in unreachable.keys() {
            expected.insert((Code::Unreachable, FindingTarget::Policy(*id)), None);
        }
        for (at, rule) in self.rules.iter().enumerate() {
            let Some(own_tier) = self.rank_of(at).and_then(tier) else {
                continue;
            };
            if first.contains(&at)
                || self.cells_of(at).next().is_none()
                || unreachable.contains_key(&rule.place.policy)
                || !self.is_reportable(at)
            {
                continue;
            }
            let mut by = BTreeSet::new();
            for cell in self.cells_of(at) {
                let first = match own_tier {
                    Tier::Admin => self.in_order(own_tier, cell.mask, &none).first().copied(),
                    Tier::Baseline => self.baseline(cell, &none).0,
                };
                match first {
                    Some(first) => by.extend(self.decider(first)),
                    None => {
                        let policies = self.isolators(cell, PolicyRank::DefaultGroup, &none);
                        let policies = policies.into_iter().take(1);
                        by.extend(policies.map(|it| Decider::Isolation(it, cell.direction)));
                    }
                }
            }
            expected.insert((Code::Shadowed, FindingTarget::Rule(rule.place)), Some(by));
        }
    }

    fn passes(&self, expected: &mut Expected) {
        let none = Variation::default();
        for (at, rule) in self.rules.iter().enumerate() {
            if rule.action != Action::Pass || !self.is_reportable(at) {
                continue;
            }
            let without = Variation {
                rules: 1 << at,
                ..Variation::default()
            };
            let mut decides = false;
            let mut same = true;
            for cell in self.cells_of(at) {
                let decided = self.decide(cell, &none);
                if decided.admin == Some(at) || decided.baseline == Some(at) {
                    decides = true;
                    same &= self.verdict(cell, &without) == decided.verdict;
                }
            }
            if decides && same {
                expected.insert(
                    (Code::PassNoEffect, FindingTarget::Rule(rule.place)),
                    Some(BTreeSet::new()),
                );
            }
        }
    }

    fn overridden(&self, expected: &mut Expected) {
        let none = Variation::default();
        for (at, rule) in self.rules.iter().enumerate() {
            if self.rank_of(at) != Some(PolicyRank::NetworkPolicy) || !self.is_reportable(at) {
                continue;
            }
            let mut by = BTreeSet::new();
            let (mut decided, mut denied, mut n) = (true, false, 0);
            for cell in self.cells_of(at) {
                n += 1;
                let first = self
                    .in_order(Tier::Admin, cell.mask, &none)
                    .first()
                    .copied();
                match first.and_then(|it| self.action(it)) {
                    Some(Action::Accept) => {}
                    Some(Action::Deny) => denied = true,
                    Some(Action::Pass) | None => {
                        decided = false;
                        continue;
                    }
                }
                by.extend(first.and_then(|it| self.decider(it)));
            }
            if n > 0 && decided {
                expected.insert(
                    (Code::Overridden, FindingTarget::Rule(rule.place)),
                    Some(by),
                );
            } else if denied {
                expected.insert(
                    (Code::OverriddenPartly, FindingTarget::Rule(rule.place)),
                    None,
                );
            }
        }
    }

    fn redundant(&self, expected: &mut Expected) {
        let order = |policy: &Policy<'_>| {
            let namespace = policy.namespace.map(|it| it.0);
            (namespace, policy.name.to_owned(), policy.api)
        };
        let mut variation = Variation::default();
        let mut policies: Vec<PolicyId> = Vec::new();
        for (id, policy) in (0..).map(PolicyId).zip(&self.cluster.policies) {
            let isolates = self.cells.iter().any(|cell| {
                let none = Variation::default();
                self.isolators(cell, PolicyRank::NetworkPolicy, &none)
                    .contains(&id)
            });
            if isolates && !policy.name.starts_with('(') {
                policies.push(id);
            }
        }
        policies.sort_by_key(|id| self.policy(*id).map(order));
        let none = Variation::default();
        for id in policies.into_iter().rev() {
            let without = |variation: &Variation| {
                let mut without = variation.clone();
                without.policies.insert(id);
                without
            };
            let is_same = |before: &Variation| {
                let after = without(before);
                let mut cells = self.cells.iter();
                cells.all(|it| self.verdict(it, before) == self.verdict(it, &after))
            };
            // It can be removed alone, and together with those removed before it.
            if is_same(&none) && is_same(&variation) {
                variation = without(&variation);
                expected.insert((Code::RedundantPolicy, FindingTarget::Policy(id)), None);
            }
        }
        let mut rules: Vec<usize> = (0..self.rules.len())
            .filter(|at| self.rank_of(*at) == Some(PolicyRank::NetworkPolicy))
            .filter(|at| self.is_reportable(*at) && self.cells_of(*at).next().is_some())
            .filter(|at| {
                self.policy_of(*at)
                    .is_some_and(|it| !variation.policies.contains(&it))
            })
            .collect();
        rules.sort_by_key(|at| {
            let place = self.rules.get(*at).map(|it| it.place);
            let policy = place.and_then(|it| self.policy(it.policy));
            (policy.map(order), place.map(|it| (it.direction, it.index)))
        });
        for at in rules.into_iter().rev() {
            let is_covered = self.cells_of(at).all(|cell| {
                (0..self.rules.len()).any(|other| {
                    other != at
                        && cell.mask & !variation.rules & 1 << other != 0
                        && self.rank_of(other) == Some(PolicyRank::NetworkPolicy)
                        && self
                            .policy_of(other)
                            .is_some_and(|it| !variation.policies.contains(&it))
                })
            });
            if let (true, Some(rule)) = (is_covered, self.rules.get(at)) {
                variation.rules |= 1 << at;
                expected.insert((Code::RedundantRule, FindingTarget::Rule(rule.place)), None);
            }
        }
    }

    fn ties(&self, expected: &mut Expected) {
        let tied = |policy: &Policy<'_>| {
            matches!(policy.api, PolicyApi::Cluster | PolicyApi::Admin)
                && !policy.audited
                && policy.subject.is_some()
        };
        let mut groups: BTreeMap<PolicyRank, Vec<PolicyId>> = BTreeMap::new();
        for (id, policy) in (0..).map(PolicyId).zip(&self.cluster.policies) {
            if tied(policy) {
                groups.entry(policy.rank).or_default().push(id);
            }
        }
        for mut group in groups.into_values().filter(|it| it.len() > 1) {
            group.sort_by_key(|id| self.policy(*id).map(|it| (it.api, it.name)));
            let mut found = false;
            for (at, a) in group.iter().enumerate() {
                for b in group.iter().skip(at + 1) {
                    let others = group.iter().copied().filter(|it| it != a && it != b);
                    let before = Variation {
                        policies: others.collect(),
                        ..Variation::default()
                    };
                    let after = Variation {
                        swapped: Some((*a, *b)),
                        ..before.clone()
                    };
                    let mut cells = self.cells.iter();
                    let key =
                        if cells.any(|it| self.verdict(it, &before) != self.verdict(it, &after)) {
                            Code::TieConflict
                        } else if self.can_overlap(*a, *b) {
                            Code::TieOverlap
                        } else {
                            continue;
                        };
                    found = true;
                    // A pair is reported at its first policy.
                    let names = BTreeSet::from([*a, *b]);
                    let at = FindingTarget::Policy(*a);
                    let deciders = names
                        .into_iter()
                        .map(|it| Decider::Isolation(it, Direction::Ingress));
                    let known = expected.entry((key, at)).or_insert(Some(BTreeSet::new()));
                    if let Some(known) = known {
                        known.extend(deciders);
                    }
                }
            }
            if let (false, Some(first)) = (found, group.first()) {
                expected.insert((Code::Tie, FindingTarget::Policy(*first)), None);
            }
        }
    }

    /// Whether both policies select some labels of namespace and pod.
    fn can_overlap(&self, a: PolicyId, b: PolicyId) -> bool {
        let sets = [a, b].map(|id| self.policy(id).and_then(|it| it.subject.as_ref()));
        let [Some(a), Some(b)] = sets else {
            return false;
        };
        has_member(&[a, b])
    }

    fn selectors(&self, expected: &mut Expected) {
        let cluster = self.cluster;
        let mut add = |code, at| {
            expected.insert((code, at), None);
        };
        let pods = || (0..).map(PodId).take(cluster.pods.len());
        for (id, policy) in (0..).map(PolicyId).zip(&cluster.policies) {
            let Some(subject) = &policy.subject else {
                continue;
            };
            if policy.name.starts_with('(') {
                continue;
            }
            let selected: Vec<PodId> = pods().filter(|pod| self.selects(id, *pod)).collect();
            if !has_member(&[subject]) {
                add(Code::NeverMatches, FindingTarget::Subject(id));
            } else if selected.is_empty() && !cluster.pods.is_empty() {
                add(Code::SelectsNothing, FindingTarget::Subject(id));
            }
            for direction in Direction::BOTH {
                let rules = policy.rules(direction);
                let union = matches!(
                    policy.rank,
                    PolicyRank::NetworkPolicy | PolicyRank::DefaultGroup
                );
                if union && !rules.isolates {
                    continue;
                }
                for (index, rule) in (0..).zip(&rules.list) {
                    let effect = rule.effect.as_ref().filter(|_| !rule.failed_closed);
                    let place = RulePlace {
                        policy: id,
                        direction,
                        index,
                    };
                    let peers = effect
                        .and_then(|it| it.peers.as_ref())
                        .into_iter()
                        .flatten();
                    for (peer, at) in peers.zip(0..) {
                        let at = FindingTarget::Peer(place, at);
                        match peer {
                            Peer::Pods(set) if !has_member(&[set]) => add(Code::NeverMatches, at),
                            Peer::Nodes(it) if !is_possible(&[it], false) => {
                                add(Code::NeverMatches, at);
                            }
                            Peer::Pods(set) if !cluster.pods.is_empty() => {
                                let is_relative = !matches!(
                                    set.namespaces,
                                    NamespaceSet::Exact(_) | NamespaceSet::Selected { .. }
                                );
                                let none = [None];
                                let some: Vec<Option<PodId>> =
                                    selected.iter().copied().map(Some).collect();
                                let seen_from = if is_relative {
                                    some.as_slice()
                                } else {
                                    &none[..]
                                };
                                let matches = seen_from
                                    .iter()
                                    .any(|it| pods().any(|pod| self.is_in(set, pod, *it)));
                                if !matches && !seen_from.is_empty() {
                                    add(Code::PeerMatchesNothing, at);
                                }
                            }
                            Peer::Nodes(it) if !cluster.pods.is_empty() => {
                                let mut nodes = cluster.nodes.iter().filter(|it| it.has_object);
                                let is_any = nodes.clone().next().is_some();
                                let matches =
                                    nodes.any(|node| it.matches(|key| label(&node.labels, key)));
                                if is_any && !matches {
                                    add(Code::PeerMatchesNothing, at);
                                }
                            }
                            Peer::Pods(_)
                            | Peer::Nodes(_)
                            | Peer::Block { .. }
                            | Peer::Domains(_)
                            | Peer::All => {}
                        }
                    }
                }
            }
        }
    }
}

/// Whether a pod can be in all sets.
fn has_member(sets: &[&PodSet<'_>]) -> bool {
    let pods: Vec<&Selector<&str>> = sets.iter().filter_map(|it| it.pods.as_ref()).collect();
    let namespaces = try_labels(&mut keys_of(sets), &mut Vec::new(), true, &|label_of| {
        sets.iter().all(|set| match &set.namespaces {
            NamespaceSet::Selected { selector, except } => {
                selector.matches(label_of) && !except.iter().any(|it| it.matches(label_of))
            }
            NamespaceSet::Exact(_)
            | NamespaceSet::Own
            | NamespaceSet::NotOwn
            | NamespaceSet::SameLabels(_)
            | NamespaceSet::NotSameLabels(_) => true,
        })
    });
    namespaces && is_possible(&pods, false)
}

type LabelOf<'h, 'l> = &'h dyn Fn(&str) -> Option<&'l str>;

/// Whether some labels match all selectors.
fn is_possible(selectors: &[&Selector<&str>], of_namespace: bool) -> bool {
    let mut keys = BTreeMap::new();
    selectors.iter().for_each(|it| collect_keys(it, &mut keys));
    let mut keys: Vec<_> = keys.into_iter().collect();
    try_labels(&mut keys, &mut Vec::new(), of_namespace, &|label_of| {
        selectors.iter().all(|it| it.matches(label_of))
    })
}

type Keys<'s> = Vec<(&'s str, BTreeSet<&'s str>)>;

fn collect_keys<'s>(selector: &Selector<&'s str>, keys: &mut BTreeMap<&'s str, BTreeSet<&'s str>>) {
    for it in &selector.requirements {
        keys.entry(it.key).or_default().extend(&it.values);
    }
}

fn keys_of<'s>(sets: &[&PodSet<'s>]) -> Keys<'s> {
    let mut keys = BTreeMap::new();
    for set in sets {
        if let NamespaceSet::Selected { selector, except } = &set.namespaces {
            except
                .iter()
                .chain([selector])
                .for_each(|it| collect_keys(it, &mut keys));
        }
    }
    keys.into_iter().collect()
}

/// Tries every value of every key: none, each named one, and another.
fn try_labels<'s>(
    keys: &mut Keys<'s>,
    labels: &mut Vec<(&'s str, Option<&'s str>)>,
    of_namespace: bool,
    fits: &dyn Fn(LabelOf<'_, 's>) -> bool,
) -> bool {
    let Some((key, values)) = keys.pop() else {
        let label_of = |key: &str| {
            let found = labels.iter().find(|it| it.0 == key);
            found.and_then(|it| it.1)
        };
        return fits(&label_of);
    };
    let is_name = of_namespace && key == "kubernetes.io/metadata.name";
    let could_be = |value: &Option<&str>| match value {
        None => !is_name,
        Some(it) => {
            let plain = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit();
            !is_name
                || (it.len() <= 63
                    && it.chars().all(|it| plain(it) || it == '-')
                    && it.starts_with(plain)
                    && it.ends_with(plain))
        }
    };
    let all = values
        .iter()
        .copied()
        .map(Some)
        .chain([None, Some("another0value")]);
    let mut found = false;
    for value in all.filter(could_be) {
        labels.push((key, value));
        found = found || try_labels(keys, labels, of_namespace, fits);
        labels.pop();
    }
    keys.push((key, values));
    found
}
