//! Commands to the kernel, background tasks, and their outcomes.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::backend::Backend;

/// The agent's next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<B: Backend> {
    /// Carry out a command and pass its outcome to
    /// [`Agent::finished`](crate::agent::Agent::finished).
    Do(Command<B>),
    /// Start a task in the background and pass its outcome to
    /// [`Agent::task_finished`](crate::agent::Agent::task_finished).
    Spawn(Task<B>),
    /// Wait for an event or until this time; `None`: for an event only.
    Wait(Option<Duration>),
}

/// A change of the rules of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<B: Backend> {
    /// Install rules in place of the current ones.
    Install(Box<B::Rules>),
    /// Change the installed rules: one step after the other, up to the first failure.
    Commit(Vec<B::Step>),
}

/// Work that reads whole kernel tables, which takes seconds if they are large. Commands continue
/// meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task<B: Backend> {
    /// Clear marks of connections.
    ClearMarks(MarksToClear),
    /// Compare the installed table with the expected one.
    Audit {
        /// The expected contents.
        expected: Box<B::Expected>,
        /// The set at which to resume; `None`: from the beginning.
        from: Option<String>,
    },
}

/// The connections whose marks must be cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarksToClear {
    /// Connections that were evaluated under these generations.
    Generations(RangeInclusive<u16>),
    /// Connections of these addresses.
    Addresses(BTreeSet<IpAddr>),
}

/// The outcome of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskOutcome {
    /// Marks were cleared, or could not be.
    ClearMarks(Result<(), CommandError>),
    /// The table was compared, or could not be.
    Audit(Result<AuditOutcome, CommandError>),
}

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditOutcome {
    /// The differences, as text.
    pub differences: Vec<String>,
    /// The set at which to resume; `None`: the audit is complete.
    pub stopped_at: Option<String>,
}

/// Why a command or a task failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CommandError(pub String);

/// An outcome for logs, metrics and Events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncOutcome {
    /// A whole table was installed.
    Installed {
        /// Why the whole table.
        why: ReplaceReason,
        /// Its generation.
        generation: u16,
        /// How long its changes took.
        latency: Latency,
    },
    /// The node's pods were closed until all objects are synced.
    Closed,
    /// The table was updated.
    Changed {
        /// The number of transactions.
        transactions: usize,
        /// The new generation, if connections must be evaluated again.
        generation: Option<u16>,
        /// How long its changes took.
        took: Latency,
    },
    /// Objects changed without an effect on this node's table.
    Unaffected,
    /// Another program changed the table; the agent restores it.
    Drifted(Vec<String>),
    /// An audit found no difference.
    Verified,
    /// The marks of these generations were cleared.
    MarksCleared(RangeInclusive<u16>),
    /// The marks of all connections of this many addresses were cleared.
    AddressesCleared(usize),
    /// A command or a task failed.
    Failed {
        /// The action.
        what: FailedAction,
        /// The cause.
        why: String,
        /// The backoff before the next try.
        again_in: Duration,
        /// The number of consecutive failures.
        times: u32,
    },
}

/// An action of the agent that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailedAction {
    /// The node's pods were to be closed.
    Close,
    /// The whole table was to be installed.
    Install,
    /// The table was to be updated.
    Update,
    /// Marks of connections were to be cleared.
    ClearMarks,
    /// The table was to be compared with the expected one.
    Audit,
}

impl FailedAction {
    /// Returns whether the kernel was to change something. An audit only reads.
    pub fn is_change(self) -> bool {
        match self {
            FailedAction::Close
            | FailedAction::Install
            | FailedAction::Update
            | FailedAction::ClearMarks => true,
            FailedAction::Audit => false,
        }
    }
}

/// Writes the action in words that follow "cannot".
impl fmt::Display for FailedAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FailedAction::Close => "close the pods of this node",
            FailedAction::Install => "install the table",
            FailedAction::Update => "update the table",
            FailedAction::ClearMarks => "clear stale marks",
            FailedAction::Audit => "audit the table",
        })
    }
}

/// How long changes took to reach the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Since the first of them arrived.
    pub arrived: Duration,
    /// Since the first of them was written, according to its object.
    pub written: Option<Duration>,
    /// Since the arrival of each programmed pod of this node that has an address, or of its change.
    pub pods: Vec<Duration>,
}

/// Why a whole table is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReplaceReason {
    /// The agent has started.
    Start,
    /// The operator sent SIGHUP.
    Requested,
    /// Another program changed the table.
    Drift,
    /// A change failed: the contents of the table are unknown.
    Failure,
    /// A change does not fit into the sets of the table, or cannot be made in place.
    Growth,
    /// Settings of the table beside the plan have changed.
    Settings,
}
