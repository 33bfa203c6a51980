//! Network namespaces as open files, and running code inside them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sched::{CloneFlags, setns, unshare};

/// The calling thread's network namespace. The thread, not the process: threads may be in
/// different ones.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace that lives as long as this value, or a thread or socket inside it: when the
/// process ends, however it ends, the kernel takes everything down.
#[derive(Debug)]
pub(crate) struct Namespace(OwnedFd);

impl Namespace {
    /// The one in which the calling thread is.
    pub(crate) fn current() -> io::Result<Namespace> {
        Ok(Namespace(File::open(OWN)?.into()))
    }

    /// Makes an empty one and runs the work in it; the thread is then back where it was.
    pub(crate) fn make<T>(work: impl FnOnce() -> T) -> io::Result<(Namespace, T)> {
        let home = NamespaceGuard::remember()?;
        unshare(CloneFlags::CLONE_NEWNET)?;
        let made = Namespace::current();
        let result = made.map(|made| (made, work()));
        home.go()?;
        result
    }

    /// Runs the work in this namespace on the calling thread, which is then back where it was.
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

/// Takes the thread back to the namespace it came from, also when the work between panics.
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
            // Reached only when the work panicked or the namespace could not be entered; there is
            // nobody left to tell.
            let _ = setns(home.0.as_fd(), CloneFlags::CLONE_NEWNET);
        }
    }
}
