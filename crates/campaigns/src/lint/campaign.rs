//! `palisade-campaigns lint`: compares any number of clusters, on several threads.

use std::collections::BTreeMap;
use std::fmt;

use clap::Args;

use super::{compare, compare_objects, objects, shrink};
use crate::seeds::over_seeds;

/// Arguments of `lint`.
#[derive(Args, Clone, Debug)]
pub struct LintArgs {
    /// The number of clusters to compare
    #[arg(long, default_value_t = 10_000)]
    pub seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Threads
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct LintReport {
    first: u64,
    seeds: u64,
    /// The number of right findings of each code.
    pub right: BTreeMap<&'static str, u64>,
    wrong: u64,
    missed: u64,
    seconds: f64,
    /// The first failing seeds, each with a minimal cluster.
    pub examples: Vec<String>,
}

impl fmt::Display for LintReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for example in &self.examples {
            writeln!(f, "{example}\n")?;
        }
        for (code, n) in &self.right {
            writeln!(f, "{code:<22} {n}")?;
        }
        let last = self.first + self.seeds.saturating_sub(1);
        let checked: u64 = self.right.values().sum::<u64>() + self.wrong;
        writeln!(
            f,
            "seeds {} to {last}: {checked} findings checked, {} wrong, {} missed, {:.0} s",
            self.first, self.wrong, self.missed, self.seconds
        )
    }
}

/// Compares findings, and shrinks the first failing seeds.
pub fn run(args: &LintArgs) -> LintReport {
    /// Failing seeds that are shrunk.
    const MAX_EXAMPLES: usize = 3;
    let end = args.seed.saturating_add(args.seeds);
    let summary = over_seeds(
        (args.seed, end),
        args.threads,
        compare,
        |(report, failed): &mut (LintReport, Vec<u64>), seed, compared| {
            if !compared.is_right() {
                failed.push(seed);
            }
            for (code, n) in &compared.right {
                *report.right.entry(code).or_default() += n;
            }
            report.wrong += u64::try_from(compared.wrong.len()).unwrap_or(u64::MAX);
            report.missed += u64::try_from(compared.missed.len()).unwrap_or(u64::MAX);
            false
        },
    );
    let (mut report, mut failed) = summary.total;
    failed.sort_unstable();
    for seed in failed.iter().take(MAX_EXAMPLES) {
        report.examples.push(example(*seed));
    }
    report.first = args.seed;
    report.seeds = args.seeds;
    report.seconds = summary.seconds;
    report
}

fn example(seed: u64) -> String {
    let (all, dns) = objects(seed);
    let small = shrink::shrink(all, &dns);
    let compared = compare_objects(&small, &dns);
    let mut lines = vec![format!("seed {seed}:")];
    lines.extend(small.iter().map(|it| format!("  {it}")));
    lines.extend(dns.iter().map(|(name, at)| format!("  dns {name} {at}")));
    lines.extend(compared.wrong.iter().map(|it| format!("  wrong: {it}")));
    lines.extend(compared.missed.iter().map(|it| format!("  missed: {it}")));
    lines.join("\n")
}
