//! What tests need of a machine, and the runner of tests that need something.
//!
//! A test says what it needs ([`Need`]). Whether it is there is found out here, without the program
//! under test, which could be wrong about it. What is there has to work: a program that says "not
//! possible on this machine" then fails its test. What is not there fails the test too if
//! `PALISADE_REQUIRE` asks for it (`all`, or words such as `namespaces,root`); otherwise the test is
//! counted as ignored, with the reason, and written down for the summary at the end of the run.

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
