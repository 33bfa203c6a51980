//! Many broken answers: `palisade-campaigns hostile`.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use palisade_lab::privilege::RequiredPrivilege;

use super::{Counts, Enforced, Mistake, run};
use palisade_lab::privilege::stay_inside;

/// How much to try.
#[derive(Args, Clone, Debug)]
pub struct HostileArgs {
    /// How many broken answers, at least; those that are as they should be come on top
    #[arg(long, default_value_t = 1_000_000)]
    answers: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Enforce in the real kernel and send packets, instead of in the model of it
    #[arg(long)]
    kernel: bool,
}

/// What a campaign came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// How much was done.
    pub counts: Counts,
    /// The first mistake.
    pub mistake: Option<Mistake>,
    took: Duration,
}

/// So many seeds are run between two looks at the count.
const PORTION: u64 = 64;

/// Runs one seed after the other.
pub fn hostile(args: &HostileArgs) -> Result<Report> {
    let enforced = if args.kernel {
        stay_inside(RequiredPrivilege::Any)?;
        Enforced::ByKernel
    } else {
        Enforced::ByModel
    };
    // Namespaces of a seed take a while, so that fewer seeds are run between two looks at the count.
    let portion = if args.kernel { 1 } else { PORTION };
    let started = Instant::now();
    let mut report = Report {
        counts: Counts::default(),
        mistake: None,
        took: Duration::ZERO,
    };
    let mut seed = args.seed;
    while report.counts.n_broken() < args.answers && report.mistake.is_none() {
        let (counts, mistake) = run(seed..seed + portion, enforced);
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
            answers,
            broken,
            verdicts,
            denied,
            commands,
            over_budget,
        } = &self.counts;
        for (how, count) in broken {
            writeln!(f, "{count:>9} {how}")?;
        }
        writeln!(
            f,
            "{seeds} seeds, {answers} answers, {} of them broken, {commands} commands in {:.0} s",
            self.counts.n_broken(),
            self.took.as_secs_f64()
        )?;
        write!(
            f,
            "{verdicts} verdicts compared, {denied} of them denied by what could be read last; {over_budget} times a policy was over the budget of its namespace; {} mistakes",
            u8::from(self.mistake.is_some())
        )
    }
}
