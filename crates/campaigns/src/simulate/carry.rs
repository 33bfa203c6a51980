//! How a command of the agent is carried out: one transaction after the other, each of which may be refused, or
//! done without anybody hearing of it.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use palisade_agent::{Command, CommandError, Next, SyncOutcome};

use super::model::{Atom, Installation};
use super::play::Play;
use super::truth::Truth;
use super::{Failure, Kind};

/// So many generations may follow each other without a pause.
const MOST_AT_ONCE: usize = 10;

/// What will go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Armed {
    Refuse,
    LoseAnswer,
}

/// A command that is being carried out.
pub(super) struct Pending {
    command: Command,
    atoms: VecDeque<Atom>,
    done: usize,
    install: Option<Installation>,
    /// What holds when it is done.
    pub(super) goal: Rc<Truth>,
    most_before: Rc<Truth>,
    least_before: Rc<Truth>,
    /// Whether somebody else has changed the table meanwhile.
    pub(super) is_disturbed: bool,
}

impl Pending {
    /// Whether a new table is deleted if no more than so much of its installation was done: as the real one does with what
    /// it has begun, unless an answer is missing.
    fn is_deleted_after(&self, done: usize) -> bool {
        let install = self.install.as_ref();
        install.is_some_and(|it| done > it.filling && done < it.filled)
    }
}

impl Play<'_> {
    /// Asks the agent what to do, or does the next part of that.
    pub(super) fn act(&mut self) -> Result<(), Failure> {
        if !self.background.is_empty() && self.rng.chance(30) {
            return self.finish_a_task();
        }
        if self.pending.is_some() {
            return self.go_on();
        }
        let Some(agent) = &mut self.agent else {
            return Ok(());
        };
        match agent.next(self.now) {
            Next::Do(command) => self.begin(command),
            Next::Spawn(task) => self.spawn(task),
            Next::Wait(Some(until)) if until <= self.now => {
                let words = format!("told to wait until {until:?} at {:?}", self.now);
                Err(Failure::new(Kind::Busy, words))
            }
            Next::Wait(_) => self.heard(),
        }
    }

    pub(super) fn begin(&mut self, command: Command) -> Result<(), Failure> {
        if self.agent.as_ref().is_some_and(|agent| !agent.is_synced()) {
            let words = "acts before it was told everything".to_owned();
            return Err(Failure::new(Kind::Early, words));
        }
        self.commands += 1;
        self.counts.commands += 1;
        let told = self.told.clone();
        let goal = self.truth(&told);
        let mut install = None;
        let (most_before, least_before) = (Rc::clone(&self.most), Rc::clone(&self.least));
        let atoms: VecDeque<Atom> = match &command {
            Command::Install(ruleset) => {
                let plan = self
                    .process
                    .install(&self.model, ruleset, self.setting.is_small);
                let atoms = plan.atoms.iter().cloned().collect();
                install = Some(plan);
                atoms
            }
            Command::Commit(transactions) => {
                let table = self.process.table.unwrap_or_default();
                let commit = |it: &_| Atom::Commit(table.to_owned(), Clone::clone(it));
                transactions.iter().map(commit).collect()
            }
        };
        self.held = Rc::clone(&goal);
        self.most = Rc::new(most_before.or(&goal));
        self.least = Rc::new(least_before.and(&goal));
        self.pending = Some(Pending {
            command,
            atoms,
            done: 0,
            install,
            goal,
            most_before,
            least_before,
            is_disturbed: false,
        });
        self.heard()
    }

    fn go_on(&mut self) -> Result<(), Failure> {
        let Some(mut pending) = self.pending.take() else {
            return Ok(());
        };
        let armed = self.armed.take();
        let Some(atom) = pending.atoms.pop_front() else {
            return self.conclude(&pending);
        };
        if armed == Some(Armed::Refuse) {
            self.counts.faults += 1;
            self.give_up(&pending);
            return self.fail(&pending, "refused on purpose");
        }
        let (process, bits) = (self.process, self.bits());
        if let Err(why) = self.model.carry_out(process, bits, &atom) {
            self.give_up(&pending);
            if !self.is_foreign {
                return Err(Failure::new(Kind::Refused, why));
            }
            return self.fail(&pending, &why);
        }
        self.counts.transactions += 1;
        pending.done += 1;
        let is_lost = armed == Some(Armed::LoseAnswer);
        if let Some(install) = &pending.install
            && pending.done == install.filled
            && !is_lost
        {
            self.process.table = Some(install.table);
        }
        let is_last = pending.atoms.is_empty();
        let is_between = !is_last && matches!(pending.command, Command::Commit(_));
        let torn = self.look_during(is_between)?;
        if is_last {
            self.complete(&pending);
        }
        self.look_after(&torn)?;
        if is_lost {
            self.counts.faults += 1;
            if !is_last {
                self.give_up(&pending);
            }
            return self.answer(Err(CommandError(
                "the answer was lost on purpose".to_owned(),
            )));
        }
        if is_last {
            return self.conclude(&pending);
        }
        self.pending = Some(pending);
        Ok(())
    }

    /// Everything of a command was done.
    fn complete(&mut self, pending: &Pending) {
        if matches!(pending.command, Command::Install(_)) {
            self.is_foreign &= pending.is_disturbed;
        }
        self.most = Rc::clone(&pending.goal);
        self.least = Rc::clone(&pending.goal);
    }

    /// A command ends before everything of it was done.
    pub(super) fn give_up(&mut self, pending: &Pending) {
        if pending.done == 0 {
            self.most = Rc::clone(&pending.most_before);
            self.least = Rc::clone(&pending.least_before);
        } else if matches!(pending.command, Command::Commit(_)) {
            // Between two of its transactions less may pass than before and after.
            self.least = Rc::new(Truth::closed(self.flows));
        }
    }

    /// A command was refused after some of it was done.
    fn fail(&mut self, pending: &Pending, why: &str) -> Result<(), Failure> {
        if let Some(install) = &pending.install
            && pending.is_deleted_after(pending.done)
        {
            let atom = Atom::Delete(install.table.to_owned());
            let _ = self.model.carry_out(self.process, self.bits(), &atom);
        }
        self.answer(Err(CommandError(why.to_owned())))
    }

    /// Everything of a command was done, and the agent hears of it.
    fn conclude(&mut self, pending: &Pending) -> Result<(), Failure> {
        if pending.done == 0 {
            self.complete(pending);
        }
        self.answer(Ok(()))
    }

    fn answer(&mut self, outcome: Result<(), CommandError>) -> Result<(), Failure> {
        if let Some(agent) = &mut self.agent {
            agent.finished(self.now, outcome);
        }
        self.heard()
    }

    /// Hears what the agent says of itself.
    pub(super) fn heard(&mut self) -> Result<(), Failure> {
        let Some(agent) = &mut self.agent else {
            return Ok(());
        };
        let mut is_taken_in = false;
        let mut generations = 0;
        for happening in agent.outcomes() {
            match happening {
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
                SyncOutcome::Unaffected => is_taken_in = true,
                SyncOutcome::Closed | SyncOutcome::Verified | SyncOutcome::Failed { .. } => {}
            }
        }
        if is_taken_in {
            let told = self.told.clone();
            self.held = self.truth(&told);
        }
        for _ in 0..generations {
            self.pace()?;
        }
        Ok(())
    }
    /// That connections are judged anew, which must not be too often: ten times at once, and ten times a second.
    fn pace(&mut self) -> Result<(), Failure> {
        self.generations.push_back(self.now);
        if self.generations.len() > MOST_AT_ONCE + 1 {
            let first = self.generations.pop_front().unwrap_or_default();
            if self.now < first + Duration::from_millis(100) {
                let words = "judges connections anew too often".to_owned();
                return Err(Failure::new(Kind::Busy, words));
            }
        }
        Ok(())
    }
}
