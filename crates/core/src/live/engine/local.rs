//! Planning anew what local classes have to face.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::bodies::Seen;
use super::book::{Numbers, PortNames, ports_of};
use super::{Dirty, Engine, Side};
use crate::compile::compile;
use crate::labels::{Operator, Selector};
use crate::live::encoded::head;
use crate::live::slab::NONE;
use crate::live::store::{Excerpt, Store};
use crate::live::texts::Symbol;
use crate::model::{NamespaceSet, PodId, PodSet};
use crate::plan::{PlanChange, Planner};
use crate::policy::Direction;

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
        for bytes in &changes.ordered {
            let Some(subject) = head(bytes).and_then(|it| it.subject) else {
                continue;
            };
            let Some(subject) = Subject::new(store, &subject) else {
                continue;
            };
            let local = self.local.keys().copied();
            dirty
                .ordered
                .extend(local.filter(|id| subject.could_select(store, *id)));
        }
        if ports_changed {
            let names = std::mem::take(&mut self.names);
            for (name, ports) in names {
                let now = ports_of(store, &self.with_ports, &name);
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
                [local.ingress.body, local.egress.body]
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
        for class in dirty.union.union(&dirty.ordered) {
            let Some(local) = self.local.get_mut(class) else {
                continue;
            };
            for direction in Direction::BOTH {
                let side = local.side(direction);
                let Side {
                    admin, rest, body, ..
                } = side;
                let new = rest
                    .as_ref()
                    .and_then(|rest| self.bodies.take(direction, admin, rest));
                if let Some((id, true)) = new
                    && let Some(kept) = self.bodies.bodies.get(&id)
                {
                    change.bodies.push((id, std::sync::Arc::clone(&kept.body)));
                }
                old.extend(std::mem::replace(body, new.map(|(id, _)| id)));
            }
            dirty.addresses.extend(&local.addresses);
        }
        for id in old {
            if self.bodies.release(id) {
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
        let Excerpt {
            cluster, policies, ..
        } = excerpt;
        let program = compile(&cluster);
        let book = Numbers {
            store,
            groups: &mut self.numbers,
            rules: &mut self.rules,
            policies: &policies,
            with_ports: &self.with_ports,
            names: RefCell::default(),
        };
        let mut planner = Planner::new(&cluster, &program, book, self.merge_over);
        let mut seen = Seen::default();
        for (index, id) in (0..).zip(classes) {
            let of_program = program.class_id(PodId(index));
            let Some(local) = self.local.get_mut(id) else {
                continue;
            };
            for direction in Direction::BOTH {
                let union = of_program.and_then(|class| planner.union(class, direction));
                let side = local.side(direction);
                match union {
                    Some(union) => {
                        side.rest = Some(self.bodies.rest(&union, &mut seen));
                        side.is_union = true;
                    }
                    None => {
                        if side.is_union || side.rest.is_none() {
                            // The Baseline tier decides now.
                            dirty.ordered.insert(*id);
                        }
                        side.is_union = false;
                    }
                }
            }
        }
        let names = planner.into_book().names.into_inner();
        self.note_names(names, classes);
    }

    /// The ordered tiers of some classes.
    fn plan_ordered(&mut self, store: &Store, classes: &[u32]) {
        let mut excerpt = Excerpt::new(store);
        for id in classes {
            excerpt.add_class(*id);
        }
        for id in &store.ordered {
            if selects_any(store, *id, classes) {
                excerpt.add_policy(*id);
            }
        }
        let Excerpt {
            cluster, policies, ..
        } = excerpt;
        let program = compile(&cluster);
        let book = Numbers {
            store,
            groups: &mut self.numbers,
            rules: &mut self.rules,
            policies: &policies,
            with_ports: &self.with_ports,
            names: RefCell::default(),
        };
        let mut planner = Planner::new(&cluster, &program, book, self.merge_over);
        let mut seen = Seen::default();
        for (index, id) in (0..).zip(classes) {
            let Some(of_program) = program.class_id(PodId(index)) else {
                continue;
            };
            let Some(local) = self.local.get_mut(id) else {
                continue;
            };
            for direction in Direction::BOTH {
                let admin = planner.admin(of_program, direction);
                let side = local.side(direction);
                side.admin = self.bodies.list(&admin, &mut seen);
                if !side.is_union {
                    let baseline = planner.baseline(of_program, direction);
                    side.rest = Some(self.bodies.rest(&baseline, &mut seen));
                }
            }
        }
        let names = planner.into_book().names.into_inner();
        self.note_names(names, classes);
    }

    fn note_names(&mut self, names: PortNames, classes: &[u32]) {
        for (name, ports) in names {
            for class in classes {
                if let Some(local) = self.local.get_mut(class) {
                    local.names.insert(name.clone());
                }
            }
            self.names.insert(name, ports);
        }
    }
}

/// Whether a policy could select some classes.
fn selects_any(store: &Store, policy: u32, classes: &[u32]) -> bool {
    let bytes = store.policies.get(policy).map(|it| &*it.bytes);
    let subject = bytes.and_then(head).and_then(|it| it.subject);
    let subject = subject.and_then(|it| Subject::new(store, &it));
    subject.is_some_and(|it| classes.iter().any(|class| it.could_select(store, *class)))
}

/// Whom a policy could select: labels that must be there. The compiler is asked whether it does.
struct Subject {
    namespaces: Vec<(Symbol, Vec<Symbol>)>,
    pods: Vec<(Symbol, Vec<Symbol>)>,
}

impl Subject {
    /// `None`: it selects nobody, since a text that it asks for is nowhere.
    fn new(store: &Store, subject: &PodSet<'_>) -> Option<Subject> {
        let asked = |selector: &Selector<&str>| {
            let requirements = selector.requirements.iter();
            let asked = requirements.filter(|it| it.operator == Operator::In);
            let asked = asked.map(|it| {
                let key = store.texts.find(it.key)?;
                let values = it.values.iter().filter_map(|it| store.texts.find(it));
                Some((key, values.collect::<Vec<Symbol>>()))
            });
            asked.collect::<Option<Vec<_>>>()
        };
        let namespaces = match &subject.namespaces {
            NamespaceSet::Selected { selector, .. } => asked(selector)?,
            NamespaceSet::Exact(_)
            | NamespaceSet::Own
            | NamespaceSet::NotOwn
            | NamespaceSet::SameLabels(_)
            | NamespaceSet::NotSameLabels(_) => Vec::new(),
        };
        let pods = match &subject.pods {
            Some(pods) => asked(pods)?,
            None => Vec::new(),
        };
        Some(Subject { namespaces, pods })
    }

    fn could_select(&self, store: &Store, class: u32) -> bool {
        let Some(class) = store.classes.get(class) else {
            return false;
        };
        let meets = |asked: &[(Symbol, Vec<Symbol>)], labels: u32| {
            let labels = store.labels.get(labels);
            asked.iter().all(|(key, values)| {
                let mut labels = labels.iter();
                labels.any(|(its_key, value)| its_key == key && values.contains(value))
            })
        };
        let namespace = store.namespaces.get(class.namespace);
        let namespace = namespace.map_or(NONE, |it| it.labels);
        meets(&self.namespaces, namespace) && meets(&self.pods, class.labels)
    }
}
