//! What can go wrong between us and the kernel.

use std::io;

use nix::errno::Errno;
use palisade_core::text;
use thiserror::Error;

use crate::encode::{BatchItem, OperationPart};
use crate::ruleset::Ruleset;
use crate::socket::Refused;
use crate::transaction::{Op, Transaction};

/// Why something could not be done in the kernel.
#[derive(Debug, Error)]
pub enum Error {
    /// A call of the system failed.
    #[error("cannot {action}: {source}{}", hinted(call_hint(source)))]
    Call {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The kernel refused something, and did nothing of the transaction.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The kernel did not say whether it carried out a transaction.
    #[error("the kernel did not answer; look at what it holds before trying again")]
    NoAnswer,
    /// What the kernel said to a transaction could not be read.
    #[error(
        "the kernel's answer cannot be read: {source}; look at what it holds before trying again"
    )]
    Unread {
        /// Why.
        source: io::Error,
    },
    /// There is no table of ours that enforces, so that nothing can be changed in it.
    #[error("no table of ours enforces; install a ruleset first")]
    NoTable,
    /// Something kept changing while it was read.
    #[error("the kernel's tables changed each time they were read; try again")]
    Restless,
    /// Something that has to go in one transaction does not fit into one.
    #[error(
        "a transaction of {needed} bytes does not fit into the socket's buffer of {most} bytes; run as root, or raise the sysctl net.core.wmem_max"
    )]
    SmallBuffer {
        /// Its bytes.
        needed: usize,
        /// What fits.
        most: usize,
    },
    /// A ruleset that cannot be given to the kernel.
    #[error("the ruleset is unusable: {0}")]
    Unusable(String),
    /// The kernel lacks something.
    #[error(
        "the kernel lacks {}; load or build the modules nf_tables, nft_ct and nf_conntrack, or use a newer kernel",
        .0.join(", ")
    )]
    Lacking(Vec<&'static str>),
    /// Another program holds one of our tables.
    #[error(
        "the table `{table}` belongs to another running program, by its socket {owner}; stop it first"
    )]
    Owned {
        /// The table.
        table: String,
        /// The address of its owner's socket, which is mostly the number of its process.
        owner: u32,
    },
}

impl Error {
    /// Whether the kernel may have done what it was told nevertheless. If not, it did nothing of the
    /// transaction that failed.
    pub fn is_unknown(&self) -> bool {
        match self {
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

/// What the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the kernel refused to {action}: {}{}{}", errno.desc(), kernel_message(words), hinted(self.hint()))]
pub struct Refusal {
    /// What it was to do, in words.
    pub action: String,
    /// Its reason.
    pub errno: Errno,
    /// Its words, if it had any.
    pub words: Option<String>,
    /// Whether it was about the transaction as a whole.
    pub is_whole: bool,
    /// The operation of a [`Transaction`], by its place.
    pub operation: Option<usize>,
}

impl Refusal {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        #[allow(
            clippy::wildcard_enum_match_arm,
            reason = "there is something to say about a few errors only"
        )]
        match self.errno {
            Errno::EPERM if self.is_whole => {
                Some("this needs CAP_NET_ADMIN in the network namespace")
            }
            Errno::EPERM => Some(
                "another program owns it, or this lacks CAP_NET_ADMIN in the network namespace",
            ),
            Errno::ENOBUFS | Errno::EMSGSIZE | Errno::ENOMEM => {
                Some("the kernel has no room for the transaction")
            }
            Errno::EBUSY => Some("something else is using it"),
            Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT => {
                Some("the kernel lacks a feature or a module for it")
            }
            Errno::ENOENT => {
                Some("what it names does not exist, or the kernel lacks a module for it")
            }
            Errno::EEXIST => Some("it is there already"),
            Errno::ENFILE => Some("the set is full"),
            Errno::ELOOP | Errno::EMLINK => {
                Some("chains lead to each other in a circle, or too deep")
            }
            Errno::ERESTART | Errno::EAGAIN => Some("try again"),
            _ => None,
        }
    }
}

fn kernel_message(words: &Option<String>) -> String {
    match words {
        Some(words) => format!(" ({})", text::name(words)),
        None => String::new(),
    }
}

fn hinted(hint: Option<&'static str>) -> String {
    hint.map(|hint| format!("; {hint}")).unwrap_or_default()
}

fn call_hint(error: &io::Error) -> Option<&'static str> {
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "there is something to say about a few errors only"
    )]
    match Errno::from_raw(error.raw_os_error()?) {
        Errno::EPERM | Errno::EACCES => Some("this needs CAP_NET_ADMIN in the network namespace"),
        Errno::EPROTONOSUPPORT => Some("the kernel has no netfilter"),
        Errno::EMSGSIZE | Errno::ENOBUFS => {
            Some("run as root, or raise the sysctl net.core.wmem_max")
        }
        _ => None,
    }
}

/// What the messages of a batch were made of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BatchSource<'w> {
    Nothing,
    Ruleset(&'w Ruleset),
    Transaction(&'w Transaction),
}

impl BatchItem {
    /// Its refusal.
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

    /// What was to be done, in words. The places are those of what was to be done.
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
            BatchItem::Transaction => "carry out a transaction".to_owned(),
            BatchItem::AddTable(table) => format!("add the table `{}`", text::name(table)),
            BatchItem::DeleteTable(table) => format!("delete the table `{}`", text::name(table)),
            BatchItem::EmptyChain(chain) => format!("empty the chain `{}`", text::name(chain)),
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
