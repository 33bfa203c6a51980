//! An index of the NetworkPolicy rules of one namespace, for namespaces with many.
//!
//! Rules are numbered in the order in which they are asked. For what a flow has (its port, the
//! peer's address, the pod sets the peer is in) the index knows the rules that name it, and the
//! rule that decides is the first one that both sides know and that is on the subject.

use crate::id_set::{IdSet, has_bit};
use crate::program::{NamedPort, RuleId};

/// The rules of a namespace for one direction.
#[derive(Debug, Default)]
pub(crate) struct PolicyIndex {
    /// The rule of each place.
    pub(crate) rules: Vec<RuleId>,
    /// The rules for every port.
    pub(crate) any_port: Vec<IdSet>,
    pub(crate) ports: AtomRuns,
    /// The names of ports, sorted, and the rules that have each.
    pub(crate) names: Vec<(NamedPort, IdSet)>,
    /// The rules for anyone.
    pub(crate) any_peer: Vec<IdSet>,
    pub(crate) addresses: AtomRuns,
    /// The narrow pod sets, sorted, and the rules that have each.
    pub(crate) narrow: Vec<(u32, IdSet)>,
    /// A bit for each wide pod set that a rule has.
    pub(crate) wide_mask: Vec<u64>,
    /// Likewise for wide pod sets, by their columns.
    pub(crate) wide: Vec<(u32, IdSet)>,
}

/// Runs of atoms that the same rules have.
#[derive(Debug, Default)]
pub(crate) struct AtomRuns {
    /// The first atom of each run, ascending.
    pub(crate) starts: Vec<u32>,
    /// For each run the place of its rules in `rows`.
    pub(crate) rows_of: Vec<u32>,
    pub(crate) rows: Vec<IdSet>,
}

impl AtomRuns {
    /// The rules that have an atom.
    pub(crate) fn at(&self, atom: u32) -> Option<&IdSet> {
        let run = self.starts.partition_point(|start| *start <= atom);
        let row = self.rows_of.get(run.checked_sub(1)?)?;
        self.rows.get(*row as usize)
    }
}

/// The entry of a key in a list that is sorted by key.
pub(crate) fn entry<'l, K: Ord>(list: &'l [(K, IdSet)], key: &K) -> Option<&'l IdSet> {
    let found = list.binary_search_by(|(it, _)| it.cmp(key)).ok()?;
    list.get(found).map(|(_, members)| members)
}

/// The first number before `best` that is in both sets and among the bits, or else `best`.
pub(crate) fn first_common(among: &[u64], bits: &[u64], members: &IdSet, best: u32) -> u32 {
    match members {
        IdSet::Few(list) => {
            let candidates = list.iter().copied().take_while(|it| *it < best);
            let mut common = candidates.filter(|it| has_bit(bits, *it) && has_bit(among, *it));
            common.next().unwrap_or(best)
        }
        IdSet::Many(members) => {
            let words = among.iter().zip(bits).zip(members);
            let words = words.map(|((among, bits), members)| among & bits & members);
            let starts = (0_u32..).step_by(64).take_while(|start| *start < best);
            let mut found = starts.zip(words).filter(|(_, word)| *word != 0);
            let first = found.next();
            first.map_or(best, |(start, word)| {
                best.min(start + word.trailing_zeros())
            })
        }
    }
}
