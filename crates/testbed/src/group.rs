//! Groups of tests that need a real Kubernetes.

use std::process::ExitCode;

use palisade_need::{Need, Test, run_in_turn};

use crate::binaries::{available, cluster_available};
use crate::upstream::upstream;

/// A private API server.
pub const API_SERVER: Need = Need {
    word: "api-server",
    what: "an API server",
    how: "run `cargo run -p palisade-testbed -- build`, which needs Go and some minutes",
    look: || available().map(drop).map_err(|missing| missing.what),
};

/// A whole cluster.
pub const CLUSTER: Need = Need {
    word: "cluster",
    what: "a whole cluster",
    how: "run as root, after `cargo run -p palisade-testbed -- build`, with containerd, runc and the CNI plugins",
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
    how: "run `cargo run -p palisade-testbed -- build --only upstream`, which needs Go",
    look: || upstream().map(drop).map_err(|missing| missing.what),
};

/// Runs a group sequentially: each of its tests needs a few hundred megabytes.
pub fn group(name: &str, need: Need, tests: Vec<(&'static str, fn())>) -> ExitCode {
    let tests = tests.into_iter();
    run_in_turn(tests.map(|(test, run)| Test::new(format!("{name}: {test}"), run).needs(&[need])))
}
