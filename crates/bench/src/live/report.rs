//! The figures of one run of the benchmark of incremental plans.

use std::fmt;

use serde::Serialize;

/// All that is reported.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LiveReport {
    pub(super) point: String,
    pub(super) seed: u64,
    pub(super) node: String,
    pub(super) counts: Counts,
    /// The number of members of all groups.
    pub(super) members: u64,
    /// All allocated memory.
    pub(super) kept_bytes: u64,
    /// The commit after all objects have come.
    pub(super) first_commit_seconds: f64,
    pub(super) kinds: Vec<EventKind>,
}

/// The sizes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Counts {
    pods: usize,
    namespaces: usize,
    network_policies: usize,
    ordered_policies: usize,
    classes: usize,
    local_addresses: usize,
    local_classes: usize,
    groups: usize,
    chains: usize,
}

impl From<palisade_core::incremental::Counts> for Counts {
    fn from(counts: palisade_core::incremental::Counts) -> Counts {
        Counts {
            pods: counts.pods,
            namespaces: counts.namespaces,
            network_policies: counts.network_policies,
            ordered_policies: counts.ordered_policies,
            classes: counts.classes,
            local_addresses: counts.local_addresses,
            local_classes: counts.local_classes,
            groups: counts.groups,
            chains: counts.chains,
        }
    }
}

/// What events of one kind took, in nanoseconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventKind {
    pub(super) name: &'static str,
    pub(super) events: usize,
    /// The number of events of a commit.
    pub(super) batch: usize,
    /// Taking one in.
    pub(super) set: Times,
    /// With its share of the commit.
    pub(super) with_commit: Times,
    /// The commit of a batch.
    pub(super) commit: Times,
    /// The average numbers of changes of members, rule chains and pods per event.
    pub(super) changes: f64,
}

/// Some of many times, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Times {
    pub(super) p50: u64,
    pub(super) p99: u64,
    pub(super) max: u64,
}

impl Times {
    pub(super) fn of(mut times: Vec<u64>) -> Times {
        times.sort_unstable();
        let at = |share: usize| times.get((times.len() * share / 100).min(times.len().max(1) - 1));
        Times {
            p50: at(50).copied().unwrap_or(0),
            p99: at(99).copied().unwrap_or(0),
            max: times.last().copied().unwrap_or(0),
        }
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |nanos: u64| nanos as f64 / 1e3;
        let (p50, p99, max) = (micros(self.p50), micros(self.p99), micros(self.max));
        write!(f, "{p50:>9.2} {p99:>9.2} {max:>10.2}")
    }
}

impl fmt::Display for LiveReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.counts;
        writeln!(
            f,
            "{} (seed {}): {} pods, {} namespaces, {} NetworkPolicies, {} of the ordered tiers, {} classes",
            self.point,
            self.seed,
            counts.pods,
            counts.namespaces,
            counts.network_policies,
            counts.ordered_policies,
            counts.classes
        )?;
        writeln!(
            f,
            "node {}: {} addresses, {} classes, {} rule chains, {} groups with {} members",
            self.node,
            counts.local_addresses,
            counts.local_classes,
            counts.chains,
            counts.groups,
            self.members
        )?;
        writeln!(
            f,
            "kept: {:.1} MB; first commit: {:.0} ms",
            self.kept_bytes as f64 / 1e6,
            self.first_commit_seconds * 1e3
        )?;
        writeln!(
            f,
            "{:<34} {:>6}  {:^30}  {:^30}  {:>8}",
            "microseconds: p50, p99, max", "batch", "set", "set and share of the commit", "changes"
        )?;
        for kind in &self.kinds {
            writeln!(
                f,
                "{:<34} {:>6}  {}  {}  {:>8.1}",
                kind.name, kind.batch, kind.set, kind.with_commit, kind.changes
            )?;
        }
        Ok(())
    }
}
