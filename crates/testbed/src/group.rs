//! Groups of tests that need more than Rust and Linux: run where it is there, named and counted where it is not.

use std::io::{Write as _, stderr};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use crate::binaries::{Binaries, Missing};

/// Runs a group one after the other: each of its tests is a few hundred megabytes. Where something is missing, all are ignored, with the reason.
pub fn group(
    name: &str,
    available: &Result<Binaries, Missing>,
    tests: Vec<(&'static str, fn())>,
) -> ExitCode {
    let is_missing = available.is_err();
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    if let Err(missing) = available {
        // Whoever does not read it need not be told.
        let _ = writeln!(stderr(), "group {name}: ignored, since {missing}");
    }
    let trial = |(test, run): (&str, fn())| {
        let trial = Trial::test(format!("{name}: {test}"), move || {
            run();
            Ok(())
        });
        trial.with_ignored_flag(is_missing)
    };
    let trials = tests.into_iter().map(trial).collect();
    // Those that were asked for in spite of it would only fail for the reason that was told.
    if is_missing {
        arguments.ignored = false;
        arguments.include_ignored = false;
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
