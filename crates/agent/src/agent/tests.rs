//! The agent on a backend in memory: what is enforced while objects change and commands fail.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use palisade_api::{Options, Source, key, lower_one, read};
use palisade_core::net::Cidr;
use palisade_core::plan::Generation;

use super::Agent;
use crate::backend::memory::{Memory, MemoryRules};
use crate::backend::{Auditor as _, Enforcer as _, MarkClearer as _, Notice, Senders};
use crate::command::{
    Command, CommandError, FailedAction, MarksToClear, Next, ReplaceReason, SyncOutcome, Task,
    TaskOutcome,
};
use crate::config::{Config, Established};

/// An agent, and the memory that enforces what it decides.
struct TestNode {
    agent: Agent<Memory>,
    memory: Memory,
    now: Duration,
    outcomes: Vec<SyncOutcome>,
}

impl TestNode {
    /// Starts an agent where an earlier process has left rules of this generation, or none.
    fn start(config: Config, left: Option<Generation>) -> TestNode {
        let memory = Memory::default();
        let mut agent = Agent::new(memory.clone(), config, left);
        if left.is_none() {
            agent.found_nothing();
        }
        TestNode {
            agent,
            memory,
            now: Duration::from_secs(1),
            outcomes: Vec::new(),
        }
    }

    /// Starts an agent and gives it two pods and a policy.
    fn settled(config: Config) -> TestNode {
        let mut node = TestNode::start(config, Generation::new(5));
        node.set(&pod("a", "10.0.0.1"));
        node.set(&pod("b", "10.0.0.2"));
        node.set(&policy());
        node.agent.synced(node.now);
        node.settle();
        node.outcomes.clear();
        node
    }

    fn set(&mut self, object: &str) {
        let sources = [Source::new("object.json", object.as_bytes().to_vec())];
        let manifests = read(&sources, Options::default(), &|_| {});
        assert!(manifests.problems.is_empty(), "{:?}", manifests.problems);
        let object = &manifests.objects[0];
        let key = key(object).expect("a kind that is enforced");
        self.agent.set(self.now, key, &lower_one(object));
    }

    /// Carries out what the agent decides, until it waits for an event or for a later time.
    fn settle(&mut self) {
        for _ in 0..50 {
            match self.agent.next(self.now) {
                Next::Do(command) => self.carry_out(&command),
                Next::Spawn(task) => self.carry_out_task(task),
                Next::Wait(_) => return,
            }
            self.outcomes.extend(self.agent.outcomes());
        }
        panic!("the agent does not come to rest");
    }

    /// Lets time pass, and settles.
    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.settle();
    }

    fn carry_out(&mut self, command: &Command<Memory>) {
        let outcome = match command {
            Command::Install(rules) => self.memory.install(rules),
            Command::Commit(steps) => steps.iter().try_for_each(|it| self.memory.commit(it)),
        };
        let outcome = outcome.map_err(|it| CommandError(it.to_string()));
        self.agent.finished(self.now, outcome);
    }

    fn carry_out_task(&mut self, task: Task<Memory>) {
        let failed = |it: crate::backend::Failure| CommandError(it.to_string());
        let outcome = match task {
            Task::ClearMarks(marks) => {
                TaskOutcome::ClearMarks(self.memory.clear(&marks).map_err(failed))
            }
            Task::Audit { expected, from } => {
                let audited = self
                    .memory
                    .audit(None, &expected, from.as_deref(), &|| true);
                TaskOutcome::Audit(audited.map_err(failed))
            }
        };
        self.agent.task_finished(self.now, outcome);
    }

    /// Returns the rules that enforce.
    fn rules(&self) -> MemoryRules {
        self.memory.node().rules.clone().expect("rules")
    }

    /// Returns the addresses of the pods that the rules know.
    fn addresses(&self) -> Vec<IpAddr> {
        let plan = self.rules().plan.expect("a plan");
        plan.pods.keys().copied().collect()
    }

    /// Returns why whole tables were installed, and forgets it.
    fn installed(&mut self) -> Vec<ReplaceReason> {
        let outcomes = self.outcomes.drain(..);
        let reasons = outcomes.filter_map(|it| {
            if let SyncOutcome::Installed { why, .. } = it {
                Some(why)
            } else {
                None
            }
        });
        reasons.collect()
    }
}

fn pod(name: &str, address: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"x"}},"spec":{{"nodeName":"n1","containers":[{{"name":"c","image":"i"}}]}},"status":{{"phase":"Running","podIP":"{address}","podIPs":[{{"ip":"{address}"}}]}}}}"#
    )
}

/// A policy that isolates all pods of the namespace.
fn policy() -> String {
    r#"{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p","namespace":"x"},"spec":{"podSelector":{},"policyTypes":["Ingress"]}}"#.to_owned()
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

#[test]
fn nothing_is_enforced_before_all_objects_are_synced() {
    let mut node = TestNode::start(Config::new("n1"), Generation::new(5));
    node.set(&pod("a", "10.0.0.1"));
    node.pass(100);
    assert_eq!(node.memory.node().rules, None);
    node.agent.synced(node.now);
    node.settle();
    assert_eq!(node.addresses(), [address(1)]);
    assert_eq!(node.installed(), [ReplaceReason::Start]);
}

#[test]
fn pods_are_closed_until_all_objects_are_synced_where_nothing_was_enforced() {
    let block = Cidr::new(address(0), 24).unwrap();
    let mut config = Config::new("n1");
    config.pod_blocks = vec![block];
    let mut node = TestNode::start(config, None);
    node.settle();
    let closed = node.rules();
    assert_eq!((closed.plan, closed.generation), (None, None));
    assert_eq!(closed.settings.pod_blocks, [block]);
    assert_eq!(closed.settings.senders, Senders::Trusted);
    node.agent.synced(node.now);
    node.settle();
    assert!(node.addresses().is_empty());
}

#[test]
fn marks_are_cleared_before_the_first_rules_if_the_generation_is_unknown() {
    let mut node = TestNode::start(Config::new("n1"), None);
    node.agent.synced(node.now);
    node.memory.node().refusals = 1;
    node.settle();
    assert_eq!(node.memory.node().rules, None);
    node.pass(10);
    let all = MarksToClear::Generations(1..=31);
    assert_eq!(node.memory.node().cleared, [all]);
    assert_eq!(node.rules().generation, Some(Generation::FIRST));
}

#[test]
fn a_failed_installation_keeps_the_previous_rules_and_is_retried() {
    let mut node = TestNode::settled(Config::new("n1"));
    let before = node.rules();
    node.memory.node().refusals = 2;
    node.agent.resync(node.now);
    node.settle();
    assert_eq!(node.rules(), before);
    assert!(!node.agent.is_current());
    let failed = node.outcomes.iter().any(|it| {
        matches!(it, SyncOutcome::Failed { what: FailedAction::Install, why, .. } if why == "refused")
    });
    assert!(failed, "{:?}", node.outcomes);
    node.pass(1);
    node.pass(10);
    assert_eq!(node.installed(), [ReplaceReason::Requested]);
    assert!(node.agent.is_current());
    assert_eq!(node.agent.failures(), 0);
    assert_eq!(node.rules().plan, before.plan);
}

#[test]
fn a_failed_change_is_followed_by_all_rules() {
    let mut node = TestNode::settled(Config::new("n1"));
    // Whether the kernel has carried it out does not matter.
    for is_lost in [false, true] {
        let fault = |node: &mut crate::backend::memory::Node| match is_lost {
            true => node.lost_answers = 1,
            false => node.refusals = 1,
        };
        fault(&mut node.memory.node());
        let last = 10 + u8::from(is_lost);
        node.set(&pod(&format!("p{last}"), &address(last).to_string()));
        node.settle();
        assert!(!node.agent.is_current());
        node.pass(10);
        assert_eq!(node.installed(), [ReplaceReason::Failure]);
        assert!(node.addresses().contains(&address(last)));
        assert!(node.agent.is_current());
    }
}

#[test]
fn a_change_is_a_step_and_no_installation() {
    let mut node = TestNode::settled(Config::new("n1"));
    let installs = node.memory.node().installs;
    node.set(&pod("c", "10.0.0.3"));
    node.settle();
    assert_eq!(node.addresses(), [address(1), address(2), address(3)]);
    assert_eq!(node.memory.node().installs, installs);
    assert_eq!(node.memory.node().steps, 1);
}

#[test]
fn a_change_that_does_not_fit_installs_all_rules() {
    let mut node = TestNode::settled(Config::new("n1"));
    node.memory.node().room = Some(2);
    node.set(&pod("c", "10.0.0.3"));
    node.settle();
    assert_eq!(node.installed(), [ReplaceReason::Growth]);
    assert_eq!(node.addresses().len(), 3);
    assert_eq!(node.memory.node().steps, 0);
}

#[test]
fn other_interfaces_are_a_change_of_the_rules() {
    let mut node = TestNode::settled(Config::new("n1"));
    let interfaces = BTreeSet::from(["eth0".to_owned()]);
    node.agent.elsewhere(node.now, &interfaces);
    node.settle();
    let expected = Senders::Checked {
        elsewhere: interfaces,
        every: false,
    };
    assert_eq!(node.rules().settings.senders, expected);
    assert_eq!(node.installed(), []);
    node.pass(100);
    assert!(node.outcomes.contains(&SyncOutcome::Verified));
}

#[test]
fn rules_that_another_program_changed_are_restored() {
    let mut node = TestNode::settled(Config::new("n1"));
    let before = node.rules().plan;
    node.memory.node().rules = None;
    let notice = Notice::Changed("the rules are gone".to_owned());
    node.agent.noticed(node.now, &notice);
    node.agent.noticed(node.now, &notice);
    node.settle();
    assert_eq!(node.rules().plan, before);
    let drifts = node.outcomes.iter();
    let drifts = drifts.filter(|it| matches!(it, SyncOutcome::Drifted(_)));
    assert_eq!(drifts.count(), 1);
    assert_eq!(node.installed(), [ReplaceReason::Drift]);
}

#[test]
fn an_audit_finds_and_restores_a_change_without_a_notice() {
    let mut node = TestNode::settled(Config::new("n1"));
    let before = node.rules();
    node.pass(100);
    assert_eq!(node.outcomes, [SyncOutcome::Verified]);
    if let Some(MemoryRules {
        plan: Some(plan), ..
    }) = &mut node.memory.node().rules
    {
        plan.pods.clear();
    }
    node.pass(100);
    assert_eq!(node.rules().plan, before.plan);
    assert_eq!(node.installed(), [ReplaceReason::Drift]);
}

#[test]
fn lost_notices_cause_an_audit_at_once() {
    let mut node = TestNode::settled(Config::new("n1"));
    node.agent.noticed(node.now, &Notice::Lost);
    node.settle();
    assert_eq!(node.outcomes, [SyncOutcome::Verified]);
}

#[test]
fn connections_are_evaluated_again_only_if_something_is_taken_away() {
    let mut node = TestNode::settled(Config::new("n1"));
    node.set(&policy().replace(
        r#""podSelector":{}"#,
        r#""podSelector":{},"ingress":[{"from":[{"podSelector":{}}]}]"#,
    ));
    node.settle();
    let before = node.rules().generation;
    // One more pod that the policy accepts, on another node.
    let remote = pod("c", "10.0.0.3").replace("n1", "n2");
    node.set(&remote);
    node.settle();
    assert_eq!(node.memory.node().steps, 2);
    assert_eq!(node.rules().generation, before);
    // It ends, and its address may have another owner next.
    node.set(&remote.replace(r#""phase":"Running""#, r#""phase":"Succeeded""#));
    node.settle();
    assert!(node.rules().generation > before);
}

#[test]
fn marks_of_an_address_that_changes_hands_are_cleared_where_connections_continue() {
    let mut config = Config::new("n1");
    config.established = Established::Keep;
    let mut node = TestNode::settled(config);
    node.memory.node().cleared.clear();
    // The new owner of the address of `b`.
    node.set(&pod("b", "10.0.0.7"));
    node.set(&pod("c", "10.0.0.2"));
    node.settle();
    let cleared = node.memory.node().cleared.clone();
    let [MarksToClear::Addresses(addresses)] = cleared.as_slice() else {
        panic!("{cleared:?}");
    };
    assert!(addresses.contains(&address(2)), "{addresses:?}");
}
