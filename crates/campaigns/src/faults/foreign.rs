//! F06: other programs on the node. They flush and delete our table, run a second agent, and own
//! tables that must stay unchanged.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;
use palisade_agent::Established;
use palisade_core::net::Protocol;
use palisade_lab::services::{Entry, translations};
use palisade_nft::{Kernel, TableWatcher};

use super::churn::{ChangeKind, ChurnFlows, ChurningCluster};
use super::deltas::Deltas;
use super::foreign_program::{ForeignProgram, Interference};
use super::ledger::Expected;
use super::outcome::Outcome;
use super::process::{AgentProcess, Directory};
use super::programmer::Programmer;
use super::test_node::TestNode;

/// The sets of every table.
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
/// The base chains.
const BASE_CHAINS: [&str; 2] = ["forward", "input"];
/// The maximum time of a repair in 99 of 100 cases.
const REPAIR_GOAL: Duration = Duration::from_secs(1);
/// The maximum time of any repair.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The size of a table: rules by chain, elements by set.
type TableSize = Vec<(String, usize)>;

fn table_size(kernel: &mut Kernel) -> Result<TableSize> {
    let table = kernel.current()?.context("no active table")?;
    let mut all: TableSize = Vec::new();
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

/// All interferences with a table: with each chain, with each set, with all of it.
fn interferences(table: &str, table_size: &TableSize) -> Vec<Interference> {
    let of = |name: &str| (table.to_owned(), name.to_owned());
    let mut interferences = Vec::new();
    for (name, _) in table_size.iter().filter(|(_, count)| *count > 0) {
        let (table, name_of) = of(name);
        interferences.push(match SETS.contains(&name.as_str()) {
            true => Interference::FlushSet(table, name_of),
            false => Interference::FlushChain(table, name_of),
        });
    }
    for hooked in BASE_CHAINS {
        let (table, chain) = of(hooked);
        interferences.push(Interference::AcceptAll(table, chain));
    }
    let (table, chain) = of("foreign");
    interferences.push(Interference::AddChain(table.clone(), chain));
    interferences.push(Interference::DeleteTable(table));
    interferences.push(Interference::FlushRuleset);
    interferences
}

/// Installs a table of another program.
fn install_foreign_table(node: &TestNode) -> Result<TableSize> {
    let entry = Entry {
        address: IpAddr::from([10, 96, 0, 1]),
        protocol: Protocol::Tcp,
        port: 80,
        backends: vec![(IpAddr::from([10, 0, 1, 2]), 8080)],
        masquerade: true,
    };
    node.on_node(|| {
        let mut kernel = Kernel::open()?;
        kernel.install_plain(&translations(&[entry]))?;
        foreign_table_size(&mut kernel)
    })
}

fn foreign_table_size(kernel: &mut Kernel) -> Result<TableSize> {
    let chains = kernel.rules_of("lab-services")?.into_iter();
    let mut all: TableSize = chains.map(|it| (it.chain, it.rules.len())).collect();
    let destination = kernel.elements_of("lab-services", "dialled4")?.len();
    all.push(("dialled4".to_owned(), destination));
    all.sort();
    Ok(all)
}

/// The agent as a process that owns its table: no other program can change it while the agent runs.
pub fn owned(name: &str, seed: u64) -> Result<Outcome> {
    let node = TestNode::build()?;
    let mut outcome = Outcome::new(name);
    let foreign = install_foreign_table(&node)?;
    let mut cluster = ChurningCluster::new(seed);
    let mut directory = Directory::new(&node)?;
    directory.write(&cluster.objects)?;
    let mut agent = AgentProcess::start(&node, &directory)?;
    directory.wait()?;
    let mut kernel = node.on_node(|| Ok(Kernel::open()?))?;
    if !kernel.probe()?.persist {
        outcome.count("kernels without owners", 1);
        return Ok(outcome);
    }
    let mut foreign_program = node.on_node(ForeignProgram::open)?;
    let mut flows = ChurnFlows::open(&node)?;
    let clock = node.clock;
    let ((), logs) = flows.traffic.during(&node.world, clock, || {
        let before = table_size(&mut kernel)?;
        let table = kernel.current()?.context("no active table")?;
        for interference in interferences(&table, &before) {
            if interference == Interference::FlushRuleset {
                continue;
            }
            outcome.count("deeds", 1);
            let done = foreign_program.change(&interference)?;
            outcome.check(done == Err(Errno::EPERM), || {
                format!("{interference:?} was not refused: {done:?}")
            });
        }
        outcome.check(table_size(&mut kernel)? == before, || {
            "the table has changed".to_owned()
        });
        // A second agent waits, and changes nothing.
        let mut second = AgentProcess::start(&node, &directory)?;
        thread::sleep(Duration::from_millis(300));
        outcome.check(!second.has_ended()?, || "a second agent ended".to_owned());
        cluster.apply(ChangeKind::RemotePods);
        directory.write(&cluster.objects)?;
        directory.wait().context("with a second agent")?;
        // When the first one is killed, the second takes over.
        agent.kill()?;
        cluster.apply(ChangeKind::Rewrite);
        directory.write(&cluster.objects)?;
        let (taken_over, record_time) = clock.time(|| directory.wait());
        taken_over.context("after the first agent was killed")?;
        outcome.record_time("take-over", record_time.1 - record_time.0);
        // A flush of all tables leaves owned tables unchanged.
        let before = table_size(&mut kernel)?;
        outcome.check(foreign_table_size(&mut kernel)? == foreign, || {
            "the table of another program has changed".to_owned()
        });
        outcome.count("deeds", 1);
        let flushed = foreign_program.change(&Interference::FlushRuleset)?;
        outcome.check(flushed.is_ok(), || format!("a flush returned {flushed:?}"));
        outcome.check(table_size(&mut kernel)? == before, || {
            "a flush changed an owned table".to_owned()
        });
        second.kill()
    })?;
    let (tally, violations) = flows.tally(&logs);
    outcome.add(tally, violations);
    // A flush deletes a table without an owner. The next agent installs it again.
    let flushed = foreign_program.change(&Interference::FlushRuleset)?;
    outcome.check(flushed.is_ok(), || format!("a flush returned {flushed:?}"));
    outcome.check(kernel.current()?.is_none(), || {
        "a table without an owner is left after a flush".to_owned()
    });
    let started = Instant::now();
    let _third = AgentProcess::start(&node, &directory)?;
    directory.wait()?;
    let record_time = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    outcome.record_time("start of a process to its first table", record_time);
    flows.expect((0, 0), Expected::Denied);
    let ((), logs) = flows.traffic.during(&node.world, clock, || {
        thread::sleep(Duration::from_millis(50));
        Ok(())
    })?;
    let (tally, violations) = flows.tally(&logs);
    outcome.add(tally, violations);
    Ok(outcome)
}

/// The agent's loop on a kernel without table owners: it repairs every interference.
pub fn repaired(name: &str, rounds: u64, seed: u64) -> Result<Outcome> {
    let node = TestNode::build()?;
    let mut outcome = Outcome::new(name);
    let foreign = install_foreign_table(&node)?;
    let cluster = ChurningCluster::new(seed);
    let (is_ready, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
    let ran = thread::scope(|scope| {
        let agent = scope.spawn(|| {
            let ran = node.on_node(|| run_agent(&cluster, &is_ready, &is_done));
            is_ready.store(true, Ordering::Release);
            ran
        });
        while !is_ready.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
        let done = interfere(&node, rounds, &mut outcome);
        is_done.store(true, Ordering::Release);
        let Ok(ran) = agent.join() else {
            bail!("the loop panicked");
        };
        done.and(ran)
    });
    ran?;
    let mut kernel = node.on_node(|| Ok(Kernel::open()?))?;
    let now = foreign_table_size(&mut kernel)?;
    outcome.check(now == foreign, || {
        "the table of another program has changed".to_owned()
    });
    let p99 = outcome.percentile("repair", 99);
    outcome.check(u128::from(p99) < REPAIR_GOAL.as_nanos(), || {
        format!("a repair takes {p99} ns")
    });
    Ok(outcome)
}

/// Runs the agent's loop: it listens for notices, and repairs the table.
fn run_agent(cluster: &ChurningCluster, is_ready: &AtomicBool, is_done: &AtomicBool) -> Result<()> {
    let kernel = Kernel::open()?.without_ownership();
    let mut watcher = TableWatcher::open()?;
    watcher.ignore(kernel.port());
    let mut agent = Deltas::with(kernel, Established::Evaluate)?;
    agent.apply(&cluster.objects)?;
    is_ready.store(true, Ordering::Release);
    while !is_done.load(Ordering::Acquire) {
        if let Some(notice) = watcher.next(Duration::from_millis(20))? {
            agent.advance_clock(Duration::from_secs(1));
            agent.notice(&notice);
            // Further notices belong to the same interference.
            while let Some(notice) = watcher.next(Duration::ZERO)? {
                agent.notice(&notice);
            }
            // The next notice retries a refused command.
            let _ = agent.run_until_current();
        }
    }
    Ok(())
}

/// Interferes in every way, each after the repair of the last.
fn interfere(node: &TestNode, rounds: u64, outcome: &mut Outcome) -> Result<()> {
    let mut kernel = node.on_node(|| Ok(Kernel::open()?))?;
    let mut foreign_program = node.on_node(ForeignProgram::open)?;
    let intact = table_size(&mut kernel)?;
    let mut flows = ChurnFlows::open(node)?;
    let clock = node.clock;
    for _ in 0..rounds {
        let mut repairs = Vec::new();
        let ((), logs) = flows.traffic.during(&node.world, clock, || {
            let table = kernel.current()?.context("no active table")?;
            for interference in interferences(&table, &intact) {
                // A flush of all tables would delete the other program's table too.
                if interference == Interference::FlushRuleset {
                    continue;
                }
                let started = clock.now();
                let before =
                    interfere_with_current(&mut kernel, &mut foreign_program, &interference)?;
                outcome.count("deeds", 1);
                await_repair(&mut kernel, &intact, before, &interference)?;
                repairs.push((started, clock.now()));
                outcome.record_time("repair", clock.now() - started);
            }
            Ok(())
        })?;
        let (all, _) = flows.tally(&logs);
        flows.allow_either(&repairs);
        let (tally, violations) = flows.tally(&logs);
        outcome.count("leaked before repair", all.leaked - tally.leaked);
        outcome.count("dropped before repair", all.lost - tally.lost);
        outcome.add(tally, violations);
    }
    Ok(())
}

/// Interferes with the active table. Returns its generation. A late notice may replace the table
/// once more meanwhile.
fn interfere_with_current(
    kernel: &mut Kernel,
    foreign_program: &mut ForeignProgram,
    interference: &Interference,
) -> Result<Option<u32>> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let before = kernel.generation()?;
        let table = kernel.current()?.context("no active table")?;
        let interference = for_table(interference.clone(), &table);
        match foreign_program.change(&interference)? {
            Ok(()) => return Ok(before),
            Err(errno) if errno == Errno::ENOENT && Instant::now() < deadline => {}
            Err(errno) => bail!("{interference:?} was refused: {errno}"),
        }
    }
}

/// The same interference with another table.
fn for_table(interference: Interference, table: &str) -> Interference {
    let table = table.to_owned();
    match interference {
        Interference::FlushChain(_, chain) => Interference::FlushChain(table, chain),
        Interference::FlushSet(_, set) => Interference::FlushSet(table, set),
        Interference::DeleteTable(_) => Interference::DeleteTable(table),
        Interference::AcceptAll(_, chain) => Interference::AcceptAll(table, chain),
        Interference::AddChain(_, chain) => Interference::AddChain(table, chain),
        Interference::FlushRuleset => Interference::FlushRuleset,
    }
}

/// Waits for the installation of another complete table.
fn await_repair(
    kernel: &mut Kernel,
    intact: &TableSize,
    before: Option<u32>,
    interference: &Interference,
) -> Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        // Reads of a table that is being replaced may fail.
        let is_other = kernel
            .generation()
            .is_ok_and(|it| it.is_some() && it != before);
        let tables = kernel.tables().unwrap_or_default();
        let own = tables.iter().filter(|it| it.starts_with("palisade"));
        if is_other && own.count() == 1 && table_size(kernel).is_ok_and(|it| it == *intact) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{interference:?} was not repaired");
        }
        thread::sleep(Duration::from_micros(500));
    }
}
