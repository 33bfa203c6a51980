//! What a change of the plan needs, before it is known whether there is room for it.

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
    Settings, base_chains, membership, ranges_of, rule_chains, senders, unions, words,
};
use crate::ruleset::{Chain, Field, Name, Value, Verdict};

/// What an address faced, and what it faces from now on; `None`: it is no pod's.
pub(super) type ChainSwitch = (Option<PodChains>, Option<PodChains>);

/// What is done for a change, and what will hold after it.
#[derive(Default)]
pub(super) struct FinishedDraft {
    /// To prepare, to switch, to clean up, and to sweep out what nothing asks any more.
    pub(super) phases: [Phase; 4],
    /// The addresses of pods that come, go, or face something else.
    pub(super) pods: BTreeMap<IpAddr, ChainSwitch>,
    /// How many addresses face a body from now on, where that changes.
    pub(super) users: BTreeMap<(RuleChainId, Family), usize>,
}

/// The same while it is being made.
struct ChangeDraft<'u> {
    upkeep: &'u TableUpdater,
    change: &'u PlanChange,
    next: &'u Settings,
    /// The groups that are new, and the bodies.
    kinds: BTreeMap<GroupId, GroupKind>,
    installed: BTreeMap<RuleChainId, &'u Arc<RuleChain>>,
    phases: [Phase; 4],
    pods: BTreeMap<IpAddr, ChainSwitch>,
    users: BTreeMap<(RuleChainId, Family), usize>,
    order: MoveOrder,
}

/// In which order addresses join and leave groups that stay. A packet on its way may ask one group before and another after
/// the moment of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MoveOrder {
    /// Where rules change as well, everything changes with them; and where both sides of a flow ask for the groups, so that one could
    /// find somebody in the old and the other one in the new.
    AtOnce,
    /// Only what accepts, and only one side asks: who is allowed before and after is allowed between, too, and nobody else.
    JoinFirst,
    /// Also what denies or passes on: first what can only close, so that nobody is allowed who is denied before and
    /// after.
    CloseFirst,
}

impl MoveOrder {
    fn of(upkeep: &TableUpdater, change: &PlanChange) -> MoveOrder {
        let is_same = change.chains.is_empty() && change.pods.is_empty();
        if !is_same || !change.ended_pods.is_empty() {
            return MoveOrder::AtOnce;
        }
        if !change.narrowing.is_empty() {
            return MoveOrder::CloseFirst;
        }
        let moved = change.joined.iter().chain(&change.left);
        match upkeep
            .group_users
            .is_one_sided(moved.map(|(group, _)| *group))
        {
            true => MoveOrder::JoinFirst,
            false => MoveOrder::AtOnce,
        }
    }
}

impl FinishedDraft {
    /// What a change needs, and the settings that come with it.
    pub(super) fn new(
        upkeep: &TableUpdater,
        change: &PlanChange,
        next: &Settings,
    ) -> Result<FinishedDraft, UpdateError> {
        let bodies = change.chains.iter().map(|(id, body)| (*id, body));
        let mut draft = ChangeDraft {
            upkeep,
            change,
            next,
            kinds: change.groups.iter().copied().collect(),
            phases: Default::default(),
            installed: bodies.collect(),
            pods: turns(upkeep, change),
            users: BTreeMap::new(),
            order: MoveOrder::of(upkeep, change),
        };
        draft.members()?;
        draft.ranges();
        draft.new_bodies();
        draft.count_pods()?;
        // Those of pods lead to those of bodies, and have to go first.
        draft.chains_of_pods();
        draft.chains_of_bodies()?;
        draft.known_pods();
        draft.elsewhere();
        draft.generation();
        draft.removed_chains();
        draft.sets_of_unions();
        let ChangeDraft {
            phases,
            pods,
            users: faced,
            ..
        } = draft;
        Ok(FinishedDraft {
            phases,
            pods,
            users: faced,
        })
    }
}

impl ChangeDraft<'_> {
    /// Who joins and leaves groups. Nothing asks for members of new groups before the switch, nor for those of
    /// ended groups after it.
    fn members(&mut self) -> Result<(), UpdateError> {
        let change = self.change;
        let narrows = |member: &(GroupId, IpAddr)| change.narrowing.contains(&member.0);
        let [prepare, switch, clean, sweep] = &mut self.phases;
        let back: BTreeSet<&(GroupId, IpAddr)> = change.left.iter().collect();
        let back: BTreeSet<&(GroupId, IpAddr)> = change
            .joined
            .iter()
            .filter(|joined| back.contains(joined))
            .collect();
        let is_of_ranges = |group: &GroupId| {
            let kind = self
                .kinds
                .get(group)
                .or_else(|| self.upkeep.kinds.get(group));
            matches!(kind, Some(GroupKind::Ranges(_)))
        };
        for member in &change.joined {
            if is_of_ranges(&member.0) {
                // Those come and go as a whole only.
                match self.kinds.contains_key(&member.0) {
                    true => continue,
                    false => return Err(UpdateError::Unknown),
                }
            }
            let phase = if self.kinds.contains_key(&member.0) {
                &mut *prepare
            } else if self.upkeep.kinds.contains_key(&member.0) {
                let is_late = self.order == MoveOrder::CloseFirst && !narrows(member);
                if is_late { &mut *clean } else { &mut *switch }
            } else {
                return Err(UpdateError::Unknown);
            };
            // Whoever leaves and comes back at once stays.
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

    /// Groups of ranges come and go as a whole.
    fn ranges(&mut self) {
        let [prepare, .., sweep] = &mut self.phases;
        for ((family, group), bounds) in bounds(&self.change.joined, &self.kinds) {
            prepare.add_ranges(family, group, &bounds);
        }
        let ended = bounds(&self.change.ended_members, &self.upkeep.kinds);
        for ((family, group), bounds) in ended {
            sweep.delete_ranges(family, group, &bounds);
        }
    }

    /// The sets of new bodies: nothing asks them before the switch.
    fn new_bodies(&mut self) {
        let [prepare, ..] = &mut self.phases;
        for (id, body) in &self.installed {
            for mut map in unions::of_body(*id, body) {
                map.size = crate::node::capacity_for(map.len());
                prepare.new_set(map);
            }
            for family in Family::BOTH {
                for block in body.merged.open(family) {
                    let key = unions::key(*id, *block);
                    prepare.add(unions::open(family), &unions::OPEN, &key);
                }
            }
        }
    }

    fn count_pods(&mut self) -> Result<(), UpdateError> {
        for (address, (before, after)) in &self.pods {
            let family = Family::of(*address);
            for direction in Direction::BOTH {
                let body = |faced: &Option<PodChains>| faced.and_then(|it| it.body(direction));
                for (body, is_after) in [(body(after), true), (body(before), false)] {
                    let Some(id) = body else {
                        continue;
                    };
                    let held = self.upkeep.installed.get(&id);
                    let count = match held {
                        Some(held) => count_of(held.users, family),
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

    /// Bodies have chains for the families of those who face them.
    fn chains_of_bodies(&mut self) -> Result<(), UpdateError> {
        let [prepare, _, clean, _] = &mut self.phases;
        for ((id, family), after) in &self.users {
            let held = self.upkeep.installed.get(id);
            let before = held.map_or(0, |held| count_of(held.users, *family));
            let body = match (held, self.installed.get(id)) {
                (_, Some(body)) => Arc::as_ref(body),
                (Some(held), None) => Arc::as_ref(&held.chain),
                (None, None) => return Err(UpdateError::Unknown),
            };
            if before == 0 && *after > 0 {
                let kind = |group: GroupId| {
                    let new = self.kinds.get(&group);
                    new.or_else(|| self.upkeep.kinds.get(&group)).copied()
                };
                let mut chains = Vec::new();
                rule_chains::of_body(*id, body, *family, &kind, &mut chains);
                chains
                    .into_iter()
                    .for_each(|chain| prepare.new_chain(chain));
            } else if before > 0 && *after == 0 {
                let word = words(body.direction, *family).body;
                clean.delete_chain(Name::numbered(word, id.0));
                if body.admin.iter().any(|step| step.action == Action::Pass) {
                    clean.delete_chain(Name::numbered_twice(word, id.0, 1));
                }
            }
        }
        Ok(())
    }

    /// The chains of addresses, and what leads to them.
    ///
    /// Where unknown addresses are closed, such an address of a pod that is gone is led to its chain until it is known no
    /// more: a packet that was asked whether its address is known, and then found nothing that leads on, would pass.
    fn chains_of_pods(&mut self) {
        let blocks = &self.next.pod_blocks;
        let [prepare, switch, clean, _] = &mut self.phases;
        for (address, (before, after)) in &self.pods {
            let family = Family::of(*address);
            for direction in Direction::BOTH {
                let body = |faced: &Option<PodChains>| faced.and_then(|it| it.body(direction));
                let words = words(direction, family);
                let fields = [Field::address(family)];
                let key = [Value::Address(*address)];
                let name = || Name::at(words.pod, *address);
                match (body(before), body(after)) {
                    (None, None) => {}
                    (Some(before), Some(after)) => {
                        if before != after {
                            switch.rewrite(rule_chains::of_pod(*address, direction, after));
                        }
                    }
                    (None, Some(body)) => {
                        prepare.new_chain(rule_chains::of_pod(*address, direction, body));
                        switch.add_verdict(words.map, &fields, &key, Verdict::Jump(name()));
                        // A packet that found nothing that leads on must not find itself judged behind it.
                        clean.add(words.subjects, &fields, &key);
                    }
                    (Some(_), None) => {
                        let is_closed =
                            after.is_none() && blocks.iter().any(|it| it.contains(*address));
                        let phase = if is_closed { &mut *clean } else { &mut *switch };
                        phase.delete(words.map, &fields, &key);
                        phase.delete(words.subjects, &fields, &key);
                        clean.delete_chain(name());
                    }
                }
            }
        }
    }

    /// A pod becomes known at the moment it meets its policies.
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

    /// Which interfaces do not lead to pods.
    fn elsewhere(&mut self) {
        let all = |of: &Settings| of.elsewhere().unwrap_or_default();
        let (before, after) = (all(&self.upkeep.settings), all(self.next));
        let [_, switch, ..] = &mut self.phases;
        let field = [Field::Interface];
        for interface in before.difference(&after) {
            switch.delete(senders::ELSEWHERE, &field, &[Value::Interface(*interface)]);
        }
        for interface in after.difference(&before) {
            switch.add(senders::ELSEWHERE, &field, &[Value::Interface(*interface)]);
        }
    }

    /// Another generation: whatever says its number is written anew.
    fn generation(&mut self) {
        let (old, new) = (&self.upkeep.settings, self.next);
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
                base_chains::hooked(settings),
            ]
            .concat()
        };
        let before: Vec<Chain> = chains(old);
        for (before, after) in before.into_iter().zip(chains(new)) {
            if before != after {
                phase.rewrite(after);
            }
        }
    }

    /// Whether something is taken away with the last transaction: connections that are judged before that must be
    /// judged once more after it, so that the generation comes with it.
    fn removes_late(&self) -> bool {
        let becomes_judged = |(before, after): &ChainSwitch| {
            Direction::BOTH.into_iter().any(|direction| {
                let body = |faced: &Option<PodChains>| faced.and_then(|it| it.body(direction));
                body(before).is_none() && body(after).is_some()
            })
        };
        let takes_away = self.order != MoveOrder::AtOnce && !self.change.left.is_empty();
        takes_away || self.pods.values().any(becomes_judged)
    }

    /// The sets of bodies that nobody faces any more.
    fn removed_chains(&mut self) {
        let [.., sweep] = &mut self.phases;
        for id in &self.change.ended_bodies {
            let Some(held) = self.upkeep.installed.get(id) else {
                continue;
            };
            if !held.chain.merged.of_ports.is_empty() {
                sweep.delete_set(unions::by_port(id.0));
            }
            for family in Family::BOTH {
                if !held.chain.merged.nets_of_ports(family).is_empty() {
                    sweep.delete_set(unions::nets_by_port(family, id.0));
                }
                for block in held.chain.merged.open(family) {
                    let key = unions::key(*id, *block);
                    sweep.delete(unions::open(family), &unions::OPEN, &key);
                }
            }
        }
    }

    /// The sets of ports that anyone may use, and of ranges, are only there while something is in them.
    fn sets_of_unions(&mut self) {
        let [prepare, .., sweep] = &mut self.phases;
        let open = Family::BOTH.map(unions::open);
        for name in open.into_iter().chain(Family::BOTH.map(ranges_of)) {
            let room = self.upkeep.rooms.get(&Name::word(name));
            if room.is_none() {
                prepare.make(name);
            }
            let before = room.map_or(0, |room| room.count);
            let more = prepare.count_of(name);
            sweep.delete_if_empty(name, before + more);
        }
    }
}

/// The bounds of groups of ranges among members, in order.
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

/// What addresses of pods faced and will face, where that changes.
fn turns(upkeep: &TableUpdater, change: &PlanChange) -> BTreeMap<IpAddr, ChainSwitch> {
    let before = |address: &IpAddr| upkeep.pods.get(address).copied();
    let mut turns = BTreeMap::new();
    for (address, faced) in &change.pods {
        turns.insert(*address, (before(address), Some(*faced)));
    }
    for address in &change.ended_pods {
        turns.insert(*address, (before(address), None));
    }
    turns.retain(|_, (before, after)| before != after);
    turns
}

fn count_of([v4, v6]: [usize; 2], family: Family) -> usize {
    match family {
        Family::V4 => v4,
        Family::V6 => v6,
    }
}

/// The set of a member, its fields, and the member's key.
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
