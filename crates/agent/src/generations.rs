//! Generations, and the clearing of marks before their numbers are reused.
//!
//! A generation is a number of fifteen bits at most. Before a number is reused, no connection may
//! still have its mark: that connection would pass without an evaluation. The numbers are therefore
//! two halves, and all marks of one half are cleared before its first number is used. This holds
//! across restarts, because the current generation is read back from the kernel's table.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use palisade_core::plan::Generation;

/// In the last generations of a half, the other half is cleared whenever the agent is idle. No
/// change then has to wait for that.
const AHEAD: u16 = 4_096;

/// The current generation, and which marks may still exist.
#[derive(Clone, Debug)]
pub(crate) struct GenerationTracker {
    /// The largest number of a generation.
    last: u16,
    current: Option<Generation>,
    /// Whether no connection has a mark of the other half.
    other_half_is_clean: bool,
    /// The generations that the kernel may have, and therefore may be writing: the last confirmed
    /// one, and those of later commands whose outcome is unknown.
    possible: BTreeSet<u16>,
    /// Marks that the kernel may have written while its generation was unknown.
    doubtful: Vec<RangeInclusive<u16>>,
}

impl GenerationTracker {
    /// Creates a tracker. `current` is the generation of the kernel's table; without one,
    /// connections may have any mark.
    pub(crate) fn new(last: u16, current: Option<Generation>) -> GenerationTracker {
        GenerationTracker {
            last,
            current,
            other_half_is_clean: false,
            possible: current.into_iter().map(Generation::get).collect(),
            doubtful: Vec::new(),
        }
    }

    pub(crate) fn current(&self) -> Option<Generation> {
        self.current
    }

    /// Returns the next generation.
    pub(crate) fn next(&self) -> Generation {
        let Some(current) = self.current else {
            return Generation::FIRST;
        };
        // A generation that the kernel may have would make no mark stale.
        let mut next = current.next(self.last);
        for _ in 0..self.possible.len() {
            if !self.possible.contains(&next.get()) {
                break;
            }
            next = next.next(self.last);
        }
        next
    }

    /// Returns the marks that must be cleared before the next generation is used.
    pub(crate) fn to_clear_now(&self) -> Option<RangeInclusive<u16>> {
        let Some(current) = self.current else {
            return Some(1..=self.last);
        };
        if let Some(doubtful) = self.doubtful.first() {
            return Some(doubtful.clone());
        }
        let next = self.next();
        // `next < current`: the numbers wrap around. With `possible` skipped, that can also happen
        // without a change of the half.
        let enters = self.half(next) != self.half(current) || next < current;
        (enters && !self.other_half_is_clean).then(|| self.range(self.half(next)))
    }

    /// Returns the marks to clear when the agent is idle.
    pub(crate) fn to_clear_soon(&self) -> Option<RangeInclusive<u16>> {
        let current = self.current?;
        if let Some(doubtful) = self.doubtful.first() {
            return Some(doubtful.clone());
        }
        let end = *self.range(self.half(current)).end();
        // With few bits, `AHEAD` would be more than a whole half.
        let is_near = end.saturating_sub(current.get()) < AHEAD.min(end / 4);
        let other = !self.half(current);
        (is_near && !self.other_half_is_clean).then(|| self.range(other))
    }

    /// Records that the marks of a range were cleared.
    pub(crate) fn cleared(&mut self, range: &RangeInclusive<u16>) {
        if self.doubtful.contains(range) {
            self.doubtful.retain(|it| it != range);
            // Together the doubtful ranges are all numbers but the current one, so the other half
            // is in them.
            self.other_half_is_clean |= self.doubtful.is_empty();
            return;
        }
        match self.current {
            None => {
                // All marks are gone. The last number becomes the current one: the first one
                // follows it, and the upper half counts as cleared.
                self.current = Generation::new(self.last);
                self.other_half_is_clean = true;
            }
            Some(current) => {
                // The current half may have changed since the clearing began. Then this range
                // proves nothing.
                if *range == self.range(!self.half(current)) {
                    self.other_half_is_clean = true;
                }
            }
        }
    }

    /// Takes the next generation into use. Whether the kernel has it is unknown until
    /// [`Self::confirm`].
    pub(crate) fn use_next(&mut self) -> Generation {
        let next = self.next();
        if self
            .current
            .is_some_and(|it| self.half(it) != self.half(next))
        {
            // The half that was left has just been in use.
            self.other_half_is_clean = false;
        }
        self.current = Some(next);
        self.possible.insert(next.get());
        next
    }

    /// Records that the kernel has the generation that was used last.
    pub(crate) fn confirm(&mut self) {
        let Some(current) = self.current.map(Generation::get) else {
            return;
        };
        // Two are the normal case: the confirmed one before, and this one.
        let was_in_doubt = self.possible.len() > 2;
        self.possible = BTreeSet::from([current]);
        if was_in_doubt {
            // A half may have been cleared while the kernel was still writing one of its numbers.
            let ranges = [1..=current - 1, current + 1..=self.last];
            self.doubtful = ranges.into_iter().filter(|it| !it.is_empty()).collect();
            self.other_half_is_clean = false;
        }
    }

    fn middle(&self) -> u16 {
        self.last / 2
    }

    /// Returns whether a generation is in the upper half.
    fn half(&self, generation: Generation) -> bool {
        generation.get() > self.middle()
    }

    fn range(&self, upper: bool) -> RangeInclusive<u16> {
        if upper {
            self.middle() + 1..=self.last
        } else {
            1..=self.middle()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// No connection keeps the mark of a generation that is used again.
    #[test]
    fn no_mark_outlives_its_generation() {
        for start in [
            None,
            Generation::new(1),
            Generation::new(15),
            Generation::new(31),
        ] {
            // Connections that were evaluated once and never again.
            let mut asleep: BTreeSet<u16> = match start {
                None => (1..=31).collect(),
                Some(start) => (1..=start.get()).collect(),
            };
            let mut tracker = GenerationTracker::new(31, start);
            for step in 0..500 {
                let soon = (step % 7 == 0).then(|| tracker.to_clear_soon()).flatten();
                for range in [soon, tracker.to_clear_now()].into_iter().flatten() {
                    let current = tracker.current();
                    assert!(current.is_none_or(|it| !range.contains(&it.get())));
                    asleep.retain(|mark| !range.contains(mark));
                    tracker.cleared(&range);
                }
                let used = tracker.use_next().get();
                assert!(!asleep.contains(&used), "{start:?} {step}: {used}");
                asleep.insert(used);
                tracker.confirm();
            }
        }
    }

    /// The same if the outcome of some commands is unknown: the kernel goes on writing the
    /// generation that it has.
    #[test]
    fn no_mark_outlives_its_generation_if_outcomes_are_unknown() {
        for seed in 0..300u32 {
            let mut random = seed;
            let mut chance = |of: u32| {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (random >> 16) % of == 0
            };
            let mut tracker = GenerationTracker::new(63, Generation::new(40));
            let mut installed = 40;
            let mut asleep = BTreeSet::from([40]);
            for step in 0..400 {
                let soon = chance(5).then(|| tracker.to_clear_soon()).flatten();
                let mut ranges: Vec<_> = soon.into_iter().collect();
                while let Some(range) = ranges.pop().or_else(|| tracker.to_clear_now()) {
                    asleep.retain(|mark| !range.contains(mark));
                    tracker.cleared(&range);
                    // Traffic goes on.
                    asleep.insert(installed);
                }
                let used = tracker.use_next().get();
                assert!(!asleep.contains(&used), "seed {seed} step {step}: {used}");
                let (is_done, is_known) = (!chance(3), !chance(3));
                if is_done {
                    installed = used;
                }
                asleep.insert(installed);
                if is_done && is_known {
                    tracker.confirm();
                }
            }
        }
    }

    #[test]
    fn after_an_unknown_outcome_all_older_marks_are_cleared() {
        let mut tracker = GenerationTracker::new(0x7fff, Generation::new(100));
        // The kernel may have taken any of the two, until it is known to have the last.
        tracker.use_next();
        tracker.use_next();
        tracker.confirm();
        assert_eq!(tracker.to_clear_now(), Some(1..=101));
        tracker.cleared(&(1..=101));
        assert_eq!(tracker.to_clear_now(), Some(103..=0x7fff));
        tracker.cleared(&(103..=0x7fff));
        assert_eq!(tracker.to_clear_now(), None);
    }

    #[test]
    fn without_a_generation_all_marks_are_cleared_first() {
        let mut tracker = GenerationTracker::new(0x7fff, None);
        assert_eq!(tracker.to_clear_now(), Some(1..=0x7fff));
        tracker.cleared(&(1..=0x7fff));
        assert_eq!(tracker.to_clear_now(), None);
        assert_eq!(tracker.use_next(), Generation::FIRST);
        assert_eq!(tracker.to_clear_now(), None);
    }
}
