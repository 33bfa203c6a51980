//! Background tasks: clearing marks of connections, and auditing the kernel's table.
//!
//! Both read kernel tables that may have millions of entries, which then takes seconds. Meanwhile
//! objects change and commands run. The outcome of a task therefore counts only if nothing that it
//! depends on has changed since its start.

use std::time::Duration;

use super::Agent;
use crate::backend::Backend;
use crate::command::{
    AuditOutcome, CommandError, FailedAction, MarksToClear, Next, SyncOutcome, Task, TaskOutcome,
};
use crate::throttle::Backoff;

/// The table is audited this often, with or without a notification: notifications can be lost.
const AUDIT_EVERY: Duration = Duration::from_secs(60);
/// The shortest rest of an audit that a change interrupted,
const AUDIT_AGAIN: Duration = Duration::from_secs(1);
/// and its rest as a multiple of its duration: audits take at most a tenth of a processor.
const AUDIT_REST: u32 = 10;

/// The running tasks, and when the next ones are due.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// The number of commands that have changed the table, or tried to.
    changes: u64,
    clearing: Option<MarkClearing>,
    auditing: Option<AuditProgress>,
    audit_at: Duration,
    /// The set at which the next audit resumes.
    audit_from: Option<String>,
    backoff: Backoff,
}

#[derive(Debug)]
struct MarkClearing {
    marks: MarksToClear,
    /// Whether the generation in the kernel has become unknown: the kernel may have written marks
    /// of the range while it was cleared.
    is_void: bool,
}

#[derive(Debug)]
struct AuditProgress {
    began: Duration,
    /// The value of [`Tasks::changes`] at its start.
    changes: u64,
}

impl Tasks {
    /// Counts a command that changes the table next.
    pub(super) fn table_changes(&mut self) {
        self.changes += 1;
    }

    /// Postpones the next audit: a whole table was just installed.
    pub(super) fn table_is_new(&mut self, now: Duration) {
        self.audit_at = now + AUDIT_EVERY;
        self.audit_from = None;
    }

    /// Schedules an audit of the whole table for now.
    pub(super) fn audit_everything(&mut self, now: Duration) {
        self.audit_at = now;
        self.audit_from = None;
    }

    /// Voids a running clearing of marks: a command failed, and the generation in the kernel is
    /// unknown.
    pub(super) fn generation_in_doubt(&mut self) {
        if let Some(clearing) = &mut self.clearing {
            clearing.is_void = true;
        }
    }

    /// Returns whether marks of addresses are being cleared.
    pub(super) fn clears_addresses(&self) -> bool {
        let marks = self.clearing.as_ref().map(|it| &it.marks);
        matches!(marks, Some(MarksToClear::Addresses(_)))
    }

    /// Returns the number of consecutive failures to clear marks.
    pub(super) fn failures(&self) -> u32 {
        self.backoff.failures()
    }

    /// Starts to clear marks, unless marks are being cleared already or a failure was too recent.
    pub(super) fn clear_marks<B: Backend>(
        &mut self,
        now: Duration,
        marks: MarksToClear,
    ) -> Next<B> {
        if self.clearing.is_some() {
            return Next::Wait(None);
        }
        if now < self.backoff.until() {
            return Next::Wait(Some(self.backoff.until()));
        }
        self.clearing = Some(MarkClearing {
            marks: marks.clone(),
            is_void: false,
        });
        Next::Spawn(Task::ClearMarks(marks))
    }

    /// Returns whether a clearing of marks may start now.
    fn may_clear(&self, now: Duration) -> bool {
        self.clearing.is_none() && now >= self.backoff.until()
    }

    /// Returns the time of the next step that needs no event.
    fn wait<B: Backend>(&self, now: Duration) -> Next<B> {
        let retry = Some(self.backoff.until()).filter(|it| *it > now);
        let audit = Some(self.audit_at).filter(|_| self.auditing.is_none());
        Next::Wait(retry.into_iter().chain(audit).min())
    }
}

impl<B: Backend> Agent<B> {
    /// Returns the task to start. Called only if there is no command.
    pub(super) fn next_task(&mut self, now: Duration) -> Next<B> {
        if self.tasks.may_clear(now) {
            // Addresses first: until their marks are cleared, a new pod inherits the permissions of
            // the old one. Old generations only become a danger many changes later.
            if !self.reassigned.is_empty() {
                let addresses = std::mem::take(&mut self.reassigned);
                return self
                    .tasks
                    .clear_marks(now, MarksToClear::Addresses(addresses));
            }
            if let Some(range) = self.generations.to_clear_soon() {
                return self
                    .tasks
                    .clear_marks(now, MarksToClear::Generations(range));
            }
        }
        if now >= self.tasks.audit_at
            && self.tasks.auditing.is_none()
            && let Some(table) = &self.installed
        {
            self.tasks.auditing = Some(AuditProgress {
                began: now,
                changes: self.tasks.changes,
            });
            return Next::Spawn(Task::Audit {
                expected: Box::new(self.backend.expected(&table.state, self.planner.plan())),
                from: self.tasks.audit_from.clone(),
            });
        }
        self.tasks.wait(now)
    }

    /// Records the outcome of a task.
    pub fn task_finished(&mut self, now: Duration, outcome: TaskOutcome) {
        match outcome {
            TaskOutcome::ClearMarks(outcome) => self.marks_cleared(now, outcome),
            TaskOutcome::Audit(outcome) => self.audited(now, outcome),
        }
    }

    fn marks_cleared(&mut self, now: Duration, outcome: Result<(), CommandError>) {
        let Some(MarkClearing { marks, is_void }) = self.tasks.clearing.take() else {
            return;
        };
        match (outcome, marks) {
            (Ok(()), MarksToClear::Addresses(addresses)) => {
                self.tasks.backoff.succeed();
                self.outcomes_to_report
                    .push_back(SyncOutcome::AddressesCleared(addresses.len()));
            }
            (Ok(()), MarksToClear::Generations(range)) => {
                self.tasks.backoff.succeed();
                // Marks may have been written behind the task's back. The range stays uncleared,
                // and the tracker requests it again.
                if !is_void {
                    self.generations.cleared(&range);
                    self.outcomes_to_report
                        .push_back(SyncOutcome::MarksCleared(range));
                }
            }
            (Err(failed), marks) => {
                // A generation range is still requested by the tracker; addresses are stored only
                // here.
                if let MarksToClear::Addresses(addresses) = marks {
                    self.reassigned.extend(addresses);
                }
                let again_in = self.tasks.backoff.fail(now);
                let times = self.tasks.backoff.failures();
                self.task_failed(FailedAction::ClearMarks, failed, again_in, times);
            }
        }
    }

    fn audited(&mut self, now: Duration, outcome: Result<AuditOutcome, CommandError>) {
        let Some(auditing) = self.tasks.auditing.take() else {
            return;
        };
        let took = now.saturating_sub(auditing.began);
        let again_in = took
            .saturating_mul(AUDIT_REST)
            .clamp(AUDIT_AGAIN, AUDIT_EVERY);
        let compared = match outcome {
            Ok(compared) => compared,
            Err(failed) => {
                self.tasks.audit_at = now + again_in;
                return self.task_failed(FailedAction::Audit, failed, again_in, 1);
            }
        };
        let is_overtaken = auditing.changes != self.tasks.changes;
        if !compared.differences.is_empty() {
            self.tasks.audit_at = now + again_in;
            // A change during the audit can itself be the difference. The next audit looks again.
            if !is_overtaken {
                self.drifted(now, compared.differences);
            }
            return;
        }
        // An interrupted audit resumes where it stopped. Under constant change an audit that always
        // began anew would never reach the last sets.
        let is_complete = compared.stopped_at.is_none();
        self.tasks.audit_from = compared.stopped_at;
        self.tasks.audit_at = now + if is_complete { AUDIT_EVERY } else { again_in };
        if is_complete {
            self.outcomes_to_report.push_back(SyncOutcome::Verified);
        }
    }

    fn task_failed(
        &mut self,
        what: FailedAction,
        failed: CommandError,
        again_in: Duration,
        times: u32,
    ) {
        let CommandError(why) = failed;
        self.outcomes_to_report.push_back(SyncOutcome::Failed {
            what,
            why,
            again_in,
            times,
        });
    }
}
