//! The figures of both programs, and where they differ.

use std::fmt;

use serde::Serialize;

use super::differences::{Class, Difference};
use crate::report::Summary;
use crate::scale::{head, row};

/// The required factor of speed, and the number of workloads from which it applies.
const BAR: (f64, u64) = (1_000.0, 1_000);

/// All that is reported.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PeersReport {
    pub(super) seed: u64,
    pub(super) rounds: Vec<Round>,
}

/// One input, and both programs on it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Round {
    pub(super) workloads: u64,
    pub(super) network_policies: u64,
    pub(super) admin_policies: u64,
    pub(super) bytes: u64,
    pub(super) netpol_analyzer: Summary,
    /// The same pairs; absent as long as there is no such command.
    pub(super) palisade: Option<Summary>,
    /// The same answer as blocks of groups, which is what users need.
    pub(super) blocks: Option<Summary>,
    /// Pairs of pods, and pieces of the addresses outside for each pod and direction.
    pub(super) compared: u64,
    pub(super) differences: Vec<Differences>,
}

/// Differences of one class.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Differences {
    pub(super) class: &'static str,
    pub(super) count: usize,
    pub(super) first: Vec<String>,
}

/// Counts of each class, with the first few.
pub(super) fn by_class(found: &[Difference], show: usize) -> Vec<Differences> {
    let of_class = |class: Class| {
        let of_class = found.iter().filter(move |it| it.class == class);
        let count = of_class.clone().count();
        let first = of_class.take(show).map(|it| it.text.clone());
        (count > 0).then(|| Differences {
            class: class.words(),
            count,
            first: first.collect(),
        })
    };
    Class::ALL.into_iter().filter_map(of_class).collect()
}

impl fmt::Display for PeersReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "whole-cluster connectivity, pairs in CSV and blocks in JSON, seed {}; quietest of {} runs",
            self.seed,
            self.rounds
                .first()
                .map_or(0, |it| it.netpol_analyzer.runs.len())
        )?;
        writeln!(
            f,
            "  {:>10}{:>8}{:>7}{:>8}{:>18}{:>8}{:>13}{:>8}{:>10}{:>13}{:>10}",
            "workloads",
            "NPs",
            "admin",
            "MB",
            "netpol-analyzer s",
            "MB",
            "palisade s",
            "MB",
            "ratio",
            "blocks s",
            "ratio"
        )?;
        for round in &self.rounds {
            let peer = &round.netpol_analyzer;
            write!(
                f,
                "  {:>10}{:>8}{:>7}{:>8.1}{:>18.3}{:>8.0}",
                round.workloads,
                round.network_policies,
                round.admin_policies,
                round.bytes as f64 / 1e6,
                peer.wall_seconds,
                peer.peak_bytes as f64 / 1e6
            )?;
            match (&round.palisade, &round.blocks) {
                (Some(own), Some(blocks)) => writeln!(
                    f,
                    "{:>13.4}{:>8.0}{:>9.0}x{:>13.4}{:>9.0}x",
                    own.wall_seconds,
                    own.peak_bytes as f64 / 1e6,
                    peer.wall_seconds / own.wall_seconds,
                    blocks.wall_seconds,
                    peer.wall_seconds / blocks.wall_seconds
                )?,
                (None, _) | (_, None) => writeln!(f, "{:>13}{:>8}{:>10}", "-", "-", "-")?,
            }
        }
        for round in &self.rounds {
            if round.palisade.is_none() {
                continue;
            }
            let differing: usize = round.differences.iter().map(|it| it.count).sum();
            writeln!(
                f,
                "{} workloads: {} answers compared, {differing} differ",
                round.workloads, round.compared
            )?;
            for differences in &round.differences {
                writeln!(f, "  {}: {}", differences.class, differences.count)?;
                for text in &differences.first {
                    writeln!(f, "    {text}")?;
                }
            }
        }
        writeln!(f, "{}", self.goal())
    }
}

impl PeersReport {
    /// The table of docs/operations/performance.md.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::new();
        head(
            &mut text,
            &[
                "workloads",
                "NetworkPolicies",
                "AdminNetworkPolicies",
                "netpol-analyzer",
                "MB",
                "Palisade, pairs",
                "MB",
                "times as fast",
                "Palisade, blocks",
                "times as fast",
                "answers compared",
                "differences",
            ],
        );
        for round in &self.rounds {
            let peer = &round.netpol_analyzer;
            let megabytes = |summary: &Summary| format!("{:.0}", summary.peak_bytes as f64 / 1e6);
            let mut cells = vec![
                round.workloads.to_string(),
                round.network_policies.to_string(),
                round.admin_policies.to_string(),
                format!("{:.2} s", peer.wall_seconds),
                megabytes(peer),
            ];
            cells.extend(match (&round.palisade, &round.blocks) {
                (Some(own), Some(blocks)) => [
                    format!("{:.1} ms", own.wall_seconds * 1e3),
                    megabytes(own),
                    format!("{:.0}", peer.wall_seconds / own.wall_seconds),
                    format!("{:.1} ms", blocks.wall_seconds * 1e3),
                    format!("{:.0}", peer.wall_seconds / blocks.wall_seconds),
                ],
                (None, _) | (_, None) => ["-"; 5].map(str::to_owned),
            });
            let by_class = round.differences.iter();
            let by_class = by_class.map(|it| format!("{} ({})", it.count, it.class));
            let by_class: Vec<String> = by_class.collect();
            cells.push(round.compared.to_string());
            cells.push(if by_class.is_empty() {
                "none".to_owned()
            } else {
                by_class.join(", ")
            });
            row(&mut text, &cells);
        }
        text
    }

    fn goal(&self) -> String {
        let (times, workloads) = BAR;
        let bar = format!("bar: >= {times} times as fast at {workloads} workloads");
        let at = self.rounds.iter().find(|it| it.workloads >= workloads);
        let ratio = at
            .and_then(|it| Some((it, it.blocks.as_ref()?)))
            .map(|(it, own)| it.netpol_analyzer.wall_seconds / own.wall_seconds);
        match ratio {
            Some(ratio) if ratio >= times => format!("G8  met           {ratio:.0} times ({bar})"),
            Some(ratio) => format!("G8  MISSED        {ratio:.0} times ({bar})"),
            None => format!("G8  not measured  ({bar})"),
        }
    }
}
