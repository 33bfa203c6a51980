//! `palisade crds`, and the files of `deploy/crds`, which it makes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn crds(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .arg("crds")
        .args(arguments)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn names(arguments: &[&str]) -> Vec<String> {
    let list: Value = serde_json::from_str(&crds(arguments)).unwrap();
    assert_eq!(list["kind"], "List");
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|it| it["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

const UPSTREAM: [&str; 3] = [
    "clusternetworkpolicies.policy.networking.k8s.io",
    "adminnetworkpolicies.policy.networking.k8s.io",
    "baselineadminnetworkpolicies.policy.networking.k8s.io",
];

#[test]
fn a_channel_has_its_kinds() {
    assert_eq!(names(&["-o", "json"]), UPSTREAM);
    assert_eq!(
        names(&["-o", "json", "--channel", "experimental"]),
        UPSTREAM
    );
    let mut ours = UPSTREAM.to_vec();
    ours.push("tenancies.palisade.dev");
    assert_eq!(names(&["-o", "json", "--channel", "palisade"]), ours);
    ours.push("clusternetworkpolicies.networking.k8s.io");
    ours.push("defaultnetworkpolicies.networking.k8s.io");
    let all = ["-o", "json", "--channel", "palisade", "--legacy"];
    assert_eq!(names(&all), ours);
}

#[test]
fn without_a_channel_it_is_the_standard_one_in_yaml() {
    assert_eq!(crds(&[]), crds(&["--channel", "standard", "-o", "yaml"]));
    assert_eq!(crds(&[]).matches("\n---\n").count() + 1, UPSTREAM.len());
}

#[test]
fn the_files_of_deploy_are_current() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    let write = std::env::var_os("UPDATE_DEPLOY").is_some();
    for (file, made) in [
        ("standard.yaml", crds(&["--channel", "standard"])),
        ("experimental.yaml", crds(&["--channel", "experimental"])),
        ("palisade.yaml", crds(&["--channel", "palisade"])),
        ("legacy.yaml", legacy()),
    ] {
        let path: PathBuf = directory.join(file);
        if write {
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(&path, &made).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == made,
            "deploy/crds/{file} is stale: run `UPDATE_DEPLOY=1 cargo test -p palisade --test crds`"
        );
    }
}

/// What `--legacy` adds.
fn legacy() -> String {
    let standard = crds(&[]);
    let both = crds(&["--legacy"]);
    both.strip_prefix(&standard).unwrap().to_owned()
}
