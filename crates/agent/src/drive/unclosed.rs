//! Pods that should be closed and are not, since nobody says which addresses they have (D84, D146).

use std::time::Duration;

use tracing::{error, info};

use crate::agent::Agent;
use crate::config::{Config, UnknownPods};

/// The Node object comes a moment after the start.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why pods of this node are open that should not be, if some are.
pub(super) fn unclosed(config: &Config, agent: &Agent) -> Option<&'static str> {
    if agent.is_open() {
        return Some(
            "nothing is enforced, and pods of this node are open: neither --pod-cidr nor the Node object says which addresses they have",
        );
    }
    let has_blocks = !config.pod_blocks.is_empty() || !agent.live().pod_blocks().is_empty();
    let is_wanted = config.unknown_pods == UnknownPods::Drop;
    (agent.is_synced() && is_wanted && !has_blocks).then_some(
        "packets of pods that are not known yet are not dropped: neither --pod-cidr nor the Node object says which addresses they have; name a block, or say --unknown-pod=allow",
    )
}

/// Remembers since when it is so.
#[derive(Debug, Default)]
pub(super) struct UnclosedMonitor {
    since: Option<(&'static str, Duration)>,
    reported: Option<&'static str>,
}

impl UnclosedMonitor {
    /// How it is now; what has been so for long enough to be told.
    pub(super) fn look(
        &mut self,
        now: Duration,
        words: Option<&'static str>,
    ) -> Option<&'static str> {
        let Some(words) = words else {
            self.since = None;
            if self.reported.take().is_some() {
                info!("it is known which addresses the pods of this node have");
            }
            return None;
        };
        let since = match self.since {
            Some((before, since)) if before == words => since,
            _ => now,
        };
        self.since = Some((words, since));
        if now.saturating_sub(since) < PATIENCE {
            return None;
        }
        if self.reported != Some(words) {
            error!("{words}");
            self.reported = Some(words);
        }
        Some(words)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use palisade_core::net::Cidr;

    use super::*;
    use crate::config::BootPolicy;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Whether it is said at the start and when everything is known, of a node where nothing was enforced.
    fn said(change: impl Fn(&mut Config)) -> [bool; 2] {
        let mut config = Config::new("n1");
        change(&mut config);
        let mut agent = Agent::new(config.clone(), None);
        agent.found_nothing();
        // What it wants done is done, as the driver does.
        if let crate::command::Next::Do(_) = agent.next(at(0)) {
            agent.finished(at(0), Ok(()));
        }
        let first = unclosed(&config, &agent).is_some();
        agent.synced(at(1));
        [first, unclosed(&config, &agent).is_some()]
    }

    #[test]
    fn whoever_wants_pods_closed_is_told_that_they_are_not() {
        let block = Cidr::new([10, 0, 1, 0].into(), 24).unwrap();
        assert_eq!(said(|_| {}), [true, true]);
        assert_eq!(said(|it| it.pod_blocks.push(block)), [false, false]);
        assert_eq!(said(|it| it.boot = BootPolicy::Open), [false, true]);
        let allow = UnknownPods::Allow;
        assert_eq!(said(|it| it.unknown_pods = allow), [true, false]);
        let neither = |it: &mut Config| (it.boot, it.unknown_pods) = (BootPolicy::Open, allow);
        assert_eq!(said(neither), [false, false]);
    }

    #[test]
    fn it_is_told_when_it_lasts() {
        let mut seen = UnclosedMonitor::default();
        assert_eq!(seen.look(at(1), Some("a")), None);
        assert_eq!(seen.look(at(2), None), None);
        assert_eq!(seen.look(at(3), Some("a")), None);
        assert_eq!(seen.look(at(5), Some("a")), Some("a"));
        assert_eq!(seen.look(at(6), Some("b")), None);
        assert_eq!(seen.look(at(8), Some("b")), Some("b"));
    }
}
