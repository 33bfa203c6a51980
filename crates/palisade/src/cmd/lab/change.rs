//! The difference between two rounds of a lab: changed files, and opened and closed flows.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use super::Round;
use crate::draw::clean;
use crate::lab_report::{flow, plural};
use crate::view::lab::{ChangeView, ProbeView};

/// The difference between two rounds.
#[derive(Debug)]
pub(crate) struct RoundChange {
    /// When the change was noticed.
    at: SystemTime,
    files: ChangedFiles,
    rebuilt: bool,
    opened: usize,
    closed: usize,
    new_flows: usize,
    old_flows: usize,
}

/// The changed and removed files, by their displayed names.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangedFiles {
    pub(super) changed: Vec<String>,
    pub(super) gone: Vec<String>,
}

/// The most files that are named.
const MOST_NAMED: usize = 3;

impl RoundChange {
    /// Compares a round with the probes of the previous round, and records in each changed probe
    /// its previous verdict.
    pub(super) fn between(
        before: &[ProbeView],
        now: &mut Round,
        files: ChangedFiles,
        at: SystemTime,
    ) -> RoundChange {
        let measured = |probe: &ProbeView| Some((key(probe), probe.measured?));
        let mut old: HashMap<Key, &'static str> = before.iter().filter_map(measured).collect();
        let mut change = RoundChange {
            at,
            files,
            rebuilt: now.is_built,
            opened: 0,
            closed: 0,
            new_flows: 0,
            old_flows: 0,
        };
        let mut repeated: HashMap<Key, &'static str> = HashMap::new();
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
        let differences = round.probes.iter().filter(|it| it.differs).count();
        let mut parts = vec![
            format!("{} opened", plural(self.opened, "flow")),
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
            "{} {}{rebuilt}: {}, {} from the prediction",
            clock(self.at),
            self.files.words(),
            parts.join(", "),
            plural(differences, "difference"),
        )
    }

    /// Returns the change as JSON.
    pub(super) fn view(&self) -> ChangeView<'_> {
        ChangeView {
            changed: &self.files.changed,
            gone: &self.files.gone,
            rebuilt: self.rebuilt,
            opened: self.opened,
            closed: self.closed,
            new_flows: self.new_flows,
            old_flows: self.old_flows,
        }
    }
}

impl ChangedFiles {
    /// Adds later changes.
    pub(super) fn add(&mut self, later: ChangedFiles) {
        let ChangedFiles { changed, gone } = later;
        self.changed.retain(|it| !gone.contains(it));
        self.gone.retain(|it| !changed.contains(it));
        self.changed.extend(changed);
        self.gone.extend(gone);
        for names in [&mut self.changed, &mut self.gone] {
            names.sort();
            names.dedup();
        }
    }

    fn words(&self) -> String {
        let parts = [(&self.changed, "changed"), (&self.gone, "gone")];
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
type Key = (String, Option<String>);

fn key(probe: &ProbeView) -> Key {
    (flow(&probe.flow), probe.flow.family.clone())
}

fn openness(verdict: &str) -> u8 {
    match verdict {
        "Allow" => 2,
        "Mixed" => 1,
        _ => 0,
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
        let files = |changed: &[&str], gone: &[&str]| ChangedFiles {
            changed: changed.iter().map(|it| (*it).to_owned()).collect(),
            gone: gone.iter().map(|it| (*it).to_owned()).collect(),
        };
        let mut all = files(&["a"], &["b"]);
        assert_eq!(all.words(), "a changed, b gone");
        all.add(files(&["b", "c", "d"], &[]));
        assert_eq!(all.words(), "a, b, c and 1 more changed");
        all.add(files(&[], &["a", "b", "c"]));
        assert_eq!(all.words(), "d changed, a, b, c gone");
    }
}
