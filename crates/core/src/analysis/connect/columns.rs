//! Ports as columns: ports that no rule distinguishes share a column, and each port with names at
//! the destination has a column of its own.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use super::runs;
use crate::answer::PortSet;
use crate::compile::count;
use crate::net::Protocol;
use crate::program::{PortMap, PortMapEntry, Program, RuleId};

/// The columns that a rule covers, ascending.
#[derive(Clone, Debug)]
pub(crate) enum Covered<'c> {
    All,
    Some(Cow<'c, [u32]>),
}

/// The columns that all destinations share: ports by number.
#[derive(Debug)]
pub(crate) struct Columns<'p> {
    program: &'p Program,
    /// The column of each port atom.
    of_atom: Vec<u32>,
    /// The ports of each column, names aside, and their number.
    ports: Vec<PortSet>,
    sizes: Vec<usize>,
    /// The column of protocols without ports.
    portless: u32,
    /// The port list of each rule; `None`: every port.
    of_rule: Vec<Option<u32>>,
    lists: Vec<Vec<u32>>,
}

/// The columns of destinations with one port map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapColumns<'c> {
    columns: &'c Columns<'c>,
    map: Option<&'c PortMap>,
}

impl<'p> Columns<'p> {
    pub(crate) fn new(program: &'p Program) -> Columns<'p> {
        let n_atoms = program.ports.portless() as usize + 1;
        // A rule without ports covers every column and distinguishes none.
        let rules = program.rules.iter().filter(|rule| !rule.any_port);
        let runs = rules.map(|rule| rule.ports.of(&program.lists.ports));
        let of_atom = runs::numbers(runs, n_atoms);
        let n_columns = of_atom.iter().max().map_or(0, |last| *last as usize + 1);
        let mut ports = vec![PortSet::default(); n_columns];
        let mut atom = 0;
        for protocol in Protocol::ALL {
            let starts = program.ports.starts(protocol);
            let ends = starts.iter().skip(1).map(|next| next - 1);
            for (first, last) in starts.iter().zip(ends.chain([u16::MAX])) {
                let column = of_atom.get(atom).copied().unwrap_or(0);
                atom += 1;
                // No flow has the port 0.
                let first = (*first).max(1);
                if let Some(ports) = ports.get_mut(column as usize)
                    && first <= last
                {
                    ports.add_run(protocol, first, last);
                }
            }
        }
        let mut columns = Columns {
            program,
            portless: of_atom.get(n_atoms - 1).copied().unwrap_or(0),
            of_atom,
            sizes: ports.iter().map(PortSet::n_ports).collect(),
            ports,
            of_rule: Vec::with_capacity(program.rules.len()),
            lists: Vec::new(),
        };
        columns.add_rules();
        columns
    }

    fn add_rules(&mut self) {
        // Rules have few distinct lists of ports: each is kept once, and folds borrow it.
        let mut ids: FxHashMap<Vec<u32>, u32> = FxHashMap::default();
        for rule in &self.program.rules {
            if rule.any_port {
                self.of_rule.push(None);
                continue;
            }
            let mut list: Vec<u32> = Vec::new();
            for (start, end) in rule.ports.of(&self.program.lists.ports) {
                let atoms = self.of_atom.get(*start as usize..*end as usize);
                list.extend(atoms.unwrap_or_default());
            }
            list.sort_unstable();
            list.dedup();
            let id = match ids.get(&list) {
                Some(known) => *known,
                None => {
                    let id = count(self.lists.len());
                    self.lists.push(list.clone());
                    ids.insert(list, id);
                    id
                }
            };
            self.of_rule.push(Some(id));
        }
    }

    /// Returns the columns of destinations with a port map; `None`: they have no port names.
    pub(crate) fn with(&'p self, map: Option<u32>) -> MapColumns<'p> {
        let map = map.and_then(|map| self.program.port_maps.get(map as usize));
        MapColumns { columns: self, map }
    }
}

impl<'c> MapColumns<'c> {
    pub(crate) fn len(&self) -> usize {
        self.columns.ports.len() + self.map.map_or(0, |map| map.entries.len())
    }

    /// Returns the columns that a rule covers.
    pub(crate) fn covered(&self, id: RuleId) -> Covered<'c> {
        let columns = self.columns;
        let Some(Some(list)) = columns.of_rule.get(id.0 as usize) else {
            return Covered::All;
        };
        let list = columns.lists.get(*list as usize);
        let list = list.map_or(&[][..], Vec::as_slice);
        let Some(map) = self.map.filter(|map| !map.entries.is_empty()) else {
            return some(list.into(), self.len());
        };
        let rule = columns.program.rules.get(id.0 as usize);
        let names = rule.map_or(&[][..], |it| it.names.of(&columns.program.lists.names));
        // A rule can cover a port with names by its number or by a name. Other ports of the same
        // atom have no name, which is why these ports have columns of their own.
        let mut covered = list.to_vec();
        for (index, entry) in map.entries.iter().enumerate() {
            let column = self.column(entry.protocol, entry.port.get());
            let by_number = list.binary_search(&column).is_ok();
            let by_name = names.iter().any(|named| {
                entry.names.contains(&named.name)
                    && named.protocol.is_none_or(|it| it == entry.protocol)
            });
            if by_number || by_name {
                covered.push(count(columns.ports.len() + index));
            }
        }
        some(covered.into(), self.len())
    }

    /// Returns the column of a port number, names aside.
    fn column(&self, protocol: Protocol, port: u16) -> u32 {
        let atom = self.columns.program.ports.of(protocol, port);
        let column = self.columns.of_atom.get(atom as usize);
        column.copied().unwrap_or(0)
    }

    /// Returns the column of a port at these destinations.
    pub(crate) fn of_port(&self, protocol: Protocol, port: std::num::NonZeroU16) -> usize {
        let mut entries = self.entries().iter();
        match entries.position(|it| it.protocol == protocol && it.port == port) {
            Some(index) => self.columns.ports.len() + index,
            None => self.column(protocol, port.get()) as usize,
        }
    }

    /// Returns the ports of a column, without those that have a column of their own.
    pub(crate) fn ports(&self, column: usize) -> Cow<'c, PortSet> {
        let n_plain = self.columns.ports.len();
        let entries = self.entries();
        let named = column.checked_sub(n_plain);
        if let Some(entry) = named.and_then(|index| entries.get(index)) {
            let mut ports = PortSet::default();
            ports.add_run(entry.protocol, entry.port.get(), entry.port.get());
            return Cow::Owned(ports);
        }
        let Some(ports) = self.columns.ports.get(column) else {
            return Cow::Owned(PortSet::default());
        };
        let mut ports = Cow::Borrowed(ports);
        for entry in entries {
            if self.column(entry.protocol, entry.port.get()) as usize == column {
                ports.to_mut().remove(entry.protocol, entry.port);
            }
        }
        ports
    }

    /// Returns whether a column has the protocols without ports.
    pub(crate) fn is_portless(&self, column: usize) -> bool {
        column == self.columns.portless as usize
    }

    /// Returns whether no port is left in a column, because each has a column of its own.
    pub(crate) fn is_empty(&self, column: usize) -> bool {
        let Some(size) = self.columns.sizes.get(column) else {
            return false;
        };
        let entries = self.entries().iter();
        let named = entries.filter(|it| self.column(it.protocol, it.port.get()) as usize == column);
        // ICMP and other protocols stay in the portless column, whatever ports leave it.
        !self.is_portless(column) && *size == named.count()
    }

    fn entries(&self) -> &'c [PortMapEntry] {
        self.map.map_or(&[][..], |map| &map.entries)
    }
}

fn some(list: Cow<'_, [u32]>, n_columns: usize) -> Covered<'_> {
    if list.len() == n_columns {
        // `All` changes values in place; a list would look up every column.
        Covered::All
    } else {
        Covered::Some(list)
    }
}
