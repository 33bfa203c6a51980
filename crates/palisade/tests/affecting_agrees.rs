//! What `palisade affecting` shows is what `palisade explain` says.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

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

fn run(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(args)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Whoever does not read it may be gone by now.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Every witness of every policy of the examples is a flow that `explain` judges the same.
#[test]
fn explain_agrees_with_every_witness() {
    let mut n_witnesses = 0;
    for example in ["tenants", "shop"] {
        let path = format!("examples/{example}");
        let check = run(
            &["explain", "-q", "-f", &path, "--flows", "-", "-o", "jsonl"],
            "",
        );
        assert_eq!(check.status.code(), Some(0), "{}", text(&check.stderr));
        let policies: &[&str] = match example {
            "tenants" => &[
                "cnp/platform-services",
                "cnp/guard-nodes",
                "cnp/tenant-blue",
                "cnp/tenants-apart",
                "cnp/closed-by-default",
                "netpol/blue/web",
                "netpol/green/within-tenant",
            ],
            _ => &["netpol/shop/default-deny"],
        };
        for policy in policies {
            let args = ["affecting", "-q", "-f", &path, "-o", "json", policy];
            let output = run(&args, "");
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
            let lists = ["overrides", "overriddenBy", "defersTo"].into_iter();
            let links = lists.flat_map(|key| answer[key].as_array().unwrap());
            let links: Vec<&Value> = links.collect();
            let flows = links.iter().map(|link| {
                let flow = &link["witness"];
                let word = |key: &str| flow[key].as_str().unwrap().to_owned();
                let port = match flow["port"].as_u64() {
                    Some(port) => format!("/{port}"),
                    None => String::new(),
                };
                let protocol = word("protocol").to_lowercase();
                format!(
                    "{} {} {protocol}{port}\n",
                    word("source"),
                    word("destination")
                )
            });
            let flows: String = flows.collect();
            let args = ["explain", "-q", "-f", &path, "--flows", "-", "-o", "jsonl"];
            let told = text(&run(&args, &flows).stdout);
            assert_eq!(told.lines().count(), links.len(), "{flows}");
            for (link, line) in links.iter().zip(told.lines()) {
                let explanation: Value = serde_json::from_str(line).unwrap();
                let direction = link["direction"].as_str().unwrap().to_lowercase();
                assert_eq!(
                    explanation[&direction]["verdict"], link["verdict"],
                    "{link} {line}"
                );
                n_witnesses += 1;
            }
        }
    }
    assert!(n_witnesses >= 20, "{n_witnesses}");
}
