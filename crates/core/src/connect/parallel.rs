//! Destinations in parallel: many are worked out side by side, and told of one after the other in
//! a fixed order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::Progress;

/// So many are worked out by one thread before it looks for other work.
const CHUNK: usize = 32;

/// So many chunks for each thread are worked out before anything is told, so that what waits to be
/// told stays small.
const CHUNKS_AT_ONCE: usize = 16;

/// Makes something of each item by what a worker has worked out before, and tells of it in order.
/// Stops when `tell` does.
pub(super) fn drive<W: Send, I: Sync, T: Send, E>(
    worker: &(dyn Fn() -> W + Sync),
    items: &[I],
    progress: Progress<'_>,
    make: &(dyn Fn(&mut W, &I) -> T + Sync),
    tell: &mut dyn FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    // What one thread has worked out serves whoever goes on from there.
    let pool: Mutex<Vec<W>> = Mutex::new(Vec::new());
    let done = AtomicUsize::new(0);
    let take = || {
        let mut pool = pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.pop()
    };
    let work = |chunk: &[I]| {
        let mut worker = take().unwrap_or_else(worker);
        let made: Vec<T> = chunk.iter().map(|item| make(&mut worker, item)).collect();
        pool.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(worker);
        let n_done = done.fetch_add(chunk.len(), Ordering::Relaxed) + chunk.len();
        progress(n_done, items.len());
        made
    };
    let n_threads = rayon::current_num_threads();
    for batch in items.chunks(CHUNK * CHUNKS_AT_ONCE * n_threads) {
        let chunks: Vec<Vec<T>> = if n_threads == 1 || batch.len() <= CHUNK {
            batch.chunks(CHUNK).map(work).collect()
        } else {
            batch.par_chunks(CHUNK).map(work).collect()
        };
        for made in chunks.into_iter().flatten() {
            tell(made)?;
        }
    }
    Ok(())
}
