//! Background tasks of the agent: each reads the kernel for a while, and commands run meanwhile.

use std::collections::BTreeSet;

use palisade_agent::{AuditOutcome, CommandError, MarksToClear, Task, TaskOutcome};
use palisade_nft::update::ExpectedTable;

use super::evaluation::Packet;
use super::execute::InjectedFault;
use super::model::KernelOp;
use super::simulator::Simulator;
use super::{Failure, Invariant};

/// A running task.
pub(super) struct Background {
    task: Task,
    /// The number of commands when it started.
    commands: u64,
    /// The connections whose marks are already cleared.
    cleared: BTreeSet<Packet>,
}

impl Simulator<'_> {
    /// Starts a task. It clears some marks at once, the others when it ends.
    pub(super) fn spawn(&mut self, task: Task) -> Result<(), Failure> {
        self.counts.tasks += 1;
        let mut cleared = BTreeSet::new();
        if let Task::ClearMarks(what) = &task {
            let all: Vec<Packet> = self.model.connections.keys().copied().collect();
            let first = self.rng.below(all.len() as u64 + 1) as usize;
            cleared.extend(all.into_iter().take(first));
            self.clear(what, &|packet| cleared.contains(packet));
        }
        self.background.push(Background {
            task,
            commands: self.counts.commands,
            cleared,
        });
        self.take_outcomes()
    }

    /// Finishes a random task.
    pub(super) fn finish_task(&mut self) -> Result<(), Failure> {
        let place = self.rng.below(self.background.len() as u64) as usize;
        let Background {
            task,
            commands,
            cleared,
        } = self.background.remove(place);
        let injected = self.injected.take();
        self.counts.faults += u64::from(injected.is_some());
        let outcome = match task {
            Task::ClearMarks(what) => {
                if injected != Some(InjectedFault::Refuse) {
                    self.clear(&what, &|packet| !cleared.contains(packet));
                }
                TaskOutcome::ClearMarks(match injected {
                    None => Ok(()),
                    Some(_) => Err(CommandError("injected failure".to_owned())),
                })
            }
            Task::Audit { expected, from } => TaskOutcome::Audit(match injected {
                None => Ok(self.compare(&expected, from.is_none(), commands)?),
                Some(_) => Err(CommandError("injected read failure".to_owned())),
            }),
        };
        if let Some(agent) = &mut self.agent {
            agent.task_finished(self.now, outcome);
        }
        self.take_outcomes()
    }

    /// Clears the marks of the task's connections that `is_selected` accepts.
    fn clear(&mut self, what: &MarksToClear, is_selected: &dyn Fn(&Packet) -> bool) {
        let op = match what {
            MarksToClear::Generations(range) => KernelOp::ClearGenerations(range.clone()),
            MarksToClear::Addresses(addresses) => KernelOp::ClearAddresses(addresses.clone()),
        };
        self.model.clear(self.bits(), &op, is_selected);
    }

    /// Compares the table with the table expected when the task started.
    fn compare(
        &mut self,
        expected: &ExpectedTable,
        is_whole: bool,
        commands: u64,
    ) -> Result<AuditOutcome, Failure> {
        let is_overtaken = commands != self.counts.commands;
        let ruleset = expected.ruleset();
        if self.rng.chance(30) {
            let last = ruleset.sets.last();
            return Ok(AuditOutcome {
                differences: Vec::new(),
                stopped_at: last.map(|set| set.name.as_str().to_owned()),
            });
        }
        // An audit that resumes from an earlier one need not cover the changed sets.
        if !is_whole {
            return Ok(AuditOutcome::default());
        }
        let name = self.process.table.unwrap_or_default();
        let table = self.model.tables.iter().find(|it| it.name == name);
        let differences = match table {
            None => vec!["the table is missing".to_owned()],
            Some(table) => table.audit(&ruleset),
        };
        if !is_overtaken && !self.is_foreign && !differences.is_empty() {
            return Err(Failure::new(Invariant::NoDrift, differences.join("; ")));
        }
        if !is_overtaken && self.is_foreign && differences.is_empty() {
            // Changed back, or overwritten by a later change of the agent. The connections opened
            // meanwhile are unknown.
            self.is_foreign = false;
            self.model.connections.clear();
        }
        Ok(AuditOutcome {
            differences,
            stopped_at: None,
        })
    }
}
