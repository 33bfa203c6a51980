//! The node agent: enforces the policies of a cluster, or of a directory, in the kernel of one
//! node.
//!
//! [`agent::Agent`] decides without I/O: it takes events with their times and returns the next
//! command. [`drive`] carries commands out. [`backend`] is the seam to what enforces: the kernel's
//! nftables, or a model of it in a simulation.

pub mod agent;
pub mod backend;
pub mod cluster;
pub mod command;
pub mod config;
pub mod drive;
pub mod events;
pub mod files;
pub mod generations;
pub mod http;
mod latency;
pub mod metrics;
pub mod objects;
pub mod process;
pub mod throttle;

pub use backend::Notice;
pub use backend::nft::Nft;
pub use command::{
    AuditOutcome, CommandError, FailedAction, Latency, MarksToClear, ReplaceReason, SyncOutcome,
    TaskOutcome,
};
pub use config::{BootPolicy, Config, Established, FalseSenders, Programs, UnknownPods};
pub use palisade_core::plan::Generation;

/// The agent of a node that enforces with nftables.
pub type Agent = agent::Agent<Nft>;
/// Its next step.
pub type Next = command::Next<Nft>;
/// A change of its table.
pub type Command = command::Command<Nft>;
/// A task in its background.
pub type Task = command::Task<Nft>;
