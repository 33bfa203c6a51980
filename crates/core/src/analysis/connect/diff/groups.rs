//! Groups of endpoints, in the form that takes the least memory.

use rustc_hash::FxHashMap;

use super::locals::Locals;
use super::{Block, EndpointId};
use crate::analysis::connect::bits::KeySet;
use crate::compile::count;

/// The members of a group.
#[derive(Clone, Debug)]
pub(super) enum Group {
    /// The endpoints of source keys of a run, without the neighbours with the number `without`.
    Keys {
        run: usize,
        keys: KeySet,
        without: u32,
    },
    /// Single endpoints, ascending.
    Endpoints(Vec<u32>),
}

/// Calls `with` for the endpoints of some source keys of a run, except those in `left_out`.
pub(super) fn each_endpoint(
    run: &[Vec<u32>],
    keys: impl Iterator<Item = u32>,
    left_out: &[u32],
    mut with: impl FnMut(u32),
) {
    for endpoint in keys.flat_map(|key| run.get(key as usize).into_iter().flatten()) {
        // Neighbours are few and kept ascending.
        if left_out.binary_search(endpoint).is_err() {
            with(*endpoint);
        }
    }
}

/// The groups of a difference.
#[derive(Debug)]
pub struct Groups {
    pub(super) list: Vec<Group>,
    /// For each run and source key the endpoints.
    pub(super) runs: Vec<Vec<Vec<u32>>>,
    pub(super) locals: Locals,
}

/// The number of endpoints of a group that are enough as a sample.
const SOME: usize = 64;

impl Groups {
    /// Returns the number of groups.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the endpoints of a group, ascending.
    pub fn get(&self, id: u32) -> Vec<EndpointId> {
        let mut endpoints: Vec<EndpointId> = Vec::new();
        self.each(id, |it| endpoints.push(EndpointId(it)));
        endpoints.sort_unstable();
        endpoints
    }

    /// Returns the first endpoint of a group.
    pub fn first(&self, id: u32) -> Option<EndpointId> {
        // The endpoints of a key are ascending, those of several keys are not.
        let mut first = None;
        self.each(id, |it| {
            if first.is_none_or(|first| it < first) {
                first = Some(it);
            }
        });
        first.map(EndpointId)
    }

    /// Returns the first [`SOME`] endpoints of a group.
    pub(super) fn some(&self, id: u32) -> Vec<EndpointId> {
        let mut endpoints = self.get(id);
        endpoints.truncate(SOME);
        endpoints
    }

    fn each(&self, id: u32, with: impl FnMut(u32)) {
        match self.list.get(id as usize) {
            Some(Group::Endpoints(list)) => list.iter().copied().for_each(with),
            Some(Group::Keys { run, keys, without }) => {
                let run = self.runs.get(*run).map_or(&[][..], Vec::as_slice);
                let left_out = &self.locals.get(*without).all;
                each_endpoint(run, keys.iter(run.len()), left_out, with);
            }
            None => {}
        }
    }

    /// Keeps the groups that blocks use, numbered in the order of the blocks.
    pub(super) fn numbered(mut self, blocks: &mut [Block]) -> Groups {
        let mut ids: FxHashMap<u32, u32> = FxHashMap::default();
        let mut list = Vec::new();
        let mut number = |id: &mut u32| {
            let next = count(list.len());
            let new = *ids.entry(*id).or_insert(next);
            if new == next {
                list.extend(self.list.get(*id as usize).cloned());
            }
            *id = new;
        };
        for block in blocks {
            number(&mut block.from);
            number(&mut block.to);
        }
        self.list = list;
        self
    }
}
