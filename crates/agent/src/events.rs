//! What people should be told of where they look first: Events of the node.
//!
//! What is told is decided here, without the world; at most one of a reason in five minutes, and the same words only after half an
//! hour, however long something lasts and however many nodes have it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::command::{ReplaceReason, SyncOutcome};

/// Between two events of one reason.
const EVERY: Duration = Duration::from_secs(5 * 60);
/// Between two events that say the same.
const SAME_EVERY: Duration = Duration::from_secs(30 * 60);
/// What is forbidden for so short may be an installation under way.
const FORBIDDEN_FOR: Duration = Duration::from_secs(5);
/// What fails for so short is usually a server that starts again.
const FAILING_FOR: Duration = Duration::from_secs(60);

/// Why something is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventReason {
    /// The server does not let us read a kind.
    WatchForbidden,
    /// The server has not let itself be asked for long.
    WatchFailing,
    /// Somebody else changed the table, and it was put right.
    TableRepaired,
    /// The kernel refused a change.
    KernelRefused,
    /// Packets of the node's pods pass its policies by.
    PoliciesBypassed,
    /// An object cannot be read.
    ObjectUnreadable,
    /// A NetworkPolicy does not fit into the budget of its namespace.
    PolicyOverBudget,
    /// Pods of the node can send with addresses that are not theirs.
    SendersUnchecked,
    /// Programs of eBPF may be on the way to the node's pods that the agent cannot find.
    ProgramsUnchecked,
    /// Pods of the node are open that should be closed.
    PodsUnclosed,
}

impl EventReason {
    /// As one word.
    pub fn word(self) -> &'static str {
        match self {
            EventReason::WatchForbidden => "WatchForbidden",
            EventReason::WatchFailing => "WatchFailing",
            EventReason::TableRepaired => "TableRepaired",
            EventReason::KernelRefused => "KernelRefused",
            EventReason::PoliciesBypassed => "PoliciesBypassed",
            EventReason::ObjectUnreadable => "ObjectUnreadable",
            EventReason::PolicyOverBudget => "PolicyOverBudget",
            EventReason::SendersUnchecked => "SendersUnchecked",
            EventReason::ProgramsUnchecked => "ProgramsUnchecked",
            EventReason::PodsUnclosed => "PodsUnclosed",
        }
    }

    /// What was being done, as one word.
    pub fn action(self) -> &'static str {
        match self {
            EventReason::WatchForbidden
            | EventReason::WatchFailing
            | EventReason::ObjectUnreadable => "Watching",
            EventReason::TableRepaired
            | EventReason::KernelRefused
            | EventReason::PodsUnclosed
            | EventReason::PolicyOverBudget => "Programming",
            EventReason::PoliciesBypassed
            | EventReason::SendersUnchecked
            | EventReason::ProgramsUnchecked => "Looking",
        }
    }
}

/// A kind that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableKind {
    /// Its name in words of the API.
    pub kind: String,
    /// Why not, in words.
    pub words: String,
    /// Whether the server does not let us.
    pub is_forbidden: bool,
    /// Since when.
    pub since: Duration,
}

/// Decides what is told.
#[derive(Debug, Default)]
pub struct EventRecorder {
    recorded: BTreeMap<EventReason, (Duration, String)>,
    /// What somebody else changed, until it is put right.
    drift: Vec<String>,
}

impl EventRecorder {
    /// Something happened; what is to be told about it.
    pub fn record(
        &mut self,
        now: Duration,
        happening: &SyncOutcome,
    ) -> Option<(EventReason, String)> {
        match happening {
            SyncOutcome::Drifted(words) => {
                self.drift.clone_from(words);
                None
            }
            SyncOutcome::Installed {
                why: ReplaceReason::Drift,
                ..
            } => {
                let what = several(&std::mem::take(&mut self.drift), 3);
                let note = format!(
                    "Somebody else changed what Palisade enforces on this node, and it was put right: {what}. Between the two, packets were not judged by the policies"
                );
                self.record_once(now, EventReason::TableRepaired, &what, note)
            }
            SyncOutcome::Failed { what, why, .. } => {
                let note = format!(
                    "The kernel refused to {what}: {why}. What was enforced before still is, and it is tried again"
                );
                self.record_once(now, EventReason::KernelRefused, why, note)
            }
            SyncOutcome::Installed { .. }
            | SyncOutcome::Closed
            | SyncOutcome::Changed { .. }
            | SyncOutcome::Unaffected
            | SyncOutcome::Verified
            | SyncOutcome::MarksCleared(_)
            | SyncOutcome::AddressesCleared(_) => None,
        }
    }

    /// Which kinds cannot be read now; what is to be told about it.
    pub fn unread(
        &mut self,
        now: Duration,
        unread: &[UnreadableKind],
    ) -> Vec<(EventReason, String)> {
        let mut all = Vec::new();
        for (reason, is_forbidden, patience) in [
            (EventReason::WatchForbidden, true, FORBIDDEN_FOR),
            (EventReason::WatchFailing, false, FAILING_FOR),
        ] {
            let of = unread.iter().filter(|it| {
                it.is_forbidden == is_forbidden && now.saturating_sub(it.since) >= patience
            });
            let of: Vec<&UnreadableKind> = of.collect();
            let Some(first) = of.first() else {
                continue;
            };
            let kinds: Vec<String> = of.iter().map(|it| it.kind.clone()).collect();
            let kinds = several(&kinds, 8);
            let note = format!(
                "Policies of this node are enforced as they were last known: {kinds} cannot be read from the API server: {}",
                first.words
            );
            all.extend(self.record_once(now, reason, &kinds, note));
        }
        all
    }

    /// Which objects cannot be read now, in words; what is to be told about it.
    pub fn unreadable(
        &mut self,
        now: Duration,
        objects: &[String],
    ) -> Option<(EventReason, String)> {
        if objects.is_empty() {
            return None;
        }
        let what = several(objects, 3);
        let note = format!("Not everything can be enforced as it was written: {what}");
        self.record_once(now, EventReason::ObjectUnreadable, &what, note)
    }

    /// Which NetworkPolicies do not fit into the budgets of their namespaces now; what is to be told about it.
    pub fn over_budget(
        &mut self,
        now: Duration,
        policies: &[String],
    ) -> Option<(EventReason, String)> {
        if policies.is_empty() {
            return None;
        }
        let what = several(policies, 3);
        let note = format!(
            "NetworkPolicies of a namespace have more entries together than nodes keep for it; these do not fit, isolate their pods and allow nothing: {what}"
        );
        self.record_once(now, EventReason::PolicyOverBudget, &what, note)
    }

    /// By which ways packets pass the policies by now, in words; what is to be told about it.
    pub fn bypassed(&mut self, now: Duration, ways: &[String]) -> Option<(EventReason, String)> {
        if ways.is_empty() {
            return None;
        }
        let what = several(ways, 3);
        let note = format!("Policies do not hold on this node: {what}");
        self.record_once(now, EventReason::PoliciesBypassed, &what, note)
    }

    /// Whose senders cannot be checked now, in words; what is to be told about it.
    pub fn unchecked(&mut self, now: Duration, whose: &[String]) -> Option<(EventReason, String)> {
        if whose.is_empty() {
            return None;
        }
        let what = several(whose, 3);
        let note = format!("Senders are not checked everywhere on this node: {what}");
        self.record_once(now, EventReason::SendersUnchecked, &what, note)
    }

    /// Why some programs of eBPF would not be found, in words; what is to be told about it.
    pub fn unchecked_programs(
        &mut self,
        now: Duration,
        why: Option<&str>,
    ) -> Option<(EventReason, String)> {
        let why = why?;
        let note = format!("Policies may not hold on this node: {why}");
        self.record_once(now, EventReason::ProgramsUnchecked, why, note)
    }

    /// Why pods are open that should be closed, in words; what is to be told about it.
    pub fn unclosed(&mut self, now: Duration, why: Option<&str>) -> Option<(EventReason, String)> {
        let why = why?;
        let note = format!("Pods of this node are not closed as they should be: {why}");
        self.record_once(now, EventReason::PodsUnclosed, why, note)
    }

    /// What is told, unless it was told already; `essence` is what makes it another thing than before.
    fn record_once(
        &mut self,
        now: Duration,
        reason: EventReason,
        essence: &str,
        note: String,
    ) -> Option<(EventReason, String)> {
        if let Some((at, before)) = self.recorded.get(&reason) {
            let pause = if before == essence { SAME_EVERY } else { EVERY };
            if now.saturating_sub(*at) < pause {
                return None;
            }
        }
        self.recorded.insert(reason, (now, essence.to_owned()));
        Some((reason, note))
    }
}

/// The first of some words, and how many more there are.
fn several(words: &[String], most: usize) -> String {
    let first: Vec<&str> = words.iter().take(most).map(String::as_str).collect();
    let first = first.join(", ");
    match words.len().saturating_sub(most) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Latency;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn refused(why: &str) -> SyncOutcome {
        SyncOutcome::Failed {
            what: "change the table",
            why: why.to_owned(),
            again_in: Duration::ZERO,
            times: 1,
        }
    }

    fn unread(kind: &str, is_forbidden: bool, since: u64) -> UnreadableKind {
        UnreadableKind {
            kind: kind.to_owned(),
            words: "no".to_owned(),
            is_forbidden,
            since: at(since),
        }
    }

    #[test]
    fn one_of_a_reason_in_five_minutes_and_the_same_words_in_thirty() {
        let mut events = EventRecorder::default();
        let mut told = |seconds, why| events.record(at(seconds), &refused(why)).is_some();
        assert!(told(0, "busy"));
        assert!(!told(10, "busy"));
        assert!(!told(299, "memory"));
        assert!(told(300, "memory"));
        assert!(!told(601, "memory"));
        assert!(told(602, "busy"));
        assert!(!told(602 + 1_799, "busy"));
        assert!(told(602 + 1_800, "busy"));
    }

    #[test]
    fn a_repair_is_told_when_it_is_done() {
        let mut events = EventRecorder::default();
        let words: Vec<String> = (1..=5).map(|it| format!("chain {it}")).collect();
        assert_eq!(events.record(at(1), &SyncOutcome::Drifted(words)), None);
        let installed = |why| SyncOutcome::Installed {
            why,
            generation: 2,
            latency: Latency::default(),
        };
        assert_eq!(
            events.record(at(1), &installed(ReplaceReason::Growth)),
            None
        );
        let Some((reason, note)) = events.record(at(2), &installed(ReplaceReason::Drift)) else {
            panic!("nothing was told");
        };
        assert_eq!(reason, EventReason::TableRepaired);
        assert!(
            note.contains("chain 1, chain 2, chain 3 and 2 more"),
            "{note}"
        );
    }

    #[test]
    fn policies_that_do_not_fit_are_told() {
        let mut events = EventRecorder::default();
        assert_eq!(events.over_budget(at(1), &[]), None);
        let policies: Vec<String> = (1..=5).map(|it| format!("team/p{it}")).collect();
        let told = events.over_budget(at(2), &policies);
        assert!(told.is_some_and(|(_, note)| {
            note.contains("allow nothing: team/p1, team/p2, team/p3 and 2 more")
        }));
        assert_eq!(events.over_budget(at(400), &policies), None);
    }

    #[test]
    fn ways_past_the_policies_are_told() {
        let mut events = EventRecorder::default();
        assert_eq!(events.bypassed(at(1), &[]), None);
        let ways = ["over the bridge cni0".to_owned()];
        let told = events.bypassed(at(2), &ways);
        assert!(told.is_some_and(|(_, note)| note.contains("over the bridge cni0")));
        assert_eq!(events.bypassed(at(400), &ways), None);
    }

    #[test]
    fn senders_that_cannot_be_checked_are_told() {
        let mut events = EventRecorder::default();
        assert_eq!(events.unchecked(at(1), &[]), None);
        let whose = ["pods behind cni0".to_owned()];
        let told = events.unchecked(at(2), &whose);
        assert!(told.is_some_and(|(_, note)| note.contains("pods behind cni0")));
        assert_eq!(events.unchecked(at(400), &whose), None);
    }

    #[test]
    fn programs_that_cannot_be_found_are_told() {
        let mut events = EventRecorder::default();
        assert_eq!(events.unchecked_programs(at(1), None), None);
        let told = events.unchecked_programs(at(2), Some("not permitted"));
        assert!(
            told.is_some_and(|(reason, note)| reason == EventReason::ProgramsUnchecked
                && note.contains("not permitted"))
        );
        assert_eq!(
            events.unchecked_programs(at(400), Some("not permitted")),
            None
        );
    }

    #[test]
    fn what_cannot_be_read_is_told_once_for_all_kinds() {
        let mut events = EventRecorder::default();
        let both = [unread("pods", true, 10), unread("nodes", true, 10)];
        assert_eq!(events.unread(at(14), &both), []);
        let told = events.unread(at(15), &both);
        assert_eq!(told.len(), 1);
        assert!(
            told.iter()
                .all(|(_, note)| note.contains("pods, nodes cannot be read"))
        );
        assert_eq!(events.unread(at(16), &both), []);
        // A server that starts again is no news, one that stays away is; each by itself.
        let failing = [unread("pods", true, 10), unread("nodes", false, 100)];
        assert_eq!(events.unread(at(159), &failing), []);
        let told = events.unread(at(160), &failing);
        let reasons: Vec<EventReason> = told.iter().map(|(reason, _)| *reason).collect();
        assert_eq!(reasons, [EventReason::WatchFailing]);
        // Fewer kinds than before is something else to say, but not at once.
        let told = events.unread(at(315), &failing);
        let reasons: Vec<EventReason> = told.iter().map(|(reason, _)| *reason).collect();
        assert_eq!(reasons, [EventReason::WatchForbidden]);
    }
}
