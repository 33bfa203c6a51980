//! "No input makes less be denied": the real reading, following and taking in of lists and watches, and the real agent on the
//! model of the kernel or on the real one, before a server whose answers are broken on purpose.
//!
//! Beside it stands what has to be in force: of each object the last version that the server said in a way that can be read,
//! until it said, in a way that can be believed, that the object is gone (D145, D149, D150). It is written down by who breaks the answers, and not
//! by who reads them. After every answer each flow that those objects deny is denied, and what could not be read is told.

mod answers;
mod broken;
pub mod campaign;
mod enforcer;
mod kernel;
mod known;
mod log;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use palisade_agent::cluster::Kinds;
use palisade_agent::{Agent, AuditOutcome, Config, Next, Task, TaskOutcome};
use palisade_core::budget::Budget;
use palisade_core::incremental::HashKey;
use palisade_kube::Resource;
use palisade_kube::reflector::{NextAction, Reflector, Response};

use self::broken::Broken;
use self::enforcer::{Enforcer, ModelKernel};
use self::kernel::RealKernel;
use self::known::Known;
use self::log::Log;
use super::catalog::{Catalog, Sources};
use super::script::small_budget;
use super::truth::{self, Blocks, NODE, Truth};
use super::walk::Packet;
use palisade_generate::Rng;

/// So many answers are given in one run.
const ANSWERS: usize = 60;
/// How often a packet is sent again that does not arrive and should: a busy machine loses packets.
const MORE_TRIES: usize = 3;
/// More than any agent takes to come to rest.
const MOST_TURNS: usize = 200;

/// How much was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Runs.
    pub seeds: u64,
    /// Answers.
    pub answers: u64,
    /// Those that were broken, by how.
    pub broken: BTreeMap<&'static str, u64>,
    /// Verdicts compared.
    pub verdicts: u64,
    /// Of those, denied by the objects that were read last.
    pub denied: u64,
    /// Whole tables and changes of tables.
    pub commands: u64,
    /// Policies that did not fit into the budget of their namespace when verdicts were compared.
    pub over_budget: u64,
}

impl Counts {
    /// How many answers were broken in some way.
    pub fn n_broken(&self) -> u64 {
        let broken = self.broken.iter();
        let broken = broken.filter(|(how, _)| **how != Broken::Not.word());
        broken.map(|(_, count)| count).sum()
    }

    fn add(&mut self, other: &Counts) {
        self.seeds += other.seeds;
        self.answers += other.answers;
        self.verdicts += other.verdicts;
        self.denied += other.denied;
        self.commands += other.commands;
        self.over_budget += other.over_budget;
        for (how, count) in &other.broken {
            *self.broken.entry(how).or_default() += count;
        }
    }
}

/// A seed that shows a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The seed.
    pub seed: u64,
    /// What is wrong.
    pub words: String,
    /// The answers up to there, in words.
    pub answers: Vec<String>,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.words)?;
        for answer in &self.answers {
            writeln!(f, "  {answer}")?;
        }
        Ok(())
    }
}

/// Seeds that follow each other share their objects, so many at a time.
const SEEDS_PER_CATALOG: u64 = 64;

/// What enforces in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforced {
    /// The model of the kernel.
    ByModel,
    /// The real kernel, in network namespaces of the run. The process must have entered one of its own before.
    ByKernel,
    /// Nothing: the real kernel, which no command reaches. A run that finds no mistake there does not see what passes.
    ByNothing,
}

/// Runs seeds, up to the first mistake.
pub fn run(seeds: std::ops::Range<u64>, enforced: Enforced) -> (Counts, Option<Mistake>) {
    let mut counts = Counts::default();
    let mut first = seeds.start;
    while first < seeds.end {
        let number = first / SEEDS_PER_CATALOG;
        let end = ((number + 1) * SEEDS_PER_CATALOG).min(seeds.end);
        let sources = Sources::new(number);
        let catalog = Catalog::new(&sources);
        for seed in first..end {
            if let Err(mistake) = run_seed(seed, &catalog, enforced, &mut counts) {
                return (counts, Some(mistake));
            }
        }
        first = end;
    }
    (counts, None)
}

fn run_seed(
    seed: u64,
    catalog: &Catalog<'_>,
    enforced: Enforced,
    counts: &mut Counts,
) -> Result<(), Mistake> {
    let mistake = |words: String, answers: Vec<String>| Mistake {
        seed,
        words,
        answers,
    };
    let mut rng = Rng::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x686f_7374);
    let flows = truth::flows(&mut rng, catalog);
    let enforcer: Box<dyn Enforcer> = match enforced {
        Enforced::ByModel => Box::new(ModelKernel::new()),
        Enforced::ByKernel | Enforced::ByNothing => {
            let built = RealKernel::build(&flows, enforced == Enforced::ByKernel);
            Box::new(built.map_err(|words| mistake(words, Vec::new()))?)
        }
    };
    let mut play = Play::new(rng, flows, catalog, enforcer);
    let outcome = play.play();
    counts.add(&play.counts);
    outcome.map_err(|words| mistake(words, play.words))
}

/// A kind that is followed.
struct Followed {
    resource: Resource,
    follow: Reflector,
    log: Log,
    known: Known,
}

struct Play<'c> {
    catalog: &'c Catalog<'c>,
    budget: Budget,
    flows: Vec<Packet>,
    rng: Rng,
    kinds: Kinds,
    followed: Vec<Followed>,
    agent: Agent,
    enforcer: Box<dyn Enforcer>,
    now: Duration,
    counts: Counts,
    words: Vec<String>,
}

impl<'c> Play<'c> {
    fn new(
        rng: Rng,
        mut flows: Vec<Packet>,
        catalog: &'c Catalog<'c>,
        enforcer: Box<dyn Enforcer>,
    ) -> Play<'c> {
        flows.retain(|flow| enforcer.can_send(flow));
        let resources = Resource::of_agents(false);
        let mut config = Config::new(NODE);
        config.hash_key = HashKey::new(1, 2);
        // Not drawn from what decides everything else.
        let number = rng.clone().below(1_000);
        if number.is_multiple_of(4) {
            config.budget = small_budget(number / 4);
        }
        let budget = config.budget;
        let followed = resources.iter().map(|resource| Followed {
            resource: *resource,
            follow: Reflector::new(resource.is_built_in),
            log: Log::new(*resource, catalog),
            known: Known::default(),
        });
        let mut play = Play {
            catalog,
            budget,
            flows,
            kinds: Kinds::new(&resources),
            followed: followed.collect(),
            agent: Agent::new(config, None),
            enforcer,
            rng,
            now: Duration::from_secs(1),
            counts: Counts {
                seeds: 1,
                ..Counts::default()
            },
            words: Vec::new(),
        };
        for followed in &mut play.followed {
            followed.log.fill(&mut play.rng);
        }
        play
    }

    fn play(&mut self) -> Result<(), String> {
        self.answer_all()?;
        self.check(true)?;
        for _ in 0..ANSWERS {
            if self.rng.chance(50) {
                let place = self.rng.below(self.followed.len() as u64) as usize;
                if let Some(followed) = self.followed.get_mut(place) {
                    followed.log.change(&mut self.rng);
                }
            }
            let place = self.rng.below(self.followed.len() as u64) as usize;
            let is_broken = self.rng.chance(60);
            self.answer(place, is_broken)?;
            self.settle()?;
            self.check(false)?;
        }
        // Whatever happened, a server that answers as it should is followed again, and nothing is left of it.
        self.answer_all()?;
        self.check(true)?;
        match self.kinds.missing().as_slice() {
            [] => Ok(()),
            missing => Err(format!("still told to be wrong: {missing:?}")),
        }
    }

    /// Answers everything as it should be until all kinds are watched and nothing more is said.
    fn answer_all(&mut self) -> Result<(), String> {
        for place in 0..self.followed.len() {
            let mut is_listed = false;
            for _ in 0..40 {
                let ask = self.followed.get(place).map(|it| it.follow.next());
                match ask {
                    // What a broken answer has left open is only told by a whole list.
                    Some(NextAction::Watch(_)) if is_listed => break,
                    Some(NextAction::Watch(_)) => self.refuse(place, 410),
                    Some(NextAction::List(after)) => {
                        is_listed |= after.is_none();
                        self.answer(place, false)?;
                    }
                    _ => self.answer(place, false)?,
                }
            }
        }
        self.settle()
    }

    fn refuse(&mut self, place: usize, code: u16) {
        let refusal = palisade_kube::response::StatusError::of(code, "");
        self.hear(place, Response::Refused(refusal));
    }

    /// Answers what a kind is asked for.
    fn answer(&mut self, place: usize, is_broken: bool) -> Result<(), String> {
        self.now += Duration::from_secs(1);
        self.counts.answers += 1;
        let Some(followed) = self.followed.get_mut(place) else {
            return Ok(());
        };
        if let NextAction::Rest(_) = followed.follow.next() {
            self.hear(place, Response::Rested);
        }
        let Some(followed) = self.followed.get_mut(place) else {
            return Ok(());
        };
        let ask = followed.follow.next();
        let broken = if is_broken {
            Broken::any(&ask, &mut self.rng)
        } else {
            Broken::Not
        };
        *self.counts.broken.entry(broken.word()).or_default() += 1;
        let name = followed.resource.plural;
        self.words
            .push(format!("{name}: {ask:?} is answered: {}", broken.word()));
        self.give(place, &ask, broken);
        if self.kinds.are_complete() {
            self.agent.synced(self.now);
        }
        // What was said and could not be read is told.
        let Some(followed) = self.followed.get(place) else {
            return Ok(());
        };
        if followed.known.has_unread() && self.kinds.missing().is_empty() {
            return Err(format!("{name}: what cannot be read is not told"));
        }
        Ok(())
    }

    fn hear(&mut self, place: usize, answer: Response) {
        let Some(followed) = self.followed.get_mut(place) else {
            return;
        };
        let kind = followed.resource.kind;
        for news in followed.follow.handle(answer, 0) {
            let mut store = self.agent.objects(self.now);
            self.kinds.take(self.now, kind, &news, &mut store);
        }
    }

    /// Lets the agent do what is to be done.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..MOST_TURNS {
            match self.agent.next(self.now) {
                Next::Do(command) => {
                    self.counts.commands += 1;
                    self.enforcer.carry_out(command)?;
                    self.agent.finished(self.now, Ok(()));
                }
                Next::Spawn(Task::ClearMarks(_)) => {
                    let done = TaskOutcome::ClearMarks(Ok(()));
                    self.agent.task_finished(self.now, done);
                }
                Next::Spawn(Task::Audit { .. }) => {
                    let same = TaskOutcome::Audit(Ok(AuditOutcome::default()));
                    self.agent.task_finished(self.now, same);
                }
                Next::Wait(Some(until)) if !self.agent.is_current() && until > self.now => {
                    self.now = until;
                }
                Next::Wait(_) => return Ok(()),
            }
            self.agent.outcomes().for_each(drop);
        }
        Err("the agent does not come to rest".to_owned())
    }

    /// Nothing passes that the objects deny which could be read last. If all was said, everything else passes.
    fn check(&mut self, is_all_said: bool) -> Result<(), String> {
        if !self.agent.is_in_place() {
            return Ok(());
        }
        let known = self.followed.iter().flat_map(|it| it.known.objects());
        let known: BTreeMap<usize, usize> = known.collect();
        let truth = self
            .catalog
            .with_cluster(self.budget, &known, |cluster, program| {
                Truth::of(cluster, program, &Blocks::OfNode, &self.flows)
            });
        self.counts.over_budget += self.agent.planner().counts().over_budget as u64;
        // What the objects allow may be dropped until all was said, so that only the rest is sent.
        let flows = self.flows.iter().enumerate();
        let asked = flows.map(|(flow, packet)| (*packet, truth.allows(flow)));
        let asked = asked.filter(|(_, is_allowed)| !is_allowed || is_all_said);
        let (packets, allowed): (Vec<Packet>, Vec<bool>) = asked.unzip();
        self.counts.verdicts += packets.len() as u64;
        self.counts.denied += allowed.iter().filter(|it| !**it).count() as u64;
        let passed = self.enforcer.passes(&packets)?;
        let mut absent = Vec::new();
        for ((packet, is_allowed), passed) in packets.iter().zip(allowed).zip(passed) {
            match (is_allowed, passed) {
                (false, true) => return Err(format!("{packet}, passes")),
                (true, false) => absent.push(*packet),
                (true, true) | (false, false) => {}
            }
        }
        for _ in 0..MORE_TRIES {
            let mut arrived = self.enforcer.passes(&absent)?.into_iter();
            absent.retain(|_| !arrived.next().unwrap_or(false));
        }
        match absent.first() {
            None => Ok(()),
            Some(packet) => Err(format!("{packet}, is dropped")),
        }
    }
}
