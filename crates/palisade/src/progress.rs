//! A progress bar on standard error, for work that takes longer than a second.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Counts bytes or items, and shows a bar after a second if standard error is a terminal.
pub(crate) struct Progress {
    started: Instant,
    total: AtomicU64,
    done: AtomicU64,
    wanted: bool,
    shown: AtomicBool,
    bar: ProgressBar,
}

impl Progress {
    /// Returns a bar for `total` bytes.
    pub(crate) fn new(total: usize, wanted: bool) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::hidden());
        Progress::with_style(
            total,
            wanted,
            bar,
            "reading {bar:40} {bytes}/{total_bytes} {eta}",
        )
    }

    /// Returns a bar for `total` items.
    pub(crate) fn counting(what: &'static str, total: usize, wanted: bool) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::hidden());
        let template = format!("{what} {{bar:40}} {{pos}}/{{len}} {{eta}}");
        Progress::with_style(total, wanted, bar, &template)
    }

    /// Does work of unknown length, and shows a spinner meanwhile.
    pub(crate) fn during<T>(what: &'static str, wanted: bool, work: impl FnOnce() -> T) -> T {
        if !wanted || !std::io::stderr().is_terminal() {
            return work();
        }
        let (done, ended) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let started = Instant::now();
                let first = ended.recv_timeout(Duration::from_secs(1));
                if first != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
                if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                    bar.set_style(style);
                }
                loop {
                    bar.set_message(format!("{what}, {} s", started.elapsed().as_secs()));
                    bar.tick();
                    let next = ended.recv_timeout(Duration::from_millis(100));
                    if next != Err(RecvTimeoutError::Timeout) {
                        return bar.finish_and_clear();
                    }
                }
            });
            let made = work();
            drop(done);
            made
        })
    }

    fn with_style(total: usize, wanted: bool, bar: ProgressBar, template: &str) -> Progress {
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Progress {
            started: Instant::now(),
            total: AtomicU64::new(total as u64),
            done: AtomicU64::new(0),
            wanted,
            shown: AtomicBool::new(false),
            bar,
        }
    }

    /// Adds bytes or items.
    pub(crate) fn add(&self, bytes: usize) {
        let done = self.done.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        self.show(done);
    }

    /// Sets the number of finished items.
    pub(crate) fn reach(&self, done: usize) {
        self.done.store(done as u64, Ordering::Relaxed);
        self.show(done as u64);
    }

    /// Sets the number of finished items and the total.
    pub(crate) fn reach_of(&self, done: usize, total: usize) {
        if self.total.swap(total as u64, Ordering::Relaxed) != total as u64 {
            self.bar.set_length(total as u64);
        }
        self.reach(done);
    }

    fn show(&self, done: u64) {
        if !self.wanted
            || done >= self.total.load(Ordering::Relaxed)
            || self.started.elapsed() < Duration::from_secs(1)
        {
            return;
        }
        if !self.shown.swap(true, Ordering::Relaxed) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(done);
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
