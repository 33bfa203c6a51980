//! The time to clear the marks of very many connections, and what waits for it.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use palisade_agent::Established;
use palisade_core::net::Family;
use palisade_nft::node::{Generation, MarkBits};
use palisade_nft::{Conntrack, Kernel};

use super::connections::{ManyConnections, WatchedFlows, after_moving, marked, objects};
use super::cut::LIMIT;
use crate::faults::crafted::Direction;
use crate::faults::deltas::Deltas;
use crate::faults::objects::pod_address;
use crate::faults::outcome::Outcome;
use crate::faults::process::{AgentProcess, Directory};
use crate::faults::programmer::{Programmer, Swap};
use crate::faults::test_node::{SPARE, TestNode};

/// The last generation of the lower half.
const MIDDLE: u16 = (1 << 14) - 1;

/// Advances the generation without a change.
fn advance_to(swap: &mut Swap, generation: u16) -> Result<()> {
    for _ in 0..=MarkBits::DEFAULT.last_generation() {
        if swap.generation() == Generation::new(generation).context("invalid generation")? {
            return Ok(());
        }
        swap.advance();
    }
    anyhow::bail!("no generation {generation}")
}

/// Clears the marks of many connections while packets flow.
pub fn sweep(connections: usize, times: u64) -> Result<Outcome> {
    let mut outcome = Outcome::new(&format!("{connections} connections, sweep"));
    let node = TestNode::build()?;
    let mut swap = Swap::open(&node)?;
    let mut conntrack = node.on_node(|| Ok(Conntrack::open()?))?;
    swap.apply(&objects(true))?;
    let mut many = ManyConnections::open(&node, connections)?;
    let clock = node.clock;
    for _ in 0..times {
        advance_to(&mut swap, MIDDLE - 1)?;
        swap.apply(&objects(true))?;
        let old = swap.generation().get();
        // The kernel evaluates every connection again, and marks it.
        many.run(Direction::FromClient)?;
        let stale = marked(&mut conntrack, old)?;
        outcome.check(stale >= connections, || {
            format!("only {stale} connections are marked")
        });
        advance_to(&mut swap, MIDDLE + 1)?;
        swap.apply(&objects(true))?;
        let watched = WatchedFlows::open(&node)?;
        let (sweeps, logs) = watched.traffic.during(&node.world, clock, || {
            let mut sweep = || {
                let (swept, (started, ended)) =
                    clock.time(|| conntrack.clear_marks(MarkBits::DEFAULT, &(1..=MIDDLE)));
                Ok::<_, anyhow::Error>((swept?, ended - started))
            };
            let sweeps = [sweep()?, sweep()?];
            thread::sleep(Duration::from_millis(20));
            Ok(sweeps)
        })?;
        let [(first, record_time), (_, again)] = sweeps;
        outcome.count("cleared", first.cleared as u64);
        outcome.record_time("sweep of all", record_time);
        outcome.record_time("sweep of none", again);
        outcome.check(record_time < LIMIT, || {
            format!("a sweep took {record_time} ns")
        });
        let left = marked(&mut conntrack, old)?;
        outcome.check(left == 0, || format!("{left} connections keep their marks"));
        let tally = watched.tally(&logs);
        outcome.add(tally, Vec::new());
        outcome.check(tally.leaked + tally.lost == 0, || {
            format!("{} leaked, {} lost", tally.leaked, tally.lost)
        });
    }
    let arrived = many.run(Direction::FromClient)?;
    outcome.count("continued", arrived as u64);
    outcome.check(arrived == connections, || {
        format!("{arrived} of {connections} connections continued")
    });
    Ok(outcome)
}

/// Starts an agent when generations wrap around and all connections have marks of the next half.
/// Its first change must wait for the sweep: the worst case.
pub fn at_wraparound(connections: usize) -> Result<Outcome> {
    let mut outcome = Outcome::new(&format!(
        "{connections} connections, an agent at the wraparound"
    ));
    let node = TestNode::build()?;
    let mut conntrack = node.on_node(|| Ok(Conntrack::open()?))?;
    let mut swap = Swap::open(&node)?;
    advance_to(&mut swap, MIDDLE + 100)?;
    swap.apply(&objects(true))?;
    let old = swap.generation().get();
    let mut many = ManyConnections::open(&node, connections)?;
    let stale = marked(&mut conntrack, old)?;
    outcome.check(stale >= connections, || {
        format!("only {stale} connections are marked")
    });
    advance_to(&mut swap, MIDDLE - 1)?;
    swap.apply(&objects(true))?;
    // The agent cannot change a table while another process owns it.
    drop(swap);
    let mut directory = Directory::new(&node)?;
    directory.write(&objects(false))?;
    let mut watched = WatchedFlows::open(&node)?;
    let clock = node.clock;
    let (times, logs) = watched.traffic.during(&node.world, clock, || {
        let started = clock.now();
        let agent = AgentProcess::start(&node, &directory)?;
        directory.wait()?;
        let ended = clock.now();
        thread::sleep(Duration::from_millis(50));
        drop(agent);
        Ok((started, ended))
    })?;
    watched.change(times, false);
    let last = watched.last_toggled(&logs, times.0, u64::MAX);
    let record_time = last.map_or(0, |last| last - times.0);
    outcome.record_time("last packet after the agent's start", record_time);
    outcome.check(record_time < LIMIT, || format!("it took {record_time} ns"));
    let left = marked(&mut conntrack, old)?;
    outcome.count("marks left", left as u64);
    outcome.check(left == 0, || {
        format!("{left} connections keep marks of coming generations")
    });
    let tally = watched.tally(&logs);
    outcome.add(tally, Vec::new());
    outcome.check(tally.leaked + tally.lost == 0, || {
        format!("{} leaked, {} lost", tally.leaked, tally.lost)
    });
    let arrived = many.run(Direction::FromClient)?;
    outcome.check(arrived == 0, || {
        format!("{arrived} connections are not cut")
    });
    Ok(outcome)
}

/// With `--established=keep`, an address with a new owner loses the marks of all its connections.
/// The agent reads all connections for that; until then they continue.
pub fn moved_address(connections: usize) -> Result<Outcome> {
    let mut outcome = Outcome::new(&format!(
        "{connections} connections, kept, the address changes owners"
    ));
    let node = TestNode::build()?;
    let mut kept = node.on_node(|| Deltas::with(Kernel::open()?, Established::Keep))?;
    kept.apply(&objects(true))?;
    let mut many = ManyConnections::open(&node, connections)?;
    kept.apply(&objects(false))?;
    let arrived = many.run(Direction::FromClient)?;
    outcome.check(arrived == connections, || {
        format!("only {arrived} connections were kept")
    });
    let (applied, (started, ended)) = node.clock.time(|| kept.apply(&after_moving()));
    applied?;
    outcome.record_time("change and marks", ended - started);
    outcome.check(ended - started < LIMIT, || "it took too long".to_owned());
    for direction in [Direction::FromClient, Direction::FromServer] {
        let arrived = many.run(direction)?;
        outcome.count("not cut", arrived as u64);
        outcome.check(arrived == 0, || {
            format!("{arrived} connections continue, {direction:?}")
        });
    }
    let [_, mass, _] = SPARE;
    let address: IpAddr = pod_address(mass, Family::V4);
    let mut conntrack = node.on_node(|| Ok(Conntrack::open()?))?;
    let again = node
        .clock
        .time(|| conntrack.clear_addresses(MarkBits::DEFAULT, &[address].into_iter().collect()));
    let (swept, (started, ended)) = again;
    outcome.count("read again", swept?.seen as u64);
    outcome.record_time("reading all", ended - started);
    Ok(outcome)
}
