//! Merges large unions.
//!
//! NetworkPolicies that select a pod are a union: their order does not matter. In a large union the
//! groups that may use a port become one group, and the cost of a new connection does not grow with
//! the number of policies. Ranges of ports become [blocks](PortBlock), and blocks of addresses,
//! without their exceptions, become ranges of addresses.

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

/// A rule for a subject, before its blocks of addresses become groups.
#[derive(Clone, Debug)]
pub(super) struct RulePart {
    pub(super) rule: RuleId,
    pub(super) action: Action,
    pub(super) ports: Option<Ports>,
    /// `None`: every peer.
    pub(super) peers: Option<PeerDraft>,
}

impl RulePart {
    /// Returns the number of conditions as a step of its own: pairs of a port and a peer.
    pub(super) fn conditions(&self) -> usize {
        let ports = self.ports.as_ref().map_or(1, Ports::len);
        let peers = self.peers.as_ref().map_or(1, PeerDraft::conditions);
        ports.saturating_mul(peers)
    }

    /// Returns the part as a step of its own.
    pub(super) fn step<'a, B: GroupRegistry>(
        &self,
        subject_rule: SubjectRule<'_, 'a>,
        groups: &mut GroupDrafts<'_, 'a, B>,
    ) -> Step {
        let (ports, peers) = (self.ports.as_ref(), self.peers.as_ref());
        let role = GroupRole::of(self.action);
        Step {
            rule: self.rule,
            action: self.action,
            ports: ports.map(|ports| ports.conditions(role, groups)),
            peers: peers.map(|peers| groups.conditions(subject_rule, peers)),
        }
    }
}

/// Merges a union. What has no place in the sets is returned as steps.
pub(super) fn merge<'a, B: GroupRegistry>(
    parts: &[(SubjectRule<'_, 'a>, Arc<RulePart>)],
    groups: &mut GroupDrafts<'_, 'a, B>,
) -> (MergedUnion, Vec<Arc<Step>>) {
    let mut draft = UnionDraft::default();
    for (subject_rule, part) in parts {
        draft.part(*subject_rule, part, groups);
    }
    draft.finish(groups)
}

/// The parts of a union.
#[derive(Default)]
struct UnionDraft {
    hosts: ByPorts<named::HostPart>,
    /// By positions in `ranges` of the family.
    nets: [ByPorts<usize>; 2],
    /// The ranges of each part that has blocks of addresses.
    ranges: [Vec<Ranges>; 2],
    /// The destinations of rules with a named port, for each name and protocol.
    named: BTreeMap<(u32, Option<Protocol>), Destinations>,
    open: [Vec<(Protocol, PortRange)>; 2],
    /// Whether every peer of a family may use every port.
    anyone: [bool; 2],
    steps: Vec<Arc<Step>>,
}

/// The peers that may use each block of ports, and those that may use every port.
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
    /// Adds a peer that may use some ports; `None`: every port.
    fn add(&mut self, member: T, ports: Option<&[PortBlock]>) {
        match ports {
            None => drop(self.of_any_port.insert(member)),
            Some(ports) => {
                for block in ports {
                    self.of_ports.entry(*block).or_default().insert(member);
                }
            }
        }
    }

    /// Builds the groups: one for each distinct set of peers.
    fn groups(
        self,
        mut group: impl FnMut(&BTreeSet<T>) -> GroupId,
    ) -> (BTreeMap<PortBlock, GroupId>, Option<GroupId>) {
        // A range is up to 104 blocks, all with the same peers: each set becomes a group once.
        let mut known: BTreeMap<BTreeSet<T>, GroupId> = BTreeMap::new();
        let mut once = |members: BTreeSet<T>| match known.get(&members) {
            Some(known) => *known,
            None => {
                let id = group(&members);
                known.insert(members, id);
                id
            }
        };
        let of_ports = self.of_ports.into_iter();
        let of_ports = of_ports
            .map(|(block, members)| (block, once(members)))
            .collect();
        let of_any_port = Some(self.of_any_port).filter(|members| !members.is_empty());
        (of_ports, of_any_port.map(once))
    }
}

impl UnionDraft {
    /// Adds a rule. Only every peer at every port stays a step.
    fn part<'a, B: GroupRegistry>(
        &mut self,
        subject_rule: SubjectRule<'_, 'a>,
        part: &RulePart,
        groups: &mut GroupDrafts<'_, 'a, B>,
    ) {
        // `None` is every port. A rule that has only named ports has an empty list here, which adds
        // nothing: `named` adds its ports.
        let ports = part.ports.as_ref();
        let plain = ports.map(|ports| {
            let plain = ports.plain.iter();
            let plain = plain.map(|port| (port.protocol, port.range));
            plain.collect::<Vec<(Protocol, PortRange)>>()
        });
        self.any_peer(part, plain.as_deref());
        if let Some(peers) = &part.peers {
            let blocks = plain.map(blocks);
            if blocks.as_ref().is_none_or(|blocks| !blocks.is_empty()) {
                self.some_peers(subject_rule, peers, blocks.as_deref(), groups);
            }
        }
        self.named(subject_rule, part, groups);
    }

    /// Adds the destinations of a rule with named ports. Each destination resolves the names.
    fn named<'a, B: GroupRegistry>(
        &mut self,
        subject_rule: SubjectRule<'_, 'a>,
        part: &RulePart,
        groups: &mut GroupDrafts<'_, 'a, B>,
    ) {
        let role = GroupRole::of(part.action);
        for (name, protocol) in part.ports.iter().flat_map(|ports| &ports.names) {
            // The destinations of all rules with one name are united: a pod may be reached at its
            // named port if it is a destination of any of them.
            let destinations = self
                .named
                .entry((*name, *protocol))
                .or_insert_with(|| Destinations::new(groups.ports_of_name(*name, role, *protocol)));
            destinations.ends(subject_rule, part.peers.as_ref(), groups);
        }
    }

    /// Adds the hosts and ranges that may use some ports; `None`: every port.
    fn some_peers<'a, B: GroupRegistry>(
        &mut self,
        subject_rule: SubjectRule<'_, 'a>,
        peers: &PeerDraft,
        ports: Option<&[PortBlock]>,
        groups: &mut GroupDrafts<'_, 'a, B>,
    ) {
        if let Some(hosts) = groups.hosts(subject_rule, peers) {
            self.hosts.add(named::HostPart::Hosts(hosts), ports);
        }
        let of_families = self.nets.iter_mut().zip(&mut self.ranges);
        for (family, (nets, all)) in Family::BOTH.into_iter().zip(of_families) {
            // Ranges stay apart from hosts: hosts are looked up exactly, ranges in a tree.
            let ranges = peers.ranges(family);
            if !ranges.is_empty() {
                nets.add(all.len(), ports);
                all.push(ranges);
            }
        }
    }

    /// Adds the ports that every peer of a family may use; `None`: every port. The latter is a
    /// step, one for each family: a second one would never be reached.
    fn any_peer(&mut self, part: &RulePart, ports: Option<&[(Protocol, PortRange)]>) {
        let draft = part.peers.as_ref();
        let mut peers = Vec::new();
        let of_families = self.open.iter_mut().zip(&mut self.anyone);
        for (family, (open, is_any)) in Family::BOTH.into_iter().zip(of_families) {
            if !draft.is_none_or(|draft| draft.is_any_of(family)) {
                continue;
            }
            match ports {
                Some(ports) => open.extend(ports),
                None if std::mem::replace(is_any, true) => {}
                None => peers.push(PeerCondition {
                    within: PeerScope::Family(family),
                    except: Vec::new(),
                }),
            }
        }
        // The sets have no place for every peer at every port: one rule without a lookup is
        // cheaper.
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
        // Named ports come last: their destinations are complete when all rules are added.
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
