//! An index of the NetworkPolicy rules of one namespace, for namespaces with many.
//!
//! Rules are numbered in order of precedence (D137). For each property of a flow (its port, the
//! peer's address, the peer's pod sets) the index has the rules that name it. The rule that decides
//! is the first one that is in a set of the port, in a set of the peer, and among the rules on the
//! subject.

use crate::id_set::{IdSet, has_bit};
use crate::program::{NamedPort, RuleId};

/// The rules of a namespace for one direction.
#[derive(Debug, Default)]
pub(crate) struct PolicyIndex {
    /// The rule of each number.
    pub(crate) rules: Vec<RuleId>,
    /// The rules for every port.
    pub(crate) any_port: Vec<IdSet>,
    pub(crate) ports: AtomRuns,
    /// The names of ports, sorted, and the rules that have each.
    pub(crate) names: Vec<(NamedPort, IdSet)>,
    /// The rules for every peer.
    pub(crate) any_peer: Vec<IdSet>,
    pub(crate) addresses: AtomRuns,
    /// The narrow pod sets, sorted, and the rules that have each.
    pub(crate) narrow: Vec<(u32, IdSet)>,
    /// A bit for each wide pod set that a rule has.
    pub(crate) wide_mask: Vec<u64>,
    /// The wide pod sets by their columns, sorted, and the rules that have each.
    pub(crate) wide: Vec<(u32, IdSet)>,
}

/// Runs of atoms that the same rules have.
#[derive(Debug, Default)]
pub(crate) struct AtomRuns {
    /// The first atom of each run, ascending.
    pub(crate) starts: Vec<u32>,
    /// For each run the index of its rules in `rows`.
    pub(crate) rows_of: Vec<u32>,
    pub(crate) rows: Vec<IdSet>,
}

impl AtomRuns {
    /// Returns the rules that have an atom.
    pub(crate) fn at(&self, atom: u32) -> Option<&IdSet> {
        // Atoms before the first run have no rules.
        let run = self.starts.partition_point(|start| *start <= atom);
        let row = self.rows_of.get(run.checked_sub(1)?)?;
        self.rows.get(*row as usize)
    }
}

/// Returns the entry of a key in a list that is sorted by key.
pub(crate) fn entry<'l, K: Ord>(list: &'l [(K, IdSet)], key: &K) -> Option<&'l IdSet> {
    let found = list.binary_search_by(|(it, _)| it.cmp(key)).ok()?;
    list.get(found).map(|(_, members)| members)
}

/// Returns the first number before `best` that is in `among`, `bits` and `members`, or else `best`.
pub(crate) fn first_common(among: &[u64], bits: &[u64], members: &IdSet, best: u32) -> u32 {
    match members {
        IdSet::Few(list) => {
            // The list is ascending: nothing after `best` can win.
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
                // The first word with a common bit may also contain `best`: a later bit of it does
                // not count.
                best.min(start + word.trailing_zeros())
            })
        }
    }
}
