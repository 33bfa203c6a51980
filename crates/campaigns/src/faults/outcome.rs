//! What a family of tests came to.

use std::collections::BTreeMap;
use std::fmt;

use super::ledger::Tally;

/// Counts, times, and what was not as it must be.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The family and what of it.
    pub name: String,
    /// What was not as it must be.
    pub broken: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
    times: BTreeMap<&'static str, Vec<u64>>,
}

/// More of them would say nothing new.
const MOST: usize = 50;

impl Outcome {
    /// Nothing yet.
    pub fn new(name: &str) -> Outcome {
        Outcome {
            name: name.to_owned(),
            broken: Vec::new(),
            counts: BTreeMap::new(),
            times: BTreeMap::new(),
        }
    }

    /// Counts something.
    pub fn count(&mut self, what: &'static str, by: u64) {
        *self.counts.entry(what).or_default() += by;
    }

    /// A count.
    pub fn get(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    /// Notes how long something took, in nanoseconds.
    pub fn took(&mut self, what: &'static str, nanoseconds: u64) {
        self.times.entry(what).or_default().push(nanoseconds);
    }

    /// What so many of a hundred took at most, in nanoseconds.
    pub fn percentile(&self, what: &str, percent: usize) -> u64 {
        let mut times = self.times.get(what).cloned().unwrap_or_default();
        times.sort_unstable();
        let place = times.len().saturating_sub(1) * percent / 100;
        times.get(place).copied().unwrap_or(0)
    }

    /// Notes that something must hold.
    pub fn check(&mut self, holds: bool, words: impl FnOnce() -> String) {
        if !holds && self.broken.len() < MOST {
            self.broken.push(words());
        }
    }

    /// Adds packets.
    pub fn add(&mut self, tally: Tally, broken: Vec<String>) {
        self.count("packets", tally.sent);
        self.count("arrived", tally.arrived);
        self.count("leaked", tally.leaked);
        self.count("lost", tally.lost);
        for words in broken {
            self.check(false, || words);
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
            let [half, most, all] = [50, 99, 100].map(|it| self.percentile(what, it) as f64 / 1e6);
            write!(
                f,
                "; {what}: p50 {half:.2} ms, p99 {most:.2} ms, max {all:.2} ms"
            )?;
        }
        for words in &self.broken {
            write!(f, "\n  BROKEN: {words}")?;
        }
        Ok(())
    }
}
