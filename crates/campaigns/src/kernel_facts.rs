//! Measures facts of the kernel that `docs/internals/facts.md` states. Facts that need a cluster
//! are in `palisade-e2e facts`.

pub mod connections;
pub mod cut;
pub mod frames;
pub mod sweep;

use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::{Args, ValueEnum};
use palisade_lab::privilege::RequiredPrivilege;

use crate::faults::outcome::Outcome;
use palisade_lab::privilege::stay_inside;

/// A fact to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fact {
    /// The time until denied connections stop, among very many (D94); needs namespaces only
    Established,
    /// The frames of a bridge that nftables evaluates, for each family and setting, and whether the
    /// agent reports a bypass (D103); needs namespaces and the program `ip`
    Frames,
}

/// Arguments of `facts`.
#[derive(Args, Debug)]
pub struct FactsArgs {
    /// The fact
    pub fact: Fact,
    /// The maximum number of connections
    #[arg(long, default_value_t = 100_000)]
    pub connections: usize,
    /// The number of times that each change is made
    #[arg(long, default_value_t = 20)]
    pub changes: u64,
    /// The program to install [default: the one beside this]
    #[arg(long, value_name = "PATH")]
    pub palisade: Option<PathBuf>,
}

impl FactsArgs {
    fn palisade(&self) -> Result<PathBuf> {
        Ok(match &self.palisade {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("palisade"),
        })
    }
}

/// Measurements, and those that differ from the documentation.
#[derive(Debug, Default)]
pub struct Findings {
    lines: Vec<String>,
    /// The measurements that differ.
    pub differs: Vec<String>,
}

impl Findings {
    /// Records a measurement.
    pub fn record(&mut self, words: impl Into<String>) {
        self.lines.push(words.into());
    }

    /// Records a measurement, and whether it is as documented.
    pub fn expect(&mut self, is_expected: bool, words: impl Into<String>) {
        let words = words.into();
        if !is_expected {
            self.differs.push(words.clone());
        }
        let prefix = if is_expected { "as stated" } else { "DIFFERS" };
        self.lines.push(format!("{prefix}: {words}"));
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        write!(
            f,
            "{} findings, {} differ",
            self.lines.len(),
            self.differs.len()
        )
    }
}

/// Measures a fact, and prints the findings. Returns whether all are as documented.
pub fn facts(args: &FactsArgs) -> Result<bool> {
    match args.fact {
        Fact::Established => established(args),
        Fact::Frames => {
            stay_inside(RequiredPrivilege::Any)?;
            let mut holds = true;
            for findings in [frames::frames()?, frames::readiness(&args.palisade()?)?] {
                holds &= findings.differs.is_empty();
                writeln!(std::io::stdout(), "{findings}")?;
            }
            Ok(holds)
        }
    }
}

/// Measures with ten, a thousand and the maximum number of connections.
fn established(args: &FactsArgs) -> Result<bool> {
    stay_inside(RequiredPrivilege::Any)?;
    let mut holds = true;
    let mut print = |outcome: &Outcome, started: Instant| -> Result<()> {
        holds &= outcome.violations.is_empty();
        let seconds = started.elapsed().as_secs_f64();
        writeln!(std::io::stdout(), "{outcome}\n  took {seconds:.1} s")?;
        Ok(())
    };
    for connections in [10, 1_000, args.connections] {
        for how in cut::WAYS {
            let started = Instant::now();
            print(&cut::cut(how, connections, args.changes)?, started)?;
        }
        let started = Instant::now();
        print(&sweep::sweep(connections, args.changes.min(5))?, started)?;
        let started = Instant::now();
        print(&sweep::at_wraparound(connections)?, started)?;
        let started = Instant::now();
        print(&sweep::moved_address(connections)?, started)?;
    }
    Ok(holds)
}
