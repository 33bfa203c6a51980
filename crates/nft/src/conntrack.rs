//! Connection tracking: counts entries, and clears ct marks.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;

use nix::errno::Errno;

use crate::error::{Error, Refusal};
use crate::faults::Faults;
use crate::netlink::{self, Attributes, Put, Received};
use crate::node::MarkBits;
use crate::socket::{Channel, Refused};

/// The subsystem of ctnetlink, followed by its message types.
const SUBSYSTEM: u16 = 1;
const NEW: u16 = SUBSYSTEM << 8;
const GET: u16 = SUBSYSTEM << 8 | 1;
const DELETE: u16 = SUBSYSTEM << 8 | 2;
const GET_STATISTICS: u16 = SUBSYSTEM << 8 | 5;

/// Attributes of the statistics.
mod statistics {
    pub(super) const ENTRIES: u16 = 1;
    pub(super) const MOST_ENTRIES: u16 = 2;
}

/// Attributes of an entry.
mod entry {
    pub(super) const ORIGINAL: u16 = 1;
    pub(super) const REPLY: u16 = 2;
    pub(super) const MARK: u16 = 8;
    pub(super) const ZONE: u16 = 18;
    pub(super) const MARK_MASK: u16 = 21;
}

/// Attributes of a tuple.
mod tuple {
    /// The source and the destination address.
    pub(super) const IP: u16 = 1;
}

/// `AF_UNSPEC`: entries of both families.
const ANY: u8 = 0;

/// The bytes of requests that are collected before they are sent.
// Bounds memory, since a dump may have a million entries to clear. One send also fits into the
// default send buffer of about 208 KB, without privileges.
const AT_ONCE: usize = 32 << 10;

/// A client of connection tracking in one network namespace.
#[derive(Debug)]
pub struct Conntrack {
    channel: Channel,
    /// Changes marks while `channel` is in the middle of a dump.
    // A socket of its own: on `channel` the answers would be between the pieces of the dump.
    changes: Channel,
}

/// The counts of one pass over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClearedMarks {
    /// The number of connections that were dumped.
    pub seen: usize,
    /// The number of those whose Palisade bits were cleared.
    pub cleared: usize,
    /// The number of those that ended before their bits were cleared.
    pub ended: usize,
}

impl Conntrack {
    /// Opens two sockets in the network namespace of the calling thread.
    pub fn open() -> Result<Conntrack, Error> {
        Ok(Conntrack {
            channel: Channel::open()?,
            changes: Channel::open()?,
        })
    }

    /// Injects faults into system calls, for tests: `reading` into those of dumps and requests,
    /// `changing` into those that change marks during a dump.
    pub fn with_faults(mut self, reading: Box<dyn Faults>, changing: Box<dyn Faults>) -> Conntrack {
        self.channel.inject(reading);
        self.changes.inject(changing);
        self
    }

    /// Deletes all entries of the network namespace.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.request("delete all connections", DELETE, |_| ())
    }

    /// Returns the number of connections in the network namespace.
    pub fn count(&mut self) -> Result<u32, Error> {
        self.statistic(statistics::ENTRIES)?.ok_or(Error::NoAnswer)
    }

    /// Returns the largest number of connections: beyond it the kernel drops every packet that
    /// would open one more. `None`: the kernel is too old to report it.
    pub fn max(&mut self) -> Result<Option<u32>, Error> {
        self.statistic(statistics::MOST_ENTRIES)
    }

    /// Clears the Palisade bits of all marks with a stale generation, whose numbers can then be
    /// reused. The next packet evaluates such a connection again, as it would have anyway. The
    /// other bits of the marks stay.
    ///
    /// Dumps the connections once, in pieces, and changes those of a piece before the next one is
    /// read.
    pub fn clear_marks(
        &mut self,
        bits: MarkBits,
        stale: &RangeInclusive<u16>,
    ) -> Result<ClearedMarks, Error> {
        // The kernel filters a dump by mask and value. The leading bits that all stale numbers
        // share are such a filter; one bit is enough to leave out half of all numbers. A connection
        // that is evaluated between its dump and its change loses the current mark, and is
        // evaluated once more.
        let common = bits.common(*stale.start(), *stale.end());
        self.clear_where(bits, common, |_, number| stale.contains(&number))
    }

    /// Counts connections by the number of the generation that evaluated them; 0 counts the rest.
    pub fn generations(&mut self, bits: MarkBits) -> Result<BTreeMap<u16, usize>, Error> {
        let mut counts = BTreeMap::new();
        self.walk((0, 0), |_, message| {
            let number = bits.number_in(mark(message.attributes()));
            *counts.entry(number).or_default() += 1;
        })?;
        Ok(counts)
    }

    /// Clears the Palisade bits of all connections with one of the addresses as source or
    /// destination, before or after translation. Their next packet evaluates them again.
    pub fn clear_addresses(
        &mut self,
        bits: MarkBits,
        addresses: &BTreeSet<IpAddr>,
    ) -> Result<ClearedMarks, Error> {
        self.clear_where(bits, (0, 0), |entry, _| has_end(entry, addresses))
    }

    /// Dumps the connections whose mark has a value under a mask, and clears the Palisade bits of
    /// those that `is_meant` accepts.
    fn clear_where(
        &mut self,
        bits: MarkBits,
        filter: (u32, u32),
        mut is_meant: impl FnMut(Attributes<'_>, u16) -> bool,
    ) -> Result<ClearedMarks, Error> {
        let mut all = ClearedMarks::default();
        let mut pending = PendingRequests::default();
        let mut outcome = Ok(());
        self.walk(filter, |changes, message| {
            all.seen += 1;
            let attributes = message.attributes();
            let mark = mark(attributes) & bits.mask();
            // The dump goes on after a failed request: while pieces are unread, the kernel refuses
            // the next dump (EBUSY). A mark without Palisade's bits needs no request.
            if outcome.is_ok() && mark != 0 && is_meant(attributes, bits.number_in(mark)) {
                pending.clear_bits(message, bits.mask());
                if pending.bytes.len() >= AT_ONCE {
                    outcome = pending.send(changes, &mut all);
                }
            }
        })?;
        outcome?;
        pending.send(&mut self.changes, &mut all)?;
        Ok(all)
    }

    /// Dumps the connections whose mark has a value under a mask.
    fn walk(
        &mut self,
        (mask, value): (u32, u32),
        mut take: impl FnMut(&mut Channel, &Received<'_>),
    ) -> Result<(), Error> {
        let Conntrack { channel, changes } = self;
        let mut request = Vec::new();
        netlink::message(&mut request, GET, 0, ANY, |bytes| {
            if mask != 0 {
                bytes.number(entry::MARK, value);
                bytes.number(entry::MARK_MASK, mask);
            }
        });
        let dumped = channel.dump(&request, |_: &mut (), message| take(changes, message))?;
        dumped.map_err(|refused| refusal("dump connections", refused))
    }

    fn statistic(&mut self, kind: u16) -> Result<Option<u32>, Error> {
        let mut count = None;
        self.request("count connections", GET_STATISTICS, |message| {
            count = message.attributes().find(kind).and_then(netlink::number);
        })?;
        Ok(count)
    }

    fn request(
        &mut self,
        action: &str,
        kind: u16,
        take: impl FnMut(&Received<'_>),
    ) -> Result<(), Error> {
        let mut message = Vec::new();
        netlink::message(&mut message, kind, 0, ANY, |_| ());
        let answer = self.channel.request(message, take)?;
        answer.map_err(|refused| refusal(action, refused))
    }
}

/// Reports whether a connection has one of the addresses, before or after translation.
pub(crate) fn has_end(entry: Attributes<'_>, addresses: &BTreeSet<IpAddr>) -> bool {
    [entry::ORIGINAL, entry::REPLY].into_iter().any(|tuple| {
        let found = entry.inside(tuple).inside(tuple::IP);
        let mut found = found.filter_map(|(_, value)| address(value));
        found.any(|it| addresses.contains(&it))
    })
}

/// Requests that are sent together. They are no transaction: the kernel carries out each one by
/// itself.
#[derive(Debug, Default)]
pub(crate) struct PendingRequests {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: usize,
}

impl PendingRequests {
    /// Adds the request that clears some bits of the mark of a dumped connection.
    pub(crate) fn clear_bits(&mut self, dumped: &Received<'_>, mask: u32) {
        let attributes = dumped.attributes();
        let family = dumped.body.first().copied().unwrap_or(ANY);
        let Some(tuple) = attributes.find(entry::ORIGINAL) else {
            return;
        };
        self.count += 1;
        // Without `NLM_F_CREATE`: an entry that has ended since must not come back. The kernel
        // finds the entry by its original tuple and zone, since zones may share tuples. It computes
        // the mark as `(old & !mask) ^ value`.
        netlink::message(&mut self.bytes, NEW, 0, family, |bytes| {
            bytes.nest(entry::ORIGINAL, |bytes| bytes.extend_from_slice(tuple));
            if let Some(zone) = attributes.find(entry::ZONE) {
                bytes.bytes(entry::ZONE, zone);
            }
            bytes.number(entry::MARK, 0);
            bytes.number(entry::MARK_MASK, mask);
        });
    }

    fn send(&mut self, channel: &mut Channel, all: &mut ClearedMarks) -> Result<(), Error> {
        let count = std::mem::take(&mut self.count);
        if count == 0 {
            return Ok(());
        }
        // ENOENT is no failure: the connection ended between the dump and the change.
        let refused = channel.each(&mut self.bytes, count)?;
        self.bytes.clear();
        let ended = refused.len();
        let other = refused.into_iter().find(|it| it.errno != Errno::ENOENT);
        if let Some(refused) = other {
            return Err(refusal("change the mark of a connection", refused));
        }
        all.ended += ended;
        all.cleared += count.saturating_sub(ended);
        Ok(())
    }
}

/// Returns the mark of a connection, or 0 if the entry has none.
pub(crate) fn mark(entry: Attributes<'_>) -> u32 {
    let mark = entry.find(entry::MARK).and_then(netlink::number);
    mark.unwrap_or(0)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

fn refusal(action: &str, refused: Refused) -> Error {
    Error::Refused(Refusal {
        action: action.to_owned(),
        errno: refused.errno,
        words: refused.words,
        is_whole: true,
        operation: None,
    })
}

#[cfg(test)]
mod tests {
    use super::{NEW, PendingRequests, entry};
    use crate::netlink::{self, Messages, Put as _};

    #[test]
    fn a_change_is_complete_for_every_dumped_entry() {
        let mut dumped = Vec::new();
        netlink::message(&mut dumped, NEW, 0, 2, |bytes| {
            bytes.bytes(entry::ORIGINAL, &[1, 2, 3, 4, 5]);
            bytes.bytes(entry::ZONE, &[0, 7]);
        });
        let mut pending = PendingRequests::default();
        for message in Messages(&dumped).chain(Messages(&dumped)) {
            pending.clear_bits(&message, 0xff);
        }
        let changes: Vec<_> = Messages(&pending.bytes).collect();
        assert_eq!((changes.len(), pending.count), (2, 2));
        for change in changes {
            let attributes = change.attributes();
            assert_eq!(attributes.find(entry::ORIGINAL), Some(&[1, 2, 3, 4, 5][..]));
            assert_eq!(attributes.find(entry::ZONE), Some(&[0, 7][..]));
            let mask = attributes.find(entry::MARK_MASK).and_then(netlink::number);
            assert_eq!(mask, Some(0xff));
        }
    }
}
