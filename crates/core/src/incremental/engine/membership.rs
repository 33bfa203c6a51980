//! Who is in which group: joined and left.

use std::collections::BTreeSet;
use std::net::IpAddr;

use rustc_hash::FxHashMap;

use super::groups::classes_in;
use super::{Dirty, Engine};
use crate::incremental::select::GroupSpec;
use crate::incremental::slab::NONE;
use crate::incremental::store::{Owner, Store};
use crate::plan::{GroupId, PlanChange};

/// With more new groups than these, every class is asked which groups it is in; otherwise the groups are
/// asked for their classes.
const MANY_GROUPS: usize = 16;

/// Groups that begin and end with a commit.
pub(super) struct GroupChanges {
    /// Ascending.
    pub(super) begun: Vec<u32>,
    pub(super) ended: FxHashMap<u32, GroupSpec>,
}

impl GroupChanges {
    fn is_large(&self) -> bool {
        self.begun.len() > MANY_GROUPS || self.ended.len() > MANY_GROUPS
    }
}

/// The classes of a list that are not among some others, each once.
fn others(mut classes: Vec<u32>, whole: &BTreeSet<u32>) -> Vec<u32> {
    classes.sort_unstable();
    classes.dedup();
    classes.retain(|class| !whole.contains(class));
    classes
}

impl Engine {
    /// Begins and ends groups, and moves members.
    pub(super) fn move_members(&mut self, store: &mut Store, change: &mut PlanChange) {
        let turn = self.turn(store, change);
        // As long as classes have the groups of before.
        self.by_address_only(store, turn.ended.iter(), &mut change.ended_members);
        let whole = self.reevaluated_classes(store, &turn);
        for class in &whole {
            let new = store.classes.get(*class);
            let new = new.map(|class| self.groups.of_class(store, class));
            self.class_groups(store, *class, &new.unwrap_or_default(), &turn, change);
        }
        if !turn.is_large() {
            for id in &turn.begun {
                if let Some(spec) = self.groups.active.get(id) {
                    let classes = others(classes_in(store, spec), &whole);
                    let told = (GroupId(*id), own_members(spec), &mut change.joined);
                    edit_classes(store, &classes, true, told);
                }
            }
            for (id, spec) in &turn.ended {
                let classes = others(classes_in(store, spec), &whole);
                let told = (GroupId(*id), own_members(spec), &mut change.ended_members);
                edit_classes(store, &classes, false, told);
            }
        }
        for node in self.reevaluated_nodes(store, &turn) {
            let labels = store.nodes.get(node).map_or(NONE, |it| it.labels);
            let new = self.groups.of_node(store.labels.get(labels));
            self.node_groups(store, node, &new, &turn, change);
        }
        let begun = turn.begun.iter();
        let begun = begun.filter_map(|id| Some((id, self.groups.active.get(id)?)));
        self.by_address_only(store, begun, &mut change.joined);
        let by_address = self.groups.has_ranged() || turn.ended.values().any(GroupSpec::is_ranged);
        for (address, before) in store.changes.touched.iter() {
            let (after, ports) = store.standing(before.now);
            if by_address {
                let before = self.all_before(store, *address, before, &turn);
                let after = self.all_after(store, *address, (after, ports));
                self.moved(store, (*address, NONE), (&before, &after), &turn, change);
            } else if before.groups != after {
                let lists = (store.groups.get(before.groups), store.groups.get(after));
                self.moved(store, (*address, NONE), lists, &turn, change);
            }
        }
        for spec in turn.ended.values() {
            store.release_spec(spec);
        }
        if !turn.begun.is_empty() || !turn.ended.is_empty() {
            drop(turn);
            self.numbers.amongs.release_unused();
        }
        let mut last = None;
        for (group, _) in change.joined.iter().chain(&change.left) {
            // Those of one group stand together.
            if last.replace(*group) != Some(*group)
                && let Some(uses) = self.chains.uses.get(&group.0)
                && uses.narrowing > 0
            {
                change.narrowing.insert(*group);
            }
        }
        change.rejudge |= !change.left.is_empty() || !change.narrowing.is_empty();
    }

    /// The groups that begin and end.
    fn turn(&mut self, store: &mut Store, change: &mut PlanChange) -> GroupChanges {
        let mut turn = GroupChanges {
            begun: Vec::new(),
            ended: FxHashMap::default(),
        };
        for id in std::mem::take(&mut self.chains.unused) {
            if self.chains.uses.contains_key(&id) {
                continue;
            }
            if let Some(spec) = self.groups.remove(id) {
                let members = own_members(&spec).iter();
                let members = members.map(|address| (GroupId(id), *address));
                change.ended_members.extend(members);
                change.ended_groups.push(GroupId(id));
                turn.ended.insert(id, spec);
            }
            self.numbers.release(id);
        }
        change.ended_groups.sort_unstable();
        for id in std::mem::take(&mut self.numbers.fresh) {
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
            turn.begun.push(id);
        }
        turn.begun.sort_unstable();
        turn
    }

    /// The classes that are asked anew for all their groups.
    fn reevaluated_classes(&self, store: &Store, turn: &GroupChanges) -> BTreeSet<u32> {
        let mut whole: BTreeSet<u32> = BTreeSet::new();
        if turn.is_large() {
            let classes = store.classes.iter();
            whole.extend(classes.filter(|(_, it)| it.is_there()).map(|(id, _)| id));
            return whole;
        }
        for namespace in &store.changes.relabelled {
            whole.extend(store.classes_of(*namespace).map(|(id, _)| id));
        }
        whole.extend(&store.changes.new_classes);
        whole
    }

    /// The nodes that are asked anew for all their groups.
    fn reevaluated_nodes(&self, store: &Store, turn: &GroupChanges) -> Vec<u32> {
        let with_nodes =
            |spec: &GroupSpec| matches!(spec, GroupSpec::Hosts { nodes, .. } if !nodes.is_empty());
        let begun = turn.begun.iter();
        let begun = begun.filter_map(|id| self.groups.active.get(id));
        let mut nodes: Vec<u32> = if begun.chain(turn.ended.values()).any(with_nodes) {
            store.node_ids.values().copied().collect()
        } else {
            store.changes.relabelled_nodes.clone()
        };
        nodes.sort_unstable();
        nodes.dedup();
        // It may be gone again.
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
        turn: &GroupChanges,
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
                    if !store.is_touched(address) {
                        self.moved(store, (address, ports), lists, turn, change);
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
        turn: &GroupChanges,
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
                    self.moved(store, (address, NONE), lists, turn, change);
                }
            }
        }
        store.groups.release(before);
    }

    /// Tells the difference between the groups that an address was in and those that it is in. The ports are those of
    /// an owner that is the same as before.
    fn moved(
        &self,
        store: &Store,
        (address, ports): (IpAddr, u32),
        (before, after): (&[u32], &[u32]),
        turn: &GroupChanges,
        change: &mut PlanChange,
    ) {
        let is_own = |group: u32| {
            // A group that begins with this commit has no member by address yet.
            let begins = turn.begun.binary_search(&group).is_ok();
            let ports = if begins { NONE } else { ports };
            self.groups.is_own(store, group, (address, ports))
        };
        for group in before {
            if after.binary_search(group).is_ok() {
                continue;
            }
            match turn.ended.get(group) {
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

    /// Tells what addresses of local pods face.
    pub(super) fn change_pods(&mut self, dirty: &Dirty, change: &mut PlanChange) {
        for address in &dirty.addresses {
            let class = self.pods.get(address).map(|(class, _)| *class);
            match class.and_then(|class| self.local.get(&class)) {
                None => change.ended_pods.push(*address),
                Some(local) => {
                    let faced = local.pod_chains();
                    if let Some((_, known)) = self.pods.get_mut(address)
                        && known.replace(faced) != Some(faced)
                    {
                        change.pods.push((*address, faced));
                    }
                }
            }
        }
        change.rejudge |= !change.pods.is_empty() || !change.ended_pods.is_empty();
    }
}

/// A group that begins or ends, the members that it has whoever is there, and where the others are told.
type Edit<'e> = (GroupId, &'e [IpAddr], &'e mut Vec<(GroupId, IpAddr)>);

/// Adds one group to those of some classes, or takes it away.
fn edit_classes(
    store: &mut Store,
    classes: &[u32],
    begins: bool,
    (GroupId(group), own, told): Edit<'_>,
) {
    // Many classes are in the same groups.
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
                // The number must mean the same list until all classes were asked.
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
                    told.push((GroupId(group), address));
                }
            });
        }
    }
    for before in known.into_keys() {
        store.groups.release(before);
    }
}

/// The members that a group has whoever is there.
pub(super) fn own_members(spec: &GroupSpec) -> &[IpAddr] {
    match spec {
        GroupSpec::Hosts { singles, .. } => singles,
        GroupSpec::Nets(_, _, nets) => nets,
        GroupSpec::Ranges(_, bounds) => bounds,
        GroupSpec::Named(..) => &[],
    }
}
