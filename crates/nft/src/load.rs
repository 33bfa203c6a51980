//! The kernel's tables: putting a ruleset in place of the one before, without a moment between.
//!
//! A table that enforces is never changed as a whole in one transaction: a packet that is between
//! two chains at that moment would see half of each. The new table is filled under another name
//! and hooked in last, so that both enforce; then the old one's hooked chains are emptied; then it
//! is deleted. Whatever happens between these steps, one complete table enforces, and the next
//! installation finishes what was left.

pub(crate) mod audit;
mod probe;
pub(crate) mod read;

use nix::errno::Errno;

pub use self::audit::{AuditResult, Auditor, Drift};
pub use self::probe::Capabilities;
pub use self::read::{ChainRules, Element, RuleCount, RuleExpression, steps};

use crate::encode::{self, Batch, BatchItem, abi};
use crate::error::{BatchSource, Error, Refusal};
use crate::faults::Faults;
use crate::grace_period::let_packets_pass;
use crate::ruleset::Ruleset;
use crate::socket::{Channel, Refused};
use crate::transaction::Transaction;

/// The names of our tables; the digit is the version of what is in them. One of them enforces, the
/// other name is free for what replaces it.
pub const TABLES: [&str; 2] = ["palisade1a", "palisade1b"];

/// The names that older versions gave to their tables; an installation replaces those too.
const OLDER_TABLES: &[&str] = &[];

/// The set whose only element is the number of the ruleset's generation.
pub const GENERATION_SET: &str = "generation";

/// Our side of the conversation with nftables, in one network namespace. The tables are owned by
/// its socket: keep it for as long as they are to be protected from others.
#[derive(Debug)]
pub struct Kernel {
    channel: Channel,
    capabilities: Option<Capabilities>,
    /// Whether our tables are to belong to the socket.
    owns: bool,
    /// The table that was installed or adopted.
    table: Option<String>,
}

/// What a transaction took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitStats {
    /// Its messages.
    pub messages: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// What an installation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadStats {
    /// The table that enforces now.
    pub table: &'static str,
    /// The table that did before.
    pub replaced: Option<String>,
    /// In how many transactions the table was filled.
    pub transactions: usize,
    /// In how many bytes.
    pub bytes: usize,
}

/// A table of ours that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExistingTable {
    pub(crate) name: String,
    /// Later tables have larger ones.
    pub(crate) handle: u64,
    /// Whether it stays without its owner. Only such tables can be adopted: others never had one.
    pub(crate) persists: bool,
    pub(crate) owner: Option<u32>,
    /// Its hooked chains. They come with the last transaction, so a table that has some is complete.
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

    /// Makes tables that belong to nobody, as on kernels that know no owners: everyone may change them.
    pub fn without_ownership(mut self) -> Kernel {
        self.owns = false;
        self
    }

    /// Makes calls of the system go wrong, for tests.
    pub fn with_faults(mut self, faults: Box<dyn Faults>) -> Kernel {
        self.channel.inject(faults);
        self
    }

    /// The address of the socket. What others are told of our changes says that they are ours by it.
    pub fn port(&self) -> u32 {
        self.channel.port()
    }

    /// The table that was installed or adopted, which is the one that changes go into.
    pub fn table(&self) -> Option<&str> {
        self.table.as_deref()
    }

    /// The largest transaction that fits into the socket's buffer, in bytes. What is larger is
    /// filled in over several.
    pub fn largest_batch(&self) -> usize {
        self.channel.most()
    }

    /// Makes do with smaller transactions than the socket has room for.
    pub fn limit_batch(&mut self, most: usize) {
        self.channel.limit(most);
    }

    /// Puts a ruleset in place of ours, whichever it is. The table's name in the value does not
    /// count. On an error the old table enforces unchanged, or both do; if the error [is unknown](Error::is_unknown), the new one may enforce where there was none.
    pub fn install(&mut self, ruleset: &Ruleset) -> Result<LoadStats, Error> {
        let flags = self.table_flags()?;
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
            // Where the answer to the last transaction is missing, the table may be complete, and perhaps nothing else
            // enforces: the next installation looks, and replaces or removes it.
            if transactions > 0 && !error.is_unknown() {
                // Nothing of it is hooked. If it stays, the next installation removes it.
                let mut batch = Batch::new();
                batch.delete_table(table);
                let _ = self.transact(&mut batch, BatchSource::Nothing);
            }
            return Err(error);
        }
        self.table = Some(table.to_owned());
        if let Some(old) = &old {
            // Whoever has not met the new table yet must still meet the old one.
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

    /// Carries out a transaction on the table that was installed or adopted. What does not fit into the
    /// socket's buffer is [`Error::SmallBuffer`]: the whole table has to be replaced then, which can be done in several. After an error nothing of it was done,
    /// unless the error [is unknown](Error::is_unknown).
    pub fn commit(&mut self, transaction: &Transaction) -> Result<CommitStats, Error> {
        let table = self.table.as_deref().ok_or(Error::NoTable)?;
        let mut batch = encode::transaction(transaction, table, self.channel.most())?;
        let committed = CommitStats {
            messages: batch.subjects().len().saturating_sub(1),
            bytes: batch.len(),
        };
        if !batch.is_empty() {
            if transaction.waits {
                let_packets_pass();
            }
            self.transact(&mut batch, BatchSource::Transaction(transaction))?;
        }
        Ok(committed)
    }

    /// Replaces the table of the ruleset's own name, for rulesets that enforce nothing: those of a lab.
    /// It is gone for a moment. The table is not owned by anyone.
    pub fn install_plain(&mut self, ruleset: &Ruleset) -> Result<(), Error> {
        let table = ruleset.table.as_str();
        let mut batch = Batch::new();
        // Deleting what is not there would be refused.
        batch.add_table(table, 0);
        batch.delete_table(table);
        batch.add_table(table, 0);
        let most = self.channel.most();
        encode::ruleset(ruleset, table, batch, most, &mut |mut batch| {
            self.transact(&mut batch, BatchSource::Ruleset(ruleset))
        })
    }

    /// Takes ownership of our tables, if the process that made them has ended and they had an owner at all. Says whether one
    /// enforces; changes go into that one from then on.
    pub fn adopt(&mut self) -> Result<bool, Error> {
        let flags = self.table_flags()?;
        let ours = self.ours()?;
        let port = self.channel.port();
        let mut batch = Batch::new();
        for table in &ours {
            if table.persists && table.owner != Some(port) {
                batch.add_table(&table.name, flags);
            }
        }
        if flags != 0 && !batch.is_empty() {
            self.transact(&mut batch, BatchSource::Nothing)?;
        }
        let enforcing = ours.iter().rfind(|table| !table.hooked.is_empty());
        self.table = enforcing.map(|table| table.name.clone());
        Ok(self.table.is_some())
    }

    /// Deletes all our tables: from then on nothing is enforced. Says how many there were.
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

    /// The flags of our tables, as far as the kernel knows them.
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

    /// Finishes what earlier installations left behind, so that at most one table is left: the last
    /// one that was completed.
    fn settle(&mut self) -> Result<Option<ExistingTable>, Error> {
        let mut ours = self.ours()?;
        let enforcing = ours.iter().rposition(|table| !table.hooked.is_empty());
        let enforcing = enforcing.map(|place| ours.remove(place));
        for table in &ours {
            self.retire(table)?;
        }
        Ok(enforcing)
    }

    /// Empties a table's hooked chains, and then deletes it.
    fn retire(&mut self, table: &ExistingTable) -> Result<(), Error> {
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

    /// Our tables, in the order they were made. It is an error if another socket owns one.
    fn ours(&mut self) -> Result<Vec<ExistingTable>, Error> {
        let ours = self.found()?;
        let port = self.channel.port();
        for table in &ours {
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
        let subject = batch.subjects().get(first.place);
        let subject = subject.unwrap_or(&BatchItem::Transaction);
        Err(subject.refusal(whole, first).into())
    }
}

/// Whether a table of this name is ours.
pub(crate) fn is_ours(table: &str) -> bool {
    TABLES.iter().chain(OLDER_TABLES).any(|ours| *ours == table)
}

/// That the kernel did not let us read something.
pub(crate) fn unreadable(what: &str, refused: Refused) -> Error {
    Error::Refused(Refusal {
        action: format!("show {what}"),
        is_whole: refused.errno == Errno::EPERM,
        operation: None,
        errno: refused.errno,
        words: refused.words,
    })
}

/// The flags of a table that only its maker changes, and that outlives it.
const OWNED: u32 = abi::table::FLAG_OWNER | abi::table::FLAG_PERSIST;
