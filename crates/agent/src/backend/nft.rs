//! The kernel's nftables as a backend: rulesets, transactions and ct marks.

mod enforce;

use std::collections::BTreeSet;

use palisade_core::plan::Plan;
pub use palisade_nft::node::MarkBits;
use palisade_nft::node::{self, NodeOptions, Settings};
use palisade_nft::ruleset::{Interface, Ruleset};
use palisade_nft::transaction::Transaction;
use palisade_nft::update::{ExpectedTable, PIECE, TableUpdater};

use super::{Backend, NodeSettings, NotInPlace, RulesChange, Senders};
use crate::config::Established;
use crate::generations::Generation;

/// The nftables of the kernel, in the network namespace of the caller of
/// [`Connect`](super::Connect).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nft {
    /// The bits of the ct mark that belong to Palisade.
    pub mark: MarkBits,
    /// The number of elements and rules in one transaction, where changes need not be atomic.
    pub piece: usize,
}

impl Default for Nft {
    fn default() -> Nft {
        Nft {
            mark: MarkBits::DEFAULT,
            piece: PIECE,
        }
    }
}

impl Nft {
    /// Returns the settings of a table.
    fn settings(&self, settings: &NodeSettings, generation: node::Generation) -> Settings {
        let NodeSettings {
            senders,
            pod_blocks,
            evaluate_own_node,
            established,
        } = settings;
        let options = NodeOptions {
            mark: self.mark,
            senders: match senders {
                Senders::Checked { elsewhere, every } => node::Senders::Checked {
                    elsewhere: interfaces(elsewhere),
                    every: *every,
                },
                Senders::Trusted => node::Senders::Trusted,
            },
            pod_blocks: pod_blocks.clone(),
            evaluate_own_node: *evaluate_own_node,
            established: (*established).into(),
        };
        Settings::of_node(generation, &options)
    }
}

impl Backend for Nft {
    type Rules = Ruleset;
    type Step = Transaction;
    type Expected = ExpectedTable;
    type Installed = TableUpdater;

    fn last_generation(&self) -> u16 {
        self.mark.last_generation()
    }

    fn closed(&self, settings: &NodeSettings) -> Ruleset {
        // The table of a closed node has no set with a generation, so any one does.
        node::closed(&self.settings(settings, node::Generation::FIRST))
    }

    fn rules(
        &self,
        plan: &Plan,
        settings: &NodeSettings,
        generation: Generation,
    ) -> (TableUpdater, Ruleset) {
        let settings = self.settings(settings, number(generation));
        let (updater, ruleset) = TableUpdater::new(plan, &settings);
        (updater.in_pieces_of(self.piece), ruleset)
    }

    fn change(
        &self,
        updater: &mut TableUpdater,
        RulesChange {
            plan,
            elsewhere,
            generation,
        }: RulesChange<'_>,
    ) -> Result<Vec<Transaction>, NotInPlace> {
        if let Some(elsewhere) = elsewhere {
            updater.set_elsewhere(interfaces(elsewhere));
        }
        let transactions = updater.change(plan, generation.map(number));
        // Whatever does not fit, the answer is the same: a table with more room.
        transactions.map_err(|_| NotInPlace)
    }

    fn expected(&self, updater: &TableUpdater, plan: Plan) -> ExpectedTable {
        updater.expected(plan)
    }
}

impl From<Established> for node::Established {
    fn from(established: Established) -> node::Established {
        match established {
            Established::Evaluate => node::Established::Evaluate,
            Established::Keep => node::Established::Keep,
        }
    }
}

impl From<node::Generation> for Generation {
    fn from(generation: node::Generation) -> Generation {
        // Neither can be 0.
        Generation::new(generation.get()).unwrap_or(Generation::FIRST)
    }
}

fn number(generation: Generation) -> node::Generation {
    // Neither can be 0.
    node::Generation::new(generation.get()).unwrap_or(node::Generation::FIRST)
}

/// Returns the interfaces of names. A name that nftables cannot express is left out: packets must
/// then arrive on the interface of their return route.
fn interfaces(names: &BTreeSet<String>) -> BTreeSet<Interface> {
    names.iter().filter_map(|it| Interface::new(it)).collect()
}
