//! Facts of the kernel that `docs/internals/facts.md` states, measured once more. Those that need a
//! cluster are in `palisade-e2e facts`.

pub mod crowd;
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

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Question {
    /// How soon connections stop that are not allowed any more, among very many (D94); needs namespaces only
    Established,
    /// Which frames of a bridge are judged, for each family and setting, and whether the agent says so if they are not
    /// (D103); needs namespaces and the program `ip`
    Frames,
}

/// Which, and with what.
#[derive(Args, Debug)]
pub struct FactsArgs {
    /// What is asked
    pub question: Question,
    /// So many connections at most
    #[arg(long, default_value_t = 100_000)]
    pub connections: usize,
    /// How often each change is made
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

/// What was found, and what of it is not as the specification decides.
#[derive(Debug, Default)]
pub struct Findings {
    found: Vec<String>,
    /// What is not as it was decided.
    pub differs: Vec<String>,
}

impl Findings {
    /// Something that was seen.
    pub fn note(&mut self, words: impl Into<String>) {
        self.found.push(words.into());
    }

    /// Something that was seen, and whether it is as decided.
    pub fn expect(&mut self, is_so: bool, words: impl Into<String>) {
        let words = words.into();
        if !is_so {
            self.differs.push(words.clone());
        }
        let word = if is_so { "as stated" } else { "DIFFERS" };
        self.found.push(format!("{word}: {words}"));
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.found {
            writeln!(f, "{line}")?;
        }
        write!(
            f,
            "{} findings, {} differ",
            self.found.len(),
            self.differs.len()
        )
    }
}

/// Asks, and tells the answers. Says whether all is as decided.
pub fn facts(args: &FactsArgs) -> Result<bool> {
    match args.question {
        Question::Established => established(args),
        Question::Frames => {
            stay_inside(RequiredPrivilege::Any)?;
            let mut holds = true;
            for findings in [frames::frames()?, frames::noticed(&args.palisade()?)?] {
                holds &= findings.differs.is_empty();
                writeln!(std::io::stdout(), "{findings}")?;
            }
            Ok(holds)
        }
    }
}

/// With ten connections, a thousand, and as many as were asked for.
fn established(args: &FactsArgs) -> Result<bool> {
    stay_inside(RequiredPrivilege::Any)?;
    let mut holds = true;
    let mut tell = |outcome: &Outcome, started: Instant| -> Result<()> {
        holds &= outcome.broken.is_empty();
        let seconds = started.elapsed().as_secs_f64();
        writeln!(std::io::stdout(), "{outcome}\n  took {seconds:.1} s")?;
        Ok(())
    };
    for connections in [10, 1_000, args.connections] {
        for how in cut::HOW {
            let started = Instant::now();
            tell(&cut::cut(how, connections, args.changes)?, started)?;
        }
        let started = Instant::now();
        tell(&sweep::sweep(connections, args.changes.min(5))?, started)?;
        let started = Instant::now();
        tell(&sweep::at_the_turn(connections)?, started)?;
        let started = Instant::now();
        tell(&sweep::changed_hands(connections)?, started)?;
    }
    Ok(holds)
}
