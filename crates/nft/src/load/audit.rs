//! Comparing the table that enforces with what it should be.

use std::collections::BTreeMap;
use std::fmt;

use super::read::{self, Element, ElementSum, request, steps, text_of};
use super::{Kernel, unreadable};
use crate::encode::{self, abi, abi::kind};
use crate::error::Error;
use crate::netlink::{self, Put, Received};
use crate::ruleset::{Chain, Hook, Ruleset, Set, Values};
use palisade_core::text;

/// Something about the table that enforces that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drift {
    /// There is no table at all.
    NoTable,
    /// A chain is missing.
    NoChain(String),
    /// A chain that is not ours.
    ForeignChain(String),
    /// A chain is on another hook than it should be, or on none, or drops what falls off its end.
    Hook(String),
    /// A chain has more or fewer rules than it should have.
    Rules {
        /// The chain.
        chain: String,
        /// How many rules it should have.
        expected: usize,
        /// How many it has.
        found: usize,
    },
    /// A rule is another one than it should be.
    Rule {
        /// The chain.
        chain: String,
        /// The first such rule, by its place from 0.
        place: usize,
    },
    /// A set is missing.
    NoSet(String),
    /// A set that is not ours.
    ForeignSet(String),
    /// A set has other keys or another size than it should have.
    Shape(String),
    /// A set has other elements than it should have.
    Elements {
        /// The set.
        set: String,
        /// How many are missing, or stand for something else.
        missing: usize,
        /// How many should not be there, or stand for something else.
        foreign: usize,
    },
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Drift::NoTable => f.write_str("our table is gone"),
            Drift::NoChain(chain) => write!(f, "the chain `{}` is gone", text::name(chain)),
            Drift::ForeignChain(chain) => {
                write!(f, "the chain `{}` is not ours", text::name(chain))
            }
            Drift::Hook(chain) => {
                write!(
                    f,
                    "the chain `{}` is hooked in differently",
                    text::name(chain)
                )
            }
            Drift::Rules {
                chain,
                expected,
                found,
            } => {
                let chain = text::name(chain);
                write!(
                    f,
                    "the chain `{chain}` has {found} rules and not {expected}"
                )
            }
            Drift::Rule { chain, place } => {
                let (place, chain) = (place + 1, text::name(chain));
                write!(f, "rule {place} of the chain `{chain}` is another")
            }
            Drift::NoSet(set) => write!(f, "the set `{}` is gone", text::name(set)),
            Drift::ForeignSet(set) => write!(f, "the set `{}` is not ours", text::name(set)),
            Drift::Shape(set) => {
                write!(f, "the set `{}` has another form", text::name(set))
            }
            Drift::Elements {
                set,
                missing,
                foreign,
            } => {
                let set = text::name(set);
                write!(
                    f,
                    "{missing} elements of the set `{set}` are gone and {foreign} are not ours"
                )
            }
        }
    }
}

/// A hooked chain, as the kernel tells of it: point, priority, policy and type.
pub(crate) type Hooked = (u32, u32, u32, String);

/// What a set is, beside its elements: flags, the length of a key, and its size.
pub(crate) type Shape = (u32, u32, u32);

/// What came of comparing a table with what it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditResult {
    /// The differences that were found.
    pub differences: Vec<Drift>,
    /// The first set that was not compared, if it ended early.
    pub stopped_at: Option<String>,
}

/// Compares tables with what they should be, through a socket of its own: the one that owns the tables is free for
/// changes meanwhile.
#[derive(Debug)]
pub struct Auditor(Kernel);

impl Auditor {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> Result<Auditor, Error> {
        Kernel::open().map(Auditor)
    }

    /// Compares a table with what it should be: everything, or from a set on. Between two sets it asks whether to go on, and says
    /// where it stopped if not.
    pub fn audit(
        &mut self,
        table: &str,
        ruleset: &Ruleset,
        from: Option<&str>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<AuditResult, Error> {
        self.0.audit_from(table, ruleset, from, go_on)
    }
}

impl Kernel {
    /// Compares the table that was installed or adopted with what it should be; without a difference the list is
    /// empty. What counters counted makes none.
    pub fn audit(&mut self, ruleset: &Ruleset) -> Result<Vec<Drift>, Error> {
        let table = match self.table() {
            Some(table) => table.to_owned(),
            None => return Ok(vec![Drift::NoTable]),
        };
        let audited = self.audit_from(&table, ruleset, None, &|| true)?;
        Ok(audited.differences)
    }

    fn audit_from(
        &mut self,
        table: &str,
        ruleset: &Ruleset,
        from: Option<&str>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<AuditResult, Error> {
        let mut audited = AuditResult::default();
        if !self.tables()?.iter().any(|it| it == table) {
            audited.differences.push(Drift::NoTable);
            return Ok(audited);
        }
        if from.is_none() {
            self.audit_chains(table, ruleset, &mut audited.differences)?;
        }
        self.audit_sets(table, ruleset, from, go_on, &mut audited)?;
        Ok(audited)
    }

    fn audit_chains(
        &mut self,
        table: &str,
        ruleset: &Ruleset,
        differences: &mut Vec<Drift>,
    ) -> Result<(), Error> {
        let mut hooks = self.hooks_of(table)?;
        let rules = self.rules_of(table)?.into_iter();
        let rules: BTreeMap<String, Vec<Vec<u8>>> =
            rules.map(|chain| (chain.chain, chain.rules)).collect();
        for chain in &ruleset.chains {
            let name = chain.name.as_str();
            let Some(hook) = hooks.remove(name) else {
                differences.push(Drift::NoChain(name.to_owned()));
                continue;
            };
            if hook != chain.hook.map(hooked) {
                differences.push(Drift::Hook(name.to_owned()));
            }
            let found = rules.get(name).map_or(&[][..], Vec::as_slice);
            differences.extend(rules_differ(chain, found));
        }
        differences.extend(hooks.into_keys().map(Drift::ForeignChain));
        Ok(())
    }

    /// Compares sets in the order of the ruleset, from one on. One that is not there any more is no place to go on from: then
    /// all are compared.
    fn audit_sets(
        &mut self,
        table: &str,
        ruleset: &Ruleset,
        from: Option<&str>,
        go_on: &dyn Fn() -> bool,
        audited: &mut AuditResult,
    ) -> Result<(), Error> {
        let differences = &mut audited.differences;
        let mut shapes = self.shapes_of(table)?;
        let place = |name: &str| {
            ruleset
                .sets
                .iter()
                .position(|set| set.name.as_str() == name)
        };
        let first = from.and_then(place).unwrap_or(0);
        for (place, set) in ruleset.sets.iter().enumerate() {
            let name = set.name.as_str();
            let Some(shape) = shapes.remove(name) else {
                differences.push(Drift::NoSet(name.to_owned()));
                continue;
            };
            if shape != shape_of(set) {
                differences.push(Drift::Shape(name.to_owned()));
            }
            if place < first || audited.stopped_at.is_some() {
                continue;
            }
            if !go_on() {
                audited.stopped_at = Some(name.to_owned());
                continue;
            }
            if self.sum_of(table, name)? == sum(set) {
                continue;
            }
            let found = self.elements_of(table, name)?;
            let mut expected: Vec<Element> = elements_of(set).collect();
            expected.sort_unstable();
            let (missing, foreign) = read::differ(&expected, &found);
            if (missing, foreign) != (0, 0) {
                differences.push(Drift::Elements {
                    set: name.to_owned(),
                    missing,
                    foreign,
                });
            }
        }
        differences.extend(shapes.into_keys().map(Drift::ForeignSet));
        Ok(())
    }

    /// The chains of a table, and where they are hooked in.
    fn hooks_of(&mut self, table: &str) -> Result<BTreeMap<String, Option<Hooked>>, Error> {
        let request = request(kind::GET_CHAIN, |_| ());
        type Hooks = BTreeMap<String, Option<Hooked>>;
        let read = self.channel.dump(&request, |hooks: &mut Hooks, message| {
            hooks.extend(hook_in(table, message));
        })?;
        read.map_err(|refused| unreadable("its chains", refused))
    }

    /// The sets of a table, those without a name left out.
    fn shapes_of(&mut self, table: &str) -> Result<BTreeMap<String, Shape>, Error> {
        let request = request(kind::GET_SET, |bytes| {
            bytes.text(abi::set::TABLE, table);
        });
        type Shapes = BTreeMap<String, Shape>;
        let read = self
            .channel
            .dump(&request, |shapes: &mut Shapes, message| {
                shapes.extend(shape_in(table, message));
            })?;
        read.map_err(|refused| unreadable(&format!("the sets of `{table}`"), refused))
    }
}

/// The chain that a message tells of, if it is one of a table, and where it is hooked in.
pub(crate) fn hook_in(table: &str, message: &Received<'_>) -> Option<(String, Option<Hooked>)> {
    use abi::chain as attribute;
    let attributes = message.attributes();
    let is_of_table = text_of(attributes, attribute::TABLE).as_deref() == Some(table);
    if message.body.first() != Some(&abi::INET) || !is_of_table {
        return None;
    }
    let hook = attributes.find(attribute::HOOK).map(|_| {
        let hook = attributes.inside(attribute::HOOK);
        let number = |found: Option<&[u8]>| found.and_then(netlink::number);
        (
            number(hook.find(attribute::HOOK_NUMBER)).unwrap_or(u32::MAX),
            number(hook.find(attribute::HOOK_PRIORITY)).unwrap_or(0),
            number(attributes.find(attribute::POLICY)).unwrap_or(u32::MAX),
            text_of(attributes, attribute::TYPE).unwrap_or_default(),
        )
    });
    text_of(attributes, attribute::NAME).map(|name| (name, hook))
}

/// The set that a message tells of, if it is one of a table and has a name of its own.
pub(crate) fn shape_in(table: &str, message: &Received<'_>) -> Option<(String, Shape)> {
    use abi::set as attribute;
    let attributes = message.attributes();
    let is_of_table = text_of(attributes, attribute::TABLE).as_deref() == Some(table);
    let number = |kind| attributes.find(kind).and_then(netlink::number).unwrap_or(0);
    let flags = number(attribute::FLAGS);
    if !is_of_table || flags & attribute::FLAG_ANONYMOUS != 0 {
        return None;
    }
    let size = attributes
        .inside(attribute::DESCRIPTION)
        .find(attribute::DESCRIPTION_SIZE);
    let size = size.and_then(netlink::number).unwrap_or(0);
    let shape = (flags, number(attribute::KEY_LENGTH), size);
    text_of(attributes, attribute::NAME).map(|name| (name, shape))
}

fn rules_differ(chain: &Chain, found: &[Vec<u8>]) -> Option<Drift> {
    let name = || chain.name.as_str().to_owned();
    if found.len() != chain.rules.len() {
        return Some(Drift::Rules {
            chain: name(),
            expected: chain.rules.len(),
            found: found.len(),
        });
    }
    let place = chain
        .rules
        .iter()
        .zip(found)
        .position(|(rule, found)| steps(&encode::expressions(rule)) != steps(found));
    place.map(|place| Drift::Rule {
        chain: name(),
        place,
    })
}

fn hooked(hook: Hook) -> Hooked {
    let accept = abi::verdict::ACCEPT.cast_unsigned();
    let kind = if hook.nat { "nat" } else { "filter" };
    let priority = hook.priority.cast_unsigned();
    (
        encode::hook_number(hook.point),
        priority,
        accept,
        kind.to_owned(),
    )
}

fn shape_of(set: &Set) -> Shape {
    let flags = match set.values {
        Values::Nothing => 0,
        Values::Ranges => abi::set::FLAG_INTERVAL,
        Values::Verdicts(_) | Values::Numbers(_) => abi::set::FLAG_MAP,
    };
    (flags, set.width() as u32, encode::set_size(set))
}

/// What the elements of a set amount to.
fn sum(set: &Set) -> ElementSum {
    let mut sum = ElementSum::default();
    for (place, key) in set.iter().enumerate() {
        sum.add(key, value(set, place).as_deref());
    }
    sum
}

/// The elements of a set, as they are read back.
fn elements_of(set: &Set) -> impl Iterator<Item = Element> {
    set.iter().enumerate().map(|(place, key)| Element {
        key: key.to_vec(),
        value: value(set, place),
    })
}

/// What a map gives for the element at a place.
fn value(set: &Set, place: usize) -> Option<String> {
    match &set.values {
        Values::Nothing => None,
        Values::Ranges => set.is_end(place).then(|| read::END.to_owned()),
        Values::Verdicts(all) => all.get(place).map(ToString::to_string),
        Values::Numbers(all) => all.get(place).map(|number| format!("0x{number:08x}")),
    }
}
