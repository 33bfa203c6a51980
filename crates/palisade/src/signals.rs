//! Handles the signals that end a command: Ctrl-C, and SIGTERM.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};
use palisade_watch::Stopper;

/// Blocked signals.
pub(crate) struct Signals(SigSet);

/// The time that a busy process has to end.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

impl Signals {
    /// Blocks signals. Must run before any thread starts: threads inherit the mask.
    pub(crate) fn hold() -> anyhow::Result<Signals> {
        let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
        signals.thread_block().context("cannot hold signals")?;
        Ok(Signals(signals))
    }

    /// Stops the wait for files when a signal arrives. A process that has not ended a second later
    /// ends with `code`; a second signal ends it at once. Nothing is left behind: namespaces end
    /// with their process.
    pub(crate) fn end_by(self, stopper: Stopper, code: Arc<AtomicU8>) -> anyhow::Result<()> {
        let wait = move || {
            if self.0.wait().is_err() {
                return;
            }
            stopper.stop();
            // Only this thread unblocks them: one thread is enough for a second signal to end the
            // process.
            let _ = self.0.thread_unblock();
            std::thread::sleep(GRACE_PERIOD);
            std::process::exit(i32::from(code.load(Ordering::Relaxed)));
        };
        let thread = std::thread::Builder::new().name("signals".to_owned());
        thread.spawn(wait).context("cannot wait for signals")?;
        Ok(())
    }
}
