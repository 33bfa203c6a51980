//! Numbers for sets, found by a signature of 128 bits instead of by the members.
//!
//! The signature of a set is the XOR of one word for each member, in any order. The words are a
//! fixed function of the members' numbers, and two sets of rules with one signature can be computed
//! in seconds. The signature is therefore only a hint: the caller compares the members.

use rustc_hash::FxHashMap;

use crate::compile::count;

/// The bits of words and signatures that are used. In the tests of this crate these are two: sets
/// share signatures all the time, and every answer depends on the comparison of members.
// Words are not keyed: this crate has no source of randomness, and no answer depends on a secret.
const USED_BITS: u128 = if cfg!(test) { 3 } else { u128::MAX };

/// Returns the word of a member: a fixed function of its number that looks random.
pub(crate) fn word(member: u64) -> u128 {
    let low = mix(member.wrapping_add(0x9e37_79b9_7f4a_7c15));
    let high = mix(low ^ member.wrapping_mul(0xd6e8_feb8_6659_fd93));
    (u128::from(high) << 64 | u128::from(low)) & USED_BITS
}

/// Returns the word of a member that is a pair.
pub(crate) fn pair_word(first: u32, second: u32) -> u128 {
    word(u64::from(first) << 32 | u64::from(second))
}

/// Returns the word of some bits of a row, as one member.
pub(crate) fn bits_word(place: usize, bits: u64) -> u128 {
    // Most words of a row are empty and need no mixing.
    if bits == 0 {
        return 0;
    }
    word(bits ^ mix(place as u64 + 1))
}

/// Returns the signature of a list, in which order counts.
pub(crate) fn ordered(members: impl IntoIterator<Item = u64>) -> u128 {
    let mut state = (0x243f_6a88_85a3_08d3_u64, 0x1319_8a2e_0370_7344_u64);
    for member in members {
        state.0 = mix(state.0 ^ member);
        state.1 = mix(state.1.rotate_left(23) ^ member.wrapping_add(state.0));
    }
    (u128::from(state.0) << 64 | u128::from(state.1)) & USED_BITS
}

/// Mixes a number: every bit of the result depends on every bit of the number.
fn mix(mut number: u64) -> u64 {
    // The finalizer of SplitMix64, which is a bijection: different numbers have different words.
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// The numbers of the sets so far.
#[derive(Debug, Default)]
pub(crate) struct SetInterner {
    ids: FxHashMap<u128, u32>,
}

/// The number of a set, and whether the set is new.
pub(crate) struct Interned {
    pub(crate) id: u32,
    pub(crate) is_new: bool,
}

impl SetInterner {
    /// Returns the number of a set by its signature. `is_same` compares the set with the one of a
    /// number; a new set gets the next number.
    pub(crate) fn number(
        &mut self,
        mut signature: u128,
        mut is_same: impl FnMut(u32) -> bool,
    ) -> Interned {
        let next = count(self.ids.len());
        loop {
            let id = *self.ids.entry(signature).or_insert(next);
            if id == next || is_same(id) {
                return Interned {
                    id,
                    is_new: id == next,
                };
            }
            // Another set has this signature: the next one is free or the set's own. Sets are never
            // removed, and a search never stops too early.
            signature = signature.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_that_share_a_signature_have_numbers_of_their_own() {
        let mut interner = SetInterner::default();
        let sets = ["a", "b", "c"];
        let mut number = |set: &str| {
            interner
                .number(7, |id| sets.get(id as usize) == Some(&set))
                .id
        };
        assert_eq!(sets.map(&mut number), [0, 1, 2]);
        assert_eq!(sets.map(number), [0, 1, 2]);
    }

    #[test]
    fn signatures_are_weak_in_these_tests() {
        let mut words: Vec<u128> = (0..100).map(word).collect();
        words.extend((0..100).map(|it| ordered([it])));
        assert!(words.iter().all(|it| *it < 4), "{words:?}");
    }
}
