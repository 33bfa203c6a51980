//! A grace period: waits until every packet in flight has left the rules.
//!
//! A packet makes several lookups. Between two of them its processor may be held up, for example by
//! a hypervisor, for longer than two transactions take: the packet then makes one lookup before
//! both and the next one after both. The kernel can wait until every processor has finished its
//! current work. It waits in the same way before it frees memory that readers of rules and sets may
//! still use.

use std::thread;
use std::time::Duration;

use rustix::thread::{MembarrierCommand, membarrier};

/// The pause where the kernel refuses to wait: more than any packet takes that is not held up.
const LONG: Duration = Duration::from_millis(20);

/// Waits until all packets that are in flight now have passed.
pub(crate) fn let_packets_pass() {
    // `membarrier(Global)` is `synchronize_rcu`. The kernel refuses it with `nohz_full`, where some
    // processors must never be disturbed; a pause is the second best.
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
