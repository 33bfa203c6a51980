//! Installs a node's table in the kernel, and replaces it without a gap.
//!
//! A table that enforces is never replaced in one transaction: a packet between two chains at that
//! moment would see half of each table. The new table is filled under another name, and its base
//! chains come last. Then both tables enforce. Next, the old base chains are emptied, and then the
//! old table is deleted. Whatever fails between these steps, one complete table enforces, and the
//! next installation completes the rest.

pub(crate) mod audit;
mod probe;
pub(crate) mod read;

use nix::errno::Errno;

pub use self::audit::{AuditResult, Drift, TableAuditor};
pub use self::probe::Capabilities;
pub use self::read::{ChainRules, Element, RuleCount, RuleExpression, steps};

use crate::encode::{self, Batch, BatchItem, abi};
use crate::error::{BatchSource, Error, Refusal};
use crate::faults::Faults;
use crate::grace_period::let_packets_pass;
use crate::ruleset::Ruleset;
use crate::socket::{Channel, Refused};
use crate::transaction::Transaction;

/// The names of Palisade's tables; the digit is the version of their layout. One of them enforces,
/// and the other name is free for its replacement.
pub const TABLES: [&str; 2] = ["palisade1a", "palisade1b"];

/// The names of earlier layouts. An installation replaces these tables as well.
const OLDER_TABLES: &[&str] = &[];

/// The set whose only element is the generation of the ruleset.
pub const GENERATION_SET: &str = "generation";

/// A client of nftables in one network namespace. Its socket owns the tables, and protects them
/// from other programs while it is open.
#[derive(Debug)]
pub struct Kernel {
    channel: Channel,
    capabilities: Option<Capabilities>,
    /// Whether the socket owns the tables that it makes.
    owns: bool,
    /// The table that was installed or adopted.
    table: Option<String>,
}

/// The size of a committed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitStats {
    /// The number of its messages.
    pub messages: usize,
    /// The number of its bytes.
    pub bytes: usize,
}

/// The result of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadStats {
    /// The table that enforces now.
    pub table: &'static str,
    /// The table that enforced before.
    pub replaced: Option<String>,
    /// The number of transactions that filled the table.
    pub transactions: usize,
    /// The number of their bytes.
    pub bytes: usize,
}

/// One of Palisade's tables in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExistingTable {
    pub(crate) name: String,
    /// The kernel's number of the table. Later tables have larger ones.
    pub(crate) handle: u64,
    /// Whether it outlives its owner. Only such a table can be adopted: others never had an owner.
    pub(crate) persists: bool,
    pub(crate) owner: Option<u32>,
    /// Its base chains. They come with the last transaction: a table with base chains is complete.
    hooked: Vec<String>,
}

impl Kernel {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> Result<Kernel, Error> {
        Ok(Kernel {
            channel: Channel::open()?,
            capabilities: None,
            owns: true,
            table: None,
        })
    }

    /// Makes tables without an owner, as on kernels that lack the flag. Any program may change
    /// them.
    pub fn without_ownership(mut self) -> Kernel {
        self.owns = false;
        self
    }

    /// Injects faults into system calls, for tests.
    pub fn with_faults(mut self, faults: Box<dyn Faults>) -> Kernel {
        self.channel.inject(faults);
        self
    }

    /// Returns the netlink port of the socket. Notifications of changes name it, which identifies
    /// Palisade's own.
    pub fn port(&self) -> u32 {
        self.channel.port()
    }

    /// Returns the table that was installed or adopted. Transactions change this table.
    pub fn table(&self) -> Option<&str> {
        self.table.as_deref()
    }

    /// Returns the bytes of the largest transaction that fits into the socket's buffer. A larger
    /// ruleset is installed by several.
    pub fn largest_batch(&self) -> usize {
        self.channel.most()
    }

    /// Limits transactions to fewer bytes than the socket's buffer has.
    pub fn limit_batch(&mut self, most: usize) {
        self.channel.limit(most);
    }

    /// Installs a ruleset in place of the installed one, if any. The table's name in the value is
    /// ignored. After an error the old table enforces unchanged, or both do. If the error
    /// [is unknown](Error::is_unknown), the new table may enforce where there was none.
    pub fn install(&mut self, ruleset: &Ruleset) -> Result<LoadStats, Error> {
        let flags = self.table_flags()?;
        // First: an interrupted installation may have left both names taken.
        let old = self.settle()?;
        let is_free = |name: &&&str| old.as_ref().is_none_or(|old| old.name != ***name);
        let [first, _] = &TABLES;
        let table: &'static str = TABLES.iter().find(is_free).unwrap_or(first);

        let (mut transactions, mut bytes) = (0, 0);
        let mut batch = Batch::new();
        batch.add_table(table, flags);
        let most = self.channel.most();
        let filled = encode::ruleset(ruleset, table, batch, most, &mut |mut batch| {
            bytes += batch.len();
            self.transact(&mut batch, BatchSource::Ruleset(ruleset))?;
            transactions += 1;
            Ok(())
        });
        if let Err(error) = filled {
            // If the last answer is lost, the table may be complete, and the only one that
            // enforces. It stays; the next installation reads it back, and replaces or removes it.
            if transactions > 0 && !error.is_unknown() {
                // It has no base chain, and enforces nothing. If it cannot be deleted either, the
                // next installation deletes it.
                let mut batch = Batch::new();
                batch.delete_table(table);
                let _ = self.transact(&mut batch, BatchSource::Nothing);
            }
            return Err(error);
        }
        // Both tables enforce. From here on changes go into the new one, also if `retire` fails.
        self.table = Some(table.to_owned());
        if let Some(old) = &old {
            // A packet that passed the hook before the new base chains were there must still meet
            // the old ones.
            let_packets_pass();
            self.retire(old)?;
        }
        Ok(LoadStats {
            table,
            replaced: old.map(|old| old.name),
            transactions,
            bytes,
        })
    }

    /// Commits a transaction to the table that was installed or adopted. If it does not fit into
    /// the socket's buffer, it fails with [`Error::SmallBuffer`], and the whole table must be
    /// replaced, which can take several transactions. After an error nothing of it was done, unless
    /// the error [is unknown](Error::is_unknown).
    pub fn commit(&mut self, transaction: &Transaction) -> Result<CommitStats, Error> {
        let table = self.table.as_deref().ok_or(Error::NoTable)?;
        let mut batch = encode::transaction(transaction, table, self.channel.most())?;
        let committed = CommitStats {
            messages: batch.items().len().saturating_sub(1),
            bytes: batch.len(),
        };
        if !batch.is_empty() {
            if transaction.waits {
                // Packets in flight may still look up what this transaction deletes.
                let_packets_pass();
            }
            self.transact(&mut batch, BatchSource::Transaction(transaction))?;
        }
        Ok(committed)
    }

    /// Replaces the table of the ruleset's own name, for rulesets that enforce nothing, such as a
    /// lab's Services. For a moment there is no such table. It has no owner.
    pub fn install_plain(&mut self, ruleset: &Ruleset) -> Result<(), Error> {
        let table = ruleset.table.as_str();
        let mut batch = Batch::new();
        // A missing table cannot be deleted: added first, it is always there.
        batch.add_table(table, 0);
        batch.delete_table(table);
        batch.add_table(table, 0);
        let most = self.channel.most();
        encode::ruleset(ruleset, table, batch, most, &mut |mut batch| {
            self.transact(&mut batch, BatchSource::Ruleset(ruleset))
        })
    }

    /// Takes ownership of Palisade's tables whose owner has ended. Reports whether one of them
    /// enforces; transactions change that one from then on.
    pub fn adopt(&mut self) -> Result<bool, Error> {
        let flags = self.table_flags()?;
        let ours = self.ours()?;
        let port = self.channel.port();
        let mut batch = Batch::new();
        for table in &ours {
            // To add an existing table with its flags makes this socket the owner, if there is
            // none. The kernel refuses flags of ownership for a table that was made without them.
            if table.persists && table.owner != Some(port) {
                batch.add_table(&table.name, flags);
            }
        }
        if flags != 0 && !batch.is_empty() {
            self.transact(&mut batch, BatchSource::Nothing)?;
        }
        // Of two complete tables the later one is the replacement.
        let enforcing = ours.iter().rfind(|table| !table.hooked.is_empty());
        self.table = enforcing.map(|table| table.name.clone());
        Ok(self.table.is_some())
    }

    /// Deletes all of Palisade's tables. Returns their number. Nothing is enforced from then on.
    pub fn remove(&mut self) -> Result<usize, Error> {
        self.table = None;
        let ours = self.ours()?;
        let mut batch = Batch::new();
        for table in &ours {
            batch.delete_table(&table.name);
        }
        if !ours.is_empty() {
            self.transact(&mut batch, BatchSource::Nothing)?;
        }
        Ok(ours.len())
    }

    /// Returns the flags of Palisade's tables that the kernel supports.
    fn table_flags(&mut self) -> Result<u32, Error> {
        let capabilities = match self.capabilities {
            Some(capabilities) => capabilities,
            None => self.probe()?,
        };
        Ok(if self.owns {
            capabilities.table_flags()
        } else {
            0
        })
    }

    /// Completes interrupted installations. At most one table remains: the last complete one.
    fn settle(&mut self) -> Result<Option<ExistingTable>, Error> {
        let mut ours = self.ours()?;
        // Incomplete tables enforce nothing, and the last complete one replaces an earlier one:
        // both can go.
        let enforcing = ours.iter().rposition(|table| !table.hooked.is_empty());
        let enforcing = enforcing.map(|place| ours.remove(place));
        for table in &ours {
            self.retire(table)?;
        }
        Ok(enforcing)
    }

    /// Empties the base chains of a table, and then deletes it.
    fn retire(&mut self, table: &ExistingTable) -> Result<(), Error> {
        // Empty base chains accept everything, for every packet at one moment. A deletion alone
        // would also take map elements from packets that are still in the chains, and the
        // fail-closed rules would drop these.
        let mut batch = Batch::new();
        for chain in &table.hooked {
            batch.empty_chain(&table.name, chain);
        }
        if !batch.is_empty() {
            self.transact(&mut batch, BatchSource::Nothing)?;
        }
        let mut batch = Batch::new();
        batch.delete_table(&table.name);
        self.transact(&mut batch, BatchSource::Nothing)
    }

    /// Returns Palisade's tables in the order of their creation. It is an error if another socket
    /// owns one.
    fn ours(&mut self) -> Result<Vec<ExistingTable>, Error> {
        let ours = self.found()?;
        let port = self.channel.port();
        for table in &ours {
            // The kernel reports an owner only while its socket is open.
            if let Some(owner) = table.owner.filter(|owner| *owner != port) {
                let table = table.name.clone();
                return Err(Error::Owned { table, owner });
            }
        }
        Ok(ours)
    }

    fn transact(&mut self, batch: &mut Batch, whole: BatchSource<'_>) -> Result<(), Error> {
        let refused = self.channel.transact(batch)?;
        // The first refusal is the reason; others may follow from it.
        let Some(first) = refused.first() else {
            return Ok(());
        };
        let subject = batch.items().get(first.place);
        let subject = subject.unwrap_or(&BatchItem::Transaction);
        Err(subject.refusal(whole, first).into())
    }
}

/// Reports whether a table of this name is one of Palisade's.
pub(crate) fn is_ours(table: &str) -> bool {
    TABLES.iter().chain(OLDER_TABLES).any(|ours| *ours == table)
}

/// Makes the error of a refused dump.
pub(crate) fn unreadable(what: &str, refused: Refused) -> Error {
    Error::Refused(Refusal {
        action: format!("dump {what}"),
        is_whole: refused.errno == Errno::EPERM,
        operation: None,
        errno: refused.errno,
        words: refused.words,
    })
}

/// The flags of a table that only its owner changes, and that outlives its owner.
const OWNED: u32 = abi::table::FLAG_OWNER | abi::table::FLAG_PERSIST;
