//! Reads tables back from the kernel.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::{ExistingTable, GENERATION_SET, Kernel, is_ours, unreadable};
use crate::encode::abi::{self, kind};
use crate::error::Error;
use crate::netlink::{self, Attributes, Put, Received};
use nix::errno::Errno;

/// The rules of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainRules {
    /// The name of the chain.
    pub chain: String,
    /// The expressions of each rule, as the kernel writes them. [`steps`] decodes them.
    pub rules: Vec<Vec<u8>>,
}

/// The counter of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCount {
    /// The name of the table.
    pub table: String,
    /// The name of the chain.
    pub chain: String,
    /// The index of the rule in the chain.
    pub rule: usize,
    /// The packets that matched the rule.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// An element of a set or map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    /// Its key, as [`Set::keys`](crate::ruleset::Set::keys) has them.
    pub key: Vec<u8>,
    /// Its value, in the words of the text form: `jump name`, `0x00000007`. For the end of a range
    /// it is `end`.
    pub value: Option<String>,
}

/// An expression of a rule, in a form that can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleExpression {
    /// Its kind.
    pub name: String,
    /// Its attributes, ordered by their numbers.
    pub attributes: Vec<(u16, Vec<u8>)>,
}

impl Kernel {
    /// Returns the generation of the installed table, if there is one and its set has one.
    pub fn generation(&mut self) -> Result<Option<u32>, Error> {
        let Some(table) = self.current()? else {
            return Ok(None);
        };
        let elements = match self.elements_of(&table, GENERATION_SET) {
            // The table may have been deleted between the two dumps.
            Err(Error::Refused(refusal)) if refusal.errno == Errno::ENOENT => return Ok(None),
            other => other?,
        };
        let key = elements
            .first()
            .and_then(|element| element.key.first_chunk());
        Ok(key.map(|key| u32::from_ne_bytes(*key)))
    }

    /// Returns the name of the table that enforces.
    pub fn current(&mut self) -> Result<Option<String>, Error> {
        let ours = self.found()?;
        // During a replacement two tables have base chains; the later one stays.
        let hooked = ours.iter().rfind(|table| !table.hooked.is_empty());
        Ok(hooked.map(|table| table.name.clone()))
    }

    /// Lists the names of all tables of the `inet` family, including those of other programs.
    pub fn tables(&mut self) -> Result<Vec<String>, Error> {
        let request = request(kind::GET_TABLE, |_| ());
        let dumped = self
            .channel
            .dump(&request, |names: &mut Vec<String>, message| {
                names.extend(text_of(message.attributes(), abi::table::NAME));
            })?;
        dumped.map_err(|refused| unreadable("tables", refused))
    }

    /// Reads the counters of all Palisade tables.
    pub fn counters(&mut self) -> Result<Vec<RuleCount>, Error> {
        let mut counts = Vec::new();
        for table in self.found()? {
            counts.extend(self.counters_of(&table.name)?);
        }
        Ok(counts)
    }

    /// Reads the counters of a table.
    pub fn counters_of(&mut self, table: &str) -> Result<Vec<RuleCount>, Error> {
        let mut counts = Vec::new();
        for chain in self.rules_of(table)? {
            for (rule, expressions) in chain.rules.iter().enumerate() {
                let Some((packets, bytes)) = counter(expressions) else {
                    continue;
                };
                counts.push(RuleCount {
                    table: table.to_owned(),
                    chain: chain.chain.clone(),
                    rule,
                    packets,
                    bytes,
                });
            }
        }
        Ok(counts)
    }

    /// Reads the rules of a table. Chains are ordered by name; those without rules are left out.
    pub fn rules_of(&mut self, table: &str) -> Result<Vec<ChainRules>, Error> {
        let request = request(kind::GET_RULE, |bytes| {
            bytes.text(abi::rule::TABLE, table);
        });
        let dumped = self
            .channel
            .dump(&request, |chains: &mut Chains, message| {
                note_rule(table, chains, message);
            })?;
        let chains =
            dumped.map_err(|refused| unreadable(&format!("the rules of `{table}`"), refused))?;
        let rules = |(chain, rules)| ChainRules { chain, rules };
        Ok(chains.into_iter().map(rules).collect())
    }

    /// Reads the elements of a set of the installed table, sorted.
    pub fn elements(&mut self, set: &str) -> Result<Vec<Element>, Error> {
        match self.current()? {
            Some(table) => self.elements_of(&table, set),
            None => Ok(Vec::new()),
        }
    }

    /// Reads the elements of a set of a table, sorted.
    pub fn elements_of(&mut self, table: &str, set: &str) -> Result<Vec<Element>, Error> {
        let mut elements = self.gather(table, set, |elements: &mut Vec<Element>, element| {
            elements.push(element_of(element));
        })?;
        // The kernel dumps a hash table in any order.
        elements.sort_unstable();
        Ok(elements)
    }

    /// Returns count and hash sums of the elements of a set. It keeps no element, since there may
    /// be a million.
    pub(super) fn sum_of(&mut self, table: &str, set: &str) -> Result<ElementSum, Error> {
        self.gather(table, set, |sum: &mut ElementSum, element| {
            sum.add(key_of(element), value_of(element).as_deref());
        })
    }

    /// Folds the elements of a set of a table, one by one.
    fn gather<T: Default>(
        &mut self,
        table: &str,
        set: &str,
        mut take: impl FnMut(&mut T, Attributes<'_>),
    ) -> Result<T, Error> {
        let request = request(kind::GET_ELEMENTS, |bytes| {
            bytes.text(abi::elements::TABLE, table);
            bytes.text(abi::elements::SET, set);
        });
        let dumped = self.channel.dump(&request, |gathered: &mut T, message| {
            elements_in(message).for_each(|element| take(gathered, element));
        })?;
        dumped.map_err(|refused| unreadable(&format!("the set `{set}` of `{table}`"), refused))
    }

    /// Reads Palisade's tables, in the order of their creation.
    pub(super) fn found(&mut self) -> Result<Vec<ExistingTable>, Error> {
        let request_tables = request(kind::GET_TABLE, |_| ());
        let dumped = self.channel.dump(
            &request_tables,
            |found: &mut Vec<ExistingTable>, message| {
                found.extend(found_in(message));
            },
        )?;
        let mut found = dumped.map_err(|refused| unreadable("tables", refused))?;
        if found.is_empty() {
            // The dump of chains has those of all tables of the namespace: without a table of
            // Palisade's it is not worth its cost.
            return Ok(found);
        }
        let request_chains = request(kind::GET_CHAIN, |_| ());
        type Hooked = Vec<(String, String)>;
        let dumped = self
            .channel
            .dump(&request_chains, |hooked: &mut Hooked, message| {
                hooked.extend(hooked_in(message));
            })?;
        let hooked = dumped.map_err(|refused| unreadable("chains", refused))?;
        for (table, chain) in hooked {
            if let Some(found) = found.iter_mut().find(|found| found.name == table) {
                found.hooked.push(chain);
            }
        }
        // The kernel numbers tables as they are created.
        found.sort_unstable_by_key(|found| found.handle);
        Ok(found)
    }
}

/// The rules of chains, by name.
pub(crate) type Chains = BTreeMap<String, Vec<Vec<u8>>>;

/// Adds the rule in a message, if it is one of a table.
pub(crate) fn note_rule(table: &str, chains: &mut Chains, message: &Received<'_>) {
    let attributes = message.attributes();
    let is_of_table = text_of(attributes, abi::rule::TABLE).as_deref() == Some(table);
    if let Some(chain) = text_of(attributes, abi::rule::CHAIN).filter(|_| is_of_table) {
        let rule = attributes.find(abi::rule::EXPRESSIONS);
        let rules = chains.entry(chain).or_default();
        rules.push(rule.unwrap_or_default().to_vec());
    }
}

/// Reads the elements of a set in a message.
pub(crate) fn elements_in<'b>(message: &Received<'b>) -> impl Iterator<Item = Attributes<'b>> {
    let elements = message.attributes().inside(abi::elements::ELEMENTS);
    elements.map(|(_, element)| Attributes(element))
}

/// Reads the table in a message, if it is one of Palisade's. Its base chains are not part of the
/// message.
pub(crate) fn found_in(message: &Received<'_>) -> Option<ExistingTable> {
    let attributes = message.attributes();
    let is_inet = message.body.first() == Some(&abi::INET);
    let name = text_of(attributes, abi::table::NAME).filter(|it| is_inet && is_ours(it))?;
    let handle = attributes.find(abi::table::HANDLE).and_then(netlink::long);
    let flags = attributes.find(abi::table::FLAGS);
    let flags = flags.and_then(netlink::number);
    Some(ExistingTable {
        name,
        handle: handle.unwrap_or(0),
        persists: flags.unwrap_or(0) & abi::table::FLAG_PERSIST != 0,
        owner: attributes.find(abi::table::OWNER).and_then(netlink::number),
        hooked: Vec::new(),
    })
}

/// Reads the names of table and chain in a message, if the chain is a base chain.
pub(crate) fn hooked_in(message: &Received<'_>) -> Option<(String, String)> {
    let attributes = message.attributes();
    attributes.find(abi::chain::HOOK)?;
    let table = text_of(attributes, abi::chain::TABLE).unwrap_or_default();
    let chain = text_of(attributes, abi::chain::NAME).unwrap_or_default();
    Some((table, chain))
}

pub(super) fn request(kind: u16, inside: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    netlink::message(&mut bytes, kind, 0, abi::INET, inside);
    bytes
}

pub(super) fn text_of(attributes: Attributes<'_>, kind: u16) -> Option<String> {
    attributes.find(kind).map(netlink::text)
}

/// Counts the elements of each of two sorted lists that the other one does not have.
pub(super) fn differ(expected: &[Element], found: &[Element]) -> (usize, usize) {
    let (mut expected, mut found) = (expected.iter().peekable(), found.iter().peekable());
    let (mut missing, mut foreign) = (0, 0);
    loop {
        let order = match (expected.peek(), found.peek()) {
            (None, None) => return (missing, foreign),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(expected), Some(found)) => expected.cmp(found),
        };
        if order != Ordering::Greater {
            expected.next();
        }
        if order != Ordering::Less {
            found.next();
        }
        missing += usize::from(order == Ordering::Less);
        foreign += usize::from(order == Ordering::Greater);
    }
}

/// The number of elements and the sums of their hashes, which are the same in any order.
// A program that forged elements with equal sums would need the right to change the table. Two sums
// make an accident impossible in practice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ElementSum {
    count: usize,
    sums: [u64; 2],
}

impl ElementSum {
    pub(super) fn add(&mut self, key: &[u8], value: Option<&str>) {
        self.count += 1;
        for (salt, sum) in (0_u8..).zip(&mut self.sums) {
            let mut hasher = DefaultHasher::new();
            // Another salt makes the second sum independent of the first.
            (salt, key, value).hash(&mut hasher);
            *sum = sum.wrapping_add(hasher.finish());
        }
    }
}

fn key_of(element: Attributes<'_>) -> &[u8] {
    let key = element.inside(abi::elements::KEY).find(abi::data::VALUE);
    key.unwrap_or_default()
}

pub(crate) fn element_of(element: Attributes<'_>) -> Element {
    Element {
        key: key_of(element).to_vec(),
        value: value_of(element),
    }
}

/// The value of an element that is the end of a range.
pub(super) const END: &str = "end";

/// Reads the value of an element, or [`END`] for the end of a range.
fn value_of(element: Attributes<'_>) -> Option<String> {
    let flags = element.find(abi::elements::FLAGS);
    if flags.and_then(netlink::number).unwrap_or(0) & abi::elements::FLAG_END != 0 {
        return Some(END.to_owned());
    }
    let data = element.find(abi::elements::DATA)?;
    let number = Attributes(data).find(abi::data::VALUE);
    Some(match number.and_then(|bytes| bytes.first_chunk()) {
        Some(bytes) => format!("0x{:08x}", u32::from_ne_bytes(*bytes)),
        None => verdict_text(Attributes(data).inside(abi::data::VERDICT)),
    })
}

fn verdict_text(verdict: Attributes<'_>) -> String {
    let code = verdict.find(abi::verdict::CODE).and_then(netlink::number);
    let word = match code.map(u32::cast_signed) {
        Some(abi::verdict::ACCEPT) => "accept",
        Some(abi::verdict::DROP) => "drop",
        Some(abi::verdict::JUMP) => "jump",
        Some(abi::verdict::GOTO) => "goto",
        Some(abi::verdict::RETURN) => "return",
        _ => "unknown",
    };
    match text_of(verdict, abi::verdict::CHAIN) {
        Some(chain) => format!("{word} {chain}"),
        None => word.to_owned(),
    }
}

/// Returns packets and bytes of the first counter among expressions.
pub(crate) fn counter(expressions: &[u8]) -> Option<(u64, u64)> {
    Attributes(expressions).find_map(|(_, expression)| {
        let expression = Attributes(expression);
        let name = text_of(expression, abi::expression::NAME)?;
        let data = expression.inside(abi::expression::DATA);
        let value = |kind| data.find(kind).and_then(netlink::long).unwrap_or(0);
        (name == "counter").then(|| (value(abi::counter::PACKETS), value(abi::counter::BYTES)))
    })
}

/// Decodes the expressions of a rule into a form that can be compared with others.
pub fn steps(expressions: &[u8]) -> Vec<RuleExpression> {
    // Attributes are in the order of their numbers, and nested ones without their headers: the
    // kernel writes both in its own way.
    let steps = Attributes(expressions).map(|(_, expression)| {
        let expression = Attributes(expression);
        let name = text_of(expression, abi::expression::NAME).unwrap_or_default();
        let mut attributes = Vec::new();
        for (kind, value) in expression.inside(abi::expression::DATA) {
            // Values of counters change with each packet. The kernel reports the operation of a
            // `bitwise` also where it is the default, a mask.
            let is_default = match name.as_str() {
                "counter" => true,
                "bitwise" => kind == abi::bitwise::OPERATION && value == [0; 4],
                _ => false,
            };
            if !is_default {
                attributes.push((kind, comparable(&name, kind, value)));
            }
        }
        attributes.sort_unstable();
        RuleExpression { name, attributes }
    });
    steps.collect()
}

/// Returns the value of an attribute. Of a nested attribute it is only the contents.
fn comparable(name: &str, kind: u16, value: &[u8]) -> Vec<u8> {
    let is_data = match name {
        "immediate" => kind == abi::immediate::DATA,
        "bitwise" => [abi::bitwise::MASK, abi::bitwise::XOR, abi::bitwise::DATA].contains(&kind),
        "cmp" => kind == abi::cmp::DATA,
        "range" => kind == abi::range::FIRST || kind == abi::range::LAST,
        _ => false,
    };
    if !is_data {
        return value.to_vec();
    }
    let data = Attributes(value);
    match data.find(abi::data::VERDICT) {
        Some(verdict) => verdict_text(Attributes(verdict)).into_bytes(),
        None => data.find(abi::data::VALUE).unwrap_or_default().to_vec(),
    }
}
