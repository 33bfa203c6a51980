//! Destinations in parallel: many are worked out side by side, and told of one after the other in
//! a fixed order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::Progress;
use super::egress::Ground;
use super::rows::Rows;

/// So many are worked out by one thread before it looks for other work.
const CHUNK: usize = 32;

/// So many chunks for each thread are worked out before anything is told, so that what waits to be
/// told stays small.
const CHUNKS_AT_ONCE: usize = 16;

/// Makes something of each item, and tells of it in order. Stops when `tell` does.
pub(super) fn drive<I: Sync, T: Send, E>(
    ground: &Ground<'_>,
    items: &[I],
    progress: Progress<'_>,
    make: &(dyn Fn(&mut Rows<'_>, &I) -> T + Sync),
    tell: &mut dyn FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    // What one thread has worked out serves whoever goes on from there.
    let pool: Mutex<Vec<Rows<'_>>> = Mutex::new(Vec::new());
    let done = AtomicUsize::new(0);
    let take = || {
        let mut pool = pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.pop()
    };
    let work = |chunk: &[I]| {
        let mut rows = take().unwrap_or_else(|| Rows::new(ground));
        let made: Vec<T> = chunk.iter().map(|item| make(&mut rows, item)).collect();
        pool.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(rows);
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
