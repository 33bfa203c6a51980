//! What is read of the kernel's messages, as functions of their bytes, for fuzz targets and their corpus. Not for use.
//!
//! Every reader is given every message, whatever it was asked for: a socket cannot be made to mix them up, bytes can.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use crate::conntrack::{PendingRequests, has_end, mark};
use crate::flowtables::{Flowtable, flowtable_in};
use crate::load::{ChainRules, Element, RuleExpression, audit, read, steps};
use crate::node::MarkBits;
use crate::socket::{Dump, DumpEnd, each_message};
use crate::watch::{self, Notice};

/// How an answer in pieces ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpOutcome {
    /// There are more pieces.
    Open,
    /// All was told.
    Complete,
    /// It has to be asked for once more.
    Again,
    /// The kernel refused, with this error and these words.
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

/// What an answer in pieces says of a table.
#[derive(Debug, Default)]
pub struct TableMessages {
    /// Our tables: name, number, whether it persists, owner.
    pub ours: Vec<(String, u64, bool, Option<u32>)>,
    /// Hooked chains, with their tables.
    pub hooked: Vec<(String, String)>,
    /// The chains of the table, and where they are hooked in: point, priority, policy, type.
    pub chains: BTreeMap<String, Option<audit::Hooked>>,
    /// The sets of the table: flags, length of a key, size.
    pub sets: BTreeMap<String, audit::Shape>,
    /// The rules of the table.
    pub rules: Vec<ChainRules>,
    /// The same, in a form that can be compared.
    pub steps: Vec<Vec<RuleExpression>>,
    /// What their counters counted.
    pub counters: Vec<(u64, u64)>,
    /// Elements of sets.
    pub elements: Vec<Element>,
    /// Flowtables.
    pub flowtables: Vec<Flowtable>,
}

/// What the pieces of an answer to request 0 say of a table, and how it ended.
pub fn tables(pieces: &[&[u8]], table: &str) -> (TableMessages, DumpOutcome) {
    let mut told = TableMessages::default();
    let mut rules = read::Chains::new();
    let mut dump = Dump::new(0);
    let mut end = None;
    for piece in pieces {
        end = dump.piece(piece, |message| {
            let found = read::found_in(message).into_iter();
            told.ours
                .extend(found.map(|it| (it.name, it.handle, it.persists, it.owner)));
            told.hooked.extend(read::hooked_in(message));
            told.chains.extend(audit::hook_in(table, message));
            told.sets.extend(audit::shape_in(table, message));
            read::note_rule(table, &mut rules, message);
            told.elements
                .extend(read::elements_in(message).map(read::element_of));
            told.flowtables.extend(flowtable_in(message));
        });
        if end.is_some() {
            break;
        }
    }
    for (chain, rules) in rules {
        told.steps.extend(rules.iter().map(|it| steps(it)));
        told.counters
            .extend(rules.iter().filter_map(|it| read::counter(it)));
        told.rules.push(ChainRules { chain, rules });
    }
    (told, end.into())
}

/// What is done to connections that were told of.
#[derive(Debug, Default)]
pub struct ConntrackMessages {
    /// The marks of all connections.
    pub marks: Vec<u32>,
    /// How many of them are meant.
    pub meant: usize,
    /// How many are to be changed: those that say which connection they are.
    pub count: usize,
    /// The messages that change them.
    pub changes: Vec<u8>,
}

/// What the pieces of an answer to request 0 say of connections, and what takes our bits from those that an address is an
/// end of.
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
                pending.forget(message, bits.mask());
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

/// What a message of a multicast group says of our tables, and whether it could be read to its end. What these sockets do
/// is our own doing.
pub fn notices(bytes: &[u8], ours: &[u32]) -> (Vec<Notice>, bool) {
    let mut waiting = VecDeque::new();
    let is_whole = each_message(bytes, |message| watch::note(ours, &mut waiting, &message));
    (waiting.into(), is_whole)
}

/// What answers to changes say: the number of an error or 0, and words.
pub fn answers(bytes: &[u8]) -> Vec<(i32, Option<String>)> {
    let mut all = Vec::new();
    each_message(bytes, |message| {
        all.push((message.error(), message.words()))
    });
    all
}
