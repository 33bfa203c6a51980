//! Groups of the same members share a set.
//!
//! The engine has a group for each selector. Selectors that differ in text often select the same
//! pods, and a dataplane keeps an element for each member of a group. The published plan therefore
//! has sets. Every group has a set, and groups of the same members and the same role can share one.
//! The engine keeps the number of the set and a sum of hashes of the members for each group, and
//! nothing for each member.
//!
//! A group looks for its set when it begins, and before the whole plan is published. A set changes
//! only if all its groups change alike. Other groups get sets of their own in a split that precedes
//! the rest of the change (`PlanChange::split`). The old set stays as it was: packets in an old
//! rule chain find no member there that the chain never had.

mod published;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use rustc_hash::FxHashMap;

pub(super) use self::published::PublishedChains;
use super::digest::Hashes;
use crate::plan::{GroupId, GroupKind, PlanChange};

/// The members of a group: their number and the sum of their hashes. Equal contents mean equal
/// members.
// A sum does not depend on an order, and a member that joins or leaves is one addition. The hashes
// are keyed: authors of addresses and labels cannot make two contents look the same. By chance that
// happens once in 2^128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Content {
    sum: u128,
    count: u32,
}

/// The state of a group of hosts.
// Blocks and ranges have no state: their members never change, and equal ones are one group anyway.
#[derive(Clone, Copy, Debug)]
struct GroupState {
    content: Content,
    /// The number of its set.
    set: u32,
    narrows: bool,
    /// Whether the group begins with this commit, or the commit has noted its old content.
    is_noted: bool,
}

impl GroupState {
    /// Returns the key that groups must have in common to share a set.
    // With the role: the order of membership changes differs between groups that accept and groups
    // that narrow, so a set must not be both.
    fn key(&self) -> Key {
        (self.content, self.narrows)
    }
}

type Key = (Content, bool);

/// The sets of all groups of hosts.
#[derive(Debug)]
pub(super) struct Sharing {
    hashes: Hashes,
    /// The number of members from which on groups share sets. Below it would save little.
    least: usize,
    groups: FxHashMap<u32, GroupState>,
    /// The groups of each set that has more than one, ascending.
    users: FxHashMap<u32, Vec<u32>>,
    /// A group of each content that has enough members.
    of_content: FxHashMap<Key, u32>,
    /// The number of groups whose set has another number than the group.
    renamed: usize,
}

/// A set whose groups became different.
#[derive(Debug)]
pub(super) struct Split {
    /// The number of the set.
    pub(super) set: u32,
    /// A group of the set. Its members before the commit are those of all.
    pub(super) witness: u32,
    /// The new sets of groups that leave this one.
    pub(super) new: Vec<u32>,
    /// Whether no group stays.
    pub(super) ends: bool,
}

/// The effect of a commit on sets.
#[derive(Debug, Default)]
pub(super) struct SetChanges {
    /// Whether every group had the set of its own number before the commit.
    was_plain: bool,
    pub(super) splits: Vec<Split>,
    /// Groups that existed before and have another set now.
    pub(super) moved: BTreeSet<u32>,
    /// The groups of hosts that end, and their sets.
    ended: FxHashMap<u32, u32>,
    /// The sets without groups, each with the last group that had it.
    gone: BTreeMap<u32, u32>,
    /// The groups with members that join or leave, and their contents before.
    touched: Vec<(u32, Content)>,
    begun: Vec<u32>,
}

impl Sharing {
    pub(super) fn new(least: usize, hashes: Hashes) -> Sharing {
        Sharing {
            hashes,
            // Empty groups have no elements: sharing their sets would only cause splits.
            least: least.max(1),
            groups: FxHashMap::default(),
            users: FxHashMap::default(),
            of_content: FxHashMap::default(),
            renamed: 0,
        }
    }

    /// Returns the set of a group.
    pub(super) fn set(&self, GroupId(group): GroupId) -> GroupId {
        // Called for every group of every published rule chain, so without a lookup if possible.
        if self.renamed == 0 {
            return GroupId(group);
        }
        let known = self.groups.get(&group);
        GroupId(known.map_or(group, |known| known.set))
    }

    /// Returns whether a group represents its set.
    pub(super) fn is_first(&self, group: u32) -> bool {
        let set = self.groups.get(&group).map(|known| known.set);
        let users = set.and_then(|set| self.users.get(&set));
        users.is_none_or(|users| users.first() == Some(&group))
    }

    /// Returns how many sets sharing saves.
    pub(super) fn n_saved(&self) -> usize {
        let users = self.users.values();
        users.map(|users| users.len().saturating_sub(1)).sum()
    }

    /// Returns whether every group has the set of its own number, alone.
    fn is_plain(&self) -> bool {
        self.users.is_empty() && self.renamed == 0
    }

    fn is_large(&self, content: Content) -> bool {
        content.count as usize >= self.least
    }

    fn assign(&mut self, group: u32, set: u32) {
        if let Some(known) = self.groups.get_mut(&group) {
            self.renamed += usize::from(set != group);
            self.renamed -= usize::from(known.set != group);
            known.set = set;
        }
    }

    /// Makes a group findable by its content, unless another group of the same content is.
    fn list(&mut self, group: u32) {
        if let Some(known) = self.groups.get(&group)
            && self.is_large(known.content)
        {
            self.of_content.entry(known.key()).or_insert(group);
        }
    }

    // With the key before the change: the group is listed under it.
    fn unlist(&mut self, group: u32, key: Key) {
        if self.is_large(key.0) && self.of_content.get(&key) == Some(&group) {
            self.of_content.remove(&key);
        }
    }

    /// Follows a change of groups, and finds the sets that they have after it. `fresh` is the next
    /// number of a group.
    // The order of the steps: ended groups leave their sets as orphans. Contents change. Groups
    // that no longer agree are divided. Groups that begin look for a set last, when the contents of
    // all others are final.
    pub(super) fn follow(
        &mut self,
        change: &PlanChange,
        narrows: impl Fn(u32) -> bool,
        fresh: &mut u32,
    ) -> SetChanges {
        let mut set_changes = SetChanges {
            was_plain: self.is_plain(),
            ..SetChanges::default()
        };
        let mut orphans: FxHashMap<Key, u32> = FxHashMap::default();
        for GroupId(id) in &change.ended_groups {
            self.end(*id, &mut orphans, &mut set_changes);
        }
        for (GroupId(id), kind) in &change.groups {
            if *kind == GroupKind::Hosts {
                let known = GroupState {
                    content: Content::default(),
                    set: *id,
                    narrows: narrows(*id),
                    is_noted: true,
                };
                self.groups.insert(*id, known);
                set_changes.begun.push(*id);
            }
        }
        self.note(change, &mut set_changes);
        self.divide(fresh, &mut set_changes);
        for id in set_changes.begun.clone() {
            self.find_set(id, &mut orphans, &mut set_changes);
        }
        let noted = set_changes.touched.iter().map(|(id, _)| id);
        for id in noted.chain(&set_changes.begun) {
            if let Some(known) = self.groups.get_mut(id) {
                known.is_noted = false;
            }
        }
        set_changes
    }

    fn end(&mut self, id: u32, orphans: &mut FxHashMap<Key, u32>, set_changes: &mut SetChanges) {
        let Some(known) = self.groups.remove(&id) else {
            return;
        };
        self.renamed -= usize::from(known.set != id);
        set_changes.ended.insert(id, known.set);
        self.unlist(id, known.key());
        // A set without an entry in `users` has one group.
        let Some(users) = self.users.get_mut(&known.set) else {
            set_changes.gone.insert(known.set, id);
            if self.is_large(known.content) {
                orphans.insert(known.key(), known.set);
            }
            return;
        };
        users.retain(|user| *user != id);
        let first = users.first().copied();
        if users.len() == 1 {
            self.users.remove(&known.set);
        }
        // If the group that ended was the one to find, another group of the set takes its place.
        if let Some(first) = first {
            self.list(first);
        }
    }

    /// Updates the contents by the members that join and leave, and notes the contents before.
    fn note(&mut self, change: &PlanChange, set_changes: &mut SetChanges) {
        let mut last: Option<(IpAddr, u128)> = None;
        let joined = change.joined.iter().map(|it| (it, true));
        let left = change.left.iter().map(|it| (it, false));
        for ((GroupId(id), address), joins) in joined.chain(left) {
            let Some(known) = self.groups.get_mut(id) else {
                continue;
            };
            if !known.is_noted {
                known.is_noted = true;
                set_changes.touched.push((*id, known.content));
            }
            // The entries of one address are often neighbors, and the hash is the costly part.
            let hash = match last {
                Some((of, hash)) if of == *address => hash,
                _ => self.hashes.long_of(*address),
            };
            last = Some((*address, hash));
            let Content { sum, count } = &mut known.content;
            if joins {
                *sum = sum.wrapping_add(hash);
                *count = count.wrapping_add(1);
            } else {
                *sum = sum.wrapping_sub(hash);
                *count = count.wrapping_sub(1);
            }
        }
    }

    /// Gives sets of their own to groups that did not change like the others of their set.
    fn divide(&mut self, fresh: &mut u32, set_changes: &mut SetChanges) {
        // Sorted: the numbers of new sets must not depend on the order of a hash map.
        let mut shared: BTreeMap<u32, Content> = BTreeMap::new();
        for (id, before) in &set_changes.touched {
            let Some(known) = self.groups.get(id).copied() else {
                continue;
            };
            self.unlist(*id, (*before, known.narrows));
            if !self.users.is_empty() && self.users.contains_key(&known.set) {
                shared.insert(known.set, *before);
            }
        }
        for (set, before) in shared {
            let users = self.users.remove(&set).unwrap_or_default();
            let mut alike: Vec<(Content, Vec<u32>)> = Vec::new();
            let mut places: FxHashMap<Content, usize> = FxHashMap::default();
            for user in users {
                let content = self.groups.get(&user).map(|known| known.content);
                let content = content.unwrap_or_default();
                let place = *places.entry(content).or_insert_with(|| {
                    alike.push((content, Vec::new()));
                    alike.len() - 1
                });
                if let Some((_, users)) = alike.get_mut(place) {
                    users.push(user);
                }
            }
            let mut split = Split {
                set,
                witness: 0,
                new: Vec::new(),
                ends: true,
            };
            let is_whole = alike.len() == 1;
            for (content, users) in alike {
                let Some(first) = users.first().copied() else {
                    continue;
                };
                let mut own = set;
                // If all groups change alike, the set changes. Otherwise only those without change
                // may keep the set: packets in old chains must not find other members there.
                if is_whole || content == before {
                    split.ends = false;
                } else {
                    own = *fresh;
                    *fresh += 1;
                    split.new.push(own);
                    set_changes.moved.extend(&users);
                    for user in &users {
                        self.assign(*user, own);
                    }
                }
                split.witness = first;
                if users.len() > 1 {
                    self.users.insert(own, users);
                }
                self.list(first);
            }
            if !is_whole {
                set_changes.splits.push(split);
            }
        }
        // Also groups that share no set. They are not merged with others of the same content now:
        // that would rewrite rule chains. `merge` does so before a whole new table.
        for (id, _) in &set_changes.touched {
            self.list(*id);
        }
    }

    /// Finds the set of a group that begins: a set with its members, else one of its own.
    fn find_set(
        &mut self,
        id: u32,
        orphans: &mut FxHashMap<Key, u32>,
        set_changes: &mut SetChanges,
    ) {
        let Some(key) = self.groups.get(&id).map(GroupState::key) else {
            return;
        };
        if !self.is_large(key.0) {
            return;
        }
        if let Some(other) = self.of_content.get(&key).copied() {
            self.join(id, other);
        } else {
            // The set of a group that ends in the same commit: a selector in other words costs no
            // element.
            if let Some(set) = orphans.remove(&key) {
                set_changes.gone.remove(&set);
                self.assign(id, set);
            }
            self.list(id);
        }
    }

    /// Gives a group the set of another.
    fn join(&mut self, id: u32, other: u32) {
        let Some(set) = self.groups.get(&other).map(|known| known.set) else {
            return;
        };
        self.assign(id, set);
        let users = self.users.entry(set).or_insert_with(|| vec![other]);
        users.push(id);
        users.sort_unstable();
    }

    /// Lets all groups of the same members share a set. Returns the groups whose set changed. This
    /// is in no change: the plan must be published as a whole afterwards.
    pub(super) fn merge(&mut self) -> BTreeSet<u32> {
        let mut moved = BTreeSet::new();
        self.of_content.clear();
        // Ascending: the first group of each content keeps its set, and the result does not depend
        // on the order of a hash map.
        let mut ids: Vec<u32> = self.groups.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(known) = self.groups.get(&id).copied() else {
                continue;
            };
            let Some(other) = self.of_content.get(&known.key()).copied() else {
                self.list(id);
                continue;
            };
            let set = self.groups.get(&other).map(|other| other.set);
            if set != Some(known.set) {
                if let Some(users) = self.users.get_mut(&known.set) {
                    users.retain(|user| *user != id);
                    if users.len() == 1 {
                        self.users.remove(&known.set);
                    }
                }
                self.join(id, other);
                moved.insert(id);
            }
        }
        moved
    }
}

impl SetChanges {
    /// Translates a change from groups to sets. Returns whether it had to.
    pub(super) fn append_to(&self, sharing: &Sharing, change: &mut PlanChange) -> bool {
        if self.was_plain && sharing.is_plain() {
            return false;
        }
        // All groups of a set that stays change alike: the members of one of them stand for all.
        // Groups that begin with an existing set add none.
        let mut representatives: FxHashMap<u32, u32> = FxHashMap::default();
        let touched = self.touched.iter().map(|(id, _)| *id);
        for id in touched {
            if let Some(known) = sharing.groups.get(&id) {
                representatives.entry(known.set).or_insert(id);
            }
        }
        let own = |id: &u32| sharing.groups.get(id).is_some_and(|it| it.set == *id);
        for id in self.begun.iter().filter(|id| own(id)) {
            representatives.insert(*id, *id);
        }
        let begun = std::mem::take(&mut change.groups).into_iter();
        let begun = begun.filter(|(GroupId(id), kind)| *kind != GroupKind::Hosts || own(id));
        change.groups = begun.collect();
        let mut narrowing = BTreeSet::new();
        for list in [&mut change.joined, &mut change.left] {
            list.retain_mut(|(group, _)| {
                let logical = *group;
                if let Some(known) = sharing.groups.get(&logical.0) {
                    *group = GroupId(known.set);
                    if representatives.get(&known.set) != Some(&logical.0) {
                        return false;
                    }
                }
                // Any group of the set will do: the key of a set includes the role.
                if change.narrowing.contains(&logical) {
                    narrowing.insert(*group);
                }
                true
            });
        }
        change.narrowing = narrowing;
        // Groups that end without the last use of their set are dropped from the change; sets that
        // end take their place.
        let is_other = |GroupId(id): &GroupId| !self.ended.contains_key(id);
        change.ended_groups.retain(is_other);
        change
            .ended_groups
            .extend(self.gone.keys().map(|set| GroupId(*set)));
        change.ended_groups.sort_unstable();
        change.ended_members.retain_mut(|(group, _)| {
            let Some(set) = self.ended.get(&group.0) else {
                return true;
            };
            // Several groups of a set can end together. The members of the last one stand for all.
            let is_last = self.gone.get(set) == Some(&group.0);
            *group = GroupId(*set);
            is_last
        });
        true
    }
}

#[cfg(test)]
mod tests;
