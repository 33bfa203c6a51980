//! Published sets have the members of their groups, in random histories of changes.
//!
//! A history that fails prints its seed.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use super::super::digest::{HashKey, Hashes};
use super::Sharing;
use crate::net::Family;
use crate::plan::{Group, GroupId, GroupKind, Plan, PlanChange};

/// Random numbers (splitmix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

type Members = BTreeSet<IpAddr>;

/// The groups of an engine, and the sets of a reader of its changes.
struct World {
    rng: Rng,
    least: usize,
    sharing: Sharing,
    groups: BTreeMap<u32, Members>,
    published: Plan,
    next: u32,
    splits: usize,
    saved: usize,
}

fn address(number: u64) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + number as u32).into()
}

/// Groups of odd numbers narrow.
fn narrows(id: u32) -> bool {
    id % 2 == 1
}

impl World {
    fn new(seed: u64) -> World {
        let least = 1 + (seed % 3) as usize;
        World {
            rng: Rng(seed),
            least,
            sharing: Sharing::new(least, Hashes::new(HashKey::new(seed, 1))),
            groups: BTreeMap::new(),
            published: Plan::default(),
            next: 0,
            splits: 0,
            saved: 0,
        }
    }

    /// Makes the changes of groups until the next commit.
    fn change(&mut self) -> PlanChange {
        let mut change = PlanChange::default();
        let mut after = self.groups.clone();
        let moved: Vec<IpAddr> = (0..self.rng.below(3))
            .map(|_| address(self.rng.below(5)))
            .collect();
        for (id, members) in &mut after {
            if self.rng.below(8) == 0 {
                change.ended_groups.push(GroupId(*id));
                continue;
            }
            for address in &moved {
                // Most groups change alike.
                if self.rng.below(6) > 0 && !members.insert(*address) {
                    members.remove(address);
                }
            }
        }
        for GroupId(id) in &change.ended_groups {
            let members = self.groups[id].iter();
            let members = members.map(|address| (GroupId(*id), *address));
            change.ended_members.extend(members);
            after.remove(id);
        }
        for (id, members) in &after {
            let before = &self.groups[id];
            let joined = members.difference(before);
            change.joined.extend(joined.map(|it| (GroupId(*id), *it)));
            let left = before.difference(members);
            change.left.extend(left.map(|it| (GroupId(*id), *it)));
        }
        for _ in 0..self.rng.below(3) {
            let id = self.next;
            self.next += 1;
            let members: Members = match self.groups.values().next() {
                Some(others) if self.rng.below(2) == 0 => others.clone(),
                _ => (0..self.rng.below(4))
                    .map(|_| address(self.rng.below(5)))
                    .collect(),
            };
            change.groups.push((GroupId(id), GroupKind::Hosts));
            change
                .joined
                .extend(members.iter().map(|it| (GroupId(id), *it)));
            after.insert(id, members);
        }
        // Blocks share no sets.
        let nets = GroupId(self.next);
        self.next += 1;
        change.groups.push((nets, GroupKind::Nets(Family::V4, 24)));
        change.joined.push((nets, address(0)));
        let old = self.published.groups.iter();
        let mut old = old.filter(|(_, group)| group.kind != GroupKind::Hosts);
        if let Some((id, group)) = old.next() {
            change.ended_groups.push(*id);
            change.ended_members.push((*id, group.addresses[0]));
        }
        let moved = change.joined.iter().chain(&change.left);
        let moved = moved.map(|(id, _)| *id);
        change.narrowing = moved.filter(|it| *it != nets && narrows(it.0)).collect();
        self.groups = after;
        change
    }

    fn commit(&mut self, at: &str) {
        let mut change = self.change();
        let set_changes = self.sharing.follow(&change, narrows, &mut self.next);
        set_changes.append_to(&self.sharing, &mut change);
        for split in &set_changes.splits {
            let before = self.published.groups[&GroupId(split.set)].clone();
            for set in &split.new {
                let known = self.published.groups.insert(GroupId(*set), before.clone());
                assert!(known.is_none(), "{at}: {set} is used again");
            }
            if split.ends {
                let members = before.addresses.iter();
                let members = members.map(|it| (GroupId(split.set), *it));
                change.ended_members.extend(members);
                change.ended_groups.push(GroupId(split.set));
            }
        }
        self.splits += set_changes.splits.len();
        self.follow(&change, at);
        self.check(&change, at);
    }

    /// Applies a published change, which must fit the published state.
    fn follow(&mut self, change: &PlanChange, at: &str) {
        for (id, _) in &change.groups {
            assert!(
                !self.published.groups.contains_key(id),
                "{at}: {id:?} is there"
            );
        }
        let is_in = |plan: &Plan, (id, address): &(GroupId, IpAddr)| {
            let group = plan.groups.get(id);
            group.is_some_and(|it| it.addresses.contains(address))
        };
        for member in &change.joined {
            assert!(!is_in(&self.published, member), "{at}: {member:?} is in");
        }
        for member in change.left.iter().chain(&change.ended_members) {
            assert!(is_in(&self.published, member), "{at}: {member:?} is not in");
        }
        let ended = change.ended_groups.iter();
        let ended = ended.map(|id| self.published.groups[id].addresses.len());
        assert_eq!(ended.sum::<usize>(), change.ended_members.len(), "{at}");
        self.published.apply(change);
    }

    fn check(&mut self, change: &PlanChange, at: &str) {
        let mut named = BTreeSet::new();
        for (id, members) in &self.groups {
            let set = self.sharing.set(GroupId(*id));
            let group = self.published.groups.get(&set);
            let published =
                group.map(|Group { addresses, .. }| addresses.iter().copied().collect());
            assert_eq!(published.as_ref(), Some(members), "{at}: {id}");
            named.insert(set);
        }
        let hosts = self.published.groups.iter();
        let hosts = hosts.filter(|(_, group)| group.kind == GroupKind::Hosts);
        assert_eq!(named, hosts.map(|(id, _)| *id).collect(), "{at}: in use");
        self.saved += self.groups.len() - named.len();
        assert_eq!(
            self.sharing.n_saved(),
            self.groups.len() - named.len(),
            "{at}"
        );
        let moved = change.joined.iter().chain(&change.left);
        let moved: BTreeSet<GroupId> = moved.map(|(id, _)| *id).collect();
        let narrowing = self.groups.keys().filter(|id| narrows(**id));
        let narrowing = narrowing.map(|id| self.sharing.set(GroupId(*id)));
        let narrowing = narrowing.filter(|set| moved.contains(set));
        assert_eq!(change.narrowing, narrowing.collect(), "{at}: narrowing");
        for set in &named {
            let users = self.groups.keys().copied();
            let users = users.filter(|id| self.sharing.set(GroupId(*id)) == *set);
            let roles: BTreeSet<bool> = users.map(narrows).collect();
            assert_eq!(roles.len(), 1, "{at}: what accepts and what narrows");
        }
    }

    /// Publishes the whole plan anew.
    fn merge(&mut self, at: &str) {
        self.sharing.merge();
        let mut contents = BTreeSet::new();
        self.published
            .groups
            .retain(|_, it| it.kind != GroupKind::Hosts);
        for (id, members) in &self.groups {
            let set = self.sharing.set(GroupId(*id));
            let addresses: Vec<IpAddr> = members.iter().copied().collect();
            let group = Group {
                kind: GroupKind::Hosts,
                addresses,
            };
            let known = self.published.groups.insert(set, group.clone());
            if let Some(known) = &known {
                assert_eq!(known, &group, "{at}: {id}");
            }
            if known.is_none() && members.len() >= self.least {
                let is_new = contents.insert((members.clone(), narrows(*id)));
                assert!(is_new, "{at}: {id} has the members of another");
            }
        }
    }
}

#[test]
fn sets_have_the_members_of_their_groups() {
    let (mut splits, mut saved) = (0, 0);
    for seed in 0..200 {
        let mut world = World::new(seed);
        for commit in 0..60 {
            let at = format!("seed {seed} commit {commit}");
            world.commit(&at);
            if world.rng.below(10) == 0 {
                world.merge(&at);
            }
        }
        splits += world.splits;
        saved += world.saved;
    }
    assert!(splits > 500 && saved > 2_000, "{splits} {saved}");
}
