//! Encodes a ruleset as netlink messages.
//!
//! The kernel carries out a batch of messages as one transaction. A ruleset that does not fit into
//! one batch becomes several, and its base chains are in the last one.

pub(crate) mod abi;
mod expression;
mod transaction;

use std::collections::HashMap;

use crate::error::Error;
use crate::netlink::{self, MOST_OF_AN_ATTRIBUTE, Put, flag};
use crate::ruleset::{
    Chain, Field, Hook, Key, Match, Name, Point, Rule, Ruleset, Set, Statement, Values,
};
use abi::kind;

pub(crate) use self::transaction::{OperationPart, transaction};

/// The object of a message, for the error if the kernel refuses it. Parts of a ruleset are named by
/// their index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BatchItem {
    /// The transaction as a whole.
    Transaction,
    AddTable(Box<str>),
    DeleteTable(Box<str>),
    EmptyChain(Box<str>),
    AddChain(u32),
    AddSet(u32),
    /// The set, and the index of the first element.
    AddElements(u32, u32),
    /// The chain, and the rule in it.
    AddRule(u32, u32),
    /// An operation of a transaction, and a part of it.
    Operation(u32, OperationPart),
}

/// Messages that the kernel carries out together, or not at all.
#[derive(Debug)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// The object of each message; the first one stands for the batch.
    // The index of a message is its sequence number less that of the batch, which is how an answer
    // of the kernel finds its object.
    subjects: Vec<BatchItem>,
    /// The offset of the last message.
    last: usize,
}

/// A position between two messages.
#[derive(Clone, Copy, Debug)]
struct BatchPosition {
    bytes: usize,
    subjects: usize,
}

impl Batch {
    pub(crate) fn new() -> Batch {
        let mut bytes = Vec::new();
        netlink::begin(&mut bytes, abi::SUBSYSTEM);
        Batch {
            bytes,
            subjects: vec![BatchItem::Transaction],
            last: 0,
        }
    }

    /// Returns the objects of its messages, in order.
    pub(crate) fn items(&self) -> &[BatchItem] {
        &self.subjects
    }

    /// Returns its length in bytes when it is complete.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + netlink::BRACKET
    }

    /// Reports whether it has no message of its own.
    pub(crate) fn is_empty(&self) -> bool {
        self.subjects.len() <= 1
    }

    /// Completes the batch, with sequence numbers from `first` on, and returns its bytes.
    pub(crate) fn complete(&mut self, first: u32) -> &[u8] {
        // One acknowledgment answers for all messages. It is that of the last message, because old
        // kernels acknowledge neither the beginning nor the end of a batch.
        netlink::add_flags(&mut self.bytes, self.last, flag::ACK);
        netlink::end(&mut self.bytes, abi::SUBSYSTEM);
        netlink::number_messages(&mut self.bytes, first);
        &self.bytes
    }

    fn mark(&self) -> BatchPosition {
        BatchPosition {
            bytes: self.bytes.len(),
            subjects: self.subjects.len(),
        }
    }

    /// Moves the messages behind a position into a batch of their own.
    fn split(&mut self, at: BatchPosition) -> Batch {
        let mut rest = Batch::new();
        let shift = at.bytes - rest.bytes.len();
        rest.bytes
            .extend_from_slice(self.bytes.get(at.bytes..).unwrap_or_default());
        rest.subjects
            .extend(self.subjects.drain(at.subjects.min(self.subjects.len())..));
        rest.last = self.last.saturating_sub(shift);
        self.bytes.truncate(at.bytes);
        // The message before the position is the last one now, and requests the acknowledgment. Its
        // offset is not recorded; walking finds it.
        self.last = netlink::last_message(&self.bytes);
        rest
    }

    fn message(
        &mut self,
        kind: u16,
        flags: u16,
        subject: BatchItem,
        inside: impl FnOnce(&mut Vec<u8>),
    ) {
        self.last = self.bytes.len();
        self.subjects.push(subject);
        netlink::message(&mut self.bytes, kind, flags, abi::INET, inside);
    }

    /// Adds a table, or sets the flags of an existing one.
    pub(crate) fn add_table(&mut self, table: &str, flags: u32) {
        let subject = BatchItem::AddTable(table.into());
        self.message(kind::NEW_TABLE, flag::CREATE, subject, |bytes| {
            bytes.text(abi::table::NAME, table);
            bytes.number(abi::table::FLAGS, flags);
        });
    }

    /// Deletes a table with all its contents.
    pub(crate) fn delete_table(&mut self, table: &str) {
        let subject = BatchItem::DeleteTable(table.into());
        self.message(kind::DELETE_TABLE, 0, subject, |bytes| {
            bytes.text(abi::table::NAME, table);
        });
    }

    /// Deletes the rules of a chain. Packets then fall off its end.
    pub(crate) fn empty_chain(&mut self, table: &str, chain: &str) {
        self.delete_rules(table, chain, BatchItem::EmptyChain(chain.into()));
    }

    fn delete_rules(&mut self, table: &str, chain: &str, subject: BatchItem) {
        // A `DELRULE` without a handle deletes all rules of the chain.
        self.message(kind::DELETE_RULE, 0, subject, |bytes| {
            bytes.text(abi::rule::TABLE, table);
            bytes.text(abi::rule::CHAIN, chain);
        });
    }

    /// Adds a chain without its rules.
    pub(crate) fn add_chain(&mut self, table: &str, chain: &Chain, place: u32) {
        let subject = BatchItem::AddChain(place);
        self.new_chain(table, &chain.name, chain.hook, subject);
    }

    fn new_chain(&mut self, table: &str, name: &Name, hook: Option<Hook>, subject: BatchItem) {
        // Without `NLM_F_EXCL` the kernel would accept a chain that exists, with another program's
        // rules in it.
        let flags = flag::CREATE | flag::EXCLUSIVE;
        self.message(kind::NEW_CHAIN, flags, subject, |bytes| {
            bytes.text(abi::chain::TABLE, table);
            bytes.text(abi::chain::NAME, name.as_str());
            if let Some(hook) = hook {
                write_hook(hook, bytes);
            }
        });
    }

    /// Adds a set without its elements.
    pub(crate) fn add_set(&mut self, table: &str, set: &Set, place: u32) {
        self.new_set(table, set, place, BatchItem::AddSet(place));
    }

    /// Adds a set without its elements. The index distinguishes it from other sets of the batch.
    fn new_set(&mut self, table: &str, set: &Set, place: u32, subject: BatchItem) {
        use abi::set as attribute;
        let flags = flag::CREATE | flag::EXCLUSIVE;
        self.message(kind::NEW_SET, flags, subject, |bytes| {
            bytes.text(attribute::TABLE, table);
            bytes.text(attribute::NAME, set.name.as_str());
            let (flags, data) = match &set.values {
                Values::Nothing => (0, None),
                Values::Ranges => (attribute::FLAG_INTERVAL, None),
                Values::Verdicts(_) => (attribute::FLAG_MAP, Some((attribute::VERDICT, 0))),
                Values::Numbers(_) => {
                    let mark = key_type(&[Field::Number]);
                    (attribute::FLAG_MAP, Some((mark, 4)))
                }
            };
            bytes.number(attribute::FLAGS, flags);
            let key_type = match set.values {
                Values::Ranges => A_NUMBER,
                Values::Nothing | Values::Verdicts(_) | Values::Numbers(_) => key_type(&set.fields),
            };
            bytes.number(attribute::KEY_TYPE, key_type);
            bytes.number(attribute::KEY_LENGTH, set.width() as u32);
            // For verdicts the kernel ignores the length: it knows their size.
            if let Some((kind, length)) = data {
                bytes.number(attribute::DATA_TYPE, kind);
                bytes.number(attribute::DATA_LENGTH, length);
            }
            bytes.nest(attribute::DESCRIPTION, |bytes| {
                // With a size the kernel takes a hash table that does not grow: lookups are faster.
                bytes.number(attribute::DESCRIPTION_SIZE, set_size(set));
            });
            // Required by the kernel, and unique within the batch.
            bytes.number(attribute::ID, place + 1);
            if set.fields == [Field::Number] {
                bytes.bytes(attribute::USER_DATA, &IN_THE_MACHINES_ORDER);
            }
        });
    }

    /// Adds elements of a set from an index on, as many as one message can hold. Returns how many.
    fn add_elements(
        &mut self,
        table: &str,
        set: &Set,
        place: u32,
        first: usize,
        most: usize,
    ) -> usize {
        let subject = BatchItem::AddElements(place, first as u32);
        let how = (kind::NEW_ELEMENTS, flag::CREATE);
        self.elements(table, set, how, first, most, subject)
    }

    /// Writes a message about elements of a set from an index on, as many as it can hold. Returns
    /// how many.
    fn elements(
        &mut self,
        table: &str,
        set: &Set,
        (kind, flags): (u16, u16),
        first: usize,
        most: usize,
        subject: BatchItem,
    ) -> usize {
        let mut count = 0;
        self.message(kind, flags, subject, |bytes| {
            bytes.text(abi::elements::TABLE, table);
            bytes.text(abi::elements::SET, set.name.as_str());
            bytes.nest(abi::elements::ELEMENTS, |bytes| {
                let most = bytes.len() + most.min(MOST_OF_AN_ATTRIBUTE);
                for key in set.iter().skip(first) {
                    write_element(key, set, first + count, bytes);
                    count += 1;
                    // Both ends of a range are in one message. The kernel has no range without an
                    // end, and a transaction may be split here.
                    let is_whole = (first + count).is_multiple_of(set.values.together());
                    if bytes.len() > most && is_whole {
                        break;
                    }
                }
            });
        });
        count
    }

    /// Adds a rule to the end of a chain.
    pub(crate) fn add_rule(
        &mut self,
        table: &str,
        chain: &Chain,
        rule: &Rule,
        place: (u32, u32),
    ) -> Result<(), Error> {
        let subject = BatchItem::AddRule(place.0, place.1);
        self.new_rule(table, chain, rule, place.1, subject)
    }

    fn new_rule(
        &mut self,
        table: &str,
        chain: &Chain,
        rule: &Rule,
        number: u32,
        subject: BatchItem,
    ) -> Result<(), Error> {
        let flags = flag::CREATE | flag::APPEND;
        self.message(kind::NEW_RULE, flags, subject, |bytes| {
            bytes.text(abi::rule::TABLE, table);
            bytes.text(abi::rule::CHAIN, chain.name.as_str());
            bytes.nest(abi::rule::EXPRESSIONS, |bytes| {
                expression::write(rule, bytes);
            });
        });
        if self.bytes.len() - self.last > MOST_OF_AN_ATTRIBUTE {
            return Err(Error::Unusable(format!(
                "rule {} of chain {} is too long",
                number + 1,
                chain.name
            )));
        }
        Ok(())
    }
}

/// Hands a ruleset to `send`, in as few batches of at most `most` bytes as possible. `table` is the
/// name of the table; `batch` has the messages that come before. All base chains are in the last
/// batch.
pub(crate) fn ruleset(
    ruleset: &Ruleset,
    table: &str,
    mut batch: Batch,
    most: usize,
    send: &mut dyn FnMut(Batch) -> Result<(), Error>,
) -> Result<(), Error> {
    check(ruleset)?;
    let mut pass_on = |batch: &mut Batch, before: BatchPosition| -> Result<(), Error> {
        if batch.len() <= most {
            return Ok(());
        }
        // The batch was within the limit up to `before`. What follows begins the next batch, unless
        // that piece exceeds the limit by itself.
        let rest = batch.split(before);
        let full = std::mem::replace(batch, rest);
        if full.is_empty() || batch.len() > most {
            return Err(Error::SmallBuffer {
                needed: batch.len(),
                most,
            });
        }
        send(full)
    };

    // Everything that is named must exist: sets and chains come before elements and rules, which
    // name them.
    for (place, set) in (0..).zip(&ruleset.sets) {
        let before = batch.mark();
        batch.add_set(table, set, place);
        pass_on(&mut batch, before)?;
    }
    let chains = || (0..).zip(&ruleset.chains);
    let inner = || chains().filter(|(_, chain)| chain.hook.is_none());
    for (place, chain) in inner() {
        let before = batch.mark();
        batch.add_chain(table, chain, place);
        pass_on(&mut batch, before)?;
    }
    for (place, set) in (0..).zip(&ruleset.sets) {
        let mut first = 0;
        while first < set.len() {
            let before = batch.mark();
            // A quarter of a batch: a message that does not fit any more leaves little room unused.
            first += batch.add_elements(table, set, place, first, most / 4);
            pass_on(&mut batch, before)?;
        }
    }
    for (place, chain) in inner() {
        for (number, rule) in (0..).zip(&chain.rules) {
            let before = batch.mark();
            batch.add_rule(table, chain, rule, (place, number))?;
            pass_on(&mut batch, before)?;
        }
    }
    let before = batch.mark();
    // One position for all base chains: they are hooked in one transaction, and it is the last.
    for (place, chain) in chains().filter(|(_, chain)| chain.hook.is_some()) {
        batch.add_chain(table, chain, place);
        for (number, rule) in (0..).zip(&chain.rules) {
            batch.add_rule(table, chain, rule, (place, number))?;
        }
    }
    pass_on(&mut batch, before)?;
    send(batch)
}

/// Encodes the expressions of a rule.
pub fn expressions(rule: &Rule) -> Vec<u8> {
    let mut bytes = Vec::new();
    expression::write(rule, &mut bytes);
    bytes
}

/// Returns the size that the kernel makes a set with. Without a size it would take a hash table
/// that grows, which is slower.
pub(crate) fn set_size(set: &Set) -> u32 {
    set.size.max(set.len() as u32).max(1)
}

/// Rejects what the kernel would misread instead of refusing.
fn check(ruleset: &Ruleset) -> Result<(), Error> {
    ruleset.sets.iter().try_for_each(check_set)?;
    let sets = ruleset.sets.iter();
    let fields: HashMap<&Name, &[Field]> =
        sets.map(|set| (&set.name, set.fields.as_slice())).collect();
    for chain in &ruleset.chains {
        for (number, rule) in (1..).zip(&chain.rules) {
            // The kernel compares lengths of keys only: fields in another order would match
            // wrongly.
            for (set, key) in rule.keys() {
                if fields.get(set).is_some_and(|fields| *fields != key) {
                    let name = &chain.name;
                    return Err(Error::Unusable(format!(
                        "rule {number} of chain {name} has other key fields than set {set}"
                    )));
                }
            }
        }
    }
    Ok(())
}

fn check_set(set: &Set) -> Result<(), Error> {
    let problem = if set.fields.is_empty() {
        "has no fields"
    } else if set.width() > expression::REGISTERS_BYTES {
        "has keys that do not fit into the registers of the kernel"
    } else if !set.keys.len().is_multiple_of(set.width()) {
        "has a key that is not as long as its fields"
    } else if !set.len().is_multiple_of(set.values.together()) {
        "has a range without an end"
    } else if set.values.count().is_some_and(|count| count != set.len()) {
        "has more or fewer values than keys"
    } else {
        return Ok(());
    };
    Err(Error::Unusable(format!("set {} {problem}", set.name)))
}

impl Rule {
    /// Lists its lookups: each set with the fields of the key.
    fn keys(&self) -> Vec<(&Name, Vec<Field>)> {
        let fields = |key: &[Key]| key.iter().map(|part| part.field()).collect::<Vec<Field>>();
        let mut keys = Vec::new();
        for condition in &self.matches {
            if let Match::Lookup { set, key, .. } = condition {
                keys.push((set, fields(key)));
            } else if let Match::LookupNumber { map, of, set, rest } = condition {
                keys.push((map, fields(of)));
                let rest = fields(rest);
                keys.push((set, [vec![Field::Number], rest].concat()));
            }
        }
        for statement in &self.statements {
            if let Statement::Dispatch { map, key } = statement {
                keys.push((map, fields(key)));
            }
        }
        keys
    }
}

/// Returns the number of a hook.
pub(crate) fn hook_number(point: Point) -> u32 {
    match point {
        Point::Prerouting => 0,
        Point::Input => 1,
        Point::Forward => 2,
        Point::Output => 3,
        Point::Postrouting => 4,
    }
}

fn write_hook(hook: Hook, bytes: &mut Vec<u8>) {
    let number = hook_number(hook.point);
    bytes.nest(abi::chain::HOOK, |bytes| {
        bytes.number(abi::chain::HOOK_NUMBER, number);
        bytes.bytes(abi::chain::HOOK_PRIORITY, &hook.priority.to_be_bytes());
    });
    // Always accept: Palisade leaves packets alone that concern no pod.
    bytes.bytes(abi::chain::POLICY, &abi::verdict::ACCEPT.to_be_bytes());
    bytes.text(abi::chain::TYPE, if hook.nat { "nat" } else { "filter" });
}

fn write_element(key: &[u8], set: &Set, place: usize, bytes: &mut Vec<u8>) {
    bytes.nest(abi::LIST_ELEM, |bytes| {
        if set.is_end(place) {
            bytes.number(abi::elements::FLAGS, abi::elements::FLAG_END);
        }
        bytes.nest(abi::elements::KEY, |bytes| {
            bytes.bytes(abi::data::VALUE, key);
        });
        match &set.values {
            Values::Nothing | Values::Ranges => {}
            Values::Verdicts(verdicts) => {
                if let Some(verdict) = verdicts.get(place) {
                    bytes.nest(abi::elements::DATA, |bytes| {
                        expression::verdict(verdict, bytes);
                    });
                }
            }
            Values::Numbers(numbers) => {
                if let Some(number) = numbers.get(place) {
                    bytes.nest(abi::elements::DATA, |bytes| {
                        bytes.bytes(abi::data::VALUE, &number.to_ne_bytes());
                    });
                }
            }
        }
    });
}

/// The note that the `nft` program leaves for itself: the keys are in host byte order. With several
/// fields it needs no note.
// The kernel keeps it without reading it. Without the note, `nft list` prints numbers in the wrong
// order.
const IN_THE_MACHINES_ORDER: [u8; 6] = {
    let [a, b, c, d] = 1u32.to_ne_bytes();
    [0, 4, a, b, c, d]
};

/// The type that is declared for keys of ranges: a number.
// With the fields declared, `nft` 1.0.6 looks for ranges of each field, and crashes.
const A_NUMBER: u32 = 4;

/// Returns the number of a key's type, as the `nft` program has it. The kernel only keeps it.
// A concatenation is six bits for each field, the first field in the highest ones.
fn key_type(fields: &[Field]) -> u32 {
    fields.iter().fold(0, |types, field| {
        let number = match field {
            Field::V4 => 7,
            Field::V6 => 8,
            Field::L4 => 12,
            Field::Port => 13,
            Field::Number => 19,
            Field::Interface => 41,
        };
        types << 6 | number
    })
}

#[cfg(test)]
mod tests;
