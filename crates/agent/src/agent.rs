//! What is to be done next: the agent's loop without the world.
//!
//! Whoever drives it says what happened and when, asks what to do, does it, and says how it went. While
//! nothing is said, nothing changes: time, kernel and source are all outside.

mod tasks;

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use palisade_core::incremental::{IncrementalPlanner, ObjectKey};
use palisade_core::model::Cluster;
use palisade_core::net::Cidr;
use palisade_core::plan::{MERGE_OVER, PlanChange};
use palisade_nft::node::{Established, Generation, NodeOptions, Senders, Settings, closed};
use palisade_nft::ruleset::Interface;
use palisade_nft::update::TableUpdater;
use palisade_nft::watch::Notice;

use self::tasks::Tasks;
use crate::command::{Command, CommandError, MarksToClear, Next, ReplaceReason, SyncOutcome};
use crate::config::{BootPolicy, Config, FalseSenders, UnknownPods};
use crate::generations::GenerationTracker;
use crate::latency::LatencyTracker;
use crate::throttle::{Backoff, RateLimiter};

/// The agent.
#[derive(Debug)]
pub struct Agent {
    config: Config,
    planner: IncrementalPlanner,
    /// What the kernel's table holds; `None`: not known.
    installed: Option<InstalledTable>,
    /// Why the whole table has to be put in place.
    replace: Option<ReplaceReason>,
    generations: GenerationTracker,
    limiter: RateLimiter,
    backoff: Backoff,
    is_synced: bool,
    /// Whether nothing was enforced when it started, so that pods are open.
    is_bare: bool,
    /// How the node was closed until every object is known.
    closed: Option<NodeOptions>,
    /// Whether the kernel has ever held everything.
    is_in_place: bool,
    /// The changes that the kernel does not hold yet.
    latencies: LatencyTracker,
    /// Whether the engine has to be asked what changed.
    is_dirty: bool,
    running: Option<RunningCommand>,
    /// The interfaces of the node that do not lead to its pods.
    elsewhere: BTreeSet<Interface>,
    /// Addresses whose connections must not be kept, although connections are.
    let_go: BTreeSet<IpAddr>,
    tasks: Tasks,
    happened: VecDeque<SyncOutcome>,
}

#[derive(Debug)]
struct InstalledTable {
    upkeep: TableUpdater,
    pod_blocks: Vec<Cidr>,
}

/// The command that is being carried out.
#[derive(Debug)]
enum RunningCommand {
    Close(Box<NodeOptions>),
    Install(ReplaceReason, Box<InstalledTable>, Generation),
    Commit(usize, Option<Generation>),
}

impl Agent {
    /// An agent that starts; `found` is the generation of the table that enforces already, if one does.
    pub fn new(config: Config, found: Option<Generation>) -> Agent {
        Agent {
            planner: IncrementalPlanner::within(
                config.budget,
                &config.node,
                config.hash_key,
                MERGE_OVER,
                config.share_from,
            ),
            generations: GenerationTracker::new(config.mark, found),
            config,
            installed: None,
            replace: Some(ReplaceReason::Start),
            limiter: RateLimiter::new(),
            backoff: Backoff::default(),
            is_synced: false,
            is_bare: false,
            closed: None,
            is_in_place: false,
            latencies: LatencyTracker::default(),
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
        self.generations = GenerationTracker::new(self.config.mark, generation);
    }

    /// That nothing is enforced, so that the node's pods are open until everything is known (D146).
    pub fn found_nothing(&mut self) {
        self.found(None);
        self.is_bare = true;
    }

    /// Whether pods of this node are open for now, although they should not be: nobody knows which addresses they have.
    pub fn is_open(&self) -> bool {
        let is_closed = self.closed.is_some();
        self.is_bare && !self.is_synced && !is_closed && self.config.boot == BootPolicy::Closed
    }

    /// What an object is now: the cluster that it alone means. Says whether policies can see a
    /// difference.
    pub fn set(&mut self, now: Duration, key: ObjectKey<'_>, meaning: &Cluster<'_>) -> bool {
        let is_different = self.planner.set(key, meaning);
        if is_different && self.is_synced {
            let own = Some(self.config.node.as_str());
            let local = meaning.pods.iter();
            let local = local.filter(|it| it.node == own && it.is_selectable());
            let addresses = local.flat_map(|it| &it.addresses);
            addresses.for_each(|it| self.latencies.pod(*it, now));
        }
        self.note(now, is_different)
    }

    /// That an object is gone.
    pub fn remove(&mut self, now: Duration, key: ObjectKey<'_>) -> bool {
        let is_different = self.planner.remove(key);
        self.note(now, is_different)
    }

    fn note(&mut self, now: Duration, is_different: bool) -> bool {
        if is_different {
            self.is_dirty = true;
            self.latencies.note(now);
        }
        is_different
    }

    /// That the change that was just told was written so long ago, as far as its object says. What is told before
    /// everything is known once is no change.
    pub fn written(&mut self, now: Duration, before: Duration) {
        if self.is_synced {
            self.latencies.written(now, before);
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
            self.latencies.note(now);
        }
    }

    /// That somebody wants everything to be put in place once more.
    pub fn resync(&mut self, now: Duration) {
        self.replace.get_or_insert(ReplaceReason::Requested);
        self.latencies.note(now);
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
        if self.installed.is_some() {
            self.happened.push_back(SyncOutcome::Drifted(words));
            self.installed = None;
        }
        self.replace.get_or_insert(ReplaceReason::Drift);
        self.latencies.note(now);
    }

    /// What has happened since this was last asked.
    pub fn outcomes(&mut self) -> impl Iterator<Item = SyncOutcome> + '_ {
        self.happened.drain(..)
    }

    /// Whether the kernel holds what the objects say.
    pub fn is_current(&self) -> bool {
        let lets_go = !self.let_go.is_empty() || self.tasks.clears_addresses();
        let is_idle =
            self.replace.is_none() && !self.is_dirty && !lets_go && self.running.is_none();
        self.is_synced && self.installed.is_some() && is_idle
    }

    /// How long the kernel has lagged behind the objects; `None`: it does not, or has never held everything yet.
    pub fn lag(&self, now: Duration) -> Option<Duration> {
        let since = self.latencies.since().filter(|_| self.is_in_place)?;
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
        self.generations.current()
    }

    /// The engine, to look at.
    pub fn live(&self) -> &IncrementalPlanner {
        &self.planner
    }

    /// The engine, for whoever only wants to know what was told.
    #[doc(hidden)]
    pub fn engine(&mut self) -> &mut IncrementalPlanner {
        &mut self.planner
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
            self.replace.get_or_insert(ReplaceReason::Settings);
        }
        if self.replace.is_some() || self.is_dirty {
            let free = self.limiter.free_at(now);
            if free > now {
                return Next::Wait(Some(free));
            }
            if let Some(range) = self.generations.to_clear_now() {
                return self
                    .tasks
                    .clear_marks(now, MarksToClear::Generations(range));
            }
        }
        if let Some(why) = self.replace {
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
            [] => self.planner.pod_blocks(),
            blocks => blocks,
        };
        if !self.is_bare || self.config.boot == BootPolicy::Open || blocks.is_empty() {
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
        self.running = Some(RunningCommand::Close(Box::new(options)));
        Next::Do(Command::Install(Box::new(closed(&settings))))
    }

    /// Whether the blocks of the node's pods are others than the table was made with.
    fn is_settings_stale(&self) -> bool {
        let blocks = self.pod_blocks();
        let held = self.installed.as_ref();
        held.is_some_and(|held| held.pod_blocks != blocks)
    }

    fn pod_blocks(&self) -> Vec<Cidr> {
        match self.config.unknown_pods {
            UnknownPods::Allow => Vec::new(),
            UnknownPods::Drop if self.config.pod_blocks.is_empty() => {
                self.planner.pod_blocks().to_vec()
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

    fn install(&mut self, now: Duration, why: ReplaceReason) -> Next {
        // What changed is in the whole plan, too.
        let change = self.planner.commit();
        self.note_let_go(&change);
        self.is_dirty = false;
        self.replace = None;
        self.installed = None;
        let generation = self.generations.use_next();
        self.limiter.pass(now);
        let settings = self.settings(generation);
        // Groups may have become the same since they were told.
        self.planner.share();
        let (upkeep, ruleset) = TableUpdater::new(&self.planner.plan(), &settings);
        let held = InstalledTable {
            upkeep: upkeep.in_pieces_of(self.config.piece),
            pod_blocks: settings.pod_blocks,
        };
        self.latencies.begin(|_| true);
        self.tasks.table_changes();
        self.running = Some(RunningCommand::Install(why, Box::new(held), generation));
        Next::Do(Command::Install(Box::new(ruleset)))
    }

    /// The transactions for what changed; `None`: there is nothing to be done for it.
    fn change(&mut self, now: Duration) -> Option<Next> {
        let change = self.planner.commit();
        self.note_let_go(&change);
        self.is_dirty = false;
        if self.is_settings_stale() {
            return Some(self.install(now, ReplaceReason::Settings));
        }
        let is_due = self.installed.as_mut().is_some_and(|held| {
            held.upkeep.set_elsewhere(self.elsewhere.clone());
            held.upkeep.is_due()
        });
        if change.is_empty() && !is_due {
            self.latencies.nothing();
            self.happened.push_back(SyncOutcome::Unaffected);
            return None;
        }
        let Some(held) = &mut self.installed else {
            return Some(self.install(now, ReplaceReason::Failure));
        };
        let judges = change.rejudge && self.config.established == Established::Judge;
        let generation = judges.then(|| self.generations.next());
        match held.upkeep.change(&change, generation) {
            Err(_) => Some(self.install(now, ReplaceReason::Growth)),
            Ok(transactions) => {
                if judges {
                    self.generations.use_next();
                    self.limiter.pass(now);
                }
                let programmed: BTreeSet<IpAddr> = change.pods.iter().map(|(it, _)| *it).collect();
                self.latencies.begin(|it| programmed.contains(it));
                self.tasks.table_changes();
                self.running = Some(RunningCommand::Commit(transactions.len(), generation));
                Some(Next::Do(Command::Commit(transactions)))
            }
        }
    }

    /// How the last command went.
    pub fn finished(&mut self, now: Duration, outcome: Result<(), CommandError>) {
        let Some(running) = self.running.take() else {
            return;
        };
        let Err(CommandError(why)) = outcome else {
            return self.succeeded(now, running);
        };
        let what = match &running {
            RunningCommand::Close(_) => "close the pods of this node",
            RunningCommand::Install(..) => "put the table in place",
            RunningCommand::Commit(..) => "change the table",
        };
        // Whatever was done of it, only the whole table is known to be right again.
        match running {
            RunningCommand::Close(_) => {}
            RunningCommand::Install(why, ..) => {
                self.latencies.failed();
                self.replace = Some(why);
                self.tasks.generation_in_doubt();
            }
            RunningCommand::Commit(..) => {
                self.latencies.failed();
                self.installed = None;
                self.replace = Some(ReplaceReason::Failure);
                self.tasks.generation_in_doubt();
            }
        }
        let again_in = self.backoff.fail(now);
        self.happened.push_back(SyncOutcome::Failed {
            what,
            why,
            again_in,
            times: self.backoff.failures(),
        });
    }

    fn succeeded(&mut self, now: Duration, running: RunningCommand) {
        self.backoff.succeed();
        match running {
            RunningCommand::Close(options) => {
                self.closed = Some(*options);
                self.happened.push_back(SyncOutcome::Closed);
            }
            RunningCommand::Install(why, held, generation) => {
                self.generations.confirm();
                self.installed = Some(*held);
                self.is_in_place = true;
                self.tasks.table_is_new(now);
                let took = self.latencies.done(now);
                self.happened.push_back(SyncOutcome::Installed {
                    why,
                    generation: generation.get(),
                    latency: took,
                });
            }
            RunningCommand::Commit(transactions, generation) => {
                if generation.is_some() {
                    self.generations.confirm();
                }
                let took = self.latencies.done(now);
                self.happened.push_back(SyncOutcome::Changed {
                    transactions,
                    generation: generation.map(Generation::get),
                    took,
                });
            }
        }
    }
}
