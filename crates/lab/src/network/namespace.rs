//! Network namespaces as open files, and code that runs inside them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sched::{CloneFlags, setns, unshare};

/// The network namespace of the calling thread.
// Of the thread, not of the process: threads may be in different namespaces.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace that lives as long as this value, or a thread or socket inside it. When the
/// process ends, in whatever way, the kernel removes everything.
#[derive(Debug)]
pub(crate) struct Namespace(OwnedFd);

impl Namespace {
    /// Returns the namespace of the calling thread.
    pub(crate) fn current() -> io::Result<Namespace> {
        Ok(Namespace(File::open(OWN)?.into()))
    }

    /// Makes an empty namespace and runs `work` in it. The thread then returns to its own.
    pub(crate) fn make<T>(work: impl FnOnce() -> T) -> io::Result<(Namespace, T)> {
        let home = NamespaceGuard::remember()?;
        unshare(CloneFlags::CLONE_NEWNET)?;
        let made = Namespace::current();
        let result = made.map(|made| (made, work()));
        home.go()?;
        result
    }

    /// Runs `work` in this namespace on the calling thread, which then returns to its own.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        let home = NamespaceGuard::remember()?;
        setns(self.0.as_fd(), CloneFlags::CLONE_NEWNET)?;
        let result = work();
        home.go()?;
        Ok(result)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the thread to the namespace that it came from, also after a panic.
struct NamespaceGuard(Option<Namespace>);

impl NamespaceGuard {
    fn remember() -> io::Result<NamespaceGuard> {
        Ok(NamespaceGuard(Some(Namespace::current()?)))
    }

    fn go(mut self) -> io::Result<()> {
        match self.0.take() {
            Some(home) => Ok(setns(home.0.as_fd(), CloneFlags::CLONE_NEWNET)?),
            None => Ok(()),
        }
    }
}

impl Drop for NamespaceGuard {
    fn drop(&mut self) {
        if let Some(home) = self.0.take() {
            // Reached only after a panic, or if the namespace could not be entered. An error here
            // has no receiver.
            let _ = setns(home.0.as_fd(), CloneFlags::CLONE_NEWNET);
        }
    }
}
