//! Numbers for places by the lists of runs that cover them: for atoms of addresses or ports, by the
//! rules that match them.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::compile::count;

/// The first place of a run and its end, which is not part of it.
type Run = (u32, u32);

/// The places at which the number changes, ascending, with the new number. Before the first change
/// it is 0, the number of places that no list covers.
type Changes = Vec<(u32, u32)>;

/// The number of lists that have a bit each in one word.
const LISTS_OF_A_WORD: usize = 64;

/// Returns a number for each of `n` places, counted from 0 as they come. Two places share a number
/// if, and only if, the same lists cover them. Runs of a list may overlap.
pub(crate) fn numbers<'r>(lists: impl Iterator<Item = &'r [Run]>, n: usize) -> Vec<u32> {
    // The lists of a place are never written out: large blocks would make them long. Up to 64 lists
    // are the bits of a word. For more, numbers of two halves are paired and the pairs numbered. A
    // list costs a few steps for each end of a run, and no hash decides whether places are equal.
    //
    // Many rules have the same list, which distinguishes nothing more.
    let mut seen: FxHashSet<&[Run]> = FxHashSet::default();
    let lists = lists.filter(|list| !list.is_empty() && seen.insert(list));
    let lists: Vec<&[Run]> = lists.collect();
    let words = lists.chunks(LISTS_OF_A_WORD);
    let mut level: Vec<Changes> = words.map(of_few).collect();
    // Halves are joined as a tree. Joining one word after the other would walk the changes of the
    // first words again for each further word.
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

/// Numbers the places of up to [`LISTS_OF_A_WORD`] lists.
fn of_few(lists: &[&[Run]]) -> Changes {
    let mut ends: Vec<(u32, u64)> = Vec::new();
    let mut sorted: Vec<Run> = Vec::new();
    for (place, list) in lists.iter().enumerate() {
        let bit = 1 << place;
        if let [(start, end)] = list {
            ends.extend([(*start, bit), (*end, bit)]);
            continue;
        }
        // Ends toggle a bit, so runs of one list must not overlap: they are merged.
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
        // Where a run ends and the next one of its list starts, the bit is toggled twice.
        bits = here.iter().fold(bits, |bits, (_, bit)| bits ^ bit);
        let next = count(ids.len());
        let place = here.first().map_or(0, |(place, _)| *place);
        change(&mut changes, place, *ids.entry(bits).or_insert(next));
    }
    changes
}

/// Joins the numbers of two halves of the lists.
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

/// Numbers the places anew, counted from 0 as they come.
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

    /// Numbers by definition: by the lists that cover each place.
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
        // Each list alone distinguishes one place from all others.
        for n in [1, 63, 64, 65, 127, 128, 129, 200, 1000] {
            let lists: Vec<Vec<Run>> = (0..n).map(|it| vec![(it, it + 1)]).collect();
            let expected: Vec<u32> = (0..=n).collect();
            assert_eq!(found(&lists, n + 1), expected, "{n}");
        }
    }

    #[test]
    fn numbers_equal_those_of_looking_at_each_place() {
        let mut state = 1_u64;
        let mut below = |bound: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005);
            state = state.wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % bound
        };
        for round in 0..400 {
            let n = 1 + below(24);
            // Few different lists among many: places repeat.
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
