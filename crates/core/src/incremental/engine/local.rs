//! Plans the rule chains of local classes that a change concerns.

use std::collections::{BTreeMap, BTreeSet};

use super::registry::PortsByName;
use super::{DirectionPlan, Dirty, Engine};
use crate::incremental::encoded::head;
use crate::incremental::select::RequiredLabels;
use crate::incremental::slab::NONE;
use crate::incremental::store::{Excerpt, Store};
use crate::model::PolicyRank;
use crate::plan::PlanChange;
use crate::policy::{Direction, Tier};

impl Engine {
    /// Adds the classes that the changes of a batch could concern.
    pub(super) fn find_dirty(&mut self, store: &Store, ports_changed: bool, dirty: &mut Dirty) {
        let changes = &store.changes;
        let of_namespaces = |namespaces: &[u32], classes: &mut BTreeSet<u32>| {
            if namespaces.is_empty() {
                return;
            }
            let local = self.local.keys().filter(|id| {
                let namespace = store.classes.get(**id).map_or(NONE, |it| it.namespace);
                namespaces.contains(&namespace)
            });
            classes.extend(local);
        };
        // Labels of a namespace decide which policies of the ordered tiers select its pods, never
        // which NetworkPolicies do. In peers they decide the members of groups, not the chains.
        of_namespaces(&changes.relabelled, &mut dirty.ordered);
        of_namespaces(&changes.policed, &mut dirty.union);
        // A changed policy is listed in its old and in its new form: classes that it no longer
        // selects are planned as well.
        for (policy, bytes) in &changes.ordered {
            let Some((rank, subject)) =
                head(bytes).and_then(|it| Some((it.title.rank, it.subject?)))
            else {
                continue;
            };
            let required = RequiredLabels::find(store, &subject);
            let local = self.local.keys().copied();
            let local = local.filter(|id| required.could_be(store, *id));
            // There can be a thousand of these, so their steps are spliced (`admin.rs`).
            if matches!(rank, PolicyRank::Ordered(Tier::Admin, _)) {
                dirty.spliced.extend(local);
                dirty.admin.insert(*policy);
            } else {
                dirty.ordered.extend(local);
            }
        }
        if ports_changed && !self.names.is_empty() {
            let by_name = PortsByName::new(store, &self.with_ports);
            let names = std::mem::take(&mut self.names);
            for (name, ports) in names {
                let now = by_name.of(store, &name);
                let users = self.local.iter().filter(|(_, it)| it.names.contains(&name));
                let mut users = users.map(|(id, _)| *id).peekable();
                // A name that changed is dropped here; the plans of its users resolve it again. A
                // name without users is dropped for good.
                if now != ports {
                    for class in users {
                        dirty.ordered.insert(class);
                        dirty.union.insert(class);
                    }
                } else if users.peek().is_some() {
                    self.names.insert(name, ports);
                }
            }
        }
    }

    /// Plans the dirty classes, and gives them their new rule chains.
    pub(super) fn plan_dirty(&mut self, store: &Store, dirty: &mut Dirty, change: &mut PlanChange) {
        let mut old = Vec::new();
        for local in std::mem::take(&mut dirty.ended) {
            old.extend(
                [local.ingress.chain, local.egress.chain]
                    .into_iter()
                    .flatten(),
            );
        }
        // Unions first: a class that no NetworkPolicy isolates any more becomes dirty for the
        // Baseline tier.
        if !dirty.union.is_empty() {
            let classes: Vec<u32> = dirty.union.iter().copied().collect();
            self.plan_unions(store, &classes, dirty);
        }
        if !dirty.ordered.is_empty() {
            let classes: Vec<u32> = dirty.ordered.iter().copied().collect();
            self.plan_ordered(store, &classes);
        }
        // The others have just got their whole Admin tier.
        let spliced = dirty.spliced.difference(&dirty.ordered).copied();
        let spliced: Vec<u32> = spliced.collect();
        let mut planned = &dirty.union | &dirty.ordered;
        if !spliced.is_empty() {
            planned.extend(self.splice(store, &spliced, &dirty.admin));
        }
        for class in &planned {
            let Some(local) = self.local.get_mut(class) else {
                continue;
            };
            for direction in Direction::BOTH {
                let plan = local.side(direction);
                let DirectionPlan {
                    admin, rest, chain, ..
                } = plan;
                let new = rest
                    .as_ref()
                    .and_then(|rest| self.chains.take(direction, admin, rest));
                if let Some((id, true)) = new
                    && let Some(kept) = self.chains.stored.get(&id)
                {
                    change.chains.push((id, std::sync::Arc::clone(&kept.chain)));
                }
                old.extend(std::mem::replace(chain, new.map(|(id, _)| id)));
            }
            // `change_pods` publishes those whose chains differ.
            dirty.addresses.extend(&local.addresses);
        }
        // Released after all new ones are taken: chains, steps and groups that the old and the new
        // plan have in common keep their numbers, and the kernel keeps them.
        for id in old {
            if self.chains.release(id) {
                change.ended_chains.push(id);
            }
        }
        change.ended_chains.sort_unstable();
    }

    /// Plans the NetworkPolicies of some classes.
    fn plan_unions(&mut self, store: &Store, classes: &[u32], dirty: &mut Dirty) {
        let mut excerpt = Excerpt::new(store);
        let mut by_namespace: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for id in classes {
            excerpt.add_class(*id);
            let namespace = store.classes.get(*id).map_or(NONE, |it| it.namespace);
            by_namespace.entry(namespace).or_default().push(*id);
        }
        for (namespace, classes) in by_namespace {
            let mut policies = store.policies_of(namespace);
            // Policies of a namespace are listed in the order of arrival. The plan must be a
            // function of the objects alone.
            policies.sort_by_key(|id| store.policy_name(*id));
            for id in policies {
                if store.counts(id) && selects_any(store, id, &classes) {
                    excerpt.add_policy(id);
                }
            }
        }
        self.plan_each(store, excerpt, classes, |id, local, class_plan| {
            for direction in Direction::BOTH {
                let union = class_plan.union(direction);
                let plan = local.side(direction);
                if union.is_none() && (plan.is_union || plan.rest.is_none()) {
                    // The Baseline tier decides now.
                    dirty.ordered.insert(id);
                }
                plan.is_union = union.is_some();
                if union.is_some() {
                    plan.rest = union;
                }
            }
        });
    }

    /// Plans the ordered tiers of some classes.
    fn plan_ordered(&mut self, store: &Store, classes: &[u32]) {
        let mut excerpt = Excerpt::new(store);
        for id in classes {
            excerpt.add_class(*id);
        }
        // Their labels are kept as symbols: classes are compared with all of these policies, and
        // only those that could select one of the classes are decoded.
        for (id, required) in &store.ordered {
            let Some(required) = required else { continue };
            if classes.iter().any(|class| required.could_be(store, *class)) {
                excerpt.add_policy(*id);
            }
        }
        self.plan_each(store, excerpt, classes, |_, local, class_plan| {
            for direction in Direction::BOTH {
                let plan = local.side(direction);
                let Some(admin) = class_plan.admin(direction) else {
                    continue;
                };
                plan.admin = admin;
                // A union takes the place of the Baseline tier, and is planned by itself.
                if !plan.is_union {
                    plan.rest = class_plan.baseline(direction);
                }
            }
        });
    }
}

/// Returns whether a policy could select one of some classes.
fn selects_any(store: &Store, policy: u32, classes: &[u32]) -> bool {
    // Labels of NetworkPolicies are not kept as symbols: only those of a few namespaces are read.
    let bytes = store.policies.get(policy).map(|it| &*it.bytes);
    let subject = bytes.and_then(head).and_then(|it| it.subject);
    let required = subject.map(|it| RequiredLabels::find(store, &it));
    required.is_some_and(|it| classes.iter().any(|class| it.could_be(store, *class)))
}
