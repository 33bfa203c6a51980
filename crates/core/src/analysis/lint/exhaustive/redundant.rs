//! NetworkPolicies and rules that can be deleted together without changing a verdict.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use super::DirectionSpace;
use super::facts::Facts;
use super::fold::{Cover, Planes, Step, Visit, both, cover, first_common, fold};
use super::partitions::Group;
use super::walk::Removal;
use crate::analysis::affect::{Decider, precedence};
use crate::model::{Cluster, PolicyId, PolicyRank};
use crate::policy::Tier;
use crate::program::{Program, RuleId, RulePlace};

/// The redundant policies and rules.
#[derive(Debug, Default)]
pub(super) struct Redundant {
    /// Policies without which every flow gets the same verdict.
    pub(super) policies: BTreeSet<PolicyId>,
    /// Rules of other policies, each with the rules that match the same flows.
    pub(super) rules: Vec<(RuleId, BTreeSet<Decider>)>,
}

/// Finds the redundant policies, then the redundant rules of the other policies.
///
/// Of objects that replace each other, the first by namespace, name and index stays.
pub(super) fn find(
    cluster: &Cluster<'_>,
    program: &Program,
    facts: &Facts,
    sides: &[DirectionSpace<'_>],
    may_report: &dyn Fn(RulePlace) -> bool,
) -> Redundant {
    // Candidates are tested one after the other, from the last to the first, each against a cluster
    // without those already found. No single removal changes a verdict, so all of them together
    // change none. Tested against the full input instead, two equal policies would each be
    // redundant, and deleting both could open the pod.
    let candidates = Candidates::new(program, facts, sides);
    let policies = candidates.redundant_policies(cluster, program, sides);
    // Rules come after policies: a rule of a removed policy needs no finding, and cannot cover
    // another. Removing covered rules changes no union, so the removed policies stay redundant.
    let is_candidate = |place| may_report(place) && !policies.contains(&place.policy);
    let rules = candidates.ordered_rules(cluster, program, &is_candidate);
    let rules = candidates.redundant_rules(rules, sides, &policies);
    Redundant { policies, rules }
}

/// A group of subjects: the index of its direction, and its own.
type GroupPlace = (usize, usize);

/// The policies and rules that the full input does not need, with the groups that they select.
struct Candidates {
    policies: FxHashMap<PolicyId, Vec<GroupPlace>>,
    rules: FxHashMap<RuleId, Vec<GroupPlace>>,
}

impl Candidates {
    fn new(program: &Program, facts: &Facts, sides: &[DirectionSpace<'_>]) -> Candidates {
        let mut policies: FxHashMap<PolicyId, Vec<GroupPlace>> = FxHashMap::default();
        let mut rules: FxHashMap<RuleId, Vec<GroupPlace>> = FxHashMap::default();
        let is_candidate = |id: RuleId| {
            let facts = facts.of(id);
            facts.is_some_and(|it| it.matched.is_some() && !it.is_alone)
        };
        for (side_at, side) in sides.iter().enumerate() {
            for (at, group) in side.groups.iter().enumerate() {
                let Some(union) = side.flows.union_of(group.union) else {
                    continue;
                };
                for policy in program.isolation(union.isolation) {
                    if facts.is_needed.get(policy.0 as usize) == Some(&false) {
                        policies.entry(*policy).or_default().push((side_at, at));
                    }
                }
                for rule in union.rules.iter().filter(|it| is_candidate(**it)) {
                    rules.entry(*rule).or_default().push((side_at, at));
                }
            }
        }
        Candidates { policies, rules }
    }

    fn redundant_policies(
        &self,
        cluster: &Cluster<'_>,
        program: &Program,
        sides: &[DirectionSpace<'_>],
    ) -> BTreeSet<PolicyId> {
        let of_policy = |id: &PolicyId| cluster.policies.get(id.0 as usize);
        let mut ordered: Vec<PolicyId> = self.policies.keys().copied().collect();
        ordered.retain(|id| of_policy(id).is_some_and(|it| !super::is_annotation(it)));
        ordered.sort_by_key(|id| of_policy(id).map(precedence));
        let mut redundant = BTreeSet::new();
        // The groups on which a policy was removed. Elsewhere the facts of the walk still hold, and
        // no fold is needed.
        let mut touched: FxHashSet<GroupPlace> = FxHashSet::default();
        for policy in ordered.into_iter().rev() {
            let places = self.policies.get(&policy).map_or(&[][..], Vec::as_slice);
            let is_needed = places.iter().any(|place| {
                let (side, group) = *place;
                touched.contains(place)
                    && is_needed(program, sides, side, group, policy, &redundant)
            });
            if !is_needed {
                touched.extend(places);
                redundant.insert(policy);
            }
        }
        redundant
    }

    /// Returns the candidates among the rules in order of precedence.
    fn ordered_rules(
        &self,
        cluster: &Cluster<'_>,
        program: &Program,
        is_candidate: &dyn Fn(RulePlace) -> bool,
    ) -> Vec<RuleId> {
        let mut rules: Vec<RuleId> = self.rules.keys().copied().collect();
        rules.retain(|id| program.place(*id).is_some_and(is_candidate));
        rules.sort_by_key(|id| {
            let place = program.place(*id);
            let policy = place.and_then(|it| cluster.policies.get(it.policy.0 as usize));
            (policy.map(precedence), place)
        });
        rules
    }

    fn redundant_rules(
        &self,
        ordered: Vec<RuleId>,
        sides: &[DirectionSpace<'_>],
        removed: &BTreeSet<PolicyId>,
    ) -> Vec<(RuleId, BTreeSet<Decider>)> {
        let mut redundant = Vec::new();
        let mut removed_rules: FxHashSet<RuleId> = FxHashSet::default();
        for rule in ordered.into_iter().rev() {
            let places = self.rules.get(&rule).map_or(&[][..], Vec::as_slice);
            let is_removed = |it: &Step<'_>| {
                removed_rules.contains(&it.rule) || removed.contains(&it.place.policy)
            };
            let mut by = BTreeSet::new();
            // The rule must be covered on every group that it selects; `by` has what covers it
            // anywhere.
            let is_covered = places.iter().all(|(side, group)| {
                let side = sides.get(*side);
                let group = side.and_then(|it| it.groups.get(*group));
                let both = side.zip(group);
                both.is_some_and(|(side, group)| {
                    is_covered(side, group, rule, &is_removed, &mut by)
                })
            });
            if is_covered {
                removed_rules.insert(rule);
                redundant.push((rule, by));
            }
        }
        // Found from the last to the first.
        redundant.reverse();
        redundant
    }
}

/// Whether some flow of a group gets another verdict without a policy, with others removed already.
fn is_needed(
    program: &Program,
    sides: &[DirectionSpace<'_>],
    side: usize,
    group: usize,
    policy: PolicyId,
    gone: &BTreeSet<PolicyId>,
) -> bool {
    let Some((side, group)) = sides
        .get(side)
        .and_then(|side| Some((side, side.groups.get(group)?)))
    else {
        return true;
    };
    let flows = &side.flows;
    let Some(union) = flows.union_of(group.union) else {
        return true;
    };
    let one = std::slice::from_ref(group);
    flows.partitions(one).iter().any(|partition| {
        let apart = flows.excluded(one, partition);
        let admin = flows.tier(partition, Tier::Admin, group.admin);
        let steps = flows.union(partition, group.union);
        let steps: Vec<Step<'_>> = steps
            .into_iter()
            .filter(|it| !gone.contains(&it.place.policy))
            .collect();
        let parts = partition.parts(&apart, partition.all_columns());
        parts.into_iter().any(|(columns, keys)| {
            let mut ends: Vec<(Vec<u32>, Planes)> = Vec::new();
            fold(&admin, columns, Planes::new(keys.clone()), &mut ends);
            ends.into_iter().any(|(columns, planes)| {
                let rest = both(&planes.rest(), &keys);
                let mut changes = false;
                cover(&steps, columns, &keys, &mut |columns: &[u32], _: &Cover| {
                    let removal = Removal {
                        flows,
                        group,
                        partition,
                        steps: &steps,
                        columns,
                        rest: &rest,
                        isolating: program.isolation(union.isolation),
                    };
                    changes |= removal.changes(policy, &|it| gone.contains(&it));
                });
                changes
            })
        })
    })
}

/// Whether other rules match every flow of a group that a rule matches. Adds them to `by`.
fn is_covered(
    side: &DirectionSpace<'_>,
    group: &Group,
    rule: RuleId,
    is_gone: &dyn Fn(&Step<'_>) -> bool,
    by: &mut BTreeSet<Decider>,
) -> bool {
    let flows = &side.flows;
    let one = std::slice::from_ref(group);
    flows.partitions(one).iter().all(|partition| {
        let apart = flows.excluded(one, partition);
        let steps = flows.union(partition, group.union);
        let (mine, others): (Vec<Step<'_>>, Vec<Step<'_>>) =
            steps.into_iter().partition(|it| it.rule == rule);
        let others: Vec<Step<'_>> = others.into_iter().filter(|it| !is_gone(it)).collect();
        let parts = partition.parts(&apart, partition.all_columns());
        parts.into_iter().all(|(columns, keys)| {
            mine.iter().all(|step| {
                let columns = columns
                    .iter()
                    .copied()
                    .filter(|it| step.covers(*it))
                    .collect();
                // A fold over the others in any order: keys that stay open are covered by none.
                let Some(hits) = step.hits(&keys) else {
                    return true;
                };
                let mut covering = Covering {
                    steps: &others,
                    by,
                    is_complete: true,
                };
                fold(&others, columns, Planes::new(hits), &mut covering);
                covering.is_complete
            })
        })
    })
}

/// Records the rules that match first, and whether they match everything.
struct Covering<'t> {
    steps: &'t [Step<'t>],
    by: &'t mut BTreeSet<Decider>,
    is_complete: bool,
}

impl Visit for Covering<'_> {
    fn first(&mut self, at: usize, _: &[u32], _: &[u64]) {
        self.by
            .extend(self.steps.get(at).map(|it| Decider::Rule(it.place)));
    }

    fn end(&mut self, columns: &[u32], planes: &Planes) {
        let is_open = first_common(&planes.open, &planes.open).is_some();
        self.is_complete &= !is_open || columns.is_empty();
    }
}

/// Whether the rules of a policy are part of a union.
pub(super) fn is_of_union(cluster: &Cluster<'_>, policy: PolicyId) -> bool {
    let policy = cluster.policies.get(policy.0 as usize);
    policy.is_some_and(|it| it.rank == PolicyRank::NetworkPolicy)
}
