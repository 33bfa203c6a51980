//! `palisade-campaigns cells`: compares any number of cells, on several threads.

use std::fmt;

use clap::Args;

use super::{Compared, compare};
use crate::seeds::over_seeds;

/// Arguments of `cells`.
#[derive(Args, Clone, Debug)]
pub struct CellsArgs {
    /// The number of cells to compare
    #[arg(long, default_value_t = 10_000_000)]
    pub cells: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Threads
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Compare one seed only
    #[arg(long)]
    pub replay: Option<u64>,
}

/// The result of a run.
#[derive(Debug)]
pub struct CellsReport {
    first: u64,
    seeds: u64,
    seconds: f64,
    /// The sum over all seeds.
    pub compared: Compared,
}

impl fmt::Display for CellsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for difference in &self.compared.differences {
            writeln!(f, "{difference}")?;
        }
        let last = self.first + self.seeds.saturating_sub(1);
        writeln!(
            f,
            "seeds {} to {last}: {} cells of the fold equal single decisions, {} of them compared with the oracle, {} differences, {:.0} s",
            self.first,
            self.compared.cells,
            self.compared.oracle_cells,
            self.compared.differences.len(),
            self.seconds
        )
    }
}

/// Compares cells. Stops after 20 differences.
pub fn cells(args: &CellsArgs) -> CellsReport {
    let (first, wanted, threads) = match args.replay {
        Some(seed) => (seed, 0, 1),
        None => (args.seed, args.cells, args.threads),
    };
    let summary = over_seeds(
        (first, u64::MAX),
        threads,
        compare,
        |all: &mut Compared, _, compared| {
            all.cells += compared.cells;
            all.oracle_cells += compared.oracle_cells;
            all.differences.extend(compared.differences);
            all.cells >= wanted || all.differences.len() >= 20
        },
    );
    CellsReport {
        first,
        seeds: summary.seeds,
        seconds: summary.seconds,
        compared: summary.total,
    }
}
