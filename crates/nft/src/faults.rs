//! Calls of the system that go wrong on purpose, for tests of what happens then.

use std::fmt;

use nix::errno::Errno;

/// A call of the system on a socket of netlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Syscall {
    /// Something is sent to the kernel.
    Send,
    /// Something of the kernel's is received.
    Receive,
}

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not made, and fails with this error.
    Fail(Errno),
    /// It succeeds, but what was sent never arrives, or what was received is lost.
    Lose,
}

/// Decides which calls go wrong. It may also end the process, before a call or after it.
pub trait Faults: fmt::Debug + Send {
    /// Asked before each call.
    fn before(&mut self, call: Syscall) -> Option<Fault>;

    /// Told after each call that was made.
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
