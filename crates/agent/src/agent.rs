//! The agent's decisions: from events and outcomes to the next command, without I/O.
//!
//! The driver passes in every event with its time, requests the next step, carries it out and
//! reports the outcome. Time, kernel and source are outside: between two calls nothing changes.

mod tasks;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use palisade_core::incremental::{IncrementalPlanner, ObjectKey, ObjectKind};
use palisade_core::model::Cluster;
use palisade_core::net::Cidr;
use palisade_core::plan::{Generation, MERGE_OVER, PlanChange};

use self::tasks::Tasks;
use crate::backend::{Backend, NodeSettings, NotInPlace, Notice, RulesChange, Senders};
use crate::command::{
    Command, CommandError, FailedAction, MarksToClear, Next, ReplaceReason, SyncOutcome,
};
use crate::config::{BootPolicy, Config, Established, FalseSenders, UnknownPods};
use crate::generations::GenerationTracker;
use crate::latency::LatencyTracker;
use crate::objects::{ObjectChange, ObjectStore};
use crate::throttle::{Backoff, RateLimiter};

/// Decides what a node's kernel must do. The driver owns the clock, the kernel and the source.
#[derive(Debug)]
pub struct Agent<B: Backend> {
    backend: B,
    config: Config,
    planner: IncrementalPlanner,
    /// The contents of the table; `None`: unknown.
    installed: Option<InstalledTable<B>>,
    /// Why the whole table must be installed; `None`: changes suffice.
    replace: Option<ReplaceReason>,
    generations: GenerationTracker,
    limiter: RateLimiter,
    backoff: Backoff,
    is_synced: bool,
    /// Whether no table was installed at the start. Pods are open then.
    is_bare: bool,
    /// The settings of the closed table that is installed until all objects are synced (D146).
    closed: Option<NodeSettings>,
    /// Whether a complete table has ever been installed.
    is_in_place: bool,
    /// The changes that are not programmed yet.
    latencies: LatencyTracker,
    /// Whether the planner has uncommitted changes.
    is_dirty: bool,
    running: Option<RunningCommand<B>>,
    /// The interfaces of the node that do not lead to its pods (D147).
    elsewhere: BTreeSet<String>,
    /// Addresses that changed hands. With `Established::Keep` their connections lose their marks.
    reassigned: BTreeSet<IpAddr>,
    tasks: Tasks,
    outcomes_to_report: VecDeque<SyncOutcome>,
}

#[derive(Debug)]
struct InstalledTable<B: Backend> {
    state: B::Installed,
    settings: NodeSettings,
}

impl<B: Backend> InstalledTable<B> {
    /// Returns whether the table has other interfaces that do not lead to pods.
    fn has_other(&self, elsewhere: &BTreeSet<String>) -> bool {
        match &self.settings.senders {
            Senders::Checked { elsewhere: its, .. } => its != elsewhere,
            Senders::Trusted => false,
        }
    }
}

/// A command that the driver is carrying out.
#[derive(Debug)]
enum RunningCommand<B: Backend> {
    Close(Box<NodeSettings>),
    Install(ReplaceReason, Box<InstalledTable<B>>, Generation),
    Commit(usize, Option<Generation>),
}

/// The objects of an agent, for changes at one time.
#[derive(Debug)]
pub struct AgentObjects<'a, B: Backend> {
    agent: &'a mut Agent<B>,
    now: Duration,
}

impl<B: Backend> ObjectStore for AgentObjects<'_, B> {
    fn apply(&mut self, change: ObjectChange<'_>) -> bool {
        match change {
            ObjectChange::Set { key, lowered } => self.agent.set(self.now, key, lowered),
            ObjectChange::Remove { key } => self.agent.remove(self.now, key),
        }
    }

    fn each(&self, kind: ObjectKind, take: &mut dyn FnMut(ObjectKey<'_>)) {
        self.agent.planner.each(kind, take);
    }

    fn has_pods(&self, namespace: &str) -> bool {
        self.agent.planner.has_pods(namespace)
    }
}

impl<B: Backend> Agent<B> {
    /// Creates an agent. `found` is the generation of the table that is installed already, if one
    /// is.
    pub fn new(backend: B, config: Config, found: Option<Generation>) -> Agent<B> {
        Agent {
            planner: IncrementalPlanner::within(
                config.budget,
                &config.node,
                config.hash_key,
                MERGE_OVER,
                config.share_from,
            ),
            generations: GenerationTracker::new(backend.last_generation(), found),
            backend,
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
            reassigned: BTreeSet::new(),
            tasks: Tasks::default(),
            outcomes_to_report: VecDeque::new(),
        }
    }

    /// Sets the generation of the table that is installed already. Must come before the first
    /// command.
    pub fn found(&mut self, generation: Option<Generation>) {
        self.generations = GenerationTracker::new(self.backend.last_generation(), generation);
    }

    /// Records that no table is installed: the node's pods are open until they are closed (D146).
    pub fn found_nothing(&mut self) {
        self.found(None);
        self.is_bare = true;
    }

    /// Returns whether pods of this node are open that must be closed: their addresses are unknown.
    pub fn is_open(&self) -> bool {
        let is_closed = self.closed.is_some();
        self.is_bare && !self.is_synced && !is_closed && self.config.boot == BootPolicy::Closed
    }

    /// Sets an object, as the cluster that it alone describes. Returns whether policies can see a
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

    /// Removes an object. Returns whether policies can see a difference.
    pub fn remove(&mut self, now: Duration, key: ObjectKey<'_>) -> bool {
        let is_different = self.planner.remove(key);
        self.note(now, is_different)
    }

    /// Returns the store of the agent's objects, for changes at this time.
    pub fn objects(&mut self, now: Duration) -> AgentObjects<'_, B> {
        AgentObjects { agent: self, now }
    }

    fn note(&mut self, now: Duration, is_different: bool) -> bool {
        if is_different {
            self.is_dirty = true;
            self.latencies.note(now);
        }
        is_different
    }

    /// Records how long before its arrival the last change was written, according to its object.
    /// Objects that arrive before the first sync are no changes.
    pub fn written(&mut self, now: Duration, before: Duration) {
        if self.is_synced {
            self.latencies.written(now, before);
        }
    }

    /// Sets all interfaces of the node that do not lead to its pods. Before the first call there
    /// are none: every packet must arrive on the interface of its return route.
    pub fn elsewhere(&mut self, now: Duration, interfaces: &BTreeSet<String>) {
        let is_different = self.elsewhere != *interfaces;
        if is_different {
            self.elsewhere.clone_from(interfaces);
        }
        let is_checked = self.config.false_senders != FalseSenders::Allow;
        self.note(now, is_different && is_checked);
    }

    /// Marks the initial list complete. Until then the kernel keeps the table that it has (D86).
    pub fn synced(&mut self, now: Duration) {
        if !self.is_synced {
            self.is_synced = true;
            self.latencies.note(now);
        }
    }

    /// Requests the installation of the whole table, at once.
    pub fn resync(&mut self, now: Duration) {
        // A reason that is pending already stays: it is more specific, and one installation serves
        // both.
        self.replace.get_or_insert(ReplaceReason::Requested);
        self.latencies.note(now);
        // An operator who sends SIGHUP does not wait for the backoff of earlier failures.
        self.backoff.succeed();
    }

    /// Handles a notification that another program changed Palisade's tables.
    pub fn noticed(&mut self, now: Duration, notice: &Notice) {
        match notice {
            Notice::Changed(words) => self.drifted(now, vec![words.clone()]),
            // Only the table itself shows what changed: it is read back.
            Notice::Lost => self.tasks.audit_everything(now),
        }
    }

    fn drifted(&mut self, now: Duration, words: Vec<String>) {
        self.closed = None;
        // One foreign transaction causes many notifications. Only the first counts: from then on
        // the contents of the table are unknown, until it is replaced.
        if self.installed.is_some() {
            self.outcomes_to_report
                .push_back(SyncOutcome::Drifted(words));
            self.installed = None;
        }
        self.replace.get_or_insert(ReplaceReason::Drift);
        self.latencies.note(now);
    }

    /// Removes and returns the outcomes since the last call.
    pub fn outcomes(&mut self) -> impl Iterator<Item = SyncOutcome> + '_ {
        self.outcomes_to_report.drain(..)
    }

    /// Returns whether the kernel enforces the current objects and nothing is pending.
    pub fn is_current(&self) -> bool {
        let is_clearing = !self.reassigned.is_empty() || self.tasks.clears_addresses();
        let is_idle =
            self.replace.is_none() && !self.is_dirty && !is_clearing && self.running.is_none();
        self.is_synced && self.installed.is_some() && is_idle
    }

    /// Returns the age of the oldest change that is not programmed yet. `None`: there is none, or
    /// no complete table has been installed yet.
    pub fn lag(&self, now: Duration) -> Option<Duration> {
        let since = self.latencies.since().filter(|_| self.is_in_place)?;
        Some(now.saturating_sub(since))
    }

    /// Returns whether a complete table has ever been installed.
    pub fn is_in_place(&self) -> bool {
        self.is_in_place
    }

    /// Returns whether the initial list is complete.
    pub fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// Returns the number of consecutive failures: those of commands or those of tasks, the larger
    /// one.
    pub fn failures(&self) -> u32 {
        self.backoff.failures().max(self.tasks.failures())
    }

    /// Returns the generation of the policies in the kernel, if known.
    pub fn generation(&self) -> Option<Generation> {
        self.generations.current()
    }

    /// Returns the planner.
    pub fn planner(&self) -> &IncrementalPlanner {
        &self.planner
    }

    /// Returns the planner to tests that compare agents.
    #[doc(hidden)]
    pub fn planner_mut(&mut self) -> &mut IncrementalPlanner {
        &mut self.planner
    }

    /// Returns the next step. The order is a priority: first what protects pods, then what changes
    /// the table, then background tasks.
    pub fn next(&mut self, now: Duration) -> Next<B> {
        // One command at a time: the contents of the table, and thus the next transaction, depend
        // on its outcome.
        if self.running.is_some() {
            return Next::Wait(None);
        }
        if now < self.backoff.until() {
            return Next::Wait(Some(self.backoff.until()));
        }
        // Enforcing a part of the policies would open pods that the others isolate, and drop
        // traffic that they allow (D86).
        if !self.is_synced {
            return self.close();
        }
        if self.is_settings_stale() {
            self.replace.get_or_insert(ReplaceReason::Settings);
        }
        // The limiter comes before the commit of the planner, although a change that only allows
        // more needs no generation: whether it needs one is known only after the commit, and then
        // the change has left the planner. Waiting also merges the changes that arrive meanwhile.
        if self.replace.is_some() || self.is_dirty {
            let free = self.limiter.free_at(now);
            if free > now {
                return Next::Wait(Some(free));
            }
            // Clearing comes before the table: the next generation must not be written while
            // connections may still have its mark.
            if let Some(range) = self.generations.to_clear_now() {
                return self
                    .tasks
                    .clear_marks(now, MarksToClear::Generations(range));
            }
        }
        // A whole table has all pending changes in it.
        if let Some(why) = self.replace {
            return self.install(now, why);
        }
        if self.is_dirty
            && let Some(next) = self.change(now)
        {
            return next;
        }
        // Tasks read whole kernel tables. No change waits for them.
        self.next_task(now)
    }

    /// Closes the node's pods where no table is installed, as far as their address blocks are
    /// known.
    fn close(&mut self) -> Next<B> {
        let blocks = match self.config.pod_blocks.as_slice() {
            [] => self.planner.pod_blocks(),
            blocks => blocks,
        };
        if !self.is_bare || self.config.boot == BootPolicy::Open || blocks.is_empty() {
            return Next::Wait(None);
        }
        let mut settings = NodeSettings {
            pod_blocks: blocks.to_vec(),
            ..self.settings()
        };
        // Until the routes are known, `elsewhere` is empty, and the check would drop every packet
        // that reaches the node on another interface than its return route.
        if self.elsewhere.is_empty() {
            settings.senders = Senders::Trusted;
        }
        if self.closed.as_ref() == Some(&settings) {
            return Next::Wait(None);
        }
        let rules = self.backend.closed(&settings);
        self.running = Some(RunningCommand::Close(Box::new(settings)));
        Next::Do(Command::Install(Box::new(rules)))
    }

    /// Returns whether the address blocks of the node's pods have changed since the table was
    /// created.
    fn is_settings_stale(&self) -> bool {
        let blocks = self.pod_blocks();
        let table = self.installed.as_ref();
        table.is_some_and(|table| table.settings.pod_blocks != blocks)
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

    fn settings(&self) -> NodeSettings {
        NodeSettings {
            senders: self.senders(),
            pod_blocks: self.pod_blocks(),
            evaluate_own_node: self.config.evaluate_own_node,
            established: self.config.established,
        }
    }

    /// Collects the addresses that change hands, where established connections are kept.
    fn note_reassigned(&mut self, change: &PlanChange) {
        if self.config.established == Established::Keep {
            self.reassigned.extend(&change.changed_hands);
        }
    }

    fn install(&mut self, now: Duration, why: ReplaceReason) -> Next<B> {
        // The changes are in the whole plan, too. The commit takes them out of the planner, and
        // reports the addresses that change hands.
        let change = self.planner.commit();
        self.note_reassigned(&change);
        self.is_dirty = false;
        self.replace = None;
        // Unknown until the command ends: the driver may fail in the middle of the steps.
        self.installed = None;
        // Always a new generation: nothing is known about the marks under the table that is
        // replaced.
        let generation = self.generations.use_next();
        self.limiter.pass(now);
        let settings = self.settings();
        // Groups may have come to have the same members. Only a new table can merge them, because
        // deltas address groups by number.
        self.planner.share();
        let (state, rules) = self
            .backend
            .rules(&self.planner.plan(), &settings, generation);
        let table = InstalledTable { state, settings };
        self.latencies.begin(|_| true);
        self.tasks.table_changes();
        self.running = Some(RunningCommand::Install(why, Box::new(table), generation));
        Next::Do(Command::Install(Box::new(rules)))
    }

    /// Returns the steps for the pending changes; `None`: they do not affect the table.
    fn change(&mut self, now: Duration) -> Option<Next<B>> {
        let change = self.planner.commit();
        self.note_reassigned(&change);
        self.is_dirty = false;
        let installed = self.installed.as_ref();
        let is_moved = installed.is_some_and(|table| table.has_other(&self.elsewhere));
        if change.is_empty() && !is_moved {
            self.latencies.nothing();
            self.outcomes_to_report.push_back(SyncOutcome::Unaffected);
            return None;
        }
        let Some(table) = &mut self.installed else {
            return Some(self.install(now, ReplaceReason::Failure));
        };
        // A change that only allows more keeps the generation, and so every connection its fast
        // path.
        let needs_generation =
            change.reevaluate && self.config.established == Established::Evaluate;
        let generation = needs_generation.then(|| self.generations.next());
        let steps = self.backend.change(
            &mut table.state,
            RulesChange {
                plan: &change,
                elsewhere: is_moved.then_some(&self.elsewhere),
                generation,
            },
        );
        match steps {
            // Nothing was sent: the change does not fit into the installed rules.
            Err(NotInPlace) => Some(self.install(now, ReplaceReason::Growth)),
            Ok(steps) => {
                if let Senders::Checked { elsewhere, .. } = &mut table.settings.senders
                    && is_moved
                {
                    elsewhere.clone_from(&self.elsewhere);
                }
                if needs_generation {
                    self.generations.use_next();
                    self.limiter.pass(now);
                }
                let programmed: BTreeSet<IpAddr> = change.pods.iter().map(|(it, _)| *it).collect();
                self.latencies.begin(|it| programmed.contains(it));
                self.tasks.table_changes();
                self.running = Some(RunningCommand::Commit(steps.len(), generation));
                Some(Next::Do(Command::Commit(steps)))
            }
        }
    }

    /// Records the outcome of the last command.
    pub fn finished(&mut self, now: Duration, outcome: Result<(), CommandError>) {
        let Some(running) = self.running.take() else {
            return;
        };
        let Err(CommandError(why)) = outcome else {
            return self.succeeded(now, running);
        };
        let what = match &running {
            RunningCommand::Close(_) => FailedAction::Close,
            RunningCommand::Install(..) => FailedAction::Install,
            RunningCommand::Commit(..) => FailedAction::Update,
        };
        // A failed command may have been carried out in part, or wholly if only the answer was
        // lost. Only a whole table does not depend on what the kernel has now.
        match running {
            // `closed` is unchanged: `next` returns the command again after the backoff.
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
        self.outcomes_to_report.push_back(SyncOutcome::Failed {
            what,
            why,
            again_in,
            times: self.backoff.failures(),
        });
    }

    fn succeeded(&mut self, now: Duration, running: RunningCommand<B>) {
        self.backoff.succeed();
        match running {
            RunningCommand::Close(settings) => {
                self.closed = Some(*settings);
                self.outcomes_to_report.push_back(SyncOutcome::Closed);
            }
            RunningCommand::Install(why, table, generation) => {
                self.generations.confirm();
                self.installed = Some(*table);
                self.is_in_place = true;
                self.tasks.table_is_new(now);
                let latency = self.latencies.done(now);
                self.outcomes_to_report.push_back(SyncOutcome::Installed {
                    why,
                    generation: generation.get(),
                    latency,
                });
            }
            RunningCommand::Commit(transactions, generation) => {
                if generation.is_some() {
                    self.generations.confirm();
                }
                let took = self.latencies.done(now);
                self.outcomes_to_report.push_back(SyncOutcome::Changed {
                    transactions,
                    generation: generation.map(Generation::get),
                    took,
                });
            }
        }
    }
}
