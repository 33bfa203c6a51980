//! A ruleset as messages for the kernel.
//!
//! The kernel carries out a batch of messages as one transaction. A ruleset that does not fit into
//! one is given in several: nothing of it is hooked before the last of them.

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

/// What a message is about, to name it when the kernel refuses it. Parts of a ruleset are
/// named by their places in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BatchItem {
    /// The transaction as a whole.
    Transaction,
    AddTable(Box<str>),
    DeleteTable(Box<str>),
    EmptyChain(Box<str>),
    AddChain(u32),
    AddSet(u32),
    /// From which element on.
    AddElements(u32, u32),
    /// The chain and the rule in it.
    AddRule(u32, u32),
    /// An operation of a transaction, by its place, and which part of it.
    Operation(u32, OperationPart),
}

/// Messages that are carried out together, or not at all.
#[derive(Debug)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// The first is the transaction.
    subjects: Vec<BatchItem>,
    /// Where the last message begins.
    last: usize,
}

/// A place between messages.
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

    /// What its messages are about, in order.
    pub(crate) fn subjects(&self) -> &[BatchItem] {
        &self.subjects
    }

    /// Its bytes when it is complete.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + netlink::BRACKET
    }

    /// Whether it says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.subjects.len() <= 1
    }

    /// The complete bytes, their messages numbered from `first` on. The last message is to be
    /// acknowledged: old kernels do not acknowledge the end of a batch, nor its beginning.
    pub(crate) fn complete(&mut self, first: u32) -> &[u8] {
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

    /// Takes what comes after a mark into a batch of its own.
    fn split(&mut self, at: BatchPosition) -> Batch {
        let mut rest = Batch::new();
        let shift = at.bytes - rest.bytes.len();
        rest.bytes
            .extend_from_slice(self.bytes.get(at.bytes..).unwrap_or_default());
        rest.subjects
            .extend(self.subjects.drain(at.subjects.min(self.subjects.len())..));
        rest.last = self.last.saturating_sub(shift);
        self.bytes.truncate(at.bytes);
        // The message before the mark has to be acknowledged now; it is found by walking.
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

    /// Adds a table, or says which flags an existing one has.
    pub(crate) fn add_table(&mut self, table: &str, flags: u32) {
        let subject = BatchItem::AddTable(table.into());
        self.message(kind::NEW_TABLE, flag::CREATE, subject, |bytes| {
            bytes.text(abi::table::NAME, table);
            bytes.number(abi::table::FLAGS, flags);
        });
    }

    /// Deletes a table and all that is in it.
    pub(crate) fn delete_table(&mut self, table: &str) {
        let subject = BatchItem::DeleteTable(table.into());
        self.message(kind::DELETE_TABLE, 0, subject, |bytes| {
            bytes.text(abi::table::NAME, table);
        });
    }

    /// Deletes the rules of a chain.
    pub(crate) fn empty_chain(&mut self, table: &str, chain: &str) {
        self.delete_rules(table, chain, BatchItem::EmptyChain(chain.into()));
    }

    fn delete_rules(&mut self, table: &str, chain: &str, subject: BatchItem) {
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

    /// The place tells the set from others that the same batch adds.
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
            if let Some((kind, length)) = data {
                bytes.number(attribute::DATA_TYPE, kind);
                bytes.number(attribute::DATA_LENGTH, length);
            }
            bytes.nest(attribute::DESCRIPTION, |bytes| {
                bytes.number(attribute::DESCRIPTION_SIZE, set_size(set));
            });
            bytes.number(attribute::ID, place + 1);
            if set.fields == [Field::Number] {
                bytes.bytes(attribute::USER_DATA, &IN_THE_MACHINES_ORDER);
            }
        });
    }

    /// Adds elements to a set, as many from one on as one message can hold. Says how many.
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

    /// A message of some kind and flags about elements of a set, as many from one on as it can hold. Says how
    /// many.
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
                    // A range begins and ends in one message.
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

/// Gives a ruleset to `send`, in as few batches of at most `most` bytes as it takes. The table is
/// called `table`; the batch given holds what comes before. Everything hooked is in the last batch.
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
    for (place, chain) in chains().filter(|(_, chain)| chain.hook.is_some()) {
        batch.add_chain(table, chain, place);
        for (number, rule) in (0..).zip(&chain.rules) {
            batch.add_rule(table, chain, rule, (place, number))?;
        }
    }
    pass_on(&mut batch, before)?;
    send(batch)
}

/// The expressions of a rule, as the kernel is given them.
pub fn expressions(rule: &Rule) -> Vec<u8> {
    let mut bytes = Vec::new();
    expression::write(rule, &mut bytes);
    bytes
}

/// How many elements the kernel makes room for. Without a size it would take a table that grows, and
/// is slower.
pub(crate) fn set_size(set: &Set) -> u32 {
    set.size.max(set.len() as u32).max(1)
}

/// What would be misunderstood rather than refused.
fn check(ruleset: &Ruleset) -> Result<(), Error> {
    ruleset.sets.iter().try_for_each(check_set)?;
    let sets = ruleset.sets.iter();
    let fields: HashMap<&Name, &[Field]> =
        sets.map(|set| (&set.name, set.fields.as_slice())).collect();
    for chain in &ruleset.chains {
        for (number, rule) in (1..).zip(&chain.rules) {
            for (set, asked) in rule.keys() {
                if fields.get(set).is_some_and(|fields| *fields != asked) {
                    let name = &chain.name;
                    return Err(Error::Unusable(format!(
                        "rule {number} of chain {name} asks set {set} with a key of other fields"
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
    /// The sets that it asks, and the keys that it asks for.
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

/// The number of a point of a packet's path.
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

/// A note that the `nft` program leaves for itself: the keys are in the machine's order. Among other
/// fields it knows without.
const IN_THE_MACHINES_ORDER: [u8; 6] = {
    let [a, b, c, d] = 1u32.to_ne_bytes();
    [0, 4, a, b, c, d]
};

/// What the `nft` program is told that keys of ranges are. If it were told of their fields it would look for ranges of each
/// field, and end by a fault of its own.
const A_NUMBER: u32 = 4;

/// The number that the `nft` program knows a type of keys by; the kernel only keeps it.
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
