//! Turns facts into findings.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use super::deciders::{DeciderSearch, Within};
use super::facts::{Cell, Facts, RuleFacts, tied};
use super::{DirectionSpace, is_annotation, possible, redundant};
use crate::analysis::affect::{Decider, Witness};
use crate::analysis::lint::{Code, Finding, FindingDetail, FindingTarget};
use crate::model::{Cluster, PolicyId, PolicyRank};
use crate::policy::{Action, Direction, Tier};
use crate::program::{Program, Rule, RuleId, RulePlace, direction_index};

/// The rules that earlier rules of their policy always cover, each with those rules.
type Always = [(RulePlace, BTreeSet<RulePlace>)];

fn finding(code: Code, at: FindingTarget) -> Finding {
    Finding {
        code,
        at,
        by: Vec::new(),
        witness: None,
        always: false,
        detail: FindingDetail::Nothing,
    }
}

fn witness(
    sides: &[DirectionSpace<'_>],
    direction: Direction,
    cell: Option<Cell>,
) -> Option<Witness> {
    let side = sides.get(direction_index(direction))?;
    side.flows.witness(&side.groups, &cell?)
}

/// Whether to report findings about a rule: not for a rule that fails closed, which has a problem
/// of its own, nor for the isolation by an annotation, which is no rule of an object.
fn may_report(cluster: &Cluster<'_>, place: RulePlace) -> bool {
    let policy = cluster.policies.get(place.policy.0 as usize);
    policy.is_some_and(|it| {
        let rule = it.rules(place.direction).list.get(place.index as usize);
        !is_annotation(it) && rule.is_some_and(|rule| !rule.failed_closed)
    })
}

/// Reports policies that share a tier and a priority, with the most severe finding for each pair.
pub(super) fn ties(
    cluster: &Cluster<'_>,
    program: &Program,
    facts: &Facts,
    sides: &[DirectionSpace<'_>],
    findings: &mut Vec<Finding>,
) {
    let subject = |id: PolicyId| cluster.policies.get(id.0 as usize)?.subject.as_ref();
    for group in tied(cluster) {
        let before = findings.len();
        for (at, first) in group.iter().enumerate() {
            for second in group.iter().skip(at + 1) {
                let tie = facts.tie_of.get(&(*first, *second));
                let tie = tie.and_then(|it| facts.ties.get(*it));
                let others = FindingDetail::Others(vec![FindingTarget::Policy(*second)]);
                if let Some((direction, cell)) = tie.and_then(|it| it.conflict) {
                    let witness = witness(sides, direction, Some(cell));
                    let side = sides.get(direction_index(direction));
                    let by = [first, second].into_iter().filter_map(|policy| {
                        let rules = rules_of(program, *policy, direction);
                        let rule = side?.flows.first_of(&rules, witness.as_ref()?)?;
                        Some(Decider::Rule(program.place(rule)?))
                    });
                    let mut by: Vec<Decider> = by.collect();
                    by.sort_unstable();
                    findings.push(Finding {
                        by,
                        witness,
                        detail: others,
                        ..finding(Code::TieConflict, FindingTarget::Policy(*first))
                    });
                    continue;
                }
                // Pods come and go, so an overlap is decided from the selectors and not from the
                // pods of the input. It therefore holds always.
                let subjects = subject(*first).zip(subject(*second));
                if subjects.is_some_and(|(a, b)| possible::can_meet(a, b)) {
                    findings.push(Finding {
                        always: true,
                        detail: others,
                        ..finding(Code::TieOverlap, FindingTarget::Policy(*first))
                    });
                }
            }
        }
        // One `TIE` for the whole group, and only if no pair of it has a more severe finding.
        let (Some((first, others)), true) = (group.split_first(), findings.len() == before) else {
            continue;
        };
        findings.push(Finding {
            always: true,
            detail: FindingDetail::Others(
                others.iter().copied().map(FindingTarget::Policy).collect(),
            ),
            ..finding(Code::Tie, FindingTarget::Policy(*first))
        });
    }
}

/// Returns the rules of a policy for a direction, in order.
fn rules_of(program: &Program, policy: PolicyId, direction: Direction) -> Vec<RuleId> {
    let rules = (0..).map(RuleId).zip(&program.rules);
    let rules = rules.filter(|(_, it)| it.place.policy == policy);
    let rules = rules.filter(|(_, it)| it.place.direction == direction);
    let mut rules: Vec<(u32, RuleId)> = rules.map(|(id, it)| (it.place.index, id)).collect();
    rules.sort_unstable();
    rules.into_iter().map(|it| it.1).collect()
}

/// Reports the rules that are always covered, for an input without flows.
pub(super) fn always(cluster: &Cluster<'_>, always: &Always, findings: &mut Vec<Finding>) {
    for (place, by) in always.iter().filter(|it| may_report(cluster, it.0)) {
        findings.push(Finding {
            by: by.iter().copied().map(Decider::Rule).collect(),
            always: true,
            ..finding(Code::Shadowed, FindingTarget::Rule(*place))
        });
    }
}

/// Reports on rules and policies of the ordered tiers: shadowed, unreachable, Pass without effect.
pub(super) fn ordered(
    cluster: &Cluster<'_>,
    program: &Program,
    facts: &Facts,
    sides: &[DirectionSpace<'_>],
    always: &Always,
    findings: &mut Vec<Finding>,
) {
    let mut report = OrderedReport {
        cluster,
        program,
        facts,
        sides,
        always: always.iter().map(|(place, by)| (*place, by)).collect(),
        unreachable: FxHashMap::default(),
        shadowed: Vec::new(),
        deciders: DeciderSearch::default(),
    };
    report.find_unreachable();
    report.find_shadowed();
    report.search_deciders();
    report.report_shadowed(findings);
    report.report_unreachable(findings);
    report.report_passes(findings);
}

/// The rules of the ordered tiers, and those of them with a finding.
struct OrderedReport<'r> {
    cluster: &'r Cluster<'r>,
    program: &'r Program,
    facts: &'r Facts,
    sides: &'r [DirectionSpace<'r>],
    always: FxHashMap<RulePlace, &'r BTreeSet<RulePlace>>,
    /// The policies of which no rule decides a flow, with their rules that match some.
    unreachable: FxHashMap<PolicyId, Vec<RuleId>>,
    shadowed: Vec<RuleId>,
    /// Finds what decides the flows of these rules.
    deciders: DeciderSearch,
}

impl<'r> OrderedReport<'r> {
    fn rank(&self, policy: PolicyId) -> Option<PolicyRank> {
        let policy = self.cluster.policies.get(policy.0 as usize);
        policy.map(|it| it.rank)
    }

    fn rules(&self) -> impl Iterator<Item = (RuleId, &'r Rule, &'r RuleFacts)> + use<'_, 'r> {
        let rules = (0..).map(RuleId).zip(&self.program.rules);
        let rules = rules.zip(&self.facts.rules);
        let rules = rules.map(|((id, rule), facts)| (id, rule, facts));
        rules.filter(|(_, rule, _)| self.rank(rule.place.policy) != Some(PolicyRank::NetworkPolicy))
    }

    fn find_unreachable(&mut self) {
        let mut unreachable: FxHashMap<PolicyId, Vec<RuleId>> = FxHashMap::default();
        let mut reached: FxHashSet<PolicyId> = FxHashSet::default();
        for (id, rule, facts) in self.rules() {
            let policy = rule.place.policy;
            // A default policy isolates, so it has an effect even if none of its rules decides
            // (D62).
            let is_default = self.rank(policy) == Some(PolicyRank::DefaultGroup);
            // One rule that decides, or that cannot be reported, keeps its policy from being
            // unreachable.
            if facts.decides.is_some() || is_default || !may_report(self.cluster, rule.place) {
                reached.insert(policy);
            } else if facts.matched.is_some() {
                unreachable.entry(policy).or_default().push(id);
            }
        }
        // Only if every rule is known to be without effect: one that fails closed denies instead.
        unreachable.retain(|policy, _| {
            let policy_is_readable =
                self.cluster
                    .policies
                    .get(policy.0 as usize)
                    .is_some_and(|it| {
                        let rules = Direction::BOTH.into_iter().flat_map(|d| &it.rules(d).list);
                        rules.into_iter().all(|rule| !rule.failed_closed)
                    });
            !reached.contains(policy) && policy_is_readable
        });
        self.unreachable = unreachable;
    }

    /// Finds the rules to report as shadowed, and those whose deciders a finding shows.
    fn find_shadowed(&mut self) {
        let mut deciders = DeciderSearch::default();
        let mut shadowed = Vec::new();
        for (id, rule, facts) in self.rules() {
            let is_always = self.always.contains_key(&rule.place);
            let is_unreachable = self.unreachable.contains_key(&rule.place.policy);
            let is_shadowed = facts.matched.is_some() && facts.first.is_none();
            if is_unreachable && facts.matched.is_some() {
                deciders.watch(id, Within::Everything);
            }
            let is_shown = is_always || (is_shadowed && !is_unreachable);
            if may_report(self.cluster, rule.place) && is_shown {
                shadowed.push(id);
                if is_shadowed && !is_unreachable {
                    deciders.watch(id, Within::Tier);
                }
            }
        }
        self.shadowed = shadowed;
        self.deciders = deciders;
    }

    fn search_deciders(&mut self) {
        let is_admin = |id: &RuleId| {
            let policy = self.program.place(*id).and_then(|it| self.rank(it.policy));
            policy.is_some_and(|it| match it {
                PolicyRank::EarlyAdmin | PolicyRank::Ordered(Tier::Admin, _) => true,
                PolicyRank::Ordered(Tier::Baseline, _)
                | PolicyRank::NetworkPolicy
                | PolicyRank::DefaultGroup => false,
            })
        };
        // No tier comes before the Admin tier, so the search for its rules ends in their own tier.
        let unreachable = self.unreachable.values().flatten();
        let of_admin: Vec<RuleId> = unreachable.filter(|id| is_admin(id)).copied().collect();
        for id in of_admin {
            self.deciders.watch(id, Within::Tier);
        }
        self.deciders.search(self.sides);
    }

    fn report_shadowed(&self, findings: &mut Vec<Finding>) {
        for id in &self.shadowed {
            let (Some(place), Some(facts)) = (self.program.place(*id), self.facts.of(*id)) else {
                continue;
            };
            let within = self.always.get(&place);
            let by: Vec<Decider> = match within {
                Some(by) => by.iter().copied().map(Decider::Rule).collect(),
                None => self.deciders.by(*id).collect(),
            };
            findings.push(Finding {
                by,
                witness: witness(self.sides, place.direction, facts.matched),
                always: within.is_some(),
                ..finding(Code::Shadowed, FindingTarget::Rule(place))
            });
        }
    }

    fn report_unreachable(&self, findings: &mut Vec<Finding>) {
        for (policy, rules) in &self.unreachable {
            let by: BTreeSet<Decider> = rules.iter().flat_map(|id| self.deciders.by(*id)).collect();
            let first = rules
                .first()
                .and_then(|id| Some((self.program.place(*id)?, self.facts.of(*id)?)));
            findings.push(Finding {
                by: by.into_iter().collect(),
                witness: first
                    .and_then(|(at, facts)| witness(self.sides, at.direction, facts.matched)),
                ..finding(Code::Unreachable, FindingTarget::Policy(*policy))
            });
        }
    }

    fn report_passes(&self, findings: &mut Vec<Finding>) {
        for (_, rule, facts) in self.rules() {
            if rule.action == Action::Pass
                && facts.decides.is_some()
                && !facts.has_effect
                && may_report(self.cluster, rule.place)
            {
                findings.push(Finding {
                    witness: witness(self.sides, rule.place.direction, facts.decides),
                    ..finding(Code::PassNoEffect, FindingTarget::Rule(rule.place))
                });
            }
        }
    }
}

/// Reports on NetworkPolicies, which are evaluated between the ordered tiers: overridden and
/// redundant.
pub(super) fn unions(
    cluster: &Cluster<'_>,
    program: &Program,
    facts: &Facts,
    sides: &[DirectionSpace<'_>],
    findings: &mut Vec<Finding>,
) {
    let may_report = |place| may_report(cluster, place);
    let rules = || {
        let rules = (0..).map(RuleId).zip(&program.rules).zip(&facts.rules);
        rules.filter(|((_, rule), _)| {
            redundant::is_of_union(cluster, rule.place.policy) && may_report(rule.place)
        })
    };
    let mut watched = DeciderSearch::default();
    for ((id, _), facts) in rules() {
        if facts.matched.is_some() && !facts.is_reached {
            watched.watch(id, Within::Admin);
        }
    }
    watched.search(sides);
    for ((id, rule), facts) in rules() {
        let direction = rule.place.direction;
        if facts.matched.is_some() && !facts.is_reached {
            findings.push(Finding {
                by: watched.by(id).collect(),
                witness: witness(sides, direction, facts.matched),
                ..finding(Code::Overridden, FindingTarget::Rule(rule.place))
            });
        } else if facts.denied.is_some() {
            let witness = witness(sides, direction, facts.denied);
            // The engine names the rule for this flow; other flows may be denied by other rules.
            let cause = witness.map(|it| program.direction(&it.flow, direction));
            let by = cause.and_then(|it| program.place(it.rule()?));
            findings.push(Finding {
                by: by.into_iter().map(Decider::Rule).collect(),
                witness,
                detail: FindingDetail::Share(facts.share.0, facts.share.1),
                ..finding(Code::OverriddenPartly, FindingTarget::Rule(rule.place))
            });
        }
    }
    let redundant = redundant::find(cluster, program, facts, sides, &may_report);
    for policy in &redundant.policies {
        findings.push(finding(
            Code::RedundantPolicy,
            FindingTarget::Policy(*policy),
        ));
    }
    for (id, by) in redundant.rules {
        let (Some(place), Some(facts)) = (program.place(id), facts.of(id)) else {
            continue;
        };
        findings.push(Finding {
            by: by.into_iter().collect(),
            witness: witness(sides, place.direction, facts.matched),
            ..finding(Code::RedundantRule, FindingTarget::Rule(place))
        });
    }
}
