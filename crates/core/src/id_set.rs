//! Sets of small numbers: a list if the set has few members, otherwise a bit for each number.

/// A set of numbers below a bound. The bound is not stored: the creator of the set knows it.
#[derive(Clone, Debug)]
pub(crate) enum IdSet {
    /// The members, ascending.
    Few(Vec<u32>),
    /// A bit for each number below the bound.
    Many(Vec<u64>),
}

/// The bits that one number of a list takes.
const BITS_OF_AN_ENTRY: usize = 32;

/// Returns whether a list of `length` numbers takes no more room than bits for all numbers below
/// `bound`.
pub(crate) fn is_few(length: usize, bound: usize) -> bool {
    // A single number is always a list, also with a bound below 32.
    length <= (bound / BITS_OF_AN_ENTRY).max(1)
}

impl IdSet {
    /// Creates a set from a list, ascending and without repetition.
    pub(crate) fn from_list(list: Vec<u32>, bound: usize) -> IdSet {
        // Both constructors use this limit: the form depends on the members only.
        if is_few(list.len(), bound) {
            return IdSet::Few(list);
        }
        let mut bits = vec![0; bound.div_ceil(64)];
        for number in list {
            set_bit(&mut bits, number);
        }
        IdSet::Many(bits)
    }

    /// Creates a set from bits for all numbers below `bound`.
    pub(crate) fn from_bits(bits: Vec<u64>, bound: usize) -> IdSet {
        if is_few(count_ones(&bits), bound) {
            IdSet::Few(ones(&bits).collect())
        } else {
            IdSet::Many(bits)
        }
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        match self {
            IdSet::Few(list) => list.binary_search(&number).is_ok(),
            IdSet::Many(bits) => has_bit(bits, number),
        }
    }

    /// Calls `each` for every member, ascending.
    pub(crate) fn for_each(&self, mut each: impl FnMut(u32)) {
        match self {
            IdSet::Few(list) => list.iter().copied().for_each(each),
            IdSet::Many(bits) => ones(bits).for_each(&mut each),
        }
    }
}

pub(crate) fn has_bit(bits: &[u64], number: u32) -> bool {
    let word = bits.get(number as usize / 64).copied().unwrap_or(0);
    word >> (number % 64) & 1 != 0
}

pub(crate) fn set_bit(bits: &mut [u64], number: u32) {
    if let Some(word) = bits.get_mut(number as usize / 64) {
        *word |= 1 << (number % 64);
    }
}

pub(crate) fn clear_bit(bits: &mut [u64], number: u32) {
    if let Some(word) = bits.get_mut(number as usize / 64) {
        *word &= !(1 << (number % 64));
    }
}

pub(crate) fn count_ones(bits: &[u64]) -> usize {
    bits.iter().map(|word| word.count_ones() as usize).sum()
}

/// Returns the numbers whose bits are set, ascending.
pub(crate) fn ones(bits: &[u64]) -> impl Iterator<Item = u32> + '_ {
    let words = (0_u32..).step_by(64).zip(bits);
    words.flat_map(|(start, word)| ones_from(start, *word))
}

/// Returns the numbers whose bits are set in a word whose first bit has the number `start`.
pub(crate) fn ones_from(start: u32, word: u64) -> impl Iterator<Item = u32> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let bit = rest.trailing_zeros();
        // Clears the lowest bit; without one the word is zero and the iterator ends.
        rest &= rest.checked_sub(1)?;
        Some(start + bit)
    })
}

/// Returns bits for all numbers below `bound`, all set.
pub(crate) fn all_ones(bound: usize) -> Vec<u64> {
    let mut bits = vec![u64::MAX; bound.div_ceil(64)];
    if !bound.is_multiple_of(64)
        && let Some(last) = bits.last_mut()
    {
        // Bits at and above the bound stay clear: counts and intersections read whole words.
        *last = (1 << (bound % 64)) - 1;
    }
    bits
}

/// Sets or clears the bits from `start` to before `end`.
pub(crate) fn fill(bits: &mut [u64], start: u32, end: u32, value: bool) {
    if start >= end {
        return;
    }
    let (first, last) = (start as usize / 64, (end as usize - 1) / 64);
    let Some(words) = bits.get_mut(first..=last) else {
        return;
    };
    let from = u64::MAX << (start % 64);
    // `end` is not included. With `end - 1` no shift reaches 64, which would overflow.
    let up_to = u64::MAX >> (63 - (end - 1) % 64);
    let n_words = words.len();
    for (index, word) in words.iter_mut().enumerate() {
        let mut mask = u64::MAX;
        if index == 0 {
            mask &= from;
        }
        if index + 1 == n_words {
            mask &= up_to;
        }
        if value {
            *word |= mask;
        } else {
            *word &= !mask;
        }
    }
}

/// Transposes 64 rows of 64 bits.
pub(crate) fn transpose(block: &mut [u64; 64]) {
    // Swaps ever smaller squares across the diagonal: 6 passes instead of 4,096 single bits.
    let mut width = 32;
    let mut mask = 0x0000_0000_ffff_ffff_u64;
    while width != 0 {
        let mut row = 0;
        while row < 64 {
            let (low, high) = block.split_at_mut(row + width);
            for (low, high) in low.iter_mut().skip(row).zip(high.iter_mut().take(width)) {
                let swapped = (*low >> width ^ *high) & mask;
                *high ^= swapped;
                *low ^= swapped << width;
            }
            row += 2 * width;
        }
        width /= 2;
        mask ^= mask << width;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_set_is_the_same_whether_it_is_made_of_a_list_or_of_bits() {
        for list in [vec![], vec![3], vec![0, 63, 64, 199], (0..200).collect()] {
            let mut bits = vec![0; 4];
            for number in &list {
                set_bit(&mut bits, *number);
            }
            for set in [
                IdSet::from_list(list.clone(), 200),
                IdSet::from_bits(bits, 200),
            ] {
                let mut members = Vec::new();
                set.for_each(|it| members.push(it));
                assert_eq!(members, list);
                assert!((0..210).all(|it| set.contains(it) == list.contains(&it)));
            }
        }
    }

    #[test]
    fn a_range_is_filled_to_the_bit() {
        for (start, end) in [(0, 0), (0, 1), (5, 64), (63, 65), (60, 190), (128, 192)] {
            let mut bits = vec![0; 3];
            fill(&mut bits, start, end, true);
            assert!(ones(&bits).eq(start..end));
            let mut rest = all_ones(192);
            fill(&mut rest, start, end, false);
            assert!(ones(&rest).eq((0..start).chain(end..192)));
        }
        assert!(ones(&all_ones(70)).eq(0..70));
    }

    #[test]
    fn rows_become_columns() {
        let mut block = [0; 64];
        for (row, word) in block.iter_mut().enumerate() {
            *word = (row as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        let rows = block;
        transpose(&mut block);
        for (row, word) in rows.iter().enumerate() {
            for (column, other) in block.iter().enumerate() {
                assert_eq!(word >> column & 1, other >> row & 1);
            }
        }
    }
}
