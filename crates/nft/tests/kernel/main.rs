//! Rulesets in a real kernel, in network namespaces of their own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

mod change;
mod flowtables;
mod forms;
mod install;
mod marks;
mod namespace;
mod node;
mod packets;
mod plans;
mod rules;
mod senders;
mod unions;
mod untracked;
mod update;
mod watch;

use std::process::ExitCode;

use palisade_need::{Need, run_inside};

type Test = (&'static str, fn());

fn main() -> ExitCode {
    let tests = [
        forms::TESTS,
        install::TESTS,
        change::TESTS,
        watch::TESTS,
        update::TESTS,
        marks::TESTS,
        packets::TESTS,
        senders::TESTS,
        untracked::TESTS,
        unions::TESTS,
        flowtables::TESTS,
    ];
    let in_namespace = |(name, test): Test| {
        palisade_need::Test::new(name, move || {
            namespace::enter_a_new_one().expect("a network namespace");
            test();
        })
    };
    let of_owners = install::OF_OWNERS.iter().copied().map(in_namespace);
    let of_owners = of_owners.map(|it| it.needs(&[Need::OWNED_TABLES]));
    let with_ip = senders::WITH_IP.iter().copied().map(in_namespace);
    let with_ip = with_ip.map(|it| it.needs(&[Need::IP]));
    run_inside(
        tests
            .concat()
            .into_iter()
            .map(in_namespace)
            .chain(of_owners)
            .chain(with_ip),
    )
}
