//! Faults at a chosen call to the kernel: an error, a loss, or the end of the process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::signal::{Signal, raise};
use palisade_nft::faults::{Fault, Faults, Syscall};

/// What happens at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happens {
    /// It goes wrong, this one alone.
    Once(Fault),
    /// It goes wrong, and all after it.
    FromThenOn(Fault),
    /// The process ends before it.
    EndBefore,
    /// The process ends after it.
    EndAfter,
}

/// Which errors the kernel may answer with.
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

/// A script of one event. Clones are the same script.
#[derive(Clone, Debug, Default)]
pub struct Script(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    calls: u64,
    event: Option<(u64, Happens)>,
}

impl Script {
    /// Begins to count calls anew; the event, if any, happens at the call of that number.
    pub fn arm(&self, event: Option<(u64, Happens)>) {
        *self.state() = State { calls: 0, event };
    }

    /// How many calls there were since.
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
        match state.event? {
            (at, Happens::Once(fault)) if at == number => Some(fault),
            (at, Happens::FromThenOn(fault)) if at <= number => Some(fault),
            (at, Happens::EndBefore) if at == number => {
                // It does not return.
                let _ = raise(Signal::SIGKILL);
                None
            }
            (_, Happens::Once(_) | Happens::FromThenOn(_)) => None,
            (_, Happens::EndBefore | Happens::EndAfter) => None,
        }
    }

    fn after(&mut self, _: Syscall) {
        let state = self.state();
        if matches!(state.event, Some((at, Happens::EndAfter)) if at + 1 == state.calls) {
            let _ = raise(Signal::SIGKILL);
        }
    }
}
