//! The common code of both groups of tests: a state that is removed, and commands.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The state of a testbed of the command line, which is removed even if the test fails.
pub(crate) struct Bed {
    pub(crate) state: PathBuf,
    _scratch: tempfile::TempDir,
}

impl Bed {
    /// A directory for one; nothing is started.
    pub(crate) fn new() -> Bed {
        let scratch = tempfile::tempdir().unwrap();
        let state = scratch.path().canonicalize().unwrap().join("bed");
        Bed {
            state,
            _scratch: scratch,
        }
    }

    /// The program with the option for this state.
    pub(crate) fn testbed(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_palisade-testbed"));
        command.arg("--state").arg(&self.state);
        command
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.testbed().arg("down").output();
    }
}

/// The output of a command, which must succeed.
#[track_caller]
pub(crate) fn answer(mut command: Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command that must succeed.
#[track_caller]
pub(crate) fn ok(command: &mut Command) {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
}

/// The error of a command, which must fail.
#[track_caller]
pub(crate) fn fails(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{command:?} succeeded");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits for something; a failure if it takes too long.
#[track_caller]
pub(crate) fn until(within: Duration, mut answer: impl FnMut() -> bool) {
    let end = Instant::now() + within;
    while !answer() {
        assert!(Instant::now() < end, "not within {within:?}");
        sleep(Duration::from_millis(50));
    }
}

/// The command lines of the processes that name a directory, or carry it as their mark.
pub(crate) fn processes_of(directory: &Path) -> Vec<String> {
    let wanted = format!("PALISADE_TESTBED={}", directory.display());
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment
            .split(|it| *it == 0)
            .any(|it| it == wanted.as_bytes())
        {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(String::from_utf8_lossy(&line).replace('\0', " "));
        }
    }
    found
}
