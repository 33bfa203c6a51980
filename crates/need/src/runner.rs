//! The runner of tests with needs, with the options of libtest, by libtest-mimic.

use std::collections::BTreeMap;
use std::io::{Write as _, stderr};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::inside::go_inside;
use crate::need::Need;
use crate::record::{Record, Skipped};
use crate::require::Require;

/// A test with its needs.
pub struct Test {
    name: String,
    needs: Vec<Need>,
    run: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Test").field("name", &self.name).finish()
    }
}

impl Test {
    /// A test without needs.
    pub fn new(name: impl Into<String>, run: impl FnOnce() + Send + 'static) -> Test {
        Test {
            name: name.into(),
            needs: Vec::new(),
            run: Box::new(run),
        }
    }

    /// The same test with needs.
    pub fn needs(mut self, needs: &[Need]) -> Test {
        self.needs.extend(needs);
        self
    }
}

impl From<(&'static str, fn())> for Test {
    fn from((name, run): (&'static str, fn())) -> Test {
        Test::new(name, run)
    }
}

/// Tests by the names of their functions: `tests![one, two]`, or with common needs: `tests![needs
/// [Need::ROOT]: one, two]`.
#[macro_export]
macro_rules! tests {
    (needs $needs:tt: $($test:path),+ $(,)?) => {
        vec![$($crate::Test::new(stringify!($test), $test).needs(&$needs)),+]
    };
    ($($test:path),+ $(,)?) => {
        vec![$($crate::Test::new(stringify!($test), $test)),+]
    };
}

/// Runs tests in parallel.
pub fn run(tests: impl IntoIterator<Item = impl Into<Test>>) -> ExitCode {
    run_with(tests, &Arguments::from_args())
}

/// Runs tests sequentially, on the main thread.
pub fn run_in_turn(tests: impl IntoIterator<Item = impl Into<Test>>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    run_with(tests, &arguments)
}

/// Runs tests sequentially in network namespaces of this process's own, which all of them need.
pub fn run_inside(tests: impl IntoIterator<Item = impl Into<Test>>) -> ExitCode {
    let tests = tests.into_iter().map(Into::into);
    let tests = tests.map(|it: Test| it.needs(&[Need::NAMESPACES]));
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    // Before anything starts a thread. Each test reports a missing need.
    if !arguments.list
        && (Need::NAMESPACES.look)().is_ok()
        && let Err(why) = go_inside()
    {
        return refused(&why);
    }
    run_with(tests, &arguments)
}

fn run_with(tests: impl IntoIterator<Item = impl Into<Test>>, arguments: &Arguments) -> ExitCode {
    let require = match Require::from_environment() {
        Ok(require) => require,
        Err(why) => return refused(&why),
    };
    let known = Arc::new(Known {
        require,
        found: Mutex::default(),
        skipped: Mutex::default(),
    });
    let trials = tests.into_iter().map(|test| trial(test.into(), &known));
    let conclusion = libtest_mimic::run(arguments, trials.collect());
    let skipped = known.skipped.lock().unwrap_or_else(PoisonError::into_inner);
    if !skipped.is_empty() {
        // With standard error closed the message is lost.
        let _ = writeln!(stderr(), "{}\n", Skipped::of(&skipped));
        if let Err(error) = Record::of_this_run().and_then(|it| it.add(&skipped)) {
            return refused(&format!("cannot record skipped tests: {error}"));
        }
    }
    conclusion.exit_code()
}

fn refused(why: &str) -> ExitCode {
    let _ = writeln!(stderr(), "{why}");
    ExitCode::from(101)
}

/// The needs that were checked so far.
struct Known {
    require: Require,
    /// The results of checks, by word.
    found: Mutex<BTreeMap<&'static str, Result<(), String>>>,
    skipped: Mutex<Vec<Need>>,
}

impl Known {
    fn look(&self, need: Need) -> Result<(), String> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.entry(need.word).or_insert_with(need.look).clone()
    }
}

fn trial(test: Test, known: &Arc<Known>) -> Trial {
    let known = Arc::clone(known);
    Trial::ignorable_test(test.name, move || {
        for need in test.needs {
            let Err(why) = known.look(need) else {
                continue;
            };
            let words = format!("needs {}: {why}; {}", need.what, need.how);
            if known.require.has(need.word) {
                return Err(Failed::from(words));
            }
            let mut skipped = known.skipped.lock().unwrap_or_else(PoisonError::into_inner);
            skipped.push(need);
            return Ok(Completion::ignored_with(words));
        }
        (test.run)();
        Ok(Completion::Completed)
    })
}
