//! The threads that run background tasks beside the main loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use palisade_nft::load::Auditor;
use palisade_nft::node::MarkBits;
use palisade_nft::update::ExpectedTable;
use palisade_nft::{Conntrack, Error as KernelError};

use super::Error;
use super::listen::{Message, spawn};
use super::log::chain;
use crate::command::{AuditOutcome, CommandError, MarksToClear, Task, TaskOutcome};

/// An audit stops after this time; the next one resumes there.
const LONGEST_AUDIT: Duration = Duration::from_secs(10);

/// The worker threads. Each has sockets of its own: no task waits for another, and no command for a
/// task.
#[derive(Debug)]
pub(super) struct Workers {
    forgets: Sender<MarksToClear>,
    audits: Sender<Audit>,
    /// The number of commands that changed the table, or tried to.
    changes: Arc<AtomicU64>,
}

struct Audit {
    table: Option<String>,
    expected: Box<ExpectedTable>,
    from: Option<String>,
    /// The value of [`Workers::changes`] when the audit was requested.
    changes: u64,
}

impl Workers {
    /// Starts the threads. Their sockets belong to the network namespace of the calling thread.
    pub(super) fn start(mark: MarkBits, sender: &Sender<Message>) -> Result<Workers, Error> {
        let (forgets, clearings) = channel();
        let (audits, audit_tasks) = channel();
        let changes = Arc::new(AtomicU64::new(0));
        let conntrack = Conntrack::open()?;
        let auditor = Auditor::open()?;
        spawn("conntrack", {
            let sender = sender.clone();
            move || clear_marks(conntrack, mark, &clearings, &sender)
        })?;
        spawn("audit", {
            let (sender, changes) = (sender.clone(), Arc::clone(&changes));
            move || audit(auditor, &audit_tasks, &changes, &sender)
        })?;
        Ok(Workers {
            forgets,
            audits,
            changes,
        })
    }

    /// Counts a command that changes the table next. A running audit stops.
    pub(super) fn table_changes(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Starts a task. Returns the outcome of a task that cannot start.
    pub(super) fn spawn(&self, task: Task, table: Option<String>) -> Option<TaskOutcome> {
        let gone = || CommandError("the worker thread has ended".to_owned());
        match task {
            Task::ClearMarks(marks) => {
                let sent = self.forgets.send(marks);
                sent.is_err().then(|| TaskOutcome::ClearMarks(Err(gone())))
            }
            Task::Audit { expected, from } => {
                let sent = self.audits.send(Audit {
                    table,
                    expected,
                    from,
                    changes: self.changes.load(Ordering::Relaxed),
                });
                sent.is_err().then(|| TaskOutcome::Audit(Err(gone())))
            }
        }
    }
}

fn failed(error: &KernelError) -> CommandError {
    CommandError(chain(error))
}

fn clear_marks(
    mut conntrack: Conntrack,
    mark: MarkBits,
    tasks: &Receiver<MarksToClear>,
    sender: &Sender<Message>,
) {
    for marks in tasks {
        let cleared = match &marks {
            MarksToClear::Generations(stale) => conntrack.clear_marks(mark, stale),
            MarksToClear::Addresses(addresses) => conntrack.clear_addresses(mark, addresses),
        };
        let outcome = TaskOutcome::ClearMarks(cleared.map(drop).map_err(|it| failed(&it)));
        if sender.send(Message::TaskFinished(outcome)).is_err() {
            return;
        }
    }
}

fn audit(
    mut auditor: Auditor,
    tasks: &Receiver<Audit>,
    changes: &AtomicU64,
    sender: &Sender<Message>,
) {
    for task in tasks {
        let outcome = TaskOutcome::Audit(compare(&mut auditor, &task, changes));
        if sender.send(Message::TaskFinished(outcome)).is_err() {
            return;
        }
    }
}

fn compare(
    auditor: &mut Auditor,
    task: &Audit,
    changes: &AtomicU64,
) -> Result<AuditOutcome, CommandError> {
    // Before the first installation there is no name; no table matches the empty one either.
    let table = task.table.as_deref().unwrap_or_default();
    let began = Instant::now();
    let go_on = || {
        // Relaxed: the counter orders nothing. A change that is noticed late only makes the outcome
        // void.
        let is_as_before = changes.load(Ordering::Relaxed) == task.changes;
        is_as_before && began.elapsed() < LONGEST_AUDIT
    };
    let ruleset = task.expected.ruleset();
    let audited = auditor.audit(table, &ruleset, task.from.as_deref(), &go_on);
    let audited = audited.map_err(|it| failed(&it))?;
    let differences = audited.differences.iter();
    Ok(AuditOutcome {
        differences: differences.map(ToString::to_string).collect(),
        stopped_at: audited.stopped_at,
    })
}
