//! Drafts the transactions of a change, before it is known whether the table has room for it.

mod phase;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use palisade_core::net::Family;
use palisade_core::plan::{GroupId, GroupKind, PlanChange, PodChains, RuleChain, RuleChainId};
use palisade_core::policy::{Action, Direction};

pub(super) use self::phase::Phase;
use super::{TableUpdater, UpdateError};
use crate::load::GENERATION_SET;
use crate::node::{
    Settings, base_chains, chain_names, membership, ranges_of, rule_chains, senders, unions,
};
use crate::ruleset::{Chain, Field, Name, Value, Verdict};

/// The rule chains of an address before and after a change. `None`: no pod has the address.
pub(super) type ChainSwitch = (Option<PodChains>, Option<PodChains>);

/// The transactions of a change, and the state after it.
#[derive(Default)]
pub(super) struct FinishedDraft {
    /// Prepare, switch, clean-up and sweep.
    pub(super) phases: [Phase; 4],
    /// The addresses whose rule chains change.
    pub(super) pods: BTreeMap<IpAddr, ChainSwitch>,
    /// The number of addresses that use a rule chain after the change, where that changes.
    pub(super) users: BTreeMap<(RuleChainId, Family), usize>,
}

/// The draft of a change.
struct ChangeDraft<'u> {
    updater: &'u TableUpdater,
    change: &'u PlanChange,
    next: &'u Settings,
    /// The new groups.
    kinds: BTreeMap<GroupId, GroupKind>,
    /// The new rule chains.
    installed: BTreeMap<RuleChainId, &'u Arc<RuleChain>>,
    phases: [Phase; 4],
    pods: BTreeMap<IpAddr, ChainSwitch>,
    users: BTreeMap<(RuleChainId, Family), usize>,
    order: MoveOrder,
}

/// The order in which addresses join and leave groups that stay. A packet in flight may look up one
/// group before a transaction, and another one after it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MoveOrder {
    /// All with the switch: where rules change as well, and where both sides of a flow use the
    /// groups.
    AtOnce,
    /// Joins with the switch, departures with the clean-up: where all groups accept and one side
    /// uses them. In between, members of old and new are allowed; whatever is allowed before and
    /// after is allowed all the time.
    JoinFirst,
    /// First what can only close, then what can only open: where groups deny or pass. No flow
    /// passes that is denied before and after.
    CloseFirst,
}

impl MoveOrder {
    fn of(updater: &TableUpdater, change: &PlanChange) -> MoveOrder {
        // Old members and new rules together could allow or deny what neither the old nor the new
        // state does.
        let is_same = change.chains.is_empty() && change.pods.is_empty();
        if !is_same || !change.ended_pods.is_empty() {
            return MoveOrder::AtOnce;
        }
        if !change.narrowing.is_empty() {
            return MoveOrder::CloseFirst;
        }
        // For a while an address would be in its old and its new group. If both sides use them, one
        // could accept it in the old and the other one in the new (seed 77610 of the simulation).
        let moved = change.joined.iter().chain(&change.left);
        match updater
            .group_users
            .is_one_sided(moved.map(|(group, _)| *group))
        {
            true => MoveOrder::JoinFirst,
            false => MoveOrder::AtOnce,
        }
    }
}

impl FinishedDraft {
    /// Drafts the transactions of a change, which also brings new settings.
    pub(super) fn new(
        updater: &TableUpdater,
        change: &PlanChange,
        next: &Settings,
    ) -> Result<FinishedDraft, UpdateError> {
        let installed = change.chains.iter().map(|(id, it)| (*id, it));
        let mut draft = ChangeDraft {
            updater,
            change,
            next,
            kinds: change.groups.iter().copied().collect(),
            phases: Default::default(),
            installed: installed.collect(),
            pods: chain_switches(updater, change),
            users: BTreeMap::new(),
            order: MoveOrder::of(updater, change),
        };
        draft.members()?;
        draft.ranges();
        draft.new_rule_chains();
        draft.count_pods()?;
        // Chains of pods lead to rule chains, and are deleted first: the kernel refuses to delete a
        // chain that a rule leads to.
        draft.chains_of_pods();
        draft.chains_of_rule_chains()?;
        draft.known_pods();
        draft.elsewhere();
        draft.generation();
        draft.removed_chains();
        draft.sets_of_unions();
        let ChangeDraft {
            phases,
            pods,
            users,
            ..
        } = draft;
        Ok(FinishedDraft {
            phases,
            pods,
            users,
        })
    }
}

impl ChangeDraft<'_> {
    /// Assigns joins and departures of members to transactions.
    fn members(&mut self) -> Result<(), UpdateError> {
        let change = self.change;
        let narrows = |member: &(GroupId, IpAddr)| change.narrowing.contains(&member.0);
        let [prepare, switch, clean, sweep] = &mut self.phases;
        // An address that leaves and joins again stays untouched: on some kernels, an element that
        // is deleted and added again is missing for a moment.
        let left: BTreeSet<&(GroupId, IpAddr)> = change.left.iter().collect();
        let back: BTreeSet<&(GroupId, IpAddr)> = change
            .joined
            .iter()
            .filter(|joined| left.contains(joined))
            .collect();
        let is_of_ranges = |group: &GroupId| {
            let kind = self
                .kinds
                .get(group)
                .or_else(|| self.updater.kinds.get(group));
            matches!(kind, Some(GroupKind::Ranges(_)))
        };
        for member in &change.joined {
            if is_of_ranges(&member.0) {
                // Ranges come and go with their group. They are added by `ranges`.
                match self.kinds.contains_key(&member.0) {
                    true => continue,
                    false => return Err(UpdateError::Unknown),
                }
            }
            // No rule uses a new group before the switch, and no rule an ended one after it.
            let phase = if self.kinds.contains_key(&member.0) {
                &mut *prepare
            } else if self.updater.kinds.contains_key(&member.0) {
                let is_late = self.order == MoveOrder::CloseFirst && !narrows(member);
                if is_late { &mut *clean } else { &mut *switch }
            } else {
                return Err(UpdateError::Unknown);
            };
            if !back.contains(member) {
                let (name, fields, key) = of_member(*member);
                phase.add(name, &fields, &key);
            }
        }
        for member in change.left.iter().filter(|it| !back.contains(it)) {
            if is_of_ranges(&member.0) {
                return Err(UpdateError::Unknown);
            }
            let is_late = match self.order {
                MoveOrder::AtOnce => false,
                MoveOrder::JoinFirst => true,
                MoveOrder::CloseFirst => narrows(member),
            };
            let phase = if is_late { &mut *clean } else { &mut *switch };
            let (name, fields, key) = of_member(*member);
            phase.delete(name, &fields, &key);
        }
        let ended = change.ended_members.iter();
        for member in ended.filter(|it| !is_of_ranges(&it.0)) {
            let (name, fields, key) = of_member(*member);
            sweep.delete(name, &fields, &key);
        }
        Ok(())
    }

    /// Adds and deletes groups of ranges. A group never gets other ranges.
    fn ranges(&mut self) {
        let [prepare, .., sweep] = &mut self.phases;
        for ((family, group), bounds) in bounds(&self.change.joined, &self.kinds) {
            prepare.add_ranges(family, group, &bounds);
        }
        let ended = bounds(&self.change.ended_members, &self.updater.kinds);
        for ((family, group), bounds) in ended {
            sweep.delete_ranges(family, group, &bounds);
        }
    }

    /// Adds the sets of new rule chains. No rule uses them before the switch.
    fn new_rule_chains(&mut self) {
        let [prepare, ..] = &mut self.phases;
        for (id, rule_chain) in &self.installed {
            for mut map in unions::of_chain(*id, rule_chain) {
                map.size = crate::node::capacity_for(map.len());
                prepare.new_set(map);
            }
            for family in Family::BOTH {
                for block in rule_chain.merged.open(family) {
                    let key = unions::key(*id, *block);
                    prepare.add(unions::open(family), &unions::OPEN, &key);
                }
            }
        }
    }

    /// Counts the addresses that use each rule chain after the change.
    fn count_pods(&mut self) -> Result<(), UpdateError> {
        for (address, (before, after)) in &self.pods {
            let family = Family::of(*address);
            for direction in Direction::BOTH {
                let chain_of = |it: &Option<PodChains>| it.and_then(|it| it.chain(direction));
                // New users first: the count of a rule chain that stays must not fall below zero.
                for (chain, is_after) in [(chain_of(after), true), (chain_of(before), false)] {
                    let Some(id) = chain else {
                        continue;
                    };
                    let state = self.updater.installed.get(&id);
                    let count = match state {
                        Some(state) => count_of(state.users, family),
                        None if self.installed.contains_key(&id) => 0,
                        None => return Err(UpdateError::Unknown),
                    };
                    let count = self.users.entry((id, family)).or_insert(count);
                    *count = match is_after {
                        true => *count + 1,
                        false => count.saturating_sub(1),
                    };
                }
            }
        }
        Ok(())
    }

    /// Adds and deletes the chains of rule chains. They exist in the families of the pods that use
    /// them.
    fn chains_of_rule_chains(&mut self) -> Result<(), UpdateError> {
        let [prepare, _, clean, _] = &mut self.phases;
        for ((id, family), after) in &self.users {
            let state = self.updater.installed.get(id);
            let before = state.map_or(0, |state| count_of(state.users, *family));
            let rule_chain = match (state, self.installed.get(id)) {
                (_, Some(rule_chain)) => Arc::as_ref(rule_chain),
                (Some(state), None) => Arc::as_ref(&state.chain),
                (None, None) => return Err(UpdateError::Unknown),
            };
            if before == 0 && *after > 0 {
                // A rule chain that stays may get its first pod of this family.
                let kind = |group: GroupId| {
                    let new = self.kinds.get(&group);
                    new.or_else(|| self.updater.kinds.get(&group)).copied()
                };
                let mut chains = Vec::new();
                rule_chains::of_rule_chain(*id, rule_chain, *family, &kind, &mut chains);
                chains
                    .into_iter()
                    .for_each(|chain| prepare.new_chain(chain));
            } else if before > 0 && *after == 0 {
                let word = chain_names(rule_chain.direction, *family).rule_chain;
                clean.delete_chain(Name::numbered(word, id.0));
                if rule_chain
                    .admin
                    .iter()
                    .any(|step| step.action == Action::Pass)
                {
                    // The chain behind the Admin tier.
                    clean.delete_chain(Name::numbered_twice(word, id.0, 1));
                }
            }
        }
        Ok(())
    }

    /// Adds, rewrites and deletes the chains of addresses, and the elements that lead to them.
    fn chains_of_pods(&mut self) {
        let blocks = &self.next.pod_blocks;
        let [prepare, switch, clean, _] = &mut self.phases;
        for (address, (before, after)) in &self.pods {
            let family = Family::of(*address);
            for direction in Direction::BOTH {
                let chain_of = |it: &Option<PodChains>| it.and_then(|it| it.chain(direction));
                let names = chain_names(direction, family);
                let fields = [Field::address(family)];
                let key = [Value::Address(*address)];
                let name = || Name::at(names.pod, *address);
                match (chain_of(before), chain_of(after)) {
                    (None, None) => {}
                    (Some(before), Some(after)) => {
                        if before != after {
                            // The chain stays, and its one rule leads elsewhere: for every packet
                            // at one moment.
                            switch.rewrite(rule_chains::of_pod(*address, direction, after));
                        }
                    }
                    (None, Some(id)) => {
                        prepare.new_chain(rule_chains::of_pod(*address, direction, id));
                        switch.add_verdict(names.map, &fields, &key, Verdict::Jump(name()));
                        // Late: a packet that looked up the map before the switch must not find
                        // itself selected in the rule behind it.
                        clean.add(names.subjects, &fields, &key);
                    }
                    (Some(_), None) => {
                        // Where unknown addresses are dropped, the elements of a pod that is gone
                        // stay until the clean-up. A packet that was checked while the address was
                        // known must not find that no chain evaluates it: it would pass.
                        let is_closed =
                            after.is_none() && blocks.iter().any(|it| it.contains(*address));
                        let phase = if is_closed { &mut *clean } else { &mut *switch };
                        phase.delete(names.map, &fields, &key);
                        phase.delete(names.subjects, &fields, &key);
                        clean.delete_chain(name());
                    }
                }
            }
        }
    }

    /// Adds and deletes known pods. A pod becomes known with the switch, when its policies apply.
    fn known_pods(&mut self) {
        let [_, switch, ..] = &mut self.phases;
        for (address, (before, after)) in &self.pods {
            if before.is_some() == after.is_some() {
                continue;
            }
            let family = Family::of(*address);
            let mut note = |set, fields: &[Field], key: &[Value]| match after {
                Some(_) => switch.add(set, fields, key),
                None => switch.delete(set, fields, key),
            };
            let (field, value) = (Field::address(family), Value::Address(*address));
            if self.next.knows_pods() {
                note(base_chains::known_pods(family), &[field], &[value]);
            }
            if self.next.checks_senders() {
                note(senders::twice(family), &[field; 2], &[value; 2]);
            }
        }
    }

    /// Updates the interfaces that do not lead to pods.
    fn elsewhere(&mut self) {
        let all = |of: &Settings| of.elsewhere().unwrap_or_default();
        let (before, after) = (all(&self.updater.settings), all(self.next));
        let [_, switch, ..] = &mut self.phases;
        let field = [Field::Interface];
        for interface in before.difference(&after) {
            switch.delete(senders::ELSEWHERE, &field, &[Value::Interface(*interface)]);
        }
        for interface in after.difference(&before) {
            switch.add(senders::ELSEWHERE, &field, &[Value::Interface(*interface)]);
        }
    }

    /// Writes a new generation wherever the table has its number.
    fn generation(&mut self) {
        let (old, new) = (&self.updater.settings, self.next);
        if old.generation == new.generation {
            return;
        }
        let is_late = self.removes_late();
        let [_, switch, clean, _] = &mut self.phases;
        let phase = if is_late { clean } else { switch };
        let key = |settings: &Settings| [Value::Number(settings.generation.get().into())];
        phase.delete(GENERATION_SET, &[Field::Number], &key(old));
        phase.add(GENERATION_SET, &[Field::Number], &key(new));
        let chains = |settings| {
            [
                base_chains::verdicts(settings),
                base_chains::base_chains(settings),
            ]
            .concat()
        };
        // Both settings give the same chains in the same order. Only those with the number differ.
        let before: Vec<Chain> = chains(old);
        for (before, after) in before.into_iter().zip(chains(new)) {
            if before != after {
                phase.rewrite(after);
            }
        }
    }

    /// Reports whether the clean-up takes something away, and the generation must come with it.
    fn removes_late(&self) -> bool {
        // Between switch and clean-up a packet may still be accepted by a member that leaves late,
        // or as an address that is not in the set of selected pods yet. Its connection gets a mark.
        // With the generation in the switch that mark would stay valid: the generation comes with
        // the last removal, after which all these connections are evaluated again.
        let becomes_selected = |(before, after): &ChainSwitch| {
            Direction::BOTH.into_iter().any(|direction| {
                let chain_of = |it: &Option<PodChains>| it.and_then(|it| it.chain(direction));
                chain_of(before).is_none() && chain_of(after).is_some()
            })
        };
        let takes_away = self.order != MoveOrder::AtOnce && !self.change.left.is_empty();
        takes_away || self.pods.values().any(becomes_selected)
    }

    /// Deletes the sets of rule chains that no pod uses any more.
    fn removed_chains(&mut self) {
        let [.., sweep] = &mut self.phases;
        for id in &self.change.ended_chains {
            let Some(state) = self.updater.installed.get(id) else {
                continue;
            };
            if !state.chain.merged.of_ports.is_empty() {
                sweep.delete_set(unions::by_port(id.0));
            }
            for family in Family::BOTH {
                if !state.chain.merged.nets_of_ports(family).is_empty() {
                    sweep.delete_set(unions::nets_by_port(family, id.0));
                }
                for block in state.chain.merged.open(family) {
                    let key = unions::key(*id, *block);
                    sweep.delete(unions::open(family), &unions::OPEN, &key);
                }
            }
        }
    }

    /// Creates and deletes the sets of open ports and of ranges, which exist only while they have
    /// elements.
    fn sets_of_unions(&mut self) {
        let [prepare, .., sweep] = &mut self.phases;
        let open = Family::BOTH.map(unions::open);
        for name in open.into_iter().chain(Family::BOTH.map(ranges_of)) {
            let room = self.updater.rooms.get(&Name::word(name));
            if room.is_none() {
                prepare.make(name);
            }
            // A set that loses all its elements, also those of this change, is deleted as a whole.
            let before = room.map_or(0, |room| room.count);
            let more = prepare.count_of(name);
            sweep.delete_if_empty(name, before + more);
        }
    }
}

/// Returns the bounds of the groups of ranges among members, sorted.
fn bounds(
    members: &[(GroupId, IpAddr)],
    kinds: &BTreeMap<GroupId, GroupKind>,
) -> BTreeMap<(Family, GroupId), Vec<IpAddr>> {
    let mut bounds: BTreeMap<(Family, GroupId), Vec<IpAddr>> = BTreeMap::new();
    for (group, bound) in members {
        if let Some(GroupKind::Ranges(family)) = kinds.get(group) {
            bounds.entry((*family, *group)).or_default().push(*bound);
        }
    }
    bounds.values_mut().for_each(|it| it.sort_unstable());
    bounds
}

/// Returns the rule chains of addresses before and after a change, where they differ.
fn chain_switches(updater: &TableUpdater, change: &PlanChange) -> BTreeMap<IpAddr, ChainSwitch> {
    let before = |address: &IpAddr| updater.pods.get(address).copied();
    let mut switches = BTreeMap::new();
    for (address, chains) in &change.pods {
        switches.insert(*address, (before(address), Some(*chains)));
    }
    for address in &change.ended_pods {
        switches.insert(*address, (before(address), None));
    }
    switches.retain(|_, (before, after)| before != after);
    switches
}

fn count_of([v4, v6]: [usize; 2], family: Family) -> usize {
    match family {
        Family::V4 => v4,
        Family::V6 => v6,
    }
}

/// Returns the set of a member, its fields, and its key.
fn of_member(
    (GroupId(group), address): (GroupId, IpAddr),
) -> (&'static str, [Field; 2], [Value; 2]) {
    let family = Family::of(address);
    (
        membership(family),
        [Field::Number, Field::address(family)],
        [Value::Number(group), Value::Address(address)],
    )
}
