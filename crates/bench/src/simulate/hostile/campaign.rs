//! Many broken answers: `palisade-bench hostile`.

use std::fmt;
use std::time::{Duration, Instant};

use clap::Args;

use super::{Counts, Mistake, run};

/// How much to try.
#[derive(Args, Clone, Debug)]
pub struct HostileArgs {
    /// How many answers, at least
    #[arg(long, default_value_t = 1_000_000)]
    answers: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
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
pub fn hostile(args: &HostileArgs) -> Report {
    let started = Instant::now();
    let mut report = Report {
        counts: Counts::default(),
        mistake: None,
        took: Duration::ZERO,
    };
    let mut seed = args.seed;
    while report.counts.answers < args.answers && report.mistake.is_none() {
        let (counts, mistake) = run(seed..seed + PORTION);
        report.counts.add(&counts);
        report.mistake = mistake;
        seed += PORTION;
    }
    report.took = started.elapsed();
    report
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
        } = &self.counts;
        for (how, count) in broken {
            writeln!(f, "{count:>9} {how}")?;
        }
        writeln!(
            f,
            "{seeds} seeds, {answers} answers, {commands} commands in {:.0} s",
            self.took.as_secs_f64()
        )?;
        write!(
            f,
            "{verdicts} verdicts compared, {denied} of them denied by what could be read last; {} mistakes",
            u8::from(self.mistake.is_some())
        )
    }
}
