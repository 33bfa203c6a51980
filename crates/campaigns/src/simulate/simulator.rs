//! Runs a list of steps: the agent, the model of the kernel, and a driver between them that can
//! inject faults.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use palisade_agent::Agent;
use palisade_api::lower_one;
use palisade_nft::node::{Generation, MarkBits, NodeOptions, Settings, ruleset};
use palisade_nft::ruleset::Point;
use palisade_nft::watch::TableNotice;

use super::background::Background;
use super::catalog::Catalog;
use super::evaluation::Packet;
use super::execute::{InjectedFault, RunningCommand};
use super::expected::{ExpectedVerdicts, PodBlocks};
use super::foreign;
use super::model::{Installation, Model, Process};
use super::script::{NoticeArrival, Setting, Step};
use super::{Counts, Failure, InFlight};
use palisade_generate::Rng;

/// The process that admitted a connection, and the pods at its ends.
pub(super) type ConnectionOrigin = (u32, [Option<String>; 2]);

/// A running simulation.
pub(super) struct Simulator<'c> {
    pub(super) catalog: &'c Catalog<'c>,
    pub(super) flows: &'c [Packet],
    pub(super) setting: Setting,
    pub(super) model: Model,
    pub(super) process: Process,
    pub(super) agent: Option<Agent>,
    pub(super) now: Duration,
    /// The objects of the cluster: their keys and versions.
    pub(super) objects: BTreeMap<usize, usize>,
    /// The objects that the running agent has received.
    pub(super) received: BTreeMap<usize, usize>,
    pub(super) running: Option<RunningCommand>,
    /// The running background tasks.
    pub(super) background: Vec<Background>,
    /// The flows that the kernel may allow.
    pub(super) upper: Rc<ExpectedVerdicts>,
    /// The flows that the kernel must allow.
    pub(super) lower: Rc<ExpectedVerdicts>,
    /// The verdicts for the objects that the agent has processed.
    pub(super) applied: Rc<ExpectedVerdicts>,
    /// The origins of marked connections.
    pub(super) origins: BTreeMap<Packet, ConnectionOrigin>,
    /// Whether another program has changed the table since its installation.
    pub(super) is_foreign: bool,
    notices: usize,
    pub(super) injected: Option<InjectedFault>,
    expected_cache: Vec<(BTreeMap<usize, usize>, Rc<ExpectedVerdicts>)>,
    pub(super) rng: Rng,
    pub(super) counts: Counts,
    pub(super) in_flight: InFlight,
    /// The times of the latest generations.
    pub(super) generations: VecDeque<Duration>,
    /// The number of commands since the last step.
    pub(super) commands: usize,
}

impl<'c> Simulator<'c> {
    pub(super) fn new(
        catalog: &'c Catalog<'c>,
        flows: &'c [Packet],
        setting: Setting,
        in_flight: InFlight,
        seed: u64,
    ) -> Simulator<'c> {
        let open = Rc::new(ExpectedVerdicts::open(flows));
        let mut simulator = Simulator {
            catalog,
            flows,
            model: Model::default(),
            process: Process {
                id: 0,
                owns: setting.owns,
                table: None,
            },
            setting,
            agent: None,
            now: Duration::from_secs(1),
            objects: BTreeMap::new(),
            received: BTreeMap::new(),
            running: None,
            background: Vec::new(),
            upper: Rc::clone(&open),
            lower: Rc::clone(&open),
            applied: open,
            origins: BTreeMap::new(),
            is_foreign: false,
            notices: 0,
            injected: None,
            expected_cache: Vec::new(),
            rng: Rng::new(seed ^ 0x706c_6179),
            counts: Counts::default(),
            in_flight,
            generations: VecDeque::new(),
            commands: 0,
        };
        simulator.install_earlier_table();
        simulator
    }

    pub(super) fn bits(&self) -> MarkBits {
        self.setting.nft.mark
    }

    /// Installs a table of an earlier process, with connections marked with all possible
    /// generations.
    fn install_earlier_table(&mut self) {
        let Some(generation) = self.setting.left.and_then(Generation::new) else {
            return;
        };
        let bits = self.bits();
        let options = NodeOptions {
            mark: bits,
            established: self.setting.config.established.into(),
            ..NodeOptions::default()
        };
        let settings = Settings::of_node(generation, &options);
        let left = ruleset(&palisade_core::plan::Plan::default(), &settings);
        let Installation { ops, .. } = self.process.install(&self.model, &left, false);
        for op in &ops {
            let _ = self.model.execute(self.process, bits, op);
        }
        let (last, current) = (bits.last_generation(), generation.get());
        let middle = last / 2;
        for flow in self.flows {
            let number = 1 + self.rng.below(u64::from(last)) as u16;
            // No connection has a mark of the next generations in this half.
            let is_free = (number > middle) == (current > middle) && number > current;
            let it = Generation::new(number).filter(|_| !is_free && self.rng.chance(10));
            if let Some(it) = it {
                self.model.connections.insert(*flow, bits.full(it));
            }
        }
    }

    /// The engine's verdicts for objects.
    pub(super) fn expected(&mut self, objects: &BTreeMap<usize, usize>) -> Rc<ExpectedVerdicts> {
        if let Some((_, expected)) = self.expected_cache.iter().find(|(it, _)| it == objects) {
            return Rc::clone(expected);
        }
        let (blocks, flows) = (self.blocks(), self.flows);
        let budget = self.setting.config.budget;
        let expected = self
            .catalog
            .with_cluster(budget, objects, |cluster, program| {
                ExpectedVerdicts::of(cluster, program, &blocks, flows)
            });
        let expected = Rc::new(expected);
        if self.expected_cache.len() > 16 {
            self.expected_cache.remove(0);
        }
        self.expected_cache
            .push((objects.clone(), Rc::clone(&expected)));
        expected
    }

    fn blocks(&self) -> PodBlocks {
        self.setting.blocks.clone()
    }

    /// Runs one step.
    pub(super) fn step(&mut self, step: Step) -> Result<(), Failure> {
        self.commands = 0;
        match step {
            Step::Set(key, version) => {
                self.objects.insert(key, version);
                self.deliver(key);
            }
            Step::Remove(key) => {
                self.objects.remove(&key);
                self.deliver(key);
            }
            Step::Repeat(key) => self.deliver(key),
            Step::Relist(first) => {
                let (later, earlier): (Vec<usize>, Vec<usize>) =
                    self.received.keys().partition(|key| **key >= first);
                for key in later.into_iter().chain(earlier) {
                    self.deliver(key);
                }
            }
            Step::Deliver(count) => self.deliver_missing(count),
            Step::Sync => self.sync(),
            Step::Advance => self.advance()?,
            Step::Pass(milliseconds) => self.now += Duration::from_millis(milliseconds),
            Step::Resync => {
                if let Some(agent) = &mut self.agent {
                    agent.resync(self.now);
                }
            }
            Step::Refuse => self.injected = Some(InjectedFault::Refuse),
            Step::LoseResponse => self.injected = Some(InjectedFault::LoseResponse),
            Step::Kill => self.kill(),
            Step::Start => self.start(),
            Step::ForeignChange(how, pick) => self.change_by_other_program(how, pick),
            Step::Notice(arrival) => self.notice(arrival),
            Step::Send(flow, reply) => self.send(flow, reply),
            Step::Converge {
                lose_notices,
                with_audit,
            } => self.converge(lose_notices, with_audit)?,
        }
        Ok(())
    }

    /// Delivers the current version of an object to the agent.
    fn deliver(&mut self, key: usize) {
        let Some(agent) = &mut self.agent else {
            return;
        };
        let Some(name) = self.catalog.keys.get(key) else {
            return;
        };
        let version = self.objects.get(&key);
        match version.and_then(|version| self.catalog.object(key, *version)) {
            Some(object) => {
                agent.set(self.now, name.borrowed(), &lower_one(object));
                self.received.extend(version.map(|version| (key, *version)));
            }
            None => {
                agent.remove(self.now, name.borrowed());
                self.received.remove(&key);
            }
        }
    }

    fn deliver_missing(&mut self, count: usize) {
        let missing = self
            .objects
            .keys()
            .filter(|key| !self.received.contains_key(key));
        let mut missing: Vec<usize> = missing.copied().collect();
        for _ in 0..count {
            if missing.is_empty() {
                return;
            }
            let place = self.rng.below(missing.len() as u64) as usize;
            let key = missing.remove(place);
            self.deliver(key);
        }
    }

    fn sync(&mut self) {
        self.deliver_missing(usize::MAX);
        if let Some(agent) = &mut self.agent {
            agent.synced(self.now);
        }
    }

    pub(super) fn start(&mut self) {
        if self.agent.is_some() {
            return;
        }
        self.process = Process {
            id: self.process.id + 1,
            owns: self.setting.owns,
            table: None,
        };
        let found = self.process.adopt(&mut self.model);
        if self.is_foreign && self.model.has_empty_hooks() {
            // Another program deleted the new table of an interrupted installation. The remaining
            // table has an older generation and enforces nothing, and the agent will use the newer
            // marks again.
            self.model.connections.clear();
        }
        self.agent = Some(Agent::new(
            self.setting.nft,
            self.setting.config.clone(),
            found,
        ));
        self.received.clear();
        self.applied = Rc::new(ExpectedVerdicts::open(self.flows));
        self.generations.clear();
        self.notices = 0;
    }

    /// Counts the split groups of an agent before it ends.
    pub(super) fn count_splits(&mut self) {
        if let Some(agent) = &self.agent {
            self.counts.splits += agent.planner().counts().splits;
        }
    }

    fn kill(&mut self) {
        self.count_splits();
        // Completed operations of a command persist.
        if let Some(running) = self.running.take() {
            self.abandon(&running);
        }
        self.background.clear();
        self.agent = None;
        for table in &mut self.model.tables {
            table.owner = None;
        }
    }

    fn change_by_other_program(&mut self, how: super::script::ForeignChange, pick: usize) {
        if self.model.tables.iter().any(|table| table.owner.is_some()) {
            return;
        }
        if foreign::change(&mut self.model, how, pick) {
            self.is_foreign = true;
            self.notices += 1;
            if let Some(running) = &mut self.running {
                running.is_disturbed = true;
            }
        }
    }

    fn notice(&mut self, arrival: NoticeArrival) {
        let Some(agent) = &mut self.agent else {
            return;
        };
        let table = self.process.table.unwrap_or_default().to_owned();
        let times = match arrival {
            NoticeArrival::Once => self.notices.min(1),
            NoticeArrival::Twice => self.notices.min(1) * 2,
            NoticeArrival::Lost => {
                agent.noticed(self.now, &TableNotice::Lost.into());
                0
            }
        };
        for _ in 0..times {
            let table = table.clone();
            agent.noticed(self.now, &TableNotice::Changed { table }.into());
        }
        self.notices = 0;
    }

    fn send(&mut self, flow: usize, reply: bool) {
        if let Some(packet) = self.flows.get(flow) {
            let reply = reply && packet.point == Point::Forward;
            let mark = self.model.connections.get(packet).copied();
            if mark.is_none_or(|mark| mark & self.bits().full_bit() == 0) {
                self.origins.remove(packet);
            }
            let outcome = self.model.send(*packet, reply);
            self.note(packet, outcome.mark);
        }
    }

    /// Records the origin of a connection with this mark.
    pub(super) fn note(&mut self, packet: &Packet, mark: u32) {
        if mark & self.bits().full_bit() == 0 {
            self.origins.remove(packet);
        } else if !self.origins.contains_key(packet) {
            let origins = (self.process.id, self.applied.owners(packet));
            self.origins.insert(*packet, origins);
        }
    }

    /// Delivers or drops the pending notices.
    pub(super) fn deliver_notices(&mut self, lose_notices: bool) {
        if lose_notices {
            self.notices = 0;
        } else {
            self.notice(NoticeArrival::Once);
        }
    }

    pub(super) fn clear_fault(&mut self) {
        self.injected = None;
    }
}
