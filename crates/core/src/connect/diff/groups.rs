//! Groups of ends, in the form that takes the least room.

use rustc_hash::FxHashMap;

use super::locals::Locals;
use super::{Block, EndId};
use crate::compile::count;
use crate::connect::bits::KeySet;

/// Some ends.
#[derive(Clone, Debug)]
pub(super) enum Group {
    /// Source keys of a run, without the neighbours of somebody.
    Keys {
        run: usize,
        keys: KeySet,
        without: u32,
    },
    /// Ascending.
    Ends(Vec<u32>),
}

/// Calls `with` for the ends of some source keys of a run that are not left out.
pub(super) fn each_end(
    run: &[Vec<u32>],
    keys: impl Iterator<Item = u32>,
    left_out: &[u32],
    mut with: impl FnMut(u32),
) {
    for end in keys.flat_map(|key| run.get(key as usize).into_iter().flatten()) {
        if left_out.binary_search(end).is_err() {
            with(*end);
        }
    }
}

/// The groups of a difference.
#[derive(Debug)]
pub struct Groups {
    pub(super) list: Vec<Group>,
    /// For each run, for each source key its ends.
    pub(super) runs: Vec<Vec<Vec<u32>>>,
    pub(super) locals: Locals,
}

/// So many ends of a group are looked at where some are enough.
const SOME: usize = 64;

impl Groups {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The ends of a group, ascending.
    pub fn get(&self, id: u32) -> Vec<EndId> {
        let mut ends: Vec<EndId> = Vec::new();
        self.each(id, |end| ends.push(EndId(end)));
        ends.sort_unstable();
        ends
    }

    /// The first end of a group.
    pub fn first(&self, id: u32) -> Option<EndId> {
        let mut first = None;
        self.each(id, |end| {
            if first.is_none_or(|first| end < first) {
                first = Some(end);
            }
        });
        first.map(EndId)
    }

    /// The first ends of a group, not too many.
    pub(super) fn some(&self, id: u32) -> Vec<EndId> {
        let mut ends = self.get(id);
        ends.truncate(SOME);
        ends
    }

    fn each(&self, id: u32, with: impl FnMut(u32)) {
        match self.list.get(id as usize) {
            Some(Group::Ends(ends)) => ends.iter().copied().for_each(with),
            Some(Group::Keys { run, keys, without }) => {
                let run = self.runs.get(*run).map_or(&[][..], Vec::as_slice);
                let left_out = &self.locals.get(*without).all;
                each_end(run, keys.iter(run.len()), left_out, with);
            }
            None => {}
        }
    }

    /// The groups that blocks use, numbered as they come.
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
