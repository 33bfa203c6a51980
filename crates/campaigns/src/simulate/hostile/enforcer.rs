//! The kernels that execute the agent's commands: the model here, the real kernel in
//! [`super::kernel`].

use palisade_agent::Command;
use palisade_nft::node::MarkBits;

use super::super::evaluation::{Hooks, Packet};
use super::super::model::{KernelOp, Model, Process};

/// A kernel, real or not.
pub(super) trait Enforcer {
    /// Executes a command of the agent.
    fn execute(&mut self, command: Command) -> Result<(), String>;

    /// Whether each packet passes as the first one of its connection, in the order of the packets.
    fn passes(&mut self, packets: &[Packet]) -> Result<Vec<bool>, String>;

    /// Whether a packet can be sent between these two addresses.
    fn can_send(&self, packet: &Packet) -> bool;
}

/// The model of the kernel, which loses no packets.
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
    fn execute(&mut self, command: Command) -> Result<(), String> {
        let ops: Vec<KernelOp> = match command {
            Command::Install(ruleset) => {
                let plan = self.process.install(&self.model, &ruleset, false);
                self.process.table = Some(plan.table);
                plan.ops
            }
            Command::Commit(transactions) => {
                let table = self.process.table.unwrap_or_default();
                let commits = transactions.into_iter();
                commits
                    .map(|it| KernelOp::Commit(table.to_owned(), it))
                    .collect()
            }
        };
        for op in &ops {
            self.model.execute(self.process, MarkBits::DEFAULT, op)?;
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
