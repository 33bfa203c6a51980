//! Signatures of sets, so that equal sets are found by one comparison of 128 bits.
//!
//! A set that changes step by step has the sum of one fixed word for each member; a set that is
//! there as a sorted list has a hash of the list. Different sets have one signature by a chance of
//! about one in 2^128 for each pair.

use crate::signature;

/// The signature of a set.
pub(crate) type Signature = u128;

/// The word of a member.
pub(crate) fn word(member: u32) -> Signature {
    signature::word(u64::from(member))
}

/// The signature of a list, in which order counts.
pub(crate) fn ordered(members: impl IntoIterator<Item = u64>) -> Signature {
    let mut state = (0x243f_6a88_85a3_08d3_u64, 0x1319_8a2e_0370_7344_u64);
    for member in members {
        state.0 = signature::mix(state.0 ^ member);
        state.1 = signature::mix(state.1.rotate_left(23) ^ member.wrapping_add(state.0));
    }
    (u128::from(state.0) << 64) | u128::from(state.1)
}

/// Notes that a member is in all places of some runs, which may overlap.
pub(crate) fn mark(changes: &mut [Signature], runs: &[(u32, u32)], word: Signature) {
    let mut add = |(start, end): (u32, u32)| {
        if let Some(change) = changes.get_mut(start as usize) {
            *change = change.wrapping_add(word);
        }
        if let Some(change) = changes.get_mut(end as usize) {
            *change = change.wrapping_sub(word);
        }
    };
    if let [run] = runs {
        add(*run);
        return;
    }
    let mut sorted = runs.to_vec();
    sorted.sort_unstable();
    let mut open: Option<(u32, u32)> = None;
    for (start, end) in sorted {
        match &mut open {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ => {
                if let Some(run) = open.replace((start, end)) {
                    add(run);
                }
            }
        }
    }
    if let Some(run) = open {
        add(run);
    }
}

/// The signature of each of `n` places, from what changes at each.
pub(crate) fn sums(changes: &[Signature], n: usize) -> Vec<Signature> {
    let places = changes.iter().take(n);
    let sums = places.scan(0_u128, |sum, change| {
        *sum = change.wrapping_add(*sum);
        Some(*sum)
    });
    sums.collect()
}
