//! Whether packets of the node's pods meet its policies at all (D103), and which interfaces lead to them and which
//! elsewhere (D147).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use palisade_core::text::name;
use palisade_nft::ruleset::Interface;
use palisade_route::{
    AttachedPrograms, Bypass, Flowtable, PodRoute, Routes, UncheckedSenders, VirtualServices,
    elsewhere, flowtables, on_the_way, programs, services, unchecked, verdict,
};
use tracing::{error, info, warn};

use super::log::chain;
use crate::config::Programs;

/// So often it is asked.
const EVERY: Duration = Duration::from_secs(5);
/// The interfaces of a node's first pods may come later than their addresses are known.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is known of the ways to the node's pods.
#[derive(Debug, Default)]
pub(super) struct BypassMonitor {
    checked_at: Option<Instant>,
    /// Ways past all policies, as they were when last asked for, and since when each was.
    found: Vec<(Bypass, Instant)>,
    /// What was told of them.
    reported: Vec<String>,
    /// The interfaces that do not lead to pods of the node.
    elsewhere: BTreeSet<Interface>,
    /// Whose senders cannot be checked.
    unchecked: Vec<UncheckedSenders>,
    /// What was told of that.
    told_unchecked: Vec<String>,
    /// Why some programs of eBPF would not be found.
    unseen: Option<String>,
    /// Why it is not known, and since when.
    trouble: Option<(String, Instant)>,
}

/// What was seen at one time.
struct BypassSnapshot {
    /// The ways to all addresses of pods.
    routes: BTreeMap<IpAddr, Option<PodRoute>>,
    /// The interfaces that lead elsewhere.
    elsewhere: BTreeSet<String>,
    /// Everything by which packets pass the policies by, or may.
    past: Vec<Bypass>,
    /// Why some programs of eBPF would not be found.
    unseen: Option<String>,
    /// What could not be looked for, and why.
    troubles: Vec<String>,
}

/// Asks the kernel.
fn see(
    pods: impl Iterator<Item = IpAddr>,
    programs_of: Programs,
) -> Result<BypassSnapshot, palisade_route::Error> {
    let mut routes = Routes::open()?;
    let ways = routes.pod_routes(pods)?;
    let (interfaces, gateways) = routes.interfaces()?;
    let elsewhere = elsewhere(&interfaces, &gateways, &ways);
    let on_the_way = on_the_way(&interfaces, &elsewhere, &ways);
    let mut past = verdict(&ways);
    // Without one answer, what else is seen counts.
    let mut troubles = Vec::new();
    let listed = routes.virtual_services().unwrap_or_else(|error| {
        troubles.push(chain(&error));
        VirtualServices::None
    });
    if services(&interfaces, &listed) {
        past.push(Bypass::Services);
    }
    match palisade_nft::flowtables() {
        Ok(all) => {
            let all: Vec<Flowtable> = all.iter().map(flowtable).collect();
            past.extend(flowtables(&all, &on_the_way));
        }
        Err(error) => troubles.push(chain(&error)),
    }
    let mut attached = AttachedPrograms::default();
    if programs_of == Programs::Refuse {
        let filtered = routes.filtered().unwrap_or_else(|error| {
            troubles.push(chain(&error));
            BTreeSet::new()
        });
        attached = routes.attached(&interfaces);
        past.extend(programs(&interfaces, &on_the_way, &filtered, &attached.at));
    }
    Ok(BypassSnapshot {
        routes: ways,
        elsewhere,
        past,
        unseen: attached.words(),
        troubles,
    })
}

/// A flowtable with names that can be shown: another program has chosen them.
fn flowtable(of: &palisade_nft::Flowtable) -> Flowtable {
    Flowtable {
        table: name(&of.table),
        name: name(&of.name),
        interfaces: of.interfaces.clone(),
    }
}

impl BypassMonitor {
    /// Asks the kernel, if it is time.
    pub(super) fn look(&mut self, pods: impl Iterator<Item = IpAddr>, programs: Programs) {
        if self.checked_at.is_some_and(|it| it.elapsed() < EVERY) {
            return;
        }
        self.checked_at = Some(Instant::now());
        let trouble = match see(pods, programs) {
            Ok(seen) => {
                self.take(Instant::now(), seen.past);
                self.unchecked = unchecked(&seen.routes, &seen.elsewhere);
                let names = seen.elsewhere.iter().filter_map(|it| Interface::new(it));
                self.elsewhere = names.collect();
                self.note_unchecked(seen.unseen);
                (!seen.troubles.is_empty()).then(|| seen.troubles.join("; "))
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
        self.report();
    }

    fn note_unchecked(&mut self, unseen: Option<String>) {
        if let Some(words) = unseen
            .as_ref()
            .filter(|it| Some(*it) != self.unseen.as_ref())
        {
            warn!("{words}");
        }
        self.unseen = unseen;
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
            | Bypass::Flowtable { .. }
            | Bypass::Plugin { .. } => true,
        });
        certain.map(|(it, _)| it)
    }

    fn report(&mut self) {
        let mut now: Vec<String> = self.certain(Instant::now()).map(Bypass::words).collect();
        // Many pods at one interface are one thing to say.
        now.dedup();
        for words in now.iter().filter(|it| !self.reported.contains(it)) {
            error!("{words}");
        }
        for words in self.reported.iter().filter(|it| !now.contains(it)) {
            info!("not any more: {words}");
        }
        self.reported = now;
        let now: Vec<String> = self.unchecked.iter().map(UncheckedSenders::words).collect();
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
    pub(super) fn unchecked(&self) -> impl Iterator<Item = &UncheckedSenders> + '_ {
        self.unchecked.iter()
    }

    /// Why some programs of eBPF on the way to pods would not be found.
    pub(super) fn unchecked_programs(&self) -> Option<&str> {
        self.unseen.as_deref()
    }

    /// Why policies are not enforced although the kernel holds them.
    pub(super) fn missing(&self) -> impl Iterator<Item = String> + '_ {
        let lasting = self.trouble.iter();
        let lasting = lasting.filter(|(_, since)| since.elapsed() >= PATIENCE);
        let lasting = lasting.map(|(words, _)| words.clone());
        self.reported.iter().cloned().chain(lasting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_pods_beside_one_interface_are_told_of_once_and_after_a_while() {
        let mut ways = BypassMonitor::default();
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
        ways.report();
        assert_eq!(ways.reported.len(), 2, "{:?}", ways.reported);
        assert_eq!(ways.missing().count(), 2);
    }

    #[test]
    fn pods_that_are_elsewhere_are_given_time_and_bridges_are_not() {
        let mut ways = BypassMonitor::default();
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
