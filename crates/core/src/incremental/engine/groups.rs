//! The groups that rule chains name, and the classes and nodes in them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::super::named::{LivePodSubset, Named};
use super::super::select::{Condition, GroupSpec, Scope, Selection, meets};
use super::super::store::{Class, Store};
use super::super::texts::Symbol;
use crate::labels::Operator;
use crate::net::Protocol;

/// A selection, and the group that it is part of.
type Entry = (u32, Arc<Selection>);

/// Selections by a label that they require.
type ByLabel = FxHashMap<(Symbol, Symbol), Vec<Entry>>;

/// Groups of pods that have a name at a port, with the subset that these pods must also be in.
type ByPort = FxHashMap<(Symbol, Protocol, u16), Vec<(u32, Option<Arc<LivePodSubset>>)>>;

/// The groups in use, indexed by a label, name or port that they require.
// Each selection is in one index, under one requirement: whatever meets all requirements meets this
// one. `of_class` checks the rest.
#[derive(Debug, Default)]
pub(in crate::incremental) struct Groups {
    pub(in crate::incremental) active: FxHashMap<u32, GroupSpec>,
    /// Selections of one namespace, by its name.
    exact: FxHashMap<Symbol, Vec<Entry>>,
    by_namespace_label: ByLabel,
    by_pod_label: ByLabel,
    /// Selections that require no label. Every class is checked against them.
    others: Vec<Entry>,
    named: ByPort,
    /// Groups with members by a named port and their address.
    ranged: BTreeSet<u32>,
    /// Groups with node selectors.
    with_nodes: BTreeSet<u32>,
    /// The groups that list a single address.
    singles: FxHashMap<IpAddr, Vec<u32>>,
}

/// The index of a selection, and its key there.
enum SelectionKey<'s> {
    Exact(Symbol),
    NamespaceLabel(&'s Condition),
    PodLabel(&'s Condition),
    Other,
}

fn key_of(selection: &Selection) -> SelectionKey<'_> {
    // The only operator that lists the values of a label.
    let lists_values = |it: &&Condition| it.operator == Operator::In;
    let of_pods = selection.pods.iter().find(lists_values);
    match &selection.scope {
        // A namespace has few selections of its own, so the name is the best key.
        Scope::Exact(name) => SelectionKey::Exact(*name),
        Scope::Selected(selector, _) => match (selector.iter().find(lists_values), of_pods) {
            (Some(condition), _) => SelectionKey::NamespaceLabel(condition),
            (None, Some(condition)) => SelectionKey::PodLabel(condition),
            (None, None) => SelectionKey::Other,
        },
        Scope::Other(_) | Scope::Differing(_) => match of_pods {
            Some(condition) => SelectionKey::PodLabel(condition),
            None => SelectionKey::Other,
        },
    }
}

impl Groups {
    pub(super) fn add(&mut self, id: u32, spec: GroupSpec) {
        match &spec {
            GroupSpec::Nets(..) | GroupSpec::Ranges(..) => {}
            GroupSpec::Named(name, protocol, port) => {
                let key = (*name, *protocol, *port);
                self.named.entry(key).or_default().push((id, None));
            }
            GroupSpec::Hosts {
                pods,
                nodes,
                singles,
                named,
            } => {
                for selection in pods {
                    let entry = || (id, Arc::clone(selection));
                    match key_of(selection) {
                        SelectionKey::Exact(name) => {
                            self.exact.entry(name).or_default().push(entry())
                        }
                        SelectionKey::NamespaceLabel(condition) => {
                            add_values(&mut self.by_namespace_label, condition, entry);
                        }
                        SelectionKey::PodLabel(condition) => {
                            add_values(&mut self.by_pod_label, condition, entry)
                        }
                        SelectionKey::Other => self.others.push(entry()),
                    }
                }
                if !nodes.is_empty() {
                    self.with_nodes.insert(id);
                }
                for address in singles {
                    self.singles.entry(*address).or_default().push(id);
                }
                for port in named {
                    let entry = (id, port.subset.clone());
                    self.named.entry(port.key()).or_default().push(entry);
                }
                if named.iter().any(Named::has_ranges) {
                    self.ranged.insert(id);
                }
            }
        }
        self.active.insert(id, spec);
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<GroupSpec> {
        let spec = self.active.remove(&id)?;
        // Removes all selections of the group at once; the key of the next one may be gone by then.
        let leave = |entries: &mut Vec<Entry>| {
            entries.retain(|(group, _)| *group != id);
            !entries.is_empty()
        };
        match &spec {
            GroupSpec::Nets(..) | GroupSpec::Ranges(..) => {}
            GroupSpec::Named(name, protocol, port) => {
                self.remove_named(id, (*name, *protocol, *port));
            }
            GroupSpec::Hosts {
                pods,
                singles,
                named,
                ..
            } => {
                for selection in pods {
                    match key_of(selection) {
                        SelectionKey::Exact(name) => {
                            if !self.exact.get_mut(&name).is_some_and(leave) {
                                self.exact.remove(&name);
                            }
                        }
                        SelectionKey::NamespaceLabel(condition) => {
                            remove_values(&mut self.by_namespace_label, condition, leave);
                        }
                        SelectionKey::PodLabel(condition) => {
                            remove_values(&mut self.by_pod_label, condition, leave);
                        }
                        SelectionKey::Other => {
                            leave(&mut self.others);
                        }
                    }
                }
                self.with_nodes.remove(&id);
                self.ranged.remove(&id);
                for port in named {
                    self.remove_named(id, port.key());
                }
                for address in singles {
                    if let Some(groups) = self.singles.get_mut(address) {
                        groups.retain(|group| *group != id);
                        if groups.is_empty() {
                            self.singles.remove(address);
                        }
                    }
                }
            }
        }
        Some(spec)
    }

    fn remove_named(&mut self, id: u32, port: (Symbol, Protocol, u16)) {
        if let Some(groups) = self.named.get_mut(&port) {
            groups.retain(|(group, _)| *group != id);
            if groups.is_empty() {
                self.named.remove(&port);
            }
        }
    }

    /// Returns whether an address is in a group whatever the labels of its owner are: listed as a
    /// single address, or by the owner's ports and an address range.
    // Other labels then change nothing: such a member neither joins nor leaves with its class.
    pub(super) fn is_own(
        &self,
        store: &Store,
        group: u32,
        (address, ports): (IpAddr, u32),
    ) -> bool {
        let groups = self.singles.get(&address);
        groups.is_some_and(|groups| groups.contains(&group))
            || self.ranged.contains(&group)
                && self.by_address(store, address, ports).contains(&group)
    }

    /// Returns whether there are groups with members by a named port and their address.
    pub(super) fn has_ranged(&self) -> bool {
        !self.ranged.is_empty()
    }

    /// Returns the groups that an address is in by its owner's ports and an address range,
    /// ascending.
    pub(super) fn by_address(&self, store: &Store, address: IpAddr, ports: u32) -> Vec<u32> {
        let ports = store.ports.get(ports).iter();
        let entries = ports.filter_map(|port| self.named.get(port)).flatten();
        let holding = entries.filter(|(_, subset)| {
            let subset = subset.as_ref();
            subset.is_some_and(|subset| subset.holds(address))
        });
        let mut groups: Vec<u32> = holding.map(|(group, _)| *group).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Returns the groups that a class is in, ascending.
    // The list is the same for all pods of the class, and has no groups by address range.
    pub(super) fn of_class(&self, store: &Store, class: &Class) -> Vec<u32> {
        let Some(namespace) = store.namespaces.get(class.namespace) else {
            return Vec::new();
        };
        let namespace_labels = store.labels.get(namespace.labels);
        let labels = store.labels.get(class.labels);
        let exact = self.exact.get(&namespace.name).into_iter().flatten();
        let by_namespace = namespace_labels.iter();
        let by_namespace = by_namespace.filter_map(|it| self.by_namespace_label.get(it));
        let by_pod = labels.iter().filter_map(|it| self.by_pod_label.get(it));
        let candidates = exact
            .chain(by_namespace.flatten())
            .chain(by_pod.flatten())
            .chain(&self.others);
        let meant =
            candidates.filter(|(_, it)| it.selects((namespace.name, namespace_labels), labels));
        let mut groups: Vec<u32> = meant.map(|(group, _)| *group).collect();
        if !self.named.is_empty() {
            self.add_named(store, class, &mut groups);
        }
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Adds the groups that a class is in by its named ports.
    fn add_named(&self, store: &Store, class: &Class, groups: &mut Vec<u32>) {
        // Many groups have the same subset, which can have thousands of selections.
        let mut known: FxHashMap<*const LivePodSubset, bool> = FxHashMap::default();
        let ports = store.ports.get(class.ports).iter();
        for (group, subset) in ports.filter_map(|port| self.named.get(port)).flatten() {
            let is_in = subset.as_ref().is_none_or(|subset| {
                let known = known.entry(Arc::as_ptr(subset));
                *known.or_insert_with(|| subset.selects(store, class))
            });
            groups.extend(is_in.then_some(*group));
        }
    }

    /// Returns the groups that a node is in, ascending.
    pub(super) fn of_node(&self, labels: &[(Symbol, Symbol)]) -> Vec<u32> {
        let groups = self.with_nodes.iter().copied();
        let selecting = groups.filter(|id| match self.active.get(id) {
            Some(GroupSpec::Hosts { nodes, .. }) => nodes.iter().any(|it| meets(it, labels)),
            Some(GroupSpec::Nets(..) | GroupSpec::Ranges(..) | GroupSpec::Named(..)) | None => {
                false
            }
        });
        selecting.collect()
    }
}

fn add_values(by_label: &mut ByLabel, condition: &Condition, entry: impl Fn() -> Entry) {
    // One entry for each listed value. A class has one value per key, and meets a selection once.
    for value in &condition.values {
        by_label
            .entry((condition.key, *value))
            .or_default()
            .push(entry());
    }
}

fn remove_values(
    by_label: &mut ByLabel,
    condition: &Condition,
    leave: impl Fn(&mut Vec<Entry>) -> bool,
) {
    for value in &condition.values {
        let key = (condition.key, *value);
        if !by_label.get_mut(&key).is_some_and(&leave) {
            by_label.remove(&key);
        }
    }
}

/// Returns the classes of a group, in no order and possibly more than once.
pub(super) fn classes_in(store: &Store, spec: &GroupSpec) -> Vec<u32> {
    let mut found = Vec::new();
    match spec {
        GroupSpec::Nets(..) | GroupSpec::Ranges(..) => {}
        GroupSpec::Named(name, protocol, port) => {
            let classes = classes_with(store, (*name, *protocol, *port));
            found.extend(classes.map(|(id, _)| id));
        }
        GroupSpec::Hosts { pods, named, .. } => {
            for selection in pods {
                for namespace in namespaces_in(store, &selection.scope) {
                    let classes = store.classes_of(namespace).filter(|(_, class)| {
                        meets(&selection.pods, store.labels.get(class.labels))
                    });
                    found.extend(classes.map(|(id, _)| id));
                }
            }
            for port in named {
                let subset = port.subset.as_ref();
                let classes = classes_with(store, port.key())
                    .filter(|(_, class)| subset.is_none_or(|subset| subset.selects(store, class)));
                found.extend(classes.map(|(id, _)| id));
            }
        }
    }
    found
}

/// Returns the classes that have a name at a port.
fn classes_with(
    store: &Store,
    port: (Symbol, Protocol, u16),
) -> impl Iterator<Item = (u32, &Class)> {
    // There are far fewer lists of ports than classes, so the ports are compared once per list.
    let lists = store.ports.iter();
    let lists = lists.filter(|(_, ports)| ports.contains(&port));
    let lists: BTreeSet<u32> = lists.map(|(id, _)| id).collect();
    let classes = store.classes.iter();
    let classes = classes.filter(|(_, class)| class.is_there());
    classes.filter(move |(_, class)| lists.contains(&class.ports))
}

fn namespaces_in(store: &Store, scope: &Scope) -> Vec<u32> {
    let by_name = |name: &Symbol| store.namespace_ids.get(name).copied();
    match scope {
        Scope::Exact(name) => return by_name(name).into_iter().collect(),
        Scope::Selected(selector, except) => {
            // The usual way to select a namespace is the label with its name, which D23 guarantees.
            // It needs no look at all namespaces.
            let named = |it: &&Condition| it.key == store.name_label && it.operator == Operator::In;
            if let Some(named) = selector.iter().find(named) {
                let ids = named.values.iter().filter_map(by_name);
                let selected = ids.filter(|id| {
                    let labels = store.namespaces.get(*id);
                    let labels = labels.map(|it| store.labels.get(it.labels));
                    let labels = labels.unwrap_or_default();
                    meets(selector, labels) && !except.iter().any(|it| meets(it, labels))
                });
                // A selector may list a name twice.
                let mut selected: Vec<u32> = selected.collect();
                selected.sort_unstable();
                selected.dedup();
                return selected;
            }
        }
        Scope::Other(_) | Scope::Differing(_) => {}
    }
    let ids = store.namespace_ids.iter();
    let selected = ids.filter(|(name, id)| {
        let labels = store.namespaces.get(**id);
        let labels = labels.map(|it| store.labels.get(it.labels));
        scope.holds(**name, labels.unwrap_or_default())
    });
    selected.map(|(_, id)| *id).collect()
}
