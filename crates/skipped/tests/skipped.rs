//! The last test of a run: says which tests were skipped in all of it, and fails if they had to be run.

use std::io::{Write as _, stderr};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use palisade_need::{Require, end_of_run};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trial = Trial::test("what_has_to_be_run_was_run", || {
        let skipped = end_of_run().map_err(|error| Failed::from(error.to_string()))?;
        // With standard error closed there is nobody to tell.
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
