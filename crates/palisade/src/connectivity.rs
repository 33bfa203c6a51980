//! Connectivity as plain values, and its output formats.

pub(crate) mod dot;
pub(crate) mod ends;
pub(crate) mod engine;
pub(crate) mod filter;
pub(crate) mod html;
pub(crate) mod kinds;
pub(crate) mod lines;
pub(crate) mod names;
pub(crate) mod nothing;
pub(crate) mod ports;
pub(crate) mod rows;
pub(crate) mod svg;
pub(crate) mod table;

use palisade_core::analysis::connect::{Blocks, Connectivity, EndGroupId};

use self::ends::{NamedEnd, NamedEnds};
use self::kinds::EndClasses;
use self::ports::Reaches;

/// Blocks of groups: what is allowed is the union of all blocks.
#[derive(Debug)]
pub(crate) struct Answer<'c> {
    /// All endpoints.
    pub(crate) ends: NamedEnds,
    /// The query in parts that do not overlap, with their blocks.
    parts: Vec<(Connectivity<'c>, Blocks)>,
    /// The groups, by part.
    groups: Vec<(usize, EndGroupId)>,
    /// From a group to a group.
    pub(crate) blocks: Vec<Block>,
    /// The sets of ports of the blocks, each once.
    pub(crate) reaches: Reaches,
}

impl Answer<'_> {
    /// Returns the number of groups.
    pub(crate) fn n_groups(&self) -> usize {
        self.groups.len()
    }

    /// Returns the endpoints of a group, ascending. Each call computes them: all groups together
    /// may be larger than memory.
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

    /// Returns the names of the endpoints of a group.
    pub(crate) fn names(&self, group: usize) -> Vec<&str> {
        let members = self.group(group);
        let named: Vec<&NamedEnd> = members.iter().filter_map(|id| self.ends.get(*id)).collect();
        let names = named.into_iter().flat_map(|endpoint| &endpoint.names);
        names.map(String::as_str).collect()
    }
}

/// The ports on which every endpoint of one group may send to every endpoint of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The group of the sources.
    pub(crate) from: usize,
    /// The group of the destinations.
    pub(crate) to: usize,
    /// What is allowed, in [`Answer::reaches`].
    pub(crate) reach: usize,
}

/// The same answer without overlaps: classes of endpoints, and the ports between each two.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// All endpoints.
    pub(crate) ends: NamedEnds,
    /// The classes and their cells.
    pub(crate) kinds: EndClasses,
    /// The sets of ports of the cells, each once.
    pub(crate) reaches: Reaches,
    /// Whether it omits the flows from a node to the pods that run on it.
    pub(crate) without_node_local: bool,
}

/// The note for tables with that omission.
pub(crate) const NODE_LOCAL: &str =
    "a node also reaches the pods that run on it, on every port; these flows are not shown";
