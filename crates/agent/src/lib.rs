//! The node agent: enforces the policies of a cluster, or of a directory, in the kernel of one
//! node.
//!
//! [`agent::Agent`] decides without I/O: it takes events with their times and returns the next
//! command. [`drive`] carries commands out in the real kernel. A simulation can carry them out on a
//! model.

pub mod agent;
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

pub use agent::Agent;
pub use command::{
    AuditOutcome, Command, CommandError, FailedAction, Latency, MarksToClear, Next, ReplaceReason,
    SyncOutcome, Task, TaskOutcome,
};
pub use config::{BootPolicy, Config, FalseSenders, Programs, UnknownPods};
