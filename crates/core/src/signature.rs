//! Words for members of sets, of which signatures are made.

/// The word of a member: a fixed function of its number that looks like chance.
pub(crate) fn word(member: u64) -> u128 {
    let low = mix(member.wrapping_add(0x9e37_79b9_7f4a_7c15));
    let high = mix(low ^ member.wrapping_mul(0xd6e8_feb8_6659_fd93));
    u128::from(high) << 64 | u128::from(low)
}

/// Every bit of the result depends on every bit of the number.
pub(crate) fn mix(mut number: u64) -> u64 {
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}
