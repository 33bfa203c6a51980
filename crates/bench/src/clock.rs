//! The clocks of a thread and of the process.

use std::time::Duration;

use anyhow::Result;
use nix::time::{ClockId, clock_gettime};

/// The processor time of this thread, in seconds. The value of getrusage for a running thread can
/// be some milliseconds old.
pub(crate) fn own_cpu() -> Result<f64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(Duration::from(time).as_secs_f64())
}

/// The processor time of all threads of this process, in seconds.
pub(crate) fn all_cpu() -> Result<f64> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    Ok(Duration::from(time).as_secs_f64())
}
