//! Pods that must be closed and are open, because their addresses are unknown (D84, D146).

use std::time::Duration;

use tracing::{error, info};

use crate::agent::Agent;
use crate::backend::Backend;
use crate::config::{Config, UnknownPods};

/// The Node object arrives a moment after the start.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns why pods of this node are open that must be closed, if some are.
pub(super) fn unclosed<B: Backend>(config: &Config, agent: &Agent<B>) -> Option<&'static str> {
    if agent.is_open() {
        return Some(
            "no policies are enforced and pods of this node are open: their address blocks are unknown; set --pod-cidr, or spec.podCIDRs of the Node",
        );
    }
    // Before the first sync the Node object may still be missing; then `is_open` is the state that
    // counts.
    let has_blocks = !config.pod_blocks.is_empty() || !agent.planner().pod_blocks().is_empty();
    let is_wanted = config.unknown_pods == UnknownPods::Drop;
    (agent.is_synced() && is_wanted && !has_blocks).then_some(
        "packets of unknown pods are not dropped: the address blocks of this node are unknown; set --pod-cidr, spec.podCIDRs of the Node, or --unknown-pod=allow",
    )
}

/// Reports pods that stay open.
#[derive(Debug, Default)]
pub(super) struct UnclosedMonitor {
    since: Option<(&'static str, Duration)>,
    reported: Option<&'static str>,
}

impl UnclosedMonitor {
    /// Takes the current reason. Returns a reason that has lasted long enough to be reported.
    pub(super) fn check(
        &mut self,
        now: Duration,
        reason: Option<&'static str>,
    ) -> Option<&'static str> {
        let Some(reason) = reason else {
            self.since = None;
            if self.reported.take().is_some() {
                info!("all pods of this node that must be closed are closed");
            }
            return None;
        };
        // Another reason starts the time anew: each has a transition at the start that ends by
        // itself.
        let since = match self.since {
            Some((before, since)) if before == reason => since,
            _ => now,
        };
        self.since = Some((reason, since));
        if now.saturating_sub(since) < PATIENCE {
            return None;
        }
        if self.reported != Some(reason) {
            error!("{reason}");
            self.reported = Some(reason);
        }
        Some(reason)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use palisade_core::net::Cidr;

    use super::*;
    use crate::backend::memory::Memory;
    use crate::config::BootPolicy;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Whether open pods are reported, of a node without a table: at the start and after the first
    /// sync.
    fn reported(change: impl Fn(&mut Config)) -> [bool; 2] {
        let mut config = Config::new("n1");
        change(&mut config);
        let mut agent = Agent::new(Memory::default(), config.clone(), None);
        agent.found_nothing();
        // Commands are carried out, as the driver does.
        if let crate::command::Next::Do(_) = agent.next(at(0)) {
            agent.finished(at(0), Ok(()));
        }
        let first = unclosed(&config, &agent).is_some();
        agent.synced(at(1));
        [first, unclosed(&config, &agent).is_some()]
    }

    #[test]
    fn open_pods_that_must_be_closed_are_reported() {
        let block = Cidr::new([10, 0, 1, 0].into(), 24).unwrap();
        assert_eq!(reported(|_| {}), [true, true]);
        assert_eq!(reported(|it| it.pod_blocks.push(block)), [false, false]);
        assert_eq!(reported(|it| it.boot = BootPolicy::Open), [false, true]);
        let allow = UnknownPods::Allow;
        assert_eq!(reported(|it| it.unknown_pods = allow), [true, false]);
        let neither = |it: &mut Config| (it.boot, it.unknown_pods) = (BootPolicy::Open, allow);
        assert_eq!(reported(neither), [false, false]);
    }

    #[test]
    fn only_a_lasting_state_is_reported() {
        let mut monitor = UnclosedMonitor::default();
        assert_eq!(monitor.check(at(1), Some("a")), None);
        assert_eq!(monitor.check(at(2), None), None);
        assert_eq!(monitor.check(at(3), Some("a")), None);
        assert_eq!(monitor.check(at(5), Some("a")), Some("a"));
        assert_eq!(monitor.check(at(6), Some("b")), None);
        assert_eq!(monitor.check(at(8), Some("b")), Some("b"));
    }
}
