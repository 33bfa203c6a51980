//! Duplicate keys of a mapping.

use std::collections::HashSet;

/// From this many keys on, a set is faster than a search.
const MANY_KEYS: usize = 32;

/// The keys of all open mappings, the innermost last.
#[derive(Debug)]
pub(super) struct Keys<'a> {
    keys: Vec<&'a [u8]>,
}

/// The keys of one open mapping.
#[derive(Debug)]
pub(super) struct Siblings<'a> {
    first: usize,
    /// A bit for each of them: most new keys need no comparison.
    seen: u64,
    many: Option<HashSet<&'a [u8]>>,
}

impl<'a> Keys<'a> {
    pub(super) fn new() -> Keys<'a> {
        Keys {
            keys: Vec::with_capacity(64),
        }
    }

    pub(super) fn open(&self) -> Siblings<'a> {
        Siblings {
            first: self.keys.len(),
            seen: 0,
            many: None,
        }
    }

    pub(super) fn close(&mut self, siblings: &Siblings<'a>) {
        self.keys.truncate(siblings.first);
    }

    /// Adds a key to the innermost mapping; returns whether it is new there.
    pub(super) fn add(&mut self, key: &'a [u8], first: u64, siblings: &mut Siblings<'a>) -> bool {
        let others = self.keys.get(siblings.first..).unwrap_or_default();
        let bit = 1 << (mix(key, first) >> 58);
        let is_new = if others.len() >= MANY_KEYS {
            let all = || others.iter().copied().collect();
            siblings.many.get_or_insert_with(all).insert(key)
        } else {
            siblings.seen & bit == 0 || !others.contains(&key)
        };
        siblings.seen |= bit;
        self.keys.push(key);
        is_new
    }
}

/// A hash of the length, the first and the last bytes, which differs for most keys.
fn mix(key: &[u8], first: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let last = key.last_chunk().map_or(0, |last| u64::from_le_bytes(*last));
    (first ^ last.rotate_left(29) ^ key.len() as u64).wrapping_mul(ODD)
}

/// The first bytes of a key at a place of a text, up to eight.
#[inline]
pub(super) fn first_bytes(text: &[u8], start: usize, length: usize) -> u64 {
    let rest = text.get(start..).unwrap_or_default();
    match rest.first_chunk() {
        Some(first) if length >= 8 => u64::from_le_bytes(*first),
        Some(first) => u64::from_le_bytes(*first) & ((1 << (8 * length)) - 1),
        // Near the end of the text; the same key must give the same number everywhere.
        None => {
            let key = rest.get(..length).unwrap_or_default();
            let word = |word, c: &u8| (word << 8) | u64::from(*c);
            key.iter().rev().fold(0, word)
        }
    }
}
