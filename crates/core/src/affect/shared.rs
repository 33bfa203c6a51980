//! What the ordered tiers make of every peer, worked out once for all subjects that they see alike.

use rustc_hash::FxHashMap;

use super::group::Group;
use super::mask::{Mask, distinct};
use super::peers::{At, Kind, Peers};
use crate::decide::FlowView;
use crate::model::NodeId;
use crate::net::Family;
use crate::policy::Direction;
use crate::program::{AddressAtom, Class, NONE, Program};

/// The peers by the rules of the ordered tiers.
#[derive(Debug)]
pub(super) struct Shared {
    /// In the order of their first peers.
    pub(super) blocks: Vec<Block>,
    /// The block of each peer.
    pub(super) of_peer: Vec<usize>,
    /// The possible atoms of each family by the rules whose blocks they are in.
    possible: [Vec<(Mask, Vec<u32>)>; 2],
}

/// Peers that the ordered tiers do not tell apart.
#[derive(Debug)]
pub(super) struct Block {
    /// The rules whose peers they are among; if they have no address, without those that depend
    /// on it.
    mask: Mask,
    pub(super) family: Option<Family>,
    /// Their port map, where they are the destination.
    pub(super) map: Option<u32>,
    pub(super) only_receives: bool,
    /// Their places, ascending.
    pub(super) peers: Vec<usize>,
}

/// What the NetworkPolicies on a group of subjects make of peers.
#[derive(Debug)]
pub(super) struct Union {
    n_rules: usize,
    /// The rules for anyone.
    anyone: Mask,
    /// The rules that single out a peer.
    pub(super) of_peers: FxHashMap<usize, Mask>,
    /// All that the addresses of a family can do, for an end whose address is not known.
    possible: [Vec<Mask>; 2],
}

impl Shared {
    pub(super) fn new(peers: &Peers<'_>, program: &Program, group: &Group<'_>) -> Shared {
        let stack = &group.stack;
        let mask = |class: Option<&Class>, node: Option<NodeId>| {
            let view = view(group, class, node);
            stack.shared_mask(|rule| program.peer_matches(rule, &view))
        };
        let pods: Vec<Mask> = peers.pods.iter().map(|it| mask(Some(it), None)).collect();
        let nodes: Vec<Mask> = peers.nodes.iter().map(|it| mask(None, Some(*it))).collect();
        let others = mask(None, None);
        let mut atoms = vec![stack.shared_mask(|_| false); program.addresses.len()];
        for (at, rule) in stack.rules.iter().take(stack.shared_end).enumerate() {
            for (start, end) in rule.blocks.of(&program.lists.blocks) {
                let run = atoms.get_mut(*start as usize..*end as usize);
                run.into_iter().flatten().for_each(|mask| mask.insert(at));
            }
        }
        let mut shared = Shared {
            blocks: Vec::new(),
            of_peer: Vec::with_capacity(peers.list.len()),
            possible: peers.possible.each_ref().map(|of_family| {
                let mut by_mask: Vec<(Mask, Vec<u32>)> = Vec::new();
                let mut places: FxHashMap<&Mask, usize> = FxHashMap::default();
                for atom in of_family {
                    let Some(mask) = atoms.get(atom.0 as usize) else {
                        continue;
                    };
                    let place = *places.entry(mask).or_insert(by_mask.len());
                    match by_mask.get_mut(place) {
                        Some((_, list)) => list.push(atom.0),
                        None => by_mask.push((mask.clone(), vec![atom.0])),
                    }
                }
                by_mask
            }),
        };
        let mut places = FxHashMap::default();
        for (place, peer) in peers.list.iter().enumerate() {
            let of_kind = match peer.kind {
                Kind::Pod(kind) => pods.get(kind).unwrap_or(&others),
                Kind::Node(kind) => nodes.get(kind).unwrap_or(&others),
                Kind::Other => &others,
            };
            let (mask, family) = match peer.at {
                At::Unknown => (of_kind.clone(), None),
                At::Atom(family, atom) => {
                    let of_atom = atoms.get(atom.0 as usize);
                    let mask = of_atom.map_or(of_kind.clone(), |it| it.or(of_kind));
                    (mask, Some(family))
                }
            };
            let map = match (stack.direction, peer.kind) {
                (Direction::Egress, Kind::Pod(kind)) => peers.pods.get(kind).map(|it| it.port_map),
                (Direction::Egress, Kind::Node(_) | Kind::Other) | (Direction::Ingress, _) => None,
            };
            let key = (mask.clone(), family, map, peer.only_receives);
            let block = *places.entry(key).or_insert(shared.blocks.len());
            shared.of_peer.push(block);
            match shared.blocks.get_mut(block) {
                Some(known) => known.peers.push(place),
                None => shared.blocks.push(Block {
                    mask,
                    family,
                    map,
                    only_receives: peer.only_receives,
                    peers: vec![place],
                }),
            }
        }
        shared
    }

    /// What the NetworkPolicies of a group add.
    pub(super) fn union(&self, peers: &Peers<'_>, program: &Program, group: &Group<'_>) -> Union {
        let stack = &group.stack;
        let none = stack.mask(|_| false);
        let mut anyone = none.clone();
        let mut of_peers: FxHashMap<usize, Mask> = FxHashMap::default();
        let mut of_atoms: FxHashMap<u32, Mask> = FxHashMap::default();
        for (at, rule) in stack.of_union() {
            if rule.any_peer {
                anyone.insert(at);
                continue;
            }
            let sets = rule.sets.of(&program.lists.sets).iter();
            let singled_out = sets.flat_map(|set| peers.in_set(*set)).copied();
            let nodes = peers.list.iter().enumerate().filter(|(_, peer)| {
                let has_nodes = !rule.nodes.of(&program.lists.nodes).is_empty();
                has_nodes && matches!(peer.kind, Kind::Node(_))
            });
            for place in singled_out.chain(nodes.map(|(place, _)| place)) {
                let kind = peers.list.get(place).map(|peer| peer.kind);
                let (class, node) = match kind {
                    Some(Kind::Pod(kind)) => (peers.pods.get(kind).copied(), None),
                    Some(Kind::Node(kind)) => (None, peers.nodes.get(kind).copied()),
                    Some(Kind::Other) | None => (None, None),
                };
                if program.peer_matches(rule, &view(group, class, node)) {
                    of_peers.entry(place).or_insert(none.clone()).insert(at);
                }
            }
            for (start, end) in rule.blocks.of(&program.lists.blocks) {
                for atom in *start..*end {
                    of_atoms.entry(atom).or_insert(none.clone()).insert(at);
                }
            }
        }
        for (atom, mask) in &of_atoms {
            for place in peers.at(*atom) {
                let known = of_peers.entry(*place).or_insert(none.clone());
                *known = known.or(mask);
            }
        }
        let n_rules = stack.rules.len();
        let possible = self.possible.each_ref().map(|of_family| {
            let masks = of_family.iter().flat_map(|(mask, atoms)| {
                let wide = mask.widened(n_rules);
                let touched = atoms.iter().filter_map(|atom| of_atoms.get(atom));
                let mut masks: Vec<Mask> = touched.map(|it| it.or(&wide)).collect();
                if atoms.iter().any(|atom| !of_atoms.contains_key(atom)) {
                    masks.push(wide);
                }
                masks
            });
            distinct(masks)
        });
        Union {
            n_rules,
            anyone,
            of_peers,
            possible,
        }
    }
}

impl Union {
    /// The rules whose peers an end is among, for each address that it could have; none if it has
    /// no family in common with the subject.
    pub(super) fn masks(&self, block: &Block, place: usize, group: &Group<'_>) -> Vec<Mask> {
        let mut mask = block.mask.widened(self.n_rules).or(&self.anyone);
        if let Some(own) = self.of_peers.get(&place) {
            mask = mask.or(own);
        }
        match block.family {
            Some(family) if group.families.has(family) => vec![mask],
            Some(_) => Vec::new(),
            None => {
                let [v4, v6] = &self.possible;
                let v4 = v4.iter().filter(|_| group.families.v4);
                let v6 = v6.iter().filter(|_| group.families.v6);
                distinct(v4.chain(v6).map(|it| it.or(&mask)))
            }
        }
    }
}

/// A flow of which only the peer is known, and not its address.
fn view<'p>(group: &Group<'p>, class: Option<&'p Class>, node: Option<NodeId>) -> FlowView<'p> {
    FlowView {
        direction: group.stack.direction,
        subject: group.class,
        class,
        node,
        address: AddressAtom(NONE),
        port: NONE,
        named: None,
    }
}
