//! Planning anew what local classes have to face.

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
    /// Adds the classes that what happened could concern.
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
        of_namespaces(&changes.relabelled, &mut dirty.ordered);
        of_namespaces(&changes.policed, &mut dirty.union);
        for (policy, bytes) in &changes.ordered {
            let Some((place, subject)) =
                head(bytes).and_then(|it| Some((it.title.rank, it.subject?)))
            else {
                continue;
            };
            let asked = RequiredLabels::find(store, &subject);
            let local = self.local.keys().copied();
            let local = local.filter(|id| asked.could_be(store, *id));
            if matches!(place, PolicyRank::Ordered(Tier::Admin, _)) {
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

    /// Plans what is dirty, and gives classes their new bodies.
    pub(super) fn plan_dirty(&mut self, store: &Store, dirty: &mut Dirty, change: &mut PlanChange) {
        let mut old = Vec::new();
        for local in std::mem::take(&mut dirty.ended) {
            old.extend(
                [local.ingress.chain, local.egress.chain]
                    .into_iter()
                    .flatten(),
            );
        }
        if !dirty.union.is_empty() {
            let classes: Vec<u32> = dirty.union.iter().copied().collect();
            self.plan_unions(store, &classes, dirty);
        }
        if !dirty.ordered.is_empty() {
            let classes: Vec<u32> = dirty.ordered.iter().copied().collect();
            self.plan_ordered(store, &classes);
        }
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
                let side = local.side(direction);
                let DirectionPlan {
                    admin,
                    rest,
                    chain: body,
                    ..
                } = side;
                let new = rest
                    .as_ref()
                    .and_then(|rest| self.chains.take(direction, admin, rest));
                if let Some((id, true)) = new
                    && let Some(kept) = self.chains.bodies.get(&id)
                {
                    change.chains.push((id, std::sync::Arc::clone(&kept.body)));
                }
                old.extend(std::mem::replace(body, new.map(|(id, _)| id)));
            }
            dirty.addresses.extend(&local.addresses);
        }
        for id in old {
            if self.chains.release(id) {
                change.ended_bodies.push(id);
            }
        }
        change.ended_bodies.sort_unstable();
    }

    /// The NetworkPolicies of some classes.
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
            // The order in which they came must not show.
            policies.sort_by_key(|id| store.policy_name(*id));
            for id in policies {
                if store.counts(id) && selects_any(store, id, &classes) {
                    excerpt.add_policy(id);
                }
            }
        }
        self.plan_each(store, excerpt, classes, |id, local, sheet| {
            for direction in Direction::BOTH {
                let union = sheet.union(direction);
                let side = local.side(direction);
                if union.is_none() && (side.is_union || side.rest.is_none()) {
                    // The Baseline tier decides now.
                    dirty.ordered.insert(id);
                }
                side.is_union = union.is_some();
                if union.is_some() {
                    side.rest = union;
                }
            }
        });
    }

    /// The ordered tiers of some classes.
    fn plan_ordered(&mut self, store: &Store, classes: &[u32]) {
        let mut excerpt = Excerpt::new(store);
        for id in classes {
            excerpt.add_class(*id);
        }
        for (id, asked) in &store.ordered {
            let Some(asked) = asked else { continue };
            if classes.iter().any(|class| asked.could_be(store, *class)) {
                excerpt.add_policy(*id);
            }
        }
        self.plan_each(store, excerpt, classes, |_, local, sheet| {
            for direction in Direction::BOTH {
                let side = local.side(direction);
                let Some(admin) = sheet.admin(direction) else {
                    continue;
                };
                side.admin = admin;
                if !side.is_union {
                    side.rest = sheet.baseline(direction);
                }
            }
        });
    }
}

/// Whether a policy could select some classes.
fn selects_any(store: &Store, policy: u32, classes: &[u32]) -> bool {
    let bytes = store.policies.get(policy).map(|it| &*it.bytes);
    let subject = bytes.and_then(head).and_then(|it| it.subject);
    let asked = subject.map(|it| RequiredLabels::find(store, &it));
    asked.is_some_and(|it| classes.iter().any(|class| it.could_be(store, *class)))
}
