//! The threads that run background tasks beside the main loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::Error;
use super::listen::{Message, spawn};
use super::log::chain;
use crate::backend::{Auditor, Backend, Failure, MarkClearer};
use crate::command::{AuditOutcome, CommandError, MarksToClear, Task, TaskOutcome};

/// An audit stops after this time; the next one resumes there.
const LONGEST_AUDIT: Duration = Duration::from_secs(10);

/// The worker threads. Each has sockets of its own: no task waits for another, and no command for a
/// task.
#[derive(Debug)]
pub(super) struct Workers<B: Backend> {
    clearings: Sender<MarksToClear>,
    audits: Sender<Audit<B>>,
    /// The number of commands that changed the table, or tried to.
    changes: Arc<AtomicU64>,
}

struct Audit<B: Backend> {
    place: Option<String>,
    expected: Box<B::Expected>,
    from: Option<String>,
    /// The value of [`Workers::changes`] when the audit was requested.
    changes: u64,
}

impl<B: Backend> Workers<B> {
    /// Starts the threads.
    pub(super) fn start(
        auditor: Box<dyn Auditor<B>>,
        clearer: Box<dyn MarkClearer>,
        sender: &Sender<Message>,
    ) -> Result<Workers<B>, Error> {
        let (clearings, clear_tasks) = channel();
        let (audits, audit_tasks) = channel();
        let changes = Arc::new(AtomicU64::new(0));
        spawn("conntrack", {
            let sender = sender.clone();
            move || clear_marks(clearer, &clear_tasks, &sender)
        })?;
        spawn("audit", {
            let (sender, changes) = (sender.clone(), Arc::clone(&changes));
            move || audit(auditor, &audit_tasks, &changes, &sender)
        })?;
        Ok(Workers {
            clearings,
            audits,
            changes,
        })
    }

    /// Counts a command that changes the table next. A running audit stops.
    pub(super) fn table_changes(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Starts a task. Returns the outcome of a task that cannot start.
    pub(super) fn spawn(&self, task: Task<B>, place: Option<String>) -> Option<TaskOutcome> {
        let gone = || CommandError("the worker thread has ended".to_owned());
        match task {
            Task::ClearMarks(marks) => {
                let sent = self.clearings.send(marks);
                sent.is_err().then(|| TaskOutcome::ClearMarks(Err(gone())))
            }
            Task::Audit { expected, from } => {
                let sent = self.audits.send(Audit {
                    place,
                    expected,
                    from,
                    changes: self.changes.load(Ordering::Relaxed),
                });
                sent.is_err().then(|| TaskOutcome::Audit(Err(gone())))
            }
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is passed to map_err")]
fn failed(error: Failure) -> CommandError {
    CommandError(chain(&*error))
}

fn clear_marks(
    mut clearer: Box<dyn MarkClearer>,
    tasks: &Receiver<MarksToClear>,
    sender: &Sender<Message>,
) {
    for marks in tasks {
        let outcome = TaskOutcome::ClearMarks(clearer.clear(&marks).map_err(failed));
        if sender.send(Message::TaskFinished(outcome)).is_err() {
            return;
        }
    }
}

fn audit<B: Backend>(
    mut auditor: Box<dyn Auditor<B>>,
    tasks: &Receiver<Audit<B>>,
    changes: &AtomicU64,
    sender: &Sender<Message>,
) {
    for task in tasks {
        let outcome = TaskOutcome::Audit(compare(&mut *auditor, &task, changes));
        if sender.send(Message::TaskFinished(outcome)).is_err() {
            return;
        }
    }
}

fn compare<B: Backend>(
    auditor: &mut dyn Auditor<B>,
    task: &Audit<B>,
    changes: &AtomicU64,
) -> Result<AuditOutcome, CommandError> {
    let began = Instant::now();
    let is_useful = || {
        // Relaxed: the counter orders nothing. A change that is noticed late only makes the outcome
        // void.
        let is_as_before = changes.load(Ordering::Relaxed) == task.changes;
        is_as_before && began.elapsed() < LONGEST_AUDIT
    };
    let (place, from) = (task.place.as_deref(), task.from.as_deref());
    let audited = auditor.audit(place, &task.expected, from, &is_useful);
    audited.map_err(failed)
}
