//! The ways that packets take to the pods of a node, and whether they pass the hooks of netfilter (D103).
//!
//! [`Routes`] asks the kernel of the calling thread's network namespace; [`verdict`] decides, without it, what the answers mean.

mod bypass;
mod kernel;

pub use bypass::{Bypass, Link, Way, verdict};
pub use kernel::{Error, Routes};
