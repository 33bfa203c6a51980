//! One destination against all sources: both directions together, in every family.

use std::sync::Arc;

use super::allowed::AllowedSources;
use super::bits::{self, Words, and, and_not, is_empty, or};
use super::columns::MapColumns;
use super::egress::{Egress, FoldContext};
use super::ingress::Ingress;
use super::keys::Key;
use super::members::family_index;
use super::memo::Memo;
use super::peers::class;
use super::per_port::PerPort;
use super::{PortFilter, Reach};
use crate::answer::PortSet;
use crate::net::Family;

/// The allowed sources of a destination key, by columns of ports.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) cells: PerPort<Cell>,
}

/// The allowed sources in each family that the destination has or could have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) families: [Option<AllowedSources>; 2],
}

/// Evaluates rows, one destination after the other.
#[derive(Debug)]
pub(super) struct Rows<'f> {
    context: &'f FoldContext<'f>,
    ingress: Ingress<'f>,
    egress: Egress<'f>,
    /// The rows of backends, which several Services can share.
    kept: Memo<u32, Row>,
}

/// The bytes that each memo may take. A worker has seven memos.
const ROOM: usize = 64 << 20;

impl<'f> Rows<'f> {
    pub(super) fn new(context: &'f FoldContext<'f>) -> Rows<'f> {
        Rows {
            context,
            ingress: Ingress::new(
                context.program,
                context.sources,
                context.columns,
                context.possible,
                ROOM,
            ),
            egress: Egress::new(context, ROOM),
            kept: Memo::new(ROOM),
        }
    }

    pub(super) fn context(&self) -> &'f FoldContext<'f> {
        self.context
    }

    /// Returns the row of a destination from the memo; `id` must identify the key.
    pub(super) fn kept_row(&mut self, id: u32, key: &Key<'_>) -> Arc<Row> {
        // Destination keys come once, and their rows are dropped. A backend comes once for each
        // port of a Service that leads to it.
        if let Some(known) = self.kept.get(&id) {
            return known;
        }
        let row = self.row(key);
        let size = row.cells.groups.len() * self.context.sources.all.len() * 16;
        self.kept.keep(id, row, size)
    }

    /// Evaluates the row of a destination.
    pub(super) fn row(&mut self, key: &Key<'_>) -> Row {
        let [v4, v6] = Family::BOTH.map(|family| self.allowed(key, family));
        let in_family = |family: Family, allowed: AllowedSources| {
            let mut cell = Cell::default();
            if let Some(slot) = cell.families.get_mut(family_index(family)) {
                *slot = Some(allowed);
            }
            cell
        };
        let cells = match (v4, v6) {
            (Some(v4), Some(v6)) => v4.join(&v6, |v4, v6| Cell {
                families: [Some(v4.clone()), Some(v6.clone())],
            }),
            (Some(v4), None) => v4.into_map(|allowed| in_family(Family::V4, allowed)),
            (None, Some(v6)) => v6.into_map(|allowed| in_family(Family::V6, allowed)),
            (None, None) => PerPort::one(self.columns(key).len(), Cell::default()),
        };
        Row { cells }
    }

    /// Returns the allowed sources in a family; `None`: no source shares it with the destination.
    fn allowed(&mut self, key: &Key<'_>, family: Family) -> Option<PerPort<AllowedSources>> {
        let may_have = self.may_have(family);
        if !key.view.may_have(family) || is_empty(may_have) {
            return None;
        }
        let ingress = self.ingress.side(key, family);
        let egress = self.egress.side(key, family);
        // Rules match sources without the family as well; those have no flow to allow.
        let is_all = *may_have == *self.context.sources.all;
        Some(ingress.join(&egress, |ingress, egress| {
            let mut allowed = ingress.and(egress);
            if !is_all {
                and(&mut allowed.all, may_have);
                if let Some(any) = &mut allowed.any {
                    and(any, may_have);
                }
            }
            allowed
        }))
    }

    fn may_have(&self, family: Family) -> &'f [u64] {
        let [v4, v6] = &self.context.sources.may_have;
        match family {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }

    /// Returns the columns of a destination.
    pub(super) fn columns(&self, key: &Key<'_>) -> MapColumns<'f> {
        let class = class(self.context.program, key);
        self.context.columns.with(class.map(|class| class.port_map))
    }
}

/// The selected ports of a cell.
#[derive(Clone, Debug)]
pub(super) struct CellPorts {
    /// Ports of TCP, UDP and SCTP.
    pub(super) ports: PortSet,
    /// The selected protocols without ports.
    pub(super) portless: Portless,
}

/// A selection of protocols without ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Portless {
    pub(super) icmp: bool,
    pub(super) icmp6: bool,
    pub(super) other: bool,
}

impl CellPorts {
    pub(super) fn is_empty(&self) -> bool {
        self.ports.is_empty() && self.portless == Portless::default()
    }
}

/// Returns the selected ports of each cell of a row.
pub(super) fn cell_ports(
    row: &Row,
    columns: MapColumns<'_>,
    filter: Option<&PortSet>,
) -> Vec<CellPorts> {
    let mut of_cell: Vec<Vec<usize>> = vec![Vec::new(); row.cells.groups.len()];
    for (column, cell) in row.cells.of.iter().enumerate() {
        if let Some(list) = of_cell.get_mut(*cell as usize) {
            list.push(column);
        }
    }
    let cell_ports = |of_cell: Vec<usize>| {
        let ports = PortSet::union(of_cell.iter().map(|column| columns.ports(*column)));
        let selects = |has: fn(&PortSet) -> bool| filter.is_none_or(has);
        let mut portless = Portless::default();
        if of_cell.iter().any(|column| columns.is_portless(*column)) {
            portless = Portless {
                icmp: selects(PortSet::has_icmp),
                icmp6: selects(PortSet::has_icmp6),
                other: selects(PortSet::has_other),
            };
        }
        CellPorts {
            ports: match filter {
                Some(filter) => filter.and(&ports),
                None => ports,
            },
            portless,
        }
    };
    of_cell.into_iter().map(cell_ports).collect()
}

/// Returns all selected ports, between members that share these families.
pub(super) fn everything(ports: &[CellPorts], [v4, v6]: [bool; 2]) -> PortSet {
    let mut everything = PortSet::default();
    for cell in ports {
        everything.add(&cell.ports);
        // Each ICMP protocol is of one family; other protocols are of both.
        let portless = [
            (cell.portless.icmp && v4, PortSet::icmp()),
            (cell.portless.icmp6 && v6, PortSet::icmp6()),
            (cell.portless.other, PortSet::other()),
        ];
        for (_, set) in portless.iter().filter(|it| it.0) {
            everything.add(set);
        }
    }
    everything
}

/// Returns the ports that filters select at a destination; `None`: all.
pub(super) fn filter_at(
    filters: &[PortFilter],
    named: &[(crate::net::Protocol, std::num::NonZeroU16)],
) -> Option<PortSet> {
    if filters.is_empty() {
        return None;
    }
    let mut selected = PortSet::default();
    for filter in filters {
        match filter {
            PortFilter::Set(set) => selected.add(set),
            // `named` has the ports of these names here.
            PortFilter::Named(..) => {}
        }
    }
    for (protocol, port) in named {
        let mut one = PortSet::default();
        one.add_run(*protocol, port.get(), port.get());
        selected.add(&one);
    }
    Some(selected)
}

/// Sources with the same reach.
#[derive(Clone, Debug)]
pub(super) struct SourceGroup {
    pub(super) sources: Words,
    pub(super) reach: Reach,
}

/// The verdict of a cell for a source in one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceVerdict {
    /// Source and destination share no address of the family.
    Nothing,
    Deny,
    Allow,
    /// It depends on an unknown address.
    Depends,
}

impl Row {
    /// Groups the sources by reach; sources without any are left out.
    pub(super) fn parts(
        &self,
        context: &FoldContext<'_>,
        key: &Key<'_>,
        ports: &[CellPorts],
    ) -> Vec<SourceGroup> {
        let sources = context.sources;
        let unknown = &sources.unknown_words;
        // Parts are divided by every set that a reach depends on. Then all sources of a part have
        // the same reach, and the first one stands for them.
        let mut parts = vec![sources.all.clone()];
        let [v4, v6] = &sources.may_have;
        for by in [unknown, v4, v6] {
            divide(&mut parts, by);
        }
        for (cell, ports) in self.cells.groups.iter().zip(ports) {
            if ports.is_empty() {
                continue;
            }
            for allowed in cell.families.iter().flatten() {
                divide(&mut parts, &allowed.all);
                if let Some(any) = &allowed.any {
                    divide(&mut parts, any);
                }
            }
        }
        let with_reach = parts.into_iter().filter_map(|sources| {
            let first = bits::iter(&sources).next()?;
            let is_unknown = key.view.is_unknown || bits::has(unknown, first);
            let reach = self.reach(context, first, is_unknown, ports);
            (!reach.is_empty()).then_some(SourceGroup { sources, reach })
        });
        with_reach.collect()
    }

    /// Returns the reach of a source.
    fn reach(
        &self,
        context: &FoldContext<'_>,
        source: u32,
        is_unknown: bool,
        ports: &[CellPorts],
    ) -> Reach {
        let mut reach = Reach::default();
        for (cell, ports) in self.cells.groups.iter().zip(ports) {
            let verdicts = Family::BOTH.map(|family| {
                let index = family_index(family);
                let has = context.sources.may_have(family, source);
                match cell.families.get(index) {
                    Some(Some(allowed)) if has => verdict(allowed, source),
                    _ => SourceVerdict::Nothing,
                }
            });
            let [v4, v6] = verdicts;
            let mut add = |verdicts: [SourceVerdict; 2], set: &PortSet| {
                if let Some(into) = reach.place(verdicts, is_unknown) {
                    into.add(set);
                }
            };
            add(verdicts, &ports.ports);
            if ports.portless.icmp {
                add([v4, SourceVerdict::Nothing], &PortSet::icmp());
            }
            if ports.portless.icmp6 {
                add([SourceVerdict::Nothing, v6], &PortSet::icmp6());
            }
            if ports.portless.other {
                add(verdicts, &PortSet::other());
            }
        }
        reach
    }
}

fn verdict(allowed: &AllowedSources, source: u32) -> SourceVerdict {
    match (
        bits::has(&allowed.all, source),
        bits::has(allowed.any(), source),
    ) {
        (true, _) => SourceVerdict::Allow,
        (false, true) => SourceVerdict::Depends,
        (false, false) => SourceVerdict::Deny,
    }
}

impl Reach {
    /// Returns the set for ports with these verdicts in the two families; `None`: denied.
    fn place(&mut self, verdicts: [SourceVerdict; 2], is_unknown: bool) -> Option<&mut PortSet> {
        let joined = match verdicts {
            [SourceVerdict::Nothing, one] | [one, SourceVerdict::Nothing] => one,
            [one, other] if one == other => one,
            // The families differ. Both verdicts hold if the addresses are known, else one of them.
            [_, _] => SourceVerdict::Depends,
        };
        match joined {
            SourceVerdict::Nothing | SourceVerdict::Deny => None,
            SourceVerdict::Allow => Some(&mut self.allowed),
            SourceVerdict::Depends if is_unknown => Some(&mut self.unknown),
            SourceVerdict::Depends => Some(&mut self.mixed),
        }
    }
}

/// Divides each part into the sources in a set and those outside of it.
pub(super) fn divide(parts: &mut Vec<Words>, by: &[u64]) {
    // The range is fixed before the loop: parts that it adds are inside the set already.
    for index in 0..parts.len() {
        let Some(part) = parts.get_mut(index) else {
            continue;
        };
        let mut inside = part.clone();
        and(&mut inside, by);
        if is_empty(&inside) || inside == *part {
            continue;
        }
        and_not(part, by);
        parts.push(inside);
    }
}

/// Returns the sources that every set has and those that any set has; `None`: there is no set.
pub(super) fn every_and_any<'w>(
    n_words: usize,
    sets: impl Iterator<Item = (&'w Words, &'w Words)>,
) -> Option<(Words, Words)> {
    let mut found: Option<(Words, Words)> = None;
    for (all, any) in sets {
        match &mut found {
            None => found = Some((all.clone(), any.clone())),
            Some((every, some)) => {
                and(every, all);
                or(some, any);
            }
        }
    }
    found.filter(|(every, _)| every.len() == n_words)
}
