//! Errors of the kernel, and what to do about them.

use std::io;

use nix::errno::Errno;
use palisade_core::text;
use thiserror::Error;

use crate::encode::{BatchItem, OperationPart};
use crate::ruleset::Ruleset;
use crate::socket::Refused;
use crate::transaction::{Op, Transaction};

/// Why the kernel's tables could not be read or changed.
#[derive(Debug, Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {action}: {source}{}", hinted(call_hint(source)))]
    Call {
        /// The attempt, in words that follow "cannot".
        action: &'static str,
        /// The error of the call.
        source: io::Error,
    },
    /// The kernel refused a message, and did nothing of the transaction.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The kernel did not answer whether it carried out a transaction.
    #[error("the kernel did not respond; read its tables back before a retry")]
    NoAnswer,
    /// The kernel's answer to a transaction could not be read.
    #[error("cannot read the kernel's response: {source}; read its tables back before a retry")]
    Unread {
        /// The error of the call.
        source: io::Error,
    },
    /// No Palisade table is installed, and none can be changed.
    #[error("no Palisade table is installed")]
    NoTable,
    /// The tables changed during each of several dumps.
    #[error("the kernel's tables changed during each dump; try again")]
    Restless,
    /// A transaction is larger than the socket's buffer, and cannot be split.
    #[error(
        "a transaction of {needed} bytes does not fit into the socket's buffer of {most} bytes; run as root, or raise the sysctl net.core.wmem_max"
    )]
    SmallBuffer {
        /// The bytes of the transaction.
        needed: usize,
        /// The bytes of the largest transaction that fits.
        most: usize,
    },
    /// The ruleset has no encoding for the kernel.
    #[error("the ruleset is unusable: {0}")]
    Unusable(String),
    /// The kernel lacks features that every ruleset needs.
    #[error(
        "the kernel lacks {}; load or build the modules nf_tables, nft_ct and nf_conntrack, or use a newer kernel",
        .0.join(", ")
    )]
    Lacking(Vec<&'static str>),
    /// Another running program owns one of Palisade's tables.
    #[error("another running program owns the table `{table}` (socket {owner}); stop it first")]
    Owned {
        /// The name of the table.
        table: String,
        /// The netlink port of the owner's socket, usually the id of its process.
        owner: u32,
    },
}

impl Error {
    /// Reports whether the kernel may have carried out the transaction nevertheless. Otherwise
    /// nothing of it was done.
    pub fn is_unknown(&self) -> bool {
        match self {
            // The kernel works on a batch while it is sent: after a successful send only the answer
            // is missing.
            Error::NoAnswer | Error::Unread { .. } => true,
            Error::Call { .. }
            | Error::Refused(_)
            | Error::NoTable
            | Error::Restless
            | Error::SmallBuffer { .. }
            | Error::Unusable(_)
            | Error::Lacking(_)
            | Error::Owned { .. } => false,
        }
    }
}

/// A message that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the kernel refused to {action}: {}{}{}", errno.desc(), kernel_message(words), hinted(self.hint()))]
pub struct Refusal {
    /// The operation, in words that follow "refused to".
    pub action: String,
    /// The error number.
    pub errno: Errno,
    /// The kernel's own message, if there was one.
    pub words: Option<String>,
    /// Whether the kernel refused the transaction as a whole.
    pub is_whole: bool,
    /// The index of the operation in its [`Transaction`].
    pub operation: Option<usize>,
}

impl Refusal {
    /// Returns what to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        #[allow(clippy::wildcard_enum_match_arm, reason = "few errors have a hint")]
        match self.errno {
            // Without the capability the kernel refuses the whole batch. A refused message in it is
            // a matter of ownership, as a rule.
            Errno::EPERM if self.is_whole => {
                Some("this needs CAP_NET_ADMIN in the network namespace")
            }
            Errno::EPERM => Some(
                "another program owns it, or CAP_NET_ADMIN is missing in the network namespace",
            ),
            Errno::ENOBUFS | Errno::EMSGSIZE | Errno::ENOMEM => {
                Some("the kernel has no room for the transaction")
            }
            Errno::EBUSY => Some("it is in use"),
            Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT => {
                Some("the kernel lacks a feature or a module for it")
            }
            Errno::ENOENT => Some("the named object does not exist, or the kernel lacks a module"),
            Errno::EEXIST => Some("it already exists"),
            Errno::ENFILE => Some("the set is full"),
            Errno::ELOOP | Errno::EMLINK => Some("the chains form a loop, or nest too deep"),
            Errno::ERESTART | Errno::EAGAIN => Some("try again"),
            _ => None,
        }
    }
}

fn kernel_message(message: &Option<String>) -> String {
    match message {
        Some(message) => format!(" ({})", text::name(message)),
        None => String::new(),
    }
}

fn hinted(hint: Option<&'static str>) -> String {
    hint.map(|hint| format!("; {hint}")).unwrap_or_default()
}

fn call_hint(error: &io::Error) -> Option<&'static str> {
    #[allow(clippy::wildcard_enum_match_arm, reason = "few errors have a hint")]
    match Errno::from_raw(error.raw_os_error()?) {
        Errno::EPERM | Errno::EACCES => Some("this needs CAP_NET_ADMIN in the network namespace"),
        Errno::EPROTONOSUPPORT => Some("the kernel has no netfilter"),
        Errno::EMSGSIZE | Errno::ENOBUFS => {
            Some("run as root, or raise the sysctl net.core.wmem_max")
        }
        _ => None,
    }
}

/// The value that a batch encodes. Its indices name the objects of messages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BatchSource<'w> {
    Nothing,
    Ruleset(&'w Ruleset),
    Transaction(&'w Transaction),
}

impl BatchItem {
    /// Returns the refusal of its message.
    pub(crate) fn refusal(&self, whole: BatchSource<'_>, refused: &Refused) -> Refusal {
        Refusal {
            action: self.words(whole),
            errno: refused.errno,
            words: refused.words.clone(),
            is_whole: *self == BatchItem::Transaction,
            operation: match self {
                BatchItem::Operation(place, _) => Some(*place as usize),
                BatchItem::Transaction
                | BatchItem::AddTable(_)
                | BatchItem::DeleteTable(_)
                | BatchItem::EmptyChain(_)
                | BatchItem::AddChain(_)
                | BatchItem::AddSet(_)
                | BatchItem::AddElements(..)
                | BatchItem::AddRule(..) => None,
            },
        }
    }

    /// Returns the operation in words. Indices count in the encoded value.
    pub(crate) fn words(&self, whole: BatchSource<'_>) -> String {
        let (ruleset, transaction) = match whole {
            BatchSource::Nothing => (None, None),
            BatchSource::Ruleset(ruleset) => (Some(ruleset), None),
            BatchSource::Transaction(transaction) => (None, Some(transaction)),
        };
        let set = |place: u32| {
            let set = ruleset.and_then(|ruleset| ruleset.sets.get(place as usize));
            set.map_or_else(String::new, |set| format!(" `{}`", set.name))
        };
        let chain = |place: u32| {
            let chain = ruleset.and_then(|ruleset| ruleset.chains.get(place as usize));
            chain.map_or_else(String::new, |chain| format!(" `{}`", chain.name))
        };
        match self {
            BatchItem::Transaction => "commit a transaction".to_owned(),
            BatchItem::AddTable(table) => format!("add the table `{}`", text::name(table)),
            BatchItem::DeleteTable(table) => format!("delete the table `{}`", text::name(table)),
            BatchItem::EmptyChain(chain) => format!("flush the chain `{}`", text::name(chain)),
            BatchItem::AddChain(place) => format!("add the chain{}", chain(*place)),
            BatchItem::AddSet(place) => format!("add the set{}", set(*place)),
            BatchItem::AddElements(place, first) => {
                format!(
                    "add elements to the set{}, from element {} on",
                    set(*place),
                    first + 1
                )
            }
            BatchItem::AddRule(place, number) => {
                format!("add rule {} of the chain{}", number + 1, chain(*place))
            }
            BatchItem::Operation(place, part) => {
                let op = transaction.and_then(|it| it.ops.get(*place as usize));
                let op = op.map_or_else(|| "change a table".to_owned(), Op::to_string);
                match part {
                    OperationPart::Whole => op,
                    OperationPart::Rule(number) => format!("{op}, at rule {}", number + 1),
                    OperationPart::Elements(first) => {
                        format!("{op}, from element {} on", first + 1)
                    }
                }
            }
        }
    }
}
