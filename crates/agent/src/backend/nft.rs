//! The kernel's nftables as a backend: rulesets, transactions and ct marks.

mod enforce;

use std::collections::BTreeSet;

use palisade_core::plan::{Generation, Plan};
pub use palisade_nft::node::MarkBits;
use palisade_nft::node::{self, EstablishedFlows, NodeOptions, SenderChecks, Settings};
use palisade_nft::ruleset::{Interface, Ruleset};
use palisade_nft::transaction::Transaction;
use palisade_nft::update::{ExpectedTable, PIECE, TableUpdater};

use super::{Backend, NodeSettings, NotInPlace, RulesChange, Senders};
use crate::config::Established;

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
    fn settings(&self, settings: &NodeSettings, generation: Generation) -> Settings {
        let NodeSettings {
            senders,
            pod_blocks,
            evaluate_own_node,
            established,
        } = settings;
        let options = NodeOptions {
            mark: self.mark,
            senders: match senders {
                Senders::Checked { elsewhere, every } => SenderChecks::Checked {
                    elsewhere: interfaces(elsewhere),
                    every: *every,
                },
                Senders::Trusted => SenderChecks::Trusted,
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
        node::closed(&self.settings(settings, Generation::FIRST))
    }

    fn rules(
        &self,
        plan: &Plan,
        settings: &NodeSettings,
        generation: Generation,
    ) -> (TableUpdater, Ruleset) {
        let settings = self.settings(settings, generation);
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
        let transactions = updater.change(plan, generation);
        // Whatever does not fit, the answer is the same: a table with more room.
        transactions.map_err(|_| NotInPlace)
    }

    fn expected(&self, updater: &TableUpdater, plan: Plan) -> ExpectedTable {
        updater.expected(plan)
    }
}

impl From<Established> for EstablishedFlows {
    fn from(established: Established) -> EstablishedFlows {
        match established {
            Established::Evaluate => EstablishedFlows::Evaluate,
            Established::Keep => EstablishedFlows::Keep,
        }
    }
}

/// Returns the interfaces of names. A name that nftables cannot express is left out: packets must
/// then arrive on the interface of their return route.
fn interfaces(names: &BTreeSet<String>) -> BTreeSet<Interface> {
    names.iter().filter_map(|it| Interface::new(it)).collect()
}
