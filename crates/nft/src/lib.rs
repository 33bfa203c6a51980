//! Network policy in nftables: a node's ruleset as a value, as text, and as netlink messages.

pub mod conntrack;
pub mod encode;
pub mod error;
pub mod faults;
mod flowtables;
mod grace_period;
pub mod load;
mod netlink;
pub mod node;
#[doc(hidden)]
pub mod reference;
pub mod ruleset;
mod socket;
mod text;
pub mod transaction;
pub mod update;
pub mod watch;

pub use conntrack::{ClearedMarks, Conntrack};
pub use error::{Error, Refusal};
pub use flowtables::{InstalledFlowtable, flowtables};
pub use load::{CommitStats, Drift, Kernel, LoadStats};
pub use transaction::{Op, Transaction};
pub use update::{TableUpdater, UpdateError};
pub use watch::{TableNotice, TableWatcher};
