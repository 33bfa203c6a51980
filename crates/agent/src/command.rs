//! What an agent does in the kernel, and how that went.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use palisade_nft::ruleset::Ruleset;
use palisade_nft::transaction::Transaction;
use palisade_nft::update::ExpectedTable;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This; [`Agent::finished`](crate::Agent::finished) takes how it went.
    Do(Command),
    /// This, in the background; [`Agent::task_finished`](crate::Agent::task_finished) takes what came of it.
    Spawn(Task),
    /// Nothing, until something happens or until this time; `None`: whatever the time is.
    Wait(Option<Duration>),
}

/// Something to be done in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Put a ruleset in place of whatever enforces.
    Install(Box<Ruleset>),
    /// Change the table that enforces, one transaction after the other, up to the first that fails.
    Commit(Vec<Transaction>),
}

/// Something that reads whole tables of the kernel, which takes seconds where they are large. Commands go on meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Forget marks of connections.
    ClearMarks(MarksToClear),
    /// Compare the table that enforces with what it should hold.
    Audit {
        /// What it should hold.
        expected: Box<ExpectedTable>,
        /// The set to go on from; `None`: everything is compared.
        from: Option<String>,
    },
}

/// Connections whose marks have to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarksToClear {
    /// Those that were judged under these generations.
    Generations(RangeInclusive<u16>),
    /// Those of these addresses.
    Addresses(BTreeSet<IpAddr>),
}

/// What came of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskOutcome {
    /// Marks were forgotten.
    ClearMarks(Result<(), CommandError>),
    /// The table was compared.
    Audit(Result<AuditOutcome, CommandError>),
}

/// What came of comparing the table that enforces with what it should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditOutcome {
    /// What is different, in words.
    pub differences: Vec<String>,
    /// The set that it has to go on from, if it ended early.
    pub stopped_at: Option<String>,
}

/// Why a command could not be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CommandError(pub String);

/// Something that happened, for whoever writes it down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncOutcome {
    /// A whole table was put in place.
    Installed {
        /// Why.
        why: ReplaceReason,
        /// The generation.
        generation: u16,
        /// How long its changes had to wait.
        latency: Latency,
    },
    /// The node's pods were closed until every object is known.
    Closed,
    /// The table was changed.
    Changed {
        /// How many transactions it took.
        transactions: usize,
        /// The generation, if connections are judged anew.
        generation: Option<u16>,
        /// How long its changes had to wait.
        took: Latency,
    },
    /// The objects changed, but nothing that this node enforces.
    Unaffected,
    /// Somebody else changed the table, which is put in place again.
    Drifted(Vec<String>),
    /// The kernel was asked, and the table is as it should be.
    Verified,
    /// Old marks were forgotten.
    MarksCleared(RangeInclusive<u16>),
    /// The marks of all connections of so many addresses were forgotten.
    AddressesCleared(usize),
    /// A command failed.
    Failed {
        /// What was to be done.
        what: &'static str,
        /// Why it failed.
        why: String,
        /// When it is tried again.
        again_in: Duration,
        /// How often it has failed since it last worked.
        times: u32,
    },
}

/// How long changes had to wait for the kernel's yes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Since the first of them came.
    pub arrived: Duration,
    /// Since the first of them was written, as far as objects say.
    pub written: Option<Duration>,
    /// Since each pod of this node that was programmed came with its address, or changed.
    pub pods: Vec<Duration>,
}

/// Why a whole table is put in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReplaceReason {
    /// The agent has started.
    Start,
    /// Somebody asked for it.
    Requested,
    /// Somebody else changed the table.
    Drift,
    /// A change failed, so that nobody knows what the table holds.
    Failure,
    /// A change does not fit into the table, or cannot be made in place.
    Growth,
    /// What the table depends on beside the plan has changed.
    Settings,
}
