//! Runs a program and takes its time and its peak memory.
//!
//! The kernel keeps one peak for all children of a process, and a child starts with the peak of the
//! process that started it. So every program is started by a fresh and small process of its own:
//! this binary, called again with the hidden command `measure`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde::{Deserialize, Serialize};

/// What one run of a program took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Run {
    /// From before the start until the exit was seen.
    pub(crate) wall_seconds: f64,
    pub(crate) user_seconds: f64,
    pub(crate) system_seconds: f64,
    /// The largest resident set; the start of a process alone takes 2 to 3 MB.
    pub(crate) peak_bytes: u64,
}

/// The destination of a program's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// It is kept in the log.
    Logged,
    /// It is thrown away, but for messages.
    Discarded,
}

/// The answer of the process in between.
#[derive(Debug, Serialize, Deserialize)]
struct Outcome {
    run: Run,
    success: bool,
    status: String,
}

/// Measures `program`, which must succeed, and returns its output. `log` is overwritten.
pub(crate) fn measure(
    program: &Path,
    args: &[OsString],
    log: &Path,
    output: Output,
) -> Result<(Run, String)> {
    measure_on(None, program, args, log, output)
}

/// [`measure`] with a limit of the threads that the program may use.
pub(crate) fn measure_on(
    threads: Option<usize>,
    program: &Path,
    args: &[OsString],
    log: &Path,
    output: Output,
) -> Result<(Run, String)> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let discard = (output == Output::Discarded).then_some("--discard");
    let output = Command::new(own)
        .arg("measure")
        .args(discard)
        .arg(log)
        .arg(program)
        .args(args)
        .envs(threads.map(|threads| ("RAYON_NUM_THREADS", threads.to_string())))
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start this program again")?;
    if !output.status.success() {
        bail!("cannot measure `{}`", program.display());
    }
    let outcome: Outcome = serde_json::from_slice(&output.stdout)?;
    let printed = fs::read(log).with_context(|| format!("cannot read `{}`", log.display()))?;
    let printed = String::from_utf8_lossy(&printed).into_owned();
    if !outcome.success {
        bail!(
            "`{}` failed with {}:\n{printed}",
            program.display(),
            outcome.status
        );
    }
    Ok((outcome.run, printed))
}

/// The process in between: runs `program`, its output in `log`, and returns the outcome as JSON.
pub(crate) fn run(
    log: &Path,
    program: &OsString,
    args: &[OsString],
    output: Output,
) -> Result<String> {
    let err = File::create(log).with_context(|| format!("cannot write `{}`", log.display()))?;
    let out = match output {
        Output::Logged => Stdio::from(err.try_clone()?),
        Output::Discarded => Stdio::null(),
    };
    let start = Instant::now();
    let status = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .status()
        .with_context(|| format!("cannot start `{}`", program.display()))?;
    let wall = start.elapsed();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let run = Run {
        wall_seconds: wall.as_secs_f64(),
        user_seconds: seconds(usage.user_time()),
        system_seconds: seconds(usage.system_time()),
        // Linux counts in KiB.
        peak_bytes: u64::try_from(usage.max_rss())? * 1024,
    };
    let outcome = Outcome {
        run,
        success: status.success(),
        status: status.to_string(),
    };
    Ok(serde_json::to_string(&outcome)?)
}

fn seconds(time: TimeVal) -> f64 {
    time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6
}
