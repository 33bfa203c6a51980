//! `palisade-campaigns hostile`: many malformed responses.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use palisade_lab::privilege::RequiredPrivilege;

use super::{Counts, KernelMode, Mistake, run};
use palisade_lab::privilege::stay_inside;

/// Arguments of `hostile`.
#[derive(Args, Clone, Debug)]
pub struct HostileArgs {
    /// The minimum number of malformed responses; correct ones come on top
    #[arg(long, default_value_t = 1_000_000)]
    responses: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Enforce in the real kernel and send packets, instead of using the model
    #[arg(long)]
    kernel: bool,
}

/// The result of a campaign.
#[derive(Clone, Debug)]
pub struct Report {
    /// The counters.
    pub counts: Counts,
    /// The first mistake.
    pub mistake: Option<Mistake>,
    took: Duration,
}

/// Seeds between two checks of the count.
const PORTION: u64 = 64;

/// Runs the seeds in order.
pub fn hostile(args: &HostileArgs) -> Result<Report> {
    let mode = if args.kernel {
        stay_inside(RequiredPrivilege::Any)?;
        KernelMode::Real
    } else {
        KernelMode::Model
    };
    // Building namespaces is slow: check the count after each seed.
    let portion = if args.kernel { 1 } else { PORTION };
    let started = Instant::now();
    let mut report = Report {
        counts: Counts::default(),
        mistake: None,
        took: Duration::ZERO,
    };
    let mut seed = args.seed;
    while report.counts.n_faulty() < args.responses && report.mistake.is_none() {
        let (counts, mistake) = run(seed..seed + portion, mode);
        report.counts.add(&counts);
        report.mistake = mistake;
        seed += portion;
    }
    report.took = started.elapsed();
    Ok(report)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(mistake) = &self.mistake {
            writeln!(f, "{mistake}")?;
        }
        let Counts {
            seeds,
            responses,
            faults,
            verdicts,
            denied,
            commands,
            over_budget,
        } = &self.counts;
        for (fault, count) in faults {
            writeln!(f, "{count:>9} {fault}")?;
        }
        writeln!(
            f,
            "{seeds} seeds, {responses} responses, {} of them malformed, {commands} commands in {:.0} s",
            self.counts.n_faulty(),
            self.took.as_secs_f64()
        )?;
        write!(
            f,
            "{verdicts} verdicts compared, {denied} of them denied by the last readable objects; {over_budget} times a policy was over the budget of its namespace; {} mistakes",
            u8::from(self.mistake.is_some())
        )
    }
}
