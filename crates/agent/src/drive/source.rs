//! The source of objects: a directory or a cluster. Updates of either go to the main loop.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use palisade_api::Kind;
use palisade_kube::access::RequestFailure;
use palisade_kube::watch::{self, WatchGate, WatchMessage};
use palisade_kube::{Event, Resource, Server};
use palisade_watch::{AccessError, File, FileChanges, Files, Options, Root, Stopper, WaitResult};
use tokio::sync::mpsc as events;
use tokio::task::LocalSet;
use tracing::{debug, error, info, warn};

use super::listen::{Message, spawn};
use super::log::log_errors;
use super::{Error, Source};
use crate::agent::Agent;
use crate::backend::Backend;
use crate::cluster::{KindStatus, Kinds};
use crate::events::UnreadableKind;
use crate::files::{Objects, shown};
use crate::http::Health;
use crate::metrics::EventResult;

/// An update of a directory.
pub(super) struct FilesUpdate {
    /// All files.
    files: Vec<File>,
    /// Their changes since the last update.
    difference: FileChanges,
    /// What cannot be read.
    troubles: Vec<String>,
}

/// The state of the source.
pub(super) enum SourceState {
    Files {
        path: PathBuf,
        objects: Objects,
        /// The paths that cannot be read, with the causes.
        troubles: Vec<String>,
        stopper: Stopper,
    },
    Cluster {
        url: String,
        kinds: Kinds,
        /// The queue of Events to write, of bounded length.
        events: events::Sender<Event>,
    },
}

/// The number of Events that may wait.
const MOST_EVENTS: usize = 16;

/// Starts to read a source, in a thread of its own.
pub(super) fn open(
    source: &Source,
    node: &str,
    health: &Arc<Health>,
    sender: Sender<Message>,
) -> Result<SourceState, Error> {
    match source {
        Source::Directory { path, recursive } => {
            let root = Root {
                path: path.clone(),
                recursive: *recursive,
            };
            let files = Files::open(vec![root], Options::default());
            let files = files.map_err(|source| Error::Source {
                path: path.clone(),
                source,
            })?;
            let stopper = files.stopper();
            spawn("files", move || watch_files(files, &sender))?;
            Ok(SourceState::Files {
                path: path.clone(),
                objects: Objects::default(),
                troubles: Vec::new(),
                stopper,
            })
        }
        Source::Cluster {
            access,
            with_legacy,
        } => {
            let action = "start the async runtime";
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|source| Error::Process { action, source })?;
            // Here and not in the thread: an agent without a usable kubeconfig must not start.
            let server = runtime.block_on(access.server())?;
            let resources = Resource::of_agents(*with_legacy);
            let (events, queue) = events::channel(MOST_EVENTS);
            let state = SourceState::Cluster {
                url: server.url().to_owned(),
                kinds: Kinds::new(&resources),
                events,
            };
            let health = Arc::clone(health);
            let node = node.to_owned();
            spawn("cluster", move || {
                let all = LocalSet::new();
                all.spawn_local(write_events(server.clone(), queue, health));
                get_node(&all, &server, node, &sender);
                follow_all(&all, &server, &resources, &sender);
                runtime.block_on(all);
            })?;
            Ok(state)
        }
    }
}

/// Requests the agent's own Node before everything else: its blocks are closed until all objects
/// are synced (D146).
fn get_node(all: &LocalSet, server: &Server, node: String, sender: &Sender<Message>) {
    let Some(nodes) = Resource::of(Kind::Node) else {
        return;
    };
    let (server, sender) = (server.clone(), sender.clone());
    let send = move |message| sender.send(Message::Watch(message)).is_ok();
    all.spawn_local(async move { watch::follow_one(&server, nodes, &node, send).await });
}

fn follow_all(all: &LocalSet, server: &Server, resources: &[Resource], sender: &Sender<Message>) {
    let gate = WatchGate::default();
    // The seed of the jitter. It differs between nodes that start at the same moment, and between
    // kinds.
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = clock.map_or(0, |it| u64::from(it.subsec_nanos())) << 32;
    let seed = seed | u64::from(std::process::id());
    for (index, resource) in (0..).zip(resources) {
        let sender = sender.clone();
        let send = move |message| sender.send(Message::Watch(message)).is_ok();
        let gate = gate.clone();
        all.spawn_local(watch::follow(
            server.clone(),
            *resource,
            gate,
            seed.wrapping_add(index << 48),
            send,
        ));
    }
}

/// The first and the longest backoff of an Event, and the time after which the agent gives it up.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const TRIED_FOR: Duration = Duration::from_secs(600);

/// Writes Events, one after the other. While the API server is away they wait.
async fn write_events(server: Server, mut events: events::Receiver<Event>, health: Arc<Health>) {
    while let Some(event) = events.recv().await {
        let began = Instant::now();
        let mut pause = PAUSE;
        let result = loop {
            let why = match server.create(&event).await {
                Ok(()) => break EventResult::Written,
                // The same request would be refused again, except for a busy server (429).
                Err(RequestFailure::Refused(it)) if it.code < 500 && it.code != 429 => {
                    warn!("cannot write Event {}: {}", event.reason, it.message);
                    break EventResult::Failed;
                }
                Err(RequestFailure::Refused(it)) => it.message,
                Err(RequestFailure::Failed(words)) => words,
            };
            if began.elapsed() > TRIED_FOR {
                warn!("cannot write Event {}: {why}", event.reason);
                break EventResult::Failed;
            }
            tokio::time::sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        };
        health.metrics.count_event(result);
    }
}

impl SourceState {
    /// Queues an Event, if the source is a cluster. Drops it if the queue is full: the main loop
    /// must not wait for the API server.
    pub(super) fn send_event(&self, event: Event, health: &Health) {
        let SourceState::Cluster { events, .. } = self else {
            return;
        };
        if let Err(error) = events.try_send(event) {
            warn!("Event dropped: {error}");
            health.metrics.count_event(EventResult::Dropped);
        }
    }

    /// Returns the kinds that cannot be read now.
    pub(super) fn unread(&self) -> Vec<UnreadableKind> {
        match self {
            SourceState::Files { .. } => Vec::new(),
            SourceState::Cluster { kinds, .. } => kinds.unread().cloned().collect(),
        }
    }

    /// Returns the path or the URL of the source.
    pub(super) fn name(&self) -> String {
        match self {
            SourceState::Files { path, .. } => shown(path),
            SourceState::Cluster { url, .. } => url.clone(),
        }
    }

    pub(super) fn stop(&self) {
        match self {
            SourceState::Files { stopper, .. } => stopper.stop(),
            // The process ends without waiting for that thread.
            SourceState::Cluster { .. } => {}
        }
    }

    /// Applies an update of the directory. Returns whether all objects are synced.
    pub(super) fn take_files<B: Backend>(
        &mut self,
        now: Duration,
        update: FilesUpdate,
        agent: &mut Agent<B>,
    ) -> bool {
        let SourceState::Files {
            objects,
            troubles: before,
            ..
        } = self
        else {
            return false;
        };
        let FilesUpdate {
            files,
            difference,
            troubles,
        } = update;
        let new = troubles.iter().filter(|it| !before.contains(it));
        new.for_each(|it| error!("{it}"));
        let delta = objects.take(&files, &difference, &mut agent.objects(now));
        for (path, faults) in &delta.faults {
            log_errors(&shown(path), faults);
        }
        // An unreadable directory is not an empty one: the installed table stays.
        let is_unread = files.is_empty() && !troubles.is_empty();
        *before = troubles;
        if !agent.is_synced() && is_unread {
            return false;
        }
        info!(
            files = files.len(),
            different = delta.different,
            "source read"
        );
        true
    }

    /// Applies an event of the cluster. Returns whether all objects are synced.
    pub(super) fn take_event<B: Backend>(
        &mut self,
        now: Duration,
        message: WatchMessage,
        agent: &mut Agent<B>,
    ) -> bool {
        let SourceState::Cluster { kinds, .. } = self else {
            return false;
        };
        let delta = kinds.take(now, message.kind, message.event, &mut agent.objects(now));
        if let Some(written) = delta.written {
            // If the server's clock is ahead, the object counts as written now. The wait in this
            // process is taken off: the tracker adds it.
            let before = SystemTime::now().duration_since(written);
            let before = before.unwrap_or_default();
            agent.written(now, before.saturating_sub(message.at.elapsed()));
        }
        for (object, faults) in &delta.faults {
            log_errors(object, faults);
        }
        match &delta.trouble {
            Some((kind, Some(cause))) => error!("cannot read {kind}: {cause}"),
            Some((kind, None)) => info!("{kind} watch recovered"),
            None => {}
        }
        if let Some((kind, objects)) = &delta.complete {
            info!(objects, "{kind} synced");
        }
        debug!(
            different = delta.different,
            "watch event of {}",
            message.kind.short()
        );
        kinds.are_complete()
    }

    /// Returns what prevents a complete state of the source; nothing: it is complete.
    pub(super) fn missing(&self) -> Vec<String> {
        match self {
            SourceState::Files {
                objects, troubles, ..
            } => {
                let mut missing = troubles.clone();
                for path in objects.unreadable() {
                    missing.push(format!("cannot read parts of {}", shown(path)));
                }
                missing
            }
            SourceState::Cluster { kinds, .. } => kinds.missing(),
        }
    }

    /// Returns the number of errors in the objects.
    pub(super) fn errors(&self) -> usize {
        match self {
            SourceState::Files { objects, .. } => objects.errors(),
            SourceState::Cluster { kinds, .. } => kinds.errors(),
        }
    }

    /// Returns the number of unreadable objects of a cluster.
    pub(super) fn unread_objects(&self) -> usize {
        match self {
            SourceState::Files { .. } => 0,
            SourceState::Cluster { kinds, .. } => kinds.unread_objects(),
        }
    }

    /// Returns the unreadable objects of a cluster, as text.
    pub(super) fn unreadable(&self) -> Vec<String> {
        match self {
            SourceState::Files { .. } => Vec::new(),
            SourceState::Cluster { kinds, .. } => kinds.unreadable(),
        }
    }

    /// Returns the number of deleted NetworkPolicies that are still enforced.
    pub(super) fn outliving_policies(&self) -> usize {
        match self {
            SourceState::Files { .. } => 0,
            SourceState::Cluster { kinds, .. } => kinds.outliving(),
        }
    }

    /// Returns the status of each watch.
    pub(super) fn following(&self) -> Vec<KindStatus> {
        match self {
            SourceState::Files { .. } => Vec::new(),
            SourceState::Cluster { kinds, .. } => kinds.following().collect(),
        }
    }
}

fn watch_files(mut files: Files, sender: &Sender<Message>) {
    // The first update reports every file as changed.
    let all: Vec<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
    let mut difference = FileChanges {
        changed: all,
        ..FileChanges::default()
    };
    loop {
        let troubles = files.troubles().iter().map(trouble).collect();
        let update = FilesUpdate {
            files: files.iter().cloned().collect(),
            difference,
            troubles,
        };
        if sender.send(Message::Files(update)).is_err() {
            return;
        }
        difference = loop {
            match files.wait(None) {
                Ok(WaitResult::Changed(difference)) => break difference,
                Ok(WaitResult::Nothing) => {}
                Ok(WaitResult::Stopped) => return,
                Err(error) => {
                    let _ = sender.send(Message::SourceLost(error.to_string()));
                    thread::sleep(Duration::from_secs(1));
                }
            }
        };
    }
}

fn trouble(trouble: &AccessError) -> String {
    format!("cannot read {}: {}", shown(&trouble.path), trouble.error)
}
