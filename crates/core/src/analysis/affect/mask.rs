//! Sets of the rules that select a subject, as bits.

/// A set of rules of a stack, by their places in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Mask(Vec<u64>);

impl Mask {
    /// Makes the set of those of `n_rules` rules for which `has` holds.
    pub(super) fn of(n_rules: usize, mut has: impl FnMut(usize) -> bool) -> Mask {
        let mut mask = Mask(vec![0; n_rules.div_ceil(64)]);
        for rule in 0..n_rules {
            if has(rule) {
                mask.insert(rule);
            }
        }
        mask
    }

    pub(super) fn insert(&mut self, rule: usize) {
        if let Some(word) = self.0.get_mut(rule / 64) {
            *word |= 1 << (rule % 64);
        }
    }

    pub(super) fn has(&self, rule: usize) -> bool {
        let word = self.0.get(rule / 64);
        word.is_some_and(|word| word >> (rule % 64) & 1 == 1)
    }

    /// Returns the same set, out of more rules. Rules are appended, so no place changes.
    pub(super) fn widened(&self, n_rules: usize) -> Mask {
        let mut words = self.0.clone();
        words.resize(n_rules.div_ceil(64), 0);
        Mask(words)
    }

    pub(super) fn and(&self, other: &Mask) -> Mask {
        let words = self.0.iter().zip(&other.0);
        Mask(words.map(|(a, b)| a & b).collect())
    }

    pub(super) fn or(&self, other: &Mask) -> Mask {
        let words = self.0.iter().zip(&other.0);
        Mask(words.map(|(a, b)| a | b).collect())
    }
}

/// Returns each mask once, sorted.
pub(super) fn distinct(masks: impl Iterator<Item = Mask>) -> Vec<Mask> {
    let mut masks: Vec<Mask> = masks.collect();
    masks.sort_unstable();
    masks.dedup();
    masks
}
