//! Simulates the agent's loop: the real agent on a model of the kernel, with faults between them
//! that a seed chooses.
//!
//! Objects are created, changed and deleted in any order and in batches of any size. The source
//! repeats itself, commands are refused, responses are lost, the agent is killed between two
//! transactions and restarted, other programs change the table, and generation numbers wrap around.
//! During every transaction packets pass through the model, some of them in flight at the moment of
//! the commit: a packet may pass only if the objects before or after the transaction allow it.
//! Whenever the agent is idle, the kernel enforces the engine's verdict for every flow.

mod background;
pub mod campaign;
mod catalog;
mod check;
mod dense;
pub mod evaluation;
mod execute;
mod expected;
mod foreign;
pub mod hostile;
pub mod model;
mod plan_text;
mod script;
mod simulator;
pub mod table;

use std::fmt;

use self::catalog::Catalog;
use self::script::{Setting, Step};
use self::simulator::Simulator;
use palisade_generate::Rng;

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The invariant.
    pub invariant: Invariant,
    /// What violates it.
    pub message: String,
}

impl Failure {
    fn new(invariant: Invariant, message: String) -> Failure {
        Failure { invariant, message }
    }
}

/// The invariants that a simulation checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// While idle, the kernel enforces the engine's verdicts.
    Verdicts,
    /// While idle, the incremental plan equals the plan of all objects.
    Plan,
    /// No packet passes that is denied both before and after the transaction.
    NoLeak,
    /// The same for packets in flight during a commit.
    NoTornLeak,
    /// Connections that such packets opened do not continue after the commit.
    NoTornMark,
    /// No packet is dropped that is allowed both before and after the transaction.
    NoLoss,
    /// Denied connections end, unless established connections are kept.
    Established,
    /// The kernel accepts every transaction.
    Accepted,
    /// The table equals the agent's expectation.
    NoDrift,
    /// The agent changes nothing before its sources have synced.
    Synced,
    /// The agent becomes idle.
    Idle,
}

/// How to treat packets in flight during a commit that pass although the objects before and after
/// it deny them, and packets dropped between two transactions of one change although both allow
/// them. A connection that continues after such a packet is always a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlight {
    /// Count them.
    Count,
    /// Report them as mistakes.
    Fail,
}

/// The counters of simulations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Simulations.
    pub seeds: u64,
    /// Steps.
    pub steps: u64,
    /// Commands of the agent.
    pub commands: u64,
    /// Background tasks.
    pub tasks: u64,
    /// Transactions.
    pub transactions: u64,
    /// Tables installed.
    pub installs: u64,
    /// Tables updated.
    pub changes: u64,
    /// Sweeps of stale marks.
    pub sweeps: u64,
    /// Repairs of drift.
    pub drifts: u64,
    /// Injected faults.
    pub faults: u64,
    /// Times that the agent became idle.
    pub idle: u64,
    /// Verdicts compared while idle.
    pub verdicts: u64,
    /// Packets sent during transactions.
    pub packets: u64,
    /// Other paths that packets may have taken during a commit.
    pub torn: u64,
    /// Of those, dropped although allowed before and after.
    pub torn_lost: u64,
    /// Of those, passed although denied before and after.
    pub torn_leaked: u64,
    /// Packets dropped between two transactions of one change, although allowed before and after.
    pub lost: u64,
    /// Groups that shared the set of another group, while idle.
    pub shared: u64,
    /// Policies that exceeded the budget of their namespace, while idle.
    pub over_budget: u64,
    /// Times that groups with one set became different.
    pub splits: u64,
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.seeds += other.seeds;
        self.steps += other.steps;
        self.commands += other.commands;
        self.tasks += other.tasks;
        self.transactions += other.transactions;
        self.installs += other.installs;
        self.changes += other.changes;
        self.sweeps += other.sweeps;
        self.drifts += other.drifts;
        self.faults += other.faults;
        self.idle += other.idle;
        self.verdicts += other.verdicts;
        self.packets += other.packets;
        self.torn += other.torn;
        self.torn_lost += other.torn_lost;
        self.torn_leaked += other.torn_leaked;
        self.lost += other.lost;
        self.shared += other.shared;
        self.over_budget += other.over_budget;
        self.splits += other.splits;
    }
}

/// A seed that fails, with a minimal list of steps.
#[derive(Clone, Debug)]
pub struct FailingSeed {
    /// The seed.
    pub seed: u64,
    /// The failure after the last step.
    pub failure: Failure,
    /// The steps, as text.
    pub steps: Vec<String>,
}

impl fmt::Display for FailingSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {:?}: {}",
            self.seed, self.failure.invariant, self.failure.message
        )?;
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "  {:>3} {step}", number + 1)?;
        }
        Ok(())
    }
}

/// Simulates seeds in order, up to the first that fails.
pub fn simulate(seeds: std::ops::Range<u64>, in_flight: InFlight) -> (Counts, Option<FailingSeed>) {
    let mut counts = Counts::default();
    let failing = catalog::first_of(seeds, |seed, catalog| {
        let scenario = Scenario::new(seed, catalog, in_flight);
        let (counted, failure) = scenario.run(&scenario.steps);
        counts.add(counted);
        failure.map(|(at, failure)| scenario.shrink(at, failure))
    });
    (counts, failing)
}

/// Everything that a seed determines.
struct Scenario<'c> {
    seed: u64,
    catalog: &'c Catalog<'c>,
    flows: Vec<evaluation::Packet>,
    setting: Setting,
    steps: Vec<Step>,
    in_flight: InFlight,
}

impl<'c> Scenario<'c> {
    fn new(seed: u64, catalog: &'c Catalog<'c>, in_flight: InFlight) -> Scenario<'c> {
        let mut rng = Rng::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x7369_6d75);
        let setting = Setting::new(&mut rng);
        let flows = expected::flows(&mut rng, catalog);
        let steps = script::steps(&mut rng, catalog, flows.len());
        Scenario {
            seed,
            catalog,
            flows,
            setting,
            steps,
            in_flight,
        }
    }

    /// Runs steps. Returns the failing step, if any.
    fn run(&self, steps: &[Step]) -> (Counts, Option<(usize, Failure)>) {
        let setting = self.setting.clone();
        let mut simulator = Simulator::new(
            self.catalog,
            &self.flows,
            setting,
            self.in_flight,
            self.seed,
        );
        simulator.counts.seeds = 1;
        for (place, step) in steps.iter().enumerate() {
            simulator.counts.steps += 1;
            if let Err(failure) = simulator.step(*step) {
                return (simulator.counts, Some((place, failure)));
            }
        }
        simulator.count_splits();
        (simulator.counts, None)
    }

    /// Removes steps that the failure does not need.
    fn shrink(&self, at: usize, mut failure: Failure) -> FailingSeed {
        let mut steps: Vec<Step> = self.steps.iter().take(at + 1).copied().collect();
        let mut width = steps.len() / 2;
        while width > 0 {
            let mut place = 0;
            while place < steps.len() {
                let end = (place + width).min(steps.len());
                let mut fewer = steps.clone();
                fewer.drain(place..end);
                match self.run(&fewer).1 {
                    Some((at, found)) if found.invariant == failure.invariant => {
                        fewer.truncate(at + 1);
                        steps = fewer;
                        failure = found;
                    }
                    _ => place = end,
                }
            }
            width /= 2;
        }
        FailingSeed {
            seed: self.seed,
            failure,
            steps: self.describe(&steps),
        }
    }

    fn describe(&self, steps: &[Step]) -> Vec<String> {
        let setting = &self.setting;
        let mut lines = vec![format!(
            "{:?}, {:?}, mark {:#x}, table left with generation {:?}, owned {}, small {}",
            setting.config.established,
            setting.blocks,
            setting.nft.mark.mask(),
            setting.left,
            setting.owns,
            setting.is_small
        )];
        lines.extend(
            steps
                .iter()
                .map(|step| self.catalog.describe(*step, &self.flows)),
        );
        lines
    }
}
