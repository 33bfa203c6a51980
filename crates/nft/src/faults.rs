//! Injected faults of system calls, for tests.

use std::fmt;

use nix::errno::Errno;

/// A system call on a netlink socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Syscall {
    /// Sends a message to the kernel.
    Send,
    /// Receives a message from the kernel.
    Receive,
}

/// The fault of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call is not made, and returns this error.
    Fail(Errno),
    /// The call succeeds, but the message is lost: it never arrives, or is discarded.
    Lose,
}

/// Decides which system calls fail. An implementation may also end the process, before a call or
/// after it.
pub trait Faults: fmt::Debug + Send {
    /// Returns the fault of the call that comes next.
    fn before(&mut self, call: Syscall) -> Option<Fault>;

    /// Runs after each call that was made.
    fn after(&mut self, call: Syscall) {
        let _ = call;
    }
}

/// The faults of a socket: none, outside of tests.
#[derive(Debug, Default)]
pub(crate) struct Injected(pub(crate) Option<Box<dyn Faults>>);

impl Injected {
    pub(crate) fn before(&mut self, call: Syscall) -> Option<Fault> {
        self.0.as_mut()?.before(call)
    }

    pub(crate) fn after(&mut self, call: Syscall) {
        if let Some(faults) = &mut self.0 {
            faults.after(call);
        }
    }
}
