//! Unions of many rules, asked at once.
//!
//! NetworkPolicies that select a pod are a union: their order does not matter. Where there are many, the
//! groups that may use a port become one group, so that what a new connection costs does not grow
//! with the policies. Ranges of ports become [blocks](PortBlock), and blocks of addresses with their exceptions become
//! ranges of addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::groups::{GroupDrafts, PeerDraft, SubjectRule};
use super::named::{self, Destinations, Ports};
use super::ports::blocks;
use super::ranges::Ranges;
use super::registry::{GroupRegistry, GroupRole};
use super::{GroupId, MergedUnion, PeerCondition, PeerScope, PortBlock, Step};
use crate::net::{Family, PortRange, Protocol};
use crate::policy::Action;
use crate::program::RuleId;

/// A rule before its blocks of addresses are groups.
#[derive(Clone, Debug)]
pub(super) struct RulePart {
    pub(super) rule: RuleId,
    pub(super) action: Action,
    pub(super) ports: Option<Ports>,
    /// `None`: anyone.
    pub(super) peers: Option<PeerDraft>,
}

impl RulePart {
    /// How often it has to be asked where it stands by itself.
    pub(super) fn conditions(&self) -> usize {
        let ports = self.ports.as_ref().map_or(1, Ports::len);
        let ends = self.peers.as_ref().map_or(1, PeerDraft::conditions);
        ports.saturating_mul(ends)
    }

    /// The part as a step of its own.
    pub(super) fn step<'a, B: GroupRegistry>(
        &self,
        asker: SubjectRule<'_, 'a>,
        groups: &mut GroupDrafts<'_, 'a, B>,
    ) -> Step {
        let (ports, ends) = (self.ports.as_ref(), self.peers.as_ref());
        let role = GroupRole::of(self.action);
        Step {
            rule: self.rule,
            action: self.action,
            ports: ports.map(|ports| ports.conditions(role, groups)),
            peers: ends.map(|ends| groups.conditions(asker, ends)),
        }
    }
}

/// Takes as much of a union as possible together; the steps that are left have to be asked one by one.
pub(super) fn merge<'a, B: GroupRegistry>(
    parts: &[(SubjectRule<'_, 'a>, Arc<RulePart>)],
    groups: &mut GroupDrafts<'_, 'a, B>,
) -> (MergedUnion, Vec<Arc<Step>>) {
    let mut draft = UnionDraft::default();
    for (asker, part) in parts {
        draft.part(*asker, part, groups);
    }
    draft.finish(groups)
}

/// The parts of a union.
#[derive(Default)]
struct UnionDraft {
    hosts: ByPorts<named::HostPart>,
    /// By their places among the ranges of their family.
    nets: [ByPorts<usize>; 2],
    /// The ranges of each part that has blocks of addresses.
    ranges: [Vec<Ranges>; 2],
    /// The destinations of rules with a named port, for each name and protocol.
    named: BTreeMap<(u32, Option<Protocol>), Destinations>,
    open: [Vec<(Protocol, PortRange)>; 2],
    /// Whether anyone of a family may use every port.
    anyone: [bool; 2],
    steps: Vec<Arc<Step>>,
}

/// Who may use which ports, and who every port.
struct ByPorts<T> {
    of_ports: BTreeMap<PortBlock, BTreeSet<T>>,
    of_any_port: BTreeSet<T>,
}

impl<T> Default for ByPorts<T> {
    fn default() -> ByPorts<T> {
        ByPorts {
            of_ports: BTreeMap::new(),
            of_any_port: BTreeSet::new(),
        }
    }
}

impl<T: Copy + Ord> ByPorts<T> {
    /// Adds who may use some ports; `None`: every port.
    fn add(&mut self, who: T, ports: Option<&[PortBlock]>) {
        match ports {
            None => drop(self.of_any_port.insert(who)),
            Some(ports) => {
                for block in ports {
                    self.of_ports.entry(*block).or_default().insert(who);
                }
            }
        }
    }

    /// Makes groups of those who may use the same.
    fn groups(
        self,
        mut group: impl FnMut(&BTreeSet<T>) -> GroupId,
    ) -> (BTreeMap<PortBlock, GroupId>, Option<GroupId>) {
        // Most ports are for the same as others: each group is put together once.
        let mut known: BTreeMap<BTreeSet<T>, GroupId> = BTreeMap::new();
        let mut once = |who: BTreeSet<T>| match known.get(&who) {
            Some(known) => *known,
            None => {
                let id = group(&who);
                known.insert(who, id);
                id
            }
        };
        let of_ports = self.of_ports.into_iter();
        let of_ports = of_ports.map(|(block, who)| (block, once(who))).collect();
        let of_any_port = Some(self.of_any_port).filter(|who| !who.is_empty());
        (of_ports, of_any_port.map(once))
    }
}

impl UnionDraft {
    /// Takes a part apart. What does not fit stays a step: anyone at any port.
    fn part<'a, B: GroupRegistry>(
        &mut self,
        asker: SubjectRule<'_, 'a>,
        part: &RulePart,
        groups: &mut GroupDrafts<'_, 'a, B>,
    ) {
        let ports = part.ports.as_ref();
        let plain = ports.map(|ports| {
            let plain = ports.plain.iter();
            let plain = plain.map(|port| (port.protocol, port.range));
            plain.collect::<Vec<(Protocol, PortRange)>>()
        });
        self.any_peer(part, plain.as_deref());
        if let Some(ends) = &part.peers {
            let blocks = plain.map(blocks);
            if blocks.as_ref().is_none_or(|blocks| !blocks.is_empty()) {
                self.some(asker, ends, blocks.as_deref(), groups);
            }
        }
        self.named(asker, part, groups);
    }

    /// The ports of a part that have another number at each other end.
    fn named<'a, B: GroupRegistry>(
        &mut self,
        asker: SubjectRule<'_, 'a>,
        part: &RulePart,
        groups: &mut GroupDrafts<'_, 'a, B>,
    ) {
        let role = GroupRole::of(part.action);
        for (name, protocol) in part.ports.iter().flat_map(|ports| &ports.names) {
            let destinations = self
                .named
                .entry((*name, *protocol))
                .or_insert_with(|| Destinations::new(groups.learned(*name, role, *protocol)));
            destinations.ends(asker, part.peers.as_ref(), groups);
        }
    }

    /// The hosts and ranges that may use some ports; `None`: every port.
    fn some<'a, B: GroupRegistry>(
        &mut self,
        asker: SubjectRule<'_, 'a>,
        ends: &PeerDraft,
        ports: Option<&[PortBlock]>,
        groups: &mut GroupDrafts<'_, 'a, B>,
    ) {
        if let Some(hosts) = groups.hosts(asker, ends) {
            self.hosts.add(named::HostPart::Hosts(hosts), ports);
        }
        let of_families = self.nets.iter_mut().zip(&mut self.ranges);
        for (family, (nets, all)) in Family::BOTH.into_iter().zip(of_families) {
            let ranges = ends.ranges(family);
            if !ranges.is_empty() {
                nets.add(all.len(), ports);
                all.push(ranges);
            }
        }
    }

    /// What everyone of a family may use: some ports; `None`: every port. That is a step, once for each family, as what
    /// comes behind the first is never asked.
    fn any_peer(&mut self, part: &RulePart, ports: Option<&[(Protocol, PortRange)]>) {
        let ends = part.peers.as_ref();
        let mut peers = Vec::new();
        let of_families = self.open.iter_mut().zip(&mut self.anyone);
        for (family, (open, anyone)) in Family::BOTH.into_iter().zip(of_families) {
            if !ends.is_none_or(|ends| ends.is_any_of(family)) {
                continue;
            }
            match ports {
                Some(ports) => open.extend(ports),
                None if std::mem::replace(anyone, true) => {}
                None => peers.push(PeerCondition {
                    within: PeerScope::Family(family),
                    except: Vec::new(),
                }),
            }
        }
        if !peers.is_empty() {
            self.steps.push(Arc::new(Step {
                rule: part.rule,
                action: part.action,
                ports: None,
                peers: Some(peers),
            }));
        }
    }

    fn finish<B: GroupRegistry>(
        mut self,
        groups: &mut GroupDrafts<'_, '_, B>,
    ) -> (MergedUnion, Vec<Arc<Step>>) {
        for destinations in self.named.into_values() {
            for (block, part) in destinations.parts(groups) {
                self.hosts.add(part, Some(&[block]));
            }
        }
        let (of_ports, any_port) = self.hosts.groups(|parts| groups.together(parts));
        let mut of_family = |family, nets: ByPorts<usize>, all: &[Ranges]| {
            nets.groups(|places| {
                let some = places.iter().filter_map(|place| all.get(*place));
                groups.ranges(&Ranges::together(some), family)
            })
        };
        let ([nets4, nets6], [all4, all6]) = (self.nets, self.ranges);
        let (nets4_of_ports, nets4_of_any) = of_family(Family::V4, nets4, &all4);
        let (nets6_of_ports, nets6_of_any) = of_family(Family::V6, nets6, &all6);
        let merged = MergedUnion {
            of_ports,
            any_port,
            nets_of_ports: [nets4_of_ports, nets6_of_ports],
            nets_of_any_port: [nets4_of_any, nets6_of_any],
            open: self.open.map(|open| blocks(open).into_iter().collect()),
        };
        (merged, self.steps)
    }
}
