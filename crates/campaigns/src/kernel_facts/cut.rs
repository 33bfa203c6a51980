//! How soon connections stop that are not allowed any more, where there are very many of them.

use std::fmt;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use palisade_nft::{Conntrack, Kernel};

use super::crowd::{Crowd, Watched, objects};
use crate::faults::crafted::Way;
use crate::faults::deltas::{Deltas, Running};
use crate::faults::outcome::Outcome;
use crate::faults::process::Process;
use crate::faults::programming::Programming;
use crate::faults::test_node::TestNode;

/// What D94 allows, in nanoseconds.
pub const BAR: u64 = 5_000_000_000;
/// Between two changes.
const PAUSE: Duration = Duration::from_millis(60);

/// How the kernel is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By what the agent decides, told of the change at once.
    Decided,
    /// By the agent as a process, which finds the change in a directory.
    Process,
}

/// Both.
pub const HOW: [How; 2] = [How::Decided, How::Process];

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            How::Decided => "from the change being known",
            How::Process => "from the change being written",
        })
    }
}

/// Shuts a door so many times while packets go through it; then sends a packet of each of all connections.
pub fn cut(how: How, connections: usize, times: u64) -> Result<Outcome> {
    let mut outcome = Outcome::new(&format!("{connections} connections, {how}"));
    let stage = TestNode::build()?;
    let mut programming: Box<dyn Programming> = match how {
        How::Decided => {
            stage.on_node(|| Ok(Box::new(Deltas::with(Kernel::open()?, Running::Judged)?)))?
        }
        How::Process => Box::new(Process::start(&stage)?),
    };
    programming.apply(&objects(true))?;
    let mut crowd = Crowd::open(&stage, connections)?;
    let tracked = stage.on_node(|| Ok(Conntrack::open()?.count()?))?;
    outcome.count("tracked", tracked.into());
    outcome.check(tracked as usize >= connections, || {
        format!("only {tracked} connections are tracked")
    });
    let mut watched = Watched::open(&stage)?;
    let clock = stage.clock;
    let mut changes = Vec::new();
    let ((), logs) = watched.traffic.during(&stage.world, clock, || {
        for _ in 0..times {
            for is_open in [false, true] {
                let (applied, at) = clock.time(|| programming.apply(&objects(is_open)));
                applied?;
                changes.push((at, is_open));
                thread::sleep(PAUSE);
            }
        }
        Ok(())
    })?;
    for (at, is_open) in &changes {
        watched.change(*at, *is_open);
    }
    let ends = changes.iter().skip(1).map(|((began, _), _)| *began);
    for (((began, ended), is_open), next) in changes.iter().zip(ends.chain([clock.now()])) {
        if *is_open {
            continue;
        }
        let last = watched.last_through_the_door(&logs, *began, next);
        let took = last.map_or(0, |last| last - began);
        outcome.took("last packet", took);
        outcome.took("change done", ended - began);
        outcome.check(took < BAR, || format!("a connection went on for {took} ns"));
    }
    let tally = watched.judge(&logs);
    outcome.add(tally, Vec::new());
    outcome.check(tally.leaked == 0, || format!("{} leaked", tally.leaked));
    outcome.check(tally.lost == 0, || format!("{} lost", tally.lost));
    every_connection(&mut outcome, &mut crowd, programming.as_mut())?;
    Ok(outcome)
}

/// Each of all connections is cut, and goes on when it is allowed again.
fn every_connection(
    outcome: &mut Outcome,
    crowd: &mut Crowd,
    programming: &mut dyn Programming,
) -> Result<()> {
    let all = crowd.count();
    for (is_open, expected) in [(false, 0), (true, all)] {
        programming.apply(&objects(is_open))?;
        for way in [Way::Back, Way::There] {
            let arrived = crowd.run(way)?;
            let what = if is_open { "went on" } else { "not cut" };
            outcome.count(what, arrived as u64);
            outcome.check(arrived == expected, || {
                format!("{arrived} of {all} connections {what}, {way:?}")
            });
        }
    }
    Ok(())
}
