//! Encodes a transaction as netlink messages.

use super::abi::{self, kind};
use super::{Batch, BatchItem, check_set};
use crate::error::Error;
use crate::netlink::{Put, flag};
use crate::ruleset::Set;
use crate::transaction::{Op, Transaction};

/// The part of an operation that a message carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationPart {
    Whole,
    /// A rule of a rewritten chain.
    Rule(u32),
    /// The elements of a set from an index on.
    Elements(u32),
}

/// Encodes a transaction on a table as one batch, or fails if it has more than `most` bytes.
pub(crate) fn transaction(
    transaction: &Transaction,
    table: &str,
    most: usize,
) -> Result<Batch, Error> {
    let mut batch = Batch::new();
    for (place, op) in (0u32..).zip(&transaction.ops) {
        let subject = |part| BatchItem::Operation(place, part);
        match op {
            Op::AddChain(name) => batch.new_chain(table, name, None, subject(OperationPart::Whole)),
            Op::Rewrite(chain) => {
                // Old and new rules change places at one moment: the kernel switches the rules of a
                // batch when all its messages have succeeded.
                batch.delete_rules(table, chain.name.as_str(), subject(OperationPart::Whole));
                for (number, rule) in (0..).zip(&chain.rules) {
                    let subject = subject(OperationPart::Rule(number));
                    batch.new_rule(table, chain, rule, number, subject)?;
                }
            }
            Op::DeleteChain(name) => {
                batch.message(
                    kind::DELETE_CHAIN,
                    0,
                    subject(OperationPart::Whole),
                    |bytes| {
                        bytes.text(abi::chain::TABLE, table);
                        bytes.text(abi::chain::NAME, name.as_str());
                    },
                );
            }
            Op::AddSet(set) => {
                check_set(set)?;
                batch.new_set(table, set, place, subject(OperationPart::Whole));
                // The elements follow in the same batch; no packet looks into a set that no rule
                // names yet.
                all_elements(&mut batch, table, set, ADD, place, most);
            }
            Op::DeleteSet(name) => {
                batch.message(
                    kind::DELETE_SET,
                    0,
                    subject(OperationPart::Whole),
                    |bytes| {
                        bytes.text(abi::set::TABLE, table);
                        bytes.text(abi::set::NAME, name.as_str());
                    },
                );
            }
            Op::AddElements(set) => {
                check_set(set)?;
                all_elements(&mut batch, table, set, ADD, place, most);
            }
            Op::DeleteElements(set) => {
                check_set(set)?;
                all_elements(&mut batch, table, set, DELETE, place, most);
            }
        }
    }
    if batch.len() > most {
        return Err(Error::SmallBuffer {
            needed: batch.len(),
            most,
        });
    }
    Ok(batch)
}

/// The message that adds elements.
// Without `NLM_F_EXCL` the kernel accepts an equal element that exists. That element would mean
// that another program changed the table.
const ADD: (u16, u16) = (kind::NEW_ELEMENTS, flag::CREATE | flag::EXCLUSIVE);
const DELETE: (u16, u16) = (kind::DELETE_ELEMENTS, 0);

fn all_elements(
    batch: &mut Batch,
    table: &str,
    set: &Set,
    how: (u16, u16),
    place: u32,
    most: usize,
) {
    let mut first = 0;
    while first < set.len() {
        let subject = BatchItem::Operation(place, OperationPart::Elements(first as u32));
        first += batch.elements(table, set, how, first, most, subject);
    }
}
