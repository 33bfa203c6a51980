//! Blocks as people read them: joined where that makes fewer, and without what no policy governs.

use std::collections::{BTreeSet, HashMap};

use super::Answer;
use super::ends::EndKind;
use super::names::{Names, limited};
use super::ports::Reaches;

/// So many ends of rows are held to be joined; blocks of more are shown as they are.
const MOST_HELD: usize = 20_000_000;

/// What some ends may send some others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The sources, ascending.
    pub(crate) from: Vec<u32>,
    /// The destinations, ascending.
    pub(crate) to: Vec<u32>,
    /// What is allowed, in [`Answer::reaches`].
    pub(crate) reach: usize,
}

impl Row {
    /// What both sides are called. Nobody is asked about itself, so that an end may stand on both
    /// sides or on one, whichever is shorter.
    pub(crate) fn words(
        &self,
        answer: &Answer<'_>,
        names: &Names<'_>,
    ) -> (Vec<String>, Vec<String>) {
        let is_single = |ends: &[u32]| match ends {
            [one] => answer
                .ends
                .get(*one)
                .is_some_and(|it| it.kind != EndKind::Template),
            _ => false,
        };
        let without = |ends: &[u32], other: &[u32]| {
            let rest: Vec<u32> = ends
                .iter()
                .copied()
                .filter(|it| !other.contains(it))
                .collect();
            let (all, fewer) = (names.of(ends), names.of(&rest));
            if !fewer.is_empty() && fewer.len() < all.len() {
                fewer
            } else {
                all
            }
        };
        let from = if is_single(&self.to) {
            without(&self.from, &self.to)
        } else {
            names.of(&self.from)
        };
        let to = if is_single(&self.from) {
            without(&self.to, &self.from)
        } else {
            names.of(&self.to)
        };
        (from, to)
    }

    /// Likewise, with so many words on each side.
    pub(crate) fn few_words(
        &self,
        answer: &Answer<'_>,
        names: &Names<'_>,
        most: usize,
    ) -> (Vec<String>, Vec<String>) {
        let (from, to) = self.words(answer, names);
        (limited(from, most), limited(to, most))
    }
}

/// The rows of an answer, by source; `None`: there is too much to hold. `governed_only`: flows
/// between nodes and networks, which no policy governs, are left out where they are a row of their
/// own.
pub(crate) fn rows(answer: &Answer<'_>, governed_only: bool) -> Option<Vec<Row>> {
    let same = same_words(&answer.reaches);
    let mut rows: Vec<Row> = Vec::new();
    let mut n_held = 0;
    for block in &answer.blocks {
        let row = Row {
            from: answer.group(block.from),
            to: answer.group(block.to),
            reach: same.get(block.reach).copied().unwrap_or(block.reach),
        };
        n_held += row.from.len() + row.to.len();
        if n_held > MOST_HELD {
            return None;
        }
        rows.push(row);
    }
    rows = joined(rows, |row| (row.to.clone(), row.reach), |row| &mut row.from);
    rows = joined(rows, |row| (row.from.clone(), row.reach), |row| &mut row.to);
    if governed_only {
        let governed = rows.into_iter().filter_map(|row| governed(answer, row));
        rows = governed.collect();
    }
    rows.sort_by(|a, b| (&a.from, &a.to, a.reach).cmp(&(&b.from, &b.to, b.reach)));
    Some(rows)
}

/// What both sides of each block are called, one after the other, for those that are not held; each
/// group is named once.
pub(crate) fn plain_rows(
    answer: &Answer<'_>,
    most: usize,
) -> impl Iterator<Item = (Vec<String>, Vec<String>, usize)> {
    let names = Names::new(&answer.ends);
    let known: Vec<Vec<String>> = (0..answer.n_groups())
        .map(|group| limited(names.of(&answer.group(group)), most))
        .collect();
    answer.blocks.iter().map(move |block| {
        let words = |group: usize| known.get(group).cloned().unwrap_or_default();
        (words(block.from), words(block.to), block.reach)
    })
}

/// For everything that is said of ports the first of those that read the same: every port of one
/// family, and of the other.
fn same_words(reaches: &Reaches) -> Vec<usize> {
    let mut firsts: HashMap<String, usize> = HashMap::new();
    let places = reaches.all().iter().enumerate();
    places
        .map(|(place, ports)| *firsts.entry(ports.text(usize::MAX)).or_insert(place))
        .collect()
}

/// Rows that agree in everything but one side, as one.
fn joined<K: std::hash::Hash + Eq>(
    rows: Vec<Row>,
    key: impl Fn(&Row) -> K,
    side: impl Fn(&mut Row) -> &mut Vec<u32>,
) -> Vec<Row> {
    let mut places: HashMap<K, usize> = HashMap::new();
    let mut kept: Vec<Row> = Vec::new();
    for mut row in rows {
        let place = *places.entry(key(&row)).or_insert(kept.len());
        match kept.get_mut(place) {
            None => kept.push(row),
            Some(known) => {
                let all = side(known).drain(..).chain(side(&mut row).drain(..));
                let all: BTreeSet<u32> = all.collect();
                *side(known) = all.into_iter().collect();
            }
        }
    }
    kept
}

/// What is left of a row without flows that no policy governs.
fn governed(answer: &Answer<'_>, mut row: Row) -> Option<Row> {
    let is_governed = |id: &u32| answer.ends.is_governed(*id);
    if !row.from.iter().any(is_governed) {
        row.to.retain(is_governed);
    }
    if !row.to.iter().any(is_governed) {
        row.from.retain(is_governed);
    }
    (!row.from.is_empty() && !row.to.is_empty()).then_some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(from: &[u32], to: &[u32], reach: usize) -> Row {
        Row {
            from: from.to_vec(),
            to: to.to_vec(),
            reach,
        }
    }

    #[test]
    fn rows_are_joined_where_one_side_and_the_ports_agree() {
        let rows = vec![row(&[1], &[9], 0), row(&[2], &[9], 0), row(&[3], &[9], 1)];
        let rows = joined(rows, |row| (row.to.clone(), row.reach), |row| &mut row.from);
        assert_eq!(rows, [row(&[1, 2], &[9], 0), row(&[3], &[9], 1)]);
    }
}
