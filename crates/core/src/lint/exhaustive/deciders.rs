//! What decides instead of a rule that never does.

use std::collections::BTreeSet;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::DirectionSpace;
use super::flow_space::FlowSpace;
use super::fold::{Planes, Step, Visit, both, fold};
use super::partitions::Group;
use super::walk::cut_after;
use crate::affect::Decider;
use crate::connect::bits::Words;
use crate::model::PolicyId;
use crate::policy::{Action, Direction, Tier};
use crate::program::{IsolationId, NONE, RuleId};

/// Where what decides instead of a rule is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Within {
    /// In the rule's own tier.
    Tier,
    /// In the Admin tier, which decides before the rule is asked.
    Admin,
    /// Everywhere before the rule is asked and in its own tier.
    Everything,
}

/// So many rules are named that decide instead of one, at most: nobody reads more, and to look for all of
/// them would take longer than everything else.
const MOST: usize = 16;

/// Rules that never decide, and what does.
#[derive(Debug, Default)]
pub(super) struct DeciderSearch {
    within: FxHashMap<RuleId, Within>,
    by: FxHashMap<RuleId, BTreeSet<Decider>>,
}

impl DeciderSearch {
    pub(super) fn watch(&mut self, rule: RuleId, within: Within) {
        self.within.insert(rule, within);
    }

    /// What decides instead of a rule.
    pub(super) fn by(&self, rule: RuleId) -> impl Iterator<Item = Decider> + '_ {
        self.by.get(&rule).into_iter().flatten().copied()
    }

    fn add(&mut self, rule: RuleId, part: Decider) {
        let known = self.by.entry(rule).or_default();
        known.insert(part);
        if known.len() >= MOST {
            self.within.remove(&rule);
        }
    }

    /// Whether it would be new that this decides instead of a rule.
    fn may_add(&self, rule: RuleId, part: Decider) -> bool {
        let known = self.by.get(&rule);
        self.within.contains_key(&rule) && !known.is_some_and(|it| it.contains(&part))
    }

    fn is(&self, rule: RuleId, withins: &[Within]) -> bool {
        let within = self.within.get(&rule);
        within.is_some_and(|it| withins.contains(it))
    }

    /// The watched ones of some steps.
    fn of<'s, 'f>(&self, steps: &'s [Step<'f>], withins: &[Within]) -> Vec<&'s Step<'f>> {
        let steps = steps.iter();
        steps.filter(|it| self.is(it.rule, withins)).collect()
    }

    /// Looks at the flows of all groups, which are sorted by what the Admin tier sees of them.
    pub(super) fn look_at(&mut self, sides: &[DirectionSpace<'_>]) {
        if self.within.is_empty() {
            return;
        }
        // A rule is for one direction, so that each side finds what is its own.
        let found: Vec<DeciderSearch> = sides
            .par_iter()
            .map(|side| {
                let mut watched = DeciderSearch {
                    within: self.within.clone(),
                    by: FxHashMap::default(),
                };
                let is_alike = |a: &Group, b: &Group| a.admin_part() == b.admin_part();
                for groups in side.groups.chunk_by(is_alike) {
                    watched.admin(&side.flows, groups);
                    for group in groups {
                        watched.look(&side.flows, group);
                    }
                }
                watched
            })
            .collect();
        for it in found {
            self.by.extend(it.by);
        }
    }

    /// What the Admin tier says of its own rules, for groups that it sees alike.
    fn admin(&mut self, field: &FlowSpace<'_>, groups: &[Group]) {
        let Some(first) = groups.first() else {
            return;
        };
        let has = |id: RuleId| self.is(id, &[Within::Tier]);
        if !field
            .rules_of(Tier::Admin, first.admin)
            .any(|(_, id)| has(id))
        {
            return;
        }
        for lane in field.lanes(groups) {
            let apart = field.distinction(groups, &lane);
            let steps = field.tier(&lane, Tier::Admin, first.admin);
            let own = self.of(&steps, &[Within::Tier]);
            for (columns, keys) in lane.parts(&apart, lane.all_columns()) {
                let keys = region(&keys, own.iter());
                let mut told = DeciderRecorder {
                    watched: self,
                    steps: &steps,
                    own: &own,
                    behind: &[],
                    ends: Vec::new(),
                };
                fold(&steps, columns, Planes::new(keys), &mut told);
            }
        }
    }

    /// Looks at the flows of one group, but for what the Admin tier says of its own rules.
    fn look(&mut self, field: &FlowSpace<'_>, group: &Group) {
        use Within::{Admin, Everything, Tier as Own};
        let has = |id: RuleId| self.within.contains_key(&id);
        let mut ordered = field.rules_of(Tier::Baseline, group.baseline);
        let union = field.union_of(group.union);
        let mut of_union = union.into_iter().flat_map(|it| it.rules.iter());
        if !ordered.any(|(_, id)| has(id)) && !of_union.any(|id| has(*id)) {
            return;
        }
        let one = std::slice::from_ref(group);
        let is_isolated = group.default_isolation != NONE;
        for lane in field.lanes(one) {
            let apart = field.distinction(one, &lane);
            let admin = field.tier(&lane, Tier::Admin, group.admin);
            let union = field.union(&lane, group.union);
            let all_of_baseline = field.tier(&lane, Tier::Baseline, group.baseline);
            let mut baseline = field.tier(&lane, Tier::Baseline, group.baseline);
            cut_after(field, &mut baseline, is_isolated);
            let later = self.of(&all_of_baseline, &[Everything]);
            let mut before = self.of(&union, &[Admin]);
            before.extend(later.iter().copied());
            let in_baseline = self.of(&all_of_baseline, &[Own]);
            for (columns, keys) in lane.parts(&apart, lane.all_columns()) {
                let keys = region(&keys, before.iter().chain(&in_baseline));
                if !before.is_empty() {
                    let mut told = DeciderRecorder {
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
                        &mut told,
                    );
                    for (columns, planes) in told.ends {
                        let rest = planes.rest();
                        if group.union == NONE {
                            self.tier(field, group, &baseline, &later, (&columns, rest));
                        } else {
                            self.isolation(field, group, &later, (&columns, &rest));
                        }
                    }
                }
                if !in_baseline.is_empty() {
                    self.tier(field, group, &baseline, &in_baseline, (&columns, keys));
                }
            }
        }
    }

    /// What the Baseline tier says of what it is asked.
    fn tier(
        &mut self,
        field: &FlowSpace<'_>,
        group: &Group,
        baseline: &[Step<'_>],
        own: &[&Step<'_>],
        (columns, keys): (&[u32], Words),
    ) {
        let mut told = DeciderRecorder {
            watched: self,
            steps: baseline,
            own,
            behind: &[],
            ends: Vec::new(),
        };
        fold(baseline, columns.to_vec(), Planes::new(keys), &mut told);
        if group.default_isolation == NONE {
            return;
        }
        let isolating = field
            .context
            .program
            .isolation(IsolationId(group.default_isolation));
        for (columns, planes) in told.ends {
            self.isolated(own, &columns, &planes.open, isolating, field.direction);
        }
    }

    /// What NetworkPolicies keep from the Baseline tier.
    fn isolation(
        &mut self,
        field: &FlowSpace<'_>,
        group: &Group,
        later: &[&Step<'_>],
        (columns, rest): (&[u32], &[u64]),
    ) {
        if let Some(union) = field.union_of(group.union) {
            let isolating = field.context.program.isolation(union.isolation);
            self.isolated(later, columns, rest, isolating, field.direction);
        }
    }

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
            // One of those that isolate is enough.
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

/// Of some keys those that watched rules match: nothing else says anything about them.
fn region<'s>(keys: &[u64], steps: impl Iterator<Item = &'s &'s Step<'s>>) -> Words {
    let mut region = vec![0; keys.len()];
    for step in steps {
        step.keys.add_to(&mut region, keys);
    }
    both(keys, &region)
}

/// Notes which rules are the first to match what watched ones match.
struct DeciderRecorder<'t> {
    watched: &'t mut DeciderSearch,
    steps: &'t [Step<'t>],
    /// Watched rules of this tier, and of later ones.
    own: &'t [&'t Step<'t>],
    behind: &'t [&'t Step<'t>],
    ends: Vec<(Vec<u32>, Planes)>,
}

impl Visit for DeciderRecorder<'_> {
    fn first(&mut self, at: usize, columns: &[u32], hits: &[u64]) {
        let Some(step) = self.steps.get(at) else {
            return;
        };
        let behind = self.behind.iter().filter(|_| step.action != Action::Pass);
        let part = Decider::Rule(step.place);
        for it in self.own.iter().chain(behind) {
            // To look at what is known would take most of the time.
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
