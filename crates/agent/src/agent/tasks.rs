//! What is done in the background: marks of connections are forgotten, and the kernel's table is compared with what
//! it should hold.
//!
//! Both read tables of the kernel that may have millions of entries, and take seconds then. Meanwhile objects change
//! and commands are carried out. So what comes of a task counts only as far as nothing that it depends on has changed
//! since it began.

use std::time::Duration;

use super::Agent;
use crate::command::{
    AuditOutcome, CommandError, MarksToClear, Next, SyncOutcome, Task, TaskOutcome,
};
use crate::throttle::Backoff;

/// The kernel's table is compared with what it should hold so often, notice or not.
const AUDIT_EVERY: Duration = Duration::from_secs(60);
/// An audit that a change has overtaken goes on after so long, at the earliest,
const AUDIT_AGAIN: Duration = Duration::from_secs(1);
/// and after so many times what it took: audits never take more than a tenth of a processor.
const AUDIT_REST: u32 = 10;

/// The tasks that run, and when the next are due.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// How many commands have changed the table, or tried to.
    changes: u64,
    forgetting: Option<MarkClearing>,
    auditing: Option<AuditProgress>,
    audit_at: Duration,
    /// The set that the next audit goes on from.
    audit_from: Option<String>,
    backoff: Backoff,
}

#[derive(Debug)]
struct MarkClearing {
    marks: MarksToClear,
    /// Whether it is not known any more which generation the kernel writes, so that marks may be written behind its back.
    is_void: bool,
}

#[derive(Debug)]
struct AuditProgress {
    began: Duration,
    /// The changes before it began.
    changes: u64,
}

impl Tasks {
    /// That a command changes the table from now on.
    pub(super) fn table_changes(&mut self) {
        self.changes += 1;
    }

    /// That a whole table was put in place, which need not be compared soon.
    pub(super) fn table_is_new(&mut self, now: Duration) {
        self.audit_at = now + AUDIT_EVERY;
        self.audit_from = None;
    }

    /// That something may have happened to the table that nobody has said.
    pub(super) fn audit_everything(&mut self, now: Duration) {
        self.audit_at = now;
        self.audit_from = None;
    }

    /// That it is not known which generation the kernel has.
    pub(super) fn generation_in_doubt(&mut self) {
        if let Some(forgetting) = &mut self.forgetting {
            forgetting.is_void = true;
        }
    }

    /// Whether connections of addresses are being forgotten.
    pub(super) fn clears_addresses(&self) -> bool {
        let what = self.forgetting.as_ref().map(|it| &it.marks);
        matches!(what, Some(MarksToClear::Addresses(_)))
    }

    /// How often marks could not be forgotten since they last could.
    pub(super) fn failures(&self) -> u32 {
        self.backoff.failures()
    }

    /// Forgets marks, as soon as nothing else is being forgotten.
    pub(super) fn clear_marks(&mut self, now: Duration, what: MarksToClear) -> Next {
        if self.forgetting.is_some() {
            return Next::Wait(None);
        }
        if now < self.backoff.until() {
            return Next::Wait(Some(self.backoff.until()));
        }
        self.forgetting = Some(MarkClearing {
            marks: what.clone(),
            is_void: false,
        });
        Next::Spawn(Task::ClearMarks(what))
    }

    /// Whether marks can be forgotten now.
    fn may_clear(&self, now: Duration) -> bool {
        self.forgetting.is_none() && now >= self.backoff.until()
    }

    /// When there is something to do for time alone.
    fn wait(&self, now: Duration) -> Next {
        let retry = Some(self.backoff.until()).filter(|it| *it > now);
        let audit = Some(self.audit_at).filter(|_| self.auditing.is_none());
        Next::Wait(retry.into_iter().chain(audit).min())
    }
}

impl Agent {
    /// The task to begin, where no command is to be carried out.
    pub(super) fn next_task(&mut self, now: Duration) -> Next {
        if self.tasks.may_clear(now) {
            if !self.let_go.is_empty() {
                let addresses = std::mem::take(&mut self.let_go);
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
            && let Some(held) = &self.installed
        {
            self.tasks.auditing = Some(AuditProgress {
                began: now,
                changes: self.tasks.changes,
            });
            return Next::Spawn(Task::Audit {
                expected: Box::new(held.upkeep.expected(self.planner.plan())),
                from: self.tasks.audit_from.clone(),
            });
        }
        self.tasks.wait(now)
    }

    /// What came of a task.
    pub fn task_finished(&mut self, now: Duration, outcome: TaskOutcome) {
        match outcome {
            TaskOutcome::ClearMarks(outcome) => self.marks_cleared(now, outcome),
            TaskOutcome::Audit(outcome) => self.audited(now, outcome),
        }
    }

    fn marks_cleared(&mut self, now: Duration, outcome: Result<(), CommandError>) {
        let Some(MarkClearing {
            marks: what,
            is_void,
        }) = self.tasks.forgetting.take()
        else {
            return;
        };
        match (outcome, what) {
            (Ok(()), MarksToClear::Addresses(addresses)) => {
                self.tasks.backoff.succeed();
                self.happened
                    .push_back(SyncOutcome::AddressesCleared(addresses.len()));
            }
            (Ok(()), MarksToClear::Generations(range)) => {
                self.tasks.backoff.succeed();
                if !is_void {
                    self.generations.cleared(&range);
                    self.happened.push_back(SyncOutcome::MarksCleared(range));
                }
            }
            (Err(failed), what) => {
                if let MarksToClear::Addresses(addresses) = what {
                    self.let_go.extend(addresses);
                }
                let again_in = self.tasks.backoff.fail(now);
                let times = self.tasks.backoff.failures();
                self.task_failed("forget old marks", failed, again_in, times);
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
                return self.task_failed("compare the table", failed, again_in, 1);
            }
        };
        let is_overtaken = auditing.changes != self.tasks.changes;
        if !compared.differences.is_empty() {
            self.tasks.audit_at = now + again_in;
            // What differs from what was expected before a change of ours may be that change.
            if !is_overtaken {
                self.drifted(now, compared.differences);
            }
            return;
        }
        let is_complete = compared.stopped_at.is_none();
        self.tasks.audit_from = compared.stopped_at;
        self.tasks.audit_at = now + if is_complete { AUDIT_EVERY } else { again_in };
        if is_complete {
            self.happened.push_back(SyncOutcome::Verified);
        }
    }

    fn task_failed(
        &mut self,
        what: &'static str,
        failed: CommandError,
        again_in: Duration,
        times: u32,
    ) {
        let CommandError(why) = failed;
        self.happened.push_back(SyncOutcome::Failed {
            what,
            why,
            again_in,
            times,
        });
    }
}
