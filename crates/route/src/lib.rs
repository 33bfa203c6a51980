//! The ways that packets take to the pods of a node: whether they pass the hooks of netfilter (D103), and which
//! interfaces lead to pods and which elsewhere (D147).
//!
//! [`Routes`] asks the kernel of the calling thread's network namespace; [`verdict`], [`elsewhere()`] and [`unchecked`] decide,
//! without it, what the answers mean.

mod bypass;
mod elsewhere;
mod kernel;
mod nesting;
#[doc(hidden)]
pub mod reference;

pub use bypass::{Bypass, Link, Way, verdict};
pub use elsewhere::{Interface, Unchecked, elsewhere, unchecked};
pub use kernel::{Error, Routes};
