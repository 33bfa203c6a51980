//! Rulesets in a real kernel, in network namespaces of their own. Where those cannot be made, nothing
//! is tested, and it says so.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and this program reports like others do"
)]

mod change;
mod forms;
mod install;
mod marks;
mod namespace;
mod packets;
mod plans;
mod rules;
mod upkeep;
mod watch;

use std::panic::catch_unwind;
use std::process::ExitCode;

type Test = (&'static str, fn());

fn main() -> ExitCode {
    let tests: Vec<Test> = [
        forms::TESTS,
        install::TESTS,
        change::TESTS,
        watch::TESTS,
        upkeep::TESTS,
        marks::TESTS,
        packets::TESTS,
    ]
    .concat();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let is_exact = arguments.iter().any(|argument| argument == "--exact");
    let filters: Vec<&String> = arguments
        .iter()
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let is_wanted = |name: &str| {
        let is_match = |filter: &&String| match is_exact {
            true => name == **filter,
            false => name.contains(filter.as_str()),
        };
        filters.is_empty() || filters.iter().any(is_match)
    };
    let (wanted, left_out): (Vec<Test>, Vec<Test>) =
        tests.into_iter().partition(|(name, _)| is_wanted(name));

    println!("\nrunning {} tests", wanted.len());
    if let Err(reason) = namespace::become_root() {
        println!("no namespaces can be made here, so nothing was tested: {reason}");
        return result(0, 0, wanted.len(), left_out.len());
    }
    let mut failed = 0;
    for (name, test) in &wanted {
        let outcome = catch_unwind(|| {
            namespace::enter_a_new_one().expect("a network namespace");
            test();
        });
        failed += usize::from(outcome.is_err());
        println!(
            "test {name} ... {}",
            if outcome.is_ok() { "ok" } else { "FAILED" }
        );
    }
    result(wanted.len() - failed, failed, 0, left_out.len())
}

fn result(passed: usize, failed: usize, ignored: usize, left_out: usize) -> ExitCode {
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; {left_out} filtered out\n"
    );
    ExitCode::from(u8::from(failed > 0))
}
