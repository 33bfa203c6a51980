//! Blocks for people: joined where that makes fewer rows, and without flows to which no policy
//! applies.

use std::collections::{BTreeSet, HashMap};

use super::Answer;
use super::ends::EndKind;
use super::names::{Names, limited};
use super::ports::Reaches;

/// The most endpoints in rows that are joined; larger answers are shown block by block.
const MOST_HELD: usize = 20_000_000;

/// The ports from some endpoints to some others.
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
    /// Names both sides. A row has no flow from an endpoint to itself: an endpoint may be named on
    /// both sides or on one, whichever is shorter.
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

    /// Names both sides, with at most `most` words each.
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

/// Returns the rows of an answer, by source; `None`: there are too many endpoints to hold.
/// `governed_only` omits rows that have only flows between nodes and networks, to which no policy
/// applies.
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

/// Names both sides of each block, for answers that are too large to join. Each group is named
/// once.
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

/// Maps each set of ports to the first with the same text: two sets may differ only in the address
/// family that they cover completely.
fn same_words(reaches: &Reaches) -> Vec<usize> {
    let mut firsts: HashMap<String, usize> = HashMap::new();
    let places = reaches.all().iter().enumerate();
    places
        .map(|(place, ports)| *firsts.entry(ports.text(usize::MAX)).or_insert(place))
        .collect()
}

/// Joins rows that agree in everything but one side.
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

/// Removes the flows of a row to which no policy applies.
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
