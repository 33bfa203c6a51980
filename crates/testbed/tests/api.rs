//! A private API server: it answers, rejects, stores, and leaves nothing. Needs the built programs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "common/group.rs"]
mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use palisade_testbed::{API_SERVER, Api, Options, group};

use crate::common::{Bed, answer, fails, ok, processes_of, until};

fn main() -> ExitCode {
    group(
        "api",
        API_SERVER,
        vec![
            ("the server answers", answers),
            ("a user has the rights of its roles and no more", roles),
            ("a restart keeps the data and the port", restart),
            ("a paused server sends nothing and then continues", pause),
            ("requests are logged", audit),
            ("a dropped server leaves nothing", dropped),
            ("a killed owner leaves nothing", killed),
            ("a detached server is found by its directory", detached),
        ],
    )
}

fn start() -> Api {
    Api::start(&Options::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// One for all tests that do not change it. A static is not dropped at the end of a process: it
/// ends as that of a killed owner does.
fn shared() -> &'static Api {
    static SHARED: OnceLock<Api> = OnceLock::new();
    SHARED.get_or_init(start)
}

fn answers() {
    let api = shared();
    let mut version = api.kubectl();
    version.args(["get", "--raw=/version"]);
    assert!(answer(version).contains("\"gitVersion\": \"v1.35.4\""));
    let mut namespaces = api.kubectl();
    namespaces.args(["get", "namespaces", "-o", "name"]);
    assert!(answer(namespaces).contains("namespace/kube-system"));
}

fn roles() {
    let api = shared();
    let reader = api.kubeconfig_for("jane", &["readers", "guests"]).unwrap();
    let as_jane = |words: &[&str]| {
        let mut command = api.kubectl();
        command.arg("--kubeconfig").arg(&reader).args(words);
        command
    };
    let output = fails(as_jane(&["get", "pods"]));
    assert!(
        output.contains("User \"jane\" cannot list resource \"pods\""),
        "{output}"
    );
    for (group, name) in [("readers", "pods"), ("guests", "nodes")] {
        let mut role = api.kubectl();
        role.args(["create", "clusterrole", name, "--verb=list"]);
        ok(role.arg(format!("--resource={name}")));
        let mut binding = api.kubectl();
        binding.args(["create", "clusterrolebinding", name]);
        ok(binding.args([format!("--clusterrole={name}"), format!("--group={group}")]));
    }
    // The server reads roles from its own cache.
    until(Duration::from_secs(10), || {
        as_jane(&["get", "pods"]).output().unwrap().status.success()
            && as_jane(&["get", "nodes"])
                .output()
                .unwrap()
                .status
                .success()
    });
    let output = fails(as_jane(&["create", "namespace", "mine"]));
    assert!(
        output.contains("cannot create resource \"namespaces\""),
        "{output}"
    );
}

fn restart() {
    let mut api = start();
    let url = api.url();
    let mut namespace = api.kubectl();
    ok(namespace.args(["create", "namespace", "kept"]));
    api.stop_server();
    let mut refused = api.kubectl();
    refused.args(["get", "namespace", "kept"]);
    let output = fails(refused);
    assert!(output.contains("refused"), "{output}");
    api.start_server().unwrap();
    assert_eq!(api.url(), url);
    let mut namespace = api.kubectl();
    ok(namespace.args(["get", "namespace", "kept"]));
}

fn pause() {
    let api = start();
    let get = || {
        let mut command = api.kubectl();
        command.args(["get", "--raw=/version", "--request-timeout=1s"]);
        command
    };
    api.pause();
    let output = fails(get());
    assert!(!output.contains("refused"), "{output}");
    api.resume();
    until(Duration::from_secs(10), || {
        get().output().unwrap().status.success()
    });
}

fn audit() {
    let api = shared();
    let mut map = api.kubectl();
    ok(map.args(["create", "configmap", "seen-in-the-log", "-n", "default"]));
    until(Duration::from_secs(5), || {
        let log = fs::read_to_string(api.audit_log()).unwrap_or_default();
        log.lines().any(|line| {
            line.contains("\"verb\":\"create\"")
                && line.contains("\"name\":\"seen-in-the-log\"")
                && line.contains("\"username\":\"admin\"")
                && line.contains("\"code\":201")
        })
    });
}

fn dropped() {
    let api = start();
    let directory = api.directory().to_owned();
    assert_eq!(processes_of(&directory).len(), 2);
    drop(api);
    assert!(!directory.exists());
    assert_eq!(processes_of(&directory), Vec::<String>::new());
}

fn killed() {
    let bed = Bed::new();
    let mut owner = bed.testbed();
    let owner = owner.arg("api").stdout(Stdio::piped());
    let mut owner = owner.spawn().unwrap();
    let mut line = String::new();
    let output = owner.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    let directory = Path::new(line.trim_end()).parent().unwrap();
    assert_eq!(processes_of(directory).len(), 2);
    owner.kill().unwrap();
    owner.wait().unwrap();
    until(Duration::from_secs(20), || {
        !directory.exists() && processes_of(directory).is_empty()
    });
}

fn detached() {
    let bed = Bed::new();
    let state = &bed.state;
    let of = |words: &[&str]| {
        let mut command = bed.testbed();
        command.args(words);
        command
    };
    let path = answer(of(&["api", "--detach"]));
    assert_eq!(Path::new(path.trim_end()), state.join("admin.kubeconfig"));
    assert_eq!(answer(of(&["status"])).matches(" running\n").count(), 2);
    let output = fails(of(&["api", "--detach"]));
    assert!(output.contains("already"), "{output}");
    let user = answer(of(&[
        "kubeconfig",
        "--user",
        "jane",
        "--group",
        "system:masters",
    ]));
    let who = [
        "kubectl",
        "--kubeconfig",
        user.trim_end(),
        "auth",
        "whoami",
        "-o",
        "name",
    ];
    answer(of(&who));
    answer(of(&["down"]));
    assert!(!state.exists());
    assert_eq!(processes_of(state), Vec::<String>::new());
    answer(of(&["down"]));
}
