//! The kernel's table of connections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;

use nix::errno::Errno;

use crate::error::{Error, Refusal};
use crate::faults::Faults;
use crate::netlink::{self, Attributes, Put, Received};
use crate::node::MarkBits;
use crate::socket::{Channel, Refused};

/// The part of netfilter that tracks connections, and its messages.
const SUBSYSTEM: u16 = 1;
const NEW: u16 = SUBSYSTEM << 8;
const GET: u16 = SUBSYSTEM << 8 | 1;
const DELETE: u16 = SUBSYSTEM << 8 | 2;
const GET_STATISTICS: u16 = SUBSYSTEM << 8 | 5;

/// What is told of all connections together.
mod statistics {
    pub(super) const ENTRIES: u16 = 1;
    pub(super) const MOST_ENTRIES: u16 = 2;
}

/// What is told of a connection.
mod entry {
    pub(super) const ORIGINAL: u16 = 1;
    pub(super) const REPLY: u16 = 2;
    pub(super) const MARK: u16 = 8;
    pub(super) const ZONE: u16 = 18;
    pub(super) const MARK_MASK: u16 = 21;
}

mod tuple {
    /// The addresses of both ends.
    pub(super) const ENDS: u16 = 1;
}

/// Any family of addresses.
const ANY: u8 = 0;

/// How many bytes of changes are sent at once.
const AT_ONCE: usize = 32 << 10;

/// Our side of the conversation with connection tracking, in one network namespace.
#[derive(Debug)]
pub struct Conntrack {
    channel: Channel,
    /// For what is changed while something else is being read.
    changes: Channel,
}

/// What became of old marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClearedMarks {
    /// How many connections were looked at.
    pub seen: usize,
    /// From how many our bits were taken.
    pub forgotten: usize,
    /// How many ended before that.
    pub ended: usize,
}

impl Conntrack {
    /// Opens its sockets in the network namespace of the calling thread.
    pub fn open() -> Result<Conntrack, Error> {
        Ok(Conntrack {
            channel: Channel::open()?,
            changes: Channel::open()?,
        })
    }

    /// Makes calls of the system go wrong, for tests. Those that read ask the first, those that change connections
    /// while they are read the second.
    pub fn with_faults(mut self, reading: Box<dyn Faults>, changing: Box<dyn Faults>) -> Conntrack {
        self.channel.inject(reading);
        self.changes.inject(changing);
        self
    }

    /// Forgets all connections of the network namespace.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.request("forget all connections", DELETE, |_| ())
    }

    /// How many connections the network namespace has.
    pub fn count(&mut self) -> Result<u32, Error> {
        self.statistic(statistics::ENTRIES)?.ok_or(Error::NoAnswer)
    }

    /// How many it may have: from then on the kernel drops whatever would open one more. `None`: the kernel is too
    /// old to say.
    pub fn max(&mut self) -> Result<Option<u32>, Error> {
        self.statistic(statistics::MOST_ENTRIES)
    }

    /// Takes our bits from the marks of connections whose generation is stale, by its number, so that the numbers can be
    /// used again. Such connections are judged by their next packet, as they would have been anyway. Whatever else
    /// is in the marks stays.
    ///
    /// Connections are read once, in pieces, and those of a piece are changed before the next is read. The kernel
    /// leaves out whatever does not begin with the bits that all stale numbers have in common: half of all numbers
    /// are told apart by one bit. A connection
    /// that was judged between the two loses the mark of now, and is judged once more.
    pub fn clear_marks(
        &mut self,
        bits: MarkBits,
        stale: &RangeInclusive<u16>,
    ) -> Result<ClearedMarks, Error> {
        let common = bits.common(*stale.start(), *stale.end());
        self.forget(bits, common, |_, number| stale.contains(&number))
    }

    /// How many connections were judged under which generation, by its number; those of 0 have none.
    pub fn generations(&mut self, bits: MarkBits) -> Result<BTreeMap<u16, usize>, Error> {
        let mut counts = BTreeMap::new();
        self.walk((0, 0), |_, message| {
            let number = bits.number_in(mark(message.attributes()));
            *counts.entry(number).or_default() += 1;
        })?;
        Ok(counts)
    }

    /// Takes our bits from the marks of all connections that an address is an end of, before or after translation,
    /// so that they are judged by their next packet.
    pub fn delete_connections(
        &mut self,
        bits: MarkBits,
        addresses: &BTreeSet<IpAddr>,
    ) -> Result<ClearedMarks, Error> {
        self.forget(bits, (0, 0), |entry, _| has_end(entry, addresses))
    }

    /// Takes our bits from the marks of connections that are meant, of those whose marks have a value under a mask.
    /// Those that have none of our bits are not asked about.
    fn forget(
        &mut self,
        bits: MarkBits,
        of: (u32, u32),
        mut is_meant: impl FnMut(Attributes<'_>, u16) -> bool,
    ) -> Result<ClearedMarks, Error> {
        let mut all = ClearedMarks::default();
        let mut pending = PendingRequests::default();
        let mut outcome = Ok(());
        self.walk(of, |changes, message| {
            all.seen += 1;
            let attributes = message.attributes();
            let mark = mark(attributes) & bits.mask();
            if outcome.is_ok() && mark != 0 && is_meant(attributes, bits.number_in(mark)) {
                pending.forget(message, bits.mask());
                if pending.bytes.len() >= AT_ONCE {
                    outcome = pending.send(changes, &mut all);
                }
            }
        })?;
        outcome?;
        pending.send(&mut self.changes, &mut all)?;
        Ok(all)
    }

    /// Reads all connections whose marks have a value under a mask.
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
        let read = channel.dump(&request, |_: &mut (), message| take(changes, message))?;
        read.map_err(|refused| refusal("show connections", refused))
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

/// Whether one of the addresses is an end of a connection, before or after translation.
pub(crate) fn has_end(entry: Attributes<'_>, addresses: &BTreeSet<IpAddr>) -> bool {
    [entry::ORIGINAL, entry::REPLY].into_iter().any(|tuple| {
        let ends = entry.inside(tuple).inside(tuple::ENDS);
        let mut ends = ends.filter_map(|(_, value)| address(value));
        ends.any(|end| addresses.contains(&end))
    })
}

/// Changes that are sent together. They are no transaction: each is carried out for itself.
#[derive(Debug, Default)]
pub(crate) struct PendingRequests {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: usize,
}

impl PendingRequests {
    /// Takes bits from the mark of a connection that the kernel told of.
    pub(crate) fn forget(&mut self, told: &Received<'_>, mask: u32) {
        let attributes = told.attributes();
        let family = told.body.first().copied().unwrap_or(ANY);
        let Some(tuple) = attributes.find(entry::ORIGINAL) else {
            return;
        };
        self.count += 1;
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
        let refused = channel.each(&mut self.bytes, count)?;
        self.bytes.clear();
        let ended = refused.len();
        let other = refused.into_iter().find(|it| it.errno != Errno::ENOENT);
        if let Some(refused) = other {
            return Err(refusal("change the mark of a connection", refused));
        }
        all.ended += ended;
        all.forgotten += count.saturating_sub(ended);
        Ok(())
    }
}

/// The mark of a connection; without one it is 0.
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
    fn a_change_is_whole_whatever_the_kernel_told() {
        let mut told = Vec::new();
        netlink::message(&mut told, NEW, 0, 2, |bytes| {
            bytes.bytes(entry::ORIGINAL, &[1, 2, 3, 4, 5]);
            bytes.bytes(entry::ZONE, &[0, 7]);
        });
        let mut pending = PendingRequests::default();
        for message in Messages(&told).chain(Messages(&told)) {
            pending.forget(&message, 0xff);
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
