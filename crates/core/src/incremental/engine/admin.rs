//! The Admin tier, when few of its policies have changed.
//!
//! Every rule of the tier is a step of its own that does not depend on other rules, and the steps
//! of a class are in the order of their rules. The steps of changed policies are removed from the
//! lists of classes and inserted in their new form. The hundreds of others are not planned again.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Engine;
use super::rule_chains::StepList;
use crate::compile::{OrderKey, order};
use crate::incremental::encoded::{Title, title};
use crate::incremental::store::{Excerpt, Store};
use crate::policy::{Direction, Tier};

/// The titles of the policies whose rules are compared.
// Decoded once per run: to insert a step compares it with about ten others.
type Titles<'s> = FxHashMap<u32, Option<Title<'s>>>;

impl Engine {
    /// Plans some policies of the Admin tier for some classes, whose other tiers stay. Returns the
    /// classes whose steps differ.
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
            // A policy may be gone by now, or be in another tier.
            if store.ordered.get(id).is_some_and(Option::is_some) {
                excerpt.add_policy(*id);
            }
        }
        // Before planning: its new steps have the same rules, and are not outdated.
        let outdated = self.steps_of(changed);
        let mut new = Vec::new();
        self.plan_each(store, excerpt, classes, |id, _, class_plan| {
            for direction in Direction::BOTH {
                let steps = class_plan.admin(direction);
                new.extend(steps.map(|steps| (id, direction, steps)));
            }
        });
        let mut titles = Titles::default();
        let mut differing = Vec::new();
        for (id, direction, steps) in new {
            let Some(local) = self.local.get_mut(&id) else {
                continue;
            };
            // Taken out of the class, because `merged` reads the engine; put back below.
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

    /// Returns the steps of some policies that are in use until now.
    fn steps_of(&self, policies: &BTreeSet<u32>) -> FxHashSet<u32> {
        let steps = self.chains.each_step().filter(|(_, step)| {
            let place = self.rules.place(step.rule.0);
            place.is_some_and(|(policy, ..)| policies.contains(&policy))
        });
        steps.map(|(id, _)| id).collect()
    }

    /// Returns a list of steps without the outdated ones and with the new ones, in the order of
    /// their rules.
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
        // Both lists are in order: each new step goes behind the one before it.
        let mut at = 0;
        for id in new.iter() {
            let precedence = self.precedence(store, *id, titles);
            let behind = merged.get(at..).unwrap_or_default();
            at += behind.partition_point(|it| self.precedence(store, *it, titles) < precedence);
            merged.insert(at.min(merged.len()), *id);
            at += 1;
        }
        // Then rule chains that share the old list go on sharing it.
        if *merged == **known {
            return StepList::clone(known);
        }
        merged.into()
    }

    /// Returns the precedence of a step in its tier.
    // By the same key as the compiler. With another one, spliced lists and planned lists would
    // differ.
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
        let named = (title.api, title.name);
        let (tier, key) = order(title.rank, named, step.action, index)?;
        (tier == Tier::Admin).then_some(key)
    }
}
