//! The Admin tier, when few of its policies have changed.
//!
//! Every rule of the tier is a step of its own, which no other rule changes, and the steps of a class stand in the order
//! of their rules. So the steps of the changed policies are taken out of the lists that classes have, and put in as they
//! are now; the hundreds of others are not planned again.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Engine;
use super::rule_chains::StepList;
use crate::compile::{OrderKey, order};
use crate::incremental::encoded::{Title, title};
use crate::incremental::store::{Excerpt, Store};
use crate::policy::{Direction, Tier};

/// What has to be known of the policies whose rules are compared.
type Titles<'s> = FxHashMap<u32, Option<Title<'s>>>;

impl Engine {
    /// Plans what some policies of the Admin tier say to some classes, whose other tiers stay. Gives back the classes
    /// that face something else.
    pub(super) fn splice(
        &mut self,
        store: &Store,
        classes: &[u32],
        changed: &BTreeSet<u32>,
    ) -> Vec<u32> {
        let mut excerpt = Excerpt::new(store);
        for id in classes {
            excerpt.add_class(*id);
        }
        for id in changed {
            // It may be gone, or may be of another tier now.
            if store.ordered.get(id).is_some_and(Option::is_some) {
                excerpt.add_policy(*id);
            }
        }
        let outdated = self.steps_of(changed);
        let mut new = Vec::new();
        self.plan_each(store, excerpt, classes, |id, _, sheet| {
            for direction in Direction::BOTH {
                new.extend(sheet.admin(direction).map(|steps| (id, direction, steps)));
            }
        });
        let mut titles = Titles::default();
        let mut differing = Vec::new();
        for (id, direction, steps) in new {
            let Some(local) = self.local.get_mut(&id) else {
                continue;
            };
            let known = std::mem::take(&mut local.side(direction).admin);
            let spliced = self.merged(store, &known, &outdated, &steps, &mut titles);
            if spliced != known {
                differing.push(id);
            }
            if let Some(local) = self.local.get_mut(&id) {
                local.side(direction).admin = spliced;
            }
        }
        differing
    }

    /// The steps of some policies, as they are faced until now.
    fn steps_of(&self, policies: &BTreeSet<u32>) -> FxHashSet<u32> {
        let steps = self.chains.each_step().filter(|(_, step)| {
            let place = self.rules.place(step.rule.0);
            place.is_some_and(|(policy, ..)| policies.contains(&policy))
        });
        steps.map(|(id, _)| id).collect()
    }

    /// A list of steps without those that are outdated and with new ones, in the order of their rules.
    fn merged<'s>(
        &self,
        store: &'s Store,
        known: &StepList,
        outdated: &FxHashSet<u32>,
        new: &StepList,
        titles: &mut Titles<'s>,
    ) -> StepList {
        let kept = known.iter().copied().filter(|id| !outdated.contains(id));
        let mut merged: Vec<u32> = kept.collect();
        // The rules of one policy mostly stay together.
        let mut at = 0;
        for id in new.iter() {
            let place = self.precedence(store, *id, titles);
            let behind = merged.get(at..).unwrap_or_default();
            at += behind.partition_point(|it| self.precedence(store, *it, titles) < place);
            merged.insert(at.min(merged.len()), *id);
            at += 1;
        }
        if *merged == **known {
            return StepList::clone(known);
        }
        merged.into()
    }

    /// Where a step stands in its tier.
    fn precedence<'s>(
        &self,
        store: &'s Store,
        step: u32,
        titles: &mut Titles<'s>,
    ) -> Option<OrderKey<'s>> {
        let step = self.chains.step(step)?;
        let (policy, _, index) = self.rules.place(step.rule.0)?;
        let title_of = titles.entry(policy).or_insert_with(|| {
            let policy = store.policies.get(policy);
            policy.and_then(|it| title(&it.bytes))
        });
        let title = title_of.as_ref()?;
        let named = (title.generation, title.name);
        let (tier, key) = order(title.rank, named, step.action, index)?;
        (tier == Tier::Admin).then_some(key)
    }
}
