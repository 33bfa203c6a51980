//! Everyone who can be at the other end of a flow, by what rules can tell apart.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::decide::Identity;
use crate::flow_end::{self, EndCandidate, EndName};
use crate::model::{Cluster, NodeId, PodId, PodLifecycle};
use crate::net::Family;
use crate::program::{AddressAtom, Class, NONE, Program};

/// The other ends of flows.
#[derive(Debug)]
pub(super) struct Peers<'c> {
    /// Pods first, then nodes, then everyone outside.
    pub(super) list: Vec<Peer<'c>>,
    /// One class for each kind of pod.
    pub(super) pods: Vec<&'c Class>,
    /// One node for each kind.
    pub(super) nodes: Vec<NodeId>,
    /// The kind of each pod.
    pub(super) pod_kinds: FxHashMap<PodId, usize>,
    /// The address atoms that a pod could be in, for each family.
    pub(super) possible: [Vec<AddressAtom>; 2],
    /// Where each sort of end stands in the list.
    pub(super) places: FxHashMap<(Kind, At), usize>,
    /// The ends that are in each pod set, or could be; those at each address atom.
    of_set: FxHashMap<u32, Vec<usize>>,
    of_atom: FxHashMap<u32, Vec<usize>>,
}

/// Ends that no rule tells apart.
#[derive(Debug)]
pub(super) struct Peer<'c> {
    pub(super) kind: Kind,
    pub(super) at: At,
    /// Whether it can only be a destination.
    pub(super) only_receives: bool,
    /// Up to two of them: if a subject cannot meet one, it can meet the other.
    pub(super) members: Vec<Member<'c>>,
}

/// What an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A pod, by its place in [`Peers::pods`].
    Pod(usize),
    /// A node that was given, by its place in [`Peers::nodes`].
    Node(usize),
    /// Another node's network, or someone outside.
    Other,
}

/// Where an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum At {
    Atom(Family, AddressAtom),
    /// Its address is not known (D83).
    Unknown,
}

/// One end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member<'c> {
    pub(super) name: EndName,
    pub(super) identity: Identity,
    /// The node in whose network its packets start, if it is named by that (D74, D130).
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
        let live = |id: &PodId| {
            let pod = cluster.pods.get(id.0 as usize);
            pod.is_some_and(|pod| pod.life != PodLifecycle::Ended)
        };
        for id in ids(cluster.pods.len()).map(PodId).filter(live) {
            builder.add(&flow_end::pod(cluster, program, id));
        }
        for id in ids(cluster.nodes.len()).map(NodeId) {
            let candidate = flow_end::node(cluster, id);
            if !candidate.addresses.is_empty() {
                builder.add(&candidate);
            }
        }
        // An address says less than a name: it is never local to a node (D130).
        let mut owned: Vec<IpAddr> = program.owners.iter().map(|it| it.0).collect();
        owned.sort_unstable();
        for address in &owned {
            builder.add(&EndCandidate {
                name: EndName::Address(*address),
                ..flow_end::at(cluster, program, *address)
            });
        }
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
            if let At::Atom(_, atom) = peer.at {
                peers.of_atom.entry(atom.0).or_default().push(place);
            }
        }
        peers
    }

    /// The ends that are in a pod set, or could be.
    pub(super) fn in_set(&self, set: u32) -> &[usize] {
        self.of_set.get(&set).map_or(&[], Vec::as_slice)
    }

    /// The ends at an address atom.
    pub(super) fn at(&self, atom: u32) -> &[usize] {
        self.of_atom.get(&atom).map_or(&[], Vec::as_slice)
    }

    /// Whether there is a sort of end of which all are on this node, so that the pods there cannot
    /// be called by any (D74).
    pub(super) fn is_lonely(&self, node: &str) -> bool {
        let mut peers = self.list.iter().map(|peer| peer.members.iter());
        peers.any(|mut members| members.all(|it| it.local_to == Some(node)))
    }

    /// Finds the kinds of pods, and those of nodes.
    fn kinds(&mut self, cluster: &Cluster<'_>, program: &'c Program) -> FxHashMap<NodeId, usize> {
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

/// What a set's relation sees of a namespace.
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
            self.push(kind, At::Unknown, member, false);
        }
        for family in Family::BOTH {
            if let Some(address) = candidate.addresses.of(family) {
                let at = At::Atom(family, self.program.address_atom(address));
                self.push(kind, at, member, false);
            }
        }
    }

    fn push(&mut self, kind: Kind, at: At, member: Member<'c>, only_receives: bool) {
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
        let is_another = |it: &Member<'_>| match kind {
            Kind::Pod(_) => it.identity != member.identity,
            Kind::Node(_) | Kind::Other => it.local_to != member.local_to,
        };
        if known.members.len() < 2 && known.members.iter().all(is_another) {
            known.members.push(member);
        }
    }

    /// Someone outside the cluster for each atom that has an address nobody in it has.
    fn outside(&mut self, taken: &FxHashSet<IpAddr>) {
        for family in Family::BOTH {
            for (first, last) in ranges(self.program, family) {
                let unicast = free(family, (first, last), &no_hosts(family), taken);
                let found = unicast.map(|address| (address, false)).or_else(|| {
                    // Groups are sent to, and never send (D13).
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
                let at = At::Atom(family, self.program.address_atom(address));
                self.push(Kind::Other, at, member, only_receives);
            }
        }
    }
}

/// The first and last address of each atom of a family, as numbers.
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

/// Addresses that no host outside has: this network, loopback, IPv4 in disguise, groups and beyond.
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

/// The addresses of groups.
pub(crate) fn groups(family: Family) -> (u128, u128) {
    match family {
        Family::V4 => (0xe000_0000, 0xefff_ffff),
        Family::V6 => (0xff << 120, u128::MAX),
    }
}

/// An address of a range that is in none of the others and that nobody has; one that documentation
/// uses if there is one.
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
    let familiar: &[u128] = match family {
        Family::V4 => &[0xcb00_7107, 0xc633_6407, 0xc000_0207],
        Family::V6 => &[0x2001_0db8_0000_0000_0000_0000_0000_0007],
    };
    let within = |number: &&u128| (first..=last).contains(number);
    let mut familiar = familiar.iter().filter(within);
    let is_free = |it: &IpAddr| !taken.contains(it);
    if let Some(found) = familiar.find_map(|it| address(*it).filter(is_free)) {
        return Some(found);
    }
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
