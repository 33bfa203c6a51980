//! The documented facts of the real kernel, at everyday size. `palisade-campaigns facts` measures
//! more.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

use std::process::ExitCode;

use palisade_campaigns::faults::kill::was_victim;
use palisade_campaigns::faults::outcome::Outcome;
use palisade_campaigns::kernel_facts::cut::{WAYS, cut};
use palisade_campaigns::kernel_facts::frames::{frames, readiness};
use palisade_campaigns::kernel_facts::sweep::{at_wraparound, moved_address, sweep};
use palisade_need::smallest::palisade;
use palisade_need::{Need, Test, run_inside};

/// Connections of this test; the command has a hundred thousand.
const CONNECTIONS: usize = 500;

const TESTS: &[(&str, fn())] = &[
    ("d94_denied_connections_stop_among_many", stop),
    ("d94_stale_marks_are_cleared_in_time", || {
        check(&sweep(CONNECTIONS, 1).unwrap());
    }),
    ("d94_a_change_at_the_wraparound_of_generations", || {
        check(&at_wraparound(CONNECTIONS).unwrap());
    }),
    ("d94_addresses_with_new_owners", || {
        check(&moved_address(CONNECTIONS).unwrap());
    }),
];

const WITH_IP: &[(&str, fn())] = &[
    ("d103_frames_of_a_bridge", bridge),
    ("d103_the_agent_is_not_ready_with_a_bypass", ready),
];

fn main() -> ExitCode {
    if was_victim().unwrap() {
        return ExitCode::SUCCESS;
    }
    let with_ip = WITH_IP.iter().map(|it| Test::from(*it).needs(&[Need::IP]));
    run_inside(TESTS.iter().map(|it| Test::from(*it)).chain(with_ip))
}

fn check(outcome: &Outcome) {
    println!("{outcome}");
    assert!(
        outcome.violations.is_empty(),
        "{}",
        outcome.violations.join("\n")
    );
}

fn stop() {
    for way in WAYS {
        check(&cut(way, CONNECTIONS, 2).unwrap());
    }
}

fn bridge() {
    let findings = frames().unwrap();
    println!("{findings}");
    assert!(findings.differs.is_empty());
}

fn ready() {
    let findings = readiness(&palisade(env!("CARGO_BIN_EXE_palisade-campaigns"))).unwrap();
    println!("{findings}");
    assert!(findings.differs.is_empty());
}
