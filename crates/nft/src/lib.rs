//! Network policy in the kernel: a node's ruleset as a value, as text, and as what nftables is told.

pub mod conntrack;
pub mod encode;
pub mod error;
pub mod load;
mod netlink;
pub mod node;
pub mod ruleset;
mod socket;
mod text;

pub use conntrack::Conntrack;
pub use error::{Error, Refusal};
pub use load::{Kernel, Loaded};
