//! The errors of `palisade connectivity`, and a closed output.

use std::process::{Command, Stdio};

use crate::{CLUSTER, namespace, pod, run};

#[test]
fn errors_are_reported() {
    let cases: [(&[&str], &str); 16] = [
        (&["--from", "shp"], "namespace `shp` not found"),
        (
            &["--from", "x1/"],
            "namespace `x1` not found; did you mean `x/`?",
        ),
        (&["--from", "pod"], "did you mean `pods`?"),
        (&["--to", "n2"], "did you mean `node/n2`?"),
        (
            &["--to", "x/aa"],
            "pod `x/aa` not found; did you mean `x/a`?",
        ),
        (&["--to", "x/dploy/a"], "did you mean `deploy`?"),
        (
            &["--to", "node/n3"],
            "node `node/n3` not found; did you mean",
        ),
        (&["--from", "10.0.0.0/33"], "is not a block of addresses"),
        (&["--from", "x/svc/a"], "a Service cannot be a source"),
        (&["--from", "services"], "a Service cannot be a source"),
        (&["--port", "web"], "is not a port"),
        (&["--port", "tcp/9-1"], "is not a range of ports"),
        (
            &["-n", "ww"],
            "namespace `ww` not found; did you mean `w/`?",
        ),
        (&["-l", "a=b c"], "is not a label selector"),
        (&["--summary", "-o", "html"], "--summary is printed as"),
        (&["--pairs", "-o", "svg"], "--pairs is printed as"),
    ];
    for (args, expected) in cases {
        let ran = run(CLUSTER, args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.out);
        assert!(ran.err.contains(expected), "{args:?}: {}", ran.err);
        assert!(ran.out.is_empty(), "{args:?}: {}", ran.out);
    }
    let ran = run("kind: Pod\n", &[]);
    assert_eq!(ran.code, 2);
    let ran = run(CLUSTER, &["--pairs", "--summary"]);
    assert_eq!(ran.code, 2);
}

#[test]
fn too_many_blocks_are_refused_with_a_way_out() {
    let ran = run(CLUSTER, &["--max-blocks", "2"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    for word in [
        "more than 2 blocks",
        "--from",
        "--to",
        "--port",
        "-n",
        "--summary",
        "--max-blocks",
    ] {
        assert!(ran.err.contains(word), "{word}: {}", ran.err);
    }
    let ran = run(CLUSTER, &["--max-blocks", "2", "--summary"]);
    assert_eq!(ran.code, 0);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = namespace("x", "");
    for number in 1..200 {
        let address = format!("{{ip: 10.0.0.{number}}}");
        world += &pod("x", &format!("p{number}"), "app: a", &address);
    }
    std::fs::write(directory.path().join("c.yaml"), world).unwrap();
    for form in ["csv", "jsonl", "table"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_palisade"))
            .args(["connectivity", "-f", "c.yaml", "--pairs", "-o", form])
            .current_dir(directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{form}");
        assert!(output.stderr.is_empty(), "{form}");
    }
}
