//! One destination against all sources: both sides together, in every family.

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

/// What a destination key lets through, by columns of ports.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) cells: PerPort<Cell>,
}

/// Which sources are allowed, in each family that the destination has or could have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) families: [Option<AllowedSources>; 2],
}

/// Works out rows, one after the other.
#[derive(Debug)]
pub(super) struct Rows<'f> {
    context: &'f FoldContext<'f>,
    ingress: Ingress<'f>,
    egress: Egress<'f>,
    /// The rows of backends of Services, which several of them ask for.
    kept: Memo<u32, Row>,
}

/// So many bytes may each memory of parts take; there are seven of them.
const ROOM: usize = 64 << 20;

impl<'f> Rows<'f> {
    pub(super) fn new(ground: &'f FoldContext<'f>) -> Rows<'f> {
        Rows {
            context: ground,
            ingress: Ingress::new(
                ground.program,
                ground.sources,
                ground.columns,
                ground.possible,
                ROOM,
            ),
            egress: Egress::new(ground, ROOM),
            kept: Memo::new(ROOM),
        }
    }

    pub(super) fn ground(&self) -> &'f FoldContext<'f> {
        self.context
    }

    /// The row of a destination that is asked for by a number, which stands for nobody else.
    pub(super) fn kept_row(&mut self, id: u32, key: &Key<'_>) -> Arc<Row> {
        if let Some(known) = self.kept.get(&id) {
            return known;
        }
        let row = self.row(key);
        let size = row.cells.groups.len() * self.context.sources.all.len() * 16;
        self.kept.keep(id, row, size)
    }

    /// The row of a destination.
    pub(super) fn row(&mut self, key: &Key<'_>) -> Row {
        let [v4, v6] = Family::BOTH.map(|family| self.planes(key, family));
        let in_family = |family: Family, plane: AllowedSources| {
            let mut cell = Cell::default();
            if let Some(slot) = cell.families.get_mut(family_index(family)) {
                *slot = Some(plane);
            }
            cell
        };
        let cells = match (v4, v6) {
            (Some(v4), Some(v6)) => v4.join(&v6, |v4, v6| Cell {
                families: [Some(v4.clone()), Some(v6.clone())],
            }),
            (Some(v4), None) => v4.into_map(|plane| in_family(Family::V4, plane)),
            (None, Some(v6)) => v6.into_map(|plane| in_family(Family::V6, plane)),
            (None, None) => PerPort::one(self.columns(key).len(), Cell::default()),
        };
        Row { cells }
    }

    /// What passes in a family; `None`: nobody shares it with the destination.
    fn planes(&mut self, key: &Key<'_>, family: Family) -> Option<PerPort<AllowedSources>> {
        let may_have = self.may_have(family);
        if !key.view.may_have(family) || is_empty(may_have) {
            return None;
        }
        let ingress = self.ingress.side(key, family);
        let egress = self.egress.side(key, family);
        let is_everyone = *may_have == *self.context.sources.all;
        Some(ingress.join(&egress, |ingress, egress| {
            let mut plane = ingress.and(egress);
            if !is_everyone {
                and(&mut plane.all, may_have);
                if let Some(any) = &mut plane.any {
                    and(any, may_have);
                }
            }
            plane
        }))
    }

    fn may_have(&self, family: Family) -> &'f [u64] {
        let [v4, v6] = &self.context.sources.may_have;
        match family {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }

    /// The columns of a destination.
    pub(super) fn columns(&self, key: &Key<'_>) -> MapColumns<'f> {
        let class = class(self.context.program, key);
        self.context.columns.with(class.map(|class| class.port_map))
    }
}

/// The ports of each cell of a row, as far as they are asked about.
#[derive(Clone, Debug)]
pub(super) struct CellPorts {
    /// Ports of TCP, UDP and SCTP.
    pub(super) ports: PortSet,
    /// Whether what has no ports is meant, each sort by itself.
    pub(super) portless: Portless,
}

/// Which protocols without ports are meant.
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

/// The ports of each cell.
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
        let meant = |has: fn(&PortSet) -> bool| filter.is_none_or(has);
        let mut portless = Portless::default();
        if of_cell.iter().any(|column| columns.is_portless(*column)) {
            portless = Portless {
                icmp: meant(PortSet::has_icmp),
                icmp6: meant(PortSet::has_icmp6),
                other: meant(PortSet::has_other),
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

/// Everything that is asked about, between ends that share these families.
pub(super) fn everything(ports: &[CellPorts], [v4, v6]: [bool; 2]) -> PortSet {
    let mut everything = PortSet::default();
    for cell in ports {
        everything.add(&cell.ports);
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

/// The ports that filters mean at a destination; `None`: all.
pub(super) fn filter_at(
    filters: &[PortFilter],
    named: &[(crate::net::Protocol, std::num::NonZeroU16)],
) -> Option<PortSet> {
    if filters.is_empty() {
        return None;
    }
    let mut meant = PortSet::default();
    for filter in filters {
        match filter {
            PortFilter::Set(set) => meant.add(set),
            PortFilter::Named(..) => {}
        }
    }
    for (protocol, port) in named {
        let mut one = PortSet::default();
        one.add_run(*protocol, port.get(), port.get());
        meant.add(&one);
    }
    Some(meant)
}

/// Sources that get the same from a destination, and what.
#[derive(Clone, Debug)]
pub(super) struct SourceGroup {
    pub(super) sources: Words,
    pub(super) reach: Reach,
}

/// What one cell says of a source: denied, allowed, or dependent, in each family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceVerdict {
    /// The two ends share no address of the family.
    Nothing,
    Deny,
    Allow,
    /// It depends on the address.
    Depends,
}

impl Row {
    /// The sources by what they get, those that get nothing left out.
    pub(super) fn parts(
        &self,
        ground: &FoldContext<'_>,
        key: &Key<'_>,
        ports: &[CellPorts],
    ) -> Vec<SourceGroup> {
        let sources = ground.sources;
        let unknown = &sources.unknown_words;
        let mut parts = vec![sources.all.clone()];
        let [v4, v6] = &sources.may_have;
        for by in [unknown, v4, v6] {
            divide(&mut parts, by);
        }
        for (cell, ports) in self.cells.groups.iter().zip(ports) {
            if ports.is_empty() {
                continue;
            }
            for plane in cell.families.iter().flatten() {
                divide(&mut parts, &plane.all);
                if let Some(any) = &plane.any {
                    divide(&mut parts, any);
                }
            }
        }
        let with_reach = parts.into_iter().filter_map(|sources| {
            let first = bits::iter(&sources).next()?;
            let is_unknown = key.view.is_unknown || bits::has(unknown, first);
            let reach = self.reach(ground, first, is_unknown, ports);
            (!reach.is_nothing()).then_some(SourceGroup { sources, reach })
        });
        with_reach.collect()
    }

    /// What a source gets.
    fn reach(
        &self,
        ground: &FoldContext<'_>,
        source: u32,
        is_unknown: bool,
        ports: &[CellPorts],
    ) -> Reach {
        let mut reach = Reach::default();
        for (cell, ports) in self.cells.groups.iter().zip(ports) {
            let said = Family::BOTH.map(|family| {
                let index = family_index(family);
                let has = ground.sources.may_have(family, source);
                match cell.families.get(index) {
                    Some(Some(plane)) if has => said(plane, source),
                    _ => SourceVerdict::Nothing,
                }
            });
            let [v4, v6] = said;
            let mut add = |said: [SourceVerdict; 2], set: &PortSet| {
                if let Some(into) = reach.place(said, is_unknown) {
                    into.add(set);
                }
            };
            add(said, &ports.ports);
            if ports.portless.icmp {
                add([v4, SourceVerdict::Nothing], &PortSet::icmp());
            }
            if ports.portless.icmp6 {
                add([SourceVerdict::Nothing, v6], &PortSet::icmp6());
            }
            if ports.portless.other {
                add(said, &PortSet::other());
            }
        }
        reach
    }
}

fn said(plane: &AllowedSources, source: u32) -> SourceVerdict {
    match (
        bits::has(&plane.all, source),
        bits::has(plane.any(), source),
    ) {
        (true, _) => SourceVerdict::Allow,
        (false, true) => SourceVerdict::Depends,
        (false, false) => SourceVerdict::Deny,
    }
}

impl Reach {
    /// Where ports go of which this was said in the two families; `None`: nowhere.
    fn place(&mut self, said: [SourceVerdict; 2], is_unknown: bool) -> Option<&mut PortSet> {
        let joined = match said {
            [SourceVerdict::Nothing, one] | [one, SourceVerdict::Nothing] => one,
            [one, other] if one == other => one,
            // Families differ: of two known ends both answers are true, otherwise one of them is.
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

/// Divides each part into what is in a set and what is not.
pub(super) fn divide(parts: &mut Vec<Words>, by: &[u64]) {
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

/// What is in every and in any of some sets.
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
