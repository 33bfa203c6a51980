//! The changes that an agent makes of changed files: each object comes from the last file that has
//! it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use palisade_agent::files::{FileDelta, Objects};
use palisade_agent::{Agent, AuditOutcome, Config, Next, Nft, Task, TaskOutcome};
use palisade_watch::{File, FileChanges};

/// A directory, and an agent that receives its changes.
struct Source {
    objects: Objects,
    agent: Agent,
    files: Vec<File>,
}

impl Source {
    fn new() -> Source {
        Source {
            objects: Objects::default(),
            agent: Agent::new(Nft::default(), Config::new("n1"), None),
            files: Vec::new(),
        }
    }

    /// Writes files, and deletes those without a text.
    fn write(&mut self, files: &[(&str, Option<&str>)]) -> FileDelta {
        let mut difference = FileChanges::default();
        for (name, text) in files {
            let path = PathBuf::from(name);
            self.files.retain(|file| file.path != path);
            match text {
                None => difference.gone.push(path),
                Some(text) => {
                    let bytes = Arc::new(text.as_bytes().to_vec());
                    let root = 0;
                    difference.changed.push(path.clone());
                    self.files.push(File { path, root, bytes });
                }
            }
        }
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
        let now = Duration::ZERO;
        let mut store = self.agent.objects(now);
        let taken = self.objects.take(&self.files, &difference, &mut store);
        // Every command to the kernel succeeds.
        self.agent.synced(now);
        for _ in 0..8 {
            match self.agent.next(now) {
                Next::Do(_) => self.agent.finished(now, Ok(())),
                Next::Spawn(Task::ClearMarks(_)) => {
                    self.agent
                        .task_finished(now, TaskOutcome::ClearMarks(Ok(())));
                }
                Next::Spawn(Task::Audit { .. }) => {
                    let same = Ok(AuditOutcome::default());
                    self.agent.task_finished(now, TaskOutcome::Audit(same));
                }
                Next::Wait(_) => {}
            }
        }
        taken
    }

    /// Returns the addresses of pods that the agent knows on its node.
    fn pods(&self) -> Vec<String> {
        let plan = self.agent.planner().plan();
        plan.pods.keys().map(ToString::to_string).collect()
    }

    fn n_pods(&self) -> usize {
        self.agent.planner().counts().pods
    }

    fn n_policies(&self) -> usize {
        self.agent.planner().counts().network_policies
    }
}

fn pod(name: &str, address: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: x}}\n\
         spec: {{nodeName: n1, containers: [{{name: c, image: i}}]}}\nstatus: {{podIP: {address}}}\n"
    )
}

const POLICY: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: x}\nspec: {podSelector: {}}\n";

#[test]
fn objects_are_added_and_removed_with_their_files() {
    let mut source = Source::new();
    let taken = source.write(&[
        ("a.yaml", Some(&pod("a", "10.0.0.1"))),
        ("p.yaml", Some(POLICY)),
    ]);
    assert_eq!(
        (taken.different, source.n_pods(), source.n_policies()),
        (2, 1, 1)
    );
    // The same file once more is no change.
    let taken = source.write(&[("p.yaml", Some(POLICY))]);
    assert_eq!(taken.different, 0);
    // Another file with the same object is no change either, and the object outlives the first.
    let taken = source.write(&[("q.yaml", Some(POLICY))]);
    assert_eq!(taken.different, 0);
    let taken = source.write(&[("p.yaml", None)]);
    assert_eq!((taken.different, source.n_policies()), (0, 1));
    let taken = source.write(&[("q.yaml", None), ("a.yaml", None)]);
    assert_eq!(
        (taken.different, source.n_pods(), source.n_policies()),
        (2, 0, 0)
    );
}

#[test]
fn the_later_file_is_used_and_the_earlier_returns_with_its_removal() {
    let mut source = Source::new();
    source.write(&[("b.yaml", Some(&pod("a", "10.0.0.2")))]);
    // An earlier file does not change it, a later one does.
    assert_eq!(
        source
            .write(&[("a.yaml", Some(&pod("a", "10.0.0.1")))])
            .different,
        0
    );
    assert_eq!(
        source
            .write(&[("c.yaml", Some(&pod("a", "10.0.0.3")))])
            .different,
        1
    );
    assert_eq!(source.write(&[("b.yaml", None)]).different, 0);
    assert_eq!(source.pods(), ["10.0.0.3"]);
    assert_eq!(source.write(&[("c.yaml", None)]).different, 1);
    assert_eq!(source.pods(), ["10.0.0.1"]);
}

#[test]
fn of_two_in_one_file_the_later_is_used() {
    let mut source = Source::new();
    let both = [pod("a", "10.0.0.1"), pod("a", "10.0.0.2")].join("---\n");
    let taken = source.write(&[("a.yaml", Some(&both))]);
    assert_eq!((taken.different, source.n_pods()), (1, 1));
    assert_eq!(source.pods(), ["10.0.0.2"]);
    // The agent reports it as an error.
    assert_eq!(taken.faults.len(), 1);
    assert!(
        taken.faults[0].1.lines[0].contains("DUPLICATE"),
        "{taken:?}"
    );
}

#[test]
fn an_unreadable_file_keeps_its_objects() {
    let mut source = Source::new();
    source.write(&[("p.yaml", Some(POLICY))]);
    for broken in [
        "kind: [",
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicies\nmetadata: {name: p}\n",
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: x}\nspec: 7\n",
        "{{ .Values.policy }}\n",
        &format!("{POLICY}---\nkind: [\n"),
    ] {
        let taken = source.write(&[("p.yaml", Some(broken))]);
        assert_eq!((taken.different, source.n_policies()), (0, 1), "{broken}");
        assert!(taken.faults[0].1.is_kept, "{broken} {taken:?}");
        assert_eq!(source.objects.unreadable().count(), 1, "{broken}");
        assert!(source.objects.errors() > 0);
    }
    // An empty file is valid, and removes the objects.
    let taken = source.write(&[("p.yaml", Some(""))]);
    assert_eq!((taken.different, source.n_policies()), (1, 0));
    assert_eq!(source.objects.unreadable().count(), 0);
    assert!(taken.faults[0].1.lines.is_empty(), "{taken:?}");
}

#[test]
fn an_object_that_was_never_read_is_read_as_far_as_possible() {
    let mut source = Source::new();
    let text = format!("{POLICY}---\nkind: [\n");
    let taken = source.write(&[("p.yaml", Some(&text))]);
    assert_eq!((taken.different, source.n_policies()), (1, 1));
    let faults = &taken.faults[0].1;
    assert!(faults.is_unreadable && !faults.is_kept);
}

#[test]
fn a_rule_with_an_error_does_not_reject_the_file() {
    let mut source = Source::new();
    source.write(&[("p.yaml", Some(POLICY))]);
    let text = POLICY.replace(
        "{podSelector: {}}",
        "{podSelector: {}, ingress: [{ports: [{port: 999999}]}]}",
    );
    let taken = source.write(&[("p.yaml", Some(&text))]);
    assert_eq!(taken.different, 1);
    let faults = &taken.faults[0].1;
    assert!(!faults.is_unreadable && faults.errors == 1, "{faults:?}");
    assert_eq!(source.objects.unreadable().count(), 0);
}

#[test]
fn services_and_workloads_do_not_change_a_node() {
    let mut source = Source::new();
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: x}\nspec: {ports: [{port: 80}]}\n";
    assert_eq!(source.write(&[("s.yaml", Some(text))]).different, 0);
}
