//! The documents of `connectivity`, and the data of its page.

use std::collections::BTreeMap;

use palisade_core::analysis::connect::Summary;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use super::API_VERSION;
use crate::connectivity::ends::{EndKind, NamedEnd};
use crate::connectivity::ports::Ports;
use crate::connectivity::{Answer, Block, NODE_LOCAL, Table};

/// Blocks of groups.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConnectivityView<'a> {
    api_version: &'static str,
    kind: &'static str,
    groups: GroupsView<'a>,
    blocks: BlocksView<'a>,
}

impl<'a> ConnectivityView<'a> {
    pub(crate) fn new(answer: &'a Answer<'a>) -> ConnectivityView<'a> {
        ConnectivityView {
            api_version: API_VERSION,
            kind: "Connectivity",
            groups: GroupsView(answer),
            blocks: BlocksView(answer),
        }
    }
}

/// Writes groups one by one: all of them together may exceed memory.
#[derive(Debug)]
struct GroupsView<'a>(&'a Answer<'a>);

impl Serialize for GroupsView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.n_groups()))?;
        for group in 0..self.0.n_groups() {
            map.serialize_entry(&group_name(group + 1), &self.0.names(group))?;
        }
        map.end()
    }
}

fn group_name(number: usize) -> String {
    format!("g{number}")
}

#[derive(Debug)]
struct BlocksView<'a>(&'a Answer<'a>);

impl Serialize for BlocksView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.blocks.len()))?;
        for block in &self.0.blocks {
            list.serialize_element(&BlockView::new(self.0, block))?;
        }
        list.end()
    }
}

/// The ports on which every endpoint of a group may send to every endpoint of another.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BlockView<'a> {
    from: String,
    to: String,
    #[serde(flatten)]
    ports: PortsView<'a>,
}

impl<'a> BlockView<'a> {
    fn new(answer: &'a Answer<'_>, block: &Block) -> BlockView<'a> {
        BlockView {
            from: group_name(block.from + 1),
            to: group_name(block.to + 1),
            ports: PortsView::new(answer.reaches.get(block.reach)),
        }
    }
}

/// A single block, with its groups spelt out.
#[derive(Debug, Serialize)]
pub(crate) struct BlockLineView<'a> {
    from: Vec<&'a str>,
    to: Vec<&'a str>,
    #[serde(flatten)]
    ports: PortsView<'a>,
}

impl<'a> BlockLineView<'a> {
    pub(crate) fn new(answer: &'a Answer<'_>, block: &Block) -> BlockLineView<'a> {
        BlockLineView {
            from: answer.names(block.from),
            to: answer.names(block.to),
            ports: PortsView::new(answer.reaches.get(block.reach)),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PortsView<'a> {
    ports: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    mixed_ports: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    unknown_ports: &'a [String],
}

impl<'a> PortsView<'a> {
    fn new(ports: &'a Ports) -> PortsView<'a> {
        PortsView {
            ports: &ports.allowed,
            mixed_ports: &ports.mixed,
            unknown_ports: &ports.unknown,
        }
    }
}

/// The ports from one endpoint to another.
#[derive(Debug, Serialize)]
pub(crate) struct PairView<'a> {
    source: &'a str,
    destination: &'a str,
    #[serde(flatten)]
    ports: PortsView<'a>,
}

impl<'a> PairView<'a> {
    pub(crate) fn new(source: &'a str, destination: &'a str, ports: &'a Ports) -> PairView<'a> {
        PairView {
            source,
            destination,
            ports: PortsView::new(ports),
        }
    }
}

/// Returns the start of the document around pairs, which are written one by one.
pub(crate) fn pairs_head() -> String {
    format!(
        "{{\n  \"apiVersion\": \"{API_VERSION}\",\n  \"kind\": \"ConnectivityPairs\",\n  \"pairs\": ["
    )
}

/// Totals.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SummaryView {
    api_version: &'static str,
    kind: &'static str,
    endpoints: u64,
    allowed_pairs: u64,
    denied_pairs: u64,
    mixed_pairs: u64,
    #[serde(skip_serializing_if = "is_zero")]
    unknown_pairs: u64,
    #[serde(skip_serializing_if = "is_zero")]
    no_family_pairs: u64,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "this is how serde calls it"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl SummaryView {
    pub(crate) fn new(totals: &Summary) -> SummaryView {
        SummaryView {
            api_version: API_VERSION,
            kind: "ConnectivitySummary",
            endpoints: totals.endpoints,
            allowed_pairs: totals.allowed,
            denied_pairs: totals.denied,
            mixed_pairs: totals.mixed,
            unknown_pairs: totals.unknown,
            no_family_pairs: totals.no_family,
        }
    }
}

/// The ports of a cell: allowed, mixed, unknown, and whether every port is allowed.
type CellView<'a> = (&'a [String], &'a [String], &'a [String], u8);

/// The data of the page; `page/data.js` reads it.
#[derive(Debug, Serialize)]
pub(crate) struct PageView<'a> {
    facts: &'a str,
    /// The note on omitted flows.
    note: &'static str,
    /// The labels of all endpoints.
    members: Vec<&'a str>,
    /// A letter for the type of each endpoint.
    sorts: String,
    /// The address that `explain` accepts for an endpoint that has no name.
    addresses: BTreeMap<usize, &'a str>,
    spaces: &'a [String],
    /// Label, space, and members as first and length of each run.
    kinds: Vec<(&'a str, usize, Vec<usize>)>,
    /// The row of each class.
    row: &'a [usize],
    /// Rows, as value and length of each run; a negative value is not evaluated.
    rows: Vec<Vec<i32>>,
    /// The sets of ports, each once.
    cells: Vec<CellView<'a>>,
}

impl<'a> PageView<'a> {
    pub(crate) fn new(table: &'a Table, facts: &'a str) -> PageView<'a> {
        let Table {
            ends,
            kinds,
            reaches,
            without_node_local,
        } = table;
        let cells = reaches.all().iter().map(|it| {
            let open = u8::from(it.open);
            (&*it.allowed, &*it.mixed, &*it.unknown, open)
        });
        let kind_list = kinds.list.iter();
        PageView {
            facts,
            note: if *without_node_local { NODE_LOCAL } else { "" },
            members: ends.list.iter().map(|it| it.label.as_str()).collect(),
            sorts: ends.list.iter().map(|it| it.kind.letter()).collect(),
            addresses: ends
                .list
                .iter()
                .enumerate()
                .filter_map(network_address)
                .collect(),
            spaces: &ends.spaces,
            kinds: kind_list
                .map(|it| (it.label.as_str(), it.space, ranges(&it.members)))
                .collect(),
            row: &kinds.row_of,
            rows: kinds.rows.iter().map(|row| runs(row)).collect(),
            cells: cells.collect(),
        }
    }
}

/// Returns an address of a network.
fn network_address((place, end): (usize, &NamedEnd)) -> Option<(usize, &str)> {
    let block = end.names.first().filter(|_| end.kind == EndKind::Network)?;
    Some((place, block.split('/').next()?))
}

/// Encodes numbers as first and length of each run.
fn ranges(members: &[u32]) -> Vec<usize> {
    let mut ranges: Vec<usize> = Vec::new();
    for member in members {
        let member = *member as usize;
        match ranges.as_mut_slice() {
            [.., first, length] if *first + *length == member => *length += 1,
            _ => ranges.extend([member, 1]),
        }
    }
    ranges
}

/// Encodes cells as value and length of each run.
fn runs(row: &[i32]) -> Vec<i32> {
    let mut runs: Vec<i32> = Vec::new();
    for cell in row {
        match runs.as_mut_slice() {
            [.., last, length] if *last == *cell => *length += 1,
            _ => runs.extend([*cell, 1]),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_short() {
        assert_eq!(ranges(&[3, 4, 5, 9]), [3, 3, 9, 1]);
        assert_eq!(runs(&[1, 1, -1, 0]), [1, 2, -1, 1, 0, 1]);
    }
}
