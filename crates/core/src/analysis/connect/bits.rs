//! Sets of source keys: dense ones as bits of words, sparse ones as lists.

pub(crate) use crate::id_set::{all_ones, has_bit as has, ones as iter, set_bit as set};

/// A bit for each source key, in words of 64.
pub(crate) type Words = Vec<u64>;

pub(crate) fn words_for(n: usize) -> usize {
    n.div_ceil(64)
}

pub(crate) fn is_empty(words: &[u64]) -> bool {
    words.iter().all(|word| *word == 0)
}

pub(crate) fn or(into: &mut [u64], other: &[u64]) {
    for (word, other) in into.iter_mut().zip(other) {
        *word |= other;
    }
}

pub(crate) fn and(into: &mut [u64], other: &[u64]) {
    for (word, other) in into.iter_mut().zip(other) {
        *word &= other;
    }
}

pub(crate) fn and_not(into: &mut [u64], other: &[u64]) {
    for (word, other) in into.iter_mut().zip(other) {
        *word &= !other;
    }
}

/// A set of source keys in the form that is cheaper to apply.
#[derive(Clone, Debug)]
pub(crate) enum KeySet {
    /// Ascending.
    Sparse(Vec<u32>),
    Dense(Words),
    Everything,
}

impl KeySet {
    /// Makes a set of keys in any order, out of `n` keys.
    pub(crate) fn new(mut keys: Vec<u32>, n: usize) -> KeySet {
        keys.sort_unstable();
        keys.dedup();
        if keys.len() == n {
            return KeySet::Everything;
        }
        // A list costs a step for each of its keys, words a step for each 64 keys of the domain.
        // Below one key in 64 the list has fewer steps; it also takes less memory.
        if keys.len() <= n / 64 {
            keys.shrink_to_fit();
            return KeySet::Sparse(keys);
        }
        let mut words = vec![0; words_for(n)];
        for key in keys {
            set(&mut words, key);
        }
        KeySet::Dense(words)
    }

    /// Iterates over the keys, ascending; the domain has `n` keys.
    pub(crate) fn iter(&self, n: usize) -> Box<dyn Iterator<Item = u32> + '_> {
        match self {
            KeySet::Sparse(keys) => Box::new(keys.iter().copied()),
            KeySet::Dense(words) => Box::new(iter(words)),
            KeySet::Everything => Box::new(0..u32::try_from(n).unwrap_or(u32::MAX)),
        }
    }

    /// Returns whether `words` has the same keys; the domain has `n` keys.
    pub(crate) fn is(&self, words: &[u64], n: usize) -> bool {
        match self {
            KeySet::Sparse(keys) => keys.iter().copied().eq(iter(words)),
            KeySet::Dense(keys) => keys == words,
            KeySet::Everything => iter(words).count() == n,
        }
    }

    /// Returns the bytes that the keys take.
    pub(crate) fn room(&self) -> usize {
        match self {
            KeySet::Sparse(keys) => keys.len() * 4,
            KeySet::Dense(words) => words.len() * 8,
            KeySet::Everything => 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        // `new` makes no empty set dense.
        matches!(self, KeySet::Sparse(keys) if keys.is_empty())
    }

    /// Adds the keys to `words`; `all` has every key of the domain.
    pub(crate) fn add_to(&self, words: &mut [u64], all: &[u64]) {
        match self {
            KeySet::Sparse(keys) => {
                for key in keys {
                    set(words, *key);
                }
            }
            KeySet::Dense(keys) => or(words, keys),
            // Not `fill`: the unused bits of the last word are no keys and must stay 0.
            KeySet::Everything => or(words, all),
        }
    }

    /// Removes the keys from `open`, and adds those that were in it to `into`.
    pub(crate) fn take(&self, open: &mut [u64], into: Option<&mut [u64]>) {
        match (self, into) {
            (KeySet::Sparse(keys), Some(into)) => {
                for key in keys {
                    if take_bit(open, *key) {
                        set(into, *key);
                    }
                }
            }
            (KeySet::Sparse(keys), None) => {
                for key in keys {
                    take_bit(open, *key);
                }
            }
            (KeySet::Dense(keys), Some(into)) => {
                for ((open, into), keys) in open.iter_mut().zip(into).zip(keys) {
                    *into |= *open & keys;
                    *open &= !keys;
                }
            }
            (KeySet::Dense(keys), None) => and_not(open, keys),
            (KeySet::Everything, into) => {
                if let Some(into) = into {
                    or(into, open);
                }
                open.fill(0);
            }
        }
    }
}

fn take_bit(words: &mut [u64], bit: u32) -> bool {
    let Some(word) = words.get_mut(bit as usize / 64) else {
        return false;
    };
    let mask = 1 << (bit % 64);
    let had = *word & mask != 0;
    *word &= !mask;
    had
}

/// Weights of keys as bit planes: plane `i` has the keys whose weight has the bit `i`. The weight
/// of a set is then a few counts of bits.
#[derive(Debug)]
pub(crate) struct Weights {
    planes: Vec<Words>,
}

impl Weights {
    pub(crate) fn new(weights: &[u64]) -> Weights {
        let most = weights.iter().copied().max().unwrap_or(0);
        let n_planes = u64::BITS - most.leading_zeros();
        let plane = |plane: u32| {
            let mut words = vec![0; words_for(weights.len())];
            for (key, weight) in weights.iter().enumerate() {
                if weight & (1 << plane) != 0 {
                    set(&mut words, u32::try_from(key).unwrap_or(u32::MAX));
                }
            }
            words
        };
        Weights {
            planes: (0..n_planes).map(plane).collect(),
        }
    }

    /// Returns the total weight of a set.
    pub(crate) fn of(&self, words: &[u64]) -> u64 {
        let planes = self.planes.iter().enumerate();
        let weights = planes.map(|(plane, keys)| {
            let both = keys.iter().zip(words).map(|(a, b)| a & b);
            both.map(|word| u64::from(word.count_ones())).sum::<u64>() << plane
        });
        weights.sum()
    }
}
