//! The benchmark of the dataplane works: at its smallest size it measures everything, and its own
//! checks hold.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::process::{Command, ExitCode};

use palisade_bench::large::ALL;
use palisade_need::{Need, run, tests};
use serde_json::Value;

fn main() -> ExitCode {
    run(tests![needs [Need::NAMESPACES]: the_smallest_size_measures_everything])
}

fn the_smallest_size_measures_everything() {
    let output = Command::new(env!("CARGO_BIN_EXE_palisade-bench"))
        .args(["dataplane", "--runs", "1", "--seconds", "1", "--json"])
        .args(["--policies", "10", "--loads", "1", "--changes"])
        .args(["--denied", "100", "--same-members", "20,30"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    // Five measures of forwarding, connection tracking and ten policies.
    let traffic = report["traffic"].as_array().unwrap();
    assert_eq!(traffic.len(), 5);
    for measure in traffic {
        let kinds = measure["variants"].as_array().unwrap();
        let names: Vec<&str> = kinds.iter().filter_map(|it| it["kind"].as_str()).collect();
        assert_eq!(names, ["forwarding", "conntrack", "palisade 10"]);
        for kind in kinds {
            assert!(kind["nanoseconds"].as_f64().unwrap() > 0.0, "{kind}");
        }
    }
    // At least two slices of 300 connections in each family and of 1,000 flows were checked.
    assert!(report["checked"].as_u64().unwrap() >= 3_200, "{report}");
    for (part, count) in [("loads", 2), ("changes", 4)] {
        let part = report[part].as_array().unwrap();
        assert_eq!(part.len(), count, "{report}");
    }
    // A rule that drops everything, and all kinds of large policies.
    let denied = report["denied"].as_array().unwrap();
    assert_eq!(denied.len(), 1 + ALL.len());
    for kind in denied {
        for nanoseconds in kind["nanoseconds"].as_array().unwrap() {
            assert!(nanoseconds.as_f64().unwrap() > 0.0, "{kind}");
        }
    }
    // Thirty members once, and once for each of twenty policies.
    let same = report["same"].as_array().unwrap();
    let sets: Vec<u64> = same.iter().filter_map(|it| it["sets"].as_u64()).collect();
    assert_eq!(sets, [1, 20]);
    let elements = |at: usize| same[at]["size"]["elements"].as_u64().unwrap();
    assert_eq!(elements(1) - elements(0), 19 * 30);
}
