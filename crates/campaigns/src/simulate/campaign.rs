//! Many seeds, one after the other: `palisade-campaigns simulate`.

use std::fmt;
use std::io::Write as _;
use std::time::{Duration, Instant};

use clap::Args;

use super::{Counts, During, Shown, simulate};

/// What to simulate.
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
    /// Take single packets that pass only while a transaction is committed, and those that are
    /// dropped between two transactions of one change, for mistakes, too
    #[arg(long)]
    strict: bool,
}

/// What a campaign came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// How much was done.
    pub counts: Counts,
    /// The seeds that show a mistake.
    pub shown: Vec<Shown>,
    first: u64,
    took: Duration,
}

/// A campaign that finds so many mistakes stops.
const ENOUGH: usize = 10;
/// So many seeds are simulated between two looks at the clock.
const PORTION: u64 = 256;

/// Simulates one seed after the other.
pub fn run(args: &SimulateArgs) -> Report {
    let started = Instant::now();
    let during = if args.strict {
        During::Mistakes
    } else {
        During::Counted
    };
    let first = args.replay.unwrap_or(args.seed);
    let end = first + args.replay.map_or(args.seeds, |_| 1);
    let mut report = Report {
        counts: Counts::default(),
        shown: Vec::new(),
        first,
        took: Duration::ZERO,
    };
    let mut told = Instant::now();
    let mut seed = first;
    while seed < end && report.shown.len() < ENOUGH {
        let (counts, shown) = simulate(seed..(seed + PORTION).min(end), during);
        report.counts.add(counts);
        seed += counts.seeds;
        report.shown.extend(shown);
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            let mistakes = report.shown.len();
            // With standard error closed there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "seed {seed}: {mistakes} mistakes");
        }
    }
    report.took = started.elapsed();
    report
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for shown in &self.shown {
            writeln!(f, "{shown}")?;
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
            rests,
            verdicts,
            packets,
            torn,
            torn_lost,
            torn_wide,
            narrow,
            saved,
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
            "{commands} commands, {tasks} tasks in the background, {transactions} transactions, {installs} tables put in place, \
             {changes} changed, {sweeps} sweeps, {faults} faults, {drifts} repairs"
        )?;
        writeln!(
            f,
            "{packets} packets after transactions, {narrow} of them dropped between two of one change; \
             {torn} other ways they may have gone during a commit, {torn_lost} of them lost and \
             {torn_wide} wider than both"
        )?;
        writeln!(
            f,
            "{rests} times at rest, {verdicts} verdicts compared there, {saved} groups told as another's; \
             {splits} times groups that were one became different, {over_budget} policies over the budget of their namespace"
        )?;
        write!(f, "{} mistakes", self.shown.len())
    }
}
