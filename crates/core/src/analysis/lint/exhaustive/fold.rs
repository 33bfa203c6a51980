//! Folds rules in order over bit sets of keys. Columns that no rule has separated stay together.

use std::borrow::Cow;

use crate::analysis::connect::bits::{KeySet, Words, and, and_not, has, or};
use crate::analysis::connect::columns::Covered;
use crate::id_set::set_bit;
use crate::model::PolicyRank;
use crate::policy::Action;
use crate::program::{RuleId, RulePlace};

/// A rule as a partition sees it: the columns and keys that it matches there.
#[derive(Debug)]
pub(super) struct Step<'f> {
    pub(super) rule: RuleId,
    /// Its bit in the table of its tier, 0 in a union.
    pub(super) bit: u32,
    pub(super) place: RulePlace,
    pub(super) action: Action,
    pub(super) priority: PolicyRank,
    /// Whether it is a rule of a default policy.
    pub(super) is_default: bool,
    pub(super) covered: Covered<'f>,
    pub(super) keys: Cow<'f, KeySet>,
}

impl Step<'_> {
    pub(super) fn covers(&self, column: u32) -> bool {
        match &self.covered {
            Covered::All => true,
            Covered::Some(columns) => columns.binary_search(&column).is_ok(),
        }
    }

    /// Splits columns into those that it covers and the others.
    fn cut(&self, columns: &[u32]) -> (Vec<u32>, Vec<u32>) {
        columns.iter().partition(|it| self.covers(**it))
    }

    /// Returns the first of `columns` that it covers.
    pub(super) fn first_covered(&self, columns: &[u32]) -> Option<u32> {
        columns.iter().copied().find(|it| self.covers(*it))
    }

    /// Returns the members of `keys` that it matches; `None` if there are none.
    pub(super) fn hits(&self, keys: &[u64]) -> Option<Words> {
        self.first_hit(keys)?;
        Some(match &*self.keys {
            KeySet::Sparse(list) => {
                let mut hits = vec![0; keys.len()];
                let list = list.iter().filter(|it| has(keys, **it));
                list.for_each(|it| set_bit(&mut hits, *it));
                hits
            }
            KeySet::Dense(words) => {
                let mut hits = words.clone();
                and(&mut hits, keys);
                hits
            }
            KeySet::Everything => keys.to_vec(),
        })
    }

    /// Writes the members of `keys` that it matches to `hits`. If there are none, it returns
    /// `false` and leaves `hits` undefined. A fold reuses one buffer for all of its steps.
    fn hits_into(&self, keys: &[u64], hits: &mut [u64]) -> bool {
        match &*self.keys {
            KeySet::Sparse(list) => {
                if !list.iter().any(|it| has(keys, *it)) {
                    return false;
                }
                hits.fill(0);
                let list = list.iter().filter(|it| has(keys, **it));
                list.for_each(|it| set_bit(hits, *it));
                true
            }
            KeySet::Dense(words) => {
                let mut any = 0;
                for ((hit, word), key) in hits.iter_mut().zip(words).zip(keys) {
                    *hit = word & key;
                    any |= *hit;
                }
                any != 0
            }
            KeySet::Everything => {
                hits.copy_from_slice(keys);
                first_common(keys, keys).is_some()
            }
        }
    }

    /// Returns the first member of `keys` that it matches.
    pub(super) fn first_hit(&self, keys: &[u64]) -> Option<u32> {
        match &*self.keys {
            KeySet::Sparse(list) => list.iter().copied().find(|it| has(keys, *it)),
            KeySet::Dense(words) => first_common(words, keys),
            KeySet::Everything => first_common(keys, keys),
        }
    }

    /// Counts the members of `keys` that it matches.
    pub(super) fn n_hits(&self, keys: &[u64]) -> u64 {
        let ones = |words: &mut dyn Iterator<Item = u64>| {
            words.map(|word| u64::from(word.count_ones())).sum()
        };
        match &*self.keys {
            KeySet::Sparse(list) => list.iter().map(|it| u64::from(has(keys, *it))).sum(),
            KeySet::Dense(words) => ones(&mut words.iter().zip(keys).map(|(a, b)| a & b)),
            KeySet::Everything => ones(&mut keys.iter().copied()),
        }
    }

    /// Removes the keys that it matches from `keys`.
    pub(super) fn remove_from(&self, keys: &mut [u64]) {
        self.keys.take(keys, None);
    }
}

/// Returns the first key in both sets.
pub(super) fn first_common(a: &[u64], b: &[u64]) -> Option<u32> {
    let words = (0_u32..).step_by(64).zip(a.iter().zip(b));
    let mut words = words.filter(|(_, (a, b))| *a & *b != 0);
    words
        .next()
        .map(|(start, (a, b))| start + (a & b).trailing_zeros())
}

/// Returns the intersection.
pub(super) fn both(a: &[u64], b: &[u64]) -> Words {
    a.iter().zip(b).map(|(a, b)| a & b).collect()
}

/// Returns the members of `a` that are not in `b`.
pub(super) fn only(a: &[u64], b: &[u64]) -> Words {
    a.iter().zip(b).map(|(a, b)| a & !b).collect()
}

/// The keys by the outcome of an ordered tier so far. The four sets are disjoint.
#[derive(Clone, Debug)]
pub(super) struct Planes {
    pub(super) accepted: Words,
    pub(super) denied: Words,
    pub(super) passed: Words,
    /// Keys that no rule has matched yet.
    pub(super) open: Words,
}

impl Planes {
    pub(super) fn new(open: Words) -> Planes {
        let none = vec![0; open.len()];
        Planes {
            accepted: none.clone(),
            denied: none.clone(),
            passed: none,
            open,
        }
    }

    /// Returns the keys that go on to the next tier: those that nothing matched, and passed ones.
    pub(super) fn rest(&self) -> Words {
        let mut rest = self.open.clone();
        or(&mut rest, &self.passed);
        rest
    }

    fn settle(&mut self, action: Action, hits: &[u64]) {
        and_not(&mut self.open, hits);
        or(
            match action {
                Action::Accept => &mut self.accepted,
                Action::Deny => &mut self.denied,
                Action::Pass => &mut self.passed,
            },
            hits,
        );
    }
}

/// An observer of a fold.
pub(super) trait Visit {
    /// Step `at` is next for the open keys in these columns, whether it covers them or not.
    fn before(&mut self, _at: usize, _columns: &[u32], _planes: &Planes) {}
    /// Step `at` is the first to match these keys in these columns.
    fn first(&mut self, _at: usize, _columns: &[u32], _hits: &[u64]) {}
    /// The fold is complete for these columns.
    fn end(&mut self, _columns: &[u32], _planes: &Planes) {}
}

impl Visit for Vec<(Vec<u32>, Planes)> {
    fn end(&mut self, columns: &[u32], planes: &Planes) {
        self.push((columns.to_vec(), planes.clone()));
    }
}

/// Evaluates the steps in order and reports what each of them is the first to match.
pub(super) fn fold(steps: &[Step<'_>], columns: Vec<u32>, planes: Planes, visit: &mut impl Visit) {
    fold_from(steps, 0, false, columns, planes, visit);
}

/// Folds `steps[from..]`; `is_announced`: `before` was already called for the first of them.
fn fold_from(
    steps: &[Step<'_>],
    from: usize,
    mut is_announced: bool,
    mut columns: Vec<u32>,
    mut planes: Planes,
    visit: &mut impl Visit,
) {
    let mut hits = vec![0; planes.open.len()];
    for (at, step) in steps.iter().enumerate().skip(from) {
        // Every key has its first match; later steps decide nothing here.
        if first_common(&planes.open, &planes.open).is_none() {
            break;
        }
        if !std::mem::take(&mut is_announced) {
            visit.before(at, &columns, &planes);
        }
        if !matches!(step.covered, Covered::All) {
            let (inside, outside) = step.cut(&columns);
            if inside.is_empty() {
                continue;
            }
            // The recursion takes the covered columns from this same step on, with a copy of the
            // keys; the loop keeps the other columns, which the step does not match. Each column
            // thus meets every step exactly once and in order, and columns are separated only where
            // a rule separates them. A fold of each column alone would repeat the work for all
            // columns that agree, which are most.
            if !outside.is_empty() {
                fold_from(steps, at, true, inside, planes.clone(), visit);
                columns = outside;
                continue;
            }
        }
        if step.hits_into(&planes.open, &mut hits) {
            visit.first(at, &columns, &hits);
            planes.settle(step.action, &hits);
        }
    }
    visit.end(&columns, &planes);
}

/// The keys that at least one rule of a union matches, and those that at least two match. Counts
/// above two do not matter: a rule is needed only for keys that no other rule matches.
#[derive(Clone, Debug)]
pub(super) struct Cover {
    pub(super) ones: Words,
    pub(super) twos: Words,
}

/// Counts the matches of the steps over `keys`, and calls `visit` for each set of columns with the
/// same counts.
pub(super) fn cover(
    steps: &[Step<'_>],
    columns: Vec<u32>,
    keys: &[u64],
    visit: &mut impl FnMut(&[u32], &Cover),
) {
    let none = vec![0; keys.len()];
    let cover = Cover {
        ones: none.clone(),
        twos: none,
    };
    cover_from(steps, 0, columns, keys, cover, visit);
}

fn cover_from(
    steps: &[Step<'_>],
    from: usize,
    mut columns: Vec<u32>,
    keys: &[u64],
    mut cover: Cover,
    visit: &mut impl FnMut(&[u32], &Cover),
) {
    for (at, step) in steps.iter().enumerate().skip(from) {
        if !matches!(step.covered, Covered::All) {
            let (inside, outside) = step.cut(&columns);
            if inside.is_empty() {
                continue;
            }
            // Columns are separated as in `fold_from`; the order of a union does not matter.
            if !outside.is_empty() {
                cover_from(steps, at, inside, keys, cover.clone(), visit);
                columns = outside;
                continue;
            }
        }
        match &*step.keys {
            KeySet::Sparse(list) => {
                for key in list.iter().filter(|it| has(keys, **it)) {
                    let again = has(&cover.ones, *key);
                    let into = if again {
                        &mut cover.twos
                    } else {
                        &mut cover.ones
                    };
                    set_bit(into, *key);
                }
            }
            KeySet::Dense(_) | KeySet::Everything => {
                let hits = step.hits(keys).unwrap_or_default();
                let planes = cover.ones.iter_mut().zip(&mut cover.twos).zip(&hits);
                for ((ones, twos), hits) in planes {
                    // In this order: a key that is already in `ones` is matched a second time.
                    *twos |= *ones & hits;
                    *ones |= hits;
                }
            }
        }
    }
    visit(&columns, &cover);
}
