//! Seed after seed on several threads, for every campaign that compares one seed's cluster at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What going over seeds came to.
#[derive(Debug, Default)]
pub(crate) struct Gone<R> {
    /// How many seeds were begun.
    pub(crate) seeds: u64,
    pub(crate) seconds: f64,
    /// All of them together.
    pub(crate) all: R,
}

/// Compares seeds from `first` to before `end`, and adds up what each comes to. A thread ends when `add` says that
/// there is enough.
pub(crate) fn over_seeds<C, R: Default + Send>(
    (first, end): (u64, u64),
    threads: usize,
    compare: impl Fn(u64) -> C + Sync,
    add: impl Fn(&mut R, u64, C) -> bool + Sync,
) -> Gone<R> {
    let start = Instant::now();
    let next = AtomicU64::new(first);
    let all = Mutex::new(R::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            let compared = compare(seed);
            let Ok(mut all) = all.lock() else {
                break;
            };
            if add(&mut all, seed, compared) {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    Gone {
        seeds: next.load(Ordering::Relaxed).min(end) - first,
        seconds: start.elapsed().as_secs_f64(),
        all: all.into_inner().unwrap_or_default(),
    }
}
