//! Plays a list of steps: the agent on one side, the model of the kernel on the other, and between them a
//! driver that may be told to fail.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use palisade_agent::{Agent, Command, Done, Failed, Happening, Next};
use palisade_api::lower_one;
use palisade_nft::node::{Generation, MarkBits, Settings, ruleset};
use palisade_nft::ruleset::Ruleset;
use palisade_nft::watch::Notice;

use super::catalog::Catalog;
use super::foreign;
use super::model::{Atom, Installation, Model, Process};
use super::script::{Arrival, Setting, Step};
use super::truth::{Blocks, Truth};
use super::walk::Packet;
use super::{Counts, During, Failure, Kind};
use crate::generate::rng::Rng;

/// A simulation under way.
pub(super) struct Play<'c> {
    pub(super) catalog: &'c Catalog<'c>,
    pub(super) flows: &'c [Packet],
    pub(super) setting: Setting,
    pub(super) model: Model,
    process: Process,
    pub(super) agent: Option<Agent>,
    pub(super) now: Duration,
    /// The objects that there are.
    pub(super) world: BTreeMap<usize, usize>,
    /// Those that the agent was told of since it started.
    pub(super) told: BTreeMap<usize, usize>,
    pub(super) pending: Option<Pending>,
    /// What the kernel must not allow more than.
    pub(super) most: Rc<Truth>,
    /// What it must allow at least.
    pub(super) least: Rc<Truth>,
    /// Whether somebody else has changed the table since it was put in place.
    pub(super) is_foreign: bool,
    notices: usize,
    armed: Option<Armed>,
    truths: Vec<(BTreeMap<usize, usize>, Rc<Truth>)>,
    pub(super) rng: Rng,
    pub(super) counts: Counts,
    pub(super) during: During,
    /// The commands since the last event, to see that they come to an end.
    pub(super) commands: usize,
}

/// What will go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    Refuse,
    LoseAnswer,
}

/// A command that is being carried out.
pub(super) struct Pending {
    command: Command,
    atoms: VecDeque<Atom>,
    done: usize,
    install: Option<Installation>,
    /// What holds when it is done.
    pub(super) goal: Rc<Truth>,
    most_before: Rc<Truth>,
    least_before: Rc<Truth>,
    /// Whether somebody else has changed the table meanwhile.
    is_disturbed: bool,
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
            most: Rc::clone(&open),
            least: open,
            is_foreign: false,
            notices: 0,
            armed: None,
            truths: Vec::new(),
            rng: Rng::new(seed ^ 0x706c_6179),
            counts: Counts::default(),
            during,
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
        let settings = Settings {
            mark: bits,
            established: self.setting.config.established,
            ..Settings::new(generation)
        };
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
        let truth = self.catalog.with_cluster(objects, |cluster, program| {
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
        self.agent = Some(Agent::new(self.setting.config.clone(), found));
        self.told.clear();
        self.notices = 0;
    }

    fn kill(&mut self) {
        // What was done of a command stays done.
        if let Some(pending) = self.pending.take() {
            self.give_up(&pending);
        }
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
            let reply = reply && packet.point == palisade_nft::ruleset::Point::Forward;
            self.model.send(*packet, reply);
        }
    }

    /// Asks the agent what to do, or does the next part of that.
    pub(super) fn act(&mut self) -> Result<(), Failure> {
        if self.pending.is_some() {
            return self.go_on();
        }
        let Some(agent) = &mut self.agent else {
            return Ok(());
        };
        match agent.next(self.now) {
            Next::Do(command) => self.begin(command),
            Next::Wait(Some(until)) if until <= self.now => {
                let words = format!("told to wait until {until:?} at {:?}", self.now);
                Err(Failure::new(Kind::Busy, words))
            }
            Next::Wait(_) => self.heard(),
        }
    }

    pub(super) fn begin(&mut self, command: Command) -> Result<(), Failure> {
        self.commands += 1;
        self.counts.commands += 1;
        let told = self.told.clone();
        let goal = self.truth(&told);
        let mut install = None;
        let (most_before, least_before) = (Rc::clone(&self.most), Rc::clone(&self.least));
        let mut changes = true;
        let atoms: VecDeque<Atom> = match &command {
            Command::Install(ruleset) => {
                let plan = self
                    .process
                    .install(&self.model, ruleset, self.setting.is_small);
                let atoms = plan.atoms.iter().cloned().collect();
                install = Some(plan);
                atoms
            }
            Command::Commit(transactions) => {
                let table = self.process.table.unwrap_or_default();
                let commit = |it: &_| Atom::Commit(table.to_owned(), Clone::clone(it));
                transactions.iter().map(commit).collect()
            }
            Command::Forget(range) => {
                changes = false;
                VecDeque::from([Atom::Forget(range.clone())])
            }
            Command::ForgetAddresses(addresses) => {
                changes = false;
                VecDeque::from([Atom::ForgetAddresses(addresses.clone())])
            }
            Command::Audit(_) => {
                changes = false;
                VecDeque::new()
            }
        };
        if changes {
            self.most = Rc::new(most_before.or(&goal));
            self.least = Rc::new(least_before.and(&goal));
        }
        self.pending = Some(Pending {
            command,
            atoms,
            done: 0,
            install,
            goal,
            most_before,
            least_before,
            is_disturbed: false,
        });
        self.heard()
    }

    fn go_on(&mut self) -> Result<(), Failure> {
        let Some(mut pending) = self.pending.take() else {
            return Ok(());
        };
        let armed = self.armed.take();
        let Some(atom) = pending.atoms.pop_front() else {
            return self.conclude(&pending, armed);
        };
        if armed == Some(Armed::Refuse) {
            self.counts.faults += 1;
            self.give_up(&pending);
            return self.fail(&pending, pending.done, "refused on purpose");
        }
        let (process, bits) = (self.process, self.bits());
        if let Err(why) = self.model.carry_out(process, bits, &atom) {
            self.give_up(&pending);
            if !self.is_foreign {
                return Err(Failure::new(Kind::Refused, why));
            }
            return self.fail(&pending, pending.done, &why);
        }
        self.counts.transactions += 1;
        pending.done += 1;
        let is_lost = armed == Some(Armed::LoseAnswer);
        if let Some(install) = &pending.install
            && pending.done == install.filled
            && !is_lost
        {
            self.process.table = Some(install.table);
        }
        let is_last = pending.atoms.is_empty();
        let torn = self.look_during()?;
        if is_last {
            self.complete(&pending);
        }
        self.look_after(&torn)?;
        if is_lost {
            self.counts.faults += 1;
            return self.fail(&pending, pending.done - 1, "the answer was lost on purpose");
        }
        if is_last {
            return self.conclude(&pending, None);
        }
        self.pending = Some(pending);
        Ok(())
    }

    /// Everything of a command was done.
    fn complete(&mut self, pending: &Pending) {
        match &pending.command {
            Command::Install(_) => {
                self.is_foreign &= pending.is_disturbed;
                self.most = Rc::clone(&pending.goal);
                self.least = Rc::clone(&pending.goal);
            }
            Command::Commit(_) => {
                self.most = Rc::clone(&pending.goal);
                self.least = Rc::clone(&pending.goal);
            }
            Command::Forget(_) | Command::ForgetAddresses(_) | Command::Audit(_) => {}
        }
    }

    /// A command ends before everything of it was done.
    fn give_up(&mut self, pending: &Pending) {
        if pending.done == 0 {
            self.most = Rc::clone(&pending.most_before);
            self.least = Rc::clone(&pending.least_before);
        }
    }

    /// A command failed after so much of it was known to be done.
    fn fail(&mut self, pending: &Pending, known: usize, why: &str) -> Result<(), Failure> {
        let bits = self.bits();
        if let Some(install) = &pending.install {
            // As the real one does: what was begun and may not be complete is deleted.
            let is_filling = known > install.filling && known < install.filled;
            if is_filling {
                let atom = Atom::Delete(install.table.to_owned());
                let _ = self.model.carry_out(self.process, bits, &atom);
            }
        }
        self.answer(Err(Failed(why.to_owned())))
    }

    /// Everything of a command was done, and the agent hears of it.
    fn conclude(&mut self, pending: &Pending, armed: Option<Armed>) -> Result<(), Failure> {
        if pending.done == 0 {
            self.complete(pending);
        }
        let done = match &pending.command {
            Command::Audit(_) if armed.is_some() => Err(Failed("cannot be read".to_owned())),
            Command::Audit(expected) => Ok(Done::Differences(self.audit(expected)?)),
            Command::Install(_)
            | Command::Commit(_)
            | Command::Forget(_)
            | Command::ForgetAddresses(_) => Ok(Done::Well),
        };
        self.answer(done)
    }

    fn audit(&mut self, expected: &Ruleset) -> Result<Vec<String>, Failure> {
        let name = self.process.table.unwrap_or_default();
        let table = self.model.tables.iter().find(|it| it.name == name);
        let words = match table {
            None => vec!["our table is gone".to_owned()],
            Some(table) => table.audit(expected),
        };
        if !words.is_empty() && !self.is_foreign {
            let words = words.join("; ");
            return Err(Failure::new(Kind::Drift, words));
        }
        if words.is_empty() && self.is_foreign {
            // Changed back, or changed where a change of ours has been since. Which connections were let in
            // meanwhile, nobody can know.
            self.is_foreign = false;
            self.model.connections.clear();
        }
        Ok(words)
    }

    fn answer(&mut self, outcome: Result<Done, Failed>) -> Result<(), Failure> {
        if let Some(agent) = &mut self.agent {
            agent.finished(self.now, outcome);
        }
        self.heard()
    }

    /// Hears what the agent says of itself.
    fn heard(&mut self) -> Result<(), Failure> {
        let Some(agent) = &mut self.agent else {
            return Ok(());
        };
        for happening in agent.happenings() {
            match happening {
                Happening::Installed { .. } => self.counts.installs += 1,
                Happening::Changed { .. } => self.counts.changes += 1,
                Happening::Forgot(_) | Happening::LetGo(_) => self.counts.sweeps += 1,
                Happening::Drifted(_) => self.counts.drifts += 1,
                Happening::Unaffected | Happening::Audited | Happening::Failed { .. } => {}
            }
        }
        Ok(())
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
