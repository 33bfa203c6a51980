//! What is told of the plan, where groups share sets.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Engine, membership};
use crate::incremental::sharing::SetChanges;
use crate::incremental::store::Store;
use crate::plan::{Group, GroupId, GroupKind, Plan, PlanChange, RuleChain, RuleChainId};

impl Engine {
    /// Makes what is told of what is different about the engine's own plan, when all else of a commit is done.
    pub(super) fn share(&mut self, store: &Store, mut change: PlanChange) -> PlanChange {
        let uses = &self.chains.uses;
        let narrows = |id: u32| uses.get(&id).is_some_and(|it| it.narrowing > 0);
        let fresh = &mut self.numbers.next;
        let turn = self.sharing.follow(&change, narrows, fresh);
        let mut split = PlanChange::default();
        let mut ended_members = Vec::new();
        if !turn.splits.is_empty() {
            self.splits += turn.splits.len() as u64;
            self.split_sets(store, &turn, &change, (&mut split, &mut ended_members));
        }
        let is_told_otherwise = turn.append_to(&self.sharing, &mut change);
        if !is_told_otherwise && self.told.is_empty() {
            return change;
        }
        for id in &mut change.ended_bodies {
            *id = self.told.end(*id);
        }
        if !turn.moved.is_empty() {
            self.update_chains(&turn, &mut split, &mut change);
        }
        change.ended_bodies.sort_unstable();
        for (id, body) in &mut change.chains {
            (*id, *body) = self.told.begin(*id, body, *id, &self.sharing);
        }
        for (_, faced) in &mut change.pods {
            *faced = self.told.faced(*faced);
        }
        for (set, members) in ended_members {
            change.ended_groups.push(set);
            let members = members.into_iter().map(|address| (set, address));
            change.ended_members.extend(members);
        }
        change.ended_groups.sort_unstable();
        change.split = (!split.is_empty()).then(|| Box::new(split));
        change
    }

    /// Fills new sets with the members that the groups had in common, and says which sets end, with these members.
    fn split_sets(
        &self,
        store: &Store,
        turn: &SetChanges,
        change: &PlanChange,
        (split, ended): (&mut PlanChange, &mut Vec<(GroupId, Vec<IpAddr>)>),
    ) {
        let witnesses = turn.splits.iter().map(|it| it.witness).collect();
        let mut members = self.members(store, &witnesses);
        // They are those of after the commit.
        for (GroupId(id), address) in &change.joined {
            if let Some(members) = members.get_mut(id) {
                members.remove(address);
            }
        }
        for (GroupId(id), address) in &change.left {
            if let Some(members) = members.get_mut(id) {
                members.insert(*address);
            }
        }
        for of in &turn.splits {
            let members = members.remove(&of.witness).unwrap_or_default();
            for set in of.new.iter().map(|set| GroupId(*set)) {
                split.groups.push((set, GroupKind::Hosts));
                let members = members.iter().map(|address| (set, *address));
                split.joined.extend(members);
            }
            if of.ends {
                ended.push((GroupId(of.set), members.into_iter().collect()));
            }
        }
    }

    /// Tells bodies anew whose groups have other sets, and who faces them.
    fn update_chains(
        &mut self,
        turn: &SetChanges,
        split: &mut PlanChange,
        change: &mut PlanChange,
    ) {
        let new: FxHashSet<RuleChainId> = change.chains.iter().map(|(id, _)| *id).collect();
        let retold = self.updated_chain(&turn.moved, &new);
        for (id, number, _) in &retold {
            change.ended_bodies.push(*number);
            let body = self.chains.bodies.get(id);
            let body = body.map(|kept| self.told.body(*id, &kept.body));
            split.chains.extend(body);
        }
        split.chains.sort_unstable_by_key(|(id, _)| *id);
        let ids: FxHashSet<RuleChainId> = retold.iter().map(|(id, ..)| *id).collect();
        let others: BTreeSet<IpAddr> = change.pods.iter().map(|(address, _)| *address).collect();
        for (address, (_, faced)) in &self.pods {
            let Some(faced) = faced.filter(|_| !others.contains(address)) else {
                continue;
            };
            let both = [faced.egress, faced.ingress];
            if both.iter().flatten().any(|id| ids.contains(id)) {
                split.pods.push((*address, self.told.faced(faced)));
            }
        }
    }

    /// Gives bodies that name some groups other numbers, but for some that nobody was told of yet. Says which, and
    /// by which number each was told before.
    fn updated_chain(
        &mut self,
        moved: &BTreeSet<u32>,
        except: &FxHashSet<RuleChainId>,
    ) -> Vec<(RuleChainId, RuleChainId, Arc<RuleChain>)> {
        let bodies = self.chains.bodies.iter();
        let bodies = bodies.filter(|(id, _)| !except.contains(id));
        let naming = bodies.filter(|(_, kept)| {
            let mut groups = kept.body.groups();
            groups.any(|GroupId(group)| moved.contains(&group))
        });
        let naming: Vec<(RuleChainId, Arc<RuleChain>)> = naming
            .map(|(id, kept)| (*id, Arc::clone(&kept.body)))
            .collect();
        // Steps that several have are told anew only when nobody has them as they were.
        let retold = naming.into_iter().map(|(id, body)| {
            let number = self.told.end(id);
            (id, number, body)
        });
        let retold: Vec<(RuleChainId, RuleChainId, Arc<RuleChain>)> = retold.collect();
        for (id, _, body) in &retold {
            let number = self.chains.number();
            self.told.begin(*id, body, number, &self.sharing);
        }
        retold
    }

    /// Has all groups of the same members share a set, for when the whole plan is told.
    pub(in crate::incremental) fn merge(&mut self) {
        let moved = self.sharing.merge();
        if !moved.is_empty() {
            self.updated_chain(&moved, &FxHashSet::default());
        }
    }

    /// How many sets there are.
    pub(in crate::incremental) fn n_sets(&self) -> usize {
        self.groups.active.len() - self.sharing.n_saved()
    }

    /// The members of some groups.
    fn members(&self, store: &Store, groups: &BTreeSet<u32>) -> FxHashMap<u32, BTreeSet<IpAddr>> {
        let mut members: FxHashMap<u32, BTreeSet<IpAddr>> = FxHashMap::default();
        for id in groups {
            let own = self.groups.active.get(id).map(membership::own_members);
            let own = own.into_iter().flatten().copied();
            members.insert(*id, own.collect());
        }
        self.each_member(
            store,
            |id| groups.contains(&id),
            |id, address| {
                members.entry(id).or_default().insert(address);
            },
        );
        members
    }

    /// The plan as of the last commit, as it was told.
    pub(in crate::incremental) fn plan(&self, store: &Store) -> Plan {
        let mut groups: FxHashMap<u32, Group> = FxHashMap::default();
        for (id, spec) in &self.groups.active {
            if self.sharing.is_first(*id) {
                let group = Group {
                    kind: spec.kind(),
                    addresses: membership::own_members(spec).to_vec(),
                };
                groups.insert(*id, group);
            }
        }
        self.each_member(
            store,
            |id| self.sharing.is_first(id),
            |id, address| {
                if let Some(group) = groups.get_mut(&id) {
                    group.addresses.push(address);
                }
            },
        );
        for group in groups.values_mut() {
            group.addresses.sort_unstable();
            group.addresses.dedup();
        }
        let groups = groups.into_iter();
        let bodies = self.chains.bodies.iter();
        let pods = self.pods.iter();
        Plan {
            groups: groups
                .map(|(id, group)| (self.sharing.set(GroupId(id)), group))
                .collect(),
            chains: bodies
                .map(|(id, kept)| self.told.body(*id, &kept.body))
                .collect(),
            pods: pods
                .filter_map(|(address, (_, faced))| Some((*address, self.told.faced((*faced)?))))
                .collect(),
        }
    }
    /// Hands on who is in some groups, other than by their own words; some perhaps twice.
    fn each_member(
        &self,
        store: &Store,
        is_asked: impl Fn(u32) -> bool,
        mut take: impl FnMut(u32, IpAddr),
    ) {
        let by_address = self.groups.has_ranged();
        // Many addresses are in the same groups.
        let mut known: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        store.each_owned(&mut |address, (list, ports)| {
            let asked = known.entry(list).or_insert_with(|| {
                let groups = store.groups.get(list).iter().copied();
                groups.filter(|id| is_asked(*id)).collect()
            });
            for id in asked {
                take(*id, address);
            }
            if by_address {
                let groups = self.groups.by_address(store, address, ports).into_iter();
                groups
                    .filter(|id| is_asked(*id))
                    .for_each(|id| take(id, address));
            }
        });
    }
}
