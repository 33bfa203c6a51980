//! The last test of a run: prints the skipped tests of the run, and fails if they were required.

use std::io::{Write as _, stderr};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use palisade_need::{Require, end_of_run};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trial = Trial::test("what_has_to_be_run_was_run", || {
        let skipped = end_of_run().map_err(|error| Failed::from(error.to_string()))?;
        // With standard error closed the message is lost.
        let _ = writeln!(stderr(), "\n{skipped}");
        match Require::from_environment()? {
            Require::All if skipped.total() > 0 => {
                Err(Failed::from(format!("PALISADE_REQUIRE=all, but {skipped}")))
            }
            Require::All | Require::These(_) => Ok(()),
        }
    });
    libtest_mimic::run(&arguments, vec![trial]).exit_code()
}
