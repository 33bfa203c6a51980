//! Tasks of the agent that run in the background: each reads the kernel for a while, and commands are carried out meanwhile.

use std::collections::BTreeSet;

use palisade_agent::{AuditOutcome, CommandError, MarksToClear, Task, TaskOutcome};
use palisade_nft::update::ExpectedTable;

use super::carry::Armed;
use super::model::Atom;
use super::play::Play;
use super::walk::Packet;
use super::{Failure, Kind};

/// A task under way.
pub(super) struct Background {
    task: Task,
    /// The commands before it began.
    commands: u64,
    /// The connections whose marks were cleared so far.
    cleared: BTreeSet<Packet>,
}

impl Play<'_> {
    /// Begins a task. Of the marks that are to be cleared some are at once, the others when it ends.
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
        self.heard()
    }

    /// Ends one of the tasks, whichever.
    pub(super) fn finish_a_task(&mut self) -> Result<(), Failure> {
        let place = self.rng.below(self.background.len() as u64) as usize;
        let Background {
            task,
            commands,
            cleared,
        } = self.background.remove(place);
        let armed = self.armed.take();
        self.counts.faults += u64::from(armed.is_some());
        let outcome = match task {
            Task::ClearMarks(what) => {
                if armed != Some(Armed::Refuse) {
                    self.clear(&what, &|packet| !cleared.contains(packet));
                }
                TaskOutcome::ClearMarks(match armed {
                    None => Ok(()),
                    Some(_) => Err(CommandError("fails on purpose".to_owned())),
                })
            }
            Task::Audit { expected, from } => TaskOutcome::Audit(match armed {
                None => Ok(self.compare(&expected, from.is_none(), commands)?),
                Some(_) => Err(CommandError("cannot be read".to_owned())),
            }),
        };
        if let Some(agent) = &mut self.agent {
            agent.task_finished(self.now, outcome);
        }
        self.heard()
    }

    /// Clears the marks of some of the connections that are meant.
    fn clear(&mut self, what: &MarksToClear, is_asked: &dyn Fn(&Packet) -> bool) {
        let atom = match what {
            MarksToClear::Generations(range) => Atom::Forget(range.clone()),
            MarksToClear::Addresses(addresses) => Atom::ForgetAddresses(addresses.clone()),
        };
        self.model.clear(self.bits(), &atom, is_asked);
    }

    /// Compares the table with what it should have held when the task began.
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
        // What an audit that goes on later compares need not be what was changed.
        if !is_whole {
            return Ok(AuditOutcome::default());
        }
        let name = self.process.table.unwrap_or_default();
        let table = self.model.tables.iter().find(|it| it.name == name);
        let differences = match table {
            None => vec!["our table is gone".to_owned()],
            Some(table) => table.audit(&ruleset),
        };
        if !is_overtaken && !self.is_foreign && !differences.is_empty() {
            return Err(Failure::new(Kind::Drift, differences.join("; ")));
        }
        if !is_overtaken && self.is_foreign && differences.is_empty() {
            // Changed back, or changed where a change of ours has been since. Which connections were let in
            // meanwhile, nobody can know.
            self.is_foreign = false;
            self.model.connections.clear();
        }
        Ok(AuditOutcome {
            differences,
            stopped_at: None,
        })
    }
}
