//! A change of the installed table, as a value.

use std::collections::VecDeque;
use std::fmt;

use crate::ruleset::{Chain, Name, Set};

/// Operations that the kernel carries out in this order, together or not at all.
///
/// Rules change at one moment for every packet. Elements do not: a packet that is still in the old
/// rules may meet new elements, and a chain of the same transaction is empty for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The operations.
    pub ops: Vec<Op>,
    /// Whether a grace period must pass before it, since the previous transaction.
    pub waits: bool,
}

impl Transaction {
    /// Makes a transaction without a grace period.
    pub(crate) fn new(ops: Vec<Op>) -> Transaction {
        Transaction { ops, waits: false }
    }

    /// Reports whether it has no operation.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

/// Splits operations into transactions of at most so many elements and rules, for operations that
/// may take effect one after the other. The rules of a chain stay together.
pub(crate) fn in_pieces(ops: Vec<Op>, most: usize) -> Vec<Transaction> {
    // Each piece must have an element, or there would be no progress. A range has two, which stay
    // together.
    let most = most.max(2);
    let mut pieces = Vec::new();
    let mut piece = Transaction::default();
    let mut weight = 0;
    let mut ops: VecDeque<Op> = ops.into();
    while let Some(mut op) = ops.pop_front() {
        if weight >= most {
            pieces.push(std::mem::take(&mut piece));
            weight = 0;
        }
        if let Some(rest) = op.split_off(most - weight) {
            ops.push_front(rest);
        }
        weight += op.weight();
        piece.ops.push(op);
    }
    pieces.push(piece);
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// One operation on the table.
///
/// The kernel refuses the transaction if it adds an object that exists or deletes one that does
/// not. That means that another program changed the table, and must be reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Adds an empty chain without a hook.
    AddChain(Name),
    /// Replaces all rules of an existing chain. A base chain keeps its hook.
    Rewrite(Chain),
    /// Deletes a chain that no rule or element leads to any more.
    DeleteChain(Name),
    /// Adds a set with its elements.
    AddSet(Set),
    /// Deletes a set that no rule uses any more.
    DeleteSet(Name),
    /// Adds elements to an existing set. The size in the value is ignored.
    AddElements(Set),
    /// Deletes elements of an existing set, by their keys.
    DeleteElements(Set),
}

impl Op {
    /// Returns the number of elements and rules that it writes or deletes, and one for itself.
    fn weight(&self) -> usize {
        1 + match self {
            Op::AddChain(_) | Op::DeleteChain(_) | Op::DeleteSet(_) => 0,
            Op::Rewrite(chain) => chain.rules.len(),
            Op::AddSet(set) | Op::AddElements(set) | Op::DeleteElements(set) => set.len(),
        }
    }

    /// Keeps so many elements, and returns an operation with the rest.
    fn split_off(&mut self, most: usize) -> Option<Op> {
        let rest = |set: &mut Set| (set.len() > most).then(|| set.split_off(most));
        let rest = match self {
            // The set exists after the first piece: the rest only adds elements.
            Op::AddSet(set) | Op::AddElements(set) => rest(set).map(Op::AddElements),
            Op::DeleteElements(set) => rest(set).map(Op::DeleteElements),
            Op::AddChain(_) | Op::Rewrite(_) | Op::DeleteChain(_) | Op::DeleteSet(_) => None,
        };
        rest.filter(|rest| rest.weight() > 1)
    }
}

/// Writes the operation in words that follow "refused to".
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ruleset::{Field, Value, Values};

    fn numbers(name: &'static str, count: u32) -> Set {
        let mut set = Set::numbers(Name::word(name), vec![Field::Number]);
        for number in 0..count {
            set.push_number(&[Value::Number(number)], number + 100);
        }
        set.size = 64;
        set
    }

    #[test]
    fn pieces_hold_every_element_once_and_no_more_than_they_may() {
        for most in [2, 3, 7, 1000] {
            let ops = vec![
                Op::AddSet(numbers("a", 10)),
                Op::AddChain(Name::word("c")),
                Op::AddElements(numbers("b", 5)),
                Op::DeleteElements(numbers("d", 0)),
            ];
            let pieces = in_pieces(ops.clone(), most);
            // Merges the pieces again.
            let mut whole: Vec<Op> = Vec::new();
            for piece in &pieces {
                let elements: usize = piece.ops.iter().map(|op| op.weight() - 1).sum();
                assert!(elements <= most, "{elements} of {most}");
                for op in &piece.ops {
                    match (whole.last_mut(), op) {
                        (
                            Some(Op::AddSet(before) | Op::AddElements(before)),
                            Op::AddElements(set),
                        ) if before.name == set.name => {
                            before.keys.extend(&set.keys);
                            let (Values::Numbers(all), Values::Numbers(more)) =
                                (&mut before.values, &set.values)
                            else {
                                panic!("another kind of set");
                            };
                            all.extend(more);
                        }
                        _ => whole.push(op.clone()),
                    }
                }
            }
            assert_eq!(whole, ops, "{most}");
            assert_eq!(pieces.len() == 1, most == 1000);
        }
    }

    #[test]
    fn a_range_is_not_taken_apart() {
        let mut set = Set::ranges(Name::word("r"), vec![Field::Number]);
        for number in 0..6 {
            set.push(&[Value::Number(number)]);
        }
        let pieces = in_pieces(vec![Op::AddElements(set)], 3);
        let counts = pieces
            .iter()
            .flat_map(|it| &it.ops)
            .map(|op| op.weight() - 1);
        assert_eq!(counts.collect::<Vec<_>>(), [4, 2]);
    }
}
