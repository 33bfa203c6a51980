//! Generations, and the marks of connections that were judged under earlier ones.
//!
//! A generation is a number of fifteen bits. Before one comes round again, no connection may still have
//! its mark: it would pass without being judged. So the numbers are two halves, and before one half is
//! entered all marks in it are forgotten. That holds across restarts, since the generation in use is
//! read back from the kernel's table.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use palisade_nft::node::{Generation, MarkBits};

/// A half is cleaned, when there is nothing else to do, from so many generations before it on.
const AHEAD: u16 = 4_096;

/// Which generation is in use, and which marks are known to be gone.
#[derive(Clone, Debug)]
pub(crate) struct GenerationTracker {
    bits: MarkBits,
    current: Option<Generation>,
    /// Whether no connection has a mark of the half that is not in use.
    other_half_is_clean: bool,
    /// The generations that the kernel may hold, and so go on writing: the last that it was known to hold,
    /// and those that were tried since and of which nobody knows.
    possible: BTreeSet<u16>,
    /// Marks that were written while nobody knew which generation the kernel held.
    doubtful: Vec<RangeInclusive<u16>>,
}

impl GenerationTracker {
    /// `current` is what the kernel's table says; without one nobody knows which marks there are.
    pub(crate) fn new(bits: MarkBits, current: Option<Generation>) -> GenerationTracker {
        GenerationTracker {
            bits,
            current,
            other_half_is_clean: false,
            possible: current.into_iter().map(Generation::get).collect(),
            doubtful: Vec::new(),
        }
    }

    pub(crate) fn current(&self) -> Option<Generation> {
        self.current
    }

    /// The one that follows; one that the kernel may hold is not new.
    pub(crate) fn next(&self) -> Generation {
        let Some(current) = self.current else {
            return Generation::FIRST;
        };
        let mut next = current.next(self.bits);
        for _ in 0..self.possible.len() {
            if !self.possible.contains(&next.get()) {
                break;
            }
            next = next.next(self.bits);
        }
        next
    }

    /// The marks that have to be forgotten before the next generation may be used.
    pub(crate) fn to_clear_now(&self) -> Option<RangeInclusive<u16>> {
        let Some(current) = self.current else {
            return Some(1..=self.bits.last_generation());
        };
        if let Some(doubtful) = self.doubtful.first() {
            return Some(doubtful.clone());
        }
        let next = self.next();
        let enters = self.half(next) != self.half(current) || next < current;
        (enters && !self.other_half_is_clean).then(|| self.range(self.half(next)))
    }

    /// The marks that should be forgotten soon.
    pub(crate) fn to_clear_soon(&self) -> Option<RangeInclusive<u16>> {
        let current = self.current?;
        if let Some(doubtful) = self.doubtful.first() {
            return Some(doubtful.clone());
        }
        let end = *self.range(self.half(current)).end();
        let is_near = end.saturating_sub(current.get()) < AHEAD.min(end / 4);
        let other = !self.half(current);
        (is_near && !self.other_half_is_clean).then(|| self.range(other))
    }

    /// That marks were forgotten.
    pub(crate) fn cleared(&mut self, range: &RangeInclusive<u16>) {
        if self.doubtful.contains(range) {
            self.doubtful.retain(|it| it != range);
            // All others were forgotten with them.
            self.other_half_is_clean |= self.doubtful.is_empty();
            return;
        }
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

    /// The next generation, which is tried now.
    pub(crate) fn use_next(&mut self) -> Generation {
        let next = self.next();
        if self
            .current
            .is_some_and(|it| self.half(it) != self.half(next))
        {
            self.other_half_is_clean = false;
        }
        self.current = Some(next);
        self.possible.insert(next.get());
        next
    }

    /// That the kernel holds the generation that was tried last.
    pub(crate) fn confirm(&mut self) {
        let Some(current) = self.current.map(Generation::get) else {
            return;
        };
        // With the one before, nothing was in doubt.
        let was_in_doubt = self.possible.len() > 2;
        self.possible = BTreeSet::from([current]);
        if was_in_doubt {
            // A half may have been cleaned while the kernel went on writing one of its numbers.
            let ranges = [1..=current - 1, current + 1..=self.bits.last_generation()];
            self.doubtful = ranges.into_iter().filter(|it| !it.is_empty()).collect();
            self.other_half_is_clean = false;
        }
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
            let mut marks = GenerationTracker::new(bits, start);
            for step in 0..500 {
                let soon = (step % 7 == 0).then(|| marks.to_clear_soon()).flatten();
                for range in [soon, marks.to_clear_now()].into_iter().flatten() {
                    let current = marks.current();
                    assert!(current.is_none_or(|it| !range.contains(&it.get())));
                    asleep.retain(|mark| !range.contains(mark));
                    marks.cleared(&range);
                }
                let used = marks.use_next().get();
                assert!(!asleep.contains(&used), "{start:?} {step}: {used}");
                asleep.insert(used);
                marks.confirm();
            }
        }
    }

    /// Nor if some are tried and nobody knows whether the kernel took them: whichever it holds, it goes on
    /// writing that.
    #[test]
    fn no_mark_comes_round_in_doubt() {
        let Some(bits) = MarkBits::new(0x7f0) else {
            panic!("a mask of seven bits");
        };
        for seed in 0..300u32 {
            let mut random = seed;
            let mut chance = |of: u32| {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (random >> 16) % of == 0
            };
            let mut marks = GenerationTracker::new(bits, Generation::new(40));
            let mut held = 40;
            let mut asleep = BTreeSet::from([40]);
            for step in 0..400 {
                let soon = chance(5).then(|| marks.to_clear_soon()).flatten();
                let mut ranges: Vec<_> = soon.into_iter().collect();
                while let Some(range) = ranges.pop().or_else(|| marks.to_clear_now()) {
                    asleep.retain(|mark| !range.contains(mark));
                    marks.cleared(&range);
                    // Traffic goes on.
                    asleep.insert(held);
                }
                let used = marks.use_next().get();
                assert!(!asleep.contains(&used), "seed {seed} step {step}: {used}");
                let (is_done, is_known) = (!chance(3), !chance(3));
                if is_done {
                    held = used;
                }
                asleep.insert(held);
                if is_done && is_known {
                    marks.confirm();
                }
            }
        }
    }

    #[test]
    fn after_a_doubt_all_marks_but_the_current_are_forgotten() {
        let mut marks = GenerationTracker::new(MarkBits::DEFAULT, Generation::new(100));
        // Nobody knows which of them the kernel took, until it is known to hold the last.
        marks.use_next();
        marks.use_next();
        marks.confirm();
        assert_eq!(marks.to_clear_now(), Some(1..=101));
        marks.cleared(&(1..=101));
        assert_eq!(marks.to_clear_now(), Some(103..=0x7fff));
        marks.cleared(&(103..=0x7fff));
        assert_eq!(marks.to_clear_now(), None);
    }

    #[test]
    fn what_nobody_knows_is_forgotten_first() {
        let mut marks = GenerationTracker::new(MarkBits::DEFAULT, None);
        assert_eq!(marks.to_clear_now(), Some(1..=0x7fff));
        marks.cleared(&(1..=0x7fff));
        assert_eq!(marks.to_clear_now(), None);
        assert_eq!(marks.use_next(), Generation::FIRST);
        assert_eq!(marks.to_clear_now(), None);
    }
}
