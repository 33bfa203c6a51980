//! Numbers for sets, found by a signature of 128 bits instead of by the set itself.
//!
//! A signature is the exclusive or of one word for each member, so that it does not depend on the
//! order in which members come. The words are a fixed function of the members' numbers: whoever
//! writes policies could compute sets that share a signature, so that it is only a hint, and the
//! caller says whether the sets are the same.

use rustc_hash::FxHashMap;

use super::labels::count;
use crate::signature::mix;
pub(super) use crate::signature::word;

/// The word of a member that is a pair.
pub(super) fn pair_word(first: u32, second: u32) -> u128 {
    word(u64::from(first) << 32 | u64::from(second))
}

/// The word of some bits of a row, which are members by themselves.
pub(super) fn bits_word(place: usize, bits: u64) -> u128 {
    if bits == 0 {
        return 0;
    }
    word(bits ^ mix(place as u64 + 1))
}

/// The numbers of the sets so far.
#[derive(Debug, Default)]
pub(super) struct Signed {
    ids: FxHashMap<u128, u32>,
}

/// The number of a set, and whether it was not known before.
pub(super) struct Numbered {
    pub(super) id: u32,
    pub(super) is_new: bool,
}

impl Signed {
    /// The number of the set with a signature that is the same as `is_same` says; a new one gets
    /// the next number.
    pub(super) fn number(
        &mut self,
        mut signature: u128,
        mut is_same: impl FnMut(u32) -> bool,
    ) -> Numbered {
        let next = count(self.ids.len());
        loop {
            let id = *self.ids.entry(signature).or_insert(next);
            if id == next || is_same(id) {
                return Numbered {
                    id,
                    is_new: id == next,
                };
            }
            // Another set has the signature: this one takes the next that is free or its own.
            signature = signature.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_that_share_a_signature_have_numbers_of_their_own() {
        let mut signed = Signed::default();
        let sets = ["a", "b", "c"];
        let mut number = |set: &str| {
            signed
                .number(7, |id| sets.get(id as usize) == Some(&set))
                .id
        };
        assert_eq!(sets.map(&mut number), [0, 1, 2]);
        assert_eq!(sets.map(number), [0, 1, 2]);
    }
}
