//! The kernel as a model: tables, connections, and how commands are carried out, one transaction after
//! the other, so that anything may happen between two of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;

use palisade_nft::load::{GENERATION_SET, TABLES};
use palisade_nft::node::{Generation, MarkBits};
use palisade_nft::ruleset::{Chain, Name, Ruleset, Set};
use palisade_nft::transaction::Transaction;

use super::table::Table;
use super::walk::{Fate, Hooks, Packet};

/// The kernel.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The tables, in the order they were made.
    pub tables: Vec<Table>,
    /// The tables as they were before the last transaction.
    pub before: Vec<Table>,
    /// The marks of connections, by their first packets.
    pub connections: BTreeMap<Packet, u32>,
    made: u64,
}

/// Something that the kernel does at once, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Atom {
    /// Adds sets and chains of a new table, which is made if it is not there.
    Fill(&'static str, Vec<Set>, Vec<Chain>),
    /// Empties the hooked chains of a table.
    Empty(String),
    /// Deletes a table.
    Delete(String),
    /// Changes a table.
    Commit(String, Transaction),
    /// Forgets the marks of generations.
    Forget(RangeInclusive<u16>),
    /// Forgets the marks of connections of addresses.
    ForgetAddresses(BTreeSet<IpAddr>),
}

/// The side of a process: what `Kernel` of the real one keeps.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// Whether its tables belong to it.
    pub owns: bool,
    /// The table that changes go into.
    pub table: Option<&'static str>,
}

impl Process {
    /// Takes over what an earlier process has left. Says the generation of the table that enforces.
    pub fn adopt(&mut self, model: &mut Model) -> Option<Generation> {
        if self.owns {
            for table in &mut model.tables {
                table.owner = Some(self.id);
            }
        }
        let enforcing = model.tables.iter().rfind(|table| table.is_hooked())?;
        self.table = TABLES.into_iter().find(|name| *name == enforcing.name);
        let set = enforcing.sets.get(&Name::word(GENERATION_SET))?;
        let (key, _) = set.data.first_key_value()?;
        let number = u32::from_ne_bytes(*key.first_chunk()?);
        Generation::new(u16::try_from(number).ok()?)
    }

    /// What an installation is made of, as the tables are, and the table's name. The table is filled in
    /// several transactions if the buffer is small.
    pub fn install(&self, model: &Model, ruleset: &Ruleset, is_small: bool) -> Installation {
        let mut atoms = Vec::new();
        let enforcing = model.tables.iter().rfind(|table| table.is_hooked());
        let retire = |table: &Table, atoms: &mut Vec<Atom>| {
            if table.is_hooked() {
                atoms.push(Atom::Empty(table.name.clone()));
            }
            atoms.push(Atom::Delete(table.name.clone()));
        };
        for table in &model.tables {
            if enforcing.is_none_or(|it| it.name != table.name) {
                retire(table, &mut atoms);
            }
        }
        let [first, second] = TABLES;
        let table = match enforcing {
            Some(it) if it.name == first => second,
            _ => first,
        };
        let filling = atoms.len();
        let (hooked, plain): (Vec<Chain>, Vec<Chain>) = {
            let chains = ruleset.chains.iter().cloned();
            chains.partition(|chain| chain.hook.is_some())
        };
        if is_small {
            atoms.push(Atom::Fill(table, ruleset.sets.clone(), plain));
            atoms.push(Atom::Fill(table, Vec::new(), hooked));
        } else {
            atoms.push(Atom::Fill(
                table,
                ruleset.sets.clone(),
                ruleset.chains.clone(),
            ));
        }
        let filled = atoms.len();
        if let Some(old) = enforcing {
            retire(old, &mut atoms);
        }
        Installation {
            atoms,
            filling,
            filled,
            table,
        }
    }
}

/// The parts of an installation.
#[derive(Clone, Debug)]
pub struct Installation {
    /// All of it.
    pub atoms: Vec<Atom>,
    /// Where the new table begins to be filled.
    pub filling: usize,
    /// Where it is complete.
    pub filled: usize,
    /// The new table.
    pub table: &'static str,
}

impl Model {
    /// Does something, for a process.
    pub fn carry_out(
        &mut self,
        process: Process,
        bits: MarkBits,
        atom: &Atom,
    ) -> Result<(), String> {
        let mut tables = self.tables.clone();
        match atom {
            Atom::Fill(name, sets, chains) => {
                if !tables.iter().any(|it| it.name == *name) {
                    self.made += 1;
                    let owner = process.owns.then_some(process.id);
                    tables.push(Table::new(name, self.made, owner));
                }
                find(&mut tables, name)?.fill(sets, chains)?;
            }
            Atom::Empty(name) => find(&mut tables, name)?.empty_hooked(),
            Atom::Delete(name) => {
                find(&mut tables, name)?;
                tables.retain(|it| it.name != *name);
            }
            Atom::Commit(name, transaction) => find(&mut tables, name)?.commit(transaction)?,
            Atom::Forget(_) | Atom::ForgetAddresses(_) => self.clear(bits, atom, &|_| true),
        }
        self.before = std::mem::replace(&mut self.tables, tables);
        Ok(())
    }

    /// Clears the marks that are meant, of those connections that are asked.
    pub fn clear(&mut self, bits: MarkBits, atom: &Atom, is_asked: &dyn Fn(&Packet) -> bool) {
        for (packet, mark) in &mut self.connections {
            let is_meant = match atom {
                Atom::Forget(range) => range.contains(&bits.number_in(*mark)),
                Atom::ForgetAddresses(addresses) => {
                    let ends = [packet.client, packet.server];
                    ends.iter().any(|end| addresses.contains(end))
                }
                Atom::Fill(..) | Atom::Empty(_) | Atom::Delete(_) | Atom::Commit(..) => false,
            };
            if is_meant && is_asked(packet) {
                *mark &= !bits.mask();
            }
        }
    }

    /// Whether the last table that could enforce has nothing to enforce.
    pub fn has_empty_hooks(&self) -> bool {
        let last = self.tables.iter().rfind(|table| table.is_hooked());
        last.is_some_and(|table| {
            let mut hooked = table.chains.values().filter(|it| it.hook.is_some());
            hooked.all(|chain| chain.rules.is_empty())
        })
    }

    /// The tables of now, and of before the last transaction.
    pub fn hooks(&self) -> Hooks<'_> {
        Hooks {
            after: &self.tables,
            before: &self.before,
        }
    }

    /// Sends a packet of a connection, which is opened if it is not there. Says what became of it.
    pub fn send(&mut self, packet: Packet, reply: bool) -> Fate {
        let mark = self.connections.get(&packet).copied();
        let fate = self.hooks().after(Packet {
            established: mark.is_some(),
            mark: mark.unwrap_or(0),
            reply: reply && mark.is_some(),
            ..packet
        });
        // A connection whose first packet is dropped never comes to be.
        if fate.passed || mark.is_some() {
            self.connections.insert(packet, fate.mark);
        }
        fate
    }
}

fn find<'t>(tables: &'t mut [Table], name: &str) -> Result<&'t mut Table, String> {
    let found = tables.iter_mut().find(|it| it.name == name);
    found.ok_or_else(|| format!("there is no table `{name}`"))
}
