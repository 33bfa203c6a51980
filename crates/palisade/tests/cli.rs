//! The real binary, as people and scripts run it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "cli/formats.rs"]
mod formats;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn palisade(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(args)
        .current_dir(root())
        .output()
        .unwrap()
}

fn with_input(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn text(output: &[u8]) -> String {
    String::from_utf8(output.to_vec()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

const GOOD: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
const BAD: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec: {podselector: {}}\n";

#[test]
fn every_example_is_valid() {
    for example in root().join("examples").read_dir().unwrap() {
        let example = example.unwrap().path();
        let output = palisade(&["check", "-f", example.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    }
}

#[test]
fn a_problem_is_drawn_with_its_line_a_caret_and_help() {
    let output = with_input(&["check", "-f", "-"], BAD.as_bytes());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stdout),
        "\
error[UNKNOWN-FIELD]: unknown field `podselector`
 --> -:4:8
  |
4 | spec: {podselector: {}}
  |        ^^^^^^^^^^^
  |
  = in: netpol/default/a spec.podselector
  = help: did you mean `podSelector`?

1 object in 1 file: 1 error
"
    );
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn one_line_a_problem_with_wide() {
    let output = with_input(&["check", "-q", "-o", "wide", "-f", "-"], BAD.as_bytes());
    assert_eq!(
        text(&output.stdout),
        "-:4:8: error[UNKNOWN-FIELD]: unknown field `podselector` (did you mean `podSelector`?) [netpol/default/a spec.podselector]\n"
    );
}

#[test]
fn json_has_the_keys_of_the_contract() {
    let input = format!("{GOOD}---\n{BAD}---\napiVersion: v1\nkind: ConfigMap\n");
    let output = with_input(&["check", "-o", "json", "-f", "-"], input.as_bytes());
    assert_eq!(output.status.code(), Some(1));
    let expected = serde_json::json!({
        "apiVersion": "palisade.dev/v1alpha1",
        "kind": "Check",
        "objects": {"Namespace": 1, "ConfigMap": 1},
        "invalid": {"NetworkPolicy": 1},
        "passedOver": [{"apiVersion": "v1", "kind": "ConfigMap", "count": 1}],
        "problems": [{
            "severity": "error",
            "code": "UNKNOWN-FIELD",
            "object": "netpol/default/a",
            "path": "spec.podselector",
            "file": "-",
            "line": 8,
            "column": 8,
            "endLine": 8,
            "endColumn": 19,
            "message": "unknown field `podselector`",
            "help": "did you mean `podSelector`?",
        }],
    });
    assert_eq!(json(&output), expected);
}

#[test]
fn jsonl_and_yaml_say_the_same_as_json() {
    let document = json(&with_input(
        &["check", "-o", "json", "-f", "-"],
        BAD.as_bytes(),
    ));
    let lines = with_input(&["check", "-o", "jsonl", "-f", "-"], BAD.as_bytes());
    let lines: Vec<Value> = text(&lines.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(Value::from(lines), document["problems"]);
    let yaml = with_input(&["check", "-o", "yaml", "-f", "-"], BAD.as_bytes());
    assert!(text(&yaml.stdout).starts_with("apiVersion: palisade.dev/v1alpha1\nkind: Check\n"));
}

#[test]
fn sarif_has_what_code_scanning_needs() {
    let output = with_input(&["check", "-o", "sarif", "-f", "-"], BAD.as_bytes());
    let log = json(&output);
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let result = &run["results"][0];
    assert_eq!(result["level"], "error");
    let rule = &run["tool"]["driver"]["rules"][result["ruleIndex"].as_u64().unwrap() as usize];
    assert_eq!(rule["id"], "UNKNOWN-FIELD");
    assert_eq!(result["ruleId"], "UNKNOWN-FIELD");
    let region = &result["locations"][0]["physicalLocation"]["region"];
    assert_eq!(
        *region,
        serde_json::json!({"startLine": 4, "startColumn": 8, "endLine": 4, "endColumn": 19})
    );
}

#[test]
fn exit_codes_follow_the_severity_that_counts() {
    let warning = b"a: 1\n";
    let code = |args: &[&str], input: &[u8]| with_input(args, input).status.code();
    assert_eq!(code(&["check", "-f", "-"], GOOD.as_bytes()), Some(0));
    assert_eq!(code(&["check", "-f", "-"], warning), Some(0));
    assert_eq!(
        code(&["check", "-f", "-", "--fail-on=warning"], warning),
        Some(1)
    );
    assert_eq!(
        code(&["check", "-f", "-", "--exit-zero"], BAD.as_bytes()),
        Some(0)
    );
    assert_eq!(
        code(&["check", "-f", "-", "--as-pruned"], BAD.as_bytes()),
        Some(0)
    );
    assert_eq!(code(&["check", "-f", "-", "--nonsense"], b""), Some(2));
}

/// Without files the commands read a cluster; this machine knows none.
fn without_cluster(args: &[&str]) -> Output {
    let home = temporary();
    Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(args)
        .current_dir(root())
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove("KUBERNETES_SERVICE_PORT")
        .env("HOME", home.path())
        .output()
        .unwrap()
}

#[test]
fn without_files_and_without_a_cluster_there_is_nothing_to_read() {
    let flow = ["explain", "shop/web", "shop/db", "tcp/80"];
    for args in [
        ["check"].as_slice(),
        &flow,
        &["affecting", "shop/web"],
        &["connectivity"],
        &["compile"],
        &["lab"],
    ] {
        let output = without_cluster(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let printed = text(&output.stderr);
        assert!(
            printed.starts_with("palisade: nothing to read: "),
            "{args:?}: {printed}"
        );
        assert!(
            printed.contains("-f FILE") && printed.contains("--kubeconfig FILE"),
            "{printed}"
        );
        assert_eq!(printed.lines().count(), 1, "{printed}");
        assert_eq!(text(&output.stdout), "");
    }
    let output = without_cluster(&[flow.as_slice(), &["--kubeconfig", "no/such/file"]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no/such/file"));
}

#[test]
fn options_of_the_cluster_mean_nothing_to_files() {
    for (option, value) in [
        ("--context", "c"),
        ("--kubeconfig", "k"),
        ("--cluster", "c"),
        ("--user", "u"),
        ("--as", "a"),
        ("--request-timeout", "5s"),
        ("-n", "shop"),
    ] {
        let output = without_cluster(&["check", "-f", "examples/shop", option, value]);
        assert_eq!(output.status.code(), Some(2), "{option}");
        let printed = text(&output.stderr);
        assert!(
            printed.contains(option) && printed.contains("live cluster"),
            "{printed}"
        );
    }
    let output = without_cluster(&["check", "--with-cluster"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--filename"));
    let output = without_cluster(&["check", "--request-timeout", "soon"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("1m30s"));
}

#[test]
fn a_file_that_cannot_be_opened_does_not_hide_the_others() {
    let directory = temporary();
    let bad = directory.path().join("bad.yaml");
    std::fs::write(&bad, BAD).unwrap();
    let output = palisade(&[
        "check",
        "-f",
        "/does/not/exist.yaml",
        "-f",
        bad.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stdout).contains("UNKNOWN-FIELD"));
    assert!(text(&output.stderr).contains("/does/not/exist.yaml"));
}

#[test]
fn directories_are_read_in_order_and_below_only_with_recursive() {
    let directory = temporary();
    let path = directory.path();
    std::fs::create_dir(path.join("below")).unwrap();
    std::fs::write(path.join("b.yml"), BAD).unwrap();
    std::fs::write(
        path.join("a.json"),
        "{\"apiVersion\": \"v1\", \"kind\": \"Namespace\"}",
    )
    .unwrap();
    std::fs::write(path.join("notes.txt"), "not: [a manifest").unwrap();
    std::fs::write(path.join(".hidden.yaml"), BAD).unwrap();
    std::fs::create_dir(path.join(".git")).unwrap();
    std::fs::write(path.join(".git/d.yaml"), BAD).unwrap();
    std::fs::write(path.join("below/c.yaml"), BAD.replace("name: a", "name: c")).unwrap();
    let files = |more: &[&str]| -> Vec<String> {
        let mut args = vec!["check", "-o", "json", "-f", path.to_str().unwrap()];
        args.extend(more);
        let problems = json(&palisade(&args))["problems"]
            .as_array()
            .unwrap()
            .clone();
        let name = |it: &Value| {
            Path::new(it["file"].as_str().unwrap())
                .file_name()
                .unwrap()
                .to_owned()
        };
        problems
            .iter()
            .map(|it| name(it).into_string().unwrap())
            .collect()
    };
    assert_eq!(files(&[]), ["a.json", "b.yml"]);
    assert_eq!(files(&["-R"]), ["a.json", "b.yml", "c.yaml"]);
}

#[test]
fn a_directory_without_manifests_is_reported() {
    let directory = temporary();
    let output = palisade(&["check", "-f", directory.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no .yaml, .yml or .json files"));
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let many = format!("{BAD}---\n").repeat(20_000);
    let directory = temporary();
    let file = directory.path().join("many.yaml");
    std::fs::write(&file, many).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(["check", "-f", file.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn text_of_the_input_cannot_command_the_terminal() {
    let input = b"apiVersion: v1\nkind: \"Pod\\e[31m\"\nmetadata: {name: \"\\e]0;x\\a\"}\n---\nraw: \x1b[2J\n";
    for format in ["table", "wide", "json", "jsonl", "yaml", "sarif"] {
        let output = with_input(
            &["check", "--color", "never", "-v", "-o", format, "-f", "-"],
            input,
        );
        assert!(
            !output.stdout.contains(&0x1b) && !output.stdout.contains(&7),
            "{format}"
        );
    }
}

#[test]
fn characters_of_all_sizes_can_be_drawn() {
    for input in [
        "{\"a\": é}",
        "{\u{a0}\"kind\":1}",
        "{\"kind\"\u{a0}: 1}",
        "a: \"\u{9b}31m\"",
        "{\"é\": \u{1f600}",
    ] {
        let directory = temporary();
        let file = directory.path().join("a.json");
        std::fs::write(&file, input).unwrap();
        let output = palisade(&["check", "-f", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1), "{input}");
        assert!(!text(&output.stdout).contains('\u{9b}'));
    }
}

#[test]
fn pipes_in_a_directory_are_left_alone() {
    let directory = temporary();
    let made = Command::new("mkfifo")
        .arg(directory.path().join("pipe.yaml"))
        .status();
    if made.is_ok_and(|status| status.success()) {
        std::fs::write(directory.path().join("a.yaml"), GOOD).unwrap();
        let output = palisade(&["check", "-f", directory.path().to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn colours_only_where_they_are_wanted() {
    let plain = with_input(&["check", "-f", "-"], BAD.as_bytes());
    assert!(!plain.stdout.contains(&0x1b));
    let coloured = with_input(&["check", "--color", "always", "-f", "-"], BAD.as_bytes());
    assert!(coloured.stdout.contains(&0x1b));
}

#[test]
fn help_man_and_completion_are_there() {
    for args in [
        &["--help"][..],
        &["check", "--help"],
        &["man"],
        &["version"],
        &["completion", "bash"],
        &["completion", "zsh"],
    ] {
        let output = palisade(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(text(&output.stdout).contains("palisade"), "{args:?}");
    }
    assert!(text(&palisade(&["check", "--help"]).stdout).contains("Examples:"));
}
