//! Faults on the real kernel while packets flow, at everyday size: no packet leaks or is lost.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

use std::process::ExitCode;

use palisade_campaigns::faults::campaign::{Family, Size};
use palisade_campaigns::faults::families::family;
use palisade_campaigns::faults::kill::was_victim;

const TESTS: &[(&str, fn())] = &[
    ("wrong_updates_are_detected", || check(Family::Harness)),
    ("f01_pods_that_start", || check(Family::Start)),
    ("f02_addresses_with_new_owners", || check(Family::Reuse)),
    ("f03_established_connections", || check(Family::Established)),
    ("f04_updates_under_load", || check(Family::Update)),
    ("f04_packets_in_flight_during_a_commit", || {
        check(Family::Torn)
    }),
    ("f04_kills", || check(Family::Kill)),
    ("f05_errors_of_the_kernel", || check(Family::Errno)),
    ("f06_other_programs", || check(Family::Foreign)),
    ("f13_fragments_and_untracked_packets", || {
        check(Family::Fragments)
    }),
];

fn main() -> ExitCode {
    if was_victim().unwrap() {
        return ExitCode::SUCCESS;
    }
    palisade_need::run_inside(TESTS.iter().copied())
}

fn check(which: Family) {
    for outcome in family(which, Size::Small, 1).unwrap() {
        println!("{outcome}");
        assert!(
            outcome.violations.is_empty(),
            "{}",
            outcome.violations.join("\n")
        );
    }
}
