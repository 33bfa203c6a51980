//! The families at full size or at a size for every day: `palisade-bench faults`.

use std::io::Write as _;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use palisade_lab::enter::{Want, enter};

use super::outcome::Outcome;
use super::programming::Swap;
use super::stage::Stage;
use super::{established, start, update};

/// A family of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Family {
    /// That wrong updates are seen at all
    Harness,
    /// F04: updates under load
    Update,
    /// F03: connections that run while their policy changes
    Established,
    /// F01: pods that send before they are known
    Start,
}

/// All of them, in order.
pub const FAMILIES: [Family; 4] = [Family::Harness, Family::Update, Family::Established, Family::Start];

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// What fits into every run of the tests.
    Small,
    /// As much as the goals ask for.
    Full,
}

impl Size {
    /// One of two numbers.
    pub fn of(self, small: u64, full: u64) -> u64 {
        match self {
            Size::Small => small,
            Size::Full => full,
        }
    }
}

/// What to try.
#[derive(Args, Clone, Debug)]
pub struct FaultsArgs {
    /// The families; all of them if none is named
    families: Vec<Family>,
    /// As much as the goals ask for, instead of a minute's worth
    #[arg(long)]
    full: bool,
    /// The seed of all choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs a family.
pub fn family(family: Family, size: Size, seed: u64) -> Result<Vec<Outcome>> {
    let one = |outcome: Result<Outcome>| Ok(vec![outcome?]);
    match family {
        Family::Harness => one(update::mistakes(seed)),
        Family::Start => {
            let stage = Stage::build()?;
            let mut swap = Swap::open(&stage)?;
            one(start::starts(
                "F01/start/swap",
                &stage,
                &mut swap,
                size.of(100, 10_000),
                seed,
            ))
        }
        Family::Established => {
            let stage = Stage::build()?;
            let mut swap = Swap::open(&stage)?;
            let cuts = size.of(30, 500);
            one(established::cuts("F03/established/swap", &stage, &mut swap, cuts))
        }
        Family::Update => one(update::swaps(&Stage::build()?, size.of(300, 10_000), seed)),
    }
}

/// Runs families and tells of each as it is done. Says whether all held. The process must have one
/// thread.
pub fn faults(args: &FaultsArgs) -> Result<bool> {
    enter(Want::Any).context("cannot make network namespaces")?;
    let size = if args.full { Size::Full } else { Size::Small };
    let families = match args.families.as_slice() {
        [] => &FAMILIES,
        some => some,
    };
    let mut holds = true;
    for one in families {
        let started = Instant::now();
        let outcomes = family(*one, size, args.seed).with_context(|| format!("{one:?}"))?;
        for outcome in outcomes {
            holds &= outcome.broken.is_empty();
            writeln!(std::io::stdout(), "{outcome}")?;
        }
        let seconds = started.elapsed().as_secs_f64();
        writeln!(std::io::stdout(), "  {one:?} took {seconds:.1} s")?;
    }
    Ok(holds)
}
