//! Noticing that files change, by inotify.
//!
//! Directories are watched, never files: editors and tools put a new file in the place of the old one, and a
//! mount of a ConfigMap puts a new directory behind a link. Every name on the way to a file is watched in
//! its directory, so that a link that leads elsewhere is noticed wherever it stands.

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

/// What a [`Watch`] noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Nothing, until the time was over.
    Nothing,
    /// Something happened to these, which are named as the roots were: files, or directories with
    /// everything in them.
    Changed(BTreeSet<PathBuf>),
    /// Anything may have happened: the kernel could not keep up, or it is time to look at what it does
    /// not tell.
    All,
    /// A [`Stopper`] was used. It stays so.
    Stopped,
}

/// Notices what happens to files and directories.
#[derive(Debug)]
pub struct Watch {
    roots: Vec<Root>,
    /// Without it everything is looked at, and often.
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
    /// From now on the watch says [`Notice::Stopped`].
    pub fn stop(&self) {
        // It fails only if the counter is full, and then it is not zero either.
        let _ = self.0.write(1);
    }
}

/// How often everything is looked at where the kernel gives no notices at all.
const BLIND: Duration = Duration::from_secs(1);

const STOP: u64 = 0;
const FILES: u64 = 1;

impl Watch {
    /// Watches these. Nothing has to exist yet. [`Notice::All`] comes at least every `look_every`, because
    /// the kernel does not tell what other machines do to a network's file system.
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

    /// What ends the waiting.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// What the kernel gives no notices of; it is looked at from time to time.
    pub fn troubles(&self) -> &[AccessError] {
        &self.armed.troubles
    }

    /// Waits until something happens, for a time or, without one, for ever.
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

    /// Sleeps until there is something to read, and says whether it was stopped.
    fn sleep(&self, time: Duration) -> io::Result<bool> {
        // Up to the next millisecond, so that what is left of one is not spent in a busy loop.
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

    /// Everything that the kernel has told until now.
    fn gather(&mut self) -> io::Result<Notice> {
        let Some(inotify) = &self.inotify else {
            return Ok(Notice::Nothing);
        };
        let mut changed = BTreeSet::new();
        let mut is_all = false;
        let mut is_stale = false;
        // Bounded, because somebody may write faster than this reads.
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

    /// Watches what there is now.
    fn arm(&mut self) {
        if let Some(inotify) = &self.inotify {
            self.armed = WatchSet::arm(inotify, &self.roots, &self.armed);
        }
        self.looked = Instant::now();
    }
}

/// So many times the kernel's queue is read before what was found is told.
const MOST_READS: usize = 4_096;

/// A file descriptor that can be read from when [`wait`](Watch::wait) has something to say, apart from
/// looking at everything now and then.
impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}
