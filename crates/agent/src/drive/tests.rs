//! The driver with threads of its own, on a backend in memory and a directory of manifests.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use palisade_core::net::Cidr;

use super::{Driver, Message, Source};
use crate::agent::Agent;
use crate::backend::memory::{Memory, Node};
use crate::backend::{Connect as _, Notice};
use crate::config::Config;
use crate::drive::{CloseOutcome, Health, close};

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"x"},"spec":{"nodeName":"n1","containers":[{"name":"c","image":"i"}]},"status":{"phase":"Running","podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}]}}"#;
const POLICY: &str = r#"{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p","namespace":"x"},"spec":{"podSelector":{},"policyTypes":["Ingress"]}}"#;

/// A directory that is deleted with the value.
struct Directory(std::path::PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let name = format!("palisade-agent-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Ends the driver, also when a test fails.
struct End(Sender<Message>);

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.0.send(Message::End("test"));
    }
}

/// Runs a driver with a directory as its source, while `then` runs.
fn during(memory: &Memory, directory: &Path, then: impl FnOnce()) {
    let config = Config::new("n1");
    let agent = Agent::new(memory.clone(), config.clone(), None);
    let handles = memory.connect().unwrap();
    let source = Source::Directory {
        path: directory.to_owned(),
        recursive: false,
    };
    let (sender, receiver) = channel();
    let health = std::sync::Arc::new(Health::new());
    let end = End(sender.clone());
    let driving = std::thread::spawn(move || {
        let driver = Driver::start(agent, handles, config, &source, health, sender);
        driver.unwrap().run(&receiver);
    });
    then();
    drop(end);
    driving.join().unwrap();
}

/// Waits until something is true of the node.
#[track_caller]
fn wait_for(memory: &Memory, is: impl Fn(&Node) -> bool) {
    let started = Instant::now();
    while !is(&memory.node()) {
        let waited = started.elapsed();
        assert!(waited < Duration::from_secs(60), "{:?}", memory.node());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the number of pods that a rule chain applies to.
fn isolated(node: &Node) -> usize {
    let plan = node.rules.as_ref().and_then(|it| it.plan.as_ref());
    plan.map_or(0, |plan| {
        let pods = plan.pods.values();
        pods.filter(|it| it.ingress.is_some()).count()
    })
}

#[test]
fn a_directory_is_enforced_while_commands_fail_and_other_programs_change_rules() {
    let directory = Directory::new("driver");
    directory.write("pod.json", POD);
    directory.write("policy.json", POLICY);
    let memory = Memory::default();
    memory.node().refusals = 2;
    during(&memory, &directory.0, || {
        wait_for(&memory, |node| isolated(node) == 1);
        let other = POD
            .replace("\"a\"", "\"b\"")
            .replace("10.0.0.1", "10.0.0.2");
        directory.write("other.json", &other);
        wait_for(&memory, |node| isolated(node) == 2);
        {
            let mut node = memory.node();
            node.rules = None;
            let notice = Notice::Changed("the rules are gone".to_owned());
            node.notices.push_back(notice);
        }
        wait_for(&memory, |node| isolated(node) == 2);
    });
    // The rules outlive the agent (D86).
    assert_eq!(isolated(&memory.node()), 2);
}

#[test]
fn an_agent_waits_while_another_one_has_the_rules() {
    let directory = Directory::new("waits");
    directory.write("pod.json", POD);
    directory.write("policy.json", POLICY);
    let memory = Memory::default();
    memory.node().is_busy = true;
    during(&memory, &directory.0, || {
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(memory.node().rules, None);
        memory.node().is_busy = false;
        wait_for(&memory, |node| isolated(node) == 1);
    });
}

#[test]
fn only_what_is_not_enforced_is_closed() {
    let mut config = Config::new("n1");
    config.pod_blocks = vec![Cidr::new([10, 0, 0, 0].into(), 24).unwrap()];
    let memory = Memory::default();
    memory.node().is_busy = true;
    assert_eq!(close(&memory, &config).unwrap(), CloseOutcome::Busy);
    assert_eq!(memory.node().rules, None);
    memory.node().is_busy = false;
    assert_eq!(close(&memory, &config).unwrap(), CloseOutcome::Closed);
    // A closed table may be for other blocks.
    config.pod_blocks.clear();
    assert_eq!(close(&memory, &config).unwrap(), CloseOutcome::Closed);
    let closed = memory.node().rules.clone().unwrap();
    assert!(closed.plan.is_none() && closed.settings.pod_blocks.is_empty());
    let generation = palisade_core::plan::Generation::new(3);
    if let Some(rules) = &mut memory.node().rules {
        rules.plan = Some(palisade_core::plan::Plan::default());
        rules.generation = generation;
    }
    assert_eq!(close(&memory, &config).unwrap(), CloseOutcome::Enforced);
    assert_eq!(memory.node().installs, 2);
}
