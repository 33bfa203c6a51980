//! Plays a list of steps: the agent on one side, the model of the kernel on the other, and between them a
//! driver that may be told to fail.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use palisade_agent::Agent;
use palisade_api::lower_one;
use palisade_nft::node::{Generation, MarkBits, NodeOptions, Settings, ruleset};
use palisade_nft::ruleset::Point;
use palisade_nft::watch::Notice;

use super::background::Background;
use super::carry::{Armed, Pending};
use super::catalog::Catalog;
use super::foreign;
use super::model::{Installation, Model, Process};
use super::script::{Arrival, Setting, Step};
use super::truth::{Blocks, Truth};
use super::walk::Packet;
use super::{Counts, During, Failure};
use palisade_generate::Rng;

/// The process that let a connection in, and the pods at its ends.
pub(super) type LetIn = (u32, [Option<String>; 2]);

/// A simulation under way.
pub(super) struct Play<'c> {
    pub(super) catalog: &'c Catalog<'c>,
    pub(super) flows: &'c [Packet],
    pub(super) setting: Setting,
    pub(super) model: Model,
    pub(super) process: Process,
    pub(super) agent: Option<Agent>,
    pub(super) now: Duration,
    /// The objects that there are.
    pub(super) world: BTreeMap<usize, usize>,
    /// Those that the agent was told of since it started.
    pub(super) told: BTreeMap<usize, usize>,
    pub(super) pending: Option<Pending>,
    /// The tasks that run in the background.
    pub(super) background: Vec<Background>,
    /// What the kernel must not allow more than.
    pub(super) most: Rc<Truth>,
    /// What it must allow at least.
    pub(super) least: Rc<Truth>,
    /// What the agent has taken in.
    pub(super) held: Rc<Truth>,
    /// When connections were let in for good: by which process, and between whom.
    pub(super) let_in: BTreeMap<Packet, LetIn>,
    /// Whether somebody else has changed the table since it was put in place.
    pub(super) is_foreign: bool,
    notices: usize,
    pub(super) armed: Option<Armed>,
    truths: Vec<(BTreeMap<usize, usize>, Rc<Truth>)>,
    pub(super) rng: Rng,
    pub(super) counts: Counts,
    pub(super) during: During,
    /// When the last generations came.
    pub(super) generations: VecDeque<Duration>,
    /// The commands since the last event, to see that they come to an end.
    pub(super) commands: usize,
}

impl<'c> Play<'c> {
    pub(super) fn new(
        catalog: &'c Catalog<'c>,
        flows: &'c [Packet],
        setting: Setting,
        during: During,
        seed: u64,
    ) -> Play<'c> {
        let open = Rc::new(Truth::open(flows));
        let mut play = Play {
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
            world: BTreeMap::new(),
            told: BTreeMap::new(),
            pending: None,
            background: Vec::new(),
            most: Rc::clone(&open),
            least: Rc::clone(&open),
            held: open,
            let_in: BTreeMap::new(),
            is_foreign: false,
            notices: 0,
            armed: None,
            truths: Vec::new(),
            rng: Rng::new(seed ^ 0x706c_6179),
            counts: Counts::default(),
            during,
            generations: VecDeque::new(),
            commands: 0,
        };
        play.leave_a_table();
        play
    }

    pub(super) fn bits(&self) -> MarkBits {
        self.setting.config.mark
    }

    /// What an earlier process has left: a table that says its generation, and marks of all generations that there
    /// can be marks of.
    fn leave_a_table(&mut self) {
        let Some(generation) = self.setting.left.and_then(Generation::new) else {
            return;
        };
        let bits = self.bits();
        let options = NodeOptions {
            mark: bits,
            established: self.setting.config.established,
            ..NodeOptions::default()
        };
        let settings = Settings::of_node(generation, &options);
        let left = ruleset(&palisade_core::plan::Plan::default(), &settings);
        let Installation { atoms, .. } = self.process.install(&self.model, &left, false);
        for atom in &atoms {
            let _ = self.model.carry_out(self.process, bits, atom);
        }
        let (last, current) = (bits.last_generation(), generation.get());
        let middle = last / 2;
        for flow in self.flows {
            let number = 1 + self.rng.below(u64::from(last)) as u16;
            // No connection has a mark of what comes next in this half.
            let is_free = (number > middle) == (current > middle) && number > current;
            let it = Generation::new(number).filter(|_| !is_free && self.rng.chance(10));
            if let Some(it) = it {
                self.model.connections.insert(*flow, bits.full(it));
            }
        }
    }

    /// What the engine says of objects.
    pub(super) fn truth(&mut self, objects: &BTreeMap<usize, usize>) -> Rc<Truth> {
        if let Some((_, truth)) = self.truths.iter().find(|(it, _)| it == objects) {
            return Rc::clone(truth);
        }
        let (blocks, flows) = (self.blocks(), self.flows);
        let budget = self.setting.config.budget;
        let truth = self
            .catalog
            .with_cluster(budget, objects, |cluster, program| {
                Truth::of(cluster, program, &blocks, flows)
            });
        let truth = Rc::new(truth);
        if self.truths.len() > 16 {
            self.truths.remove(0);
        }
        self.truths.push((objects.clone(), Rc::clone(&truth)));
        truth
    }

    fn blocks(&self) -> Blocks {
        self.setting.blocks.clone()
    }

    /// Plays one step.
    pub(super) fn step(&mut self, step: Step) -> Result<(), Failure> {
        self.commands = 0;
        match step {
            Step::Set(key, version) => {
                self.world.insert(key, version);
                self.tell(key);
            }
            Step::Remove(key) => {
                self.world.remove(&key);
                self.tell(key);
            }
            Step::Repeat(key) => self.tell(key),
            Step::Relist(first) => {
                let (later, earlier): (Vec<usize>, Vec<usize>) =
                    self.told.keys().partition(|key| **key >= first);
                for key in later.into_iter().chain(earlier) {
                    self.tell(key);
                }
            }
            Step::Tell(count) => self.tell_untold(count),
            Step::Sync => self.sync(),
            Step::Act => self.act()?,
            Step::Pass(milliseconds) => self.now += Duration::from_millis(milliseconds),
            Step::Resync => {
                if let Some(agent) = &mut self.agent {
                    agent.resync(self.now);
                }
            }
            Step::Refuse => self.armed = Some(Armed::Refuse),
            Step::LoseAnswer => self.armed = Some(Armed::LoseAnswer),
            Step::Kill => self.kill(),
            Step::Start => self.start(),
            Step::Foreign(how, pick) => self.change_as_somebody(how, pick),
            Step::Notice(arrival) => self.notice(arrival),
            Step::Send(flow, reply) => self.send(flow, reply),
            Step::Rest { deaf, long } => self.rest(deaf, long)?,
        }
        Ok(())
    }

    /// Tells the agent what an object is now.
    fn tell(&mut self, key: usize) {
        let Some(agent) = &mut self.agent else {
            return;
        };
        let Some(name) = self.catalog.keys.get(key) else {
            return;
        };
        let version = self.world.get(&key);
        match version.and_then(|version| self.catalog.object(key, *version)) {
            Some(object) => {
                agent.set(self.now, name.borrowed(), &lower_one(object));
                self.told.extend(version.map(|version| (key, *version)));
            }
            None => {
                agent.remove(self.now, name.borrowed());
                self.told.remove(&key);
            }
        }
    }

    fn tell_untold(&mut self, count: usize) {
        let untold = self.world.keys().filter(|key| !self.told.contains_key(key));
        let mut untold: Vec<usize> = untold.copied().collect();
        for _ in 0..count {
            if untold.is_empty() {
                return;
            }
            let place = self.rng.below(untold.len() as u64) as usize;
            let key = untold.remove(place);
            self.tell(key);
        }
    }

    fn sync(&mut self) {
        self.tell_untold(usize::MAX);
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
            // Of an interrupted installation somebody else has deleted the better half: what is left does not
            // enforce, but says an older generation, and the marks of the newer come round.
            self.model.connections.clear();
        }
        self.agent = Some(Agent::new(self.setting.config.clone(), found));
        self.told.clear();
        self.held = Rc::new(Truth::open(self.flows));
        self.generations.clear();
        self.notices = 0;
    }

    /// Counts the groups of an agent that is about to be no more.
    pub(super) fn count_splits(&mut self) {
        if let Some(agent) = &self.agent {
            self.counts.splits += agent.planner().counts().splits;
        }
    }

    fn kill(&mut self) {
        self.count_splits();
        // What was done of a command stays done.
        if let Some(pending) = self.pending.take() {
            self.give_up(&pending);
        }
        self.background.clear();
        self.agent = None;
        for table in &mut self.model.tables {
            table.owner = None;
        }
    }

    fn change_as_somebody(&mut self, how: super::script::Foreign, pick: usize) {
        if self.model.tables.iter().any(|table| table.owner.is_some()) {
            return;
        }
        if foreign::change(&mut self.model, how, pick) {
            self.is_foreign = true;
            self.notices += 1;
            if let Some(pending) = &mut self.pending {
                pending.is_disturbed = true;
            }
        }
    }

    fn notice(&mut self, arrival: Arrival) {
        let Some(agent) = &mut self.agent else {
            return;
        };
        let table = self.process.table.unwrap_or_default().to_owned();
        let times = match arrival {
            Arrival::Once => self.notices.min(1),
            Arrival::Twice => self.notices.min(1) * 2,
            Arrival::Lost => {
                agent.noticed(self.now, &Notice::Lost);
                0
            }
        };
        for _ in 0..times {
            let table = table.clone();
            agent.noticed(self.now, &Notice::Changed { table });
        }
        self.notices = 0;
    }

    fn send(&mut self, flow: usize, reply: bool) {
        if let Some(packet) = self.flows.get(flow) {
            let reply = reply && packet.point == Point::Forward;
            let mark = self.model.connections.get(packet).copied();
            if mark.is_none_or(|mark| mark & self.bits().full_bit() == 0) {
                self.let_in.remove(packet);
            }
            let fate = self.model.send(*packet, reply);
            self.note(packet, fate.mark);
        }
    }

    /// Notes between whom a connection is that has this mark.
    pub(super) fn note(&mut self, packet: &Packet, mark: u32) {
        if mark & self.bits().full_bit() == 0 {
            self.let_in.remove(packet);
        } else if !self.let_in.contains_key(packet) {
            let let_in = (self.process.id, self.held.owners(packet));
            self.let_in.insert(*packet, let_in);
        }
    }

    /// How many notices are on their way.
    pub(super) fn deliver(&mut self, deaf: bool) {
        if deaf {
            self.notices = 0;
        } else {
            self.notice(Arrival::Once);
        }
    }

    pub(super) fn disarm(&mut self) {
        self.armed = None;
    }
}
