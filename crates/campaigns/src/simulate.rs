//! The agent's loop, simulated: the real agent on a model of the kernel, with everything that can go wrong
//! between them, decided by a seed.
//!
//! Objects come, change and go in any order and in batches of any size; the source repeats itself; commands are
//! refused, their answers are lost, the agent is killed between two transactions and started again, others change the
//! table, and generations come round. During every transaction packets are sent through the model, also such that
//! are under way at the moment of the commit: what passes must be allowed by the objects of before or by those of after.
//! Whenever everything has come to rest, the kernel does what the engine says of the objects, for every flow.

mod background;
pub mod campaign;
mod carry;
mod catalog;
mod dense;
mod foreign;
pub mod hostile;
mod look;
pub mod model;
mod play;
mod script;
mod spell;
pub mod table;
mod truth;
pub mod walk;

use std::fmt;

use self::catalog::{Catalog, Sources};
use self::play::Play;
use self::script::{Setting, Step};
use palisade_generate::Rng;

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which of the promises was broken.
    pub kind: Kind,
    /// How.
    pub words: String,
}

impl Failure {
    fn new(kind: Kind, words: String) -> Failure {
        Failure { kind, words }
    }
}

/// The promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// At rest the kernel does what the engine says.
    Diverged,
    /// At rest the plan is that of all objects together.
    Plan,
    /// Nothing passes that neither the objects of before nor those of after allow.
    Wide,
    /// Nor does it for packets that are under way during a commit.
    Torn,
    /// Nor do connections that such packets opened go on after it.
    TornMark,
    /// Nothing is dropped that both allow.
    Narrow,
    /// Connections that are denied end, and go on if they are to be kept.
    Established,
    /// The kernel does not refuse what it is told.
    Refused,
    /// The table is as the agent thinks.
    Drift,
    /// The agent leaves everything as it is until it was told all objects.
    Early,
    /// The agent comes to rest.
    Busy,
}

/// What is made of single packets that pass while a transaction is committed, although neither the objects of
/// before nor those of after allow them, and of packets that are dropped between two transactions of one change, although
/// both do. That connections of the former go on is always a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum During {
    /// They are counted.
    Counted,
    /// They are mistakes.
    Mistakes,
}

/// How much was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Simulations.
    pub seeds: u64,
    /// Steps.
    pub steps: u64,
    /// Commands of the agent.
    pub commands: u64,
    /// Tasks in the background.
    pub tasks: u64,
    /// Transactions.
    pub transactions: u64,
    /// Whole tables put in place.
    pub installs: u64,
    /// Changes of tables in place.
    pub changes: u64,
    /// Sweeps of old marks.
    pub sweeps: u64,
    /// Repairs of what others did.
    pub drifts: u64,
    /// Commands that were made to fail.
    pub faults: u64,
    /// Times that everything came to rest.
    pub rests: u64,
    /// Verdicts compared at rest.
    pub verdicts: u64,
    /// Packets sent during transactions.
    pub packets: u64,
    /// Ways that they may have gone while one was committed.
    pub torn: u64,
    /// Of those, dropped although before and after allow them.
    pub torn_lost: u64,
    /// Or passed although neither does.
    pub torn_wide: u64,
    /// Packets dropped between two transactions of one change, although before and after allow them.
    pub narrow: u64,
    /// Groups that were told as another's at rest.
    pub saved: u64,
    /// Policies that did not fit into the budget of their namespace, at rest.
    pub over_budget: u64,
    /// Times that groups which were told as one became different.
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
        self.rests += other.rests;
        self.verdicts += other.verdicts;
        self.packets += other.packets;
        self.torn += other.torn;
        self.torn_lost += other.torn_lost;
        self.torn_wide += other.torn_wide;
        self.narrow += other.narrow;
        self.saved += other.saved;
        self.over_budget += other.over_budget;
        self.splits += other.splits;
    }
}

/// A seed that shows a mistake, and the few steps that are needed for it.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The seed.
    pub seed: u64,
    /// What went wrong after the last step.
    pub failure: Failure,
    /// The steps, in words.
    pub steps: Vec<String>,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {:?}: {}",
            self.seed, self.failure.kind, self.failure.words
        )?;
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "  {:>3} {step}", number + 1)?;
        }
        Ok(())
    }
}

/// Seeds that follow each other share their objects, so many at a time.
const SEEDS_PER_CATALOG: u64 = 64;

/// Simulates seeds, one after the other, up to the first that fails.
pub fn simulate(seeds: std::ops::Range<u64>, during: During) -> (Counts, Option<Shown>) {
    let mut counts = Counts::default();
    let mut first = seeds.start;
    while first < seeds.end {
        let number = first / SEEDS_PER_CATALOG;
        let end = ((number + 1) * SEEDS_PER_CATALOG).min(seeds.end);
        let sources = Sources::new(number);
        let catalog = Catalog::new(&sources);
        for seed in first..end {
            let scene = Scene::new(seed, &catalog, during);
            let (played, failure) = scene.play(&scene.steps);
            counts.add(played);
            if let Some((at, failure)) = failure {
                return (counts, Some(scene.shrink(at, failure)));
            }
        }
        first = end;
    }
    (counts, None)
}

/// Everything that a seed decides.
struct Scene<'c> {
    seed: u64,
    catalog: &'c Catalog<'c>,
    flows: Vec<walk::Packet>,
    setting: Setting,
    steps: Vec<Step>,
    during: During,
}

impl<'c> Scene<'c> {
    fn new(seed: u64, catalog: &'c Catalog<'c>, during: During) -> Scene<'c> {
        let mut rng = Rng::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x7369_6d75);
        let setting = Setting::new(&mut rng);
        let flows = truth::flows(&mut rng, catalog);
        let steps = script::steps(&mut rng, catalog, flows.len());
        Scene {
            seed,
            catalog,
            flows,
            setting,
            steps,
            during,
        }
    }

    /// Plays steps. Says at which one something was wrong.
    fn play(&self, steps: &[Step]) -> (Counts, Option<(usize, Failure)>) {
        let setting = self.setting.clone();
        let mut play = Play::new(self.catalog, &self.flows, setting, self.during, self.seed);
        play.counts.seeds = 1;
        for (place, step) in steps.iter().enumerate() {
            play.counts.steps += 1;
            if let Err(failure) = play.step(*step) {
                return (play.counts, Some((place, failure)));
            }
        }
        play.count_splits();
        (play.counts, None)
    }

    /// Leaves out what the failure does not need.
    fn shrink(&self, at: usize, mut failure: Failure) -> Shown {
        let mut steps: Vec<Step> = self.steps.iter().take(at + 1).copied().collect();
        let mut width = steps.len() / 2;
        while width > 0 {
            let mut place = 0;
            while place < steps.len() {
                let end = (place + width).min(steps.len());
                let mut fewer = steps.clone();
                fewer.drain(place..end);
                match self.play(&fewer).1 {
                    Some((at, found)) if found.kind == failure.kind => {
                        fewer.truncate(at + 1);
                        steps = fewer;
                        failure = found;
                    }
                    _ => place = end,
                }
            }
            width /= 2;
        }
        Shown {
            seed: self.seed,
            failure,
            steps: self.words(&steps),
        }
    }

    fn words(&self, steps: &[Step]) -> Vec<String> {
        let setting = &self.setting;
        let mut words = vec![format!(
            "{:?}, {:?}, mark {:#x}, table left with generation {:?}, owned {}, small {}",
            setting.config.established,
            setting.blocks,
            setting.config.mark.mask(),
            setting.left,
            setting.owns,
            setting.is_small
        )];
        words.extend(
            steps
                .iter()
                .map(|step| self.catalog.words(*step, &self.flows)),
        );
        words
    }
}
