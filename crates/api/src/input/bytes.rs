//! Bytes eight at a time: where a run of spaces ends, where a string or a plain word may end.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The high bit of bytes that equal `c`. False positives occur only above a true one.
fn equal(word: u64, c: u8) -> u64 {
    let zero = word ^ (ONES * u64::from(c));
    zero.wrapping_sub(ONES) & !zero & HIGH
}

/// The high bit of control characters. False positives occur only above a true one.
fn control(word: u64) -> u64 {
    word.wrapping_sub(ONES * 0x20) & !word & HIGH
}

/// The number of bytes before the first that `stops_in` marks in a word and `is_stop` confirms.
#[inline]
fn before(bytes: &[u8], stops_in: impl Fn(u64) -> u64, is_stop: impl Fn(u8) -> bool) -> usize {
    let (chunks, rest) = bytes.as_chunks::<8>();
    let mut at = 0;
    for chunk in chunks {
        let stops = stops_in(u64::from_le_bytes(*chunk));
        if stops != 0 {
            return at + stops.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + rest.iter().position(|c| is_stop(*c)).unwrap_or(rest.len())
}

/// The number of bytes before the first quote, backslash or control character.
#[inline]
pub(super) fn before_quote(bytes: &[u8]) -> usize {
    before(
        bytes,
        |word| equal(word, b'"') | equal(word, b'\\') | control(word),
        |c| matches!(c, b'"' | b'\\' | 0..0x20),
    )
}

/// The number of bytes before the first colon, number sign or control character.
#[inline]
pub(super) fn before_indicator(bytes: &[u8]) -> usize {
    before(
        bytes,
        |word| equal(word, b':') | equal(word, b'#') | control(word),
        |c| matches!(c, b':' | b'#' | 0..0x20),
    )
}

/// The number of spaces that the bytes start with.
#[inline]
pub(super) fn spaces(bytes: &[u8]) -> usize {
    before(
        bytes,
        |word| {
            // Any byte that differs leaves a bit, and the lowest one is in the first such byte.
            word ^ (ONES * u64::from(b' '))
        },
        |c| c != b' ',
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_are_found_wherever_they_stand() {
        for at in 0..40 {
            let mut text = vec![b'a'; 40];
            assert_eq!(before_quote(&text), 40);
            assert_eq!(before_indicator(&text), 40);
            for (stop, quote, indicator) in [
                (b'"', true, false),
                (b'\\', true, false),
                (b'\n', true, true),
                (0x1f, true, true),
                (b':', false, true),
                (b'#', false, true),
                (0x80, false, false),
                (0xff, false, false),
            ] {
                text[at] = stop;
                assert_eq!(before_quote(&text), if quote { at } else { 40 }, "{stop}");
                assert_eq!(
                    before_indicator(&text),
                    if indicator { at } else { 40 },
                    "{stop}"
                );
            }
            let mut blank = vec![b' '; 40];
            blank[at] = b'!';
            assert_eq!(spaces(&blank), at);
        }
        assert_eq!(spaces(&[b' '; 19]), 19);
    }
}
