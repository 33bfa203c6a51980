//! Hearing of what others do to our tables.
//!
//! Where tables have owners nobody else can change them while we live. On older kernels everyone with the
//! right can, by mistake or not. The kernel tells whoever listens of every change, and who made it; what was
//! changed is then found by an [audit](crate::Kernel::audit).

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::encode::abi::{self, kind};
use crate::error::Error;
use crate::faults::Faults;
use crate::load::is_ours;
use crate::netlink::{self, Received};
use crate::socket::Channel;

/// Something that happened to our tables, and was not our doing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// Something in a table was added, changed or deleted.
    Changed {
        /// The table.
        table: String,
    },
    /// A table was deleted.
    Deleted {
        /// The table.
        table: String,
    },
    /// There were more changes than room to tell of them, ours among them: anything may have happened.
    Lost,
}

/// Listens to changes of nftables in one network namespace. It can be sent to a thread of its own, and waited
/// for together with other files.
///
/// While somebody listens, the kernel writes a message for everything that a transaction changes, ours too.
/// Replacing a large table may be more than there is room for, which is said as [`Notice::Lost`].
#[derive(Debug)]
pub struct Watcher {
    channel: Channel,
    ours: Vec<u32>,
    waiting: VecDeque<Notice>,
}

/// The room for messages that nobody has read yet, as far as we are given it.
const ROOM: usize = 8 << 20;

/// How many notices are kept. There are few tables, and equal notices are one.
const MOST_WAITING: usize = 64;

impl Watcher {
    /// Begins to listen, in the network namespace of the calling thread.
    pub fn open() -> Result<Watcher, Error> {
        let channel = Channel::open()?;
        channel.subscribe(abi::CHANGES, ROOM)?;
        Ok(Watcher {
            channel,
            ours: Vec::new(),
            waiting: VecDeque::new(),
        })
    }

    /// Makes calls of the system go wrong, for tests.
    pub fn with_faults(mut self, faults: Box<dyn Faults>) -> Watcher {
        self.channel.inject(faults);
        self
    }

    /// Takes what a socket does for our own doing: that of a [`Kernel`](crate::Kernel::port).
    pub fn ignore(&mut self, port: u32) {
        if !self.ours.contains(&port) {
            self.ours.push(port);
        }
    }

    /// The next notice, if there is one within the time.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Notice>, Error> {
        let end = Instant::now().checked_add(timeout);
        let mut left = timeout;
        while self.waiting.is_empty() {
            let is_silent = self.listen(left)?;
            let now = Instant::now();
            left = end.map_or(timeout, |end| end.saturating_duration_since(now));
            if is_silent && left.is_zero() {
                break;
            }
        }
        Ok(self.waiting.pop_front())
    }

    /// Takes what comes next. Says whether nothing came in the time.
    fn listen(&mut self, timeout: Duration) -> Result<bool, Error> {
        let Watcher {
            channel,
            ours,
            waiting,
        } = self;
        let mut is_silent = true;
        let is_lost = channel.listen(timeout, |message| {
            is_silent = false;
            note(ours, waiting, &message);
        })?;
        if is_lost {
            waiting.push_back(Notice::Lost);
        }
        Ok(is_silent)
    }
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// Keeps what a message says, unless it waits already.
pub(crate) fn note(ours: &[u32], waiting: &mut VecDeque<Notice>, message: &Received<'_>) {
    let notice = notice(ours, message).filter(|notice| !waiting.contains(notice));
    waiting.extend(notice.filter(|_| waiting.len() < MOST_WAITING));
}

/// What a message says, if it is about a table of ours and somebody else's doing.
fn notice(ours: &[u32], message: &Received<'_>) -> Option<Notice> {
    /// Everything that is in a table says its name first, as tables do.
    const TABLE: u16 = abi::table::NAME;
    let is_inet = message.body.first() == Some(&abi::INET);
    let is_nftables = message.kind >> 8 == abi::SUBSYSTEM;
    if !is_inet || !is_nftables || ours.contains(&message.port) {
        return None;
    }
    let table = netlink::text(message.attributes().find(TABLE)?);
    let notice = match message.kind {
        kind::DELETE_TABLE => |table| Notice::Deleted { table },
        _ => |table| Notice::Changed { table },
    };
    is_ours(&table).then(|| notice(table))
}
