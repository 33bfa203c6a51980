//! The kernel's table of connections.

use crate::error::{Error, Refusal};
use crate::netlink;
use crate::socket::Channel;

/// The part of netfilter that tracks connections, and its messages.
const SUBSYSTEM: u16 = 1;
const DELETE: u16 = SUBSYSTEM << 8 | 2;
const GET_STATISTICS: u16 = SUBSYSTEM << 8 | 5;
const ENTRIES: u16 = 1;

/// Any family of addresses.
const ANY: u8 = 0;

/// Our side of the conversation with connection tracking, in one network namespace.
#[derive(Debug)]
pub struct Conntrack {
    channel: Channel,
}

impl Conntrack {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> Result<Conntrack, Error> {
        Ok(Conntrack {
            channel: Channel::open()?,
        })
    }

    /// Forgets all connections of the network namespace.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.ask("forget all connections", DELETE, |_| ())
    }

    /// How many connections the network namespace has.
    pub fn count(&mut self) -> Result<u32, Error> {
        let mut count = None;
        self.ask("count connections", GET_STATISTICS, |message| {
            count = message.attributes().find(ENTRIES).and_then(netlink::number);
        })?;
        count.ok_or(Error::NoAnswer)
    }

    fn ask(
        &mut self,
        action: &str,
        kind: u16,
        take: impl FnMut(&netlink::Received<'_>),
    ) -> Result<(), Error> {
        let mut message = Vec::new();
        netlink::message(&mut message, kind, 0, ANY, |_| ());
        self.channel.ask(message, take)?.map_err(|refused| {
            Error::Refused(Refusal {
                action: action.to_owned(),
                errno: refused.errno,
                words: refused.words,
                is_whole: true,
            })
        })
    }
}
