//! What tests need of a machine, and the runner of such tests.
//!
//! A test declares what it needs ([`Need`]). This crate checks whether the machine has it, without
//! the program under test, which could be wrong. If the machine has it, a program that reports "not
//! possible on this machine" fails its test. If not, the test fails if `PALISADE_REQUIRE` includes
//! the need (`all`, or words such as `namespaces,root`); otherwise it is counted as ignored, with
//! the reason, and recorded for the summary at the end of the run.

mod inside;
mod look;
mod need;
mod record;
mod require;
mod runner;
pub mod smallest;

pub use self::inside::own_network;
pub use self::need::Need;
pub use self::record::{Skipped, end_of_run};
pub use self::require::{Require, WORDS};
pub use self::runner::{Test, run, run_in_turn, run_inside};
