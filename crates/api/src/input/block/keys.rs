//! Keys that stand twice in a mapping.

use std::collections::HashSet;

/// From how many keys on a set of them pays.
const MANY_KEYS: usize = 32;

/// The keys of all open mappings, the innermost last.
#[derive(Debug, Default)]
pub(super) struct Keys<'a> {
    keys: Vec<&'a [u8]>,
}

/// The keys of one open mapping.
#[derive(Debug)]
pub(super) struct Siblings<'a> {
    first: usize,
    /// A bit for each of them, so that most new keys need no comparison.
    seen: u64,
    many: Option<Box<HashSet<&'a [u8]>>>,
}

impl<'a> Keys<'a> {
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

    /// Adds a key to the innermost mapping; whether it is new there.
    pub(super) fn add(&mut self, key: &'a [u8], siblings: &mut Siblings<'a>) -> bool {
        let others = self.keys.get(siblings.first..).unwrap_or_default();
        let bit = 1 << (mix(key) >> 58);
        let is_new = if others.len() >= MANY_KEYS {
            let all = || Box::new(others.iter().copied().collect());
            siblings.many.get_or_insert_with(all).insert(key)
        } else {
            siblings.seen & bit == 0 || !others.contains(&key)
        };
        siblings.seen |= bit;
        self.keys.push(key);
        is_new
    }
}

/// A number that tells most keys apart: of the length, the first and the last eight bytes.
fn mix(key: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let word = match (key.first_chunk(), key.last_chunk()) {
        (Some(first), Some(last)) => {
            u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(29)
        }
        _ => key.iter().fold(0, |word, c| (word << 8) | u64::from(*c)),
    };
    (word ^ key.len() as u64).wrapping_mul(ODD)
}
