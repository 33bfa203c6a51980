//! The threads that listen: to signals and those who ask, and to the kernel.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use palisade_nft::watch::{Notice, Watcher};
use tokio::signal::unix::{SignalKind, signal};

use super::Error;
use super::answer::answer;
use super::source::SourceUpdate;
use crate::command::TaskOutcome;
use crate::http::Health;

/// What the threads that listen say.
pub(super) enum Message {
    /// The source says something.
    Source(SourceUpdate),
    /// Something happened to our tables.
    Notice(Notice),
    /// Nobody listens to the kernel any more, for this reason.
    Deaf(String),
    /// A task in the background has ended.
    TaskFinished(TaskOutcome),
    /// The source cannot be watched any more.
    SourceLost(String),
    /// Read everything again, and put everything in place once more.
    Reload,
    /// End, and leave everything as it is.
    End(&'static str),
}

pub(super) fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let action = "start a thread";
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(work);
    let failed = |source| Error::Process { action, source };
    spawned.map(drop).map_err(failed)
}

/// Waits for signals, and answers those who ask.
pub(super) fn attend(
    address: Option<SocketAddr>,
    board: &Arc<Health>,
    sender: Sender<Message>,
) -> Result<(), Error> {
    let action = "wait for signals";
    let process = |source| Error::Process { action, source };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(process)?;
    let inside = runtime.enter();
    let mut terminate = signal(SignalKind::terminate()).map_err(process)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(process)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(process)?;
    if let Some(address) = address {
        runtime.spawn(answer(address, Arc::clone(board)));
    }
    drop(inside);
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

pub(super) fn listen_to_kernel(mut watcher: Watcher, sender: &Sender<Message>) {
    loop {
        match watcher.next(Duration::from_secs(60)) {
            Ok(None) => {}
            Ok(Some(notice)) => {
                if sender.send(Message::Notice(notice)).is_err() {
                    return;
                }
            }
            Err(error) => {
                // Without notices, what others do is found by comparing from time to time.
                let _ = sender.send(Message::Deaf(error.to_string()));
                thread::sleep(Duration::from_secs(1));
            }
        }
    }
}
