//! The node agent: keeps a node's kernel as the objects say, while everything changes.
//!
//! [`agent::Agent`] decides and does nothing: it is told what happened and when, and says what is to be
//! done next. [`drive`] carries that out on the real kernel; a simulation may do so on a model.

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
pub mod process;
pub mod throttle;

pub use agent::Agent;
pub use command::{
    AuditOutcome, Command, CommandError, Latency, MarksToClear, Next, ReplaceReason, SyncOutcome,
    Task, TaskOutcome,
};
pub use config::{BootPolicy, Config, FalseSenders, Programs, UnknownPods};
