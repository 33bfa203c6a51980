//! Destinations in parallel: threads evaluate them side by side, and the results are consumed in a
//! fixed order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::Progress;

/// The number of items that a thread evaluates before it takes other work.
const CHUNK: usize = 32;

/// The number of chunks for each thread in a batch. Results wait for the end of their batch, which
/// bounds the memory they take.
const CHUNKS_AT_ONCE: usize = 16;

/// Lets workers make a result of each item, and calls `consume` with the results in the order of
/// the items. Stops at the first error.
pub(super) fn drive<W: Send, I: Sync, T: Send, E>(
    worker: &(dyn Fn() -> W + Sync),
    items: &[I],
    progress: Progress<'_>,
    make: &(dyn Fn(&mut W, &I) -> T + Sync),
    consume: &mut dyn FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    // Workers hold memos. Chunks take them from a pool, so later chunks find earlier folds, and
    // there are no more workers than threads.
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
        // One thread, or one chunk, has nothing to share out.
        let chunks: Vec<Vec<T>> = if n_threads == 1 || batch.len() <= CHUNK {
            batch.chunks(CHUNK).map(work).collect()
        } else {
            batch.par_chunks(CHUNK).map(work).collect()
        };
        for made in chunks.into_iter().flatten() {
            consume(made)?;
        }
    }
    Ok(())
}
