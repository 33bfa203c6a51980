//! Named ports of egress rules in merged unions.
//!
//! The number of a named port depends on the destination (D33). Each number that a name has at some
//! pod therefore leads to a group: the pods that have the name at this number, among the
//! destinations of the rules with the name. The destinations do not depend on the number, and are
//! kept once for all numbers of a name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;

use super::groups::{GroupDrafts, NamedPort, PeerDraft, SubjectRule};
use super::ports::PortBlock;
use super::ranges::Ranges;
use super::registry::{GroupKey, GroupMeaning, GroupRegistry, GroupRole};
use super::{GroupId, PortCondition};
use crate::net::{Family, PortRange, Protocol};

/// The number of a list of destinations: the pods of some groups, and ranges of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SubsetId(pub(crate) u32);

/// The bounds of ranges of addresses, for each family: first addresses, and those after the last.
pub(crate) type Bounds = [Vec<IpAddr>; 2];

/// Whether an address is in one of the ranges.
pub(crate) fn contains([v4, v6]: &Bounds, address: IpAddr) -> bool {
    let bounds = match Family::of(address) {
        Family::V4 => v4,
        Family::V6 => v6,
    };
    // Starts and ends alternate: after an odd number of bounds, a range is open.
    bounds.partition_point(|bound| *bound <= address) % 2 == 1
}

/// The content of a list of destinations, in the numbers of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SubsetKey {
    /// Pod sets; for one with a relation, the subject's group of namespaces.
    pub(crate) sets: Vec<(u32, Option<u32>)>,
    pub(crate) bounds: Bounds,
}

/// The pods at which a name stands for a port: all of them, or those in a list of destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NamedKey {
    pub(crate) name: u32,
    pub(crate) protocol: Protocol,
    pub(crate) port: NonZeroU16,
    pub(crate) subset: Option<SubsetId>,
}

/// The ports of a rule. The numbers of names are the same for all rules, and are kept elsewhere.
#[derive(Clone, Debug)]
pub(super) struct Ports {
    pub(super) plain: Vec<PortCondition>,
    /// Names that are resolved at each destination, and the protocol of each; `None`: all.
    pub(super) names: Vec<(u32, Option<Protocol>)>,
    /// The number of ports that the names stand for.
    n_named: usize,
}

impl Ports {
    /// Sorts and counts the ports. The names must have been resolved before.
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
            learned.map(|(name, protocol)| groups.ports_of_name(*name, role, *protocol).count());
        Ports {
            n_named: learned.sum(),
            plain,
            names,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.plain.len() + self.n_named
    }

    /// Returns all ports as conditions.
    pub(super) fn conditions<B: GroupRegistry>(
        &self,
        role: GroupRole,
        groups: &GroupDrafts<'_, '_, B>,
    ) -> Vec<PortCondition> {
        let mut conditions = self.plain.clone();
        for (name, protocol) in &self.names {
            let learned = groups.ports_of_name(*name, role, *protocol);
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

/// A part of a merged group of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HostPart {
    /// All members of a group.
    Hosts(GroupId),
    /// A group of the pods that have a name at a port: all, or those in a list of destinations.
    Named(GroupId, Option<SubsetId>),
}

/// The destinations of all rules of a union that have one name.
#[derive(Default)]
pub(super) struct Destinations {
    /// The ports that the name stands for, and the group of the pods at each.
    ports: BTreeMap<(Protocol, NonZeroU16), GroupId>,
    hosts: BTreeSet<GroupId>,
    ranges: [Vec<Ranges>; 2],
}

impl Destinations {
    /// Starts with the ports of the name and no destination.
    pub(super) fn new(ports: impl Iterator<Item = NamedPort>) -> Destinations {
        Destinations {
            ports: ports
                .map(|(protocol, port, at)| ((protocol, port), at))
                .collect(),
            ..Destinations::default()
        }
    }

    /// Adds the destinations of a rule; `None`: every peer.
    pub(super) fn ends<'a, B: GroupRegistry>(
        &mut self,
        subject_rule: SubjectRule<'_, 'a>,
        peers: Option<&PeerDraft>,
        groups: &mut GroupDrafts<'_, 'a, B>,
    ) {
        if let Some(peers) = peers {
            self.hosts.extend(groups.hosts(subject_rule, peers));
        }
        // A block matches a pod by its address (D35). Single addresses count as blocks here, since
        // only pods have port names, whichever way a peer names them.
        for (family, all) in Family::BOTH.into_iter().zip(&mut self.ranges) {
            let of_family = match peers {
                Some(peers) if !peers.is_any_of(family) => peers.ranges_and_singles(family),
                _ => Ranges::all(family),
            };
            if !of_family.is_empty() {
                all.push(of_family);
            }
        }
    }

    /// Returns the ports, each with the pods that may be reached at it.
    pub(super) fn parts<B: GroupRegistry>(
        self,
        groups: &mut GroupDrafts<'_, '_, B>,
    ) -> impl Iterator<Item = (PortBlock, HostPart)> + use<B> {
        let ranges = self.ranges.map(|all| Ranges::together(&all));
        // A rule for every destination needs no list: all pods with the name are in the group.
        let all = Family::BOTH.map(Ranges::all);
        let subset = (ranges != all).then(|| groups.among(&self.hosts, &ranges));
        let ports = self.ports.into_iter();
        ports.map(move |((protocol, port), at)| {
            let block = PortBlock::single(protocol, port.get());
            (block, HostPart::Named(at, subset))
        })
    }
}

impl<B: GroupRegistry> GroupDrafts<'_, '_, B> {
    /// Returns the group of all hosts of some parts.
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
                HostPart::Named(at, subset) => {
                    with_port.push((at, subset));
                    all_named.extend(self.named_key(at, subset));
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
        // Unions only accept, hence the role. Different lists of rules with the same peers have one
        // key, and share the group.
        let key = GroupKey::Hosts {
            sets: all_sets,
            nodes: all_nodes,
            singles: all_singles,
            named: all_named,
        };
        let meaning = GroupMeaning::Union(&hosts, &with_port);
        self.id(key, GroupRole::Accepts, meaning)
    }

    /// Returns the number of the pods that are in some groups or in ranges of addresses.
    pub(super) fn among(&mut self, hosts: &BTreeSet<GroupId>, ranges: &[Ranges; 2]) -> SubsetId {
        let [v4, v6] = ranges;
        let mut key = SubsetKey {
            sets: Vec::new(),
            bounds: [
                v4.bounds(Family::V4).collect(),
                v6.bounds(Family::V6).collect(),
            ],
        };
        // The nodes of the groups are left out, because only pods have port names (D35). The single
        // addresses of the groups are in the ranges already.
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
        let id = self.registry.subset(&key, &hosts);
        self.amongs.insert(key, id);
        id
    }

    fn named_key(&self, at: GroupId, subset: Option<SubsetId>) -> Option<NamedKey> {
        match self.keys.get(&at) {
            Some(GroupKey::Named(name, protocol, port)) => Some(NamedKey {
                name: *name,
                protocol: *protocol,
                port: *port,
                subset,
            }),
            _ => None,
        }
    }
}
