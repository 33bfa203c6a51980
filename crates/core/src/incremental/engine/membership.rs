//! Members of groups that join and leave.

use std::collections::BTreeSet;
use std::net::IpAddr;

use rustc_hash::FxHashMap;

use super::groups::classes_in;
use super::{Dirty, Engine};
use crate::incremental::select::GroupSpec;
use crate::incremental::slab::NONE;
use crate::incremental::store::{Owner, Store};
use crate::plan::{GroupId, PlanChange};

/// With more groups that begin or end than these, all classes look up their groups. Otherwise these
/// groups look up their classes.
// The first lookup goes over all classes once, by an index of labels. The second goes over all
// classes of the selected namespaces, once for each group.
const MANY_GROUPS: usize = 16;

/// Groups that begin and end with a commit.
pub(super) struct GroupChanges {
    /// The numbers of the groups that begin, ascending.
    pub(super) begun: Vec<u32>,
    pub(super) ended: FxHashMap<u32, GroupSpec>,
}

impl GroupChanges {
    fn is_large(&self) -> bool {
        self.begun.len() > MANY_GROUPS || self.ended.len() > MANY_GROUPS
    }
}

/// Returns the classes of a list that are not reevaluated as a whole, each once.
fn others(mut classes: Vec<u32>, reevaluated: &BTreeSet<u32>) -> Vec<u32> {
    classes.sort_unstable();
    classes.dedup();
    classes.retain(|class| !reevaluated.contains(class));
    classes
}

impl Engine {
    /// Begins and ends groups, and moves members.
    // Every address is compared exactly once: with its class or node if only the groups of that
    // changed, alone if it is touched.
    pub(super) fn move_members(&mut self, store: &mut Store, change: &mut PlanChange) {
        let turnover = self.turn_over(store, change);
        // First: it leaves out members by class, and classes still have their old groups.
        self.by_address_only(store, turnover.ended.iter(), &mut change.ended_members);
        let reevaluated = self.reevaluated_classes(store, &turnover);
        for class in &reevaluated {
            let new = store.classes.get(*class);
            let new = new.map(|class| self.groups.of_class(store, class));
            self.class_groups(store, *class, &new.unwrap_or_default(), &turnover, change);
        }
        if !turnover.is_large() {
            for id in &turnover.begun {
                if let Some(spec) = self.groups.active.get(id) {
                    let classes = others(classes_in(store, spec), &reevaluated);
                    let edit = (GroupId(*id), own_members(spec), &mut change.joined);
                    edit_classes(store, &classes, true, edit);
                }
            }
            for (id, spec) in &turnover.ended {
                let classes = others(classes_in(store, spec), &reevaluated);
                let edit = (GroupId(*id), own_members(spec), &mut change.ended_members);
                edit_classes(store, &classes, false, edit);
            }
        }
        for node in self.reevaluated_nodes(store, &turnover) {
            let labels = store.nodes.get(node).map_or(NONE, |it| it.labels);
            let new = self.groups.of_node(store.labels.get(labels));
            self.node_groups(store, node, &new, &turnover, change);
        }
        // After the classes got their new groups, for the same reason as above.
        let begun = turnover.begun.iter();
        let begun = begun.filter_map(|id| Some((id, self.groups.active.get(id)?)));
        self.by_address_only(store, begun, &mut change.joined);
        let by_address =
            self.groups.has_ranged() || turnover.ended.values().any(GroupSpec::is_ranged);
        for (address, before) in store.changes.touched.iter() {
            let (after, ports) = store.lists_of(before.now);
            // Without groups by address the lists of the owners are complete, and equal lists have
            // equal numbers.
            if by_address {
                let before = self.all_before(store, *address, before, &turnover);
                let after = self.all_after(store, *address, (after, ports));
                self.moved(
                    store,
                    (*address, NONE),
                    (&before, &after),
                    &turnover,
                    change,
                );
            } else if before.groups != after {
                let lists = (store.groups.get(before.groups), store.groups.get(after));
                self.moved(store, (*address, NONE), lists, &turnover, change);
            }
        }
        // The ended groups were needed until here.
        for spec in turnover.ended.values() {
            store.release_spec(spec);
        }
        if !turnover.begun.is_empty() || !turnover.ended.is_empty() {
            // Its groups hold subsets, which would count as used.
            drop(turnover);
            self.numbers.amongs.release_unused();
        }
        let mut last = None;
        for (group, _) in change.joined.iter().chain(&change.left) {
            // Members of one group are mostly neighbors in these lists.
            if last.replace(*group) != Some(*group)
                && let Some(uses) = self.chains.uses.get(&group.0)
                && uses.narrowing > 0
            {
                change.narrowing.insert(*group);
            }
        }
        change.reevaluate |= !change.left.is_empty() || !change.narrowing.is_empty();
    }

    /// Ends the groups that lost their last use, and begins those that got their first one.
    fn turn_over(&mut self, store: &mut Store, change: &mut PlanChange) -> GroupChanges {
        let mut turnover = GroupChanges {
            begun: Vec::new(),
            ended: FxHashMap::default(),
        };
        for id in std::mem::take(&mut self.chains.unused) {
            // Another chain of this commit uses it again.
            if self.chains.uses.contains_key(&id) {
                continue;
            }
            if let Some(spec) = self.groups.remove(id) {
                let members = own_members(&spec).iter();
                let members = members.map(|address| (GroupId(id), *address));
                change.ended_members.extend(members);
                change.ended_groups.push(GroupId(id));
                turnover.ended.insert(id, spec);
            }
            self.numbers.release(id);
        }
        change.ended_groups.sort_unstable();
        for id in std::mem::take(&mut self.numbers.fresh) {
            // The planner also makes groups that it takes together later; no step names those.
            let in_use = self.chains.uses.contains_key(&id);
            let spec = self.numbers.spec(id).cloned();
            let Some(spec) = spec.filter(|_| in_use) else {
                self.numbers.release(id);
                continue;
            };
            let spec = store.spec(&spec);
            change.groups.push((GroupId(id), spec.kind()));
            let members = own_members(&spec).iter();
            change
                .joined
                .extend(members.map(|address| (GroupId(id), *address)));
            self.groups.add(id, spec);
            turnover.begun.push(id);
        }
        turnover.begun.sort_unstable();
        turnover
    }

    /// Returns the classes that look up all their groups anew.
    fn reevaluated_classes(&self, store: &Store, turnover: &GroupChanges) -> BTreeSet<u32> {
        let mut reevaluated: BTreeSet<u32> = BTreeSet::new();
        if turnover.is_large() {
            let classes = store.classes.iter();
            reevaluated.extend(classes.filter(|(_, it)| it.is_there()).map(|(id, _)| id));
            return reevaluated;
        }
        // Labels of a class never change: pods with other labels have another class.
        for namespace in &store.changes.relabelled {
            reevaluated.extend(store.classes_of(*namespace).map(|(id, _)| id));
        }
        reevaluated.extend(&store.changes.new_classes);
        reevaluated
    }

    /// Returns the nodes that look up all their groups anew.
    fn reevaluated_nodes(&self, store: &Store, turnover: &GroupChanges) -> Vec<u32> {
        // Nodes are few compared with classes: a group with a node selector looks at all of them.
        let with_nodes =
            |spec: &GroupSpec| matches!(spec, GroupSpec::Hosts { nodes, .. } if !nodes.is_empty());
        let begun = turnover.begun.iter();
        let begun = begun.filter_map(|id| self.groups.active.get(id));
        let mut nodes: Vec<u32> = if begun.chain(turnover.ended.values()).any(with_nodes) {
            store.node_ids.values().copied().collect()
        } else {
            store.changes.relabelled_nodes.clone()
        };
        nodes.sort_unstable();
        nodes.dedup();
        // A node that was relabelled may be gone by now.
        let is_there = |id: &u32| {
            let node = store.nodes.get(*id);
            node.is_some_and(|node| store.node_ids.get(&node.name) == Some(id))
        };
        nodes.retain(is_there);
        nodes
    }

    fn class_groups(
        &self,
        store: &mut Store,
        id: u32,
        new: &[u32],
        turnover: &GroupChanges,
        change: &mut PlanChange,
    ) {
        let known = store.classes.get(id).map(|it| (it.groups, it.ports));
        let (before, ports) = known.unwrap_or((NONE, NONE));
        let (after, _) = store.groups.intern(new);
        if let Some(class) = store.classes.get_mut(id) {
            class.groups = after;
        }
        if before != after {
            let lists = (store.groups.get(before), store.groups.get(after));
            for (pod, _) in store.pods_of(id) {
                store.own_addresses(pod, &mut |address| {
                    // Touched addresses may have had another owner; they are compared alone.
                    if !store.is_touched(address) {
                        self.moved(store, (address, ports), lists, turnover, change);
                    }
                });
            }
        }
        store.groups.release(before);
    }

    fn node_groups(
        &self,
        store: &mut Store,
        id: u32,
        new: &[u32],
        turnover: &GroupChanges,
        change: &mut PlanChange,
    ) {
        let before = store.nodes.get(id).map_or(NONE, |it| it.groups);
        let (after, _) = store.groups.intern(new);
        if let Some(node) = store.nodes.get_mut(id) {
            node.groups = after;
        }
        if before != after {
            let lists = (store.groups.get(before), store.groups.get(after));
            for address in store.node_addresses(id) {
                let is_own = store.owner(address) == Some(Owner::Node(id));
                if is_own && !store.is_touched(address) {
                    self.moved(store, (address, NONE), lists, turnover, change);
                }
            }
        }
        store.groups.release(before);
    }

    /// Adds the difference between the old and the new groups of an address to the change. `ports`
    /// are those of an owner that did not change.
    // Members that a group has in any case are left out: they begin and end with the group.
    fn moved(
        &self,
        store: &Store,
        (address, ports): (IpAddr, u32),
        (before, after): (&[u32], &[u32]),
        turnover: &GroupChanges,
        change: &mut PlanChange,
    ) {
        let is_own = |group: u32| {
            // Members by address of a group that begins are not in the change yet:
            // `by_address_only` adds them later, without those that are members by class.
            let begins = turnover.begun.binary_search(&group).is_ok();
            let ports = if begins { NONE } else { ports };
            self.groups.is_own(store, group, (address, ports))
        };
        for group in before {
            if after.binary_search(group).is_ok() {
                continue;
            }
            match turnover.ended.get(group) {
                // `turn_over` has listed its own members.
                Some(spec) => {
                    if own_members(spec).binary_search(&address).is_err() {
                        change.ended_members.push((GroupId(*group), address));
                    }
                }
                None => {
                    if !is_own(*group) {
                        change.left.push((GroupId(*group), address));
                    }
                }
            }
        }
        for group in after {
            if before.binary_search(group).is_err() && !is_own(*group) {
                change.joined.push((GroupId(*group), address));
            }
        }
    }

    /// Publishes the rule chains of addresses of local pods.
    pub(super) fn change_pods(&mut self, dirty: &Dirty, change: &mut PlanChange) {
        for address in &dirty.addresses {
            let class = self.pods.get(address).map(|(class, _)| *class);
            match class.and_then(|class| self.local.get(&class)) {
                None => change.ended_pods.push(*address),
                Some(local) => {
                    let chains = local.pod_chains();
                    if let Some((_, known)) = self.pods.get_mut(address)
                        && known.replace(chains) != Some(chains)
                    {
                        change.pods.push((*address, chains));
                    }
                }
            }
        }
        change.reevaluate |= !change.pods.is_empty() || !change.ended_pods.is_empty();
    }
}

/// A group that begins or ends, its own members, and the list for the others.
type Edit<'e> = (GroupId, &'e [IpAddr], &'e mut Vec<(GroupId, IpAddr)>);

/// Adds a group to the lists of some classes, or removes it from them.
fn edit_classes(
    store: &mut Store,
    classes: &[u32],
    begins: bool,
    (GroupId(group), own, members): Edit<'_>,
) {
    // Many classes have the same list.
    let mut known: FxHashMap<u32, u32> = FxHashMap::default();
    for id in classes {
        let before = store.classes.get(*id).map_or(NONE, |it| it.groups);
        let after = match known.get(&before) {
            Some(after) => {
                store.groups.retain(*after);
                *after
            }
            None => {
                let mut list = store.groups.get(before).to_vec();
                list.retain(|it| *it != group);
                if begins {
                    list.push(group);
                    list.sort_unstable();
                }
                let (after, _) = store.groups.intern(&list);
                known.insert(before, after);
                // `before` is a key of `known`: its number must mean this list until the end.
                store.groups.retain(before);
                after
            }
        };
        if let Some(class) = store.classes.get_mut(*id) {
            class.groups = after;
        }
        store.groups.release(before);
        for (pod, _) in store.pods_of(*id) {
            store.own_addresses(pod, &mut |address| {
                if !store.is_touched(address) && own.binary_search(&address).is_err() {
                    members.push((GroupId(group), address));
                }
            });
        }
    }
    for before in known.into_keys() {
        store.groups.release(before);
    }
}

/// Returns the own members of a group: those in its definition, which depend on no pod or node.
pub(super) fn own_members(spec: &GroupSpec) -> &[IpAddr] {
    match spec {
        GroupSpec::Hosts { singles, .. } => singles,
        GroupSpec::Nets(_, _, nets) => nets,
        GroupSpec::Ranges(_, bounds) => bounds,
        GroupSpec::Named(..) => &[],
    }
}
