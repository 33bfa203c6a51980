//! F06: others on the node. They flush and delete what is ours, run an agent of their own, and have tables
//! of their own, which nobody touches.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;
use palisade_core::net::Protocol;
use palisade_lab::services::{Entry, translations};
use palisade_nft::{Kernel, Watcher};

use super::churn::{ChurnFlows, ChurningCluster, Kind};
use super::deltas::{self, Deltas};
use super::intruder::{Deed, Intruder};
use super::ledger::Expected;
use super::outcome::Outcome;
use super::process::{Directory, Running};
use super::programming::Programming;
use super::test_node::TestNode;

/// The sets that every table has.
const SETS: [&str; 11] = [
    "generation",
    "members4",
    "members6",
    "ingress4",
    "ingress6",
    "egress4",
    "egress6",
    "judged-ingress4",
    "judged-ingress6",
    "judged-egress4",
    "judged-egress6",
];
/// The chains that packets enter.
const HOOKED: [&str; 2] = ["forward", "input"];
/// Repair takes so long at most, in 99 of 100 cases.
const REPAIR: Duration = Duration::from_secs(1);
/// And never longer than this.
const PATIENCE: Duration = Duration::from_secs(20);

/// How much is in the table that enforces: rules by chain, elements by set.
type Holding = Vec<(String, usize)>;

fn holding(kernel: &mut Kernel) -> Result<Holding> {
    let table = kernel.current()?.context("no table enforces")?;
    let mut all: Holding = Vec::new();
    for chain in kernel.rules_of(&table)? {
        all.push((chain.chain, chain.rules.len()));
    }
    for set in SETS {
        let count = kernel.elements_of(&table, set)?.len();
        all.push((set.to_owned(), count));
    }
    all.sort();
    Ok(all)
}

/// Everything that can be done to a table: to each chain, to each set, to all of it.
fn deeds(table: &str, holding: &Holding) -> Vec<Deed> {
    let of = |name: &str| (table.to_owned(), name.to_owned());
    let mut deeds = Vec::new();
    for (name, _) in holding.iter().filter(|(_, count)| *count > 0) {
        let (table, name_of) = of(name);
        deeds.push(match SETS.contains(&name.as_str()) {
            true => Deed::FlushSet(table, name_of),
            false => Deed::FlushChain(table, name_of),
        });
    }
    for hooked in HOOKED {
        let (table, chain) = of(hooked);
        deeds.push(Deed::AcceptAll(table, chain));
    }
    let (table, chain) = of("foreign");
    deeds.push(Deed::AddChain(table.clone(), chain));
    deeds.push(Deed::DeleteTable(table));
    deeds.push(Deed::FlushRuleset);
    deeds
}

/// Somebody else's table.
fn others_table(stage: &TestNode) -> Result<Holding> {
    let entry = Entry {
        address: IpAddr::from([10, 96, 0, 1]),
        protocol: Protocol::Tcp,
        port: 80,
        backends: vec![(IpAddr::from([10, 0, 1, 2]), 8080)],
        masquerade: true,
    };
    stage.on_node(|| {
        let mut kernel = Kernel::open()?;
        kernel.install_plain(&translations(&[entry]))?;
        others(&mut kernel)
    })
}

fn others(kernel: &mut Kernel) -> Result<Holding> {
    let chains = kernel.rules_of("lab-services")?.into_iter();
    let mut all: Holding = chains.map(|it| (it.chain, it.rules.len())).collect();
    let dialled = kernel.elements_of("lab-services", "dialled4")?.len();
    all.push(("dialled4".to_owned(), dialled));
    all.sort();
    Ok(all)
}

/// The agent as a process, whose table is its own: nobody else can change it while it lives.
pub fn owned(name: &str, seed: u64) -> Result<Outcome> {
    let stage = TestNode::build()?;
    let mut outcome = Outcome::new(name);
    let theirs = others_table(&stage)?;
    let mut town = ChurningCluster::new(seed);
    let mut directory = Directory::new(&stage)?;
    directory.write(&town.objects)?;
    let mut agent = Running::start(&stage, &directory)?;
    directory.wait()?;
    let mut kernel = stage.on_node(|| Ok(Kernel::open()?))?;
    if !kernel.probe()?.persist {
        outcome.count("kernels without owners", 1);
        return Ok(outcome);
    }
    let mut intruder = stage.on_node(Intruder::open)?;
    let mut streets = ChurnFlows::open(&stage)?;
    let clock = stage.clock;
    let ((), logs) = streets.traffic.during(&stage.world, clock, || {
        let before = holding(&mut kernel)?;
        let table = kernel.current()?.context("no table enforces")?;
        for deed in deeds(&table, &before) {
            if deed == Deed::FlushRuleset {
                continue;
            }
            outcome.count("deeds", 1);
            let done = intruder.act(&deed)?;
            outcome.check(done == Err(Errno::EPERM), || {
                format!("{deed:?} was not refused: {done:?}")
            });
        }
        outcome.check(holding(&mut kernel)? == before, || {
            "something was changed".to_owned()
        });
        // A second agent has to wait, and does no harm.
        let mut second = Running::start(&stage, &directory)?;
        thread::sleep(Duration::from_millis(300));
        outcome.check(!second.has_ended()?, || "a second agent ended".to_owned());
        town.change_so(Kind::Peers);
        directory.write(&town.objects)?;
        directory.wait().context("with a second agent")?;
        // When the first one dies, the second takes over.
        agent.kill()?;
        town.change_so(Kind::Rewrite);
        directory.write(&town.objects)?;
        let (taken, took) = clock.time(|| directory.wait());
        taken.context("after the first agent was killed")?;
        outcome.took("take-over", took.1 - took.0);
        // All tables are flushed while its own are owned: they stay.
        let before = holding(&mut kernel)?;
        outcome.check(others(&mut kernel)? == theirs, || {
            "somebody else's table was touched".to_owned()
        });
        outcome.count("deeds", 1);
        let flushed = intruder.act(&Deed::FlushRuleset)?;
        outcome.check(flushed.is_ok(), || format!("a flush was {flushed:?}"));
        outcome.check(holding(&mut kernel)? == before, || {
            "a flush took what is owned".to_owned()
        });
        second.kill()
    })?;
    let (tally, broken) = streets.judge(&logs);
    outcome.add(tally, broken);
    // While nobody owns it, a flush takes everything. An agent that starts brings it back.
    let flushed = intruder.act(&Deed::FlushRuleset)?;
    outcome.check(flushed.is_ok(), || format!("a flush was {flushed:?}"));
    outcome.check(kernel.current()?.is_none(), || {
        "an orphan outlived a flush".to_owned()
    });
    let began = Instant::now();
    let _third = Running::start(&stage, &directory)?;
    directory.wait()?;
    let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    outcome.took("start of a process to its first table", took);
    streets.expect((0, 0), Expected::Denied);
    let ((), logs) = streets.traffic.during(&stage.world, clock, || {
        thread::sleep(Duration::from_millis(50));
        Ok(())
    })?;
    let (tally, broken) = streets.judge(&logs);
    outcome.add(tally, broken);
    Ok(outcome)
}

/// The agent's loop on a kernel whose tables have no owners: whatever others do is noticed and repaired.
pub fn repaired(name: &str, rounds: u64, seed: u64) -> Result<Outcome> {
    let stage = TestNode::build()?;
    let mut outcome = Outcome::new(name);
    let theirs = others_table(&stage)?;
    let town = ChurningCluster::new(seed);
    let (is_ready, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let kept = thread::scope(|scope| {
        let keeper = scope.spawn(|| {
            let kept = stage.on_node(|| keep(&town, &is_ready, &is_over));
            is_ready.store(true, Ordering::Release);
            kept
        });
        while !is_ready.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
        let done = interfere(&stage, rounds, &mut outcome);
        is_over.store(true, Ordering::Release);
        let Ok(kept) = keeper.join() else {
            bail!("the loop panicked");
        };
        done.and(kept)
    });
    kept?;
    let mut kernel = stage.on_node(|| Ok(Kernel::open()?))?;
    let now = others(&mut kernel)?;
    outcome.check(now == theirs, || {
        "somebody else's table was touched".to_owned()
    });
    let p99 = outcome.percentile("repair", 99);
    outcome.check(u128::from(p99) < REPAIR.as_nanos(), || {
        format!("repair takes {p99} ns")
    });
    Ok(outcome)
}

/// The loop: listens, and puts everything in place again.
fn keep(town: &ChurningCluster, is_ready: &AtomicBool, is_over: &AtomicBool) -> Result<()> {
    let kernel = Kernel::open()?.without_ownership();
    let mut watcher = Watcher::open()?;
    watcher.ignore(kernel.port());
    let mut agent = Deltas::with(kernel, deltas::Running::Judged)?;
    agent.apply(&town.objects)?;
    is_ready.store(true, Ordering::Release);
    while !is_over.load(Ordering::Acquire) {
        if let Some(notice) = watcher.next(Duration::from_millis(20))? {
            agent.pass(Duration::from_secs(1));
            agent.notice(&notice);
            // What has come meanwhile is about the same.
            while let Some(notice) = watcher.next(Duration::ZERO)? {
                agent.notice(&notice);
            }
            // What is refused is tried again when the next thing happens.
            let _ = agent.settle();
        }
    }
    Ok(())
}

/// Does everything that can be done, one thing after the other, each when the last one was repaired.
fn interfere(stage: &TestNode, rounds: u64, outcome: &mut Outcome) -> Result<()> {
    let mut kernel = stage.on_node(|| Ok(Kernel::open()?))?;
    let mut intruder = stage.on_node(Intruder::open)?;
    let right = holding(&mut kernel)?;
    let mut streets = ChurnFlows::open(stage)?;
    let clock = stage.clock;
    for _ in 0..rounds {
        let mut repairs = Vec::new();
        let ((), logs) = streets.traffic.during(&stage.world, clock, || {
            let table = kernel.current()?.context("no table enforces")?;
            for deed in deeds(&table, &right) {
                // A flush of everything would take the others' table as well.
                if deed == Deed::FlushRuleset {
                    continue;
                }
                let began = clock.now();
                let before = act_in_current(&mut kernel, &mut intruder, &deed)?;
                outcome.count("deeds", 1);
                await_repair(&mut kernel, &right, before, &deed)?;
                repairs.push((began, clock.now()));
                outcome.took("repair", clock.now() - began);
            }
            Ok(())
        })?;
        let (all, _) = streets.judge(&logs);
        streets.excuse(&repairs);
        let (tally, broken) = streets.judge(&logs);
        outcome.count("let through until repair", all.leaked - tally.leaked);
        outcome.count("held up until repair", all.lost - tally.lost);
        outcome.add(tally, broken);
    }
    Ok(())
}

/// Does something to the table that enforces now. Says which generation it was of. A notice that was
/// late may have the table replaced once more meanwhile.
fn act_in_current(
    kernel: &mut Kernel,
    intruder: &mut Intruder,
    deed: &Deed,
) -> Result<Option<u32>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = kernel.generation()?;
        let table = kernel.current()?.context("no table enforces")?;
        let deed = in_table(deed.clone(), &table);
        match intruder.act(&deed)? {
            Ok(()) => return Ok(before),
            Err(errno) if errno == Errno::ENOENT && Instant::now() < deadline => {}
            Err(errno) => bail!("{deed:?} was refused: {errno}"),
        }
    }
}

/// The same deed, done to another table.
fn in_table(deed: Deed, table: &str) -> Deed {
    let table = table.to_owned();
    match deed {
        Deed::FlushChain(_, chain) => Deed::FlushChain(table, chain),
        Deed::FlushSet(_, set) => Deed::FlushSet(table, set),
        Deed::DeleteTable(_) => Deed::DeleteTable(table),
        Deed::AcceptAll(_, chain) => Deed::AcceptAll(table, chain),
        Deed::AddChain(_, chain) => Deed::AddChain(table, chain),
        Deed::FlushRuleset => Deed::FlushRuleset,
    }
}

/// Waits until another whole table is in place.
fn await_repair(
    kernel: &mut Kernel,
    right: &Holding,
    before: Option<u32>,
    deed: &Deed,
) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // While tables are replaced, questions about them may fail.
        let is_other = kernel
            .generation()
            .is_ok_and(|it| it.is_some() && it != before);
        let tables = kernel.tables().unwrap_or_default();
        let ours = tables.iter().filter(|it| it.starts_with("palisade"));
        if is_other && ours.count() == 1 && holding(kernel).is_ok_and(|it| it == *right) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{deed:?} was not repaired");
        }
        thread::sleep(Duration::from_micros(500));
    }
}
