//! The rules that match each peer, computed once for all groups with the same rules of the ordered
//! tiers.

use rustc_hash::FxHashMap;

use super::group::Group;
use super::mask::{Mask, distinct};
use super::peers::{Kind, PeerAddress, Peers};
use crate::decide::FlowView;
use crate::model::NodeId;
use crate::net::Family;
use crate::policy::Direction;
use crate::program::{AddressAtom, Class, NONE, Program};

/// The peers by the rules of the ordered tiers that match them.
#[derive(Debug)]
pub(super) struct Shared {
    /// The blocks, in the order of their first peers.
    pub(super) blocks: Vec<Block>,
    /// The block of each peer.
    pub(super) of_peer: Vec<usize>,
    /// The possible atoms of each family, by the rules with blocks that contain them.
    possible: [Vec<(Mask, Vec<u32>)>; 2],
}

/// Peers that the ordered tiers do not distinguish.
#[derive(Debug)]
pub(super) struct Block {
    /// The rules that match the peers. For unknown addresses, without rules that match by address.
    mask: Mask,
    pub(super) family: Option<Family>,
    /// Their port map, if they are destinations.
    pub(super) map: Option<u32>,
    pub(super) only_receives: bool,
    /// Their indices in the list of peers, ascending.
    pub(super) peers: Vec<usize>,
}

/// The peers by the rules of the NetworkPolicies that select a group.
#[derive(Debug)]
pub(super) struct Union {
    n_rules: usize,
    /// The rules that match every peer.
    every_peer: Mask,
    /// The rules that match a peer by its pod set, node or address.
    pub(super) of_peers: FxHashMap<usize, Mask>,
    /// The distinct sets of rules that the possible addresses of a family match, for peers with an
    /// unknown address.
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
        // Blocks are runs of atoms: marking each run is cheaper than testing each rule at each
        // atom.
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
                PeerAddress::Unknown => (of_kind.clone(), None),
                PeerAddress::Atom(family, atom) => {
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

    /// Computes the same for the NetworkPolicies of a group.
    pub(super) fn union(&self, peers: &Peers<'_>, program: &Program, group: &Group<'_>) -> Union {
        let stack = &group.stack;
        let none = stack.mask(|_| false);
        // Per rule, only the peers that it selects: a rule of a NetworkPolicy mostly selects few,
        // and a mask for each peer and group would be peers times groups.
        let mut every_peer = none.clone();
        let mut of_peers: FxHashMap<usize, Mask> = FxHashMap::default();
        let mut of_atoms: FxHashMap<u32, Mask> = FxHashMap::default();
        for (at, rule) in stack.of_union() {
            if rule.any_peer {
                every_peer.insert(at);
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
            // By atom first: the peers at an atom and unknown addresses both need all of its rules.
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
            // Combined with the ordered tiers, since one address applies to all tiers. Atoms
            // without a block of the union share one mask; the others have one each, made distinct
            // below.
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
            every_peer,
            of_peers,
            possible,
        }
    }
}

impl Union {
    /// Returns the rules that match a peer, one mask for each address that it could have; none if
    /// it shares no family with the subject.
    pub(super) fn masks(&self, block: &Block, place: usize, group: &Group<'_>) -> Vec<Mask> {
        let mut mask = block.mask.widened(self.n_rules).or(&self.every_peer);
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

/// Makes a view of a flow with this peer, without its address and port. `NONE` is in no block and
/// no port list.
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
