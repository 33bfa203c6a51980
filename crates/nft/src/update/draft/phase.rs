//! The contents of one transaction of a change, while it is drafted.

use std::collections::BTreeMap;
use std::net::IpAddr;

use palisade_core::net::Family;
use palisade_core::plan::GroupId;

use super::super::SetCapacity;
use crate::node;
use crate::ruleset::{Chain, Field, Name, Set, Value, Values, Verdict};
use crate::transaction::Op;

/// The contents of one transaction. The elements of each set are together.
#[derive(Debug, Default)]
pub(in super::super) struct Phase {
    new_sets: Vec<Set>,
    new_chains: Vec<Chain>,
    deleted: BTreeMap<&'static str, Set>,
    added: BTreeMap<&'static str, Set>,
    rewritten: Vec<Chain>,
    deleted_chains: Vec<Name>,
    deleted_sets: Vec<Name>,
}

impl Phase {
    pub(super) fn new_set(&mut self, set: Set) {
        self.new_sets.push(set);
    }

    pub(super) fn new_chain(&mut self, chain: Chain) {
        self.new_chains.push(chain);
    }

    pub(super) fn rewrite(&mut self, chain: Chain) {
        self.rewritten.push(chain);
    }

    pub(super) fn delete_chain(&mut self, chain: Name) {
        self.deleted_chains.push(chain);
    }

    pub(super) fn delete_set(&mut self, set: Name) {
        self.deleted_sets.push(set);
    }

    pub(super) fn add(&mut self, set: &'static str, fields: &[Field], key: &[Value]) {
        let new = || Set::new(Name::word(set), fields.to_vec());
        self.added.entry(set).or_insert_with(new).push(key);
    }

    pub(super) fn add_verdict(
        &mut self,
        map: &'static str,
        fields: &[Field],
        key: &[Value],
        verdict: Verdict,
    ) {
        let new = || Set::map(Name::word(map), fields.to_vec());
        let map = self.added.entry(map).or_insert_with(new);
        map.push_verdict(key, verdict);
    }

    /// Adds the ranges of a group.
    pub(super) fn add_ranges(&mut self, family: Family, group: GroupId, bounds: &[IpAddr]) {
        push_ranges(&mut self.added, family, group, bounds);
    }

    /// Deletes the ranges of a group.
    pub(super) fn delete_ranges(&mut self, family: Family, group: GroupId, bounds: &[IpAddr]) {
        push_ranges(&mut self.deleted, family, group, bounds);
    }

    pub(super) fn delete(&mut self, set: &'static str, fields: &[Field], key: &[Value]) {
        let new = || Set::new(Name::word(set), fields.to_vec());
        self.deleted.entry(set).or_insert_with(new).push(key);
    }

    /// Returns the number of elements that a set gets.
    pub(super) fn count_of(&self, set: &str) -> usize {
        let new = self.new_sets.iter().find(|it| it.name.as_str() == set);
        self.added.get(set).or(new).map_or(0, Set::len)
    }

    /// Turns the elements that a set would get into a new set.
    pub(super) fn make(&mut self, set: &str) {
        if let Some(mut set) = self.added.remove(set) {
            set.size = node::capacity_for(set.len());
            self.new_sets.push(set);
        }
    }

    /// Deletes a set as a whole if all its elements are deleted.
    pub(super) fn delete_if_empty(&mut self, set: &'static str, count: usize) {
        if self.deleted.get(set).is_some_and(|it| it.len() == count) {
            self.deleted.remove(set);
            self.deleted_sets.push(Name::word(set));
        }
    }

    /// Returns the elements that existing sets get.
    pub(in super::super) fn added(&self) -> impl Iterator<Item = &Set> {
        self.added.values()
    }

    /// Reports whether elements of verdict maps are added, which lead to new chains.
    pub(in super::super) fn leads_anywhere(&self) -> bool {
        let is_map = |set: &Set| matches!(set.values, Values::Verdicts(_));
        self.added.values().any(is_map)
    }

    /// Returns the number of chains that are added and deleted.
    pub(in super::super) fn chains(&self) -> (usize, usize) {
        (self.new_chains.len(), self.deleted_chains.len())
    }

    /// Returns the number of sets that are added and deleted.
    pub(in super::super) fn sets(&self) -> (usize, usize) {
        (self.new_sets.len(), self.deleted_sets.len())
    }

    /// Counts the elements and sets that are added and deleted.
    pub(in super::super) fn count(&self, rooms: &mut BTreeMap<Name, SetCapacity>) {
        for set in &self.new_sets {
            if !node::unions::is_of_a_chain(&set.name) {
                let (count, size) = (set.len(), set.size);
                rooms.insert(set.name.clone(), SetCapacity { count, size });
            }
        }
        for set in self.added.values() {
            if let Some(room) = rooms.get_mut(&set.name) {
                room.count += set.len();
            }
        }
        for set in self.deleted.values() {
            if let Some(room) = rooms.get_mut(&set.name) {
                room.count = room.count.saturating_sub(set.len());
            }
        }
        for name in &self.deleted_sets {
            rooms.remove(name);
        }
    }

    /// Returns the operations.
    pub(in super::super) fn ops(self) -> Vec<Op> {
        // What is named must exist: sets come before rules that use them, and chains before rules
        // and elements that lead to them. Elements are deleted before others are added, which may
        // need their room. What was named is deleted last.
        let mut ops: Vec<Op> = self.new_sets.into_iter().map(Op::AddSet).collect();
        let names = self.new_chains.iter().map(|chain| chain.name.clone());
        ops.extend(names.map(Op::AddChain));
        ops.extend(self.new_chains.into_iter().map(Op::Rewrite));
        ops.extend(self.deleted.into_values().map(Op::DeleteElements));
        ops.extend(self.added.into_values().map(Op::AddElements));
        ops.extend(self.rewritten.into_iter().map(Op::Rewrite));
        ops.extend(self.deleted_chains.into_iter().map(Op::DeleteChain));
        ops.extend(self.deleted_sets.into_iter().map(Op::DeleteSet));
        ops
    }
}

fn push_ranges(
    sets: &mut BTreeMap<&'static str, Set>,
    family: Family,
    group: GroupId,
    bounds: &[IpAddr],
) {
    let name = node::ranges_of(family);
    let new = || Set::ranges(Name::word(name), node::range_fields(family));
    node::push_ranges(group, bounds, sets.entry(name).or_insert_with(new));
}
