//! `palisade-campaigns faults`: the families, at full or at everyday size.

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
    /// Wrong updates, which must be detected
    Harness,
    /// F01: pods that send before their node knows them
    Start,
    /// F02: addresses that change owners
    Reuse,
    /// F03: established connections whose policy changes
    Established,
    /// F04: updates under load
    Update,
    /// F04: packets in flight during a commit
    Torn,
    /// F04: the programming process is killed
    Kill,
    /// F05: the kernel returns errors
    Errno,
    /// F06: other programs on the node
    Foreign,
    /// F13: fragments and untracked packets
    Fragments,
}

/// All of them, in order.
pub const ALL: &[Family] = &[
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

/// The size of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A minute, for every run of the tests.
    Small,
    /// The size of the goals.
    Full,
}

impl Size {
    /// Selects one of two numbers.
    pub fn of(self, small: u64, full: u64) -> u64 {
        match self {
            Size::Small => small,
            Size::Full => full,
        }
    }
}

/// Arguments of `faults`.
#[derive(Args, Clone, Debug)]
pub struct FaultsArgs {
    /// The families; by default all
    families: Vec<Family>,
    /// Run at the size of the goals, instead of for a minute
    #[arg(long)]
    full: bool,
    /// The seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs families, and prints the outcome of each. Returns whether all hold.
pub fn faults(args: &FaultsArgs) -> Result<bool> {
    stay_inside(RequiredPrivilege::Any)?;
    let size = if args.full { Size::Full } else { Size::Small };
    let families = match args.families.as_slice() {
        [] => ALL,
        some => some,
    };
    let mut holds = true;
    for one in families {
        let started = Instant::now();
        let outcomes = family(*one, size, args.seed).with_context(|| format!("{one:?}"))?;
        for outcome in outcomes {
            holds &= outcome.violations.is_empty();
            writeln!(std::io::stdout(), "{outcome}")?;
        }
        let seconds = started.elapsed().as_secs_f64();
        writeln!(std::io::stdout(), "  {one:?} took {seconds:.1} s")?;
    }
    Ok(holds)
}
