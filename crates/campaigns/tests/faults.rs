//! Faults on the real kernel while packets flow, at a size for every day: nothing leaks, nothing is lost.

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
    ("wrong_updates_are_seen", || check(Family::Harness)),
    ("f01_pods_that_start", || check(Family::Start)),
    ("f02_addresses_that_change_hands", || check(Family::Reuse)),
    ("f03_running_connections", || check(Family::Established)),
    ("f04_updates_under_load", || check(Family::Update)),
    ("f04_torn_packets", || check(Family::Torn)),
    ("f04_kills", || check(Family::Kill)),
    ("f05_refusals", || check(Family::Errno)),
    ("f06_others", || check(Family::Foreign)),
    ("f13_pieces_and_untracked", || check(Family::Fragments)),
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
        assert!(outcome.broken.is_empty(), "{}", outcome.broken.join("\n"));
    }
}
