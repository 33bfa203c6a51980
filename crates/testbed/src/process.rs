//! Processes that outlive a call: started with a log, identified by id and start time, ended
//! reliably.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::{Error, Result, at};

/// The environment variable with the directory of a testbed, which all its processes inherit.
pub(crate) const MARK: &str = "PALISADE_TESTBED";

/// A unique process: ids are reused, an id with its start time is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// The process id.
    pub pid: i32,
    /// When it started, in ticks since the machine did.
    pub start: u64,
}

impl Identity {
    /// The process that has an id now, unless it has ended.
    pub fn of(pid: i32) -> Option<Identity> {
        let (state, _, start) = stat(pid)?;
        (state != 'Z' && state != 'X').then_some(Identity { pid, start })
    }

    /// Whether it still runs.
    pub fn is_alive(self) -> bool {
        Identity::of(self.pid) == Some(self)
    }

    /// Sends a signal to this process, never to a later one with its id.
    pub(crate) fn signal(self, signal: Signal) {
        // The descriptor is opened before the check: the id cannot be reused in between.
        let Some(pid) = Pid::from_raw(self.pid) else {
            return;
        };
        if let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty())
            && self.is_alive()
        {
            // A process that has ended meanwhile is a success.
            let _ = pidfd_send_signal(descriptor, signal);
        }
    }
}

/// State, parent and start time of a process.
fn stat(pid: i32) -> Option<(char, i32, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may have any character, parentheses included.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let start = fields.nth(17)?.parse().ok()?;
    Some((state, parent, start))
}

/// All processes that run now, with their parents.
pub(crate) fn everybody() -> Vec<(Identity, i32)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let known = pids.filter_map(|pid: i32| {
        let (state, parent, start) = stat(pid)?;
        (state != 'Z').then_some((Identity { pid, start }, parent))
    });
    known.collect()
}

/// Whether a process carries the mark of a testbed in this directory.
pub(crate) fn is_marked(process: Identity, directory: &Path) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{}/environ", process.pid)) else {
        return false;
    };
    let mut wanted = format!("{MARK}=").into_bytes();
    wanted.extend_from_slice(directory.as_os_str().as_encoded_bytes());
    environment.split(|it| *it == 0).any(|it| it == wanted)
}

/// Everything that descends from some processes, without themselves.
pub(crate) fn descendants(roots: &BTreeSet<Identity>) -> BTreeSet<Identity> {
    let everybody = everybody();
    let mut pids: BTreeSet<i32> = roots.iter().map(|it| it.pid).collect();
    let mut found = BTreeSet::new();
    loop {
        let before = pids.len();
        for (process, parent) in &everybody {
            if pids.contains(parent) && pids.insert(process.pid) {
                found.insert(*process);
            }
        }
        if pids.len() == before {
            return found;
        }
    }
}

/// Kills processes and waits until they are gone.
pub(crate) fn kill_all(processes: &BTreeSet<Identity>, within: Duration) -> bool {
    for process in processes {
        process.signal(Signal::KILL);
    }
    until(within, || !processes.iter().any(|it| it.is_alive()))
}

/// Polls a condition until it holds, or until the timeout.
pub(crate) fn until(within: Duration, mut answer: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + within;
    loop {
        if answer() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        sleep(Duration::from_millis(10));
    }
}

/// A process that this process started.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) identity: Identity,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command in a process group of its own: signals of a terminal to our group do not
    /// reach it.
    pub(crate) fn start(
        name: &str,
        mut command: Command,
        log: &Path,
        mark: &Path,
    ) -> Result<Process> {
        let open = || OpenOptions::new().create(true).append(true).open(log);
        let file = open().map_err(at("open", log))?;
        let other = file.try_clone().map_err(at("open", log))?;
        command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(other)
            .process_group(0);
        command.env_remove("KUBECONFIG").env(MARK, mark);
        let child = command.spawn().map_err(|source| Error::Run {
            program: command.get_program().display().to_string(),
            source,
        })?;
        let pid = i32::try_from(child.id()).unwrap_or(0);
        // A child that was not waited for keeps its id: this is its start time even if it has
        // ended.
        let start = stat(pid).map_or(0, |(_, _, start)| start);
        let identity = Identity { pid, start };
        Ok(Process {
            name: name.to_owned(),
            identity,
            child,
            log: log.to_owned(),
        })
    }

    /// An error with the end of the log, if the process has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(_)) | Err(_) => Err(self.ended()),
        }
    }

    /// The error that says how it ended.
    fn ended(&self) -> Error {
        Error::Ended {
            process: self.name.clone(),
            log: last_lines(&self.log, 20),
        }
    }

    /// Ends it and waits for its end.
    pub(crate) fn kill(&mut self) {
        // Both fail only if it has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The end of its log.
    pub(crate) fn output(&self) -> String {
        last_lines(&self.log, 8)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The kernel removes an ended process only when it is waited for; a running one keeps
        // running.
        let _ = self.child.try_wait();
    }
}

/// The last lines of a file; nothing if it cannot be read.
pub(crate) fn last_lines(path: &Path, lines: usize) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    let first = all.len().saturating_sub(lines);
    all.get(first..).unwrap_or_default().join("\n")
}

/// Runs a command to its end within a timeout, and returns its standard output.
pub(crate) fn run(mut command: Command, within: Duration) -> Result<String> {
    let words = words(&command);
    let failed = |source| Error::Run {
        program: words.clone(),
        source,
    };
    let errors = tempfile::tempfile().map_err(failed)?;
    let output = tempfile::tempfile().map_err(failed)?;
    let (stdout, stderr) = (
        output.try_clone().map_err(failed)?,
        errors.try_clone().map_err(failed)?,
    );
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    let mut child = command.spawn().map_err(failed)?;
    let mut status = None;
    until(within, || match child.try_wait() {
        Ok(None) => false,
        Ok(Some(it)) => {
            status = Some(it);
            true
        }
        Err(_) => true,
    });
    let Some(status) = status else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(Error::Timeout {
            what: format!("the end of `{words}`"),
            seconds: within.as_secs(),
            output: content(errors),
        });
    };
    if status.success() {
        return Ok(content(output));
    }
    Err(Error::Failed {
        program: words,
        output: content(errors).trim_end().to_owned(),
    })
}

/// A file from its start, as text.
fn content(mut file: File) -> String {
    use std::io::{Read as _, Seek as _};
    let mut bytes = Vec::new();
    // The file is ours and not linked anywhere; a read error is ignored.
    let _ = file.rewind();
    let _ = file.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A command as in a shell.
pub(crate) fn words(command: &Command) -> String {
    let all = std::iter::once(command.get_program()).chain(command.get_args());
    let all: Vec<String> = all.map(|it| it.display().to_string()).collect();
    all.join(" ")
}

/// A program with arguments.
pub(crate) fn command<A: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = A>,
) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}
