//! Whether packets of the node's pods meet its policies at all (D103), and which interfaces lead to them and which
//! elsewhere (D147).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use palisade_nft::ruleset::Interface;
use palisade_route::{Bypass, Routes, Unchecked, Way, elsewhere, unchecked, verdict};
use tracing::{error, info, warn};

use super::log::chain;

/// So often it is asked.
const EVERY: Duration = Duration::from_secs(5);
/// The interfaces of a node's first pods may come later than their addresses are known.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is known of the ways to the node's pods.
#[derive(Debug, Default)]
pub(super) struct Ways {
    asked: Option<Instant>,
    /// Ways past all policies, as they were when last asked for, and since when each was.
    found: Vec<(Bypass, Instant)>,
    /// Those that were told.
    told: Vec<Bypass>,
    /// The interfaces that do not lead to pods of the node.
    elsewhere: BTreeSet<Interface>,
    /// Whose senders cannot be checked.
    unchecked: Vec<Unchecked>,
    /// What was told of that.
    told_unchecked: Vec<String>,
    /// Why it is not known.
    trouble: Option<String>,
}

/// The ways to all addresses of pods, and the interfaces that lead elsewhere.
type Seen = (BTreeMap<IpAddr, Option<Way>>, BTreeSet<String>);

/// Asks the kernel.
fn see(pods: impl Iterator<Item = IpAddr>) -> Result<Seen, palisade_route::Error> {
    let mut routes = Routes::open()?;
    let ways = routes.ways(pods)?;
    let (interfaces, gateways) = routes.interfaces()?;
    let elsewhere = elsewhere(&interfaces, &gateways, &ways);
    Ok((ways, elsewhere))
}

impl Ways {
    /// Asks the kernel, if it is time.
    pub(super) fn look(&mut self, pods: impl Iterator<Item = IpAddr>) {
        if self.asked.is_some_and(|it| it.elapsed() < EVERY) {
            return;
        }
        self.asked = Some(Instant::now());
        let trouble = match see(pods) {
            Ok((ways, elsewhere)) => {
                self.take(Instant::now(), verdict(&ways));
                self.unchecked = unchecked(&ways, &elsewhere);
                let names = elsewhere.iter().filter_map(|it| Interface::new(it));
                self.elsewhere = names.collect();
                None
            }
            Err(error) => Some(chain(&error)),
        };
        if trouble != self.trouble
            && let Some(words) = &trouble
        {
            warn!("whether packets pass the policies by is not known: {words}");
        }
        self.trouble = trouble;
        self.tell();
    }

    /// What was found once more was there all the while.
    fn take(&mut self, now: Instant, found: Vec<Bypass>) {
        let since = |it: &Bypass| {
            let before = self.found.iter().find(|(before, _)| before == it);
            before.map_or(now, |(_, since)| *since)
        };
        self.found = found
            .into_iter()
            .map(|it| (it.clone(), since(&it)))
            .collect();
    }

    fn certain(&self, now: Instant) -> impl Iterator<Item = &Bypass> + '_ {
        let certain = self.found.iter().filter(move |(it, since)| match it {
            Bypass::Elsewhere { .. } => now.duration_since(*since) >= PATIENCE,
            Bypass::Bridge { .. } | Bypass::Switch { .. } | Bypass::Part { .. } => true,
        });
        certain.map(|(it, _)| it)
    }

    fn tell(&mut self) {
        let now: Vec<Bypass> = self.certain(Instant::now()).cloned().collect();
        for it in now.iter().filter(|it| !self.told.contains(it)) {
            error!("{}", it.words());
        }
        for it in self.told.iter().filter(|it| !now.contains(it)) {
            info!("not any more: {}", it.words());
        }
        self.told = now;
        let now: Vec<String> = self.unchecked.iter().map(Unchecked::words).collect();
        for words in now.iter().filter(|it| !self.told_unchecked.contains(it)) {
            warn!("{words}");
        }
        self.told_unchecked = now;
    }

    /// The interfaces that do not lead to pods of the node; none while nothing was seen.
    pub(super) fn elsewhere(&self) -> &BTreeSet<Interface> {
        &self.elsewhere
    }

    /// Whose senders cannot be checked.
    pub(super) fn unchecked(&self) -> impl Iterator<Item = &Unchecked> + '_ {
        self.unchecked.iter()
    }

    /// Why policies are not enforced although the kernel holds them.
    pub(super) fn missing(&self) -> impl Iterator<Item = String> + '_ {
        self.told.iter().map(Bypass::words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_are_elsewhere_are_given_time_and_bridges_are_not() {
        let mut ways = Ways::default();
        // The clock of a machine may have begun a moment ago.
        let long_ago = Instant::now();
        let started = long_ago + PATIENCE;
        let elsewhere = Bypass::Elsewhere {
            interface: "eth0".to_owned(),
        };
        let bridge = Bypass::Bridge {
            interface: "cni0".to_owned(),
            ipv6: false,
        };
        ways.take(started, vec![elsewhere.clone()]);
        assert_eq!(ways.certain(started).count(), 0);
        ways.take(started, vec![bridge.clone()]);
        assert_eq!(ways.certain(started).collect::<Vec<_>>(), [&bridge]);
        // Since long ago, and found once more.
        ways.found = vec![(elsewhere.clone(), long_ago)];
        ways.take(started, vec![elsewhere.clone()]);
        assert_eq!(ways.certain(started).collect::<Vec<_>>(), [&elsewhere]);
        ways.take(started, Vec::new());
        ways.take(started, vec![elsewhere]);
        assert_eq!(ways.certain(started).count(), 0);
    }
}
