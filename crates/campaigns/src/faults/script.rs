//! Faults at a chosen call to the kernel: an error, a lost response, or the end of the process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::signal::{Signal, raise};
use palisade_nft::faults::{Fault, Faults, Syscall};

/// A fault to inject at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// This call fails.
    Once(Fault),
    /// This call and all later ones fail.
    FromCallOn(Fault),
    /// The process is killed before the call.
    KillBefore,
    /// The process is killed after the call.
    KillAfter,
}

/// The errors of the kernel.
pub const ERRORS: [Errno; 14] = [
    Errno::EPERM,
    Errno::ENOMEM,
    Errno::ENOBUFS,
    Errno::EBUSY,
    Errno::EEXIST,
    Errno::ENOENT,
    Errno::EINVAL,
    Errno::ENFILE,
    Errno::EAGAIN,
    Errno::EINTR,
    Errno::EMSGSIZE,
    Errno::ENOSPC,
    Errno::EOPNOTSUPP,
    Errno::EIO,
];

/// A script of one injection. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Script(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    calls: u64,
    injection: Option<(u64, Injection)>,
}

impl Script {
    /// Resets the count of calls, and sets the injection and the number of its call.
    pub fn arm(&self, injection: Option<(u64, Injection)>) {
        *self.state() = State {
            calls: 0,
            injection,
        };
    }

    /// The number of calls since then.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Faults for Script {
    fn before(&mut self, _: Syscall) -> Option<Fault> {
        let mut state = self.state();
        let number = state.calls;
        state.calls += 1;
        match state.injection? {
            (at, Injection::Once(fault)) if at == number => Some(fault),
            (at, Injection::FromCallOn(fault)) if at <= number => Some(fault),
            (at, Injection::KillBefore) if at == number => {
                // `raise` does not return.
                let _ = raise(Signal::SIGKILL);
                None
            }
            (_, Injection::Once(_) | Injection::FromCallOn(_)) => None,
            (_, Injection::KillBefore | Injection::KillAfter) => None,
        }
    }

    fn after(&mut self, _: Syscall) {
        let state = self.state();
        if matches!(state.injection, Some((at, Injection::KillAfter)) if at + 1 == state.calls) {
            let _ = raise(Signal::SIGKILL);
        }
    }
}
