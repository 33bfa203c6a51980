//! What is to be done next: the agent's loop without the world.
//!
//! Whoever drives it says what happened and when, asks what to do, does it, and says how it went. While
//! nothing is said, nothing changes: time, kernel and source are all outside.

mod tasks;

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use palisade_core::live::{Live, ObjectKey};
use palisade_core::model::Cluster;
use palisade_core::net::Cidr;
use palisade_core::plan::{MERGE_OVER, PlanChange};
use palisade_nft::node::{Established, Generation, NodeOptions, Senders, Settings, closed};
use palisade_nft::ruleset::Interface;
use palisade_nft::upkeep::Upkeep;
use palisade_nft::watch::Notice;

use self::tasks::Tasks;
use crate::marks::Marks;
use crate::pace::{Backoff, Pace};
use crate::waits::Waits;
use crate::words::{
    Boot, Command, Config, Failed, FalseSenders, Happening, Marked, Next, UnknownPods, Why,
};

/// The agent.
#[derive(Debug)]
pub struct Agent {
    config: Config,
    live: Live,
    /// What the kernel's table holds; `None`: not known.
    held: Option<Held>,
    /// Why the whole table has to be put in place.
    whole: Option<Why>,
    marks: Marks,
    pace: Pace,
    backoff: Backoff,
    is_synced: bool,
    /// Whether nothing was enforced when it started, so that pods are open.
    is_bare: bool,
    /// How the node was closed until every object is known.
    closed: Option<NodeOptions>,
    /// Whether the kernel has ever held everything.
    is_in_place: bool,
    /// The changes that the kernel does not hold yet.
    waits: Waits,
    /// Whether the engine has to be asked what changed.
    is_dirty: bool,
    running: Option<Running>,
    /// The interfaces of the node that do not lead to its pods.
    elsewhere: BTreeSet<Interface>,
    /// Addresses whose connections must not be kept, although connections are.
    let_go: BTreeSet<IpAddr>,
    tasks: Tasks,
    happened: VecDeque<Happening>,
}

#[derive(Debug)]
struct Held {
    upkeep: Upkeep,
    pod_blocks: Vec<Cidr>,
}

/// The command that is being carried out.
#[derive(Debug)]
enum Running {
    Close(Box<NodeOptions>),
    Install(Why, Box<Held>, Generation),
    Commit(usize, Option<Generation>),
}

impl Agent {
    /// An agent that starts; `found` is the generation of the table that enforces already, if one does.
    pub fn new(config: Config, found: Option<Generation>) -> Agent {
        Agent {
            live: Live::within(
                config.budget,
                &config.node,
                config.hash_key,
                MERGE_OVER,
                config.share_from,
            ),
            marks: Marks::new(config.mark, found),
            config,
            held: None,
            whole: Some(Why::Start),
            pace: Pace::new(),
            backoff: Backoff::default(),
            is_synced: false,
            is_bare: false,
            closed: None,
            is_in_place: false,
            waits: Waits::default(),
            is_dirty: false,
            running: None,
            elsewhere: BTreeSet::new(),
            let_go: BTreeSet::new(),
            tasks: Tasks::default(),
            happened: VecDeque::new(),
        }
    }

    /// That a table enforces already, of this generation; before anything was asked of the kernel.
    pub fn found(&mut self, generation: Option<Generation>) {
        self.marks = Marks::new(self.config.mark, generation);
    }

    /// That nothing is enforced, so that the node's pods are open until everything is known (D146).
    pub fn found_nothing(&mut self) {
        self.found(None);
        self.is_bare = true;
    }

    /// Whether pods of this node are open for now, although they should not be: nobody knows which addresses they have.
    pub fn is_open(&self) -> bool {
        let is_closed = self.closed.is_some();
        self.is_bare && !self.is_synced && !is_closed && self.config.boot == Boot::Closed
    }

    /// What an object is now: the cluster that it alone means. Says whether policies can see a
    /// difference.
    pub fn set(&mut self, now: Duration, key: ObjectKey<'_>, meaning: &Cluster<'_>) -> bool {
        let is_different = self.live.set(key, meaning);
        if is_different && self.is_synced {
            let own = Some(self.config.node.as_str());
            let local = meaning.pods.iter();
            let local = local.filter(|it| it.node == own && it.is_selectable());
            let addresses = local.flat_map(|it| &it.addresses);
            addresses.for_each(|it| self.waits.pod(*it, now));
        }
        self.note(now, is_different)
    }

    /// That an object is gone.
    pub fn remove(&mut self, now: Duration, key: ObjectKey<'_>) -> bool {
        let is_different = self.live.remove(key);
        self.note(now, is_different)
    }

    fn note(&mut self, now: Duration, is_different: bool) -> bool {
        if is_different {
            self.is_dirty = true;
            self.waits.note(now);
        }
        is_different
    }

    /// That the change that was just told was written so long ago, as far as its object says. What is told before
    /// everything is known once is no change.
    pub fn written(&mut self, now: Duration, before: Duration) {
        if self.is_synced {
            self.waits.written(now, before);
        }
    }

    /// Which interfaces of the node do not lead to its pods, all of them. Until this is said none is known, and what
    /// comes must go back the way it came everywhere.
    pub fn elsewhere(&mut self, now: Duration, interfaces: BTreeSet<Interface>) {
        let is_different = self.elsewhere != interfaces;
        if is_different {
            self.elsewhere = interfaces;
        }
        let is_asked = self.config.false_senders != FalseSenders::Allow;
        self.note(now, is_different && is_asked);
    }

    /// That every object was told once. Until then nothing is changed in the kernel, where whatever was
    /// enforced before still is (D86).
    pub fn synced(&mut self, now: Duration) {
        if !self.is_synced {
            self.is_synced = true;
            self.waits.note(now);
        }
    }

    /// That somebody wants everything to be put in place once more.
    pub fn resync(&mut self, now: Duration) {
        self.whole.get_or_insert(Why::Asked);
        self.waits.note(now);
        self.backoff.succeed();
    }

    /// That something happened to our tables that was not our doing.
    pub fn noticed(&mut self, now: Duration, notice: &Notice) {
        match notice {
            Notice::Changed { table } | Notice::Deleted { table } => {
                let words = match notice {
                    Notice::Deleted { .. } => format!("the table `{table}` was deleted"),
                    Notice::Changed { .. } | Notice::Lost => {
                        format!("the table `{table}` was changed")
                    }
                };
                self.drifted(now, vec![words]);
            }
            Notice::Lost => self.tasks.audit_everything(now),
        }
    }

    fn drifted(&mut self, now: Duration, words: Vec<String>) {
        self.closed = None;
        if self.held.is_some() {
            self.happened.push_back(Happening::Drifted(words));
            self.held = None;
        }
        self.whole.get_or_insert(Why::Drift);
        self.waits.note(now);
    }

    /// What has happened since this was last asked.
    pub fn happenings(&mut self) -> impl Iterator<Item = Happening> + '_ {
        self.happened.drain(..)
    }

    /// Whether the kernel holds what the objects say.
    pub fn is_current(&self) -> bool {
        let lets_go = !self.let_go.is_empty() || self.tasks.forgets_addresses();
        let is_idle = self.whole.is_none() && !self.is_dirty && !lets_go && self.running.is_none();
        self.is_synced && self.held.is_some() && is_idle
    }

    /// How long the kernel has lagged behind the objects; `None`: it does not, or has never held everything yet.
    pub fn lag(&self, now: Duration) -> Option<Duration> {
        let since = self.waits.since().filter(|_| self.is_in_place)?;
        Some(now.saturating_sub(since))
    }

    /// Whether the kernel has held everything at some time.
    pub fn is_in_place(&self) -> bool {
        self.is_in_place
    }

    /// Whether every object was told once.
    pub fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// How often the kernel has refused since it last did what it was told.
    pub fn failures(&self) -> u32 {
        self.backoff.failures().max(self.tasks.failures())
    }

    /// The generation of the policies in the kernel, as far as one is known.
    pub fn generation(&self) -> Option<Generation> {
        self.marks.current()
    }

    /// The engine, to look at.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// The engine, for whoever only wants to know what was told.
    #[doc(hidden)]
    pub fn engine(&mut self) -> &mut Live {
        &mut self.live
    }

    /// What is to be done next.
    pub fn next(&mut self, now: Duration) -> Next {
        if self.running.is_some() {
            return Next::Wait(None);
        }
        if now < self.backoff.until() {
            return Next::Wait(Some(self.backoff.until()));
        }
        if !self.is_synced {
            return self.close();
        }
        if self.is_settings_stale() {
            self.whole.get_or_insert(Why::Settings);
        }
        if self.whole.is_some() || self.is_dirty {
            let free = self.pace.free_at(now);
            if free > now {
                return Next::Wait(Some(free));
            }
            if let Some(range) = self.marks.to_forget_now() {
                return self.tasks.forget(now, Marked::Generations(range));
            }
        }
        if let Some(why) = self.whole {
            return self.install(now, why);
        }
        if self.is_dirty
            && let Some(next) = self.change(now)
        {
            return next;
        }
        self.next_task(now)
    }

    /// Closes the node's pods, as far as it is known which addresses they have, where nothing is enforced.
    fn close(&mut self) -> Next {
        let blocks = match self.config.pod_blocks.as_slice() {
            [] => self.live.pod_blocks(),
            blocks => blocks,
        };
        if !self.is_bare || self.config.boot == Boot::Open || blocks.is_empty() {
            return Next::Wait(None);
        }
        let mut options = NodeOptions {
            pod_blocks: blocks.to_vec(),
            ..self.options()
        };
        // Before the routes are known, what comes to the node itself by another way than it would go is not refused.
        if self.elsewhere.is_empty() {
            options.senders = Senders::Trusted;
        }
        if self.closed.as_ref() == Some(&options) {
            return Next::Wait(None);
        }
        let settings = Settings::of_node(Generation::FIRST, &options);
        self.running = Some(Running::Close(Box::new(options)));
        Next::Do(Command::Install(Box::new(closed(&settings))))
    }

    /// Whether the blocks of the node's pods are others than the table was made with.
    fn is_settings_stale(&self) -> bool {
        let blocks = self.pod_blocks();
        let held = self.held.as_ref();
        held.is_some_and(|held| held.pod_blocks != blocks)
    }

    fn pod_blocks(&self) -> Vec<Cidr> {
        match self.config.unknown_pods {
            UnknownPods::Allow => Vec::new(),
            UnknownPods::Drop if self.config.pod_blocks.is_empty() => {
                self.live.pod_blocks().to_vec()
            }
            UnknownPods::Drop => self.config.pod_blocks.clone(),
        }
    }

    fn senders(&self) -> Senders {
        let every = match self.config.false_senders {
            FalseSenders::Drop => false,
            FalseSenders::DropEvery => true,
            FalseSenders::Allow => return Senders::Trusted,
        };
        let elsewhere = self.elsewhere.clone();
        Senders::Checked { elsewhere, every }
    }

    fn settings(&self, generation: Generation) -> Settings {
        Settings::of_node(generation, &self.options())
    }

    fn options(&self) -> NodeOptions {
        NodeOptions {
            mark: self.config.mark,
            senders: self.senders(),
            pod_blocks: self.pod_blocks(),
            judge_own_node: self.config.judge_own_node,
            established: self.config.established,
        }
    }

    /// Where connections are kept, those of an address that changes hands are not.
    fn note_let_go(&mut self, change: &PlanChange) {
        if self.config.established == Established::Keep {
            self.let_go.extend(&change.changed_hands);
        }
    }

    fn install(&mut self, now: Duration, why: Why) -> Next {
        // What changed is in the whole plan, too.
        let change = self.live.commit();
        self.note_let_go(&change);
        self.is_dirty = false;
        self.whole = None;
        self.held = None;
        let generation = self.marks.use_next();
        self.pace.pass(now);
        let settings = self.settings(generation);
        // Groups may have become the same since they were told.
        self.live.share();
        let (upkeep, ruleset) = Upkeep::new(&self.live.plan(), &settings);
        let held = Held {
            upkeep: upkeep.in_pieces_of(self.config.piece),
            pod_blocks: settings.pod_blocks,
        };
        self.waits.begin(|_| true);
        self.tasks.table_changes();
        self.running = Some(Running::Install(why, Box::new(held), generation));
        Next::Do(Command::Install(Box::new(ruleset)))
    }

    /// The transactions for what changed; `None`: there is nothing to be done for it.
    fn change(&mut self, now: Duration) -> Option<Next> {
        let change = self.live.commit();
        self.note_let_go(&change);
        self.is_dirty = false;
        if self.is_settings_stale() {
            return Some(self.install(now, Why::Settings));
        }
        let is_due = self.held.as_mut().is_some_and(|held| {
            held.upkeep.set_elsewhere(self.elsewhere.clone());
            held.upkeep.is_due()
        });
        if change.is_empty() && !is_due {
            self.waits.nothing();
            self.happened.push_back(Happening::Unaffected);
            return None;
        }
        let Some(held) = &mut self.held else {
            return Some(self.install(now, Why::Failure));
        };
        let judges = change.rejudge && self.config.established == Established::Judge;
        let generation = judges.then(|| self.marks.next());
        match held.upkeep.change(&change, generation) {
            Err(_) => Some(self.install(now, Why::Growth)),
            Ok(transactions) => {
                if judges {
                    self.marks.use_next();
                    self.pace.pass(now);
                }
                let programmed: BTreeSet<IpAddr> = change.pods.iter().map(|(it, _)| *it).collect();
                self.waits.begin(|it| programmed.contains(it));
                self.tasks.table_changes();
                self.running = Some(Running::Commit(transactions.len(), generation));
                Some(Next::Do(Command::Commit(transactions)))
            }
        }
    }

    /// How the last command went.
    pub fn finished(&mut self, now: Duration, outcome: Result<(), Failed>) {
        let Some(running) = self.running.take() else {
            return;
        };
        let Err(Failed(why)) = outcome else {
            return self.succeeded(now, running);
        };
        let what = match &running {
            Running::Close(_) => "close the pods of this node",
            Running::Install(..) => "put the table in place",
            Running::Commit(..) => "change the table",
        };
        // Whatever was done of it, only the whole table is known to be right again.
        match running {
            Running::Close(_) => {}
            Running::Install(why, ..) => {
                self.waits.failed();
                self.whole = Some(why);
                self.tasks.generation_in_doubt();
            }
            Running::Commit(..) => {
                self.waits.failed();
                self.held = None;
                self.whole = Some(Why::Failure);
                self.tasks.generation_in_doubt();
            }
        }
        let again_in = self.backoff.fail(now);
        self.happened.push_back(Happening::Failed {
            what,
            why,
            again_in,
            times: self.backoff.failures(),
        });
    }

    fn succeeded(&mut self, now: Duration, running: Running) {
        self.backoff.succeed();
        match running {
            Running::Close(options) => {
                self.closed = Some(*options);
                self.happened.push_back(Happening::Closed);
            }
            Running::Install(why, held, generation) => {
                self.marks.confirm();
                self.held = Some(*held);
                self.is_in_place = true;
                self.tasks.table_is_new(now);
                let took = self.waits.done(now);
                self.happened.push_back(Happening::Installed {
                    why,
                    generation: generation.get(),
                    took,
                });
            }
            Running::Commit(transactions, generation) => {
                if generation.is_some() {
                    self.marks.confirm();
                }
                let took = self.waits.done(now);
                self.happened.push_back(Happening::Changed {
                    transactions,
                    generation: generation.map(Generation::get),
                    took,
                });
            }
        }
    }
}
