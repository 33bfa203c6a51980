//! When to ask again after something went wrong.

use std::time::Duration;

/// The first wait, and the longest.
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);

/// Waits that double, each a little different, so that a thousand nodes do not ask in the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// How long to wait after one more failure. `random` is any number.
    pub fn fail(&mut self, random: u64) -> Duration {
        let doubled = FIRST.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        jitter(doubled.min(LONGEST), random)
    }

    /// That it worked.
    pub fn succeed(&mut self) {
        self.failures = 0;
    }

    /// How often it has failed in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// Between three quarters and five quarters of a time.
pub fn jitter(time: Duration, random: u64) -> Duration {
    let share = 75 + u32::try_from(random % 51).unwrap_or(0);
    time.saturating_mul(share) / 100
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Backoff;

    #[test]
    fn waits_grow_up_to_a_limit_and_begin_anew() {
        let mut pace = Backoff::default();
        // 25 of 0 to 50 is the middle.
        let waits: Vec<u128> = (0..10).map(|_| pace.fail(25).as_millis()).collect();
        assert_eq!(
            waits,
            [
                200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000
            ]
        );
        pace.succeed();
        assert_eq!(pace.fail(0), Duration::from_millis(150));
        pace.succeed();
        assert_eq!(pace.fail(50), Duration::from_millis(250));
    }
}
