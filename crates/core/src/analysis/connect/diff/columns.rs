//! Ports that the rules of neither cluster distinguish.

use crate::analysis::connect::columns::MapColumns;
use crate::answer::PortSet;
use crate::decide::Traffic;
use crate::query::PortQuery;

/// Ports that share a column on each side.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) old: usize,
    pub(super) new: usize,
    pub(super) ports: PortSet,
    /// Whether protocols without ports are included.
    pub(super) is_portless: bool,
}

impl Column {
    /// Returns the traffic of one of its flows. No rule distinguishes the others from it.
    pub(super) fn traffic(&self) -> Traffic {
        match self.ports.edges().first() {
            Some(PortQuery::Number(protocol, port)) => Traffic::Port(*protocol, *port),
            _ => Traffic::Portless,
        }
    }
}

/// Intersects the columns of a destination on both sides.
pub(super) fn columns(old: MapColumns<'_>, new: MapColumns<'_>) -> Vec<Column> {
    let mut columns = Vec::new();
    let sets = |side: MapColumns<'_>| -> Vec<(PortSet, bool)> {
        let all = 0..side.len();
        all.map(|it| (side.ports(it).into_owned(), side.is_portless(it)))
            .collect()
    };
    // Columns are few, and workers keep the result for each pair of port maps: all pairs are tried.
    let (mine, its) = (sets(old), sets(new));
    for (old, (old_ports, old_portless)) in mine.iter().enumerate() {
        for (new, (new_ports, new_portless)) in its.iter().enumerate() {
            let column = Column {
                old,
                new,
                ports: old_ports.and(new_ports),
                is_portless: *old_portless && *new_portless,
            };
            if column.is_portless || !column.ports.is_empty() {
                columns.push(column);
            }
        }
    }
    columns
}
