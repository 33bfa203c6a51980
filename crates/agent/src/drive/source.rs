//! Where objects come from: a directory, or a cluster. What either says goes to the agent's one loop.

use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, SystemTime};

use palisade_kube::stream::{self, Room};
use palisade_kube::{Resource, Server};
use palisade_watch::{Difference, File, Files, Happened, Options, Root, Stopper, Trouble};
use tokio::task::LocalSet;
use tracing::{debug, error, info};

use super::listen::{Message, spawn};
use super::log::tell;
use super::{Error, Source};
use crate::agent::Agent;
use crate::cluster::{Following, Kinds};
use crate::files::{Objects, shown};

/// What a source says.
pub(super) enum Told {
    /// The files, what is different, and what cannot be read.
    Files {
        files: Vec<File>,
        difference: Difference,
        troubles: Vec<String>,
    },
    /// News of a kind of a cluster's objects.
    Cluster(stream::Told),
}

/// What is known of the source.
pub(super) enum Known {
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
    },
}

/// Begins to listen to a source, in threads of its own.
pub(super) fn open(source: &Source, sender: Sender<Message>) -> Result<Known, Error> {
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
            Ok(Known::Files {
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
            let known = Known::Cluster {
                url: server.url().to_owned(),
                kinds: Kinds::new(&resources),
            };
            spawn("cluster", move || {
                let all = LocalSet::new();
                follow_all(&all, &server, &resources, &sender);
                runtime.block_on(all);
            })?;
            Ok(known)
        }
    }
}

fn follow_all(all: &LocalSet, server: &Server, resources: &[Resource], sender: &Sender<Message>) {
    let room = Room::default();
    // Agents of many nodes that start at once must not ask at once for ever.
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = clock.map_or(0, |it| u64::from(it.subsec_nanos())) << 32;
    let seed = seed | u64::from(std::process::id());
    for (place, resource) in (0..).zip(resources) {
        let sender = sender.clone();
        let tell = move |told| sender.send(Message::Source(Told::Cluster(told))).is_ok();
        let room = room.clone();
        all.spawn_local(stream::follow(
            server.clone(),
            *resource,
            room,
            seed.wrapping_add(place << 48),
            tell,
        ));
    }
}

impl Known {
    /// Where objects come from, in words.
    pub(super) fn name(&self) -> String {
        match self {
            Known::Files { path, .. } => shown(path),
            Known::Cluster { url, .. } => url.clone(),
        }
    }

    pub(super) fn stop(&self) {
        match self {
            Known::Files { stopper, .. } => stopper.stop(),
            // Nothing waits for the thread.
            Known::Cluster { .. } => {}
        }
    }

    /// Takes in what was said, and tells the agent. Whether everything was told once.
    pub(super) fn take(&mut self, now: Duration, told: &Told, agent: &mut Agent) -> bool {
        match (self, told) {
            (
                Known::Files {
                    objects,
                    troubles: before,
                    ..
                },
                Told::Files {
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
                    tell(&shown(path), faults);
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
            (Known::Cluster { kinds, .. }, Told::Cluster(told)) => {
                let taken = kinds.take(now, told.kind, &told.news, agent);
                for (object, faults) in &taken.faults {
                    tell(object, faults);
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
            (Known::Files { .. } | Known::Cluster { .. }, _) => false,
        }
    }

    /// What is missing until everything that the source says is known.
    pub(super) fn missing(&self) -> Vec<String> {
        match self {
            Known::Files {
                objects, troubles, ..
            } => {
                let mut missing = troubles.clone();
                for path in objects.unreadable() {
                    missing.push(format!("{} has parts that cannot be read", shown(path)));
                }
                missing
            }
            Known::Cluster { kinds, .. } => kinds.missing(),
        }
    }

    /// How many errors the objects have.
    pub(super) fn errors(&self) -> usize {
        match self {
            Known::Files { objects, .. } => objects.errors(),
            Known::Cluster { kinds, .. } => kinds.errors(),
        }
    }

    /// How the reading of each kind goes.
    pub(super) fn following(&self) -> Vec<Following> {
        match self {
            Known::Files { .. } => Vec::new(),
            Known::Cluster { kinds, .. } => kinds.following().collect(),
        }
    }
}

fn watch_files(mut files: Files, sender: &Sender<Message>) {
    let all: Vec<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
    let mut difference = Difference {
        changed: all,
        ..Difference::default()
    };
    loop {
        let troubles = files.troubles().iter().map(trouble).collect();
        let told = Told::Files {
            files: files.iter().cloned().collect(),
            difference,
            troubles,
        };
        if sender.send(Message::Source(told)).is_err() {
            return;
        }
        difference = loop {
            match files.wait(None) {
                Ok(Happened::Changed(difference)) => break difference,
                Ok(Happened::Nothing) => {}
                Ok(Happened::Stopped) => return,
                Err(error) => {
                    let _ = sender.send(Message::SourceLost(error.to_string()));
                    thread::sleep(Duration::from_secs(1));
                }
            }
        };
    }
}

fn trouble(trouble: &Trouble) -> String {
    format!("cannot read {}: {}", shown(&trouble.path), trouble.error)
}
