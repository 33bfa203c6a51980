//! Whether packets of the node's pods meet its policies at all (D103), and which interfaces lead to them and which
//! elsewhere (D147).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use palisade_nft::ruleset::Interface;
use palisade_route::{
    Bypass, Routes, Unchecked, Way, elsewhere, programs, services, unchecked, verdict,
};
use tracing::{error, info, warn};

use super::log::chain;
use crate::words::Programs;

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
    /// What was told of them.
    told: Vec<String>,
    /// The interfaces that do not lead to pods of the node.
    elsewhere: BTreeSet<Interface>,
    /// Whose senders cannot be checked.
    unchecked: Vec<Unchecked>,
    /// What was told of that.
    told_unchecked: Vec<String>,
    /// Why it is not known, and since when.
    trouble: Option<(String, Instant)>,
}

/// What was seen at one time.
struct Seen {
    /// The ways to all addresses of pods.
    ways: BTreeMap<IpAddr, Option<Way>>,
    /// The interfaces that lead elsewhere.
    elsewhere: BTreeSet<String>,
    /// Everything by which packets pass the policies by, or may.
    past: Vec<Bypass>,
    /// Why programs of eBPF could not be looked for.
    trouble: Option<palisade_route::Error>,
}

/// Asks the kernel.
fn see(
    pods: impl Iterator<Item = IpAddr>,
    programs_of: Programs,
) -> Result<Seen, palisade_route::Error> {
    let mut routes = Routes::open()?;
    let ways = routes.ways(pods)?;
    let (interfaces, gateways) = routes.interfaces()?;
    let elsewhere = elsewhere(&interfaces, &gateways, &ways);
    let mut past = verdict(&ways);
    if services(&interfaces, &routes.virtual_services()) {
        past.push(Bypass::Services);
    }
    let mut trouble = None;
    if programs_of == Programs::Refuse {
        // Without an answer about filters, what else is seen counts.
        let filtered = routes.filtered().unwrap_or_else(|error| {
            trouble = Some(error);
            BTreeSet::new()
        });
        past.extend(programs(&interfaces, &filtered, &elsewhere, &ways));
    }
    Ok(Seen {
        ways,
        elsewhere,
        past,
        trouble,
    })
}

impl Ways {
    /// Asks the kernel, if it is time.
    pub(super) fn look(&mut self, pods: impl Iterator<Item = IpAddr>, programs: Programs) {
        if self.asked.is_some_and(|it| it.elapsed() < EVERY) {
            return;
        }
        self.asked = Some(Instant::now());
        let trouble = match see(pods, programs) {
            Ok(seen) => {
                self.take(Instant::now(), seen.past);
                self.unchecked = unchecked(&seen.ways, &seen.elsewhere);
                let names = seen.elsewhere.iter().filter_map(|it| Interface::new(it));
                self.elsewhere = names.collect();
                seen.trouble.map(|error| chain(&error))
            }
            Err(error) => Some(chain(&error)),
        };
        let before = self.trouble.take();
        self.trouble = trouble.map(|words| {
            let words = format!("whether packets pass the policies by is not known: {words}");
            match before {
                Some((before, since)) if before == words => (words, since),
                _ => {
                    warn!("{words}");
                    (words, Instant::now())
                }
            }
        });
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
            // The interface of a pod that comes or goes is not there while its address is known.
            Bypass::Elsewhere { .. } | Bypass::Beside { .. } => {
                now.duration_since(*since) >= PATIENCE
            }
            Bypass::Bridge { .. }
            | Bypass::Switch { .. }
            | Bypass::Part { .. }
            | Bypass::Services
            | Bypass::Program { .. }
            | Bypass::Plugin { .. } => true,
        });
        certain.map(|(it, _)| it)
    }

    fn tell(&mut self) {
        let mut now: Vec<String> = self.certain(Instant::now()).map(Bypass::words).collect();
        // Many pods at one interface are one thing to say.
        now.dedup();
        for words in now.iter().filter(|it| !self.told.contains(it)) {
            error!("{words}");
        }
        for words in self.told.iter().filter(|it| !now.contains(it)) {
            info!("not any more: {words}");
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
        let lasting = self.trouble.iter();
        let lasting = lasting.filter(|(_, since)| since.elapsed() >= PATIENCE);
        let lasting = lasting.map(|(words, _)| words.clone());
        self.told.iter().cloned().chain(lasting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_pods_beside_one_interface_are_told_of_once_and_after_a_while() {
        let mut ways = Ways::default();
        let long_ago = Instant::now();
        let started = long_ago + PATIENCE;
        let beside = |last: u8| Bypass::Beside {
            interface: "eth0".to_owned(),
            address: IpAddr::from([192, 0, 2, last]),
        };
        ways.take(long_ago, vec![beside(1), beside(2)]);
        assert_eq!(ways.certain(long_ago).count(), 0);
        // Another one that comes now is no reason to wait for all of them.
        ways.take(started, vec![beside(2), beside(3)]);
        assert_eq!(ways.certain(started).collect::<Vec<_>>(), [&beside(2)]);
        ways.take(long_ago, vec![beside(1), beside(2), Bypass::Services]);
        ways.found.iter_mut().for_each(|(_, since)| {
            *since = since.checked_sub(PATIENCE).unwrap_or(*since);
        });
        ways.tell();
        assert_eq!(ways.told.len(), 2, "{:?}", ways.told);
        assert_eq!(ways.missing().count(), 2);
    }

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
