//! Where objects come from: a directory, or a cluster. What either says goes to the agent's one loop.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use palisade_api::Kind;
use palisade_kube::access::RequestFailure;
use palisade_kube::watch::{self, WatchGate};
use palisade_kube::{Event, Resource, Server};
use palisade_watch::{AccessError, File, FileChanges, Files, Options, Root, Stopper, WaitResult};
use tokio::sync::mpsc as events;
use tokio::task::LocalSet;
use tracing::{debug, error, info, warn};

use super::listen::{Message, spawn};
use super::log::log_errors;
use super::{Error, Source};
use crate::agent::Agent;
use crate::cluster::{KindStatus, Kinds};
use crate::events::UnreadableKind;
use crate::files::{Objects, shown};
use crate::http::Health;

/// What a source says.
pub(super) enum SourceUpdate {
    /// The files, what is different, and what cannot be read.
    Files {
        files: Vec<File>,
        difference: FileChanges,
        troubles: Vec<String>,
    },
    /// News of a kind of a cluster's objects.
    Cluster(watch::WatchMessage),
}

impl SourceUpdate {
    /// When it was said, if anybody noted that.
    pub(super) fn at(&self) -> Option<Instant> {
        match self {
            SourceUpdate::Files { .. } => None,
            SourceUpdate::Cluster(told) => Some(told.at),
        }
    }
}

/// What is known of the source.
pub(super) enum SourceState {
    Files {
        path: PathBuf,
        objects: Objects,
        /// What cannot be read.
        troubles: Vec<String>,
        stopper: Stopper,
    },
    Cluster {
        url: String,
        kinds: Kinds,
        /// Takes events that are to be written, as far as there is room.
        events: events::Sender<Event>,
    },
}

/// So many events may wait to be written.
const MOST_EVENTS: usize = 16;

/// Begins to listen to a source, in threads of its own.
pub(super) fn open(
    source: &Source,
    node: &str,
    board: &Arc<Health>,
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
            let action = "ask a server";
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|source| Error::Process { action, source })?;
            let server = runtime.block_on(access.server())?;
            let resources = Resource::of_agents(*with_legacy);
            let (events, to_write) = events::channel(MOST_EVENTS);
            let known = SourceState::Cluster {
                url: server.url().to_owned(),
                kinds: Kinds::new(&resources),
                events,
            };
            let board = Arc::clone(board);
            let node = node.to_owned();
            spawn("cluster", move || {
                let all = LocalSet::new();
                all.spawn_local(write_events(server.clone(), to_write, board));
                get_node(&all, &server, node, &sender);
                follow_all(&all, &server, &resources, &sender);
                runtime.block_on(all);
            })?;
            Ok(known)
        }
    }
}

/// Asks for the agent's own node before everything else: it says which addresses are to be closed until all is known.
fn get_node(all: &LocalSet, server: &Server, node: String, sender: &Sender<Message>) {
    let Some(nodes) = Resource::of(Kind::Node) else {
        return;
    };
    let (server, sender) = (server.clone(), sender.clone());
    let tell = move |told| {
        sender
            .send(Message::Source(SourceUpdate::Cluster(told)))
            .is_ok()
    };
    all.spawn_local(async move { watch::follow_one(&server, nodes, &node, tell).await });
}

fn follow_all(all: &LocalSet, server: &Server, resources: &[Resource], sender: &Sender<Message>) {
    let room = WatchGate::default();
    // Agents of many nodes that start at once must not ask at once for ever.
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = clock.map_or(0, |it| u64::from(it.subsec_nanos())) << 32;
    let seed = seed | u64::from(std::process::id());
    for (place, resource) in (0..).zip(resources) {
        let sender = sender.clone();
        let tell = move |told| {
            sender
                .send(Message::Source(SourceUpdate::Cluster(told)))
                .is_ok()
        };
        let room = room.clone();
        all.spawn_local(watch::follow(
            server.clone(),
            *resource,
            room,
            seed.wrapping_add(place << 48),
            tell,
        ));
    }
}

/// The first pause before an event is tried again, the longest one, and how long it is tried at all.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const TRIED_FOR: Duration = Duration::from_secs(600);

/// Writes events, one after the other. A server that is away cannot be told that it is, until it is back.
async fn write_events(server: Server, mut events: events::Receiver<Event>, board: Arc<Health>) {
    while let Some(event) = events.recv().await {
        let began = Instant::now();
        let mut pause = PAUSE;
        let result = loop {
            let why = match server.create(&event).await {
                Ok(()) => break "written",
                Err(RequestFailure::Refused(it)) if it.code < 500 && it.code != 429 => {
                    warn!(
                        "the event {} cannot be written: {}",
                        event.reason, it.message
                    );
                    break "failed";
                }
                Err(RequestFailure::Refused(it)) => it.message,
                Err(RequestFailure::Failed(words)) => words,
            };
            if began.elapsed() > TRIED_FOR {
                warn!("the event {} cannot be written: {why}", event.reason);
                break "failed";
            }
            tokio::time::sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        };
        board.metrics.count_event(result);
    }
}

impl SourceState {
    /// Has an event written, if there is anybody who takes it. Nobody waits for that.
    pub(super) fn send_event(&self, event: Event, board: &Health) {
        let SourceState::Cluster { events, .. } = self else {
            return;
        };
        if let Err(error) = events.try_send(event) {
            warn!("an event is not written: {error}");
            board.metrics.count_event("dropped");
        }
    }

    /// The kinds that cannot be read now.
    pub(super) fn unread(&self) -> Vec<UnreadableKind> {
        match self {
            SourceState::Files { .. } => Vec::new(),
            SourceState::Cluster { kinds, .. } => kinds.unread().cloned().collect(),
        }
    }

    /// Where objects come from, in words.
    pub(super) fn name(&self) -> String {
        match self {
            SourceState::Files { path, .. } => shown(path),
            SourceState::Cluster { url, .. } => url.clone(),
        }
    }

    pub(super) fn stop(&self) {
        match self {
            SourceState::Files { stopper, .. } => stopper.stop(),
            // Nothing waits for the thread.
            SourceState::Cluster { .. } => {}
        }
    }

    /// Takes in what was said, and tells the agent, in its own time. Whether everything was told once.
    pub(super) fn take(&mut self, now: Duration, told: &SourceUpdate, agent: &mut Agent) -> bool {
        match (self, told) {
            (
                SourceState::Files {
                    objects,
                    troubles: before,
                    ..
                },
                SourceUpdate::Files {
                    files,
                    difference,
                    troubles,
                },
            ) => {
                let new = troubles.iter().filter(|it| !before.contains(it));
                new.for_each(|it| error!("{it}"));
                before.clone_from(troubles);
                let taken = objects.take(now, files, difference, agent);
                for (path, faults) in &taken.faults {
                    log_errors(&shown(path), faults);
                }
                // A directory that cannot be read says nothing: what was enforced before goes on.
                if !agent.is_synced() && files.is_empty() && !troubles.is_empty() {
                    return false;
                }
                info!(
                    files = files.len(),
                    different = taken.different,
                    "read the source"
                );
                true
            }
            (SourceState::Cluster { kinds, .. }, SourceUpdate::Cluster(told)) => {
                let taken = kinds.take(now, told.kind, &told.event, agent);
                if let Some(written) = taken.written {
                    // A server whose clock is ahead has written it just now.
                    let before = SystemTime::now().duration_since(written);
                    let before = before.unwrap_or_default();
                    agent.written(now, before.saturating_sub(told.at.elapsed()));
                }
                for (object, faults) in &taken.faults {
                    log_errors(object, faults);
                }
                match &taken.trouble {
                    Some((kind, Some(words))) => error!("{kind} cannot be read: {words}"),
                    Some((kind, None)) => info!("{kind} can be read again"),
                    None => {}
                }
                if let Some((kind, objects)) = &taken.complete {
                    info!(objects, "{kind} are known");
                }
                debug!(
                    different = taken.different,
                    "heard of {}",
                    told.kind.short()
                );
                kinds.are_complete()
            }
            (SourceState::Files { .. } | SourceState::Cluster { .. }, _) => false,
        }
    }

    /// What is missing until everything that the source says is known.
    pub(super) fn missing(&self) -> Vec<String> {
        match self {
            SourceState::Files {
                objects, troubles, ..
            } => {
                let mut missing = troubles.clone();
                for path in objects.unreadable() {
                    missing.push(format!("{} has parts that cannot be read", shown(path)));
                }
                missing
            }
            SourceState::Cluster { kinds, .. } => kinds.missing(),
        }
    }

    /// How many errors the objects have.
    pub(super) fn errors(&self) -> usize {
        match self {
            SourceState::Files { objects, .. } => objects.errors(),
            SourceState::Cluster { kinds, .. } => kinds.errors(),
        }
    }

    /// How many objects of a cluster cannot be read.
    pub(super) fn unread_objects(&self) -> usize {
        match self {
            SourceState::Files { .. } => 0,
            SourceState::Cluster { kinds, .. } => kinds.unread_objects(),
        }
    }

    /// The objects of a cluster that cannot be read, in words.
    pub(super) fn unreadable(&self) -> Vec<String> {
        match self {
            SourceState::Files { .. } => Vec::new(),
            SourceState::Cluster { kinds, .. } => kinds.unreadable(),
        }
    }

    /// How many NetworkPolicies are gone and still enforced.
    pub(super) fn outliving_policies(&self) -> usize {
        match self {
            SourceState::Files { .. } => 0,
            SourceState::Cluster { kinds, .. } => kinds.outliving(),
        }
    }

    /// How the reading of each kind goes.
    pub(super) fn following(&self) -> Vec<KindStatus> {
        match self {
            SourceState::Files { .. } => Vec::new(),
            SourceState::Cluster { kinds, .. } => kinds.following().collect(),
        }
    }
}

fn watch_files(mut files: Files, sender: &Sender<Message>) {
    let all: Vec<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
    let mut difference = FileChanges {
        changed: all,
        ..FileChanges::default()
    };
    loop {
        let troubles = files.troubles().iter().map(trouble).collect();
        let told = SourceUpdate::Files {
            files: files.iter().cloned().collect(),
            difference,
            troubles,
        };
        if sender.send(Message::Source(told)).is_err() {
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
