//! What each family tries, in which ways and how often.

use std::fmt;

use anyhow::Result;
use palisade_nft::Kernel;

use super::campaign::{Family, Size};
use super::deltas::{Deltas, Running};
use super::outcome::Outcome;
use super::process::Process;
use super::programming::{Programming, Swap};
use super::script::Script;
use super::test_node::TestNode;
use super::torn::CHANGES;
use super::{
    errno, established, foreign, fragments, kill, mistakes, reuse, sockets, start, torn, update,
};

/// A way to change the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Another whole table for each change.
    Swap,
    /// By the agent, which changes what is different.
    Deltas,
    /// By the agent as a process, with a directory as its source.
    Process,
}

/// All of them.
const EVERY: [Way; 3] = [Way::Swap, Way::Deltas, Way::Process];
/// Those that let faults be put between them and the kernel.
const INSIDE: [Way; 2] = [Way::Swap, Way::Deltas];

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Swap => "swap",
            Way::Deltas => "deltas",
            Way::Process => "process",
        })
    }
}

impl Way {
    /// The number for this way. A process takes its time, and is asked less often.
    fn of(self, size: Size, small: [u64; 3], full: [u64; 3]) -> u64 {
        let [swap, deltas, process] = match size {
            Size::Small => small,
            Size::Full => full,
        };
        match self {
            Way::Swap => swap,
            Way::Deltas => deltas,
            Way::Process => process,
        }
    }

    /// Opens the node's kernel, with faults if there are any.
    fn open(self, stage: &TestNode, script: Option<&Script>) -> Result<Box<dyn Programming>> {
        let kernel = stage.on_node(|| Ok(Kernel::open()?))?;
        let kernel = match script {
            Some(script) => kernel.with_faults(Box::new(script.clone())),
            None => kernel,
        };
        stage.on_node(|| {
            let programming: Box<dyn Programming> = match self {
                Way::Swap => Box::new(Swap::with(kernel)?),
                Way::Deltas => Box::new(Deltas::with(kernel, Running::Judged)?),
                Way::Process => Box::new(Process::start(stage)?),
            };
            Ok(programming)
        })
    }
}

/// Does the same in several ways, each on a stage of its own.
fn each(
    ways: &[Way],
    run: impl Fn(Way, &TestNode, &mut dyn Programming) -> Result<Outcome>,
) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for way in ways {
        let stage = TestNode::build()?;
        let mut programming = way.open(&stage, None)?;
        let mut outcome = run(*way, &stage, programming.as_mut())?;
        outcome.name = format!("{}, {way}", outcome.name);
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// Runs a family.
pub fn family(family: Family, size: Size, seed: u64) -> Result<Vec<Outcome>> {
    match family {
        Family::Harness => Ok(vec![mistakes::mistakes(seed)?]),
        Family::Start => each(&EVERY, |way, stage, programming| {
            let pods = way.of(size, [40, 100, 6], [10_000, 10_000, 500]);
            start::starts("F01/start", stage, programming, pods, seed)
        }),
        Family::Reuse => each(&EVERY, |way, stage, programming| {
            let (small, full) = ([2, 4, 1], [100, 400, 10]);
            let histories = way.of(size, small, full);
            reuse::histories("F02/reuse", stage, programming, histories, seed)
        }),
        Family::Established => running(size),
        Family::Update => each(&EVERY, |way, stage, programming| {
            let updates = way.of(size, [100, 300, 20], [10_000, 10_000, 500]);
            update::under_load("F04/update", stage, programming, updates, seed)
        }),
        Family::Torn => {
            let mut outcomes = Vec::new();
            for change in CHANGES {
                outcomes.extend(each(&INSIDE, |way, stage, programming| {
                    let updates = way.of(size, [10, 100, 0], [2_000, 10_000, 0]);
                    torn::changes(stage, programming, change, updates)
                })?);
            }
            Ok(outcomes)
        }
        Family::Kill => killed(size, seed),
        Family::Errno => refused(size, seed),
        Family::Foreign => {
            let rounds = size.of(1, 20);
            Ok(vec![
                foreign::owned("F06/foreign, owned", seed)?,
                foreign::repaired("F06/foreign, repaired", rounds, seed)?,
            ])
        }
        Family::Fragments => each(&INSIDE, |way, stage, programming| {
            let updates = way.of(size, [50, 100, 0], [2_000, 2_000, 0]);
            fragments::under_change("F13/fragments", stage, programming, updates, seed)
        }),
    }
}

fn running(size: Size) -> Result<Vec<Outcome>> {
    let mut outcomes = each(&EVERY, |way, stage, programming| {
        let rounds = way.of(size, [10, 20, 2], [500, 500, 50]);
        established::cuts("F03/established", stage, programming, rounds)
    })?;
    outcomes.push(established::kept("F03/established, kept", size.of(3, 100))?);
    outcomes.push(sockets::streams(
        "F03/established, sockets",
        size.of(1, 50),
    )?);
    Ok(outcomes)
}

fn killed(size: Size, seed: u64) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for (way, deltas) in [(Way::Swap, false), (Way::Deltas, true)] {
        let kills = way.of(size, [10, 20, 0], [500, 500, 0]);
        let mut outcome = kill::kills("F04/kill", &TestNode::build()?, deltas, kills, seed)?;
        outcome.name = format!("{}, {way}", outcome.name);
        outcomes.push(outcome);
        let step = way.of(size, [8, 3, 0], [1, 1, 0]);
        let stage = TestNode::build()?;
        let mut outcome = kill::at_every_call("F04/kill", &stage, deltas, step, seed)?;
        outcome.name = format!("{}, {way}, at every call", outcome.name);
        outcomes.push(outcome);
    }
    let (stage, kills) = (TestNode::build()?, size.of(10, 300));
    outcomes.push(kill::agents("F04/kill, process", &stage, kills, seed)?);
    Ok(outcomes)
}

fn refused(size: Size, seed: u64) -> Result<Vec<Outcome>> {
    let mut outcomes = each(&INSIDE, |way, stage, _| {
        let script = Script::default();
        let mut programming = way.open(stage, Some(&script))?;
        let programming = programming.as_mut();
        let tries = way.of(size, [1, 2, 0], [u64::MAX, u64::MAX, 0]);
        errno::errors("F05/errno", stage, programming, &script, tries, seed)
    })?;
    outcomes.extend(each(&INSIDE, |_, stage, programming| {
        errno::crowds("F05/full sets", stage, programming, 2_000)
    })?);
    let stage = TestNode::build()?;
    let mut programming = Way::Deltas.open(&stage, None)?;
    let name = "F05/full connection tracking";
    outcomes.push(errno::full_conntrack(name, &stage, programming.as_mut())?);
    Ok(outcomes)
}
