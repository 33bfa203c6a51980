//! Executes a command of the agent, transaction by transaction. Each may be refused, or succeed
//! with its response lost.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use palisade_agent::{Command, CommandError, Next, SyncOutcome};

use super::expected::ExpectedVerdicts;
use super::model::{Installation, KernelOp};
use super::simulator::Simulator;
use super::{Failure, Invariant};

/// Generations that may follow each other without a pause.
const BURST: usize = 10;

/// A fault to inject into the next operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InjectedFault {
    Refuse,
    LoseResponse,
}

/// A command in execution.
pub(super) struct RunningCommand {
    command: Command,
    ops: VecDeque<KernelOp>,
    done: usize,
    install: Option<Installation>,
    /// The expected verdicts after it.
    pub(super) target: Rc<ExpectedVerdicts>,
    upper_before: Rc<ExpectedVerdicts>,
    lower_before: Rc<ExpectedVerdicts>,
    /// Whether another program has changed the table meanwhile.
    pub(super) is_disturbed: bool,
}

impl RunningCommand {
    /// Whether a new table is deleted after `done` operations of its installation. The real
    /// implementation deletes an incomplete table, unless a response was lost.
    fn is_deleted_after(&self, done: usize) -> bool {
        let install = self.install.as_ref();
        install.is_some_and(|it| done > it.filling && done < it.filled)
    }
}

impl Simulator<'_> {
    /// Takes the agent's next command, or executes the next operation of the current one.
    pub(super) fn advance(&mut self) -> Result<(), Failure> {
        if !self.background.is_empty() && self.rng.chance(30) {
            return self.finish_task();
        }
        if self.running.is_some() {
            return self.resume();
        }
        let Some(agent) = &mut self.agent else {
            return Ok(());
        };
        match agent.next(self.now) {
            Next::Do(command) => self.begin(command),
            Next::Spawn(task) => self.spawn(task),
            Next::Wait(Some(until)) if until <= self.now => {
                let message = format!("the agent waits until {until:?} at {:?}", self.now);
                Err(Failure::new(Invariant::Idle, message))
            }
            Next::Wait(_) => self.take_outcomes(),
        }
    }

    pub(super) fn begin(&mut self, command: Command) -> Result<(), Failure> {
        if self.agent.as_ref().is_some_and(|agent| !agent.is_synced()) {
            let message = "the agent acts before it has synced".to_owned();
            return Err(Failure::new(Invariant::Synced, message));
        }
        self.commands += 1;
        self.counts.commands += 1;
        let received = self.received.clone();
        let target = self.expected(&received);
        let mut install = None;
        let (upper_before, lower_before) = (Rc::clone(&self.upper), Rc::clone(&self.lower));
        let ops: VecDeque<KernelOp> = match &command {
            Command::Install(ruleset) => {
                let plan = self
                    .process
                    .install(&self.model, ruleset, self.setting.is_small);
                let ops = plan.ops.iter().cloned().collect();
                install = Some(plan);
                ops
            }
            Command::Commit(transactions) => {
                let table = self.process.table.unwrap_or_default();
                let commit = |it: &_| KernelOp::Commit(table.to_owned(), Clone::clone(it));
                transactions.iter().map(commit).collect()
            }
        };
        self.applied = Rc::clone(&target);
        self.upper = Rc::new(upper_before.or(&target));
        self.lower = Rc::new(lower_before.and(&target));
        self.running = Some(RunningCommand {
            command,
            ops,
            done: 0,
            install,
            target,
            upper_before,
            lower_before,
            is_disturbed: false,
        });
        self.take_outcomes()
    }

    fn resume(&mut self) -> Result<(), Failure> {
        let Some(mut running) = self.running.take() else {
            return Ok(());
        };
        let injected = self.injected.take();
        let Some(op) = running.ops.pop_front() else {
            return self.succeed(&running);
        };
        if injected == Some(InjectedFault::Refuse) {
            self.counts.faults += 1;
            self.abandon(&running);
            return self.fail(&running, "injected refusal");
        }
        let (process, bits) = (self.process, self.bits());
        if let Err(why) = self.model.execute(process, bits, &op) {
            self.abandon(&running);
            if !self.is_foreign {
                return Err(Failure::new(Invariant::Accepted, why));
            }
            return self.fail(&running, &why);
        }
        self.counts.transactions += 1;
        running.done += 1;
        let is_response_lost = injected == Some(InjectedFault::LoseResponse);
        if let Some(install) = &running.install
            && running.done == install.filled
            && !is_response_lost
        {
            self.process.table = Some(install.table);
        }
        let is_last = running.ops.is_empty();
        let is_between = !is_last && matches!(running.command, Command::Commit(_));
        let torn = self.check_commit(is_between)?;
        if is_last {
            self.complete(&running);
        }
        self.check_torn(&torn)?;
        if is_response_lost {
            self.counts.faults += 1;
            if !is_last {
                self.abandon(&running);
            }
            return self.report_outcome(Err(CommandError(
                "injected loss of the response".to_owned(),
            )));
        }
        if is_last {
            return self.succeed(&running);
        }
        self.running = Some(running);
        Ok(())
    }

    /// Records that all operations of a command are done.
    fn complete(&mut self, running: &RunningCommand) {
        if matches!(running.command, Command::Install(_)) {
            self.is_foreign &= running.is_disturbed;
        }
        self.upper = Rc::clone(&running.target);
        self.lower = Rc::clone(&running.target);
    }

    /// Abandons a command whose operations are not all done.
    pub(super) fn abandon(&mut self, running: &RunningCommand) {
        if running.done == 0 {
            self.upper = Rc::clone(&running.upper_before);
            self.lower = Rc::clone(&running.lower_before);
        } else if matches!(running.command, Command::Commit(_)) {
            // Between two of its transactions, fewer packets may pass than before and after.
            self.lower = Rc::new(ExpectedVerdicts::closed(self.flows));
        }
    }

    /// Reports a refused operation to the agent.
    fn fail(&mut self, running: &RunningCommand, why: &str) -> Result<(), Failure> {
        if let Some(install) = &running.install
            && running.is_deleted_after(running.done)
        {
            let op = KernelOp::Delete(install.table.to_owned());
            let _ = self.model.execute(self.process, self.bits(), &op);
        }
        self.report_outcome(Err(CommandError(why.to_owned())))
    }

    /// Reports a completed command to the agent.
    fn succeed(&mut self, running: &RunningCommand) -> Result<(), Failure> {
        if running.done == 0 {
            self.complete(running);
        }
        self.report_outcome(Ok(()))
    }

    fn report_outcome(&mut self, outcome: Result<(), CommandError>) -> Result<(), Failure> {
        if let Some(agent) = &mut self.agent {
            agent.finished(self.now, outcome);
        }
        self.take_outcomes()
    }

    /// Takes and checks the agent's outcomes.
    pub(super) fn take_outcomes(&mut self) -> Result<(), Failure> {
        let Some(agent) = &mut self.agent else {
            return Ok(());
        };
        let mut is_unaffected = false;
        let mut generations = 0;
        for outcome in agent.outcomes() {
            match outcome {
                SyncOutcome::Installed { .. } => {
                    self.counts.installs += 1;
                    generations += 1;
                }
                SyncOutcome::Changed { generation, .. } => {
                    self.counts.changes += 1;
                    generations += usize::from(generation.is_some());
                }
                SyncOutcome::MarksCleared(_) | SyncOutcome::AddressesCleared(_) => {
                    self.counts.sweeps += 1
                }
                SyncOutcome::Drifted(_) => self.counts.drifts += 1,
                SyncOutcome::Unaffected => is_unaffected = true,
                SyncOutcome::Closed | SyncOutcome::Verified | SyncOutcome::Failed { .. } => {}
            }
        }
        if is_unaffected {
            let received = self.received.clone();
            self.applied = self.expected(&received);
        }
        for _ in 0..generations {
            self.check_rate()?;
        }
        Ok(())
    }

    /// Checks how often connections are reevaluated: at most ten times at once, then ten times a
    /// second.
    fn check_rate(&mut self) -> Result<(), Failure> {
        self.generations.push_back(self.now);
        if self.generations.len() > BURST + 1 {
            let first = self.generations.pop_front().unwrap_or_default();
            if self.now < first + Duration::from_millis(100) {
                let message = "the agent reevaluates connections too often".to_owned();
                return Err(Failure::new(Invariant::Idle, message));
            }
        }
        Ok(())
    }
}
