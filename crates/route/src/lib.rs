//! The paths of packets to the pods of a node: whether they pass the netfilter hooks (D103), and
//! which interfaces lead to pods and which elsewhere (D147).
//!
//! [`Routes`] queries the kernel in the network namespace of the calling thread. [`verdict`],
//! [`programs()`], [`flowtables()`], [`services()`], [`elsewhere()`] and [`unchecked`] evaluate the
//! answers without I/O.

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
pub use programs::{on_path, programs};
pub use services::{VirtualServices, services};
