//! Checks whether packets bypass the policies (D103), and which interfaces lead to pods and which
//! elsewhere (D147).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use palisade_route::{
    AttachedPrograms, Bypass, Flowtable, PodRoute, Routes, UncheckedSenders, VirtualServices,
    elsewhere, flowtables, on_path, programs, services, unchecked, verdict,
};
use tracing::{error, info, warn};

use super::log::chain;
use crate::backend::Failure;
use crate::config::Programs;

/// The interval of the checks.
const EVERY: Duration = Duration::from_secs(5);
/// The time after which missing interfaces of pods count: they may appear later than the addresses
/// are known.
const PATIENCE: Duration = Duration::from_secs(30);

/// The result of the checks.
#[derive(Debug, Default)]
pub(super) struct BypassMonitor {
    checked_at: Option<Instant>,
    /// The bypasses of the last check, and the time since which each has been found.
    found: Vec<(Bypass, Instant)>,
    /// The bypasses that were logged.
    reported: Vec<String>,
    /// The interfaces that do not lead to pods of the node.
    elsewhere: BTreeSet<String>,
    /// The pods whose source addresses cannot be checked.
    unchecked: Vec<UncheckedSenders>,
    /// Those that were logged.
    reported_unchecked: Vec<String>,
    /// Why some eBPF programs would not be found.
    unseen: Option<String>,
    /// Why the checks fail, and since when.
    trouble: Option<(String, Instant)>,
}

/// The result of one check.
struct BypassSnapshot {
    /// The routes to all addresses of pods.
    routes: BTreeMap<IpAddr, Option<PodRoute>>,
    /// The interfaces that lead elsewhere.
    elsewhere: BTreeSet<String>,
    /// Everything that bypasses the policies, or may.
    past: Vec<Bypass>,
    /// Why some eBPF programs would not be found.
    unseen: Option<String>,
    /// The checks that failed, and why.
    troubles: Vec<String>,
}

/// Queries the kernel.
fn check(
    pods: impl Iterator<Item = IpAddr>,
    handling: Programs,
    all_flowtables: impl FnOnce() -> Result<Vec<Flowtable>, Failure>,
) -> Result<BypassSnapshot, palisade_route::Error> {
    // A new socket each time: no answer of an earlier check that failed can be in it.
    let mut routes = Routes::open()?;
    let pod_routes = routes.pod_routes(pods)?;
    let (interfaces, gateways) = routes.interfaces()?;
    let elsewhere = elsewhere(&interfaces, &gateways, &pod_routes);
    let on_the_way = on_path(&interfaces, &elsewhere, &pod_routes);
    let mut past = verdict(&pod_routes);
    // One failed query does not hide what the others find.
    let mut troubles = Vec::new();
    let listed = routes.virtual_services().unwrap_or_else(|error| {
        troubles.push(chain(&error));
        VirtualServices::None
    });
    if services(&interfaces, &listed) {
        past.push(Bypass::Services);
    }
    match all_flowtables() {
        Ok(all) => past.extend(flowtables(&all, &on_the_way)),
        Err(error) => troubles.push(chain(&*error)),
    }
    let mut attached = AttachedPrograms::default();
    if handling == Programs::Refuse {
        let filtered = routes.filtered().unwrap_or_else(|error| {
            troubles.push(chain(&error));
            BTreeSet::new()
        });
        attached = routes.attached(&interfaces);
        past.extend(programs(&interfaces, &on_the_way, &filtered, &attached.at));
    }
    Ok(BypassSnapshot {
        routes: pod_routes,
        elsewhere,
        past,
        unseen: attached.words(),
        troubles,
    })
}

impl BypassMonitor {
    /// Checks the kernel, if the last check is long enough ago.
    pub(super) fn check(
        &mut self,
        pods: impl Iterator<Item = IpAddr>,
        programs: Programs,
        all_flowtables: impl FnOnce() -> Result<Vec<Flowtable>, Failure>,
    ) {
        if self.checked_at.is_some_and(|it| it.elapsed() < EVERY) {
            return;
        }
        self.checked_at = Some(Instant::now());
        let trouble = match check(pods, programs, all_flowtables) {
            Ok(found) => {
                self.take(Instant::now(), found.past);
                self.unchecked = unchecked(&found.routes, &found.elsewhere);
                self.elsewhere = found.elsewhere;
                self.note_unchecked(found.unseen);
                (!found.troubles.is_empty()).then(|| found.troubles.join("; "))
            }
            // Everything found before stays: a failed check is no proof that a bypass is gone.
            Err(error) => Some(chain(&error)),
        };
        let before = self.trouble.take();
        self.trouble = trouble.map(|cause| {
            let text = format!("cannot check for policy bypass: {cause}");
            match before {
                Some((before, since)) if before == text => (text, since),
                _ => {
                    warn!("{text}");
                    (text, Instant::now())
                }
            }
        });
        self.report();
    }

    fn note_unchecked(&mut self, unseen: Option<String>) {
        if let Some(reason) = unseen
            .as_ref()
            .filter(|it| Some(*it) != self.unseen.as_ref())
        {
            warn!("{reason}");
        }
        self.unseen = unseen;
    }

    /// Stores what was found. A bypass that was found before keeps its time.
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
            // Short-lived while pods start or end: the address is known and the interface is
            // missing.
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
        // Many pods at one interface give the same text.
        now.dedup();
        for text in now.iter().filter(|it| !self.reported.contains(it)) {
            error!("{text}");
        }
        for text in self.reported.iter().filter(|it| !now.contains(it)) {
            info!("resolved: {text}");
        }
        self.reported = now;
        let now: Vec<String> = self.unchecked.iter().map(UncheckedSenders::words).collect();
        for text in now
            .iter()
            .filter(|it| !self.reported_unchecked.contains(it))
        {
            warn!("{text}");
        }
        self.reported_unchecked = now;
    }

    /// Returns the interfaces that do not lead to pods of the node; none before the first check.
    pub(super) fn elsewhere(&self) -> &BTreeSet<String> {
        &self.elsewhere
    }

    /// Returns the pods whose source addresses cannot be checked.
    pub(super) fn unchecked(&self) -> impl Iterator<Item = &UncheckedSenders> + '_ {
        self.unchecked.iter()
    }

    /// Returns why some eBPF programs on the path to pods would not be found.
    pub(super) fn unchecked_programs(&self) -> Option<&str> {
        self.unseen.as_deref()
    }

    /// Returns how packets bypass the policies that the kernel enforces.
    pub(super) fn missing(&self) -> impl Iterator<Item = String> + '_ {
        let lasting = self.trouble.iter();
        let lasting = lasting.filter(|(_, since)| since.elapsed() >= PATIENCE);
        let lasting = lasting.map(|(text, _)| text.clone());
        self.reported.iter().cloned().chain(lasting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_pods_beside_one_interface_are_reported_once_and_after_a_while() {
        let mut monitor = BypassMonitor::default();
        let long_ago = Instant::now();
        let started = long_ago + PATIENCE;
        let beside = |last: u8| Bypass::Beside {
            interface: "eth0".to_owned(),
            address: IpAddr::from([192, 0, 2, last]),
        };
        monitor.take(long_ago, vec![beside(1), beside(2)]);
        assert_eq!(monitor.certain(long_ago).count(), 0);
        // One more that appears now does not restart the time of the others.
        monitor.take(started, vec![beside(2), beside(3)]);
        assert_eq!(monitor.certain(started).collect::<Vec<_>>(), [&beside(2)]);
        monitor.take(long_ago, vec![beside(1), beside(2), Bypass::Services]);
        monitor.found.iter_mut().for_each(|(_, since)| {
            *since = since.checked_sub(PATIENCE).unwrap_or(*since);
        });
        monitor.report();
        assert_eq!(monitor.reported.len(), 2, "{:?}", monitor.reported);
        assert_eq!(monitor.missing().count(), 2);
    }

    #[test]
    fn missing_interfaces_have_time_to_appear_and_bridges_do_not() {
        let mut monitor = BypassMonitor::default();
        // The machine may have booted a moment ago, so earlier times may not exist.
        let long_ago = Instant::now();
        let started = long_ago + PATIENCE;
        let elsewhere = Bypass::Elsewhere {
            interface: "eth0".to_owned(),
        };
        let bridge = Bypass::Bridge {
            interface: "cni0".to_owned(),
            ipv6: false,
        };
        monitor.take(started, vec![elsewhere.clone()]);
        assert_eq!(monitor.certain(started).count(), 0);
        monitor.take(started, vec![bridge.clone()]);
        assert_eq!(monitor.certain(started).collect::<Vec<_>>(), [&bridge]);
        // Found long ago, and found again.
        monitor.found = vec![(elsewhere.clone(), long_ago)];
        monitor.take(started, vec![elsewhere.clone()]);
        assert_eq!(monitor.certain(started).collect::<Vec<_>>(), [&elsewhere]);
        monitor.take(started, Vec::new());
        monitor.take(started, vec![elsewhere]);
        assert_eq!(monitor.certain(started).count(), 0);
    }
}
