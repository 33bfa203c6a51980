//! `palisade-campaigns agree`: compares any number of verdicts, on several threads.

use std::fmt;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Args;

use super::{Difference, compare};

/// Arguments of `agree`.
#[derive(Args, Clone, Debug)]
pub struct AgreeArgs {
    /// The number of answers to compare
    #[arg(long, default_value_t = 1_000_000_000)]
    pub verdicts: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Flow queries for each seed's cluster
    #[arg(long, default_value_t = 300)]
    pub queries: usize,
    /// Threads
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Compare one seed only, and print the shrunk difference if there is one
    #[arg(long)]
    pub replay: Option<u64>,
}

/// The result of a run.
#[derive(Debug)]
pub struct AgreeReport {
    first: u64,
    seeds: u64,
    verdicts: u64,
    unanswered: u64,
    seconds: f64,
    /// The differences.
    pub differences: Vec<Difference>,
}

impl fmt::Display for AgreeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for difference in &self.differences {
            writeln!(f, "{difference}\n")?;
        }
        let last = self.first + self.seeds.saturating_sub(1);
        writeln!(
            f,
            "seeds {} to {last}: {} answers agree, {} queries have no answer, {} differences, {:.0} s",
            self.first,
            self.verdicts,
            self.unanswered,
            self.differences.len(),
            self.seconds
        )
    }
}

/// Compares engine and oracle. Stops after 20 differences.
pub fn agree(args: &AgreeArgs) -> AgreeReport {
    let start = Instant::now();
    let (first, wanted) = match args.replay {
        Some(seed) => (seed, 0),
        None => (args.seed, args.verdicts),
    };
    let next = AtomicU64::new(first);
    let verdicts = AtomicU64::new(0);
    let unanswered = AtomicU64::new(0);
    let differences = Mutex::new(Vec::new());
    let count = || differences.lock().map_or(usize::MAX, |it| it.len());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let compared = compare(seed, args.queries);
            let before = verdicts.fetch_add(compared.verdicts, Ordering::Relaxed);
            unanswered.fetch_add(compared.unanswered, Ordering::Relaxed);
            if let Ok(mut all) = differences.lock() {
                all.extend(compared.differences);
            }
            if (seed - first) % 10_000 == 9_999 {
                let (seconds, so_far) = (start.elapsed().as_secs(), before + compared.verdicts);
                let line = format!("{so_far} answers up to seed {seed} after {seconds} s");
                // Progress only: a closed standard error is no failure.
                let _ = writeln!(std::io::stderr(), "{line}");
            }
            if before + compared.verdicts >= wanted || count() >= 20 {
                break;
            }
        }
    };
    let threads = if args.replay.is_some() {
        1
    } else {
        args.threads.max(1)
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    AgreeReport {
        first,
        seeds: next.load(Ordering::Relaxed) - first,
        verdicts: verdicts.load(Ordering::Relaxed),
        unanswered: unanswered.load(Ordering::Relaxed),
        seconds: start.elapsed().as_secs_f64(),
        differences: differences.into_inner().unwrap_or_default(),
    }
}
