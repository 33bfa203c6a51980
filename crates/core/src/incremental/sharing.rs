//! Groups that have the same members are told as one.
//!
//! The engine has a group for each selector. Selectors that differ in text often select the same pods, and what a dataplane
//! keeps of a group is an element for each member. So what is told of are sets: every group has one, and groups that
//! have the same members and serve the same end may have the same one. For each group its set is kept and a
//! sum of hashes of its members, nothing for each member.
//!
//! A group looks for its set when it begins, and when the whole plan is told anew. A set changes only if all its groups change
//! alike. Those that do not are given sets of their own before anything else is told (`PlanChange::split`), so that
//! nobody who still asks an old body finds members in it that it never had.

mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use rustc_hash::FxHashMap;

pub(super) use self::told::Told;
use super::digest::Hashes;
use crate::plan::{GroupId, GroupKind, PlanChange};

/// Members by their number and the sum of their hashes. The key of the hashes is secret, so that nobody who chooses addresses or
/// labels can make two lists of members look the same: they do by chance only, one in 2^128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Content {
    sum: u128,
    count: u32,
}

/// What is known of a group of hosts. Others never change, and those that are the same are one already.
#[derive(Clone, Copy, Debug)]
struct GroupState {
    content: Content,
    /// What it is told as.
    set: u32,
    narrows: bool,
    /// Whether something was noted of it in this commit, or it begins with it.
    is_noted: bool,
}

impl GroupState {
    /// What another group must have to share its set. What accepts and what narrows are kept apart, as groups are.
    fn key(&self) -> Key {
        (self.content, self.narrows)
    }
}

type Key = (Content, bool);

/// Which groups share a set.
#[derive(Debug)]
pub(super) struct Sharing {
    hashes: Hashes,
    /// Groups of fewer members have sets of their own: it would save little.
    least: usize,
    groups: FxHashMap<u32, GroupState>,
    /// The groups of each set that has more than one, ascending.
    users: FxHashMap<u32, Vec<u32>>,
    /// A group of each content, of those that have enough members.
    of_content: FxHashMap<Key, u32>,
    /// How many groups are told by another number than their own.
    renamed: usize,
}

/// A set whose groups have become different.
#[derive(Debug)]
pub(super) struct Split {
    /// The set.
    pub(super) set: u32,
    /// One of its groups.
    pub(super) witness: u32,
    /// The sets that some of them have from now on.
    pub(super) new: Vec<u32>,
    /// Whether none of them stays.
    pub(super) ends: bool,
}

/// What a commit does to sets.
#[derive(Debug, Default)]
pub(super) struct SetChanges {
    was_plain: bool,
    pub(super) splits: Vec<Split>,
    /// Groups that were there and have another set now.
    pub(super) moved: BTreeSet<u32>,
    /// The groups of hosts that end, and their sets.
    ended: FxHashMap<u32, u32>,
    /// The sets that nobody has any more, and one of the groups that had it last.
    gone: BTreeMap<u32, u32>,
    /// The groups that others joined or left, as they were.
    touched: Vec<(u32, Content)>,
    begun: Vec<u32>,
}

impl Sharing {
    pub(super) fn new(least: usize, hashes: Hashes) -> Sharing {
        Sharing {
            hashes,
            // Who is in no group need not be told of, so that nothing is saved by sharing none.
            least: least.max(1),
            groups: FxHashMap::default(),
            users: FxHashMap::default(),
            of_content: FxHashMap::default(),
            renamed: 0,
        }
    }

    /// What a group is told as.
    pub(super) fn set(&self, GroupId(group): GroupId) -> GroupId {
        if self.renamed == 0 {
            return GroupId(group);
        }
        let known = self.groups.get(&group);
        GroupId(known.map_or(group, |known| known.set))
    }

    /// Whether a group is the one that stands for its set.
    pub(super) fn is_first(&self, group: u32) -> bool {
        let set = self.groups.get(&group).map(|known| known.set);
        let users = set.and_then(|set| self.users.get(&set));
        users.is_none_or(|users| users.first() == Some(&group))
    }

    /// How many groups have the set of another.
    pub(super) fn n_saved(&self) -> usize {
        let users = self.users.values();
        users.map(|users| users.len().saturating_sub(1)).sum()
    }

    /// Whether every group is told by its own number.
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

    /// Has others find a group, unless they find another that has the same members.
    fn list(&mut self, group: u32) {
        if let Some(known) = self.groups.get(&group)
            && self.is_large(known.content)
        {
            self.of_content.entry(known.key()).or_insert(group);
        }
    }

    fn unlist(&mut self, group: u32, key: Key) {
        if self.is_large(key.0) && self.of_content.get(&key) == Some(&group) {
            self.of_content.remove(&key);
        }
    }

    /// Takes in what happened to groups, and finds the sets that they have after it. `fresh` is the next number of a group.
    pub(super) fn follow(
        &mut self,
        change: &PlanChange,
        narrows: impl Fn(u32) -> bool,
        fresh: &mut u32,
    ) -> SetChanges {
        let mut turn = SetChanges {
            was_plain: self.is_plain(),
            ..SetChanges::default()
        };
        let mut orphans: FxHashMap<Key, u32> = FxHashMap::default();
        for GroupId(id) in &change.ended_groups {
            self.end(*id, &mut orphans, &mut turn);
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
                turn.begun.push(*id);
            }
        }
        self.note(change, &mut turn);
        self.divide(fresh, &mut turn);
        for id in turn.begun.clone() {
            self.find_set(id, &mut orphans, &mut turn);
        }
        let noted = turn.touched.iter().map(|(id, _)| id);
        for id in noted.chain(&turn.begun) {
            if let Some(known) = self.groups.get_mut(id) {
                known.is_noted = false;
            }
        }
        turn
    }

    fn end(&mut self, id: u32, orphans: &mut FxHashMap<Key, u32>, turn: &mut SetChanges) {
        let Some(known) = self.groups.remove(&id) else {
            return;
        };
        self.renamed -= usize::from(known.set != id);
        turn.ended.insert(id, known.set);
        self.unlist(id, known.key());
        let Some(users) = self.users.get_mut(&known.set) else {
            turn.gone.insert(known.set, id);
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
        if let Some(first) = first {
            self.list(first);
        }
    }

    /// Notes who joins and leaves.
    fn note(&mut self, change: &PlanChange, turn: &mut SetChanges) {
        let mut last: Option<(IpAddr, u128)> = None;
        let joined = change.joined.iter().map(|it| (it, true));
        let left = change.left.iter().map(|it| (it, false));
        for ((GroupId(id), address), joins) in joined.chain(left) {
            let Some(known) = self.groups.get_mut(id) else {
                continue;
            };
            if !known.is_noted {
                known.is_noted = true;
                turn.touched.push((*id, known.content));
            }
            // The groups of one address often stand together.
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

    /// Gives sets of their own to groups that have not changed as others of their set have.
    fn divide(&mut self, fresh: &mut u32, turn: &mut SetChanges) {
        let mut shared: BTreeMap<u32, Content> = BTreeMap::new();
        for (id, before) in &turn.touched {
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
                // Whoever still asks it must not find others in it.
                if is_whole || content == before {
                    split.ends = false;
                } else {
                    own = *fresh;
                    *fresh += 1;
                    split.new.push(own);
                    turn.moved.extend(&users);
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
                turn.splits.push(split);
            }
        }
        for (id, _) in &turn.touched {
            self.list(*id);
        }
    }

    /// Finds the set of a group that begins: one that has its members, or else its own.
    fn find_set(&mut self, id: u32, orphans: &mut FxHashMap<Key, u32>, turn: &mut SetChanges) {
        let Some(key) = self.groups.get(&id).map(GroupState::key) else {
            return;
        };
        if !self.is_large(key.0) {
            return;
        }
        if let Some(other) = self.of_content.get(&key).copied() {
            self.join(id, other);
        } else {
            // What a group has left that ends at the same time need not be told anew.
            if let Some(set) = orphans.remove(&key) {
                turn.gone.remove(&set);
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

    /// Has all groups of the same members share a set. Says which groups have another set than before; nobody is
    /// told, so that this is for when the whole plan is.
    pub(super) fn merge(&mut self) -> BTreeSet<u32> {
        let mut moved = BTreeSet::new();
        self.of_content.clear();
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
    /// Tells a change of sets instead of groups. Says whether there was something to do.
    pub(super) fn append_to(&self, sharing: &Sharing, change: &mut PlanChange) -> bool {
        if self.was_plain && sharing.is_plain() {
            return false;
        }
        // All groups of a set that stays change alike, so that one of them tells it for all; those that begin with
        // a set that is there have nothing to tell.
        let mut tellers: FxHashMap<u32, u32> = FxHashMap::default();
        let touched = self.touched.iter().map(|(id, _)| *id);
        for id in touched {
            if let Some(known) = sharing.groups.get(&id) {
                tellers.entry(known.set).or_insert(id);
            }
        }
        let own = |id: &u32| sharing.groups.get(id).is_some_and(|it| it.set == *id);
        for id in self.begun.iter().filter(|id| own(id)) {
            tellers.insert(*id, *id);
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
                    if tellers.get(&known.set) != Some(&logical.0) {
                        return false;
                    }
                }
                if change.narrowing.contains(&logical) {
                    narrowing.insert(*group);
                }
                true
            });
        }
        change.narrowing = narrowing;
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
            let is_last = self.gone.get(set) == Some(&group.0);
            *group = GroupId(*set);
            is_last
        });
        true
    }
}

#[cfg(test)]
mod tests;
