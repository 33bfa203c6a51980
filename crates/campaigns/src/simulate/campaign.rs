//! `palisade-campaigns simulate`: simulates many seeds in order.

use std::fmt;
use std::io::Write as _;
use std::time::{Duration, Instant};

use clap::Args;

use super::{Counts, FailingSeed, InFlight, simulate};

/// Arguments of `simulate`.
#[derive(Args, Clone, Debug)]
pub struct SimulateArgs {
    /// How many seeds
    #[arg(long, default_value_t = 100_000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Simulate one seed, and stop
    #[arg(long, conflicts_with_all = ["seeds", "seed"])]
    replay: Option<u64>,
    /// Also report packets that pass only during a commit, and packets dropped between two
    /// transactions of one change, as mistakes
    #[arg(long)]
    strict: bool,
}

/// The result of a campaign.
#[derive(Clone, Debug)]
pub struct Report {
    /// The counters.
    pub counts: Counts,
    /// The failing seeds.
    pub failing: Vec<FailingSeed>,
    first: u64,
    took: Duration,
}

/// A campaign stops after this number of mistakes.
const ENOUGH: usize = 10;
/// Seeds between two checks of the clock.
const PORTION: u64 = 256;

/// Simulates the seeds in order.
pub fn run(args: &SimulateArgs) -> Report {
    let started = Instant::now();
    let in_flight = if args.strict {
        InFlight::Fail
    } else {
        InFlight::Count
    };
    let first = args.replay.unwrap_or(args.seed);
    let end = first + args.replay.map_or(args.seeds, |_| 1);
    let mut report = Report {
        counts: Counts::default(),
        failing: Vec::new(),
        first,
        took: Duration::ZERO,
    };
    let mut last_report = Instant::now();
    let mut seed = first;
    while seed < end && report.failing.len() < ENOUGH {
        let (counts, failing) = simulate(seed..(seed + PORTION).min(end), in_flight);
        report.counts.add(counts);
        seed += counts.seeds;
        report.failing.extend(failing);
        if last_report.elapsed() > Duration::from_secs(10) {
            last_report = Instant::now();
            let mistakes = report.failing.len();
            // Progress only: a closed standard error is no failure.
            let _ = writeln!(std::io::stderr(), "seed {seed}: {mistakes} mistakes");
        }
    }
    report.took = started.elapsed();
    report
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failing in &self.failing {
            writeln!(f, "{failing}")?;
        }
        let Counts {
            seeds,
            steps,
            commands,
            tasks,
            transactions,
            installs,
            changes,
            sweeps,
            drifts,
            faults,
            idle,
            verdicts,
            packets,
            torn,
            torn_lost,
            torn_leaked,
            lost,
            shared,
            splits,
            over_budget,
        } = self.counts;
        let last = self.first + seeds.saturating_sub(1);
        let seconds = self.took.as_secs_f64();
        writeln!(
            f,
            "seeds {} to {last} in {seconds:.0} s: {steps} steps",
            self.first
        )?;
        writeln!(
            f,
            "{commands} commands, {tasks} background tasks, {transactions} transactions, {installs} tables installed, \
             {changes} updated, {sweeps} sweeps, {faults} faults, {drifts} repairs"
        )?;
        writeln!(
            f,
            "{packets} packets after transactions, {lost} of them dropped between two of one change; \
             {torn} other paths during a commit, {torn_lost} of them lost and \
             {torn_leaked} leaked"
        )?;
        writeln!(
            f,
            "{idle} times idle, {verdicts} verdicts compared there, {shared} groups that share a set; \
             {splits} times groups with one set became different, {over_budget} policies over the budget of their namespace"
        )?;
        write!(f, "{} mistakes", self.failing.len())
    }
}
