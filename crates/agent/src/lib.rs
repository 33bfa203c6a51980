//! The node agent: keeps a node's kernel as the objects say, while everything changes.
//!
//! [`agent::Agent`] decides and does nothing: it is told what happened and when, and says what is to be
//! done next. [`drive`] carries that out on the real kernel; a simulation may do so on a model.

pub mod agent;
pub mod cluster;
pub mod drive;
pub mod events;
pub mod files;
pub mod marks;
pub mod metrics;
pub mod pace;
pub mod process;
pub mod serve;
mod waits;
pub mod words;

pub use agent::Agent;
pub use words::{
    Boot, Command, Compared, Config, Failed, FalseSenders, Happening, Marked, Next, Programs, Task,
    TaskOutcome, Took, UnknownPods, Why,
};
