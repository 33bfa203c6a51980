//! `palisade-campaigns differ`: compares any number of flows, on several threads.

use std::fmt;

use clap::Args;

use super::unseen::{self, Unseen};
use super::{Compared, compare};
use crate::seeds::over_seeds;

/// Arguments of `differ`.
#[derive(Args, Clone, Debug)]
pub struct DifferArgs {
    /// The number of flows to compare
    #[arg(long, default_value_t = 10_000_000)]
    pub flows: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Threads
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Compare one seed only
    #[arg(long)]
    pub replay: Option<u64>,
    /// Compare policies whose pods are not in the input, with all pods that could exist
    #[arg(long)]
    pub without_pods: bool,
    /// The number of pairs to compare without pods
    #[arg(long, default_value_t = 2_000, requires = "without_pods")]
    pub pairs: u64,
}

/// The result of a run.
#[derive(Debug)]
pub struct DifferReport {
    first: u64,
    seeds: u64,
    seconds: f64,
    /// The sum over all seeds.
    pub compared: Compared,
}

impl fmt::Display for DifferReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mistake in &self.compared.mistakes {
            writeln!(f, "{mistake}")?;
        }
        let last = self.first + self.seeds.saturating_sub(1);
        writeln!(
            f,
            "seeds {} to {last}: {} flows before and after a change agree with single answers, {} of them different, {} reasons compared, {} mistakes, {:.0} s",
            self.first,
            self.compared.flows,
            self.compared.different,
            self.compared.reasons,
            self.compared.mistakes.len(),
            self.seconds
        )
    }
}

/// Compares flows. Stops after 20 mistakes.
pub fn differ(args: &DifferArgs) -> DifferReport {
    let (first, wanted, threads) = match args.replay {
        Some(seed) => (seed, 0, 1),
        None => (args.seed, args.flows, args.threads),
    };
    let summary = over_seeds(
        (first, u64::MAX),
        threads,
        compare,
        |all: &mut Compared, _, compared| {
            all.flows += compared.flows;
            all.different += compared.different;
            all.reasons += compared.reasons;
            all.mistakes.extend(compared.mistakes);
            all.flows >= wanted || all.mistakes.len() >= 20
        },
    );
    DifferReport {
        first,
        seeds: summary.seeds,
        seconds: summary.seconds,
        compared: summary.total,
    }
}

/// The result of a run without pods.
#[derive(Debug)]
pub struct UnseenReport {
    first: u64,
    seeds: u64,
    seconds: f64,
    /// The sum over all seeds.
    pub unseen: Unseen,
}

impl fmt::Display for UnseenReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mistake in &self.unseen.mistakes {
            writeln!(f, "{mistake}")?;
        }
        let last = self.first + self.seeds.saturating_sub(1);
        writeln!(
            f,
            "seeds {} to {last}: {} pairs without pods, {} reported as before, {} in which pods that could exist gain a flow, {} answers, {} wrong, {:.0} s",
            self.first,
            self.unseen.pairs,
            self.unseen.same,
            self.unseen.gaining,
            self.unseen.answers,
            self.unseen.mistakes.len(),
            self.seconds
        )
    }
}

/// Compares pairs without pods. Stops after 20 mistakes.
pub fn without_pods(args: &DifferArgs) -> UnseenReport {
    let (first, end, threads) = match args.replay {
        Some(seed) => (seed, seed.saturating_add(1), 1),
        None => (
            args.seed,
            args.seed.saturating_add(args.pairs),
            args.threads,
        ),
    };
    let summary = over_seeds(
        (first, end),
        threads,
        unseen::compare,
        |all: &mut Unseen, _, compared| {
            all.add(compared);
            all.mistakes.len() >= 20
        },
    );
    UnseenReport {
        first,
        seeds: summary.seeds,
        seconds: summary.seconds,
        unseen: summary.total,
    }
}
