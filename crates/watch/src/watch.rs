//! Notifications of changes of files, by inotify.
//!
//! Directories are watched, never files: editors and tools replace a file by a new one, and a mount
//! of a ConfigMap replaces a directory behind a link. Every component of a path is watched in its
//! directory, so a changed link is noticed wherever it is.

mod watch_set;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use self::watch_set::{STRUCTURE, WatchSet};
use crate::{AccessError, Root};

/// A notification of a [`Watch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Nothing happened within the time.
    Nothing,
    /// Changed paths, with the root as the user named it: files, or directories with everything in
    /// them.
    Changed(BTreeSet<PathBuf>),
    /// Anything may have changed: the kernel's queue overflowed, or the time for a complete check
    /// has come.
    All,
    /// A [`Stopper`] was used. The state is final.
    Stopped,
}

/// Watches files and directories.
#[derive(Debug)]
pub struct Watch {
    roots: Vec<Root>,
    /// `None`: the kernel has no instance left, and everything is checked often.
    inotify: Option<Inotify>,
    epoll: Epoll,
    stop: Arc<EventFd>,
    armed: WatchSet,
    look_every: Duration,
    looked: Instant,
}

/// Ends the waiting of a [`Watch`] in another thread.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<EventFd>);

impl Stopper {
    /// Stops the watch: from now on it returns [`Notice::Stopped`].
    pub fn stop(&self) {
        // Fails only if the counter is full, and then it is not zero either.
        let _ = self.0.write(1);
    }
}

/// The interval of complete checks without any notifications.
const BLIND: Duration = Duration::from_secs(1);

const STOP: u64 = 0;
const FILES: u64 = 1;

impl Watch {
    /// Watches some roots, which need not exist. [`Notice::All`] comes at least every `look_every`:
    /// the kernel does not report changes by other machines on a network file system.
    pub fn new(roots: Vec<Root>, look_every: Duration) -> io::Result<Watch> {
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&stop, EpollEvent::new(EpollFlags::EPOLLIN, STOP))?;
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK);
        let mut armed = WatchSet::default();
        let inotify = match inotify {
            Ok(inotify) => {
                epoll.add(&inotify, EpollEvent::new(EpollFlags::EPOLLIN, FILES))?;
                armed = WatchSet::arm(&inotify, &roots, &armed);
                Some(inotify)
            }
            Err(errno) => {
                armed.troubles.push(AccessError {
                    path: PathBuf::from("/proc/sys/fs/inotify/max_user_instances"),
                    error: errno.into(),
                });
                None
            }
        };
        let look_every = match inotify {
            Some(_) => look_every,
            None => look_every.min(BLIND),
        };
        Ok(Watch {
            roots,
            inotify,
            epoll,
            stop: Arc::new(stop),
            armed,
            look_every,
            looked: Instant::now(),
        })
    }

    /// Returns a handle that ends the waiting.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// Returns the paths without notifications, which are checked periodically.
    pub fn troubles(&self) -> &[AccessError] {
        &self.armed.troubles
    }

    /// Waits for a change, without a timeout for ever.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Notice> {
        let started = Instant::now();
        loop {
            let left = timeout.map(|it| it.saturating_sub(started.elapsed()));
            let to_look = self.look_every.saturating_sub(self.looked.elapsed());
            let is_stopped = self.sleep(left.map_or(to_look, |it| it.min(to_look)))?;
            if is_stopped {
                return Ok(Notice::Stopped);
            }
            let notice = self.gather()?;
            if self.looked.elapsed() >= self.look_every {
                self.arm();
                return Ok(Notice::All);
            }
            if notice != Notice::Nothing {
                return Ok(notice);
            }
            if timeout.is_some_and(|it| started.elapsed() >= it) {
                return Ok(Notice::Nothing);
            }
        }
    }

    /// Sleeps until something can be read. Returns whether the watch was stopped.
    fn sleep(&self, time: Duration) -> io::Result<bool> {
        // Rounded up to a millisecond: the rest of one must not become a busy loop.
        let time = time.saturating_add(Duration::from_micros(999));
        let time = u16::try_from(time.as_millis()).unwrap_or(u16::MAX);
        let mut ready = [EpollEvent::empty(); 2];
        let n_ready = match self.epoll.wait(&mut ready, EpollTimeout::from(time)) {
            Ok(n_ready) => n_ready,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let mut ready = ready.iter().take(n_ready);
        Ok(ready.any(|event| event.data() == STOP))
    }

    /// Reads all events that the kernel has queued.
    fn gather(&mut self) -> io::Result<Notice> {
        let Some(inotify) = &self.inotify else {
            return Ok(Notice::Nothing);
        };
        let mut changed = BTreeSet::new();
        let mut is_all = false;
        let mut is_stale = false;
        // Bounded: files may be written faster than their events are read.
        for _ in 0..MOST_READS {
            let events = match inotify.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            for event in events {
                if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                    is_all = true;
                    continue;
                }
                let touched = self.armed.touched(&event);
                is_stale |= !touched.is_empty() && event.mask.intersects(STRUCTURE);
                changed.extend(touched);
            }
        }
        // New directories and links must be watched before their contents are read.
        if is_all || is_stale {
            self.arm();
        }
        Ok(if is_all {
            Notice::All
        } else if changed.is_empty() {
            Notice::Nothing
        } else {
            Notice::Changed(changed)
        })
    }

    /// Watches the current state of the roots.
    fn arm(&mut self) {
        if let Some(inotify) = &self.inotify {
            self.armed = WatchSet::arm(inotify, &self.roots, &self.armed);
        }
        self.looked = Instant::now();
    }
}

/// The number of reads of the kernel's queue before the changes are returned.
const MOST_READS: usize = 4_096;

/// A file descriptor that is readable when [`wait`](Watch::wait) has a result, apart from periodic
/// checks.
impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}
