//! The sockets to the kernel: transactions, notifications, audits and connection tracking.

use std::time::Duration;

use palisade_core::plan::Generation;
use palisade_core::text::name;
use palisade_nft::load::TableAuditor;
use palisade_nft::node::MarkBits;
use palisade_nft::ruleset::Ruleset;
use palisade_nft::transaction::Transaction;
use palisade_nft::update::ExpectedTable;
use palisade_nft::{Conntrack, Error, InstalledFlowtable, Kernel, TableNotice, TableWatcher};
use palisade_route::Flowtable;
use tracing::debug;

use super::Nft;
use crate::backend::{
    AdoptError, Auditor, Connect, Enforcer, Failure, Handles, Leftover, MarkClearer, Notice,
    Removed, Watcher,
};
use crate::command::{AuditOutcome, MarksToClear};

impl Connect for Nft {
    fn open(&self) -> Result<Box<dyn Enforcer<Nft>>, Failure> {
        Ok(Box::new(NftEnforcer {
            kernel: Kernel::open()?,
            conntrack: None,
        }))
    }

    fn connect(&self) -> Result<Handles<Nft>, Failure> {
        let kernel = Kernel::open()?;
        // Before the table is read or changed: no foreign change after that is missed. The kernel
        // also reports the agent's own transactions, which come from this port.
        let mut watcher = TableWatcher::open()?;
        watcher.ignore(kernel.port());
        Ok(Handles {
            enforcer: Box::new(NftEnforcer {
                kernel,
                conntrack: Some(Conntrack::open()?),
            }),
            watcher: Box::new(watcher),
            auditor: Box::new(TableAuditor::open()?),
            clearer: Box::new(CtMarkClearer {
                conntrack: Conntrack::open()?,
                mark: self.mark,
            }),
        })
    }

    fn clean_up(&self) -> Result<Removed, Failure> {
        let mut kernel = Kernel::open()?;
        let tables = kernel.remove()?;
        let mut conntrack = Conntrack::open()?;
        let cleared = conntrack.clear_marks(self.mark, &(1..=self.mark.last_generation()))?;
        Ok(Removed {
            tables,
            connections: cleared.cleared,
        })
    }
}

/// The socket that owns the table.
struct NftEnforcer {
    kernel: Kernel,
    /// Only counts connections.
    conntrack: Option<Conntrack>,
}

impl Enforcer<Nft> for NftEnforcer {
    fn adopt(&mut self) -> Result<Leftover, AdoptError> {
        match self.kernel.adopt() {
            Ok(true) => {}
            Ok(false) => return Ok(Leftover::Nothing),
            Err(error @ Error::Owned { .. }) => return Err(AdoptError::Busy(error.into())),
            Err(error) => return Err(AdoptError::Failed(error.into())),
        }
        Ok(match self.kernel.generation() {
            // Only a closed table has no generation.
            Ok(None) => Leftover::Closed,
            Ok(Some(number)) => {
                let number = u16::try_from(number).ok();
                let generation = number.and_then(Generation::new);
                Leftover::Rules(generation)
            }
            Err(error) => Leftover::Unreadable(error.into()),
        })
    }

    fn install(&mut self, ruleset: &Ruleset) -> Result<(), Failure> {
        let loaded = self.kernel.install(ruleset)?;
        debug!(table = loaded.table, bytes = loaded.bytes, "installed");
        Ok(())
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<(), Failure> {
        self.kernel.commit(transaction)?;
        Ok(())
    }

    fn place(&self) -> Option<String> {
        self.kernel.table().map(str::to_owned)
    }

    fn connections(&mut self) -> Option<(u32, u32)> {
        let conntrack = self.conntrack.as_mut()?;
        let count = conntrack.count().ok()?;
        // Older kernels do not report the limit.
        Some((count, conntrack.max().ok().flatten()?))
    }

    fn flowtables(&self) -> Result<Vec<Flowtable>, Failure> {
        let all = palisade_nft::flowtables()?;
        Ok(all.iter().map(flowtable).collect())
    }
}

/// Converts a flowtable. Its names are made safe to print: another program has chosen them.
fn flowtable(found: &InstalledFlowtable) -> Flowtable {
    Flowtable {
        table: name(&found.table),
        name: name(&found.name),
        interfaces: found.interfaces.clone(),
    }
}

impl Watcher for TableWatcher {
    fn next(&mut self, timeout: Duration) -> Result<Option<Notice>, Failure> {
        let notice = TableWatcher::next(self, timeout)?;
        Ok(notice.map(Into::into))
    }
}

impl From<TableNotice> for Notice {
    fn from(notice: TableNotice) -> Notice {
        match notice {
            TableNotice::Deleted { table } => {
                Notice::Changed(format!("the table `{table}` was deleted"))
            }
            TableNotice::Changed { table } => {
                Notice::Changed(format!("the table `{table}` was changed"))
            }
            TableNotice::Lost => Notice::Lost,
        }
    }
}

impl Auditor<Nft> for TableAuditor {
    fn audit(
        &mut self,
        place: Option<&str>,
        expected: &ExpectedTable,
        from: Option<&str>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<AuditOutcome, Failure> {
        // Before the first installation there is no name; no table matches the empty one either.
        let table = place.unwrap_or_default();
        // The ruleset is as large as the table, so it is made here and not in the main loop.
        let ruleset = expected.ruleset();
        let audited = TableAuditor::audit(self, table, &ruleset, from, go_on)?;
        let differences = audited.differences.iter();
        Ok(AuditOutcome {
            differences: differences.map(ToString::to_string).collect(),
            stopped_at: audited.stopped_at,
        })
    }
}

/// Clears ct marks, on a socket of its own.
struct CtMarkClearer {
    conntrack: Conntrack,
    mark: MarkBits,
}

impl MarkClearer for CtMarkClearer {
    fn clear(&mut self, marks: &MarksToClear) -> Result<(), Failure> {
        match marks {
            MarksToClear::Generations(stale) => self.conntrack.clear_marks(self.mark, stale)?,
            MarksToClear::Addresses(addresses) => {
                self.conntrack.clear_addresses(self.mark, addresses)?
            }
        };
        Ok(())
    }
}
