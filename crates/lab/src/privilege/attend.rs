//! Waiting for a process that does this one's work, and passing on the signals that are meant for it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};

/// What ends programs by convention.
const PASSED_ON: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// Waits until a child has ended. What somebody sends to this process is sent on to it, so that it ends as if there
/// were one process.
pub fn attend(mut child: Child) -> io::Result<ExitStatus> {
    let process = pidfd(&child)?;
    let signals = SigSet::from_iter(PASSED_ON);
    signals.thread_block()?;
    let waiting = wait(&mut child, &process, &signals);
    signals.thread_unblock()?;
    waiting
}

fn wait(child: &mut Child, process: &OwnedFd, signals: &SigSet) -> io::Result<ExitStatus> {
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let sent = SignalFd::with_flags(signals, flags)?;
    loop {
        let mut ready =
            [process.as_fd(), sent.as_fd()].map(|it| PollFd::new(it, PollFlags::POLLIN));
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        while let Some(signal) = sent.read_signal()? {
            forward_signal(child, &signal);
        }
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
    }
}

/// What comes from the terminal goes to both processes already.
fn forward_signal(child: &Child, sent: &siginfo) {
    const FROM_THE_KERNEL: i32 = 0x80;
    if sent.ssi_code == FROM_THE_KERNEL {
        return;
    }
    let signal = i32::try_from(sent.ssi_signo).map(Signal::try_from);
    let process = i32::try_from(child.id());
    if let (Ok(Ok(signal)), Ok(process)) = (signal, process) {
        // It cannot be refused: the process is our child, and not waited for yet.
        let _ = kill(Pid::from_raw(process), signal);
    }
}

fn pidfd(child: &Child) -> io::Result<OwnedFd> {
    let process = i32::try_from(child.id()).ok();
    let process = process.and_then(rustix::process::Pid::from_raw);
    let process = process.ok_or(io::ErrorKind::InvalidData)?;
    Ok(pidfd_open(process, PidfdFlags::empty())?)
}

/// The exit code to end with after a process that did this one's work has ended. If a signal ended that one, the same
/// signal ends this one here.
pub fn ended_like(status: ExitStatus) -> u8 {
    let signal = status.signal();
    if let Some(Ok(signal)) = signal.map(Signal::try_from) {
        // If it cannot be raised, or does not end this process, the code says it as shells do.
        let _ = raise(signal);
    }
    let code = status.code().or(signal.map(|it| 128 + it));
    code.and_then(|it| u8::try_from(it).ok()).unwrap_or(u8::MAX)
}
