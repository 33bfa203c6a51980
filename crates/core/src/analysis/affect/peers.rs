//! The possible peers of flows, grouped by what rules distinguish.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::decide::Identity;
use crate::flow_end::{self, EndCandidate, EndName};
use crate::model::{Cluster, NodeId, PodId, PodPhase};
use crate::net::Family;
use crate::program::{AddressAtom, Class, NONE, Program};

/// The peers of a cluster.
#[derive(Debug)]
pub(super) struct Peers<'c> {
    /// Pods first, then nodes, then outside addresses.
    pub(super) list: Vec<Peer<'c>>,
    /// One class for each kind of pod.
    pub(super) pods: Vec<&'c Class>,
    /// One node for each kind.
    pub(super) nodes: Vec<NodeId>,
    /// The kind of each pod.
    pub(super) pod_kinds: FxHashMap<PodId, usize>,
    /// The address atoms that a pod's address can be in, for each family.
    pub(super) possible: [Vec<AddressAtom>; 2],
    /// The index in the list of each kind of peer at each place.
    pub(super) places: FxHashMap<(Kind, PeerAddress), usize>,
    /// The peers in each pod set, whatever its relation to the subject; the peers at each address
    /// atom.
    of_set: FxHashMap<u32, Vec<usize>>,
    of_atom: FxHashMap<u32, Vec<usize>>,
}

/// Peers that no rule distinguishes.
#[derive(Debug)]
pub(super) struct Peer<'c> {
    pub(super) kind: Kind,
    pub(super) at: PeerAddress,
    /// Whether it is a destination only, as multicast groups are.
    pub(super) only_receives: bool,
    /// Up to two members: if no flow is possible between a subject and one, it is with the other.
    pub(super) members: Vec<Member<'c>>,
}

/// The kind of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A pod, by its index in [`Peers::pods`].
    Pod(usize),
    /// A node with an object in the input, by its index in [`Peers::nodes`].
    Node(usize),
    /// Another node, a host-network pod without a node in the input, or an outside address.
    Other,
}

/// The address of a peer, as rules distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PeerAddress {
    Atom(Family, AddressAtom),
    /// An unknown address (D83).
    Unknown,
}

/// A member of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member<'c> {
    pub(super) name: EndName,
    pub(super) identity: Identity,
    /// The node from whose network it sends, if it is named as that node or a pod on it (D74,
    /// D130).
    pub(super) local_to: Option<&'c str>,
}

impl<'c> Peers<'c> {
    pub(super) fn new(cluster: &'c Cluster<'c>, program: &'c Program) -> Peers<'c> {
        let mut peers = Peers {
            list: Vec::new(),
            pods: Vec::new(),
            nodes: Vec::new(),
            pod_kinds: FxHashMap::default(),
            possible: Family::BOTH.map(|family| program.addresses.possible(family)),
            places: FxHashMap::default(),
            of_set: FxHashMap::default(),
            of_atom: FxHashMap::default(),
        };
        let node_kinds = peers.kinds(cluster, program);
        let mut builder = Builder {
            program,
            peers,
            node_kinds,
        };
        let ids = |n: usize| (0..n).filter_map(|id| u32::try_from(id).ok());
        let has_not_ended = |id: &PodId| {
            let pod = cluster.pods.get(id.0 as usize);
            pod.is_some_and(|pod| pod.phase != PodPhase::Terminated)
        };
        for id in ids(cluster.pods.len()).map(PodId).filter(has_not_ended) {
            builder.add(&flow_end::pod(cluster, program, id));
        }
        for id in ids(cluster.nodes.len()).map(NodeId) {
            let candidate = flow_end::node(cluster, id);
            if !candidate.addresses.is_empty() {
                builder.add(&candidate);
            }
        }
        // A node by its address is another peer than by its name: an address is never local to a
        // node (D130), so it can call the pods there.
        let mut owned: Vec<IpAddr> = program.owners.iter().map(|it| it.0).collect();
        owned.sort_unstable();
        for address in &owned {
            builder.add(&EndCandidate {
                name: EndName::Address(*address),
                ..flow_end::at(cluster, program, *address)
            });
        }
        // Service addresses are translated before policies see them (D78), so no outside peer has
        // one.
        let mut taken: FxHashSet<IpAddr> = owned.into_iter().collect();
        for service in &cluster.services {
            let addresses = service.cluster_addresses.iter();
            let addresses = addresses.chain(&service.external_addresses);
            taken.extend(addresses.map(IpAddr::to_canonical));
        }
        builder.outside(&taken);
        let mut peers = builder.peers;
        for (place, peer) in peers.list.iter().enumerate() {
            if let Kind::Pod(kind) = peer.kind
                && let Some(class) = peers.pods.get(kind)
            {
                for set in program.sets_of(class) {
                    peers.of_set.entry(set).or_default().push(place);
                }
            }
            if let PeerAddress::Atom(_, atom) = peer.at {
                peers.of_atom.entry(atom.0).or_default().push(place);
            }
        }
        peers
    }

    /// Returns the peers in a pod set, whatever its relation to the subject.
    pub(super) fn in_set(&self, set: u32) -> &[usize] {
        self.of_set.get(&set).map_or(&[], Vec::as_slice)
    }

    /// Returns the peers at an address atom.
    pub(super) fn at(&self, atom: u32) -> &[usize] {
        self.of_atom.get(&atom).map_or(&[], Vec::as_slice)
    }

    /// Whether some peer exists only on this node. Its traffic to pods of the node is exempt (D74).
    pub(super) fn has_local_peer(&self, node: &str) -> bool {
        let mut peers = self.list.iter().map(|peer| peer.members.iter());
        peers.any(|mut members| members.all(|it| it.local_to == Some(node)))
    }

    /// Finds the kinds of pods and the kinds of nodes.
    fn kinds(&mut self, cluster: &Cluster<'_>, program: &'c Program) -> FxHashMap<NodeId, usize> {
        // Only sets that rules use as peers. Classes that differ only as subjects are one kind
        // here.
        let named: FxHashSet<u32> = program.lists.sets.iter().copied().collect();
        let mut of_class: FxHashMap<u32, usize> = FxHashMap::default();
        let mut of_key: FxHashMap<(Vec<(u32, u32)>, u32), usize> = FxHashMap::default();
        for (pod, class_id) in program.pod_classes.iter().enumerate() {
            let Ok(pod) = u32::try_from(pod) else {
                continue;
            };
            let Some(class) = program.classes.get(*class_id as usize) else {
                continue;
            };
            let kind = *of_class.entry(*class_id).or_insert_with(|| {
                let sets = program.sets_of(class).filter(|set| named.contains(set));
                let sets = sets.map(|set| (set, relative_group(program, set, class.namespace)));
                let key = (sets.collect(), class.port_map);
                *of_key.entry(key).or_insert_with(|| {
                    self.pods.push(class);
                    self.pods.len() - 1
                })
            });
            self.pod_kinds.insert(PodId(pod), kind);
        }
        let mut of_nodes = FxHashMap::default();
        let mut of_sets: FxHashMap<Vec<usize>, usize> = FxHashMap::default();
        for (id, node) in cluster.nodes.iter().enumerate() {
            let Some(id) = u32::try_from(id)
                .ok()
                .filter(|_| node.has_object)
                .map(NodeId)
            else {
                continue;
            };
            let sets = program.node_sets.iter().enumerate();
            let sets = sets.filter(|(_, nodes)| nodes.binary_search(&id).is_ok());
            let kind = *of_sets
                .entry(sets.map(|(set, _)| set).collect())
                .or_insert_with(|| {
                    self.nodes.push(id);
                    self.nodes.len() - 1
                });
            of_nodes.insert(id, kind);
        }
        of_nodes
    }
}

/// Returns the group of a namespace in the relation of a set; `NONE` if the set has no relation.
fn relative_group(program: &Program, set: u32, namespace: u32) -> u32 {
    let relation = program.set_relations.get(set as usize).copied().flatten();
    let relation = relation.and_then(|id| program.relations.get(id as usize));
    let group = relation.and_then(|it| it.groups.get(namespace as usize));
    group.copied().unwrap_or(NONE)
}

struct Builder<'c> {
    program: &'c Program,
    peers: Peers<'c>,
    node_kinds: FxHashMap<NodeId, usize>,
}

impl<'c> Builder<'c> {
    fn add(&mut self, candidate: &EndCandidate<'c>) {
        let kind = match candidate.identity {
            Identity::Pod(id) => self.peers.pod_kinds.get(&id).copied().map(Kind::Pod),
            Identity::Node(Some(id)) => self.node_kinds.get(&id).copied().map(Kind::Node),
            Identity::Node(None) | Identity::External => None,
        };
        let kind = kind.unwrap_or(Kind::Other);
        let member = Member {
            name: candidate.name,
            identity: candidate.identity,
            local_to: candidate.local_to,
        };
        if candidate.addresses == flow_end::Addresses::Unknown {
            self.push(kind, PeerAddress::Unknown, member, false);
        }
        for family in Family::BOTH {
            if let Some(address) = candidate.addresses.of(family) {
                let at = PeerAddress::Atom(family, self.program.address_atom(address));
                self.push(kind, at, member, false);
            }
        }
    }

    /// Adds a member to the peer of its kind and place.
    fn push(&mut self, kind: Kind, at: PeerAddress, member: Member<'c>, only_receives: bool) {
        let next = self.peers.list.len();
        let place = *self.peers.places.entry((kind, at)).or_insert(next);
        let Some(known) = self.peers.list.get_mut(place) else {
            self.peers.list.push(Peer {
                kind,
                at,
                only_receives,
                members: vec![member],
            });
            return;
        };
        // A second member matters only if it can be a peer where the first cannot: another pod,
        // since a pod is no peer of itself, or another node than the subject's own.
        let is_another = |it: &Member<'_>| match kind {
            Kind::Pod(_) => it.identity != member.identity,
            Kind::Node(_) | Kind::Other => it.local_to != member.local_to,
        };
        if known.members.len() < 2 && known.members.iter().all(is_another) {
            known.members.push(member);
        }
    }

    /// Adds an outside peer for each atom with an address that no object has.
    fn outside(&mut self, taken: &FxHashSet<IpAddr>) {
        for family in Family::BOTH {
            for (first, last) in ranges(self.program, family) {
                let unicast = free(family, (first, last), &no_hosts(family), taken);
                let found = unicast.map(|address| (address, false)).or_else(|| {
                    // A multicast group receives and never sends (D13).
                    let (from, to) = groups(family);
                    let range = (first.max(from), last.min(to));
                    let address = free(family, range, &[], taken)?;
                    Some((address, true))
                });
                let Some((address, only_receives)) = found else {
                    continue;
                };
                let member = Member {
                    name: EndName::Address(address),
                    identity: Identity::External,
                    local_to: None,
                };
                let at = PeerAddress::Atom(family, self.program.address_atom(address));
                self.push(Kind::Other, at, member, only_receives);
            }
        }
    }
}

/// Returns the first and last address of each atom of a family, as numbers.
pub(crate) fn ranges(program: &Program, family: Family) -> Vec<(u128, u128)> {
    let (starts, last): (Vec<u128>, u128) = match family {
        Family::V4 => {
            let starts = program.addresses.v4.iter();
            (
                starts.map(|it| u128::from(*it)).collect(),
                u128::from(u32::MAX),
            )
        }
        Family::V6 => (program.addresses.v6.clone(), u128::MAX),
    };
    let ends = starts.iter().skip(1).map(|next| next - 1);
    let ends: Vec<u128> = ends.chain([last]).collect();
    starts.into_iter().zip(ends).collect()
}

/// Returns the ranges of addresses that no outside host has: this network, loopback, IPv4-mapped
/// IPv6, multicast and everything behind it.
pub(crate) fn no_hosts(family: Family) -> [(u128, u128); 3] {
    match family {
        Family::V4 => [
            (0, 0x00ff_ffff),
            (0x7f00_0000, 0x7fff_ffff),
            (0xe000_0000, 0xffff_ffff),
        ],
        Family::V6 => [
            (0, 1),
            (0xffff_0000_0000, 0xffff_ffff_ffff),
            (0xff << 120, u128::MAX),
        ],
    }
}

/// Returns the range of multicast addresses.
pub(crate) fn groups(family: Family) -> (u128, u128) {
    match family {
        Family::V4 => (0xe000_0000, 0xefff_ffff),
        Family::V6 => (0xff << 120, u128::MAX),
    }
}

/// Returns an address of a range that is in none of `others` and that no object has; one of the
/// documentation ranges (RFC 5737, RFC 3849) if possible.
pub(crate) fn free(
    family: Family,
    (first, last): (u128, u128),
    others: &[(u128, u128)],
    taken: &FxHashSet<IpAddr>,
) -> Option<IpAddr> {
    let address = |number: u128| match family {
        Family::V4 => Some(IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(number).ok()?))),
        Family::V6 => Some(IpAddr::V6(Ipv6Addr::from_bits(number))),
    };
    let documentation: &[u128] = match family {
        Family::V4 => &[0xcb00_7107, 0xc633_6407, 0xc000_0207],
        Family::V6 => &[0x2001_0db8_0000_0000_0000_0000_0000_0007],
    };
    let within = |number: &&u128| (first..=last).contains(number);
    let mut documentation = documentation.iter().filter(within);
    let is_free = |it: &IpAddr| !taken.contains(it);
    if let Some(found) = documentation.find_map(|it| address(*it).filter(is_free)) {
        return Some(found);
    }
    // Jumps over excluded ranges and steps over taken addresses, which are at most as many as
    // objects have.
    let mut number = first;
    while number <= last {
        if let Some((_, end)) = others
            .iter()
            .find(|(from, to)| (*from..=*to).contains(&number))
        {
            number = end.checked_add(1)?;
            continue;
        }
        let candidate = address(number)?;
        if is_free(&candidate) {
            return Some(candidate);
        }
        number = number.checked_add(1)?;
    }
    None
}
