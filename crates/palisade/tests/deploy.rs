//! What `deploy/` says is what the program is: flags, metrics, versions and rights; the chart makes the objects
//! of the plain manifest; and the image is the same for the same binary.
//!
//! Tests of the chart need helm, in the version that `deploy/helm/build-helm` builds, or the one that the variable
//! `HELM` names.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "deploy/chart.rs"]
mod chart;
#[path = "deploy/image.rs"]
mod image;
#[path = "deploy/manifest.rs"]
mod manifest;
#[path = "deploy/monitoring.rs"]
mod monitoring;
#[path = "deploy/objects.rs"]
mod objects;
#[path = "deploy/unit.rs"]
mod unit;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use palisade_need::{Need, run};

/// A name and what is run; it fails by panicking.
type Test = (&'static str, fn());

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// A file of the repository.
#[track_caller]
fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What a flag of `palisade agent` is called, all of them.
fn agent_help() -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(["agent", "--help"])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Helm, in the version that the chart is tested with.
const HELM: Need = Need {
    word: "helm",
    what: "helm",
    how: "deploy/helm/build-helm builds it, with Go",
    look: || chart::find_helm().map(drop),
};

fn main() -> ExitCode {
    let plain = [
        &manifest::TESTS[..],
        &monitoring::TESTS,
        &image::TESTS,
        &unit::TESTS,
    ]
    .concat();
    let of_chart = chart::TESTS.map(|it| palisade_need::Test::from(it).needs(&[HELM]));
    run(plain.into_iter().map(Into::into).chain(of_chart))
}
