//! `palisade-campaigns advice`: tries any number of proposals, on several threads.

use std::fmt;

use clap::Args;

use super::{Compared, compare};
use crate::seeds::over_seeds;

/// Arguments of `advice`.
#[derive(Args, Clone, Debug)]
pub struct AdviceArgs {
    /// The number of denied queries with a proposal
    #[arg(long, default_value_t = 10_000)]
    pub denied: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Flow queries for each seed's cluster
    #[arg(long, default_value_t = 12)]
    pub queries: usize,
    /// Threads
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Try one seed only
    #[arg(long)]
    pub replay: Option<u64>,
}

/// The result of a run.
#[derive(Debug)]
pub struct AdviceReport {
    first: u64,
    seeds: u64,
    seconds: f64,
    /// The sum over all seeds.
    pub compared: Compared,
}

impl fmt::Display for AdviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compared {
            denied,
            answered,
            must_act,
            proposals,
            wider,
            flows,
            mistakes,
        } = &self.compared;
        for mistake in mistakes {
            writeln!(f, "{mistake}")?;
        }
        let last = self.first + self.seeds.saturating_sub(1);
        writeln!(
            f,
            "seeds {} to {last}: {denied} denied queries, {answered} with a proposal, {must_act} for administrators only; {proposals} proposals, {wider} of them allow more than the query; {flows} flows before and after agree; {} mistakes, {:.0} s",
            self.first,
            mistakes.len(),
            self.seconds
        )
    }
}

/// Tries proposals. Stops after 20 mistakes.
pub fn advice(args: &AdviceArgs) -> AdviceReport {
    let (first, wanted, threads) = match args.replay {
        Some(seed) => (seed, 0, 1),
        None => (args.seed, args.denied, args.threads),
    };
    let summary = over_seeds(
        (first, u64::MAX),
        threads,
        |seed| compare(seed, args.queries),
        |all: &mut Compared, _, compared| {
            all.denied += compared.denied;
            all.answered += compared.answered;
            all.must_act += compared.must_act;
            all.proposals += compared.proposals;
            all.wider += compared.wider;
            all.flows += compared.flows;
            all.mistakes.extend(compared.mistakes);
            all.answered >= wanted || all.mistakes.len() >= 20
        },
    );
    AdviceReport {
        first,
        seeds: summary.seeds,
        seconds: summary.seconds,
        compared: summary.total,
    }
}
