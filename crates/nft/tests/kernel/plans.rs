//! Random plans that change: pods, their rule chains, and groups, in small numbers with many
//! combinations.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::sync::Arc;

use palisade_core::net::{Family, PortRange, Protocol};
use palisade_core::plan::{
    Group, GroupId, GroupKind, MergedUnion, PeerCondition, PeerScope, Plan, PlanChange, PodChains,
    PortBlock, PortCondition, RuleChain, RuleChainId, Step,
};
use palisade_core::policy::{Action, Direction, Verdict};
use palisade_core::program::RuleId;
use palisade_nft::ruleset::Interface;

/// Pseudo-random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below another.
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most
    }

    pub(crate) fn is_one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// A plan that changes at random.
#[derive(Clone, Debug)]
pub(crate) struct PlanHistory {
    pub(crate) random: Random,
    pub(crate) plan: Plan,
    groups: u32,
    chains: u32,
}

/// The addresses that pods may have.
pub(crate) fn pods() -> Vec<IpAddr> {
    let v4 = (1..=6).map(|last| IpAddr::V4(Ipv4Addr::new(10, 9, 0, last)));
    let v6 = (1..=5).map(|last| IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, last)));
    v4.chain(v6).collect()
}

/// The interface of each: dual-stack pods have one for two addresses.
pub(crate) fn interface(address: IpAddr) -> Interface {
    let last = match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    Interface::new(&format!("pod{last}")).unwrap()
}

const PROTOCOLS: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

impl PlanHistory {
    pub(crate) fn new(seed: u64) -> PlanHistory {
        let mut history = PlanHistory {
            random: Random::new(seed),
            plan: Plan::default(),
            groups: 0,
            chains: 0,
        };
        for _ in 0..history.random.below(6) {
            history.next_change();
        }
        history
    }

    /// Makes a random change, and returns its description.
    pub(crate) fn next_change(&mut self) -> PlanChange {
        let before = self.plan.clone();
        for _ in 0..=self.random.below(4) {
            match self.random.below(8) {
                0..3 => self.assign_chains(),
                3 => self.delete_pod(),
                4..6 => self.join(),
                6 => self.leave(),
                _ => self.appear(),
            }
        }
        // Unused rule chains and groups are not part of a plan.
        let pod_chains = self.plan.pods.values();
        let pod_chains: BTreeSet<RuleChainId> = pod_chains
            .flat_map(|pod_chains| [pod_chains.egress, pod_chains.ingress])
            .flatten()
            .collect();
        self.plan.chains.retain(|id, _| pod_chains.contains(id));
        let named = self.plan.chains.values();
        let named: BTreeSet<GroupId> = named
            .flat_map(|chain| chain.groups().collect::<Vec<_>>())
            .collect();
        self.plan.groups.retain(|id, _| named.contains(id));
        let change = difference(&before, &self.plan);
        let mut applied = before;
        applied.apply(&change);
        assert_eq!(applied, self.plan);
        change
    }

    fn a_pod(&mut self) -> IpAddr {
        self.random.pick(&pods())
    }

    /// A pod that no policy selects.
    fn appear(&mut self) {
        let pod = self.a_pod();
        self.plan.pods.insert(pod, PodChains::default());
    }

    fn delete_pod(&mut self) {
        let pod = self.a_pod();
        self.plan.pods.remove(&pod);
    }

    fn assign_chains(&mut self) {
        let pod = self.a_pod();
        let direction = self.random.pick(&Direction::BOTH);
        let chain = match self.random.below(4) {
            0 => None,
            1 => Some(self.a_chain(direction)),
            // What others face already, of whichever family.
            _ => {
                let chains = self.plan.chains.iter();
                let fitting: Vec<RuleChainId> = chains
                    .filter(|(_, chain)| chain.direction == direction)
                    .map(|(id, _)| *id)
                    .collect();
                match fitting.as_slice() {
                    [] => Some(self.a_chain(direction)),
                    some => Some(self.random.pick(some)),
                }
            }
        };
        let pod_chains = self.plan.pods.entry(pod).or_default();
        match direction {
            Direction::Egress => pod_chains.egress = chain,
            Direction::Ingress => pod_chains.ingress = chain,
        }
    }

    fn join(&mut self) {
        let ids = self.groups_that_change();
        if !ids.is_empty() {
            let id = self.random.pick(&ids);
            let kind = self.plan.groups[&id].kind;
            let member = self.a_member(kind);
            let group = self.plan.groups.get_mut(&id).unwrap();
            if let Err(place) = group.addresses.binary_search(&member) {
                group.addresses.insert(place, member);
            }
        }
    }

    fn leave(&mut self) {
        let ids = self.groups_that_change();
        if !ids.is_empty() {
            let id = self.random.pick(&ids);
            let group = self.plan.groups.get_mut(&id).unwrap();
            if !group.addresses.is_empty() {
                let place = self.random.below(group.addresses.len() as u64) as usize;
                group.addresses.remove(place);
            }
        }
    }

    fn groups_that_change(&self) -> Vec<GroupId> {
        let groups = self.plan.groups.iter();
        let changing = groups.filter(|(_, group)| !matches!(group.kind, GroupKind::Ranges(_)));
        changing.map(|(id, _)| *id).collect()
    }

    fn a_member(&mut self, kind: GroupKind) -> IpAddr {
        let number = self.random.below(9) as u8;
        let family = match kind {
            GroupKind::Hosts => self.random.pick(&Family::BOTH),
            GroupKind::Nets(family, _) | GroupKind::Ranges(family) => family,
        };
        match (kind, family) {
            (GroupKind::Hosts, Family::V4) => Ipv4Addr::new(10, 9, 0, number).into(),
            (GroupKind::Hosts, Family::V6) => {
                Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, number.into()).into()
            }
            (GroupKind::Nets(..) | GroupKind::Ranges(_), Family::V4) => {
                Ipv4Addr::new(10, number, 0, 0).into()
            }
            (GroupKind::Nets(..) | GroupKind::Ranges(_), Family::V6) => {
                Ipv6Addr::new(0xfd09, number.into(), 0, 0, 0, 0, 0, 0).into()
            }
        }
    }

    /// A group that there is already, or a new one.
    fn a_group(&mut self, hosts_only: bool) -> GroupId {
        let groups = self.plan.groups.iter();
        let fitting: Vec<GroupId> = groups
            .filter(|(_, group)| !matches!(group.kind, GroupKind::Ranges(_)))
            .filter(|(_, group)| !hosts_only || group.kind == GroupKind::Hosts)
            .map(|(id, _)| *id)
            .collect();
        if !fitting.is_empty() && self.random.is_one_in(2) {
            return self.random.pick(&fitting);
        }
        let kind = match self.random.below(4) {
            0 if !hosts_only => GroupKind::Nets(Family::V4, 16),
            1 if !hosts_only => GroupKind::Nets(Family::V6, 32),
            _ => GroupKind::Hosts,
        };
        self.new_group(kind)
    }

    /// Ranges that there are already, or new ones.
    fn some_ranges(&mut self, family: Family) -> GroupId {
        let groups = self.plan.groups.iter();
        let fitting = groups.filter(|(_, group)| group.kind == GroupKind::Ranges(family));
        let fitting: Vec<GroupId> = fitting.map(|(id, _)| *id).collect();
        if !fitting.is_empty() && self.random.is_one_in(2) {
            return self.random.pick(&fitting);
        }
        self.new_group(GroupKind::Ranges(family))
    }

    fn new_group(&mut self, kind: GroupKind) -> GroupId {
        let at_least = u64::from(matches!(kind, GroupKind::Ranges(_)));
        let members = at_least + self.random.below(5);
        let members: BTreeSet<IpAddr> = (0..members).map(|_| self.a_member(kind)).collect();
        let id = GroupId(self.groups);
        self.groups += 1;
        let group = Group {
            kind,
            addresses: members.into_iter().collect(),
        };
        self.plan.groups.insert(id, group);
        id
    }

    fn a_chain(&mut self, direction: Direction) -> RuleChainId {
        let admin = (0..self.random.below(3))
            .map(|_| self.a_step(direction, true))
            .map(Arc::new)
            .collect();
        let rest = (0..self.random.below(3))
            .map(|_| self.a_step(direction, false))
            .map(Arc::new)
            .collect();
        let mut merged = MergedUnion::default();
        if self.random.is_one_in(2) {
            for _ in 0..self.random.below(3) {
                let port = self.a_block();
                merged.of_ports.insert(port, self.a_group(true));
            }
            if self.random.is_one_in(3) {
                merged.any_port = Some(self.a_group(true));
            }
            for (place, family) in Family::BOTH.into_iter().enumerate() {
                for _ in 0..self.random.below(3) {
                    let port = self.a_block();
                    merged.nets_of_ports[place].insert(port, self.some_ranges(family));
                }
                if self.random.is_one_in(3) {
                    merged.nets_of_any_port[place] = Some(self.some_ranges(family));
                }
            }
            for family in 0..2 {
                for _ in 0..self.random.below(3) {
                    let port = self.a_block();
                    merged.open[family].insert(port);
                }
            }
        }
        let end = self.random.pick(&[Verdict::Allow, Verdict::Deny]);
        let id = RuleChainId(self.chains);
        self.chains += 1;
        let chain = RuleChain {
            direction,
            admin,
            merged,
            rest,
            verdict: end,
        };
        self.plan.chains.insert(id, Arc::new(chain));
        id
    }

    fn a_block(&mut self) -> PortBlock {
        let (protocol, port) = self.a_port();
        PortBlock::around(protocol, port, self.random.pick(&[0, 9, 15, 16]))
    }

    fn a_port(&mut self) -> (Protocol, u16) {
        (
            self.random.pick(&PROTOCOLS),
            80 + self.random.below(4) as u16,
        )
    }

    fn a_step(&mut self, direction: Direction, may_pass: bool) -> Step {
        let actions: &[Action] = match may_pass {
            true => &[Action::Accept, Action::Deny, Action::Pass],
            false => &[Action::Accept, Action::Deny],
        };
        let ports = self.random.is_one_in(2).then(|| {
            let (protocol, first) = self.a_port();
            let port = |number| NonZeroU16::new(number).unwrap();
            let last = first + self.random.below(3) as u16;
            let named = direction == Direction::Egress && self.random.is_one_in(3);
            vec![PortCondition {
                protocol,
                range: PortRange::new(port(first), port(last)).unwrap(),
                at: named.then(|| self.a_group(true)),
            }]
        });
        let peers = self.random.is_one_in(2).then(|| {
            let within = match self.random.below(3) {
                0 => PeerScope::Family(self.random.pick(&Family::BOTH)),
                _ => PeerScope::Group(self.a_group(false)),
            };
            let except = (0..self.random.below(2)).map(|_| self.a_group(false));
            vec![PeerCondition {
                within,
                except: except.collect(),
            }]
        });
        Step {
            rule: RuleId(0),
            action: self.random.pick(actions),
            ports,
            peers,
        }
    }
}

/// What makes one plan of another.
pub(crate) fn difference(before: &Plan, after: &Plan) -> PlanChange {
    let mut change = PlanChange::default();
    for (id, group) in &after.groups {
        let old = before.groups.get(id);
        if old.is_none() {
            change.groups.push((*id, group.kind));
        }
        let old: BTreeSet<IpAddr> = members(old);
        let new: BTreeSet<IpAddr> = members(Some(group));
        change
            .joined
            .extend(new.difference(&old).map(|it| (*id, *it)));
        change
            .left
            .extend(old.difference(&new).map(|it| (*id, *it)));
    }
    for (id, group) in missing(&before.groups, &after.groups) {
        change.ended_groups.push(*id);
        let members = group.addresses.iter().map(|it| (*id, *it));
        change.ended_members.extend(members);
    }
    let chains = missing(&after.chains, &before.chains);
    change.chains = chains.map(|(id, chain)| (*id, Arc::clone(chain))).collect();
    let ended = missing(&before.chains, &after.chains);
    change.ended_chains = ended.map(|(id, _)| *id).collect();
    for (address, pod_chains) in &after.pods {
        if before.pods.get(address) != Some(pod_chains) {
            change.pods.push((*address, *pod_chains));
        }
    }
    let ended = missing(&before.pods, &after.pods);
    change.ended_pods = ended.map(|(address, _)| *address).collect();
    change
}

fn members(group: Option<&Group>) -> BTreeSet<IpAddr> {
    group
        .into_iter()
        .flat_map(|group| group.addresses.clone())
        .collect()
}

fn missing<'m, K: Ord, V>(
    of: &'m BTreeMap<K, V>,
    from: &'m BTreeMap<K, V>,
) -> impl Iterator<Item = (&'m K, &'m V)> {
    of.iter().filter(|(key, _)| !from.contains_key(key))
}
