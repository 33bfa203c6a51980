//! Every command of `palisade-e2e` runs at its smallest size and reports success. A command that is
//! not run for months stops working.

use std::process::ExitCode;

use palisade_need::Need;
use palisade_need::smallest::{Program, Smallest, smallest};
use palisade_testbed::{API_SERVER, CLUSTER};

static PROGRAM: Program = Program {
    path: env!("CARGO_BIN_EXE_palisade-e2e"),
    elsewhere: &[
        // The test that has a cluster does a part of it.
        (
            "attack",
            "crates/e2e/tests/cluster.rs",
            "palisade_e2e::attack::",
        ),
        // It needs two clusters of its own, and minutes: only documents name it.
        ("facts", "docs/internals/facts.md", "palisade-e2e facts"),
    ],
};

static ALL: &[Smallest] = &[
    Smallest {
        words: "served --pods 200 --policies 20 --seconds 2 --writes 3",
        needs: &[API_SERVER, Need::ROOT],
        prints: &["# writes: answered", "at the end # MB over the runtime"],
    },
    Smallest {
        words: "whole --changes 1 --restarts 0 --outage 0",
        needs: &[CLUSTER],
        prints: &["# flows compared, 0 differ"],
    },
];

fn main() -> ExitCode {
    smallest(&PROGRAM, ALL)
}
