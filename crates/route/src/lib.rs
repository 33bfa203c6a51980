//! The ways that packets take to the pods of a node: whether they pass the hooks of netfilter (D103), and which
//! interfaces lead to pods and which elsewhere (D147).
//!
//! [`Routes`] asks the kernel of the calling thread's network namespace; [`verdict`], [`programs`], [`flowtables`],
//! [`services`], [`elsewhere()`] and [`unchecked`] decide, without it, what the answers mean.

mod attached;
mod bpf;
mod bypass;
mod elsewhere;
mod flowtables;
mod kernel;
mod nesting;
mod programs;
#[doc(hidden)]
pub mod reference;
mod services;
mod traffic;

pub use attached::AttachedPrograms;
pub use bypass::{Bypass, HookPoint, LinkKind, PodRoute, verdict};
pub use elsewhere::{NodeInterface, UncheckedSenders, elsewhere, unchecked};
pub use flowtables::{Flowtable, flowtables};
pub use kernel::{Error, Routes};
pub use programs::{on_the_way, programs};
pub use services::{VirtualServices, services};
