//! Sources on a destination's own node: ingress policy does not apply to their flows (D74).

use rustc_hash::FxHashMap;

use super::ends::{ClusterSide, ComparedEndpoint};
use crate::compile::count;
use crate::net::Family;

/// The sources that are on a destination's own node.
#[derive(Clone, Debug, Default)]
pub(super) struct Neighbours {
    /// Sources that are on the node on either side, ascending.
    pub(super) all: Vec<u32>,
    /// Those whose flows can differ, with the sides on which they are on the node.
    pub(super) special: Vec<(u32, [bool; 2])>,
}

/// The neighbours of each destination; destinations on the same nodes share them.
#[derive(Clone, Debug)]
pub(super) struct Locals {
    list: Vec<Neighbours>,
    of_end: Vec<u32>,
}

impl Locals {
    pub(super) fn new(sides: [&ClusterSide<'_>; 2], endpoints: &[ComparedEndpoint]) -> Locals {
        let member = |it: &ComparedEndpoint, side: usize| if side == 0 { it.old } else { it.new };
        let view = |it: &ComparedEndpoint, side: usize| sides.get(side)?.view_of(member(it, side)?);
        let on_nodes = [0, 1].map(|side| {
            let mut on_node: FxHashMap<&str, Vec<u32>> = FxHashMap::default();
            for (id, endpoint) in endpoints.iter().enumerate() {
                if let Some(node) = view(endpoint, side).and_then(|it| it.local_to) {
                    on_node.entry(node).or_default().push(count(id));
                }
            }
            on_node
        });
        let mut locals = Locals {
            list: vec![Neighbours::default()],
            of_end: Vec::with_capacity(endpoints.len()),
        };
        // An endpoint with other address families can gain or lose flows that no policy decides.
        let families = |it: &ComparedEndpoint, side: usize| {
            let view = view(it, side);
            Family::BOTH.map(|family| view.is_some_and(|it| it.may_have(family)))
        };
        let is_moved = |it: &ComparedEndpoint| families(it, 0) != families(it, 1);
        let moved: Vec<bool> = endpoints.iter().map(is_moved).collect();
        // A moved destination shares no neighbours with others of its nodes: all of them are
        // special to it.
        let mut ids: FxHashMap<([Option<&str>; 2], bool), u32> = FxHashMap::default();
        for (endpoint, is_moved) in endpoints.iter().zip(&moved) {
            let nodes = [0, 1].map(|side| view(endpoint, side).and_then(|it| it.node));
            let id = *ids.entry((nodes, *is_moved)).or_insert_with(|| {
                let of = |side: usize| -> &[u32] {
                    let node = nodes.get(side).copied().flatten();
                    let on_node = on_nodes.get(side).zip(node);
                    let found = on_node.and_then(|(on_node, node)| on_node.get(node));
                    found.map_or(&[], Vec::as_slice)
                };
                let is_moved =
                    |id: u32| *is_moved || moved.get(id as usize).copied().unwrap_or(false);
                let found = neighbours(of(0), of(1), &is_moved);
                if found.all.is_empty() {
                    return 0;
                }
                locals.list.push(found);
                count(locals.list.len() - 1)
            });
            locals.of_end.push(id);
        }
        locals
    }

    /// Returns the number of a destination's neighbours; 0: it has none.
    pub(super) fn id(&self, endpoint: u32) -> u32 {
        self.of_end.get(endpoint as usize).copied().unwrap_or(0)
    }

    pub(super) fn get(&self, id: u32) -> &Neighbours {
        static NONE: Neighbours = Neighbours {
            all: Vec::new(),
            special: Vec::new(),
        };
        self.list.get(id as usize).unwrap_or(&NONE)
    }

    /// Returns every endpoint that is a neighbour of a destination, ascending.
    pub(super) fn all(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.list.iter().flat_map(|it| &it.all).copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

fn neighbours(old: &[u32], new: &[u32], is_moved: &dyn Fn(u32) -> bool) -> Neighbours {
    let mut all: Vec<u32> = old.iter().chain(new).copied().collect();
    all.sort_unstable();
    all.dedup();
    let special = all.iter().filter_map(|id| {
        let on = [old.binary_search(id).is_ok(), new.binary_search(id).is_ok()];
        // Exempt on both sides, in the same families: nothing can differ.
        (on != [true; 2] || is_moved(*id)).then_some((*id, on))
    });
    Neighbours {
        special: special.collect(),
        all,
    }
}
