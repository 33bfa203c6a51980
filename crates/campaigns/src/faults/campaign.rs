//! The families at full size or at a size for every day: `palisade-campaigns faults`.

use std::io::Write as _;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use palisade_lab::privilege::RequiredPrivilege;

use super::families::family;

use palisade_lab::privilege::stay_inside;

/// A family of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Family {
    /// That wrong updates are seen at all
    Harness,
    /// F01: pods that send before they are known
    Start,
    /// F02: addresses that change hands
    Reuse,
    /// F03: connections that run while their policy changes
    Established,
    /// F04: updates under load
    Update,
    /// F04: packets between two questions when the kernel flips
    Torn,
    /// F04: whoever programs the kernel is killed
    Kill,
    /// F05: the kernel refuses
    Errno,
    /// F06: others on the node
    Foreign,
    /// F13: packets in pieces, and untracked ones
    Fragments,
}

/// All of them, in order.
pub const FAMILIES: &[Family] = &[
    Family::Harness,
    Family::Start,
    Family::Reuse,
    Family::Established,
    Family::Update,
    Family::Torn,
    Family::Kill,
    Family::Errno,
    Family::Foreign,
    Family::Fragments,
];

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

/// Runs families and tells of each as it is done. Says whether all held.
pub fn faults(args: &FaultsArgs) -> Result<bool> {
    stay_inside(RequiredPrivilege::Any)?;
    let size = if args.full { Size::Full } else { Size::Small };
    let families = match args.families.as_slice() {
        [] => FAMILIES,
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
