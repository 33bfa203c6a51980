//! The plan as published, with groups that share sets.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Engine, membership};
use crate::incremental::sharing::SetChanges;
use crate::incremental::store::Store;
use crate::plan::{Group, GroupId, GroupKind, Plan, PlanChange, RuleChain, RuleChainId};

impl Engine {
    /// Translates a change of groups to one of sets. The last step of a commit.
    pub(super) fn share(&mut self, store: &Store, mut change: PlanChange) -> PlanChange {
        let uses = &self.chains.uses;
        let narrows = |id: u32| uses.get(&id).is_some_and(|it| it.narrowing > 0);
        // Sets and groups share a sequence of numbers: a set that is not split off has the number
        // of its first group.
        let fresh = &mut self.numbers.next;
        let set_changes = self.sharing.follow(&change, narrows, fresh);
        let mut split = PlanChange::default();
        let mut ended_members = Vec::new();
        if !set_changes.splits.is_empty() {
            self.splits += set_changes.splits.len() as u64;
            self.split_sets(
                store,
                &set_changes,
                &change,
                (&mut split, &mut ended_members),
            );
        }
        let is_translated = set_changes.append_to(&self.sharing, &mut change);
        // Without shared sets and renamed chains the change is published as it is.
        if !is_translated && self.published.is_empty() {
            return change;
        }
        // Ended chains before new ones: a step that only ended chains used must be translated anew,
        // because its groups may have other sets by now.
        for id in &mut change.ended_chains {
            *id = self.published.end(*id);
        }
        if !set_changes.moved.is_empty() {
            self.update_chains(&set_changes, &mut split, &mut change);
        }
        change.ended_chains.sort_unstable();
        for (id, chain) in &mut change.chains {
            (*id, *chain) = self.published.begin(*id, chain, *id, &self.sharing);
        }
        // Last, when all chains have the numbers by which they are published.
        for (_, chains) in &mut change.pods {
            *chains = self.published.pod_chains(*chains);
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

    /// Fills new sets with the members that their groups had in common, and lists the sets that end
    /// with these members.
    // The split takes effect before the rest of the change, so it must alter no verdict: the new
    // sets begin with the old members, and the rest of the change moves members as usual.
    fn split_sets(
        &self,
        store: &Store,
        set_changes: &SetChanges,
        change: &PlanChange,
        (split, ended): (&mut PlanChange, &mut Vec<(GroupId, Vec<IpAddr>)>),
    ) {
        let witnesses = set_changes.splits.iter().map(|it| it.witness).collect();
        let mut members = self.members(store, &witnesses);
        // The store has the members after the commit. The change taken back gives those before.
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
        for set_split in &set_changes.splits {
            let members = members.remove(&set_split.witness).unwrap_or_default();
            for set in set_split.new.iter().map(|set| GroupId(*set)) {
                split.groups.push((set, GroupKind::Hosts));
                let members = members.iter().map(|address| (set, *address));
                split.joined.extend(members);
            }
            if set_split.ends {
                ended.push((GroupId(set_split.set), members.into_iter().collect()));
            }
        }
    }

    /// Publishes rule chains anew whose groups have other sets, with the pods that use them.
    fn update_chains(
        &mut self,
        set_changes: &SetChanges,
        split: &mut PlanChange,
        change: &mut PlanChange,
    ) {
        // New chains are in the rest of the change, and name the new sets from the start.
        let new: FxHashSet<RuleChainId> = change.chains.iter().map(|(id, _)| *id).collect();
        let renumbered = self.renumber_chains(&set_changes.moved, &new);
        for (id, number, _) in &renumbered {
            // Packets in flight may still be in the old chain: it ends with the rest.
            change.ended_chains.push(*number);
            let chain = self.chains.stored.get(id);
            let chain = chain.map(|kept| self.published.chain(*id, &kept.chain));
            split.chains.extend(chain);
        }
        split.chains.sort_unstable_by_key(|(id, _)| *id);
        let ids: FxHashSet<RuleChainId> = renumbered.iter().map(|(id, ..)| *id).collect();
        // The rest of the change has other chains for its own pods than the split.
        let others: BTreeSet<IpAddr> = change.pods.iter().map(|(address, _)| *address).collect();
        for (address, (_, chains)) in &self.pods {
            let Some(chains) = chains.filter(|_| !others.contains(address)) else {
                continue;
            };
            let both = [chains.egress, chains.ingress];
            if both.iter().flatten().any(|id| ids.contains(id)) {
                split
                    .pods
                    .push((*address, self.published.pod_chains(chains)));
            }
        }
    }

    /// Gives new numbers to the rule chains that name some groups, except to chains that are not
    /// published yet. Returns these chains, each with its number before.
    // A new number, because a published chain is never rewritten.
    fn renumber_chains(
        &mut self,
        moved: &BTreeSet<u32>,
        except: &FxHashSet<RuleChainId>,
    ) -> Vec<(RuleChainId, RuleChainId, Arc<RuleChain>)> {
        let chains = self.chains.stored.iter();
        let chains = chains.filter(|(id, _)| !except.contains(id));
        let naming = chains.filter(|(_, kept)| {
            let mut groups = kept.chain.groups();
            groups.any(|GroupId(group)| moved.contains(&group))
        });
        let naming: Vec<(RuleChainId, Arc<RuleChain>)> = naming
            .map(|(id, kept)| (*id, Arc::clone(&kept.chain)))
            .collect();
        // All chains end before the first one begins: a step that several chains share is
        // translated anew only when no chain uses its old translation.
        let renumbered = naming.into_iter().map(|(id, chain)| {
            let number = self.published.end(id);
            (id, number, chain)
        });
        let renumbered: Vec<(RuleChainId, RuleChainId, Arc<RuleChain>)> = renumbered.collect();
        for (id, _, chain) in &renumbered {
            let number = self.chains.number();
            self.published.begin(*id, chain, number, &self.sharing);
        }
        renumbered
    }

    /// Lets all groups of the same members share a set, before the whole plan is published.
    pub(in crate::incremental) fn merge(&mut self) {
        let moved = self.sharing.merge();
        if !moved.is_empty() {
            self.renumber_chains(&moved, &FxHashSet::default());
        }
    }

    /// Returns the number of sets.
    pub(in crate::incremental) fn n_sets(&self) -> usize {
        self.groups.active.len() - self.sharing.n_saved()
    }

    /// Returns the members of some groups.
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

    /// Returns the published plan as of the last commit.
    pub(in crate::incremental) fn plan(&self, store: &Store) -> Plan {
        let mut groups: FxHashMap<u32, Group> = FxHashMap::default();
        for (id, spec) in &self.groups.active {
            // The groups of a set have the same members; the first one lists them for all.
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
        let chains = self.chains.stored.iter();
        let pods = self.pods.iter();
        Plan {
            groups: groups
                .map(|(id, group)| (self.sharing.set(GroupId(id)), group))
                .collect(),
            chains: chains
                .map(|(id, kept)| self.published.chain(*id, &kept.chain))
                .collect(),
            pods: pods
                .filter_map(|(address, (_, chains))| {
                    Some((*address, self.published.pod_chains((*chains)?)))
                })
                .collect(),
        }
    }
    /// Passes on the members of the requested groups, except their own members; some possibly
    /// twice.
    // One walk over all addresses for all groups. The engine stores no members: they follow from
    // the lists of groups of classes and nodes.
    fn each_member(
        &self,
        store: &Store,
        is_requested: impl Fn(u32) -> bool,
        mut take: impl FnMut(u32, IpAddr),
    ) {
        let by_address = self.groups.has_ranged();
        // Many addresses have the same list of groups.
        let mut known: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        store.each_owned(&mut |address, (list, ports)| {
            let requested = known.entry(list).or_insert_with(|| {
                let groups = store.groups.get(list).iter().copied();
                groups.filter(|id| is_requested(*id)).collect()
            });
            for id in requested {
                take(*id, address);
            }
            if by_address {
                let groups = self.groups.by_address(store, address, ports).into_iter();
                groups
                    .filter(|id| is_requested(*id))
                    .for_each(|id| take(id, address));
            }
        });
    }
}
