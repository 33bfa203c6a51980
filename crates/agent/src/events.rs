//! Kubernetes Events of the node: which are written, and how often.
//!
//! The decision needs no I/O. Each reason is written at most once in five minutes, and the same
//! text only after half an hour, however long a state lasts and however many nodes have it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::command::{ReplaceReason, SyncOutcome};

/// The shortest time between two Events of one reason.
const EVERY: Duration = Duration::from_secs(5 * 60);
/// The shortest time between two Events of the same text.
const SAME_EVERY: Duration = Duration::from_secs(30 * 60);
/// A kind that is forbidden for less time may be an installation under way.
const FORBIDDEN_FOR: Duration = Duration::from_secs(5);
/// A failure of less time is usually an API server that restarts.
const FAILING_FOR: Duration = Duration::from_secs(60);

/// The reason of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventReason {
    /// The API server forbids the agent to read a kind.
    WatchForbidden,
    /// A kind could not be read for long, for another reason.
    WatchFailing,
    /// Another program changed the table; the agent restored it.
    TableRepaired,
    /// The kernel refused a change.
    KernelRefused,
    /// Packets of the node's pods bypass its policies.
    PoliciesBypassed,
    /// An object cannot be read.
    ObjectUnreadable,
    /// A NetworkPolicy does not fit into the budget of its namespace.
    PolicyOverBudget,
    /// Pods of the node can send with addresses that are not theirs.
    SendersUnchecked,
    /// The agent cannot find eBPF programs that may be on the path to the node's pods.
    ProgramsUnchecked,
    /// Pods of the node are open that must be closed.
    PodsUnclosed,
}

impl EventReason {
    /// Returns the reason as the Event has it.
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

    /// Returns the action of the Event: what the agent was doing.
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
    /// Its resource, as `kubectl` names it.
    pub kind: String,
    /// The cause.
    pub words: String,
    /// Whether the API server forbids it.
    pub is_forbidden: bool,
    /// The time of the first failure in a row.
    pub since: Duration,
}

/// Decides which Events are written.
#[derive(Debug, Default)]
pub struct EventRecorder {
    recorded: BTreeMap<EventReason, (Duration, String)>,
    /// What another program changed, until the table is restored.
    drift: Vec<String>,
}

impl EventRecorder {
    /// Takes an outcome. Returns the Event to write, if any.
    pub fn record(
        &mut self,
        now: Duration,
        outcome: &SyncOutcome,
    ) -> Option<(EventReason, String)> {
        match outcome {
            // Written when the table is restored: a repair that fails is an Event of its own.
            SyncOutcome::Drifted(words) => {
                self.drift.clone_from(words);
                None
            }
            SyncOutcome::Installed {
                why: ReplaceReason::Drift,
                ..
            } => {
                let changes = several(&std::mem::take(&mut self.drift), 3);
                let note = format!(
                    "Another program changed the Palisade table of this node; the agent restored it: {changes}. In between, policies may not have been enforced"
                );
                self.record_once(now, EventReason::TableRepaired, &changes, note)
            }
            SyncOutcome::Failed { what, why, .. } => {
                let note = format!(
                    "The kernel refused to {what}: {why}. The previous rules stay; the agent retries"
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

    /// Takes the kinds that cannot be read now. Returns the Events to write.
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
            let lasting = unread.iter().filter(|it| {
                it.is_forbidden == is_forbidden && now.saturating_sub(it.since) >= patience
            });
            let lasting: Vec<&UnreadableKind> = lasting.collect();
            let Some(first) = lasting.first() else {
                continue;
            };
            let kinds: Vec<String> = lasting.iter().map(|it| it.kind.clone()).collect();
            let kinds = several(&kinds, 8);
            let note = format!(
                "Cannot read {kinds} from the API server; their last known state stays enforced on this node: {}",
                first.words
            );
            // The kinds alone: the server's message may differ from one try to the next.
            all.extend(self.record_once(now, reason, &kinds, note));
        }
        all
    }

    /// Takes the objects that cannot be read now, as text. Returns the Event to write, if any.
    pub fn unreadable(
        &mut self,
        now: Duration,
        objects: &[String],
    ) -> Option<(EventReason, String)> {
        if objects.is_empty() {
            return None;
        }
        let shown = several(objects, 3);
        let note = format!("The agent cannot enforce some objects as written: {shown}");
        self.record_once(now, EventReason::ObjectUnreadable, &shown, note)
    }

    /// Takes the NetworkPolicies that do not fit into the budgets of their namespaces now. Returns
    /// the Event to write, if any.
    pub fn over_budget(
        &mut self,
        now: Duration,
        policies: &[String],
    ) -> Option<(EventReason, String)> {
        if policies.is_empty() {
            return None;
        }
        let shown = several(policies, 3);
        let note = format!(
            "NetworkPolicies exceed the budget of their namespace; they isolate their pods and allow nothing: {shown}"
        );
        self.record_once(now, EventReason::PolicyOverBudget, &shown, note)
    }

    /// Takes the paths on which packets bypass the policies now, as text. Returns the Event to
    /// write, if any.
    pub fn bypassed(&mut self, now: Duration, paths: &[String]) -> Option<(EventReason, String)> {
        if paths.is_empty() {
            return None;
        }
        let shown = several(paths, 3);
        let note = format!("Packets bypass the policies on this node: {shown}");
        self.record_once(now, EventReason::PoliciesBypassed, &shown, note)
    }

    /// Takes the pods whose source addresses cannot be checked now, as text. Returns the Event to
    /// write, if any.
    pub fn unchecked(&mut self, now: Duration, pods: &[String]) -> Option<(EventReason, String)> {
        if pods.is_empty() {
            return None;
        }
        let shown = several(pods, 3);
        let note = format!("The agent cannot check all source addresses on this node: {shown}");
        self.record_once(now, EventReason::SendersUnchecked, &shown, note)
    }

    /// Takes the reason why some eBPF programs would not be found. Returns the Event to write, if
    /// any.
    pub fn unchecked_programs(
        &mut self,
        now: Duration,
        why: Option<&str>,
    ) -> Option<(EventReason, String)> {
        let why = why?;
        let note = format!("Packets may bypass the policies on this node: {why}");
        self.record_once(now, EventReason::ProgramsUnchecked, why, note)
    }

    /// Takes the reason why pods are open that must be closed. Returns the Event to write, if any.
    pub fn unclosed(&mut self, now: Duration, why: Option<&str>) -> Option<(EventReason, String)> {
        let why = why?;
        let note = format!("Pods of this node are open although they must be closed: {why}");
        self.record_once(now, EventReason::PodsUnclosed, why, note)
    }

    /// Returns the Event, unless one was written too recently. `essence` identifies its text.
    fn record_once(
        &mut self,
        now: Duration,
        reason: EventReason,
        essence: &str,
        note: String,
    ) -> Option<(EventReason, String)> {
        // One entry for each reason, the last: texts that alternate cannot grow the map, and wait
        // five minutes each.
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

/// Joins the first texts, with the number of the others. The API limits a note to 1,024 bytes.
fn several(texts: &[String], most: usize) -> String {
    let first: Vec<&str> = texts.iter().take(most).map(String::as_str).collect();
    let first = first.join(", ");
    match texts.len().saturating_sub(most) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{FailedAction, Latency};

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn refused(why: &str) -> SyncOutcome {
        SyncOutcome::Failed {
            what: FailedAction::Update,
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
    fn one_event_of_a_reason_in_five_minutes_and_of_a_text_in_thirty() {
        let mut events = EventRecorder::default();
        let mut is_written = |seconds, why| events.record(at(seconds), &refused(why)).is_some();
        assert!(is_written(0, "busy"));
        assert!(!is_written(10, "busy"));
        assert!(!is_written(299, "memory"));
        assert!(is_written(300, "memory"));
        assert!(!is_written(601, "memory"));
        assert!(is_written(602, "busy"));
        assert!(!is_written(602 + 1_799, "busy"));
        assert!(is_written(602 + 1_800, "busy"));
    }

    #[test]
    fn a_repair_is_an_event_when_it_is_done() {
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
            panic!("no Event");
        };
        assert_eq!(reason, EventReason::TableRepaired);
        assert!(
            note.contains("chain 1, chain 2, chain 3 and 2 more"),
            "{note}"
        );
    }

    #[test]
    fn policies_over_budget_are_an_event() {
        let mut events = EventRecorder::default();
        assert_eq!(events.over_budget(at(1), &[]), None);
        let policies: Vec<String> = (1..=5).map(|it| format!("team/p{it}")).collect();
        let event = events.over_budget(at(2), &policies);
        assert!(event.is_some_and(|(_, note)| {
            note.contains("allow nothing: team/p1, team/p2, team/p3 and 2 more")
        }));
        assert_eq!(events.over_budget(at(400), &policies), None);
    }

    #[test]
    fn bypassed_policies_are_an_event() {
        let mut events = EventRecorder::default();
        assert_eq!(events.bypassed(at(1), &[]), None);
        let paths = ["over the bridge cni0".to_owned()];
        let event = events.bypassed(at(2), &paths);
        assert!(event.is_some_and(|(_, note)| note.contains("over the bridge cni0")));
        assert_eq!(events.bypassed(at(400), &paths), None);
    }

    #[test]
    fn unchecked_senders_are_an_event() {
        let mut events = EventRecorder::default();
        assert_eq!(events.unchecked(at(1), &[]), None);
        let pods = ["pods behind cni0".to_owned()];
        let event = events.unchecked(at(2), &pods);
        assert!(event.is_some_and(|(_, note)| note.contains("pods behind cni0")));
        assert_eq!(events.unchecked(at(400), &pods), None);
    }

    #[test]
    fn unchecked_programs_are_an_event() {
        let mut events = EventRecorder::default();
        assert_eq!(events.unchecked_programs(at(1), None), None);
        let event = events.unchecked_programs(at(2), Some("not permitted"));
        assert!(
            event.is_some_and(|(reason, note)| reason == EventReason::ProgramsUnchecked
                && note.contains("not permitted"))
        );
        assert_eq!(
            events.unchecked_programs(at(400), Some("not permitted")),
            None
        );
    }

    #[test]
    fn unreadable_kinds_are_one_event() {
        let mut events = EventRecorder::default();
        let both = [unread("pods", true, 10), unread("nodes", true, 10)];
        assert_eq!(events.unread(at(14), &both), []);
        let written = events.unread(at(15), &both);
        assert_eq!(written.len(), 1);
        assert!(
            written
                .iter()
                .all(|(_, note)| note.contains("Cannot read pods, nodes from"))
        );
        assert_eq!(events.unread(at(16), &both), []);
        // A server that restarts causes no Event, one that stays away does; each kind of trouble by
        // itself.
        let failing = [unread("pods", true, 10), unread("nodes", false, 100)];
        assert_eq!(events.unread(at(159), &failing), []);
        let written = events.unread(at(160), &failing);
        let reasons: Vec<EventReason> = written.iter().map(|(reason, _)| *reason).collect();
        assert_eq!(reasons, [EventReason::WatchFailing]);
        // Fewer kinds than before is another text, but not at once.
        let written = events.unread(at(315), &failing);
        let reasons: Vec<EventReason> = written.iter().map(|(reason, _)| *reason).collect();
        assert_eq!(reasons, [EventReason::WatchForbidden]);
    }
}
