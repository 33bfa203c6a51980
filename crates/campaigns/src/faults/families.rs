//! The runs of each family: the ways to program the kernel, and the numbers.

use std::fmt;

use anyhow::Result;
use palisade_agent::Established;
use palisade_nft::Kernel;

use super::campaign::{Family, Size};
use super::deltas::Deltas;
use super::outcome::Outcome;
use super::process::Process;
use super::programmer::{Programmer, Swap};
use super::script::Script;
use super::test_node::TestNode;
use super::torn::CHANGES;
use super::{
    errno, established, foreign, fragments, kill, mistakes, reuse, sockets, start, torn, update,
};

/// A way to program the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgrammingWay {
    /// A swap of the whole table for each change.
    Swap,
    /// The agent's loop, which updates the table.
    Deltas,
    /// The agent as a process, with a directory as its source.
    Process,
}

/// All ways.
const ALL_WAYS: [ProgrammingWay; 3] = [
    ProgrammingWay::Swap,
    ProgrammingWay::Deltas,
    ProgrammingWay::Process,
];
/// The ways that accept injected faults.
const IN_PROCESS: [ProgrammingWay; 2] = [ProgrammingWay::Swap, ProgrammingWay::Deltas];

impl fmt::Display for ProgrammingWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProgrammingWay::Swap => "swap",
            ProgrammingWay::Deltas => "deltas",
            ProgrammingWay::Process => "process",
        })
    }
}

impl ProgrammingWay {
    /// Selects the number for this way. A process is slow, and runs fewer times.
    fn of(self, size: Size, small: [u64; 3], full: [u64; 3]) -> u64 {
        let [swap, deltas, process] = match size {
            Size::Small => small,
            Size::Full => full,
        };
        match self {
            ProgrammingWay::Swap => swap,
            ProgrammingWay::Deltas => deltas,
            ProgrammingWay::Process => process,
        }
    }

    /// Opens the node's kernel, with injected faults if there is a script.
    fn open(self, node: &TestNode, script: Option<&Script>) -> Result<Box<dyn Programmer>> {
        let kernel = node.on_node(|| Ok(Kernel::open()?))?;
        let kernel = match script {
            Some(script) => kernel.with_faults(Box::new(script.clone())),
            None => kernel,
        };
        node.on_node(|| {
            let programmer: Box<dyn Programmer> = match self {
                ProgrammingWay::Swap => Box::new(Swap::with(kernel)?),
                ProgrammingWay::Deltas => Box::new(Deltas::with(kernel, Established::Evaluate)?),
                ProgrammingWay::Process => Box::new(Process::start(node)?),
            };
            Ok(programmer)
        })
    }
}

/// Runs a test in several ways, each on a node of its own.
fn each(
    ways: &[ProgrammingWay],
    run: impl Fn(ProgrammingWay, &TestNode, &mut dyn Programmer) -> Result<Outcome>,
) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for way in ways {
        let node = TestNode::build()?;
        let mut programmer = way.open(&node, None)?;
        let mut outcome = run(*way, &node, programmer.as_mut())?;
        outcome.name = format!("{}, {way}", outcome.name);
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// Runs a family.
pub fn family(family: Family, size: Size, seed: u64) -> Result<Vec<Outcome>> {
    match family {
        Family::Harness => Ok(vec![mistakes::mistakes(seed)?]),
        Family::Start => each(&ALL_WAYS, |way, node, programmer| {
            let pods = way.of(size, [40, 100, 6], [10_000, 10_000, 500]);
            start::starts("F01/start", node, programmer, pods, seed)
        }),
        Family::Reuse => each(&ALL_WAYS, |way, node, programmer| {
            let (small, full) = ([2, 4, 1], [100, 400, 10]);
            let histories = way.of(size, small, full);
            reuse::histories("F02/reuse", node, programmer, histories, seed)
        }),
        Family::Established => established_family(size),
        Family::Update => each(&ALL_WAYS, |way, node, programmer| {
            let updates = way.of(size, [100, 300, 20], [10_000, 10_000, 500]);
            update::under_load("F04/update", node, programmer, updates, seed)
        }),
        Family::Torn => {
            let mut outcomes = Vec::new();
            for change in CHANGES {
                outcomes.extend(each(&IN_PROCESS, |way, node, programmer| {
                    let updates = way.of(size, [10, 100, 0], [2_000, 10_000, 0]);
                    torn::changes(node, programmer, change, updates)
                })?);
            }
            Ok(outcomes)
        }
        Family::Kill => kill_family(size, seed),
        Family::Errno => errno_family(size, seed),
        Family::Foreign => {
            let rounds = size.of(1, 20);
            Ok(vec![
                foreign::owned("F06/foreign, owned", seed)?,
                foreign::repaired("F06/foreign, repaired", rounds, seed)?,
            ])
        }
        Family::Fragments => each(&IN_PROCESS, |way, node, programmer| {
            let updates = way.of(size, [50, 100, 0], [2_000, 2_000, 0]);
            fragments::under_change("F13/fragments", node, programmer, updates, seed)
        }),
    }
}

fn established_family(size: Size) -> Result<Vec<Outcome>> {
    let mut outcomes = each(&ALL_WAYS, |way, node, programmer| {
        let rounds = way.of(size, [10, 20, 2], [500, 500, 50]);
        established::cuts("F03/established", node, programmer, rounds)
    })?;
    outcomes.push(established::kept("F03/established, kept", size.of(3, 100))?);
    outcomes.push(sockets::streams(
        "F03/established, sockets",
        size.of(1, 50),
    )?);
    Ok(outcomes)
}

fn kill_family(size: Size, seed: u64) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for (way, deltas) in [
        (ProgrammingWay::Swap, false),
        (ProgrammingWay::Deltas, true),
    ] {
        let kills = way.of(size, [10, 20, 0], [500, 500, 0]);
        let mut outcome = kill::kills("F04/kill", &TestNode::build()?, deltas, kills, seed)?;
        outcome.name = format!("{}, {way}", outcome.name);
        outcomes.push(outcome);
        let step = way.of(size, [8, 3, 0], [1, 1, 0]);
        let node = TestNode::build()?;
        let mut outcome = kill::at_every_call("F04/kill", &node, deltas, step, seed)?;
        outcome.name = format!("{}, {way}, at every call", outcome.name);
        outcomes.push(outcome);
    }
    let (node, kills) = (TestNode::build()?, size.of(10, 300));
    outcomes.push(kill::agents("F04/kill, process", &node, kills, seed)?);
    Ok(outcomes)
}

fn errno_family(size: Size, seed: u64) -> Result<Vec<Outcome>> {
    let mut outcomes = each(&IN_PROCESS, |way, node, _| {
        let script = Script::default();
        let mut programmer = way.open(node, Some(&script))?;
        let programmer = programmer.as_mut();
        let tries = way.of(size, [1, 2, 0], [u64::MAX, u64::MAX, 0]);
        errno::errors("F05/errno", node, programmer, &script, tries, seed)
    })?;
    outcomes.extend(each(&IN_PROCESS, |_, node, programmer| {
        errno::full_sets("F05/full sets", node, programmer, 2_000)
    })?);
    let node = TestNode::build()?;
    let mut programmer = ProgrammingWay::Deltas.open(&node, None)?;
    let name = "F05/full connection tracking";
    outcomes.push(errno::full_conntrack(name, &node, programmer.as_mut())?);
    Ok(outcomes)
}
