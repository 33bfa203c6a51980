//! Limits for generation changes, and backoff after failures.

use std::time::Duration;

/// The number of generation changes that may follow each other without a pause.
const AT_ONCE: u32 = 10;
/// The interval of further changes. Each makes every connection be evaluated once more: ten a
/// second are not noticeable, a hundred cost five to ten percent.
const EVERY: Duration = Duration::from_millis(100);

/// A token bucket: lets the first changes pass at once and spreads the following ones.
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

    /// Returns the time from which another change may pass.
    pub(crate) fn free_at(&mut self, now: Duration) -> Duration {
        self.fill(now);
        if self.left > 0 {
            now
        } else {
            self.counted + EVERY
        }
    }

    /// Counts a change that passes.
    pub(crate) fn pass(&mut self, now: Duration) {
        self.fill(now);
        self.left = self.left.saturating_sub(1);
    }

    fn fill(&mut self, now: Duration) {
        let since = now.saturating_sub(self.counted);
        let periods = since.as_millis() / EVERY.as_millis();
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(periods).min(AT_ONCE);
        // Advances by whole periods and keeps the rest, or else calls more often than one a period
        // would never refill. A full bucket does not save up time.
        if self.left == AT_ONCE {
            self.counted = now;
        } else {
            self.counted += EVERY * periods;
        }
    }
}

/// The first backoff after a failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest backoff.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The backoff of an action that may fail.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    until: Duration,
}

impl Backoff {
    /// Returns the time of the next try.
    pub(crate) fn until(&self) -> Duration {
        self.until
    }

    /// Returns the number of consecutive failures.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Records a failure. Returns the backoff.
    pub(crate) fn fail(&mut self, now: Duration) -> Duration {
        // Without jitter: only this node's kernel is retried, and no other node waits for it.
        let doubled = 1u32.checked_shl(self.failures.min(16)).unwrap_or(u32::MAX);
        let pause = FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.until = now + pause;
        pause
    }

    /// Records a success.
    pub(crate) fn succeed(&mut self) {
        *self = Backoff::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_changes_pass_at_once_and_the_rest_ten_a_second() {
        let mut limiter = RateLimiter::new();
        let mut now = Duration::from_secs(5);
        let mut passed = 0;
        let end = now + Duration::from_secs(10);
        while now < end {
            let free = limiter.free_at(now);
            if free <= now {
                limiter.pass(now);
                passed += 1;
            } else {
                now = free;
            }
        }
        assert!((109..=111).contains(&passed), "{passed}");
    }

    #[test]
    fn changes_pass_at_once_again_after_a_rest() {
        let mut limiter = RateLimiter::new();
        for _ in 0..AT_ONCE {
            limiter.pass(Duration::ZERO);
        }
        assert_eq!(limiter.free_at(Duration::from_millis(30)), EVERY);
        let later = Duration::from_secs(60);
        assert_eq!(limiter.free_at(later), later);
    }

    #[test]
    fn backoff_grows_up_to_a_limit() {
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
