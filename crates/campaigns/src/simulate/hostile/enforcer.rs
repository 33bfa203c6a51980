//! What carries out the agent's commands and lets packets pass or drops them: the model of the kernel here, the real
//! kernel in [`super::kernel`].

use palisade_agent::Command;
use palisade_nft::node::MarkBits;

use super::super::model::{Atom, Model, Process};
use super::super::walk::{Hooks, Packet};

/// A kernel, real or not.
pub(super) trait Enforcer {
    /// Carries out a command of the agent.
    fn carry_out(&mut self, command: Command) -> Result<(), String>;

    /// Whether each packet passes as the first one of its connection, in the order of the packets.
    fn passes(&mut self, packets: &[Packet]) -> Result<Vec<bool>, String>;

    /// Whether packets between these two ends can be sent at all.
    fn can_send(&self, packet: &Packet) -> bool;
}

/// The model of the kernel, which no packet is lost in.
pub(super) struct ModelKernel {
    model: Model,
    process: Process,
}

impl ModelKernel {
    pub(super) fn new() -> ModelKernel {
        ModelKernel {
            model: Model::default(),
            process: Process {
                id: 1,
                owns: true,
                table: None,
            },
        }
    }
}

impl Enforcer for ModelKernel {
    fn carry_out(&mut self, command: Command) -> Result<(), String> {
        let atoms: Vec<Atom> = match command {
            Command::Install(ruleset) => {
                let plan = self.process.install(&self.model, &ruleset, false);
                self.process.table = Some(plan.table);
                plan.atoms
            }
            Command::Commit(transactions) => {
                let table = self.process.table.unwrap_or_default();
                let commits = transactions.into_iter();
                commits
                    .map(|it| Atom::Commit(table.to_owned(), it))
                    .collect()
            }
        };
        for atom in &atoms {
            self.model
                .carry_out(self.process, MarkBits::DEFAULT, atom)?;
        }
        Ok(())
    }

    fn passes(&mut self, packets: &[Packet]) -> Result<Vec<bool>, String> {
        let hooks = Hooks::quiet(&self.model.tables);
        Ok(packets
            .iter()
            .map(|packet| hooks.after(*packet).passed)
            .collect())
    }

    fn can_send(&self, _packet: &Packet) -> bool {
        true
    }
}
