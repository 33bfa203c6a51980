//! Network policy in the kernel: a node's ruleset as a value, as text, and as what nftables is told.

pub mod conntrack;
pub mod encode;
pub mod error;
pub mod faults;
mod flowtables;
pub mod load;
mod netlink;
pub mod node;
mod passing;
#[doc(hidden)]
pub mod reference;
pub mod ruleset;
mod socket;
mod text;
pub mod transaction;
pub mod upkeep;
pub mod watch;

pub use conntrack::{Conntrack, Forgotten};
pub use error::{Error, Refusal};
pub use flowtables::{Flowtable, flowtables};
pub use load::{Committed, Difference, Kernel, Loaded};
pub use transaction::{Op, Transaction};
pub use upkeep::{Upkeep, Whole};
pub use watch::{Notice, Watcher};
