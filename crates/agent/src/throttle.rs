//! How often, and when again.

use std::time::Duration;

/// So many changes of the generation may follow each other without a pause.
const AT_ONCE: u32 = 10;
/// And one more for each of these. Each makes every connection be judged once more: ten a second
/// are not to be noticed, a hundred cost five to ten percent.
const EVERY: Duration = Duration::from_millis(100);

/// Lets the first changes pass at once, and spreads what follows too fast.
#[derive(Clone, Debug)]
pub(crate) struct RateLimiter {
    left: u32,
    counted: Duration,
}

impl RateLimiter {
    pub(crate) fn new() -> RateLimiter {
        RateLimiter {
            left: AT_ONCE,
            counted: Duration::ZERO,
        }
    }

    /// From when on another change may pass.
    pub(crate) fn free_at(&mut self, now: Duration) -> Duration {
        self.fill(now);
        if self.left > 0 {
            now
        } else {
            self.counted + EVERY
        }
    }

    /// That one passed.
    pub(crate) fn pass(&mut self, now: Duration) {
        self.fill(now);
        self.left = self.left.saturating_sub(1);
    }

    fn fill(&mut self, now: Duration) {
        let since = now.saturating_sub(self.counted);
        let periods = since.as_millis() / EVERY.as_millis();
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(periods).min(AT_ONCE);
        if self.left == AT_ONCE {
            self.counted = now;
        } else {
            self.counted += EVERY * periods;
        }
    }
}

/// The first pause after a failure; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// When something that failed is tried again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    until: Duration,
}

impl Backoff {
    /// From when on it may be tried.
    pub(crate) fn until(&self) -> Duration {
        self.until
    }

    /// How often it has failed since it last worked.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// That it failed; says how long to wait.
    pub(crate) fn fail(&mut self, now: Duration) -> Duration {
        let doubled = 1u32.checked_shl(self.failures.min(16)).unwrap_or(u32::MAX);
        let pause = FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.until = now + pause;
        pause
    }

    /// That it worked.
    pub(crate) fn succeed(&mut self) {
        *self = Backoff::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_go_at_once_and_the_rest_ten_a_second() {
        let mut pace = RateLimiter::new();
        let mut now = Duration::from_secs(5);
        let mut passed = 0;
        let end = now + Duration::from_secs(10);
        while now < end {
            let free = pace.free_at(now);
            if free <= now {
                pace.pass(now);
                passed += 1;
            } else {
                now = free;
            }
        }
        assert!((109..=111).contains(&passed), "{passed}");
    }

    #[test]
    fn after_a_rest_they_go_at_once_again() {
        let mut pace = RateLimiter::new();
        for _ in 0..AT_ONCE {
            pace.pass(Duration::ZERO);
        }
        assert_eq!(pace.free_at(Duration::from_millis(30)), EVERY);
        let later = Duration::from_secs(60);
        assert_eq!(pace.free_at(later), later);
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..12)
            .map(|_| backoff.fail(Duration::ZERO).as_millis())
            .collect();
        assert_eq!(pauses.first(), Some(&20));
        assert_eq!(pauses.get(1), Some(&40));
        assert_eq!(pauses.last(), Some(&5_000));
        backoff.succeed();
        assert_eq!(backoff.until(), Duration::ZERO);
    }
}
