//! What the documentation states as facts of the real kernel, at a size for every day: `palisade-campaigns facts` asks for more.

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
use palisade_campaigns::kernel_facts::cut::{HOW, cut};
use palisade_campaigns::kernel_facts::frames::{frames, noticed};
use palisade_campaigns::kernel_facts::sweep::{at_the_turn, changed_hands, sweep};
use palisade_need::smallest::palisade;
use palisade_need::{Need, Test, run_inside};

/// So many connections; the command has a hundred thousand.
const CONNECTIONS: usize = 500;

const TESTS: &[(&str, fn())] = &[
    ("d94_connections_stop_however_many_there_are", stop),
    ("d94_old_marks_are_forgotten_in_time", || {
        check(&sweep(CONNECTIONS, 1).unwrap());
    }),
    ("d94_a_change_at_the_turn_of_numbers", || {
        check(&at_the_turn(CONNECTIONS).unwrap());
    }),
    ("d94_addresses_that_change_hands", || {
        check(&changed_hands(CONNECTIONS).unwrap());
    }),
];

const WITH_IP: &[(&str, fn())] = &[
    ("d103_frames_of_a_bridge", bridge),
    ("d103_the_agent_is_not_ready_where_frames_pass_it_by", ready),
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
    assert!(outcome.broken.is_empty(), "{}", outcome.broken.join("\n"));
}

fn stop() {
    for how in HOW {
        check(&cut(how, CONNECTIONS, 2).unwrap());
    }
}

fn bridge() {
    let findings = frames().unwrap();
    println!("{findings}");
    assert!(findings.differs.is_empty());
}

fn ready() {
    let findings = noticed(&palisade(env!("CARGO_BIN_EXE_palisade-campaigns"))).unwrap();
    println!("{findings}");
    assert!(findings.differs.is_empty());
}
