//! The rules and isolations that decide in place of a rule that never does.

use std::collections::BTreeSet;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::DirectionSpace;
use super::flow_space::FlowSpace;
use super::fold::{Planes, Step, Visit, both, fold};
use super::partitions::Group;
use super::walk::cut_after;
use crate::analysis::affect::Decider;
use crate::analysis::connect::bits::Words;
use crate::model::PolicyId;
use crate::policy::{Action, Direction, Tier};
use crate::program::{IsolationId, NONE, RuleId};

/// The tiers to search for rules that decide in place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Within {
    /// The tier of the rule.
    Tier,
    /// The Admin tier, for a rule of a union.
    Admin,
    /// The tier of the rule and all earlier ones.
    Everything,
}

/// The maximum number of deciders to collect for one rule. More would not help a reader, and a
/// search for all would take longer than the rest of the lint.
const MAX_DECIDERS: usize = 16;

/// Rules that never decide, and the deciders found for each.
#[derive(Debug, Default)]
pub(super) struct DeciderSearch {
    within: FxHashMap<RuleId, Within>,
    by: FxHashMap<RuleId, BTreeSet<Decider>>,
}

impl DeciderSearch {
    /// Adds a rule to search deciders for.
    pub(super) fn watch(&mut self, rule: RuleId, within: Within) {
        self.within.insert(rule, within);
    }

    /// Returns the deciders found for a rule.
    pub(super) fn by(&self, rule: RuleId) -> impl Iterator<Item = Decider> + '_ {
        self.by.get(&rule).into_iter().flatten().copied()
    }

    fn add(&mut self, rule: RuleId, part: Decider) {
        let known = self.by.entry(rule).or_default();
        known.insert(part);
        // A full rule is no longer watched, so later groups do not fold its flows.
        if known.len() >= MAX_DECIDERS {
            self.within.remove(&rule);
        }
    }

    /// Whether a rule is still watched and does not have this decider yet.
    fn may_add(&self, rule: RuleId, part: Decider) -> bool {
        let known = self.by.get(&rule);
        self.within.contains_key(&rule) && !known.is_some_and(|it| it.contains(&part))
    }

    fn is(&self, rule: RuleId, withins: &[Within]) -> bool {
        let within = self.within.get(&rule);
        within.is_some_and(|it| withins.contains(it))
    }

    /// Returns the steps that are watched within one of `withins`.
    fn of<'s, 'f>(&self, steps: &'s [Step<'f>], withins: &[Within]) -> Vec<&'s Step<'f>> {
        let steps = steps.iter();
        steps.filter(|it| self.is(it.rule, withins)).collect()
    }

    /// Searches the flows of all groups, which must be sorted by their Admin part.
    pub(super) fn search(&mut self, sides: &[DirectionSpace<'_>]) {
        if self.within.is_empty() {
            return;
        }
        // A rule belongs to one direction, so the results of the two do not overlap.
        let found: Vec<DeciderSearch> = sides
            .par_iter()
            .map(|side| {
                let mut search = DeciderSearch {
                    within: self.within.clone(),
                    by: FxHashMap::default(),
                };
                let is_alike = |a: &Group, b: &Group| a.admin_part() == b.admin_part();
                for groups in side.groups.chunk_by(is_alike) {
                    search.admin(&side.flows, groups);
                    for group in groups {
                        search.search_group(&side.flows, group);
                    }
                }
                search
            })
            .collect();
        for it in found {
            self.by.extend(it.by);
        }
    }

    /// Searches the Admin tier for deciders of its own rules, for groups with the same Admin part.
    fn admin(&mut self, flows: &FlowSpace<'_>, groups: &[Group]) {
        let Some(first) = groups.first() else {
            return;
        };
        // Before the partitions are made: most groups have no watched rule, and making them costs
        // more than this test.
        let has = |id: RuleId| self.is(id, &[Within::Tier]);
        if !flows
            .rules_of(Tier::Admin, first.admin)
            .any(|(_, id)| has(id))
        {
            return;
        }
        for partition in flows.partitions(groups) {
            let apart = flows.excluded(groups, &partition);
            let steps = flows.tier(&partition, Tier::Admin, first.admin);
            let own = self.of(&steps, &[Within::Tier]);
            for (columns, keys) in partition.parts(&apart, partition.all_columns()) {
                let keys = region(&keys, own.iter());
                let mut recorder = DeciderRecorder {
                    watched: self,
                    steps: &steps,
                    own: &own,
                    behind: &[],
                    ends: Vec::new(),
                };
                fold(&steps, columns, Planes::new(keys), &mut recorder);
            }
        }
    }

    /// Searches the flows of one group for deciders of rules of its union and of the Baseline tier.
    fn search_group(&mut self, flows: &FlowSpace<'_>, group: &Group) {
        use Within::{Admin, Everything, Tier as Own};
        let has = |id: RuleId| self.within.contains_key(&id);
        let mut ordered = flows.rules_of(Tier::Baseline, group.baseline);
        let union = flows.union_of(group.union);
        let mut of_union = union.into_iter().flat_map(|it| it.rules.iter());
        if !ordered.any(|(_, id)| has(id)) && !of_union.any(|id| has(*id)) {
            return;
        }
        let one = std::slice::from_ref(group);
        let is_isolated = group.default_isolation != NONE;
        for partition in flows.partitions(one) {
            let apart = flows.excluded(one, &partition);
            let admin = flows.tier(&partition, Tier::Admin, group.admin);
            let union = flows.union(&partition, group.union);
            let all_of_baseline = flows.tier(&partition, Tier::Baseline, group.baseline);
            let mut baseline = flows.tier(&partition, Tier::Baseline, group.baseline);
            cut_after(flows, &mut baseline, is_isolated);
            // From all rules of the tier: one behind the default policies is watched too, and these
            // decide in its place.
            let later = self.of(&all_of_baseline, &[Everything]);
            let mut before = self.of(&union, &[Admin]);
            before.extend(later.iter().copied());
            let in_baseline = self.of(&all_of_baseline, &[Own]);
            for (columns, keys) in partition.parts(&apart, partition.all_columns()) {
                let keys = region(&keys, before.iter().chain(&in_baseline));
                if !before.is_empty() {
                    let mut recorder = DeciderRecorder {
                        watched: self,
                        steps: &admin,
                        own: &[],
                        behind: &before,
                        ends: Vec::new(),
                    };
                    fold(
                        &admin,
                        columns.clone(),
                        Planes::new(keys.clone()),
                        &mut recorder,
                    );
                    for (columns, planes) in recorder.ends {
                        let rest = planes.rest();
                        if group.union == NONE {
                            self.tier(flows, group, &baseline, &later, (&columns, rest));
                        } else {
                            self.isolation(flows, group, &later, (&columns, &rest));
                        }
                    }
                }
                if !in_baseline.is_empty() {
                    self.tier(flows, group, &baseline, &in_baseline, (&columns, keys));
                }
            }
        }
    }

    /// Searches the Baseline tier for deciders of `own`, for the keys that reach it.
    fn tier(
        &mut self,
        flows: &FlowSpace<'_>,
        group: &Group,
        baseline: &[Step<'_>],
        own: &[&Step<'_>],
        (columns, keys): (&[u32], Words),
    ) {
        let mut recorder = DeciderRecorder {
            watched: self,
            steps: baseline,
            own,
            behind: &[],
            ends: Vec::new(),
        };
        fold(baseline, columns.to_vec(), Planes::new(keys), &mut recorder);
        if group.default_isolation == NONE {
            return;
        }
        let isolating = flows
            .context
            .program
            .isolation(IsolationId(group.default_isolation));
        for (columns, planes) in recorder.ends {
            self.isolated(own, &columns, &planes.open, isolating, flows.direction);
        }
    }

    /// Adds an isolation for the rules of `later` whose keys NetworkPolicies decide: flows of a pod
    /// that they isolate never reach the Baseline tier (D12).
    fn isolation(
        &mut self,
        flows: &FlowSpace<'_>,
        group: &Group,
        later: &[&Step<'_>],
        (columns, rest): (&[u32], &[u64]),
    ) {
        if let Some(union) = flows.union_of(group.union) {
            let isolating = flows.context.program.isolation(union.isolation);
            self.isolated(later, columns, rest, isolating, flows.direction);
        }
    }

    /// Adds one of the isolating policies for each step that matches some of the keys.
    fn isolated(
        &mut self,
        steps: &[&Step<'_>],
        columns: &[u32],
        keys: &[u64],
        isolating: &[PolicyId],
        direction: Direction,
    ) {
        for step in steps {
            if step.first_covered(columns).is_none() || step.first_hit(keys).is_none() {
                continue;
            }
            // They isolate together. One is enough for the message.
            let parts = isolating
                .iter()
                .map(|it| Decider::Isolation(*it, direction));
            let known = self.by.get(&step.rule);
            let is_known = known.is_some_and(|known| parts.clone().any(|it| known.contains(&it)));
            if let Some(part) = parts.clone().next().filter(|_| !is_known) {
                self.add(step.rule, part);
            }
        }
    }
}

/// Returns the keys that some watched rule matches. The others cannot add a decider, and a fold of
/// fewer keys ends earlier.
fn region<'s>(keys: &[u64], steps: impl Iterator<Item = &'s &'s Step<'s>>) -> Words {
    let mut region = vec![0; keys.len()];
    for step in steps {
        step.keys.add_to(&mut region, keys);
    }
    both(keys, &region)
}

/// Records which rules are the first to match flows that watched rules match.
struct DeciderRecorder<'t> {
    watched: &'t mut DeciderSearch,
    steps: &'t [Step<'t>],
    /// Watched rules of this tier, and watched rules of later tiers.
    own: &'t [&'t Step<'t>],
    behind: &'t [&'t Step<'t>],
    ends: Vec<(Vec<u32>, Planes)>,
}

impl Visit for DeciderRecorder<'_> {
    fn first(&mut self, at: usize, columns: &[u32], hits: &[u64]) {
        let Some(step) = self.steps.get(at) else {
            return;
        };
        // Pass leaves the flow to the later tiers, so it decides nothing in their place.
        let behind = self.behind.iter().filter(|_| step.action != Action::Pass);
        let part = Decider::Rule(step.place);
        for it in self.own.iter().chain(behind) {
            // The cheap tests come first: the intersection of bit sets would take most of the time.
            if it.rule != step.rule
                && self.watched.may_add(it.rule, part)
                && it.first_covered(columns).is_some()
                && it.first_hit(hits).is_some()
            {
                self.watched.add(it.rule, part);
            }
        }
    }

    fn end(&mut self, columns: &[u32], planes: &Planes) {
        self.ends.push((columns.to_vec(), planes.clone()));
    }
}
