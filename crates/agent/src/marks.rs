//! Generations, and the marks of connections that were judged under earlier ones.
//!
//! A generation is a number of fifteen bits. Before one comes round again, no connection may still have
//! its mark: it would pass without being judged. So the numbers are two halves, and before one half is
//! entered all marks in it are forgotten. That holds across restarts, since the generation in use is
//! read back from the kernel's table.

use std::ops::RangeInclusive;

use palisade_nft::node::{Generation, MarkBits};

/// A half is cleaned, when there is nothing else to do, from so many generations before it on.
const AHEAD: u16 = 4_096;

/// Which generation is in use, and which marks are known to be gone.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    bits: MarkBits,
    current: Option<Generation>,
    /// Whether no connection has a mark of the half that is not in use.
    other_half_is_clean: bool,
}

impl Marks {
    /// `current` is what the kernel's table says; without one nobody knows which marks there are.
    pub(crate) fn new(bits: MarkBits, current: Option<Generation>) -> Marks {
        Marks {
            bits,
            current,
            other_half_is_clean: false,
        }
    }

    pub(crate) fn current(&self) -> Option<Generation> {
        self.current
    }

    /// The one that follows.
    pub(crate) fn next(&self) -> Generation {
        let next = |current: Generation| current.next(self.bits);
        self.current.map_or(Generation::FIRST, next)
    }

    /// The marks that have to be forgotten before the next generation may be used.
    pub(crate) fn to_forget_now(&self) -> Option<RangeInclusive<u16>> {
        let Some(current) = self.current else {
            return Some(1..=self.bits.last_generation());
        };
        let next = self.next();
        let enters = self.half(next) != self.half(current) || next < current;
        (enters && !self.other_half_is_clean).then(|| self.range(self.half(next)))
    }

    /// The marks that should be forgotten soon.
    pub(crate) fn to_forget_soon(&self) -> Option<RangeInclusive<u16>> {
        let current = self.current?;
        let end = *self.range(self.half(current)).end();
        let is_near = end.saturating_sub(current.get()) < AHEAD.min(end / 4);
        let other = !self.half(current);
        (is_near && !self.other_half_is_clean).then(|| self.range(other))
    }

    /// That marks were forgotten.
    pub(crate) fn forgotten(&mut self, range: &RangeInclusive<u16>) {
        match self.current {
            None => {
                // Everything: the first generation is used next, and the upper half is clean, too.
                self.current = Generation::new(self.bits.last_generation());
                self.other_half_is_clean = true;
            }
            Some(current) => {
                if *range == self.range(!self.half(current)) {
                    self.other_half_is_clean = true;
                }
            }
        }
    }

    /// That a generation is in use now, or may be: a transaction with it was tried.
    pub(crate) fn use_next(&mut self) -> Generation {
        let next = self.next();
        if self
            .current
            .is_some_and(|it| self.half(it) != self.half(next))
        {
            self.other_half_is_clean = false;
        }
        self.current = Some(next);
        next
    }

    fn middle(&self) -> u16 {
        self.bits.last_generation() / 2
    }

    /// Whether a generation is of the upper half.
    fn half(&self, generation: Generation) -> bool {
        generation.get() > self.middle()
    }

    fn range(&self, upper: bool) -> RangeInclusive<u16> {
        if upper {
            self.middle() + 1..=self.bits.last_generation()
        } else {
            1..=self.middle()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Whatever generations come, no connection keeps the mark of one that comes again.
    #[test]
    fn no_mark_comes_round() {
        let Some(bits) = MarkBits::new(0x3f0) else {
            panic!("a mask of six bits");
        };
        for start in [
            None,
            Generation::new(1),
            Generation::new(15),
            Generation::new(31),
        ] {
            // Connections that were judged once and never again.
            let mut asleep: BTreeSet<u16> = match start {
                None => (1..=31).collect(),
                Some(start) => (1..=start.get()).collect(),
            };
            let mut marks = Marks::new(bits, start);
            for step in 0..500 {
                let soon = (step % 7 == 0).then(|| marks.to_forget_soon()).flatten();
                for range in [soon, marks.to_forget_now()].into_iter().flatten() {
                    let current = marks.current();
                    assert!(current.is_none_or(|it| !range.contains(&it.get())));
                    asleep.retain(|mark| !range.contains(mark));
                    marks.forgotten(&range);
                }
                let used = marks.use_next().get();
                assert!(!asleep.contains(&used), "{start:?} {step}: {used}");
                asleep.insert(used);
            }
        }
    }

    #[test]
    fn what_nobody_knows_is_forgotten_first() {
        let mut marks = Marks::new(MarkBits::DEFAULT, None);
        assert_eq!(marks.to_forget_now(), Some(1..=0x7fff));
        marks.forgotten(&(1..=0x7fff));
        assert_eq!(marks.to_forget_now(), None);
        assert_eq!(marks.use_next(), Generation::FIRST);
        assert_eq!(marks.to_forget_now(), None);
    }
}
