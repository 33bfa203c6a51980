//! The time until denied connections stop, among very many.

use std::fmt;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use palisade_agent::Established;
use palisade_nft::{Conntrack, Kernel};

use super::connections::{ManyConnections, WatchedFlows, objects};
use crate::faults::crafted::Direction;
use crate::faults::deltas::Deltas;
use crate::faults::outcome::Outcome;
use crate::faults::process::Process;
use crate::faults::programmer::Programmer;
use crate::faults::test_node::TestNode;

/// The limit of D94, in nanoseconds.
pub const LIMIT: u64 = 5_000_000_000;
/// The time between two changes.
const PAUSE: Duration = Duration::from_millis(60);

/// The way to program the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgrammingWay {
    /// The agent's loop, with objects delivered directly.
    Loop,
    /// The agent as a process, with objects written to a directory.
    Process,
}

/// Both ways.
pub const WAYS: [ProgrammingWay; 2] = [ProgrammingWay::Loop, ProgrammingWay::Process];

impl fmt::Display for ProgrammingWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProgrammingWay::Loop => "from delivery to the agent",
            ProgrammingWay::Process => "from writing the file",
        })
    }
}

/// Denies and allows flows repeatedly at full rate; then sends a packet of every connection.
pub fn cut(way: ProgrammingWay, connections: usize, times: u64) -> Result<Outcome> {
    let mut outcome = Outcome::new(&format!("{connections} connections, {way}"));
    let node = TestNode::build()?;
    let mut programmer: Box<dyn Programmer> = match way {
        ProgrammingWay::Loop => node.on_node(|| {
            Ok(Box::new(Deltas::with(
                Kernel::open()?,
                Established::Evaluate,
            )?))
        })?,
        ProgrammingWay::Process => Box::new(Process::start(&node)?),
    };
    programmer.apply(&objects(true))?;
    let mut many = ManyConnections::open(&node, connections)?;
    let tracked = node.on_node(|| Ok(Conntrack::open()?.count()?))?;
    outcome.count("tracked", tracked.into());
    outcome.check(tracked as usize >= connections, || {
        format!("only {tracked} connections are tracked")
    });
    let mut watched = WatchedFlows::open(&node)?;
    let clock = node.clock;
    let mut changes = Vec::new();
    let ((), logs) = watched.traffic.during(&node.world, clock, || {
        for _ in 0..times {
            for is_open in [false, true] {
                let (applied, at) = clock.time(|| programmer.apply(&objects(is_open)));
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
    let ends = changes.iter().skip(1).map(|((started, _), _)| *started);
    for (((started, ended), is_open), next) in changes.iter().zip(ends.chain([clock.now()])) {
        if *is_open {
            continue;
        }
        let last = watched.last_toggled(&logs, *started, next);
        let record_time = last.map_or(0, |last| last - started);
        outcome.record_time("last packet", record_time);
        outcome.record_time("change done", ended - started);
        outcome.check(record_time < LIMIT, || {
            format!("a connection continued for {record_time} ns")
        });
    }
    let tally = watched.tally(&logs);
    outcome.add(tally, Vec::new());
    outcome.check(tally.leaked == 0, || format!("{} leaked", tally.leaked));
    outcome.check(tally.lost == 0, || format!("{} lost", tally.lost));
    every_connection(&mut outcome, &mut many, programmer.as_mut())?;
    Ok(outcome)
}

/// Checks that every connection is cut, and continues when it is allowed again.
fn every_connection(
    outcome: &mut Outcome,
    many: &mut ManyConnections,
    programmer: &mut dyn Programmer,
) -> Result<()> {
    let all = many.count();
    for (is_open, expected) in [(false, 0), (true, all)] {
        programmer.apply(&objects(is_open))?;
        for direction in [Direction::FromServer, Direction::FromClient] {
            let arrived = many.run(direction)?;
            let what = if is_open { "continued" } else { "not cut" };
            outcome.count(what, arrived as u64);
            outcome.check(arrived == expected, || {
                format!("{arrived} of {all} connections {what}, {direction:?}")
            });
        }
    }
    Ok(())
}
