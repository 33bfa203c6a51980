//! Backoff and jitter of requests after a failure.

use std::time::Duration;

/// The first and the longest backoff, before jitter.
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);

/// Exponential backoff with jitter: a thousand nodes must not retry at the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Records a failure. Returns the backoff. `random` is any number.
    pub fn fail(&mut self, random: u64) -> Duration {
        // Bounded, or else the shift overflows during a long outage.
        let doubled = FIRST.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        jitter(doubled.min(LONGEST), random)
    }

    /// Records a success.
    pub fn succeed(&mut self) {
        self.failures = 0;
    }

    /// Returns the number of consecutive failures.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// Returns between three quarters and five quarters of a time.
pub fn jitter(time: Duration, random: u64) -> Duration {
    let share = 75 + u32::try_from(random % 51).unwrap_or(0);
    time.saturating_mul(share) / 100
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Backoff;

    #[test]
    fn backoff_grows_up_to_a_limit_and_restarts() {
        let mut backoff = Backoff::default();
        // 25 of 0 to 50 is the middle.
        let waits: Vec<u128> = (0..10).map(|_| backoff.fail(25).as_millis()).collect();
        assert_eq!(
            waits,
            [
                200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000
            ]
        );
        backoff.succeed();
        assert_eq!(backoff.fail(0), Duration::from_millis(150));
        backoff.succeed();
        assert_eq!(backoff.fail(50), Duration::from_millis(250));
    }
}
