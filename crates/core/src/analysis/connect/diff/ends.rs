//! The endpoints of a comparison: those of the old cluster, of the new one, or of both.

use rustc_hash::FxHashMap;

use super::Version;
use crate::address_space::{self, address, bits};
use crate::analysis::connect::Member;
use crate::analysis::connect::keys::{self, AddressClasses};
use crate::analysis::connect::members::{MemberView, members};
use crate::analysis::connect::networks::{self, Outside};
use crate::compile::count;
use crate::model::{Cluster, NodeId, PodId};
use crate::net::{Cidr, Family};
use crate::program::{AddressAtom, Program, RuleId};

/// One of the two clusters, with what the fold needs of it.
#[derive(Debug)]
pub(super) struct ClusterSide<'c> {
    /// 0 is the old one, 1 the new one.
    pub(super) index: usize,
    pub(super) cluster: &'c Cluster<'c>,
    pub(super) program: &'c Program,
    pub(super) union_rules: [Vec<RuleId>; 2],
    pub(super) addresses: AddressClasses,
    /// The atoms that an unknown address could be in, for each family.
    pub(super) possible: [Vec<AddressAtom>; 2],
    outside: Vec<Outside>,
    pub(super) members: Vec<(Member, MemberView<'c>)>,
}

impl<'c> ClusterSide<'c> {
    pub(super) fn new(index: usize, version: Version<'c>, families: &[Family]) -> ClusterSide<'c> {
        let Version { cluster, program } = version;
        let union_rules = keys::union_rules(program);
        let addresses = AddressClasses::new(program, &union_rules);
        let outside = networks::networks(families, program, &addresses, &[]);
        let found = members(cluster, program, &outside).into_iter();
        // A flow to a Service is a flow to its backends, which are members themselves.
        let found = found.filter_map(|(member, view)| Some((member, view?)));
        ClusterSide {
            index,
            cluster,
            program,
            union_rules,
            addresses,
            possible: Family::BOTH.map(|family| program.addresses.possible(family)),
            members: found.collect(),
            outside,
        }
    }

    pub(super) fn view_of(&self, member: u32) -> Option<MemberView<'c>> {
        self.members.get(member as usize).map(|(_, view)| *view)
    }

    pub(super) fn member(&self, member: Option<u32>) -> Option<Member> {
        let (member, _) = self.members.get(member? as usize)?;
        Some(*member)
    }
}

/// An endpoint, by its index among the members of both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ComparedEndpoint {
    pub(super) old: Option<u32>,
    pub(super) new: Option<u32>,
    /// The blocks, if it is a network outside.
    pub(super) blocks: Vec<Cidr>,
}

/// The name by which both clusters have an endpoint.
#[derive(PartialEq, Eq, Hash)]
enum EndpointName<'c> {
    Pod(&'c str, Option<&'static str>, &'c str),
    Node(&'c str),
}

fn end_key<'c>(cluster: &'c Cluster<'c>, member: Member) -> Option<EndpointName<'c>> {
    match member {
        Member::Pod(PodId(id)) => {
            let pod = cluster.pods.get(id as usize)?;
            let namespace = cluster.namespace_name(pod.namespace);
            Some(EndpointName::Pod(namespace, pod.template, pod.name))
        }
        Member::Node(NodeId(id)) => Some(EndpointName::Node(cluster.nodes.get(id as usize)?.name)),
        Member::Network(_) | Member::Service(_) => None,
    }
}

/// Returns the endpoints: those of the new cluster in order, those that are gone, and the networks
/// outside, split where either cluster distinguishes addresses.
pub(super) fn compared_ends(old: &ClusterSide<'_>, new: &ClusterSide<'_>) -> Vec<ComparedEndpoint> {
    // By name, not by index: an object has another index as soon as any other one is added.
    let mut left: FxHashMap<EndpointName<'_>, u32> = FxHashMap::default();
    left.reserve(old.members.len());
    for (id, (member, _)) in old.members.iter().enumerate() {
        if let Some(known) = end_key(old.cluster, *member) {
            left.insert(known, count(id));
        }
    }
    let mut endpoints = Vec::with_capacity(new.members.len());
    for (id, (member, _)) in new.members.iter().enumerate() {
        if let Some(known) = end_key(new.cluster, *member) {
            endpoints.push(ComparedEndpoint {
                old: left.remove(&known),
                new: Some(count(id)),
                blocks: Vec::new(),
            });
        }
    }
    let mut gone: Vec<u32> = left.into_values().collect();
    gone.sort_unstable();
    endpoints.extend(gone.into_iter().map(|id| ComparedEndpoint {
        old: Some(id),
        new: None,
        blocks: Vec::new(),
    }));
    endpoints.extend(outside(old, new));
    endpoints
}

/// An interval of addresses and the network that it belongs to.
type Piece = (u128, u128, u32);

fn pieces(side: &ClusterSide<'_>, family: Family) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (id, (member, _)) in side.members.iter().enumerate() {
        let Member::Network(network) = member else {
            continue;
        };
        let outside = side.outside.get(network.0 as usize);
        let network = outside.map(|it| &it.network);
        let Some(network) = network.filter(|it| it.family == family) else {
            continue;
        };
        for block in &network.blocks {
            pieces.push((bits(block.first()), bits(block.last()), count(id)));
        }
    }
    pieces.sort_unstable();
    pieces
}

/// Returns the networks outside, one for each pair of overlapping networks of the two sides.
fn outside(old: &ClusterSide<'_>, new: &ClusterSide<'_>) -> Vec<ComparedEndpoint> {
    // An address that is outside on one side only belongs to a pod or a node of the other side,
    // which is an endpoint by its name.
    let mut endpoints: Vec<ComparedEndpoint> = Vec::new();
    for family in Family::BOTH {
        let mut ids: FxHashMap<(u32, u32), usize> = FxHashMap::default();
        let (mine, its) = (pieces(old, family), pieces(new, family));
        let (mut i, mut j) = (0, 0);
        while let (Some(a), Some(b)) = (mine.get(i), its.get(j)) {
            let (first, last) = (a.0.max(b.0), a.1.min(b.1));
            if first <= last {
                let id = *ids.entry((a.2, b.2)).or_insert(endpoints.len());
                if id == endpoints.len() {
                    endpoints.push(ComparedEndpoint {
                        old: Some(a.2),
                        new: Some(b.2),
                        blocks: Vec::new(),
                    });
                }
                if let Some(endpoint) = endpoints.get_mut(id) {
                    let (first, last) = (address(family, first), address(family, last));
                    endpoint.blocks.extend(address_space::blocks(first, last));
                }
            }
            // Both lists are sorted and disjoint: the piece that ends first overlaps no more.
            if a.1 <= b.1 {
                i += 1;
            } else {
                j += 1;
            }
        }
    }
    for endpoint in &mut endpoints {
        endpoint.blocks = merged(std::mem::take(&mut endpoint.blocks));
    }
    endpoints
}

/// Returns the same addresses in as few blocks as possible.
fn merged(blocks: Vec<Cidr>) -> Vec<Cidr> {
    // Pieces are cut where either side cuts, which can leave neighbours in one network.
    let mut runs: Vec<(u128, u128)> = Vec::new();
    let Some(family) = blocks.first().map(|it| Family::of(it.first())) else {
        return blocks;
    };
    for block in &blocks {
        let (first, last) = (bits(block.first()), bits(block.last()));
        match runs.last_mut() {
            Some((_, end)) if end.checked_add(1) == Some(first) => *end = last,
            Some(_) | None => runs.push((first, last)),
        }
    }
    let runs = runs.into_iter();
    runs.flat_map(|(first, last)| {
        address_space::blocks(address(family, first), address(family, last))
    })
    .collect()
}
