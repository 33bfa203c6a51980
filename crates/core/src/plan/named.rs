//! Named ports of egress rules, in unions that are asked at once.
//!
//! What a name stands for depends on the destination (D33). So a port that a name stands for somewhere is for a group: the
//! pods that have the name at that port, among the destinations of the rules with the name. The destinations do not
//! depend on the port, and are kept once for all ports of a name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;

use super::groups::{GroupDrafts, NamedPort, PeerDraft, SubjectRule};
use super::ports::PortBlock;
use super::ranges::Ranges;
use super::registry::{GroupKey, GroupMeaning, GroupRegistry, GroupRole};
use super::{GroupId, PortCondition};
use crate::net::{Family, PortRange, Protocol};

/// The destinations of rules with a name: the pods of some groups, and ranges of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SubsetId(pub(crate) u32);

/// Where ranges of addresses begin and end, for each family.
pub(crate) type Bounds = [Vec<IpAddr>; 2];

/// Whether an address is in ranges.
pub(crate) fn holds([v4, v6]: &Bounds, address: IpAddr) -> bool {
    let bounds = match Family::of(address) {
        Family::V4 => v4,
        Family::V6 => v6,
    };
    // Bounds are beginnings and ends in turn.
    bounds.partition_point(|bound| *bound <= address) % 2 == 1
}

/// What makes such destinations, in the numbers of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SubsetKey {
    /// Pod sets; with those that depend on the subject, which namespaces it is related to.
    pub(crate) sets: Vec<(u32, Option<u32>)>,
    pub(crate) bounds: Bounds,
}

/// Pods whose port of a number has a name, all of them or some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NamedKey {
    pub(crate) name: u32,
    pub(crate) protocol: Protocol,
    pub(crate) port: NonZeroU16,
    pub(crate) subset: Option<SubsetId>,
}

/// The ports of a rule. What names stand for elsewhere is the same for all rules, and not repeated here.
#[derive(Clone, Debug)]
pub(super) struct Ports {
    pub(super) plain: Vec<PortCondition>,
    /// Names that have another number at each other end, and the protocols that they are of.
    pub(super) names: Vec<(u32, Option<Protocol>)>,
    /// How many ports those stand for.
    n_named: usize,
}

impl Ports {
    /// The names are among those that were learned.
    pub(super) fn new<B: GroupRegistry>(
        mut plain: Vec<PortCondition>,
        mut names: Vec<(u32, Option<Protocol>)>,
        role: GroupRole,
        groups: &GroupDrafts<'_, '_, B>,
    ) -> Ports {
        plain.sort_unstable();
        plain.dedup();
        names.sort_unstable();
        names.dedup();
        let learned = names.iter();
        let learned =
            learned.map(|(name, protocol)| groups.learned(*name, role, *protocol).count());
        Ports {
            n_named: learned.sum(),
            plain,
            names,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.plain.len() + self.n_named
    }

    /// All of them as conditions of their own.
    pub(super) fn conditions<B: GroupRegistry>(
        &self,
        role: GroupRole,
        groups: &GroupDrafts<'_, '_, B>,
    ) -> Vec<PortCondition> {
        let mut conditions = self.plain.clone();
        for (name, protocol) in &self.names {
            let learned = groups.learned(*name, role, *protocol);
            conditions.extend(learned.map(|(protocol, port, at)| PortCondition {
                protocol,
                range: PortRange::single(port),
                at: Some(at),
            }));
        }
        conditions.sort_unstable();
        conditions.dedup();
        conditions
    }
}

/// A part of a group of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HostPart {
    Hosts(GroupId),
    /// A group of pods that have a name at a port: all, or only those that are among others as well.
    Named(GroupId, Option<SubsetId>),
}

/// The destinations of the rules of a union that have a name.
#[derive(Default)]
pub(super) struct Destinations {
    /// The ports that the name stands for, and the groups of pods where it does.
    ports: BTreeMap<(Protocol, NonZeroU16), GroupId>,
    hosts: BTreeSet<GroupId>,
    ranges: [Vec<Ranges>; 2],
}

impl Destinations {
    /// Those of a name that stands for some ports, and where.
    pub(super) fn new(ports: impl Iterator<Item = NamedPort>) -> Destinations {
        Destinations {
            ports: ports
                .map(|(protocol, port, at)| ((protocol, port), at))
                .collect(),
            ..Destinations::default()
        }
    }

    /// Adds the other ends of a rule; `None`: anyone.
    pub(super) fn ends<'a, B: GroupRegistry>(
        &mut self,
        asker: SubjectRule<'_, 'a>,
        ends: Option<&PeerDraft>,
        groups: &mut GroupDrafts<'_, 'a, B>,
    ) {
        if let Some(ends) = ends {
            self.hosts.extend(groups.hosts(asker, ends));
        }
        for (family, all) in Family::BOTH.into_iter().zip(&mut self.ranges) {
            let of_family = match ends {
                Some(ends) if !ends.is_any_of(family) => ends.ranges_and_singles(family),
                _ => Ranges::all(family),
            };
            if !of_family.is_empty() {
                all.push(of_family);
            }
        }
    }

    /// The ports, each with the pods that it is for.
    pub(super) fn parts<B: GroupRegistry>(
        self,
        groups: &mut GroupDrafts<'_, '_, B>,
    ) -> impl Iterator<Item = (PortBlock, HostPart)> + use<B> {
        let ranges = self.ranges.map(|all| Ranges::together(&all));
        let everyone = Family::BOTH.map(Ranges::all);
        let among = (ranges != everyone).then(|| groups.among(&self.hosts, &ranges));
        let ports = self.ports.into_iter();
        ports.map(move |((protocol, port), at)| {
            let block = PortBlock::single(protocol, port.get());
            (block, HostPart::Named(at, among))
        })
    }
}

impl<B: GroupRegistry> GroupDrafts<'_, '_, B> {
    /// The group of all hosts of some parts.
    pub(super) fn together(&mut self, parts: &BTreeSet<HostPart>) -> GroupId {
        let (mut all_sets, mut all_nodes, mut all_singles) = (Vec::new(), Vec::new(), Vec::new());
        let mut all_named = Vec::new();
        let (mut hosts, mut with_port) = (Vec::new(), Vec::new());
        for part in parts {
            match *part {
                HostPart::Hosts(id) => {
                    hosts.push(id);
                    if let Some(GroupKey::Hosts {
                        sets,
                        nodes,
                        singles,
                        ..
                    }) = self.keys.get(&id)
                    {
                        all_sets.extend(sets);
                        all_nodes.extend(nodes);
                        all_singles.extend(singles);
                    }
                }
                HostPart::Named(at, among) => {
                    with_port.push((at, among));
                    all_named.extend(self.named_key(at, among));
                }
            }
        }
        all_sets.sort_unstable();
        all_sets.dedup();
        all_nodes.sort_unstable();
        all_nodes.dedup();
        all_singles.sort_unstable();
        all_singles.dedup();
        all_named.sort_unstable();
        all_named.dedup();
        let key = GroupKey::Hosts {
            sets: all_sets,
            nodes: all_nodes,
            singles: all_singles,
            named: all_named,
        };
        let meaning = GroupMeaning::Together(&hosts, &with_port);
        self.id(key, GroupRole::Accepts, meaning)
    }

    /// The pods that some groups have, or ranges of addresses.
    pub(super) fn among(&mut self, hosts: &BTreeSet<GroupId>, ranges: &[Ranges; 2]) -> SubsetId {
        let [v4, v6] = ranges;
        let mut key = SubsetKey {
            sets: Vec::new(),
            bounds: [
                v4.bounds(Family::V4).collect(),
                v6.bounds(Family::V6).collect(),
            ],
        };
        for id in hosts {
            if let Some(GroupKey::Hosts { sets, .. }) = self.keys.get(id) {
                key.sets.extend(sets);
            }
        }
        key.sets.sort_unstable();
        key.sets.dedup();
        if let Some(known) = self.amongs.get(&key) {
            return *known;
        }
        let hosts: Vec<GroupId> = hosts.iter().copied().collect();
        let id = self.registry.among(&key, &hosts);
        self.amongs.insert(key, id);
        id
    }

    fn named_key(&self, at: GroupId, among: Option<SubsetId>) -> Option<NamedKey> {
        match self.keys.get(&at) {
            Some(GroupKey::Named(name, protocol, port)) => Some(NamedKey {
                name: *name,
                protocol: *protocol,
                port: *port,
                subset: among,
            }),
            _ => None,
        }
    }
}
