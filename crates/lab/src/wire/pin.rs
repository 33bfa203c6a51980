//! Keeps the calling thread on one processor for a while.

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// Keeps the thread that made it on one processor while this value lives.
#[derive(Debug)]
pub(crate) struct CpuPin {
    before: CpuSet,
}

impl CpuPin {
    /// Pins the calling thread to its current processor.
    pub(crate) fn here() -> nix::Result<CpuPin> {
        let this_thread = Pid::from_raw(0);
        let before = sched_getaffinity(this_thread)?;
        let mut one = CpuSet::new();
        one.set(sched_getcpu()?)?;
        sched_setaffinity(this_thread, &one)?;
        Ok(CpuPin { before })
    }
}

impl Drop for CpuPin {
    fn drop(&mut self) {
        // It was allowed before, and is now. If not, the thread is merely slower.
        let _ = sched_setaffinity(Pid::from_raw(0), &self.before);
    }
}
