//! How long it takes to forget the marks of very many connections, and what waits for it.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use palisade_core::net::Family;
use palisade_nft::node::{Generation, MarkBits};
use palisade_nft::{Conntrack, Kernel};

use super::crowd::{Crowd, Watched, after_moving, marked, objects};
use super::cut::BAR;
use crate::faults::crafted::Way;
use crate::faults::deltas::{Deltas, Running as Connections};
use crate::faults::objects::pod_address;
use crate::faults::outcome::Outcome;
use crate::faults::process::{Directory, Running};
use crate::faults::programming::{Programming, Swap};
use crate::faults::test_node::{SPARE, TestNode};

/// The last number of the lower half.
const MIDDLE: u16 = (1 << 14) - 1;

/// Counts on without changing anything.
fn advance_to(swap: &mut Swap, generation: u16) -> Result<()> {
    for _ in 0..=MarkBits::DEFAULT.last_generation() {
        if swap.generation() == Generation::new(generation).context("not a generation")? {
            return Ok(());
        }
        swap.advance();
    }
    anyhow::bail!("{generation} never comes")
}

/// Forgets the marks of so many connections, while packets flow.
pub fn sweep(connections: usize, times: u64) -> Result<Outcome> {
    let mut outcome = Outcome::new(&format!("{connections} connections, sweep"));
    let stage = TestNode::build()?;
    let mut swap = Swap::open(&stage)?;
    let mut conntrack = stage.on_node(|| Ok(Conntrack::open()?))?;
    swap.apply(&objects(true))?;
    let mut crowd = Crowd::open(&stage, connections)?;
    let clock = stage.clock;
    for _ in 0..times {
        advance_to(&mut swap, MIDDLE - 1)?;
        swap.apply(&objects(true))?;
        let old = swap.generation().get();
        // Every connection is judged again, and marked.
        crowd.run(Way::There)?;
        let stale = marked(&mut conntrack, old)?;
        outcome.check(stale >= connections, || format!("only {stale} are marked"));
        advance_to(&mut swap, MIDDLE + 1)?;
        swap.apply(&objects(true))?;
        let watched = Watched::open(&stage)?;
        let (sweeps, logs) = watched.traffic.during(&stage.world, clock, || {
            let mut sweep = || {
                let (swept, (began, ended)) =
                    clock.time(|| conntrack.clear_marks(MarkBits::DEFAULT, &(1..=MIDDLE)));
                Ok::<_, anyhow::Error>((swept?, ended - began))
            };
            let sweeps = [sweep()?, sweep()?];
            thread::sleep(Duration::from_millis(20));
            Ok(sweeps)
        })?;
        let [(first, took), (_, again)] = sweeps;
        outcome.count("forgotten", first.cleared as u64);
        outcome.took("sweep of all", took);
        outcome.took("sweep of none", again);
        outcome.check(took < BAR, || format!("a sweep took {took} ns"));
        let left = marked(&mut conntrack, old)?;
        outcome.check(left == 0, || format!("{left} kept their marks"));
        let tally = watched.judge(&logs);
        outcome.add(tally, Vec::new());
        outcome.check(tally.leaked + tally.lost == 0, || {
            format!("{} leaked, {} lost", tally.leaked, tally.lost)
        });
    }
    let arrived = crowd.run(Way::There)?;
    outcome.count("went on", arrived as u64);
    outcome.check(arrived == connections, || {
        format!("{arrived} of {connections} connections went on")
    });
    Ok(outcome)
}

/// An agent that comes when the numbers turn and all connections have marks of the half that is next: the change that it
/// brings has to wait for the sweep, which is the worst that can happen.
pub fn at_the_turn(connections: usize) -> Result<Outcome> {
    let mut outcome = Outcome::new(&format!("{connections} connections, an agent at the turn"));
    let stage = TestNode::build()?;
    let mut conntrack = stage.on_node(|| Ok(Conntrack::open()?))?;
    let mut swap = Swap::open(&stage)?;
    advance_to(&mut swap, MIDDLE + 100)?;
    swap.apply(&objects(true))?;
    let old = swap.generation().get();
    let mut crowd = Crowd::open(&stage, connections)?;
    let stale = marked(&mut conntrack, old)?;
    outcome.check(stale >= connections, || format!("only {stale} are marked"));
    advance_to(&mut swap, MIDDLE - 1)?;
    swap.apply(&objects(true))?;
    // What somebody alive owns belongs to nobody else.
    drop(swap);
    let mut directory = Directory::new(&stage)?;
    directory.write(&objects(false))?;
    let mut watched = Watched::open(&stage)?;
    let clock = stage.clock;
    let (times, logs) = watched.traffic.during(&stage.world, clock, || {
        let began = clock.now();
        let agent = Running::start(&stage, &directory)?;
        directory.wait()?;
        let ended = clock.now();
        thread::sleep(Duration::from_millis(50));
        drop(agent);
        Ok((began, ended))
    })?;
    watched.change(times, false);
    let last = watched.last_through_the_door(&logs, times.0, u64::MAX);
    let took = last.map_or(0, |last| last - times.0);
    outcome.took("last packet after the agent's start", took);
    outcome.check(took < BAR, || format!("it took {took} ns"));
    let left = marked(&mut conntrack, old)?;
    outcome.count("marks left", left as u64);
    outcome.check(left == 0, || {
        format!("{left} connections kept marks that come again")
    });
    let tally = watched.judge(&logs);
    outcome.add(tally, Vec::new());
    outcome.check(tally.leaked + tally.lost == 0, || {
        format!("{} leaked, {} lost", tally.leaked, tally.lost)
    });
    let arrived = crowd.run(Way::There)?;
    outcome.check(arrived == 0, || format!("{arrived} were not cut"));
    Ok(outcome)
}

/// Where connections are kept (`--established=keep`), an address that changes hands loses the marks of all its
/// connections. That reads all connections, and until it is done they go on.
pub fn changed_hands(connections: usize) -> Result<Outcome> {
    let mut outcome = Outcome::new(&format!(
        "{connections} connections, kept, the address changes hands"
    ));
    let stage = TestNode::build()?;
    let mut kept = stage.on_node(|| Deltas::with(Kernel::open()?, Connections::Kept))?;
    kept.apply(&objects(true))?;
    let mut crowd = Crowd::open(&stage, connections)?;
    kept.apply(&objects(false))?;
    let arrived = crowd.run(Way::There)?;
    outcome.check(arrived == connections, || {
        format!("only {arrived} connections were kept")
    });
    let (applied, (began, ended)) = stage.clock.time(|| kept.apply(&after_moving()));
    applied?;
    outcome.took("change and marks", ended - began);
    outcome.check(ended - began < BAR, || "it took too long".to_owned());
    for way in [Way::There, Way::Back] {
        let arrived = crowd.run(way)?;
        outcome.count("not cut", arrived as u64);
        outcome.check(arrived == 0, || format!("{arrived} went on, {way:?}"));
    }
    let [_, mass, _] = SPARE;
    let address: IpAddr = pod_address(mass, Family::V4);
    let mut conntrack = stage.on_node(|| Ok(Conntrack::open()?))?;
    let again = stage
        .clock
        .time(|| conntrack.clear_addresses(MarkBits::DEFAULT, &[address].into_iter().collect()));
    let (swept, (began, ended)) = again;
    outcome.count("seen once more", swept?.seen as u64);
    outcome.took("reading all", ended - began);
    Ok(outcome)
}
