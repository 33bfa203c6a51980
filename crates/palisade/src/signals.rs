//! Being asked to end: Ctrl-C, and SIGTERM.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};
use palisade_watch::Stopper;

/// Signals that wait until somebody takes them.
pub(crate) struct Signals(SigSet);

/// Whoever is busy may go on for so long.
const PATIENCE: Duration = Duration::from_secs(1);

impl Signals {
    /// Keeps signals from ending the process. Before any thread is started: threads inherit it.
    pub(crate) fn hold() -> anyhow::Result<Signals> {
        let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
        signals.thread_block().context("cannot hold signals")?;
        Ok(Signals(signals))
    }

    /// When one comes, waiting for files ends. A process that has not ended a second later is ended with this
    /// code; a second signal ends it at once. Either way nothing is left: namespaces end with their process.
    pub(crate) fn end_by(self, stopper: Stopper, code: Arc<AtomicU8>) -> anyhow::Result<()> {
        let wait = move || {
            if self.0.wait().is_err() {
                return;
            }
            stopper.stop();
            let _ = self.0.thread_unblock();
            std::thread::sleep(PATIENCE);
            std::process::exit(i32::from(code.load(Ordering::Relaxed)));
        };
        let thread = std::thread::Builder::new().name("signals".to_owned());
        thread.spawn(wait).context("cannot wait for signals")?;
        Ok(())
    }
}
