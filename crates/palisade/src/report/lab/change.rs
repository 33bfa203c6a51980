//! The difference between two rounds of a lab: changed files, and opened and closed flows.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use palisade_core::answer::FlowVerdict;
use palisade_core::net::Family;

use super::{Probe, Round};
use crate::draw::{clean, counted};

/// The difference between two rounds.
#[derive(Debug)]
pub(crate) struct RoundChange {
    /// When the change was noticed.
    at: SystemTime,
    /// The changed and removed files.
    pub(crate) files: ChangedFiles,
    /// Whether the lab was rebuilt.
    pub(crate) rebuilt: bool,
    /// The flows with a verdict that allows more than before.
    pub(crate) opened: usize,
    /// The flows with a verdict that allows less than before.
    pub(crate) closed: usize,
    /// The flows that only this round measured.
    pub(crate) new_flows: usize,
    /// The flows that only the previous round measured.
    pub(crate) old_flows: usize,
}

/// The changed and removed files, by their displayed names.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangedFiles {
    /// New files, and files with new content.
    pub(crate) changed: Vec<String>,
    /// Removed files.
    pub(crate) removed: Vec<String>,
}

/// The most files that are named.
const MOST_NAMED: usize = 3;

impl RoundChange {
    /// Compares a round with the probes of the previous round, and records in each changed probe
    /// its previous verdict.
    pub(crate) fn between(
        before: &[Probe],
        now: &mut Round,
        files: ChangedFiles,
        at: SystemTime,
    ) -> RoundChange {
        let measured = |probe: &Probe| Some((key(probe), probe.measured?));
        let mut old: HashMap<Key, FlowVerdict> = before.iter().filter_map(measured).collect();
        let mut change = RoundChange {
            at,
            files,
            rebuilt: now.is_built,
            opened: 0,
            closed: 0,
            new_flows: 0,
            old_flows: 0,
        };
        let mut repeated: HashMap<Key, FlowVerdict> = HashMap::new();
        for probe in &mut now.probes {
            let Some(verdict) = probe.measured else {
                continue;
            };
            let key = key(probe);
            // A file may contain the same flow twice.
            let was = old.remove(&key).or_else(|| repeated.get(&key).copied());
            match was {
                None => change.new_flows += 1,
                Some(was) => {
                    change.opened += usize::from(openness(verdict) > openness(was));
                    change.closed += usize::from(openness(verdict) < openness(was));
                    probe.was = Some(was).filter(|it| *it != verdict);
                    repeated.insert(key, was);
                }
            }
        }
        change.old_flows = old.len();
        change
    }

    /// Summarizes the change in one line.
    pub(crate) fn headline(&self, round: &Round) -> String {
        let differences = round.n_differences();
        let mut parts = vec![
            format!("{} opened", counted(self.opened, "flow")),
            format!("{} closed", self.closed),
        ];
        if self.new_flows > 0 {
            parts.push(format!("{} new", self.new_flows));
        }
        if self.old_flows > 0 {
            parts.push(format!("{} no longer measured", self.old_flows));
        }
        let rebuilt = if self.rebuilt { ", rebuilt" } else { "" };
        format!(
            "{} {}{rebuilt}: {}, {} between prediction and packets",
            clock(self.at),
            self.files.words(),
            parts.join(", "),
            counted(differences, "difference"),
        )
    }
}

impl ChangedFiles {
    /// Adds later changes.
    pub(crate) fn add(&mut self, later: ChangedFiles) {
        let ChangedFiles { changed, removed } = later;
        self.changed.retain(|it| !removed.contains(it));
        self.removed.retain(|it| !changed.contains(it));
        self.changed.extend(changed);
        self.removed.extend(removed);
        for names in [&mut self.changed, &mut self.removed] {
            names.sort();
            names.dedup();
        }
    }

    fn words(&self) -> String {
        let parts = [(&self.changed, "changed"), (&self.removed, "gone")];
        let parts = parts.into_iter().filter(|(names, _)| !names.is_empty());
        let parts: Vec<String> = parts
            .map(|(names, what)| {
                let shown = names.iter().take(MOST_NAMED).map(|it| clean(it));
                let shown = shown.collect::<Vec<String>>().join(", ");
                match names.len().saturating_sub(MOST_NAMED) {
                    0 => format!("{shown} {what}"),
                    more => format!("{shown} and {more} more {what}"),
                }
            })
            .collect();
        parts.join(", ")
    }
}

/// The identity of a probe: its flow and address family.
type Key = (String, Option<Family>);

fn key(probe: &Probe) -> Key {
    (probe.flow.query_text(), probe.flow.family)
}

fn openness(verdict: FlowVerdict) -> u8 {
    match verdict {
        FlowVerdict::Allow => 2,
        FlowVerdict::Mixed => 1,
        FlowVerdict::Deny | FlowVerdict::Unknown => 0,
    }
}

/// Formats the time of day, in UTC: the zone of the terminal is unknown.
fn clock(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.unwrap_or(Duration::ZERO).as_secs() % 86_400;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02} UTC", seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_the_time_of_the_day() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(clock(at(0)), "00:00:00 UTC");
        assert_eq!(clock(at(86_400 * 365 + 3_600 * 14 + 187)), "14:03:07 UTC");
    }

    #[test]
    fn files_are_named_and_those_that_came_back_are_not_gone() {
        let files = |changed: &[&str], removed: &[&str]| ChangedFiles {
            changed: changed.iter().map(|it| (*it).to_owned()).collect(),
            removed: removed.iter().map(|it| (*it).to_owned()).collect(),
        };
        let mut all = files(&["a"], &["b"]);
        assert_eq!(all.words(), "a changed, b gone");
        all.add(files(&["b", "c", "d"], &[]));
        assert_eq!(all.words(), "a, b, c and 1 more changed");
        all.add(files(&[], &["a", "b", "c"]));
        assert_eq!(all.words(), "d changed, a, b, c gone");
    }
}
