//! Groups of tests that need a real Kubernetes.

use std::process::ExitCode;

use palisade_need::{Need, Test, run_in_turn};

use crate::binaries::{available, cluster_available};
use crate::upstream::upstream;

/// An API server of one's own.
pub const API_SERVER: Need = Need {
    word: "api-server",
    what: "an API server",
    how: "`cargo run -p palisade-testbed -- build` builds it, with Go, in some minutes",
    look: || available().map(drop).map_err(|missing| missing.what),
};

/// A whole cluster.
pub const CLUSTER: Need = Need {
    word: "cluster",
    what: "a whole cluster",
    how: "as root, with what `cargo run -p palisade-testbed -- build` builds, containerd, runc and the plugins of the container network",
    look: || {
        cluster_available()
            .map(drop)
            .map_err(|missing| missing.to_string())
    },
};

/// Upstream's own definitions of its kinds.
pub const UPSTREAM: Need = Need {
    word: "upstream",
    what: "upstream's CustomResourceDefinitions",
    how: "`cargo run -p palisade-testbed -- build --only upstream` brings them, with Go",
    look: || upstream().map(drop).map_err(|missing| missing.what),
};

/// Runs a group one after the other: each of its tests is a few hundred megabytes.
pub fn group(name: &str, need: Need, tests: Vec<(&'static str, fn())>) -> ExitCode {
    let tests = tests.into_iter();
    run_in_turn(tests.map(|(test, run)| Test::new(format!("{name}: {test}"), run).needs(&[need])))
}
