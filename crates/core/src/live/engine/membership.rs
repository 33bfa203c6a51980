//! Who is in which group: joined and left.

use std::collections::BTreeSet;
use std::net::IpAddr;

use rustc_hash::FxHashMap;

use super::groups::classes_in;
use super::{Dirty, Engine};
use crate::live::select::Spec;
use crate::live::slab::NONE;
use crate::live::store::{Owner, Store};
use crate::plan::{GroupId, PlanChange};

/// With more new groups than these, every class is asked which groups it is in; otherwise the groups are
/// asked for their classes.
const MANY_GROUPS: usize = 16;

/// Groups that begin and end with a commit.
struct Turn {
    /// Ascending.
    begun: Vec<u32>,
    ended: FxHashMap<u32, Spec>,
}

impl Engine {
    /// Begins and ends groups, and moves members.
    pub(super) fn move_members(&mut self, store: &mut Store, change: &mut PlanChange) {
        let turn = self.turn(store, change);
        let (classes, nodes) = self.affected(store, &turn);
        for (class, new) in classes {
            self.class_groups(store, class, &new, &turn, change);
        }
        for (node, new) in nodes {
            self.node_groups(store, node, &new, &turn, change);
        }
        for (address, before) in &store.changes.touched {
            let (after, _) = store.standing(store.owner(*address));
            if before.groups != after {
                let (before, after) = (store.groups.get(before.groups), store.groups.get(after));
                self.moved(*address, before, after, &turn, change);
            }
        }
        for spec in turn.ended.values() {
            store.release_spec(spec);
        }
        change.joined.sort_unstable();
        change.left.sort_unstable();
        change.ended_members.sort_unstable();
        change.rejudge |= !change.left.is_empty();
        change.rejudge |= change.joined.iter().any(|(GroupId(group), _)| {
            let uses = self.bodies.uses.get(group);
            uses.is_some_and(|it| it.narrowing > 0)
        });
    }

    /// The groups that begin and end.
    fn turn(&mut self, store: &mut Store, change: &mut PlanChange) -> Turn {
        let mut turn = Turn {
            begun: Vec::new(),
            ended: FxHashMap::default(),
        };
        for id in std::mem::take(&mut self.bodies.unused) {
            if self.bodies.uses.contains_key(&id) {
                continue;
            }
            if let Some(spec) = self.groups.remove(id) {
                let members = own_members(&spec).iter();
                let members = members.map(|address| (GroupId(id), *address));
                change.ended_members.extend(members);
                change.ended_groups.push(GroupId(id));
                turn.ended.insert(id, spec);
            }
            self.numbers.forget(id);
        }
        change.ended_groups.sort_unstable();
        for id in std::mem::take(&mut self.numbers.fresh) {
            let in_use = self.bodies.uses.contains_key(&id);
            let spec = self.numbers.spec(id).cloned();
            let Some(spec) = spec.filter(|_| in_use) else {
                self.numbers.forget(id);
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
        turn
    }

    /// The classes and nodes that may be in other groups now, with those groups.
    #[allow(
        clippy::type_complexity,
        reason = "two lists of the same shape, taken apart at once"
    )]
    fn affected(&self, store: &Store, turn: &Turn) -> (Vec<(u32, Vec<u32>)>, Vec<(u32, Vec<u32>)>) {
        let mut whole: BTreeSet<u32> = BTreeSet::new();
        let mut edits: FxHashMap<u32, (Vec<u32>, Vec<u32>)> = FxHashMap::default();
        if turn.begun.len() > MANY_GROUPS || turn.ended.len() > MANY_GROUPS {
            let classes = store.classes.iter();
            whole.extend(classes.filter(|(_, it)| it.is_there()).map(|(id, _)| id));
        } else {
            for namespace in &store.changes.relabelled {
                whole.extend(store.classes_of(*namespace).map(|(id, _)| id));
            }
            whole.extend(&store.changes.new_classes);
            for id in &turn.begun {
                let spec = self.groups.active.get(id);
                for class in spec.into_iter().flat_map(|spec| classes_in(store, spec)) {
                    edits.entry(class).or_default().0.push(*id);
                }
            }
            for (id, spec) in &turn.ended {
                for class in classes_in(store, spec) {
                    edits.entry(class).or_default().1.push(*id);
                }
            }
        }
        let mut classes: Vec<(u32, Vec<u32>)> = Vec::new();
        for id in &whole {
            if let Some(class) = store.classes.get(*id).filter(|it| it.is_there()) {
                classes.push((*id, self.groups.of_class(store, class)));
            }
        }
        for (id, (begun, ended)) in edits {
            let Some(class) = store.classes.get(id).filter(|_| !whole.contains(&id)) else {
                continue;
            };
            let mut groups = store.groups.get(class.groups).to_vec();
            groups.retain(|group| !ended.contains(group));
            groups.extend(begun);
            groups.sort_unstable();
            groups.dedup();
            classes.push((id, groups));
        }
        let with_nodes =
            |spec: &Spec| matches!(spec, Spec::Hosts { nodes, .. } if !nodes.is_empty());
        let begun = turn
            .begun
            .iter()
            .filter_map(|id| self.groups.active.get(id));
        let all_nodes = begun.chain(turn.ended.values()).any(with_nodes);
        let mut nodes: Vec<u32> = if all_nodes {
            store.node_ids.values().copied().collect()
        } else {
            store.changes.relabelled_nodes.clone()
        };
        nodes.sort_unstable();
        nodes.dedup();
        let live = nodes.into_iter().filter_map(|id| {
            let node = store.nodes.get(id)?;
            // It may be gone again.
            (store.node_ids.get(&node.name) == Some(&id)).then_some((id, node.labels))
        });
        let nodes = live.map(|(id, labels)| (id, self.groups.of_node(store.labels.get(labels))));
        (classes, nodes.collect())
    }

    fn class_groups(
        &self,
        store: &mut Store,
        id: u32,
        new: &[u32],
        turn: &Turn,
        change: &mut PlanChange,
    ) {
        let before = store.classes.get(id).map_or(NONE, |it| it.groups);
        let (after, _) = store.groups.intern(new);
        if let Some(class) = store.classes.get_mut(id) {
            class.groups = after;
        }
        if before != after {
            for (pod, _) in store.pods_of(id) {
                for address in store.addresses(pod) {
                    self.unless_touched(
                        store,
                        address,
                        Owner::Pod(pod),
                        (before, after),
                        turn,
                        change,
                    );
                }
            }
        }
        store.groups.release(before);
    }

    fn node_groups(
        &self,
        store: &mut Store,
        id: u32,
        new: &[u32],
        turn: &Turn,
        change: &mut PlanChange,
    ) {
        let before = store.nodes.get(id).map_or(NONE, |it| it.groups);
        let (after, _) = store.groups.intern(new);
        if let Some(node) = store.nodes.get_mut(id) {
            node.groups = after;
        }
        if before != after {
            for address in store.node_addresses(id) {
                self.unless_touched(
                    store,
                    address,
                    Owner::Node(id),
                    (before, after),
                    turn,
                    change,
                );
            }
        }
        store.groups.release(before);
    }

    /// An address whose owner is the same but in other groups.
    fn unless_touched(
        &self,
        store: &Store,
        address: IpAddr,
        owner: Owner,
        (before, after): (u32, u32),
        turn: &Turn,
        change: &mut PlanChange,
    ) {
        if !store.changes.touched.contains_key(&address) && store.owner(address) == Some(owner) {
            let (before, after) = (store.groups.get(before), store.groups.get(after));
            self.moved(address, before, after, turn, change);
        }
    }

    /// Tells the difference between the groups that an address was in and those that it is in.
    fn moved(
        &self,
        address: IpAddr,
        before: &[u32],
        after: &[u32],
        turn: &Turn,
        change: &mut PlanChange,
    ) {
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
                    if !self.groups.is_single(*group, address) {
                        change.left.push((GroupId(*group), address));
                    }
                }
            }
        }
        for group in after {
            if before.binary_search(group).is_err() && !self.groups.is_single(*group, address) {
                change.joined.push((GroupId(*group), address));
            }
        }
    }

    /// Tells what addresses of local pods face.
    pub(super) fn tell_pods(&mut self, dirty: &Dirty, change: &mut PlanChange) {
        for address in &dirty.addresses {
            let class = self.pods.get(address).map(|(class, _)| *class);
            match class.and_then(|class| self.local.get(&class)) {
                None => change.ended_pods.push(*address),
                Some(local) => {
                    let faced = local.faced();
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

/// The members that a group has whoever is there.
pub(super) fn own_members(spec: &Spec) -> &[IpAddr] {
    match spec {
        Spec::Hosts { singles, .. } => singles,
        Spec::Nets(_, _, nets) => nets,
        Spec::Named(..) => &[],
    }
}
