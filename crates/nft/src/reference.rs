//! The readers of kernel messages as functions of bytes, for fuzz targets and their corpus. Not for
//! use.
//!
//! Every reader gets every message, whatever was requested: a socket cannot be made to mix them up,
//! bytes can.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use crate::conntrack::{PendingRequests, has_end, mark};
use crate::flowtables::{InstalledFlowtable, flowtable_in};
use crate::load::{ChainRules, Element, RuleExpression, audit, read, steps};
use crate::node::MarkBits;
use crate::socket::{Dump, DumpEnd, each_message};
use crate::watch::{self, TableNotice};

/// The end of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpOutcome {
    /// More pieces follow.
    Open,
    /// The dump is complete.
    Complete,
    /// The dump must be repeated.
    Again,
    /// The kernel refused it, with this error and this message.
    Refused(i32, Option<String>),
}

impl From<Option<DumpEnd>> for DumpOutcome {
    fn from(end: Option<DumpEnd>) -> DumpOutcome {
        match end {
            None => DumpOutcome::Open,
            Some(DumpEnd::Complete) => DumpOutcome::Complete,
            Some(DumpEnd::Torn | DumpEnd::Busy) => DumpOutcome::Again,
            Some(DumpEnd::Refused(it)) => DumpOutcome::Refused(it.errno as i32, it.words),
        }
    }
}

/// The contents of a table, as a dump has them.
#[derive(Debug, Default)]
pub struct TableMessages {
    /// Palisade's tables: name, number, whether it persists, owner.
    pub ours: Vec<(String, u64, bool, Option<u32>)>,
    /// Base chains, with their tables.
    pub hooked: Vec<(String, String)>,
    /// The chains of the table, and of base chains: hook, priority, policy, type.
    pub chains: BTreeMap<String, Option<audit::Hooked>>,
    /// The sets of the table: flags, length of a key, size.
    pub sets: BTreeMap<String, audit::Shape>,
    /// The rules of the table.
    pub rules: Vec<ChainRules>,
    /// The same, in a form that can be compared.
    pub steps: Vec<Vec<RuleExpression>>,
    /// The counters of the rules.
    pub counters: Vec<(u64, u64)>,
    /// Elements of sets.
    pub elements: Vec<Element>,
    /// Flowtables.
    pub flowtables: Vec<InstalledFlowtable>,
}

/// Reads a table from the pieces of the answer to request 0, and how the answer ended.
pub fn tables(pieces: &[&[u8]], table: &str) -> (TableMessages, DumpOutcome) {
    let mut contents = TableMessages::default();
    let mut rules = read::Chains::new();
    let mut dump = Dump::new(0);
    let mut end = None;
    for piece in pieces {
        end = dump.piece(piece, |message| {
            let found = read::found_in(message).into_iter();
            contents
                .ours
                .extend(found.map(|it| (it.name, it.handle, it.persists, it.owner)));
            contents.hooked.extend(read::hooked_in(message));
            contents.chains.extend(audit::hook_in(table, message));
            contents.sets.extend(audit::shape_in(table, message));
            read::note_rule(table, &mut rules, message);
            contents
                .elements
                .extend(read::elements_in(message).map(read::element_of));
            contents.flowtables.extend(flowtable_in(message));
        });
        if end.is_some() {
            break;
        }
    }
    for (chain, rules) in rules {
        contents.steps.extend(rules.iter().map(|it| steps(it)));
        contents
            .counters
            .extend(rules.iter().filter_map(|it| read::counter(it)));
        contents.rules.push(ChainRules { chain, rules });
    }
    (contents, end.into())
}

/// The requests that follow from dumped connections.
#[derive(Debug, Default)]
pub struct ConntrackMessages {
    /// The marks of all connections.
    pub marks: Vec<u32>,
    /// The number of those with one of the addresses.
    pub meant: usize,
    /// The number of requests. An entry without a tuple gets none.
    pub count: usize,
    /// The requests.
    pub changes: Vec<u8>,
}

/// Reads connections from the pieces of the answer to request 0. Returns the requests that clear
/// the Palisade bits of those with one of the addresses.
pub fn connections(
    pieces: &[&[u8]],
    bits: MarkBits,
    addresses: &BTreeSet<IpAddr>,
) -> (ConntrackMessages, DumpOutcome) {
    let mut all = ConntrackMessages::default();
    let mut pending = PendingRequests::default();
    let mut dump = Dump::new(0);
    let mut end = None;
    for piece in pieces {
        end = dump.piece(piece, |message| {
            let attributes = message.attributes();
            all.marks.push(mark(attributes));
            if has_end(attributes, addresses) {
                all.meant += 1;
                pending.clear_bits(message, bits.mask());
            }
        });
        if end.is_some() {
            break;
        }
    }
    all.count = pending.count;
    all.changes = pending.bytes;
    (all, end.into())
}

/// Reads the notices about Palisade's tables from a multicast message, and whether it was well
/// formed to its end. Changes of the sockets in `ours` give no notice.
pub fn notices(bytes: &[u8], ours: &[u32]) -> (Vec<TableNotice>, bool) {
    let mut waiting = VecDeque::new();
    let is_whole = each_message(bytes, |message| watch::note(ours, &mut waiting, &message));
    (waiting.into(), is_whole)
}

/// Reads answers to changes: the error number or 0, and the kernel's message.
pub fn answers(bytes: &[u8]) -> Vec<(i32, Option<String>)> {
    let mut all = Vec::new();
    each_message(bytes, |message| {
        all.push((message.error(), message.words()))
    });
    all
}
