//! The families at full size or at a size for every day: `palisade-bench faults`.

use std::io::Write as _;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use palisade_lab::enter::{Want, enter};
use palisade_nft::Kernel;

use super::deltas::{Deltas, Running};
use super::fragments::Untracked;
use super::outcome::Outcome;
use super::programming::{Programming, Swap};
use super::script::Script;
use super::stage::Stage;
use super::{errno, established, fragments, kill, mistakes, reuse, sockets, start, update};

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
    /// F04: whoever programs the kernel is killed
    Kill,
    /// F05: the kernel refuses
    Errno,
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
    Family::Kill,
    Family::Errno,
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

/// Runs a family.
pub fn family(family: Family, size: Size, seed: u64) -> Result<Vec<Outcome>> {
    match family {
        Family::Harness => Ok(vec![mistakes::mistakes(seed)?]),
        Family::Start => each(|way, stage, programming| {
            let name = ["F01/start/swap", "F01/start/deltas"];
            start::starts(way.of(name), stage, programming, size.of(100, 10_000), seed)
        }),
        Family::Reuse => each(|way, stage, programming| {
            let name = ["F02/reuse/swap", "F02/reuse/deltas"];
            reuse::histories(way.of(name), stage, programming, size.of(4, 400), seed)
        }),
        Family::Established => {
            let mut outcomes = each(|way, stage, programming| {
                let name = ["F03/established/swap", "F03/established/deltas"];
                established::cuts(way.of(name), stage, programming, size.of(30, 500))
            })?;
            outcomes.push(established::kept("F03/established/kept", size.of(5, 100))?);
            outcomes.push(sockets::streams("F03/established/sockets", size.of(2, 50))?);
            Ok(outcomes)
        }
        Family::Update => each(|way, stage, programming| {
            let name = ["F04/update/swap", "F04/update/deltas"];
            update::under_load(way.of(name), stage, programming, size.of(300, 10_000), seed)
        }),
        Family::Kill => {
            let (kills, step) = (size.of(20, 500), size.of(6, 1));
            let mut outcomes = Vec::new();
            for (deltas, name, every_call) in [
                (false, "F04/kill/swap", "F04/kill/swap, at every call"),
                (true, "F04/kill/deltas", "F04/kill/deltas, at every call"),
            ] {
                let stage = Stage::build()?;
                outcomes.push(kill::kills(name, &stage, deltas, kills, seed)?);
                let stage = Stage::build()?;
                let ends = kill::at_every_call(every_call, &stage, deltas, step, seed)?;
                outcomes.push(ends);
            }
            Ok(outcomes)
        }
        Family::Errno => {
            let mut outcomes = each(|way, stage, _| {
                let name = ["F05/errno/swap", "F05/errno/deltas"];
                let script = Script::default();
                let mut programming = way.open(stage, Some(&script))?;
                let everything = size == Size::Full;
                errno::errors(
                    way.of(name),
                    stage,
                    &mut *programming,
                    &script,
                    everything,
                    seed,
                )
            })?;
            outcomes.extend(each(|way, stage, programming| {
                let name = ["F05/full sets/swap", "F05/full sets/deltas"];
                errno::crowds(way.of(name), stage, programming, 2_000)
            })?);
            let stage = Stage::build()?;
            let mut programming = Way::Swap.open(&stage, None)?;
            let name = "F05/full connection tracking";
            outcomes.push(errno::full_conntrack(name, &stage, &mut *programming)?);
            Ok(outcomes)
        }
        Family::Fragments => each(|way, stage, programming| {
            let name = ["F13/fragments/swap", "F13/fragments/deltas"];
            let untracked = match way {
                Way::Swap => Untracked::Named,
                Way::Deltas => Untracked::None,
            };
            let (name, updates) = (way.of(name), size.of(100, 2_000));
            fragments::under_change(name, stage, programming, untracked, updates, seed)
        }),
    }
}

/// A way to change the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Another whole table for each change.
    Swap,
    /// By the agent, which changes what is different.
    Deltas,
}

/// All of them.
const WAYS: &[Way] = &[Way::Swap, Way::Deltas];

impl Way {
    fn of(self, [swap, deltas]: [&'static str; 2]) -> &'static str {
        match self {
            Way::Swap => swap,
            Way::Deltas => deltas,
        }
    }

    /// Opens the node's kernel, with faults if there are any.
    fn open(self, stage: &Stage, script: Option<&Script>) -> Result<Box<dyn Programming>> {
        let kernel = stage.on_node(|| Ok(Kernel::open()?))?;
        let kernel = match script {
            Some(script) => kernel.with_faults(Box::new(script.clone())),
            None => kernel,
        };
        stage.on_node(|| {
            let programming: Box<dyn Programming> = match self {
                Way::Swap => Box::new(Swap::with(kernel)?),
                Way::Deltas => Box::new(Deltas::with(kernel, Running::Judged)?),
            };
            Ok(programming)
        })
    }
}

/// Does the same in every way to change the kernel, each on a stage of its own.
fn each(
    run: impl Fn(Way, &Stage, &mut dyn Programming) -> Result<Outcome>,
) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for way in WAYS {
        let stage = Stage::build()?;
        let mut programming = way.open(&stage, None)?;
        outcomes.push(run(*way, &stage, programming.as_mut())?);
    }
    Ok(outcomes)
}

/// Runs families and tells of each as it is done. Says whether all held. The process must have one
/// thread.
pub fn faults(args: &FaultsArgs) -> Result<bool> {
    enter(Want::Any).context("cannot make network namespaces")?;
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
