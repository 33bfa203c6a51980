//! Inputs and options that select nothing, by running every command with them: an empty answer must
//! not look like a clean one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "silent/other_policies.rs"]
mod other_policies;
#[path = "silent/server.rs"]
mod server;
#[path = "silent/unread.rs"]
mod unread;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use server::Server;

/// A pod with a named port, a Service, and a pod of another namespace.
pub(crate) const CLUSTER: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: red}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web, tier: front}}
spec: {nodeName: n1, containers: [{name: c, image: c, ports: [{name: http, containerPort: 8080}]}]}
status: {phase: Running, podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec: {nodeName: n1, containers: [{name: c, image: c, ports: [{name: sql, containerPort: 5432}]}]}
status: {phase: Running, podIPs: [{ip: 10.0.0.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: batch, namespace: red, labels: {app: batch}}
spec: {nodeName: n1, containers: [{name: c, image: c}]}
status: {phase: Running, podIPs: [{ip: 10.0.0.3}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.1, selector: {app: web}, ports: [{name: public, port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
";

pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a command in a directory, with this standard input.
pub(crate) fn run_in(directory: &Path, args: &[&str], input: &str) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(args)
        .current_dir(directory)
        .env_remove("KUBECONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs a command on a cluster in `c.yaml`.
pub(crate) fn run(cluster: &str, args: &[&str]) -> Ran {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("c.yaml"), cluster).unwrap();
    run_in(directory.path(), args, "")
}

pub(crate) fn document(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}{}", ran.out, ran.err))
}

#[track_caller]
fn fails(ran: &Ran, expected: &str) {
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
    assert_eq!(ran.err, format!("palisade: {expected}\n"));
}

#[test]
fn an_empty_standard_input_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("c.yaml"), CLUSTER).unwrap();
    let commands: [&[&str]; 9] = [
        &["check", "-f", "-"],
        &["check", "-o", "json", "-f", "-"],
        &["lint", "-f", "-"],
        &["explain", "-f", "-", "shop/web", "shop/db", "tcp/5432"],
        &["affecting", "-f", "-", "shop/web"],
        &["connectivity", "-f", "-"],
        &["compile", "-f", "-"],
        &["diff", "-", "c.yaml"],
        &["diff", "c.yaml", "-f", "-"],
    ];
    for args in commands {
        for input in ["", "\n \t\n"] {
            let ran = run_in(directory.path(), args, input);
            let expected = "standard input is empty; pipe manifests in, or name files with -f";
            fails(&ran, expected);
        }
    }
    let ran = run_in(directory.path(), &["check", "-f", "-"], "# no object\n");
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn check_of_a_missing_file_is_not_clean() {
    let missing = "palisade: cannot read no-such.yaml: No such file or directory (os error 2)\n";
    for form in ["table", "wide"] {
        let ran = run(CLUSTER, &["check", "-f", "no-such.yaml", "-o", form]);
        assert_eq!(ran.code, 2);
        assert_eq!(ran.out, "1 file could not be read\n");
        assert_eq!(ran.err, missing);
        let both = ["check", "-f", "no-such.yaml", "-f", "c.yaml", "-o", form];
        let ran = run(CLUSTER, &both);
        assert_eq!(ran.code, 2);
        assert_eq!(ran.out, "7 objects in 1 file; 1 file could not be read\n");
        let ran = run("a: 1\n", &both);
        let summary = ran.out.lines().last().unwrap();
        let expected = "0 objects in 1 file: 1 warning; 1 file could not be read";
        assert_eq!(summary, expected);
    }
    let ran = run(CLUSTER, &["check", "-q", "-f", "no-such.yaml"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert_eq!(ran.err, missing);
}

#[test]
fn an_unknown_namespace_is_an_error_of_lint() {
    let ran = run(CLUSTER, &["lint", "-f", "c.yaml", "-n", "shp"]);
    fails(&ran, "namespace `shp` not found; did you mean `shop`?");
    let ran = run(CLUSTER, &["lint", "-f", "c.yaml", "-n", "red"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn an_unknown_namespace_of_the_cluster_is_an_error() {
    let namespaces = json!([{"metadata": {"name": "shop"}}, {"metadata": {"name": "red"}}]);
    let server = Server::start(&[(
        "/api/v1/namespaces",
        json!({"kind": "NamespaceList", "apiVersion": "v1",
        "metadata": {"resourceVersion": "1"}, "items": namespaces}),
    )]);
    let ran = server.palisade(&["check", "-n", "shp"]);
    fails(&ran, "namespace `shp` not found; did you mean `shop`?");
    let ran = server.palisade(&["check", "-n", "shop"]);
    assert_eq!(ran.err, "");
    assert_eq!(ran.out, "0 objects in the cluster: no problems\n");
    let ran = server.palisade(&["lint", "-n", "shp"]);
    fails(&ran, "namespace `shp` not found; did you mean `shop`?");
}

#[test]
fn a_port_name_that_no_destination_has_is_an_error() {
    let connectivity = |more: &[&str]| {
        let args = [&["connectivity", "-f", "c.yaml"], more].concat();
        run(CLUSTER, &args)
    };
    let ran = connectivity(&["--port", "tcp/htpp"]);
    fails(
        &ran,
        "no destination has a TCP port named `htpp`; did you mean `http`?",
    );
    let ran = connectivity(&["--port", "tcp/no-such-name"]);
    fails(
        &ran,
        "no destination has a TCP port named `no-such-name`; they have http, public, sql",
    );
    let ran = connectivity(&["--port", "udp/http"]);
    fails(
        &ran,
        "no destination has a UDP port named `http`; only declared container ports and ports of Services have names",
    );
    let ran = connectivity(&["--to", "shop/db", "--port", "tcp/http"]);
    fails(
        &ran,
        "no destination has a TCP port named `http`; they have sql",
    );
    for port in ["tcp/http", "tcp/public"] {
        let ran = connectivity(&["--port", port]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{port}");
    }
}

#[test]
fn two_numbers_with_a_dash_are_a_range_of_ports() {
    for range in ["tcp/1-70000", "TCP/0-9", "tcp/9-1", "tcp/70000-70001"] {
        let ran = run(CLUSTER, &["connectivity", "-f", "c.yaml", "--port", range]);
        let expected = "is not a range of ports; write `tcp/FIRST-LAST`, from 1 to 65535";
        fails(&ran, &format!("`{range}` {expected}"));
    }
}

#[test]
fn a_selector_that_selects_no_pod_is_an_error() {
    for (more, expected) in [
        (
            &["-l", "app=wbe"][..],
            "no pod matches `app=wbe`; did you mean `app=web`?",
        ),
        (
            &["-l", "ap=web"],
            "no pod matches `ap=web`; did you mean the label `app`?",
        ),
        (
            &["-l", "app=zzzzz"],
            "no pod matches `app=zzzzz`; the values of `app` are batch, db, web",
        ),
        (
            &["-l", "zzzzz"],
            "no pod matches `zzzzz`; pods have the labels app, tier",
        ),
        (
            &["-l", "app=db,tier=front"],
            "no pod matches `app=db,tier=front`; pods match its parts, and none matches all",
        ),
        (
            &["-n", "shop", "-l", "app=batch"],
            "no pod of the namespace matches `app=batch`; pods of `red` do",
        ),
        (&["-l", "!app"], "no pod matches `!app`"),
    ] {
        let args = [&["connectivity", "-f", "c.yaml"], more].concat();
        fails(&run(CLUSTER, &args), expected);
    }
    let ran = run(CLUSTER, &["connectivity", "-f", "c.yaml", "-l", "app=web"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let nothing = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
    let ran = run(nothing, &["connectivity", "-f", "c.yaml", "-l", "app=web"]);
    fails(&ran, "no pod matches `app=web`; the input has no pod");
}
