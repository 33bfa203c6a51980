//! Background tasks delay no command, and their outcomes count only if nothing has changed since.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use palisade_agent::{
    Agent, AuditOutcome, CommandError, Config, Next, Nft, Notice, SyncOutcome, Task, TaskOutcome,
};
use palisade_api::{Options, Source, key, lower_one, read};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn set_pod(agent: &mut Agent, now: Duration, name: &str, address: &str) {
    let text = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"x"}},"spec":{{"nodeName":"n1"}},"status":{{"phase":"Running","podIPs":[{{"ip":"{address}"}}]}}}}"#
    );
    let sources = [Source::new("pod.json", text.into_bytes())];
    let manifests = read(&sources, Options::default(), &|_| {});
    let pod = manifests.objects.first().expect("a pod");
    let key = key(pod).expect("a kind that is enforced");
    assert!(agent.set(now, key, &lower_one(pod)));
}

/// Carries out commands until there are none, or a task starts.
fn settle(agent: &mut Agent, now: Duration) -> Option<Task> {
    for _ in 0..20 {
        match agent.next(now) {
            Next::Do(_) => agent.finished(now, Ok(())),
            Next::Spawn(task) => return Some(task),
            Next::Wait(_) => return None,
        }
    }
    panic!("the agent always has another command");
}

/// An agent whose table is installed.
fn settled() -> Agent {
    let mut agent = Agent::new(Nft::default(), Config::new("n1"), None);
    set_pod(&mut agent, at(1), "a", "10.0.0.1");
    agent.synced(at(1));
    // The marks of connections are unknown.
    assert!(matches!(
        settle(&mut agent, at(1)),
        Some(Task::ClearMarks(_))
    ));
    assert!(
        settle(&mut agent, at(1)).is_none(),
        "marks have to be cleared first"
    );
    assert!(!agent.is_in_place());
    agent.task_finished(at(1), TaskOutcome::ClearMarks(Ok(())));
    assert!(settle(&mut agent, at(1)).is_none());
    assert!(agent.is_current());
    agent.outcomes().for_each(drop);
    agent
}

fn audit(agent: &mut Agent, now: Duration) -> Option<String> {
    let Some(Task::Audit { from, .. }) = settle(agent, now) else {
        panic!("no audit");
    };
    from
}

fn differs() -> TaskOutcome {
    TaskOutcome::Audit(Ok(AuditOutcome {
        differences: vec!["the chain `x` is gone".to_owned()],
        stopped_at: None,
    }))
}

fn stops(set: &str) -> TaskOutcome {
    TaskOutcome::Audit(Ok(AuditOutcome {
        differences: Vec::new(),
        stopped_at: Some(set.to_owned()),
    }))
}

fn drifts(agent: &mut Agent) -> bool {
    let mut happened = agent.outcomes();
    happened.any(|it| matches!(it, SyncOutcome::Drifted(_)))
}

#[test]
fn changes_continue_during_an_audit() {
    let mut agent = settled();
    assert_eq!(audit(&mut agent, at(100)), None);
    set_pod(&mut agent, at(101), "b", "10.0.0.2");
    assert!(matches!(agent.next(at(101)), Next::Do(_)));
    agent.finished(at(101), Ok(()));
    assert!(agent.is_current());
    // No second audit starts while one runs.
    assert!(settle(&mut agent, at(500)).is_none());
}

#[test]
fn drift_is_restored_unless_a_later_change_replaced_it() {
    let mut agent = settled();
    audit(&mut agent, at(100));
    agent.task_finished(at(101), differs());
    assert!(drifts(&mut agent));
    assert!(settle(&mut agent, at(102)).is_none());
    assert!(agent.is_current());

    audit(&mut agent, at(200));
    set_pod(&mut agent, at(201), "b", "10.0.0.2");
    assert!(settle(&mut agent, at(201)).is_none());
    agent.task_finished(at(202), differs());
    assert!(!drifts(&mut agent));
    // The next audit starts soon, and not in a minute.
    audit(&mut agent, at(202 + 20));
    agent.task_finished(at(223), differs());
    assert!(drifts(&mut agent));
}

#[test]
fn an_audit_goes_on_where_it_stopped() {
    let mut agent = settled();
    assert_eq!(audit(&mut agent, at(100)), None);
    agent.task_finished(at(110), stops("members4"));
    assert!(agent.outcomes().all(|it| it != SyncOutcome::Verified));
    // The pause is ten times as long as the audit took, but not longer than between two audits.
    assert!(settle(&mut agent, at(111)).is_none());
    assert_eq!(audit(&mut agent, at(170)).as_deref(), Some("members4"));
    agent.task_finished(at(170), TaskOutcome::Audit(Ok(AuditOutcome::default())));
    assert!(agent.outcomes().any(|it| it == SyncOutcome::Verified));
    // The next audit compares everything; so does one after notices were lost.
    assert_eq!(audit(&mut agent, at(240)), None);
    agent.task_finished(at(241), stops("members6"));
    agent.noticed(at(242), &Notice::Lost);
    assert_eq!(audit(&mut agent, at(242)), None);
}

#[test]
fn a_failed_audit_is_retried() {
    let mut agent = settled();
    audit(&mut agent, at(100));
    let failed = Err(CommandError("it cannot be read".to_owned()));
    agent.task_finished(at(101), TaskOutcome::Audit(failed));
    assert!(
        agent
            .outcomes()
            .any(|it| matches!(it, SyncOutcome::Failed { .. }))
    );
    assert!(agent.is_current());
    audit(&mut agent, at(112));
}

#[test]
fn marks_that_could_not_be_cleared_are_cleared_later() {
    let mut agent = Agent::new(Nft::default(), Config::new("n1"), None);
    agent.synced(at(1));
    assert!(matches!(
        settle(&mut agent, at(1)),
        Some(Task::ClearMarks(_))
    ));
    let failed = Err(CommandError("no".to_owned()));
    agent.task_finished(at(1), TaskOutcome::ClearMarks(failed));
    assert_eq!(agent.failures(), 1);
    assert!(settle(&mut agent, at(1)).is_none());
    assert!(!agent.is_in_place());
    assert!(matches!(
        settle(&mut agent, at(10)),
        Some(Task::ClearMarks(_))
    ));
    agent.task_finished(at(10), TaskOutcome::ClearMarks(Ok(())));
    assert!(settle(&mut agent, at(10)).is_none());
    assert!(agent.is_in_place());
    assert_eq!(agent.failures(), 0);
}
