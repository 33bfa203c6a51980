//! Runs seeds on several threads, for campaigns that compare one seed's cluster at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The result of a range of seeds.
#[derive(Debug, Default)]
pub(crate) struct SeedSummary<R> {
    /// The number of seeds started.
    pub(crate) seeds: u64,
    pub(crate) seconds: f64,
    /// The sum of all results.
    pub(crate) total: R,
}

/// Compares the seeds from `first` to `end`, exclusive, and sums the results. A thread ends when
/// `add` returns true.
pub(crate) fn over_seeds<C, R: Default + Send>(
    (first, end): (u64, u64),
    threads: usize,
    compare: impl Fn(u64) -> C + Sync,
    add: impl Fn(&mut R, u64, C) -> bool + Sync,
) -> SeedSummary<R> {
    let start = Instant::now();
    let next = AtomicU64::new(first);
    let total = Mutex::new(R::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            let compared = compare(seed);
            let Ok(mut total) = total.lock() else {
                break;
            };
            if add(&mut total, seed, compared) {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    SeedSummary {
        seeds: next.load(Ordering::Relaxed).min(end) - first,
        seconds: start.elapsed().as_secs_f64(),
        total: total.into_inner().unwrap_or_default(),
    }
}
