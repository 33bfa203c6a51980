//! The threads that receive: signals, HTTP requests and notices of foreign changes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use palisade_kube::watch::WatchMessage;
use tokio::signal::unix::{SignalKind, signal};

use super::Error;
use super::answer::answer;
use super::source::FilesUpdate;
use crate::backend::{Notice, Watcher};
use crate::command::TaskOutcome;
use crate::http::Health;

/// A message to the main loop.
pub(super) enum Message {
    /// An update of the directory.
    Files(FilesUpdate),
    /// An event of the cluster.
    Watch(WatchMessage),
    /// Another program changed Palisade's rules.
    Notice(Notice),
    /// Notices of foreign changes cannot be received, for this reason.
    NotificationsFailed(String),
    /// A background task has ended.
    TaskFinished(TaskOutcome),
    /// The source cannot be watched, for this reason.
    SourceLost(String),
    /// Reinstall the whole table.
    Reload,
    /// End, and leave the table as it is. The text is the signal.
    End(&'static str),
}

pub(super) fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let action = "start a thread";
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(work);
    let failed = |source| Error::Process { action, source };
    spawned.map(drop).map_err(failed)
}

/// Starts the thread that waits for signals and serves HTTP.
pub(super) fn attend(
    address: Option<SocketAddr>,
    health: &Arc<Health>,
    sender: Sender<Message>,
) -> Result<(), Error> {
    let action = "wait for signals";
    let process = |source| Error::Process { action, source };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(process)?;
    // Signals are registered before the thread starts: none is lost from here on.
    let guard = runtime.enter();
    let mut terminate = signal(SignalKind::terminate()).map_err(process)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(process)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(process)?;
    if let Some(address) = address {
        runtime.spawn(answer(address, Arc::clone(health)));
    }
    drop(guard);
    spawn("signals", move || {
        runtime.block_on(async {
            loop {
                let message = tokio::select! {
                    _ = terminate.recv() => Message::End("SIGTERM"),
                    _ = interrupt.recv() => Message::End("SIGINT"),
                    _ = hangup.recv() => Message::Reload,
                };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
    })
}

pub(super) fn watch_for_drift(mut watcher: Box<dyn Watcher>, sender: &Sender<Message>) {
    loop {
        match watcher.next(Duration::from_secs(60)) {
            Ok(None) => {}
            Ok(Some(notice)) => {
                if sender.send(Message::Notice(notice)).is_err() {
                    return;
                }
            }
            Err(error) => {
                // Until notices work again, periodic audits find foreign changes. The pause keeps a
                // broken socket from filling the log.
                let _ = sender.send(Message::NotificationsFailed(error.to_string()));
                thread::sleep(Duration::from_secs(1));
            }
        }
    }
}
