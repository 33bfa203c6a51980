//! "No input makes the node deny less": the real reflector and the real agent, on the model of the
//! kernel or on the real one, with an API server that sends malformed responses.
//!
//! The expected objects are computed from the responses as they were generated, not as they were
//! read: of each object the last readable version, until a credible deletion (D145, D149, D150).
//! After every response, each flow that those objects deny must be denied, and unreadable objects
//! must be reported.

pub mod campaign;
mod enforcer;
mod event_log;
mod expected;
mod fault;
mod kernel;
mod responses;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use palisade_agent::cluster::Kinds;
use palisade_agent::{Agent, AuditOutcome, Config, Next, Nft, Task, TaskOutcome};
use palisade_core::budget::Budget;
use palisade_core::incremental::HashKey;
use palisade_kube::Resource;
use palisade_kube::reflector::{NextAction, Reflector, Response};

use self::enforcer::{Enforcer, ModelKernel};
use self::event_log::EventLog;
use self::expected::ExpectedObjects;
use self::fault::ResponseFault;
use self::kernel::RealKernel;
use super::catalog::{self, Catalog};
use super::evaluation::Packet;
use super::expected::{self as node_expected, ExpectedVerdicts, NODE, PodBlocks};
use super::script::small_budget;
use palisade_generate::Rng;

/// Responses in one run.
const RESPONSES: usize = 60;
/// Retries of an allowed packet that does not arrive: a busy machine loses packets.
const RETRIES: usize = 3;
/// Steps within which an agent must be idle.
const MAX_STEPS: usize = 200;

/// The counters of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Runs.
    pub seeds: u64,
    /// Answers.
    pub responses: u64,
    /// Responses by fault.
    pub faults: BTreeMap<&'static str, u64>,
    /// Verdicts compared.
    pub verdicts: u64,
    /// Of those, denied by the last readable objects.
    pub denied: u64,
    /// Installations and updates of tables.
    pub commands: u64,
    /// Policies over the budget of their namespace when verdicts were compared.
    pub over_budget: u64,
}

impl Counts {
    /// The number of responses with a fault.
    pub fn n_faulty(&self) -> u64 {
        let faults = self.faults.iter();
        let faults = faults.filter(|(fault, _)| **fault != ResponseFault::None.label());
        faults.map(|(_, count)| count).sum()
    }

    fn add(&mut self, other: &Counts) {
        self.seeds += other.seeds;
        self.responses += other.responses;
        self.verdicts += other.verdicts;
        self.denied += other.denied;
        self.commands += other.commands;
        self.over_budget += other.over_budget;
        for (how, count) in &other.faults {
            *self.faults.entry(how).or_default() += count;
        }
    }
}

/// A failing seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The seed.
    pub seed: u64,
    /// The failure.
    pub message: String,
    /// The responses before it, as text.
    pub responses: Vec<String>,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.message)?;
        for response in &self.responses {
            writeln!(f, "  {response}")?;
        }
        Ok(())
    }
}

/// The kernel of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelMode {
    /// The model of the kernel.
    Model,
    /// The real kernel, in network namespaces of the run. The process must be in a namespace of its
    /// own.
    Real,
    /// The real kernel, without any of the agent's commands. A run must find a mistake there: it
    /// shows that the measurement works.
    Unreached,
}

/// Runs seeds, up to the first mistake.
pub fn run(seeds: std::ops::Range<u64>, mode: KernelMode) -> (Counts, Option<Mistake>) {
    let mut counts = Counts::default();
    let mistake = catalog::first_of(seeds, |seed, catalog| {
        run_seed(seed, catalog, mode, &mut counts).err()
    });
    (counts, mistake)
}

fn run_seed(
    seed: u64,
    catalog: &Catalog<'_>,
    mode: KernelMode,
    counts: &mut Counts,
) -> Result<(), Mistake> {
    let mistake = |message: String, responses: Vec<String>| Mistake {
        seed,
        message,
        responses,
    };
    let mut rng = Rng::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x686f_7374);
    let flows = node_expected::flows(&mut rng, catalog);
    let enforcer: Box<dyn Enforcer> = match mode {
        KernelMode::Model => Box::new(ModelKernel::new()),
        KernelMode::Real | KernelMode::Unreached => {
            let built = RealKernel::build(&flows, mode == KernelMode::Real);
            Box::new(built.map_err(|message| mistake(message, Vec::new()))?)
        }
    };
    let mut run = HostileRun::new(rng, flows, catalog, enforcer);
    let outcome = run.run();
    counts.add(&run.counts);
    outcome.map_err(|message| mistake(message, run.message))
}

/// A watched kind.
struct WatchedKind {
    resource: Resource,
    reflector: Reflector,
    event_log: EventLog,
    expected: ExpectedObjects,
}

struct HostileRun<'c> {
    catalog: &'c Catalog<'c>,
    budget: Budget,
    flows: Vec<Packet>,
    rng: Rng,
    kinds: Kinds,
    watched: Vec<WatchedKind>,
    agent: Agent,
    enforcer: Box<dyn Enforcer>,
    now: Duration,
    counts: Counts,
    message: Vec<String>,
}

impl<'c> HostileRun<'c> {
    fn new(
        rng: Rng,
        mut flows: Vec<Packet>,
        catalog: &'c Catalog<'c>,
        enforcer: Box<dyn Enforcer>,
    ) -> HostileRun<'c> {
        flows.retain(|flow| enforcer.can_send(flow));
        let resources = Resource::of_agents(false);
        let mut config = Config::new(NODE);
        config.hash_key = HashKey::new(1, 2);
        // A clone: the seed's other choices must not depend on the budget.
        let number = rng.clone().below(1_000);
        if number.is_multiple_of(4) {
            config.budget = small_budget(number / 4);
        }
        let budget = config.budget;
        let watched = resources.iter().map(|resource| WatchedKind {
            resource: *resource,
            reflector: Reflector::new(resource.is_built_in),
            event_log: EventLog::new(*resource, catalog),
            expected: ExpectedObjects::default(),
        });
        let mut run = HostileRun {
            catalog,
            budget,
            flows,
            kinds: Kinds::new(&resources),
            watched: watched.collect(),
            agent: Agent::new(Nft::default(), config, None),
            enforcer,
            rng,
            now: Duration::from_secs(1),
            counts: Counts {
                seeds: 1,
                ..Counts::default()
            },
            message: Vec::new(),
        };
        for watched in &mut run.watched {
            watched.event_log.fill(&mut run.rng);
        }
        run
    }

    fn run(&mut self) -> Result<(), String> {
        self.sync_all()?;
        self.check(true)?;
        for _ in 0..RESPONSES {
            if self.rng.chance(50) {
                let place = self.rng.below(self.watched.len() as u64) as usize;
                if let Some(watched) = self.watched.get_mut(place) {
                    watched.event_log.change(&mut self.rng);
                }
            }
            let place = self.rng.below(self.watched.len() as u64) as usize;
            let is_faulty = self.rng.chance(60);
            self.respond(place, is_faulty)?;
            self.run_until_idle()?;
            self.check(false)?;
        }
        // Once the server's responses are correct, the agent must recover and report nothing.
        self.sync_all()?;
        self.check(true)?;
        match self.kinds.missing().as_slice() {
            [] => Ok(()),
            missing => Err(format!("still reported as missing: {missing:?}")),
        }
    }

    /// Sends correct responses until all kinds are watched and up to date.
    fn sync_all(&mut self) -> Result<(), String> {
        for place in 0..self.watched.len() {
            let mut is_listed = false;
            for _ in 0..40 {
                let request = self.watched.get(place).map(|it| it.reflector.next());
                match request {
                    // Only a complete list resolves what a malformed response left unknown.
                    Some(NextAction::Watch(_)) if is_listed => break,
                    Some(NextAction::Watch(_)) => self.refuse(place, 410),
                    Some(NextAction::List(after)) => {
                        is_listed |= after.is_none();
                        self.respond(place, false)?;
                    }
                    _ => self.respond(place, false)?,
                }
            }
        }
        self.run_until_idle()
    }

    fn refuse(&mut self, place: usize, code: u16) {
        let refusal = palisade_kube::response::StatusError::of(code, "");
        self.handle(place, Response::Refused(refusal));
    }

    /// Responds to the next request of a kind.
    fn respond(&mut self, place: usize, is_faulty: bool) -> Result<(), String> {
        self.now += Duration::from_secs(1);
        self.counts.responses += 1;
        let Some(watched) = self.watched.get_mut(place) else {
            return Ok(());
        };
        if let NextAction::Rest(_) = watched.reflector.next() {
            self.handle(place, Response::Rested);
        }
        let Some(watched) = self.watched.get_mut(place) else {
            return Ok(());
        };
        let request = watched.reflector.next();
        let fault = if is_faulty {
            ResponseFault::any(&request, &mut self.rng)
        } else {
            ResponseFault::None
        };
        *self.counts.faults.entry(fault.label()).or_default() += 1;
        let name = watched.resource.plural;
        self.message.push(format!(
            "{name}: response to {request:?}: {}",
            fault.label()
        ));
        self.send(place, &request, fault);
        if self.kinds.are_complete() {
            self.agent.synced(self.now);
        }
        // Unreadable objects must be reported.
        let Some(watched) = self.watched.get(place) else {
            return Ok(());
        };
        if watched.expected.has_unreadable() && self.kinds.missing().is_empty() {
            return Err(format!("{name}: an unreadable object is not reported"));
        }
        Ok(())
    }

    fn handle(&mut self, place: usize, response: Response) {
        let Some(watched) = self.watched.get_mut(place) else {
            return;
        };
        let kind = watched.resource.kind;
        for news in watched.reflector.handle(response, 0) {
            let mut store = self.agent.objects(self.now);
            self.kinds.take(self.now, kind, news, &mut store);
        }
    }

    /// Runs the agent until it is idle.
    fn run_until_idle(&mut self) -> Result<(), String> {
        for _ in 0..MAX_STEPS {
            match self.agent.next(self.now) {
                Next::Do(command) => {
                    self.counts.commands += 1;
                    self.enforcer.execute(command)?;
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
        Err("the agent does not become idle".to_owned())
    }

    /// Checks that every flow is denied that the last readable objects deny. If the agent is up to
    /// date, all other flows must pass.
    fn check(&mut self, is_up_to_date: bool) -> Result<(), String> {
        if !self.agent.is_in_place() {
            return Ok(());
        }
        let objects = self.watched.iter().flat_map(|it| it.expected.objects());
        let objects: BTreeMap<usize, usize> = objects.collect();
        let expected = self
            .catalog
            .with_cluster(self.budget, &objects, |cluster, program| {
                ExpectedVerdicts::of(cluster, program, &PodBlocks::OfNode, &self.flows)
            });
        self.counts.over_budget += self.agent.planner().counts().over_budget as u64;
        // Allowed flows may be dropped until the agent is up to date; only the others are sent.
        let flows = self.flows.iter().enumerate();
        let checked = flows.map(|(flow, packet)| (*packet, expected.allows(flow)));
        let checked = checked.filter(|(_, is_allowed)| !is_allowed || is_up_to_date);
        let (packets, allowed): (Vec<Packet>, Vec<bool>) = checked.unzip();
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
        for _ in 0..RETRIES {
            let mut arrived = self.enforcer.passes(&absent)?.into_iter();
            absent.retain(|_| !arrived.next().unwrap_or(false));
        }
        match absent.first() {
            None => Ok(()),
            Some(packet) => Err(format!("{packet}, is dropped")),
        }
    }
}
