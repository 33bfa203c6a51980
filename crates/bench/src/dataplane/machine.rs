//! What the benchmark needs of the machine: privileges, a core, real-time scheduling.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use palisade_lab::privilege::inside;
use palisade_lab::privilege::{EnterError, Privilege, RequiredPrivilege, enter};

/// Enters new network namespaces. The error names a missing capability.
pub(super) fn prepare(notes: &mut Vec<String>) -> Result<()> {
    let privilege = inside(match enter(RequiredPrivilege::Root) {
        Err(EnterError::NotRoot) => enter(RequiredPrivilege::Any)?,
        other => other?,
    });
    if privilege != Privilege::Root {
        let note = "not as root: a ruleset that is larger than net.core.wmem_max allows is loaded \
                    in several transactions";
        notes.push(note.to_owned());
    }
    Ok(())
}

/// Keeps this thread on one core, the last it may use: the first has most of the interrupts.
pub(super) fn pin() -> Result<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let mut cores = (0..CpuSet::count()).rev();
    let core = cores.find(|core| allowed.is_set(*core).unwrap_or(false));
    let core = core.context("this process may use no core")?;
    let mut only = CpuSet::new();
    only.set(core)?;
    sched_setaffinity(Pid::from_raw(0), &only)?;
    Ok(core)
}

/// Real-time scheduling of this thread, until it is dropped.
#[derive(Debug)]
pub(super) struct RealTime(());

impl RealTime {
    /// Gives this thread the highest priority on its core.
    pub(super) fn begin() -> Result<RealTime> {
        schedule(["--fifo", "1"])?;
        Ok(RealTime(()))
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        // It ends with the process at the latest.
        let _ = schedule(["--other", "0"]);
    }
}

/// The call itself has no safe wrapper in the libraries that we use.
fn schedule([policy, priority]: [&str; 2]) -> Result<()> {
    let thread = gettid().to_string();
    let output = Command::new("chrt")
        .args([policy, "--pid", priority, &thread])
        .output()
        .context("cannot start `chrt`, which util-linux has")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", words.trim());
    Ok(())
}

/// The load averages, as the kernel writes them.
pub(super) fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().take(3).collect();
    words.join(" ")
}

/// The kernel's version.
pub(super) fn kernel() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.trim().to_owned()
}
