//! Waiting until nobody is on its way any more who has seen things as they were.
//!
//! A packet asks several questions one after the other. What it asks between two transactions of one change is looked at everywhere else, but a
//! processor may be held up in the middle of a packet, by its hypervisor for instance, for longer than two transactions take: such a packet asks one question
//! before both and the next one after both. The kernel can be asked to wait until every processor has finished what it was doing: that is what
//! happens to memory that somebody may still read, and the same thing that readers of rules and sets are protected by.

use std::thread;
use std::time::Duration;

use rustix::thread::{MembarrierCommand, membarrier};

/// Where the kernel does not wait for us, this is long enough for any packet that is not held up.
const LONG: Duration = Duration::from_millis(20);

/// Returns when all packets that were on their way have passed.
pub(crate) fn let_packets_pass() {
    // It is refused where some processors are never disturbed.
    if membarrier(MembarrierCommand::Global).is_err() {
        thread::sleep(LONG);
    }
}

#[cfg(test)]
mod tests {
    use super::{MembarrierCommand, membarrier};

    #[test]
    fn the_kernel_waits_for_packets() {
        assert_eq!(membarrier(MembarrierCommand::Global), Ok(()));
    }
}
