//! The outcome of a family of tests.

use std::collections::BTreeMap;
use std::fmt;

use super::ledger::Tally;

/// Counts, times and violations.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The family and its part.
    pub name: String,
    /// What must not happen, and did.
    pub violations: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
    times: BTreeMap<&'static str, Vec<u64>>,
}

/// Violations that are kept.
const MAX_VIOLATIONS: usize = 50;

impl Outcome {
    /// An empty outcome.
    pub fn new(name: &str) -> Outcome {
        Outcome {
            name: name.to_owned(),
            violations: Vec::new(),
            counts: BTreeMap::new(),
            times: BTreeMap::new(),
        }
    }

    /// An empty outcome that reports leaked and lost packets even if there are none.
    pub fn of_packets(name: &str) -> Outcome {
        let mut outcome = Outcome::new(name);
        outcome.count("leaked", 0);
        outcome.count("lost", 0);
        outcome
    }

    /// Increases a count.
    pub fn count(&mut self, what: &'static str, by: u64) {
        *self.counts.entry(what).or_default() += by;
    }

    /// A count.
    pub fn get(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    /// Records a duration in nanoseconds.
    pub fn record_time(&mut self, what: &'static str, nanoseconds: u64) {
        self.times.entry(what).or_default().push(nanoseconds);
    }

    /// A percentile of the durations, in nanoseconds.
    pub fn percentile(&self, what: &str, percent: usize) -> u64 {
        let mut times = self.times.get(what).cloned().unwrap_or_default();
        times.sort_unstable();
        let place = times.len().saturating_sub(1) * percent / 100;
        times.get(place).copied().unwrap_or(0)
    }

    /// Records a violation if a condition does not hold.
    pub fn check(&mut self, holds: bool, message: impl FnOnce() -> String) {
        if !holds && self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(message());
        }
    }

    /// Adds the packets of a tally.
    pub fn add(&mut self, tally: Tally, violations: Vec<String>) {
        self.count("packets", tally.sent);
        self.count("arrived", tally.arrived);
        self.count("leaked", tally.leaked);
        self.count("lost", tally.lost);
        for message in violations {
            self.check(false, || message);
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.name)?;
        for (place, (what, count)) in self.counts.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma} {count} {what}")?;
        }
        for what in self.times.keys() {
            let [p50, p99, max] = [50, 99, 100].map(|it| self.percentile(what, it) as f64 / 1e6);
            write!(
                f,
                "; {what}: p50 {p50:.2} ms, p99 {p99:.2} ms, max {max:.2} ms"
            )?;
        }
        for message in &self.violations {
            write!(f, "\n  VIOLATION: {message}")?;
        }
        Ok(())
    }
}
