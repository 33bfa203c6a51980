//! A runner for tests that need namespaces of their own: the right to make them must be taken while
//! the process has only one thread, and the usual runner has several.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use palisade_lab::enter::{Want, enter};

/// A test and its name.
pub(crate) type Test = (&'static str, fn());

/// Runs tests one after the other, in the words of the usual runner. Arguments choose among them by
/// parts of their names. Where namespaces are not permitted, all are passed over, with the reason.
pub(crate) fn run(tests: &[Test]) -> ExitCode {
    let started = Instant::now();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&String> = words.iter().filter(|it| !it.starts_with('-')).collect();
    let is_chosen =
        |(name, _): &&Test| words.is_empty() || words.iter().any(|it| name.contains(*it));
    let tests: Vec<&Test> = tests.iter().filter(is_chosen).collect();
    println!("\nrunning {} tests", tests.len());
    let (mut failed, mut ignored) = (0, 0);
    if let Err(error) = enter(Want::Any) {
        for (name, _) in &tests {
            println!("test {name} ... ignored, {error}");
        }
        ignored = tests.len();
    } else {
        for (name, test) in &tests {
            let result = catch_unwind(AssertUnwindSafe(test));
            let word = if result.is_ok() { "ok" } else { "FAILED" };
            println!("test {name} ... {word}");
            failed += usize::from(result.is_err());
        }
    }
    println!(
        "\ntest result: {}. {} passed; {failed} failed; {ignored} ignored; 0 measured; 0 filtered out; finished in {:.2}s\n",
        if failed == 0 { "ok" } else { "FAILED" },
        tests.len() - failed - ignored,
        started.elapsed().as_secs_f64()
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(101)
    }
}
