//! Every command of `palisade-bench` runs at its smallest size and reports that what it saw was
//! right. A command that is not run for months stops working.

use std::process::ExitCode;

use palisade_need::Need;
use palisade_need::smallest::{Program, Smallest, smallest};

const NOTHING: &[Need] = &[];

static PROGRAM: Program = Program {
    path: env!("CARGO_BIN_EXE_palisade-bench"),
    elsewhere: &[
        // Only the instructions of a release build are limited.
        ("count", ".ci/run", "palisade-bench -- count --expect"),
        // A test of its own reads its whole report.
        ("dataplane", "crates/bench/tests/dataplane.rs", "dataplane"),
    ],
};

static ALL: &[Smallest] = &[
    Smallest {
        words: "check --runs 1 --files 30 --list-size 1",
        needs: NOTHING,
        prints: &["bare parse", "palisade check", "ratio"],
    },
    Smallest {
        words: "verdict --runs 1 --pods 200 --policies 40 --flows 2000",
        needs: NOTHING,
        prints: &["NetworkPolicyRule", "AdminRule"],
    },
    Smallest {
        words: "explain --runs 1 --pods 100 --policies 50 --flows 100",
        needs: NOTHING,
        prints: &["palisade explain", "ratio"],
    },
    Smallest {
        words: "live --point S20 --events 20",
        needs: NOTHING,
        prints: &["cluster-wide policy", "NetworkPolicy of a local pod"],
    },
    Smallest {
        words: "analyze --point S --runs 1",
        needs: NOTHING,
        prints: &["diff, one NetworkPolicy", "lint"],
    },
    Smallest {
        words: "scale --points S --runs 1 --threads 2 --flows 1000",
        needs: NOTHING,
        prints: &["G1", "G7"],
    },
    Smallest {
        words: "generate S --pods 20 --namespaces 3 --network-policies 5 --admin-policies 2",
        needs: NOTHING,
        prints: &["\"kind\":\"NetworkPolicy\"", "# objects"],
    },
    Smallest {
        words: "read examples --runs 1",
        needs: NOTHING,
        prints: &[
            "yaml: # bytes to trees",
            "yaml: # bytes to objects, 2 threads",
        ],
    },
    // A peer program that allows no flow differs: the comparison can fail.
    Smallest {
        words: "peers --netpol-analyzer PEER --workloads 10 --runs 1",
        needs: NOTHING,
        prints: &["# answers compared, # differ"],
    },
];

fn main() -> ExitCode {
    smallest(&PROGRAM, ALL)
}
