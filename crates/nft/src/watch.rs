//! Watches Palisade's tables for changes by other programs.
//!
//! Where tables have owners, no other program can change them while the owner lives. On older
//! kernels every program with the right can. The kernel notifies subscribers of every change, with
//! the port of the socket that made it. An [audit](crate::Kernel::audit) then finds what was
//! changed.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::encode::abi::{self, kind};
use crate::error::Error;
use crate::faults::Faults;
use crate::load::is_ours;
use crate::netlink::{self, Received};
use crate::socket::Channel;

/// A change of Palisade's tables by another program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableNotice {
    /// An object of a table was added, changed or deleted.
    Changed {
        /// The table.
        table: String,
    },
    /// A table was deleted.
    Deleted {
        /// The table.
        table: String,
    },
    /// Notifications were lost, perhaps only those of Palisade's own changes: any change is
    /// possible.
    Lost,
}

/// Receives the nftables notifications of one network namespace. It can be moved to another thread,
/// and polled together with other files.
///
/// While any socket is subscribed, the kernel writes a message for every change of a transaction,
/// also of Palisade's own. The replacement of a large table may exceed the buffer, which gives
/// [`TableNotice::Lost`].
#[derive(Debug)]
pub struct TableWatcher {
    channel: Channel,
    ours: Vec<u32>,
    waiting: VecDeque<TableNotice>,
}

/// The receive buffer for unread notifications, as far as the kernel allows it.
const ROOM: usize = 8 << 20;

/// The number of notices that are kept. There are few tables, and equal notices are one.
const MOST_WAITING: usize = 64;

impl TableWatcher {
    /// Opens a socket in the network namespace of the calling thread, and subscribes it.
    pub fn open() -> Result<TableWatcher, Error> {
        let channel = Channel::open()?;
        channel.subscribe(abi::CHANGES, ROOM)?;
        Ok(TableWatcher {
            channel,
            ours: Vec::new(),
            waiting: VecDeque::new(),
        })
    }

    /// Injects faults into system calls, for tests.
    pub fn with_faults(mut self, faults: Box<dyn Faults>) -> TableWatcher {
        self.channel.inject(faults);
        self
    }

    /// Ignores the changes of a socket: that of a [`Kernel`](crate::Kernel::port).
    pub fn ignore(&mut self, port: u32) {
        if !self.ours.contains(&port) {
            self.ours.push(port);
        }
    }

    /// Returns the next notice, if there is one within the timeout.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<TableNotice>, Error> {
        let end = Instant::now().checked_add(timeout);
        let mut left = timeout;
        while self.waiting.is_empty() {
            let is_silent = self.listen(left)?;
            let now = Instant::now();
            left = end.map_or(timeout, |end| end.saturating_duration_since(now));
            // Messages that arrived in time are read to the last, however long that takes: they may
            // concern other tables.
            if is_silent && left.is_zero() {
                break;
            }
        }
        Ok(self.waiting.pop_front())
    }

    /// Receives one message. Returns whether there was none within the timeout.
    fn listen(&mut self, timeout: Duration) -> Result<bool, Error> {
        let TableWatcher {
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
            waiting.push_back(TableNotice::Lost);
        }
        Ok(is_silent)
    }
}

impl AsFd for TableWatcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// Queues the notice of a message, unless an equal one is queued.
pub(crate) fn note(ours: &[u32], waiting: &mut VecDeque<TableNotice>, message: &Received<'_>) {
    let notice = notice(ours, message).filter(|notice| !waiting.contains(notice));
    waiting.extend(notice.filter(|_| waiting.len() < MOST_WAITING));
}

/// Returns the notice of a message, if another program changed one of Palisade's tables.
fn notice(ours: &[u32], message: &Received<'_>) -> Option<TableNotice> {
    /// The attribute with the name of the table. It has the same number in messages about all
    /// objects.
    const TABLE: u16 = abi::table::NAME;
    let is_inet = message.body.first() == Some(&abi::INET);
    let is_nftables = message.kind >> 8 == abi::SUBSYSTEM;
    if !is_inet || !is_nftables || ours.contains(&message.port) {
        return None;
    }
    let table = netlink::text(message.attributes().find(TABLE)?);
    let notice = match message.kind {
        kind::DELETE_TABLE => |table| TableNotice::Deleted { table },
        _ => |table| TableNotice::Changed { table },
    };
    is_ours(&table).then(|| notice(table))
}
