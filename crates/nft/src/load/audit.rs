//! Compares the installed table with the expected one.

use std::collections::BTreeMap;
use std::fmt;

use super::read::{self, Element, ElementSum, request, steps, text_of};
use super::{Kernel, unreadable};
use crate::encode::{self, abi, abi::kind};
use crate::error::Error;
use crate::netlink::{self, Put, Received};
use crate::ruleset::{Chain, Hook, Ruleset, Set, Values};
use palisade_core::text;

/// A difference between the installed table and the expected one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drift {
    /// There is no table at all.
    NoTable,
    /// A chain is missing.
    NoChain(String),
    /// A chain that the ruleset does not have.
    ForeignChain(String),
    /// A base chain has another hook, priority, type or policy, or a chain is a base chain by
    /// mistake.
    Hook(String),
    /// A chain has more or fewer rules than expected.
    Rules {
        /// The chain.
        chain: String,
        /// The expected number of rules.
        expected: usize,
        /// The number of rules in the kernel.
        found: usize,
    },
    /// A rule differs from the expected one.
    Rule {
        /// The chain.
        chain: String,
        /// The index of the first such rule.
        place: usize,
    },
    /// A set is missing.
    NoSet(String),
    /// A set that the ruleset does not have.
    ForeignSet(String),
    /// A set has other flags, keys of another length, or another size.
    Shape(String),
    /// A set has other elements than expected.
    Elements {
        /// The set.
        set: String,
        /// The number of elements that are missing or have another value.
        missing: usize,
        /// The number of elements that are not expected or have another value.
        foreign: usize,
    },
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Drift::NoTable => f.write_str("the table is missing"),
            Drift::NoChain(chain) => write!(f, "the chain `{}` is missing", text::name(chain)),
            Drift::ForeignChain(chain) => {
                write!(f, "the chain `{}` is unexpected", text::name(chain))
            }
            Drift::Hook(chain) => {
                write!(
                    f,
                    "the chain `{}` has another hook, priority or policy",
                    text::name(chain)
                )
            }
            Drift::Rules {
                chain,
                expected,
                found,
            } => {
                let chain = text::name(chain);
                write!(f, "the chain `{chain}` has {found} rules, not {expected}")
            }
            Drift::Rule { chain, place } => {
                let (place, chain) = (place + 1, text::name(chain));
                write!(f, "rule {place} of the chain `{chain}` differs")
            }
            Drift::NoSet(set) => write!(f, "the set `{}` is missing", text::name(set)),
            Drift::ForeignSet(set) => write!(f, "the set `{}` is unexpected", text::name(set)),
            Drift::Shape(set) => {
                write!(
                    f,
                    "the set `{}` has other flags, key length or size",
                    text::name(set)
                )
            }
            Drift::Elements {
                set,
                missing,
                foreign,
            } => {
                let set = text::name(set);
                write!(
                    f,
                    "{missing} elements of the set `{set}` are missing and {foreign} are unexpected"
                )
            }
        }
    }
}

/// A base chain, as the kernel reports it: hook, priority, policy and type.
pub(crate) type Hooked = (u32, u32, u32, String);

/// The form of a set: flags, length of a key, and size.
pub(crate) type Shape = (u32, u32, u32);

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditResult {
    /// The differences that were found.
    pub differences: Vec<Drift>,
    /// The first set that was not compared, if the audit stopped early.
    pub stopped_at: Option<String>,
}

/// Audits tables through a socket of its own. The socket that owns the tables stays free for
/// changes.
#[derive(Debug)]
pub struct TableAuditor(Kernel);

impl TableAuditor {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> Result<TableAuditor, Error> {
        Kernel::open().map(TableAuditor)
    }

    /// Compares a table with a ruleset: everything, or the sets from `from` on. Between two sets it
    /// calls `go_on`, and stops there if that returns `false`.
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
    /// Compares the table that was installed or adopted with a ruleset. Without a difference the
    /// list is empty. Values of counters do not count.
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
        // Chains are one dump: an audit that resumes at a set has compared them already.
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
            // The dump of rules leaves out chains without rules.
            let found = rules.get(name).map_or(&[][..], Vec::as_slice);
            differences.extend(rules_differ(chain, found));
        }
        differences.extend(hooks.into_keys().map(Drift::ForeignChain));
        Ok(())
    }

    /// Compares sets in the order of the ruleset, from one on.
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
        // A set that no longer exists is no place to resume at: all sets are compared.
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
            // The forms of all sets come from one dump, and are compared wherever the audit begins
            // or stops. Elements cost a dump for each set.
            if place < first || audited.stopped_at.is_some() {
                continue;
            }
            if !go_on() {
                audited.stopped_at = Some(name.to_owned());
                continue;
            }
            // Two sums cost no memory, and nearly always agree. Only if they differ are the
            // elements collected, sorted and counted.
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

    /// Dumps the chains of a table, each with its hook if it is a base chain.
    fn hooks_of(&mut self, table: &str) -> Result<BTreeMap<String, Option<Hooked>>, Error> {
        // The kernel has no filter by table for chains: those of other tables are skipped here.
        let request = request(kind::GET_CHAIN, |_| ());
        type Hooks = BTreeMap<String, Option<Hooked>>;
        let dumped = self.channel.dump(&request, |hooks: &mut Hooks, message| {
            hooks.extend(hook_in(table, message));
        })?;
        dumped.map_err(|refused| unreadable("chains", refused))
    }

    /// Dumps the sets of a table, except anonymous ones.
    fn shapes_of(&mut self, table: &str) -> Result<BTreeMap<String, Shape>, Error> {
        let request = request(kind::GET_SET, |bytes| {
            bytes.text(abi::set::TABLE, table);
        });
        type Shapes = BTreeMap<String, Shape>;
        let dumped = self
            .channel
            .dump(&request, |shapes: &mut Shapes, message| {
                shapes.extend(shape_in(table, message));
            })?;
        dumped.map_err(|refused| unreadable(&format!("the sets of `{table}`"), refused))
    }
}

/// Reads the chain in a message, if it is one of a table, and its hook.
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
            // A missing attribute must not equal an expected value.
            number(hook.find(attribute::HOOK_NUMBER)).unwrap_or(u32::MAX),
            number(hook.find(attribute::HOOK_PRIORITY)).unwrap_or(0),
            number(attributes.find(attribute::POLICY)).unwrap_or(u32::MAX),
            text_of(attributes, attribute::TYPE).unwrap_or_default(),
        )
    });
    text_of(attributes, attribute::NAME).map(|name| (name, hook))
}

/// Reads the set in a message, if it is one of a table and not anonymous.
pub(crate) fn shape_in(table: &str, message: &Received<'_>) -> Option<(String, Shape)> {
    use abi::set as attribute;
    let attributes = message.attributes();
    let is_of_table = text_of(attributes, attribute::TABLE).as_deref() == Some(table);
    let number = |kind| attributes.find(kind).and_then(netlink::number).unwrap_or(0);
    let flags = number(attribute::FLAGS);
    // An anonymous set is part of a rule, and the rule is compared.
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
    // The bytes differ even for equal rules: the kernel adds defaults and orders attributes in its
    // own way. `steps` removes that.
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

/// Returns count and hash sums of the elements of a set.
fn sum(set: &Set) -> ElementSum {
    let mut sum = ElementSum::default();
    for (place, key) in set.iter().enumerate() {
        sum.add(key, value(set, place).as_deref());
    }
    sum
}

/// Returns the elements of a set in the form of a dump.
fn elements_of(set: &Set) -> impl Iterator<Item = Element> {
    set.iter().enumerate().map(|(place, key)| Element {
        key: key.to_vec(),
        value: value(set, place),
    })
}

/// Returns the value of the element at an index.
fn value(set: &Set, place: usize) -> Option<String> {
    match &set.values {
        Values::Nothing => None,
        Values::Ranges => set.is_end(place).then(|| read::END.to_owned()),
        Values::Verdicts(all) => all.get(place).map(ToString::to_string),
        Values::Numbers(all) => all.get(place).map(|number| format!("0x{number:08x}")),
    }
}
