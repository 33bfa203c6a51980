//! Keeping the calling thread on one processor for a while.

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// While this lives, the thread that made it runs on one processor only.
#[derive(Debug)]
pub(crate) struct CpuPin {
    before: CpuSet,
}

impl CpuPin {
    /// Pins the calling thread to the processor on which it is.
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
        // It was allowed before, so it is now; if not, the thread is merely slower.
        let _ = sched_setaffinity(Pid::from_raw(0), &self.before);
    }
}
