//! A change of the table that enforces, as a value: what is carried out together, or not at all.

use std::fmt;

use crate::ruleset::{Chain, Name, Set};

/// Operations that the kernel carries out together, in this order, or not at all.
///
/// Rules change at one moment for every packet. Elements do not: a packet that is on its way through
/// the rules of before may already meet those of after, and a chain that the same transaction makes is empty for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The operations.
    pub ops: Vec<Op>,
    /// Whether all packets must have passed that were on their way when the transaction before was carried out.
    pub waits: bool,
}

impl Transaction {
    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

/// One operation on the table.
///
/// Whatever is there already and is to be added, or is not there and is to be deleted, makes the kernel refuse
/// the transaction: somebody else has changed the table, and it is better to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Adds an empty chain that is on no hook.
    AddChain(Name),
    /// Replaces all rules of an existing chain in place. It stays on its hook, if it is on one.
    Rewrite(Chain),
    /// Deletes a chain that nothing leads to any more.
    DeleteChain(Name),
    /// Adds a set with its elements.
    AddSet(Set),
    /// Deletes a set that no rule asks any more.
    DeleteSet(Name),
    /// Adds elements to an existing set. Of the value, the size does not count.
    AddElements(Set),
    /// Deletes elements of an existing set, by their keys.
    DeleteElements(Set),
}

/// What was to be done, in words.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::AddChain(name) => write!(f, "add the chain `{name}`"),
            Op::Rewrite(chain) => write!(f, "rewrite the chain `{}`", chain.name),
            Op::DeleteChain(name) => write!(f, "delete the chain `{name}`"),
            Op::AddSet(set) => write!(f, "add the set `{}`", set.name),
            Op::DeleteSet(name) => write!(f, "delete the set `{name}`"),
            Op::AddElements(set) => {
                write!(f, "add {} elements to the set `{}`", set.len(), set.name)
            }
            Op::DeleteElements(set) => {
                let count = set.len();
                write!(f, "delete {count} elements of the set `{}`", set.name)
            }
        }
    }
}
