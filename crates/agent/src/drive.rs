//! The loop on the real kernel: threads that listen, and one that acts.

mod answer;
mod bypass;
mod close;
mod listen;
mod log;
mod source;
mod unclosed;
mod workers;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use palisade_core::text::name;
use palisade_kube::{Access, Event};
use palisade_nft::node::{Generation, MarkBits};
use palisade_nft::watch::{Notice, Watcher};
use palisade_nft::{Conntrack, Kernel};
use palisade_route::UncheckedSenders;
use tracing::{debug, error, info, warn};

pub use self::close::{CloseOutcome, close};

use self::bypass::BypassMonitor;
use self::listen::{Message, attend, listen_to_kernel, spawn};
use self::log::{chain, log};
use self::source::SourceState;
use self::unclosed::{UnclosedMonitor, unclosed};
use self::workers::Workers;
use crate::agent::Agent;
use crate::command::{Command, CommandError, Next, SyncOutcome, Task};
use crate::config::{Config, FalseSenders};
use crate::events::{EventReason, EventRecorder};
use crate::files::shown;
use crate::http::Health;
use crate::metrics::State;

/// What an agent needs of the world.
#[derive(Clone, Debug)]
pub struct World {
    /// What says which objects there are.
    pub source: Source,
    /// Where health and metrics are asked for; `None`: nowhere.
    pub listen: Option<SocketAddr>,
}

/// What says which objects there are.
#[derive(Clone, Debug)]
pub enum Source {
    /// A directory.
    Directory {
        /// Which.
        path: PathBuf,
        /// Whether the directories below it belong to it.
        recursive: bool,
    },
    /// A cluster's API server.
    Cluster {
        /// How it is reached.
        access: Access,
        /// Whether the early kinds count (D68).
        with_legacy: bool,
    },
}

/// Why an agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel cannot enforce anything here.
    #[error("cannot enforce policies")]
    Kernel(#[from] palisade_nft::Error),
    /// The source cannot be watched.
    #[error("cannot watch {}", shown(path))]
    Source {
        /// What.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Nobody says where the cluster is.
    #[error("cannot tell which cluster this is")]
    Access(#[from] palisade_kube::access::Error),
    /// Something that every process can do could not be done.
    #[error("cannot {action}")]
    Process {
        /// What.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// Runs until a signal ends it. Whatever the kernel holds then, it keeps (D86).
pub fn run(config: Config, world: &World) -> Result<(), Error> {
    let kernel = Kernel::open()?;
    let mut watcher = Watcher::open()?;
    watcher.ignore(kernel.port());
    let conntrack = Conntrack::open()?;
    let board = Arc::new(Health::new());
    let (sender, receiver) = channel();

    attend(world.listen, &board, sender.clone())?;
    spawn("kernel", {
        let sender = sender.clone();
        move || listen_to_kernel(watcher, &sender)
    })?;
    let workers = Workers::start(config.mark, &sender)?;
    let known = source::open(&world.source, &config.node, &board, sender)?;

    info!(
        node = config.node,
        source = known.name(),
        version = env!("CARGO_PKG_VERSION"),
        "started"
    );
    let mut driver = Driver {
        agent: Agent::new(config.clone(), None),
        config,
        kernel,
        conntrack,
        workers,
        health: board,
        started: Instant::now(),
        state: known,
        last_event: Instant::now(),
        noted: None,
        events: EventRecorder::default(),
        taking_over: Some(String::new()),
        bypass: BypassMonitor::default(),
        unclosed: UnclosedMonitor::default(),
    };
    driver.run(&receiver);
    Ok(())
}

/// Deletes everything that is ours in the kernel. Says how many tables there were, and how many
/// connections had a mark.
pub fn clean_up(mark: MarkBits) -> Result<(usize, usize), Error> {
    let mut kernel = Kernel::open()?;
    let tables = kernel.remove()?;
    let mut conntrack = Conntrack::open()?;
    let forgotten = conntrack.clear_marks(mark, &(1..=mark.last_generation()))?;
    Ok((tables, forgotten.forgotten))
}

/// What an earlier process has left.
enum LeftoverTable {
    /// Nothing: no table enforces.
    Nothing,
    /// A table, of this generation as far as it says so.
    Table(Option<Generation>),
}

/// Takes over the table of an earlier process, if there is one.
fn take_over(kernel: &mut Kernel) -> Result<LeftoverTable, palisade_nft::Error> {
    if !kernel.adopt()? {
        return Ok(LeftoverTable::Nothing);
    }
    Ok(LeftoverTable::Table(match kernel.generation() {
        Ok(generation) => {
            let is_closed = generation.is_none();
            let generation = generation.and_then(|it| u16::try_from(it).ok());
            let generation = generation.and_then(Generation::new);
            match generation {
                Some(it) => info!(generation = it.get(), "policies are enforced already"),
                None if is_closed => info!("pods of this node are closed already"),
                None => warn!("a table enforces that does not say its generation"),
            }
            generation
        }
        Err(error) => {
            warn!("the generation of the table that enforces cannot be read: {error}");
            None
        }
    }))
}

/// A loop that waits looks up so often.
const LOOK_UP: Duration = Duration::from_secs(1);

/// What another agent holds is asked for so often.
const TAKE_OVER_EVERY: Duration = Duration::from_millis(500);

/// An agent is not ready when what it was told is not in the kernel after so long.
const LATE: Duration = Duration::from_secs(5);

/// So long objects are taken in before the kernel is told of them.
const LONGEST_BATCH: Duration = Duration::from_millis(100);

/// How things are is said so often, whatever happens.
const NOTE_EVERY: Duration = Duration::from_millis(500);

struct Driver {
    config: Config,
    agent: Agent,
    kernel: Kernel,
    conntrack: Conntrack,
    workers: Workers,
    health: Arc<Health>,
    started: Instant,
    /// What is known of the source.
    state: SourceState,
    /// When the source last said something.
    last_event: Instant,
    /// When it was last said how things are.
    noted: Option<Instant>,
    /// What people are told of.
    events: EventRecorder,
    /// Why the table that enforces is not ours yet; `None`: it is, or there is none.
    taking_over: Option<String>,
    /// Which ways packets take to the node's pods.
    bypass: BypassMonitor,
    /// Whether pods are open that should not be.
    unclosed: UnclosedMonitor,
}

impl Driver {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn run(&mut self, receiver: &Receiver<Message>) {
        loop {
            self.report();
            let next = if self.has_taken_over() {
                self.agent.next(self.now())
            } else {
                Next::Wait(Some(self.now() + TAKE_OVER_EVERY))
            };
            let wait = match next {
                Next::Do(command) => {
                    let outcome = self.carry_out(command);
                    self.agent.finished(self.now(), outcome);
                    Duration::ZERO
                }
                Next::Spawn(task) => {
                    self.spawn(task);
                    Duration::ZERO
                }
                Next::Wait(None) => LOOK_UP,
                Next::Wait(Some(until)) => until.saturating_sub(self.now()).min(LOOK_UP),
            };
            let first = match receiver.recv_timeout(wait) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    error!("nobody is left who could say what changes");
                    return;
                }
            };
            // What has come meanwhile is one batch, up to a time: somebody may write objects faster than they are read, and
            // what they change has to reach the kernel none the less.
            let began = Instant::now();
            for message in first.into_iter().chain(receiver.try_iter()) {
                if let Message::End(signal) = message {
                    info!(signal, "ending; the kernel goes on enforcing what it holds");
                    self.state.stop();
                    return;
                }
                self.take(message);
                if began.elapsed() >= LONGEST_BATCH {
                    break;
                }
            }
        }
    }

    /// Takes over what enforces, before anything is changed: the generations go on from there. As long as
    /// another agent runs, it is its table.
    fn has_taken_over(&mut self) -> bool {
        let Some(before) = &self.taking_over else {
            return true;
        };
        match take_over(&mut self.kernel) {
            Ok(left) => {
                match left {
                    LeftoverTable::Nothing => self.agent.found_nothing(),
                    LeftoverTable::Table(generation) => self.agent.found(generation),
                }
                self.taking_over = None;
                true
            }
            Err(error) => {
                let words = chain(&error);
                if *before != words {
                    warn!("what enforces cannot be taken over yet: {words}");
                }
                self.taking_over = Some(words);
                false
            }
        }
    }

    fn take(&mut self, message: Message) {
        let now = self.now();
        match message {
            Message::Source(told) => {
                self.last_event = Instant::now();
                // What came while the kernel was busy has waited since then.
                let now = told
                    .at()
                    .map_or(now, |at| at.saturating_duration_since(self.started));
                if self.state.take(now, &told, &mut self.agent) {
                    self.agent.synced(now);
                }
            }
            Message::Notice(notice) => self.agent.noticed(now, &notice),
            Message::Deaf(why) => {
                warn!("the kernel's notices cannot be heard: {why}");
                self.agent.noticed(now, &Notice::Lost);
            }
            Message::TaskFinished(outcome) => self.agent.task_finished(now, outcome),
            Message::SourceLost(why) => error!("the source cannot be watched: {why}"),
            Message::Reload => {
                info!("SIGHUP: putting everything in place once more");
                self.agent.resync(now);
            }
            Message::End(_) => {}
        }
    }

    fn carry_out(&mut self, command: Command) -> Result<(), CommandError> {
        let failed = |error: palisade_nft::Error| CommandError(chain(&error));
        self.workers.table_changes();
        match command {
            Command::Install(ruleset) => {
                let loaded = self.kernel.install(&ruleset).map_err(failed)?;
                debug!(table = loaded.table, bytes = loaded.bytes, "installed");
            }
            Command::Commit(transactions) => {
                for transaction in &transactions {
                    self.kernel.commit(transaction).map_err(failed)?;
                    self.health.is_busy();
                }
            }
        }
        Ok(())
    }

    fn spawn(&mut self, task: Task) {
        let table = self.kernel.table().map(str::to_owned);
        if let Some(outcome) = self.workers.spawn(task, table) {
            self.agent.task_finished(self.now(), outcome);
        }
    }

    /// Writes down what happened, and says how things are.
    fn report(&mut self) {
        let happened: Vec<SyncOutcome> = self.agent.outcomes().collect();
        for happening in &happened {
            self.health.metrics.count(happening);
            log(happening);
            if let Some((reason, note)) = self.events.record(self.now(), happening) {
                self.record(reason, note);
            }
        }
        let pods = self.agent.live().local_addresses();
        self.bypass.look(pods, self.config.programs);
        self.agent
            .elsewhere(self.now(), self.bypass.elsewhere().clone());
        let missing = self.missing();
        let is_due = self.noted.is_none_or(|it| it.elapsed() >= NOTE_EVERY);
        if is_due || !happened.is_empty() {
            self.noted = Some(Instant::now());
            self.note(missing.is_empty());
            for (reason, note) in self.events.unread(self.now(), &self.state.unread()) {
                self.record(reason, note);
            }
            let unreadable = self.state.unreadable();
            if let Some((reason, note)) = self.events.unreadable(self.now(), &unreadable) {
                self.record(reason, note);
            }
            // There may be thousands, and every change of others is one that happened.
            if is_due && let Some((reason, note)) = self.over_budget() {
                self.record(reason, note);
            }
            let ways: Vec<String> = self.bypass.missing().collect();
            if let Some((reason, note)) = self.events.bypassed(self.now(), &ways) {
                self.record(reason, note);
            }
            if let Some((reason, note)) = self
                .events
                .unchecked_programs(self.now(), self.bypass.unchecked_programs())
            {
                self.record(reason, note);
            }
            if let Some((reason, note)) = self.unchecked() {
                self.record(reason, note);
            }
            let open = unclosed(&self.config, &self.agent);
            let open = self.unclosed.look(self.now(), open);
            if let Some((reason, note)) = self.events.unclosed(self.now(), open) {
                self.record(reason, note);
            }
        }
        self.health.say(missing);
    }

    /// Which policies do not fit into the budgets of their namespaces.
    fn over_budget(&mut self) -> Option<(EventReason, String)> {
        let over = self.agent.live().over_budget().into_iter();
        let over = over.map(|(namespace, policy)| name(&format!("{namespace}/{policy}")));
        let over: Vec<String> = over.collect();
        self.events.over_budget(self.now(), &over)
    }

    /// Whose senders cannot be checked, where they should be.
    fn unchecked(&mut self) -> Option<(EventReason, String)> {
        if self.config.false_senders == FalseSenders::Allow {
            return None;
        }
        let whose: Vec<String> = self
            .bypass
            .unchecked()
            .map(UncheckedSenders::words)
            .collect();
        self.events.unchecked(self.now(), &whose)
    }

    fn record(&self, reason: EventReason, note: String) {
        let event = Event {
            node: self.config.node.clone(),
            reason: reason.word(),
            action: reason.action(),
            note,
            at: SystemTime::now(),
        };
        self.state.send_event(event, &self.health);
    }

    fn note(&mut self, ready: bool) {
        let counts = self.agent.live().counts();
        let conntrack = self.conntrack.count().ok();
        let conntrack = conntrack.zip(self.conntrack.max().ok().flatten());
        self.health.metrics.note(&State {
            generation: self.agent.generation().map_or(0, Generation::get),
            objects: vec![
                ("pod", counts.pods),
                ("namespace", counts.namespaces),
                ("node", counts.nodes),
                ("networkpolicy", counts.network_policies),
                ("clusterpolicy", counts.ordered_policies),
            ],
            kernel_objects: vec![
                ("group", counts.sets),
                ("body", counts.chains),
                ("pod_address", counts.local_addresses),
            ],
            errors: self.state.errors(),
            unread_objects: self.state.unread_objects(),
            outliving_policies: self.state.outliving_policies(),
            over_budget_policies: counts.over_budget,
            following: self.state.following(),
            ready,
            source_age: self.last_event.elapsed(),
            senders_unchecked: match self.config.false_senders {
                FalseSenders::Drop | FalseSenders::DropEvery => {
                    self.bypass.unchecked().map(|it| it.addresses).sum()
                }
                FalseSenders::Allow => counts.local_addresses,
            },
            programs_are_unseen: self.bypass.unchecked_programs().is_some(),
            bypasses: self.bypass.missing().count(),
            is_unclosed: unclosed(&self.config, &self.agent).is_some(),
            conntrack,
        });
    }

    /// What is missing until the kernel holds what the objects say.
    fn missing(&self) -> Vec<String> {
        let mut missing = self.state.missing();
        missing.extend(self.taking_over.clone().filter(|it| !it.is_empty()));
        missing.extend(unclosed(&self.config, &self.agent).map(str::to_owned));
        if !self.agent.is_synced() {
            if missing.is_empty() {
                missing.push("the objects have not been read yet".to_owned());
            }
        } else {
            missing.extend(self.lag());
        }
        missing.extend(self.bypass.missing());
        missing
    }

    /// How the kernel is not what the objects say, if that is worth telling. Where pods come and go all the time there is always
    /// something on its way.
    fn lag(&self) -> Option<String> {
        let failures = self.agent.failures();
        if failures > 0 {
            return Some(format!("the kernel has refused {failures} times"));
        }
        let lag = self.agent.lag(self.now()).unwrap_or_default();
        let is_late = !self.agent.is_in_place() || lag > LATE;
        is_late.then(|| "the kernel does not hold the latest objects yet".to_owned())
    }
}
