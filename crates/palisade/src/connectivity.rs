//! Who reaches whom, as plain values, and everything that prints them.

pub(crate) mod dot;
pub(crate) mod ends;
pub(crate) mod engine;
pub(crate) mod filter;
pub(crate) mod html;
pub(crate) mod kinds;
pub(crate) mod lines;
pub(crate) mod names;
pub(crate) mod ports;
pub(crate) mod rows;
pub(crate) mod svg;
pub(crate) mod table;

use palisade_core::connect::{Blocks, Connectivity, GroupId};

use self::ends::{NamedEnd, NamedEnds};
use self::kinds::EndClasses;
use self::ports::Reaches;

/// Blocks of groups: what is allowed is the union of all blocks.
#[derive(Debug)]
pub(crate) struct Answer<'c> {
    /// Everyone.
    pub(crate) ends: NamedEnds,
    /// What was asked for, as parts that do not overlap, with their blocks.
    parts: Vec<(Connectivity<'c>, Blocks)>,
    /// The groups, by part.
    groups: Vec<(usize, GroupId)>,
    /// From a group to a group.
    pub(crate) blocks: Vec<Block>,
    /// What blocks say of ports.
    pub(crate) reaches: Reaches,
}

impl Answer<'_> {
    /// How many groups there are.
    pub(crate) fn n_groups(&self) -> usize {
        self.groups.len()
    }

    /// The ends of a group, ascending. They are worked out anew each time: all groups together may
    /// be larger than memory.
    pub(crate) fn group(&self, group: usize) -> Vec<u32> {
        let Some((part, id)) = self.groups.get(group) else {
            return Vec::new();
        };
        let Some((connectivity, blocks)) = self.parts.get(*part) else {
            return Vec::new();
        };
        let members = connectivity.group(blocks, *id);
        members.into_iter().map(|member| member.0).collect()
    }

    /// The names of everyone in a group.
    pub(crate) fn names(&self, group: usize) -> Vec<&str> {
        let members = self.group(group);
        let ends: Vec<&NamedEnd> = members.iter().filter_map(|id| self.ends.get(*id)).collect();
        let names = ends.into_iter().flat_map(|end| &end.names);
        names.map(String::as_str).collect()
    }
}

/// What every end of one group may send every end of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The group of the sources.
    pub(crate) from: usize,
    /// The group of the destinations.
    pub(crate) to: usize,
    /// What is allowed, in [`Answer::reaches`].
    pub(crate) reach: usize,
}

/// The same answer without overlaps: kinds of ends, and what each may send each.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Everyone.
    pub(crate) ends: NamedEnds,
    /// The kinds and their cells.
    pub(crate) kinds: EndClasses,
    /// What cells say of ports.
    pub(crate) reaches: Reaches,
    /// Whether it leaves out that nodes reach the pods that run on them.
    pub(crate) without_node_local: bool,
}

/// What is said where that is left out.
pub(crate) const NODE_LOCAL: &str =
    "a node also reaches the pods that run on it, on every port, which is left out here";
