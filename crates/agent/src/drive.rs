//! The driver of the agent on a real kernel: threads that receive events, and one that acts.

mod answer;
mod bypass;
mod close;
mod listen;
mod log;
mod source;
mod unclosed;
mod workers;

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

use palisade_core::plan::Generation;
use palisade_core::text::name;
use palisade_kube::{Access, Event};
use palisade_route::UncheckedSenders;
use tracing::{error, info, warn};

pub use self::close::{CloseOutcome, close};

use self::bypass::BypassMonitor;
use self::listen::{Message, attend, spawn, watch_for_drift};
use self::log::{chain, log};
use self::source::SourceState;
use self::unclosed::{UnclosedMonitor, unclosed};
use self::workers::Workers;
use crate::agent::Agent;
use crate::backend::{Connect, Enforcer, Failure, Handles, Leftover, Notice, Removed};
use crate::command::{Command, CommandError, Next, SyncOutcome, Task};
use crate::config::{Config, FalseSenders};
use crate::events::{EventReason, EventRecorder};
use crate::files::shown;
use crate::http::Health;
use crate::metrics::State;

/// The environment of an agent.
#[derive(Clone, Debug)]
pub struct World {
    /// The source of objects.
    pub source: Source,
    /// The address that serves health and metrics; `None`: the agent does not listen.
    pub listen: Option<SocketAddr>,
}

/// A source of objects.
#[derive(Clone, Debug)]
pub enum Source {
    /// A directory of manifests.
    Directory {
        /// Its path.
        path: PathBuf,
        /// Whether to read the directories below it, too.
        recursive: bool,
    },
    /// A cluster's API server.
    Cluster {
        /// How to reach it.
        access: Access,
        /// Whether to follow the policy kinds of 2021 (D68).
        with_legacy: bool,
    },
}

/// Why an agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Policies cannot be enforced here.
    #[error("cannot enforce policies")]
    Backend(#[source] Failure),
    /// The source cannot be watched.
    #[error("cannot watch {}", shown(path))]
    Source {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The cluster cannot be found.
    #[error("cannot find the cluster")]
    Access(#[from] palisade_kube::access::Error),
    /// The system refused something that every process needs.
    #[error("cannot {action}")]
    Process {
        /// The action, as in "cannot ...".
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
}

/// Runs the agent until a signal. The installed table stays active afterwards (D86).
pub fn run<B: Connect>(backend: &B, config: Config, world: &World) -> Result<(), Error> {
    let handles = backend.connect().map_err(Error::Backend)?;
    let health = Arc::new(Health::new());
    let (sender, receiver) = channel();

    attend(world.listen, &health, sender.clone())?;
    let agent = Agent::new(backend.clone(), config.clone(), None);
    let mut driver = Driver::start(agent, handles, config, &world.source, health, sender)?;
    driver.run(&receiver);
    Ok(())
}

/// Deletes everything of Palisade.
pub fn clean_up(backend: &impl Connect) -> Result<Removed, Error> {
    backend.clean_up().map_err(Error::Backend)
}

/// Logs what an earlier process left. Returns its generation, if known.
fn leftover_generation(leftover: Leftover) -> Option<Generation> {
    match leftover {
        Leftover::Nothing => None,
        Leftover::Closed => {
            info!("existing closed table adopted");
            None
        }
        Leftover::Rules(Some(generation)) => {
            info!(generation = generation.get(), "existing table adopted");
            Some(generation)
        }
        // Without a generation the agent clears all marks before its first own one, which is safe.
        Leftover::Rules(None) => {
            warn!("existing table adopted; its generation is invalid");
            None
        }
        Leftover::Unreadable(error) => {
            warn!("cannot read the generation of the existing table: {error}");
            None
        }
    }
}

/// The longest sleep of the main loop. The checks of `report` must run without events, too.
const LOOK_UP: Duration = Duration::from_secs(1);

/// The interval of tries to adopt the table while another agent owns it.
const TAKE_OVER_EVERY: Duration = Duration::from_millis(500);

/// The agent is not ready if a change is not programmed after this time.
const LATE: Duration = Duration::from_secs(5);

/// The longest time of processing objects before the table is updated.
const LONGEST_BATCH: Duration = Duration::from_millis(100);

/// The interval of metrics and Events, whatever happens.
const NOTE_EVERY: Duration = Duration::from_millis(500);

struct Driver<B: Connect> {
    config: Config,
    agent: Agent<B>,
    enforcer: Box<dyn Enforcer<B>>,
    workers: Workers<B>,
    health: Arc<Health>,
    started: Instant,
    /// The state of the source.
    state: SourceState,
    /// The time of the last event of the source.
    last_event: Instant,
    /// The time of the last update of metrics and Events.
    noted: Option<Instant>,
    /// The Events of the node.
    events: EventRecorder,
    /// Why the existing table is not adopted yet; empty: not tried yet; `None`: it is, or there is
    /// none.
    taking_over: Option<String>,
    /// The paths of packets to the node's pods.
    bypass: BypassMonitor,
    /// Whether pods are open that must be closed.
    unclosed: UnclosedMonitor,
}

impl<B: Connect> Driver<B> {
    /// Starts the threads whose messages the main loop receives.
    fn start(
        agent: Agent<B>,
        handles: Handles<B>,
        config: Config,
        source: &Source,
        health: Arc<Health>,
        sender: Sender<Message>,
    ) -> Result<Driver<B>, Error> {
        let Handles {
            enforcer,
            watcher,
            auditor,
            clearer,
        } = handles;
        spawn("kernel", {
            let sender = sender.clone();
            move || watch_for_drift(watcher, &sender)
        })?;
        let workers = Workers::start(auditor, clearer, &sender)?;
        let state = source::open(source, &config.node, &health, sender)?;
        info!(
            node = config.node,
            source = state.name(),
            version = env!("CARGO_PKG_VERSION"),
            "started"
        );
        Ok(Driver {
            agent,
            config,
            enforcer,
            workers,
            health,
            started: Instant::now(),
            state,
            last_event: Instant::now(),
            noted: None,
            events: EventRecorder::default(),
            taking_over: Some(String::new()),
            bypass: BypassMonitor::default(),
            unclosed: UnclosedMonitor::default(),
        })
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn run(&mut self, receiver: &Receiver<Message>) {
        loop {
            // Before the next step, which needs to know the interfaces that lead elsewhere.
            self.report();
            let next = if self.has_taken_over() {
                self.agent.next(self.now())
            } else {
                Next::Wait(Some(self.now() + TAKE_OVER_EVERY))
            };
            let wait = match next {
                Next::Do(command) => {
                    let outcome = self.execute(command);
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
                    error!("all input threads stopped; exiting");
                    return;
                }
            };
            // All messages that have arrived are one batch, up to a limit: objects may be written
            // faster than they are processed, and their changes must reach the kernel nevertheless.
            let began = Instant::now();
            for message in first.into_iter().chain(receiver.try_iter()) {
                if let Message::End(signal) = message {
                    info!(signal, "stopping; the installed table stays active");
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

    /// Adopts the existing table before any change: its generation must be known. While another
    /// agent runs, the table belongs to that agent.
    fn has_taken_over(&mut self) -> bool {
        let Some(before) = &self.taking_over else {
            return true;
        };
        match self.enforcer.adopt() {
            Ok(leftover) => {
                if matches!(leftover, Leftover::Nothing) {
                    self.agent.found_nothing();
                } else {
                    self.agent.found(leftover_generation(leftover));
                }
                self.taking_over = None;
                true
            }
            Err(error) => {
                let reason = chain(&error);
                // Twice a second for as long as the other agent runs: only a new reason is logged.
                if *before != reason {
                    warn!("cannot adopt the existing table: {reason}; retrying");
                }
                self.taking_over = Some(reason);
                false
            }
        }
    }

    fn take(&mut self, message: Message) {
        let now = self.now();
        match message {
            Message::Files(update) => {
                self.last_event = Instant::now();
                if self.state.take_files(now, update, &mut self.agent) {
                    self.agent.synced(now);
                }
            }
            Message::Watch(message) => {
                self.last_event = Instant::now();
                // A message may have waited while the kernel was busy. Its latency counts from its
                // arrival.
                let now = message.at.saturating_duration_since(self.started);
                if self.state.take_event(now, message, &mut self.agent) {
                    self.agent.synced(now);
                }
            }
            Message::Notice(notice) => self.agent.noticed(now, &notice),
            Message::NotificationsFailed(why) => {
                warn!("cannot receive nftables notifications: {why}");
                // Foreign changes may have been missed: an audit finds them.
                self.agent.noticed(now, &Notice::Lost);
            }
            Message::TaskFinished(outcome) => self.agent.task_finished(now, outcome),
            Message::SourceLost(why) => error!("cannot watch the source: {why}"),
            Message::Reload => {
                info!("SIGHUP: reinstalling the table");
                self.agent.resync(now);
            }
            Message::End(_) => {}
        }
    }

    fn execute(&mut self, command: Command<B>) -> Result<(), CommandError> {
        let failed = |error: Failure| CommandError(chain(&*error));
        // Stops a running audit: it would compare the new table with the old expectation.
        self.workers.table_changes();
        match command {
            Command::Install(rules) => self.enforcer.install(&rules).map_err(failed)?,
            Command::Commit(steps) => {
                for step in &steps {
                    self.enforcer.commit(step).map_err(failed)?;
                    // Large changes are many steps. The main loop is not stalled meanwhile.
                    self.health.is_busy();
                }
            }
        }
        Ok(())
    }

    fn spawn(&mut self, task: Task<B>) {
        if let Some(outcome) = self.workers.spawn(task, self.enforcer.place()) {
            self.agent.task_finished(self.now(), outcome);
        }
    }

    /// Logs and exports the outcomes, then the state of the agent.
    fn report(&mut self) {
        let outcomes: Vec<SyncOutcome> = self.agent.outcomes().collect();
        for outcome in &outcomes {
            self.health.metrics.count(outcome);
            log(outcome);
            if let Some((reason, note)) = self.events.record(self.now(), outcome) {
                self.record(reason, note);
            }
        }
        // Every round, and in every state: bypasses matter before the first sync, too. The monitor
        // itself queries the kernel only every few seconds.
        let pods = self.agent.planner().local_addresses();
        self.bypass
            .check(pods, self.config.programs, || self.enforcer.flowtables());
        let now = self.now();
        self.agent.elsewhere(now, self.bypass.elsewhere());
        let missing = self.missing();
        let is_due = self.noted.is_none_or(|it| it.elapsed() >= NOTE_EVERY);
        if is_due || !outcomes.is_empty() {
            self.noted = Some(Instant::now());
            self.note(missing.is_empty());
            for (reason, note) in self.events.unread(self.now(), &self.state.unread()) {
                self.record(reason, note);
            }
            let unreadable = self.state.unreadable();
            if let Some((reason, note)) = self.events.unreadable(self.now(), &unreadable) {
                self.record(reason, note);
            }
            // Not after every outcome: the list may have thousands of policies, and outcomes follow
            // each other quickly while objects change.
            if is_due && let Some((reason, note)) = self.over_budget() {
                self.record(reason, note);
            }
            let paths: Vec<String> = self.bypass.missing().collect();
            if let Some((reason, note)) = self.events.bypassed(self.now(), &paths) {
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
            let open = self.unclosed.check(self.now(), open);
            if let Some((reason, note)) = self.events.unclosed(self.now(), open) {
                self.record(reason, note);
            }
        }
        self.health.set_missing(missing);
    }

    /// Returns the Event about policies over the budgets of their namespaces.
    fn over_budget(&mut self) -> Option<(EventReason, String)> {
        let over = self.agent.planner().over_budget().into_iter();
        let over = over.map(|(namespace, policy)| name(&format!("{namespace}/{policy}")));
        let over: Vec<String> = over.collect();
        self.events.over_budget(self.now(), &over)
    }

    /// Returns the Event about pods whose source addresses cannot be checked.
    fn unchecked(&mut self) -> Option<(EventReason, String)> {
        if self.config.false_senders == FalseSenders::Allow {
            return None;
        }
        let pods: Vec<String> = self
            .bypass
            .unchecked()
            .map(UncheckedSenders::words)
            .collect();
        self.events.unchecked(self.now(), &pods)
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
        let counts = self.agent.planner().counts();
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
                // Nothing is checked, so every address of a pod counts.
                FalseSenders::Allow => counts.local_addresses,
            },
            programs_are_unseen: self.bypass.unchecked_programs().is_some(),
            bypasses: self.bypass.missing().count(),
            is_unclosed: unclosed(&self.config, &self.agent).is_some(),
            // If there are no such statistics, the two gauges stay as they are.
            conntrack: self.enforcer.connections(),
        });
    }

    /// Returns the reasons why the agent is not ready; none: it is.
    fn missing(&self) -> Vec<String> {
        let mut missing = self.state.missing();
        missing.extend(self.taking_over.clone().filter(|it| !it.is_empty()));
        missing.extend(unclosed(&self.config, &self.agent).map(str::to_owned));
        if !self.agent.is_synced() {
            if missing.is_empty() {
                missing.push("the objects are not synced yet".to_owned());
            }
        } else {
            missing.extend(self.lag());
        }
        missing.extend(self.bypass.missing());
        missing
    }

    /// Returns how the table lags behind the objects, unless the lag is normal: where pods come and
    /// go all the time, a change is always pending.
    fn lag(&self) -> Option<String> {
        let failures = self.agent.failures();
        if failures > 0 {
            return Some(format!(
                "the kernel refused {failures} changes in a row; see the log"
            ));
        }
        let lag = self.agent.lag(self.now()).unwrap_or_default();
        let is_late = !self.agent.is_in_place() || lag > LATE;
        is_late.then(|| "recent changes are not programmed yet".to_owned())
    }
}
