//! Waits for a process that does this one's work, and forwards signals to it.

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

/// The signals that end programs by convention.
const PASSED_ON: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// Waits until a child has ended. Signals to this process are forwarded to it, and both end like
/// one process.
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

/// Forwards a signal to the child.
fn forward_signal(child: &Child, sent: &siginfo) {
    const FROM_THE_KERNEL: i32 = 0x80;
    // A signal of the terminal comes from the kernel, and reaches both processes.
    if sent.ssi_code == FROM_THE_KERNEL {
        return;
    }
    let signal = i32::try_from(sent.ssi_signo).map(Signal::try_from);
    let process = i32::try_from(child.id());
    if let (Ok(Ok(signal)), Ok(process)) = (signal, process) {
        // It cannot fail: the child has not been waited for, and its id is still its own.
        let _ = kill(Pid::from_raw(process), signal);
    }
}

fn pidfd(child: &Child) -> io::Result<OwnedFd> {
    let process = i32::try_from(child.id()).ok();
    let process = process.and_then(rustix::process::Pid::from_raw);
    let process = process.ok_or(io::ErrorKind::InvalidData)?;
    Ok(pidfd_open(process, PidfdFlags::empty())?)
}

/// Returns the exit code for this process after the child has ended. If a signal ended the child,
/// the same signal ends this process here.
pub fn ended_like(status: ExitStatus) -> u8 {
    let signal = status.signal();
    if let Some(Ok(signal)) = signal.map(Signal::try_from) {
        // If it cannot be raised, or does not end this process, the exit code has it as in shells.
        let _ = raise(signal);
    }
    let code = status.code().or(signal.map(|it| 128 + it));
    code.and_then(|it| u8::try_from(it).ok()).unwrap_or(u8::MAX)
}
