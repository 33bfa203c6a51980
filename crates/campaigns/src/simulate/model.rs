//! A model of the kernel: tables, connections, and commands executed transaction by transaction,
//! with room for faults between two of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;

use palisade_nft::load::{GENERATION_SET, TABLES};
use palisade_nft::node::{Generation, MarkBits};
use palisade_nft::ruleset::{Chain, Name, Ruleset, Set};
use palisade_nft::transaction::Transaction;

use super::evaluation::{Hooks, Packet, PacketOutcome};
use super::table::Table;

/// The kernel.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The tables, in the order of creation.
    pub tables: Vec<Table>,
    /// The tables before the last transaction.
    pub before: Vec<Table>,
    /// The marks of connections, by their first packets.
    pub connections: BTreeMap<Packet, u32>,
    n_created: u64,
}

/// An operation that the kernel executes completely or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelOp {
    /// Adds sets and chains to a table, which is created if it does not exist.
    Fill(&'static str, Vec<Set>, Vec<Chain>),
    /// Flushes the base chains of a table.
    FlushBaseChains(String),
    /// Deletes a table.
    Delete(String),
    /// Changes a table.
    Commit(String, Transaction),
    /// Clears the marks of generations.
    ClearGenerations(RangeInclusive<u16>),
    /// Clears the marks of connections of addresses.
    ClearAddresses(BTreeSet<IpAddr>),
}

/// The state of a process, like `palisade_nft::Kernel`.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// Whether it owns its tables.
    pub owns: bool,
    /// The table to update.
    pub table: Option<&'static str>,
}

impl Process {
    /// Adopts the tables of an earlier process. Returns the generation of the active table.
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

    /// Plans an installation beside the existing tables. It fills the table in several transactions
    /// if the socket buffer is small.
    pub fn install(&self, model: &Model, ruleset: &Ruleset, is_small: bool) -> Installation {
        let mut ops = Vec::new();
        let enforcing = model.tables.iter().rfind(|table| table.is_hooked());
        let delete = |table: &Table, ops: &mut Vec<KernelOp>| {
            if table.is_hooked() {
                ops.push(KernelOp::FlushBaseChains(table.name.clone()));
            }
            ops.push(KernelOp::Delete(table.name.clone()));
        };
        for table in &model.tables {
            if enforcing.is_none_or(|it| it.name != table.name) {
                delete(table, &mut ops);
            }
        }
        let [first, second] = TABLES;
        let table = match enforcing {
            Some(it) if it.name == first => second,
            _ => first,
        };
        let filling = ops.len();
        let (hooked, plain): (Vec<Chain>, Vec<Chain>) = {
            let chains = ruleset.chains.iter().cloned();
            chains.partition(|chain| chain.hook.is_some())
        };
        if is_small {
            ops.push(KernelOp::Fill(table, ruleset.sets.clone(), plain));
            ops.push(KernelOp::Fill(table, Vec::new(), hooked));
        } else {
            ops.push(KernelOp::Fill(
                table,
                ruleset.sets.clone(),
                ruleset.chains.clone(),
            ));
        }
        let filled = ops.len();
        if let Some(old) = enforcing {
            delete(old, &mut ops);
        }
        Installation {
            ops,
            filling,
            filled,
            table,
        }
    }
}

/// A planned installation.
#[derive(Clone, Debug)]
pub struct Installation {
    /// All operations.
    pub ops: Vec<KernelOp>,
    /// The index of the first operation on the new table.
    pub filling: usize,
    /// The index where the new table is complete.
    pub filled: usize,
    /// The new table.
    pub table: &'static str,
}

impl Model {
    /// Executes an operation of a process.
    pub fn execute(
        &mut self,
        process: Process,
        bits: MarkBits,
        op: &KernelOp,
    ) -> Result<(), String> {
        let mut tables = self.tables.clone();
        match op {
            KernelOp::Fill(name, sets, chains) => {
                if !tables.iter().any(|it| it.name == *name) {
                    self.n_created += 1;
                    let owner = process.owns.then_some(process.id);
                    tables.push(Table::new(name, self.n_created, owner));
                }
                find_table(&mut tables, name)?.fill(sets, chains)?;
            }
            KernelOp::FlushBaseChains(name) => find_table(&mut tables, name)?.flush_base_chains(),
            KernelOp::Delete(name) => {
                find_table(&mut tables, name)?;
                tables.retain(|it| it.name != *name);
            }
            KernelOp::Commit(name, transaction) => {
                find_table(&mut tables, name)?.commit(transaction)?
            }
            KernelOp::ClearGenerations(_) | KernelOp::ClearAddresses(_) => {
                self.clear(bits, op, &|_| true)
            }
        }
        self.before = std::mem::replace(&mut self.tables, tables);
        Ok(())
    }

    /// Clears the marks that an operation names, of the connections that `is_selected` accepts.
    pub fn clear(&mut self, bits: MarkBits, op: &KernelOp, is_selected: &dyn Fn(&Packet) -> bool) {
        for (packet, mark) in &mut self.connections {
            let is_named = match op {
                KernelOp::ClearGenerations(range) => range.contains(&bits.number_in(*mark)),
                KernelOp::ClearAddresses(addresses) => {
                    let ends = [packet.client, packet.server];
                    ends.iter().any(|end| addresses.contains(end))
                }
                KernelOp::Fill(..)
                | KernelOp::FlushBaseChains(_)
                | KernelOp::Delete(_)
                | KernelOp::Commit(..) => false,
            };
            if is_named && is_selected(packet) {
                *mark &= !bits.mask();
            }
        }
    }

    /// Whether the base chains of the last hooked table are empty.
    pub fn has_empty_hooks(&self) -> bool {
        let last = self.tables.iter().rfind(|table| table.is_hooked());
        last.is_some_and(|table| {
            let mut hooked = table.chains.values().filter(|it| it.hook.is_some());
            hooked.all(|chain| chain.rules.is_empty())
        })
    }

    /// The tables after and before the last transaction.
    pub fn hooks(&self) -> Hooks<'_> {
        Hooks {
            after: &self.tables,
            before: &self.before,
        }
    }

    /// Sends a packet of a connection, and opens the connection if it is new.
    pub fn send(&mut self, packet: Packet, reply: bool) -> PacketOutcome {
        let mark = self.connections.get(&packet).copied();
        let outcome = self.hooks().after(Packet {
            established: mark.is_some(),
            mark: mark.unwrap_or(0),
            reply: reply && mark.is_some(),
            ..packet
        });
        // A connection whose first packet is dropped is never confirmed.
        if outcome.passed || mark.is_some() {
            self.connections.insert(packet, outcome.mark);
        }
        outcome
    }
}

fn find_table<'t>(tables: &'t mut [Table], name: &str) -> Result<&'t mut Table, String> {
    let found = tables.iter_mut().find(|it| it.name == name);
    found.ok_or_else(|| format!("table `{name}` not found"))
}
