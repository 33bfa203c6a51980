//! A whole cluster: nodes become ready, pods reach each other, and nothing is left after any end of
//! its starter. Needs the built programs, containerd and root.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "common/group.rs"]
mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use palisade_testbed::{CLUSTER, Cluster, Identity, Shape, group};

use crate::common::{Bed, answer, fails, ok, processes_of, until};

const IMAGE: &str = "registry.k8s.io/e2e-test-images/agnhost:2.45";

fn main() -> ExitCode {
    group(
        "cluster",
        CLUSTER,
        vec![
            ("pods of two nodes reach each other", pods),
            ("down leaves nothing after a killed start", killed),
            ("down leaves nothing of a detached cluster", detached),
        ],
    )
}

/// Everything that a testbed could leave: mounts below its directory, groups of containers, links
/// of ours.
fn traces(directory: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let path = directory.display().to_string();
    let mut traces: Vec<String> = mounts
        .lines()
        .filter(|it| it.contains(&path))
        .map(str::to_owned)
        .collect();
    for root in [PathBuf::from("/sys/fs/cgroup/k8s.io")]
        .into_iter()
        .chain(list(Path::new("/sys/fs/cgroup")).map(|it| it.join("k8s.io")))
    {
        traces.extend(
            list(&root)
                .filter(|it| it.is_dir())
                .map(|it| it.display().to_string()),
        );
    }
    traces.extend(list(Path::new("/sys/class/net")).map(|it| it.display().to_string()));
    traces.extend(list(Path::new("/run/netns")).map(|it| it.display().to_string()));
    for gone in [
        "/run/containerd",
        "/var/lib/cni",
        "/var/lib/kubelet",
        "/etc/cni",
    ] {
        traces.extend(Path::new(gone).exists().then(|| gone.to_owned()));
    }
    traces.extend(directory.exists().then_some(path));
    traces.extend(processes_of(directory));
    traces.sort();
    traces
}

fn list(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|it| it.path())
}

/// The processes that carry the mark of a testbed, and all that descend from them: containers among
/// them.
fn family(directory: &Path) -> BTreeSet<Identity> {
    let mark = format!("PALISADE_TESTBED={}", directory.display());
    let pids = || list(Path::new("/proc")).filter_map(|it| it.file_name()?.to_str()?.parse().ok());
    let is_marked = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|it| *it == 0)
            .any(|it| it == mark.as_bytes())
    };
    let mut family: BTreeSet<i32> = pids().filter(is_marked).collect();
    loop {
        let before = family.len();
        for pid in pids() {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let parent = stat.rsplit(')').next().unwrap().split(' ').nth(2);
            if parent.is_some_and(|it| family.contains(&it.parse().unwrap_or(0))) {
                family.insert(pid);
            }
        }
        if family.len() == before {
            return family.into_iter().filter_map(Identity::of).collect();
        }
    }
}

/// A pod that serves its name on port 8080.
fn pod(name: &str, node: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  containers: [{{name: main, image: \"{IMAGE}\", args: [netexec, --http-port=8080]}}]
"
    )
}

/// Two pods on two nodes, each of which requests the name of the other.
fn meet(kubectl: &dyn Fn() -> Command, scratch: &Path) {
    let manifest = scratch.join("pods.yaml");
    fs::write(
        &manifest,
        [pod("left", "n1"), pod("right", "n2")].join("---\n"),
    )
    .unwrap();
    // A controller creates the account of a namespace soon.
    until(Duration::from_secs(60), || {
        let made = kubectl()
            .args(["get", "serviceaccount", "default"])
            .output();
        made.unwrap().status.success()
    });
    ok(kubectl().args(["create", "-f"]).arg(&manifest));
    ok(kubectl().args([
        "wait",
        "--for=condition=Ready",
        "pod",
        "--all",
        "--timeout=120s",
    ]));
    for (from, to, node) in [
        ("left", "right", "10.200.2."),
        ("right", "left", "10.200.1."),
    ] {
        let mut address = kubectl();
        address.args(["get", "pod", to, "-o", "jsonpath={.status.podIP}"]);
        let address = answer(address);
        assert!(address.starts_with(node), "{to} has {address}");
        let ask = |port: u16| {
            let mut ask = kubectl();
            ask.args(["exec", from, "--", "/agnhost", "connect", "--timeout=5s"]);
            ask.arg(format!("{address}:{port}"));
            ask
        };
        answer(ask(8080));
        assert!(fails(ask(8079)).contains("REFUSED"));
    }
}

fn pods() {
    let cluster = Cluster::start(&Shape::nodes(2)).unwrap_or_else(|error| panic!("{error}"));
    let mut nodes = cluster.kubectl();
    nodes.args(["get", "nodes", "-o", "name"]);
    assert_eq!(answer(nodes), "node/n1\nnode/n2\n");
    let directory = cluster.directory().to_owned();
    meet(&|| cluster.kubectl(), &directory);
    drop(cluster);
    assert!(!directory.exists());
    assert_eq!(processes_of(&directory), Vec::<String>::new());
}

fn killed() {
    let bed = Bed::new();
    let state = bed.state.clone();
    let before = traces(&state);
    // At several moments: with namespaces only, when a container daemon runs, and when all run.
    for moment in ["namespace ", " containerd-n1", " kubelet-n2"] {
        let mut starter = bed.testbed();
        let starter = starter
            .arg("up")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut starter = starter.spawn().unwrap();
        until(Duration::from_secs(120), || {
            let ledger = fs::read_to_string(state.join("ledger")).unwrap_or_default();
            ledger.contains(moment)
        });
        starter.kill().unwrap();
        starter.wait().unwrap();
        let members = family(&state);
        ok(bed.testbed().arg("down"));
        assert_eq!(traces(&state), before, "after {moment}");
        assert!(!members.iter().any(|it| it.is_alive()), "after {moment}");
    }
}

fn detached() {
    let bed = Bed::new();
    let state = bed.state.clone();
    let before = traces(&state);
    ok(bed.testbed().args(["up", "--cni", "bridge", "--proxy"]));
    ok(bed.testbed().arg("status"));
    let kubectl = || {
        let mut command = bed.testbed();
        command.arg("kubectl");
        command
    };
    meet(&kubectl, state.parent().unwrap());
    let members = family(&state);
    // Ten daemons, a shim for each pod, and two containers in each.
    assert!(members.len() >= 16, "{members:?}");
    ok(bed.testbed().arg("down"));
    assert_eq!(traces(&state), before);
    assert!(!members.iter().any(|it| it.is_alive()));
    // Removing twice is no error.
    ok(bed.testbed().arg("down"));
}
