//! The figures of one run of the benchmark of verdicts.

use std::fmt;

use serde::{Deserialize, Serialize};

/// All that is reported.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VerdictReport {
    pub(super) seed: u64,
    pub(super) bytes: u64,
    pub(super) objects: u64,
    pub(super) pods: u64,
    pub(super) policies: u64,
    pub(super) classes: u64,
    pub(super) address_atoms: u64,
    pub(super) port_atoms: u64,
    pub(super) flows: u64,
    pub(super) shares: Vec<Share>,
    /// The maximum growth of the allocated memory while all flows are evaluated.
    pub(super) allocated_bytes: u64,
    /// Without a clock in between, in the quietest run.
    pub(super) verdicts_per_second: f64,
    pub(super) latency: Latency,
    /// The quietest run of each phase.
    pub(super) read: Spent,
    pub(super) lower: Spent,
    pub(super) compile: Spent,
    pub(super) phases: Vec<Phases>,
}

/// The number of directions that a kind of reason decides.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Share {
    pub(super) reason: &'static str,
    pub(super) egress: u64,
    pub(super) ingress: u64,
}

/// What the phases of one run took.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Phases {
    pub(super) read: Spent,
    pub(super) lower: Spent,
    pub(super) compile: Spent,
}

/// The cost of a phase.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Spent {
    pub(crate) wall_seconds: f64,
    pub(crate) cpu_seconds: f64,
}

impl Spent {
    /// The shortest of each, since other work on the machine only ever adds time; `None` without
    /// runs.
    pub(crate) fn quietest(runs: impl Iterator<Item = Spent>) -> Option<Spent> {
        runs.reduce(|a, b| Spent {
            wall_seconds: a.wall_seconds.min(b.wall_seconds),
            cpu_seconds: a.cpu_seconds.min(b.cpu_seconds),
        })
    }
}

/// The time of single verdicts in nanoseconds, the clock included.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Latency {
    pub(crate) p50: u32,
    pub(crate) p99: u32,
    /// The median of what looking at the clock twice takes.
    pub(crate) clock: u32,
}

impl Latency {
    pub(super) fn new(verdicts: Vec<u32>, clock: Vec<u32>) -> Latency {
        let percentile = |mut samples: Vec<u32>, percent: usize| {
            let at = samples.len().saturating_sub(1) * percent / 100;
            samples.sort_unstable();
            samples.get(at).copied().unwrap_or(0)
        };
        Latency {
            p50: percentile(verdicts.clone(), 50),
            p99: percentile(verdicts, 99),
            clock: percentile(clock, 50),
        }
    }

    /// The run with the smallest median; `None` without runs.
    pub(crate) fn quietest(runs: Vec<Latency>) -> Option<Latency> {
        runs.into_iter().min_by_key(|run| (run.p50, run.p99))
    }
}

impl fmt::Display for VerdictReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = self.bytes as f64 / 1e6;
        writeln!(
            f,
            "cluster: {megabytes:.1} MB of JSON, objects {}, pods {}, policies {}; classes {}, \
             address atoms {}, port atoms {}; quietest of {} runs",
            self.objects,
            self.pods,
            self.policies,
            self.classes,
            self.address_atoms,
            self.port_atoms,
            self.phases.len()
        )?;
        let phases = [
            ("typed parse", self.read),
            ("lower", self.lower),
            ("compile", self.compile),
        ];
        let (a, b, c, d, e) = ("", "wall ms", "ratio", "cpu ms", "ratio");
        writeln!(f, "  {a:<16}{b:>10}{c:>10}{d:>10}{e:>10}")?;
        for (label, spent) in phases {
            let (wall, cpu) = (spent.wall_seconds, spent.cpu_seconds);
            writeln!(
                f,
                "  {label:<16}{:>10.2}{:>10.3}{:>10.2}{:>10.3}",
                wall * 1e3,
                wall / self.read.wall_seconds,
                cpu * 1e3,
                cpu / self.read.cpu_seconds
            )?;
        }
        let Latency { p50, p99, clock } = self.latency;
        writeln!(
            f,
            "verdicts: {} flows, p50 {p50} ns, p99 {p99} ns (the clock alone {clock} ns), \
             {:.2} million/s, {} bytes allocated",
            self.flows,
            self.verdicts_per_second / 1e6,
            self.allocated_bytes
        )?;
        writeln!(
            f,
            "  {:<20}{:>10}{:>10}",
            "settled by", "egress %", "ingress %"
        )?;
        for share in &self.shares {
            let percent = |count: u64| count as f64 * 100.0 / self.flows as f64;
            let (egress, ingress) = (percent(share.egress), percent(share.ingress));
            writeln!(f, "  {:<20}{egress:>10.1}{ingress:>10.1}", share.reason)?;
        }
        Ok(())
    }
}
