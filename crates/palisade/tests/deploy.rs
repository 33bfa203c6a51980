//! What `deploy/` says is what the program is: flags, metrics, versions and rights; the chart makes the objects
//! of the plain manifest; and the image is the same for the same binary.
//!
//! Tests of the chart need helm, in the version that `deploy/helm/build-helm` builds, or the one that the variable
//! `HELM` names. Without it they are ignored, and the reason is printed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and this one is its own runner"
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

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Trial};

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

fn trials(tests: &[Test], is_ignored: bool) -> Vec<Trial> {
    let trial = |(name, test): &Test| {
        let test = *test;
        Trial::test(*name, move || {
            test();
            Ok(())
        })
        .with_ignored_flag(is_ignored)
    };
    tests.iter().map(trial).collect()
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut all = trials(&manifest::TESTS, false);
    all.extend(trials(&monitoring::TESTS, false));
    all.extend(trials(&image::TESTS, false));
    let helm = chart::find_helm();
    if let Err(why) = &helm {
        println!("tests of the chart are ignored: {why}");
    }
    all.extend(trials(&chart::TESTS, helm.is_err()));
    libtest_mimic::run(&arguments, all).exit_code()
}
