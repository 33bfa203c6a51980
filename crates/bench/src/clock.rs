//! The clock of a thread.

use std::time::Duration;

use anyhow::Result;
use nix::time::{ClockId, clock_gettime};

/// The processor time of this thread, in seconds. What getrusage says of a thread that runs can be
/// some milliseconds old.
pub(crate) fn own_cpu() -> Result<f64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(Duration::from(time).as_secs_f64())
}
