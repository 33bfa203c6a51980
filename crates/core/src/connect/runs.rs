//! Places that the same lists of runs cover: atoms of addresses or of ports, by the rules that have them.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::compile::count;

/// The places from the first of a run up to its end, which is not part of it.
type Run = (u32, u32);

/// Where the number of the places changes, ascending, and to what. Before the first change it is 0, the number of
/// places that no list covers.
type Changes = Vec<(u32, u32)>;

/// So many lists are told apart by the bits of one word.
const LISTS_OF_A_WORD: usize = 64;

/// A number for each of `n` places, in the order in which they come: two places have the same one if, and only if, the same
/// lists cover them. Runs of a list may overlap.
///
/// The lists that cover a place are never written out, since large blocks make them long. Few lists are the bits of
/// a word; the numbers for more are numbers of pairs of numbers, half and half. A list therefore costs no more than a few steps for
/// each end of a run, and nothing is taken to be the same that is not.
pub(crate) fn numbers<'r>(lists: impl Iterator<Item = &'r [Run]>, n: usize) -> Vec<u32> {
    // Many rules say the same, and one of them is enough.
    let mut seen: FxHashSet<&[Run]> = FxHashSet::default();
    let lists = lists.filter(|list| !list.is_empty() && seen.insert(list));
    let lists: Vec<&[Run]> = lists.collect();
    let words = lists.chunks(LISTS_OF_A_WORD);
    let mut level: Vec<Changes> = words.map(of_few).collect();
    while level.len() > 1 {
        let mut halves = level.into_iter();
        let mut above = Vec::with_capacity(halves.len().div_ceil(2));
        while let Some(first) = halves.next() {
            above.push(match halves.next() {
                Some(second) => of_both(&first, &second),
                None => first,
            });
        }
        level = above;
    }
    in_order(&level.pop().unwrap_or_default(), n)
}

/// The changes of so few lists that a word has a bit for each.
fn of_few(lists: &[&[Run]]) -> Changes {
    let mut ends: Vec<(u32, u64)> = Vec::new();
    let mut sorted: Vec<Run> = Vec::new();
    for (place, list) in lists.iter().enumerate() {
        let bit = 1 << place;
        if let [(start, end)] = list {
            ends.extend([(*start, bit), (*end, bit)]);
            continue;
        }
        sorted.clear();
        sorted.extend_from_slice(list);
        sorted.sort_unstable();
        let mut covered = 0;
        for (start, end) in &sorted {
            let start = covered.max(*start);
            if start < *end {
                ends.extend([(start, bit), (*end, bit)]);
                covered = *end;
            }
        }
    }
    ends.sort_unstable_by_key(|(place, _)| *place);
    let mut ids: FxHashMap<u64, u32> = FxHashMap::from_iter([(0, 0)]);
    let mut changes = Changes::new();
    let mut bits = 0;
    for here in ends.chunk_by(|(a, _), (b, _)| a == b) {
        // A run that ends where another one of its list starts does not end.
        bits = here.iter().fold(bits, |bits, (_, bit)| bits ^ bit);
        let next = count(ids.len());
        let place = here.first().map_or(0, |(place, _)| *place);
        change(&mut changes, place, *ids.entry(bits).or_insert(next));
    }
    changes
}

/// The changes of two halves of the lists.
fn of_both(first: &[(u32, u32)], second: &[(u32, u32)]) -> Changes {
    let mut ids: FxHashMap<(u32, u32), u32> = FxHashMap::from_iter([((0, 0), 0)]);
    let mut changes = Changes::with_capacity(first.len().max(second.len()));
    let (mut first, mut second) = (first.iter().peekable(), second.iter().peekable());
    let mut numbers = (0, 0);
    loop {
        let places = [first.peek(), second.peek()];
        let places = places.into_iter().flatten().map(|(place, _)| *place);
        let Some(place) = places.min() else {
            return changes;
        };
        if let Some((_, number)) = first.next_if(|(it, _)| *it == place) {
            numbers.0 = *number;
        }
        if let Some((_, number)) = second.next_if(|(it, _)| *it == place) {
            numbers.1 = *number;
        }
        let next = count(ids.len());
        change(&mut changes, place, *ids.entry(numbers).or_insert(next));
    }
}

fn change(changes: &mut Changes, place: u32, number: u32) {
    let before = changes.last().map_or(0, |(_, number)| *number);
    if number != before {
        changes.push((place, number));
    }
}

/// The number of each place, counted as they come.
fn in_order(changes: &[(u32, u32)], n: usize) -> Vec<u32> {
    let mut ids: FxHashMap<u32, u32> = FxHashMap::default();
    let mut numbers = Vec::with_capacity(n);
    let starts = [(0, 0)].into_iter().chain(changes.iter().copied());
    let ends = changes.iter().map(|(place, _)| *place as usize);
    for ((start, number), end) in starts.zip(ends.chain([n])) {
        let length = end.min(n).saturating_sub(start as usize);
        if length > 0 {
            let next = count(ids.len());
            let number = *ids.entry(number).or_insert(next);
            numbers.extend(std::iter::repeat_n(number, length));
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As it is defined: the lists that cover each place, one after the other.
    fn expected(lists: &[Vec<Run>], n: u32) -> Vec<u32> {
        let mut known: Vec<Vec<bool>> = Vec::new();
        let number = |place: u32| {
            let covers = |list: &Vec<Run>| list.iter().any(|(a, b)| (*a..*b).contains(&place));
            let covering: Vec<bool> = lists.iter().map(covers).collect();
            let at = known.iter().position(|it| *it == covering);
            let at = at.unwrap_or_else(|| {
                known.push(covering);
                known.len() - 1
            });
            count(at)
        };
        (0..n).map(number).collect()
    }

    fn found(lists: &[Vec<Run>], n: u32) -> Vec<u32> {
        numbers(lists.iter().map(Vec::as_slice), n as usize)
    }

    #[test]
    fn places_that_the_same_lists_cover_are_the_same() {
        // 0: nothing, 1: the first list, 2: both, 3: the second.
        let lists = [vec![(1, 4), (6, 7)], vec![(3, 6)], vec![]];
        assert_eq!(found(&lists, 8), [0, 1, 1, 2, 3, 3, 1, 0]);
        // Runs that overlap, that touch, that are empty, and that reach to the last place.
        let lists = [vec![(4, 6), (0, 3), (1, 2), (2, 4), (5, 5)], vec![(5, 8)]];
        assert_eq!(found(&lists, 8), [0, 0, 0, 0, 0, 1, 2, 2]);
        assert_eq!(found(&[], 3), [0, 0, 0]);
        assert_eq!(found(&[vec![(0, 3)]], 3), [0, 0, 0]);
        assert_eq!(found(&[vec![(0, 1)]], 0), []);
    }

    #[test]
    fn every_list_counts_however_many_there_are() {
        // Two places each that one list alone tells apart from all others.
        for n in [1, 63, 64, 65, 127, 128, 129, 200, 1000] {
            let lists: Vec<Vec<Run>> = (0..n).map(|it| vec![(it, it + 1)]).collect();
            let expected: Vec<u32> = (0..=n).collect();
            assert_eq!(found(&lists, n + 1), expected, "{n}");
        }
    }

    #[test]
    fn it_is_what_one_gets_by_looking_at_each_place() {
        let mut state = 1_u64;
        let mut below = |bound: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005);
            state = state.wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % bound
        };
        for round in 0..400 {
            let n = 1 + below(24);
            // Few different lists among many, so that places are the same again and again.
            let kinds: Vec<Vec<Run>> = (0..=below(6))
                .map(|_| {
                    let run = |start: u32, length: u32| (start, (start + length).min(n));
                    let some = 0..below(4);
                    some.map(|_| run(below(n), below(6))).collect()
                })
                .collect();
            let lists: Vec<Vec<Run>> = (0..below(300))
                .filter_map(|_| kinds.get(below(count(kinds.len())) as usize).cloned())
                .collect();
            assert_eq!(found(&lists, n), expected(&lists, n), "round {round}");
        }
    }
}
