//! The netfilter socket.
//!
//! The kernel carries out a batch while it is sent. When `send` returns, the answers are in the
//! socket's buffer, and are read without waiting. Only the pieces of a dump are waited for, and not
//! without limit.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, getsockopt, setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::encode::Batch;
use crate::error::Error;
use crate::faults::{Fault, Faults, Injected, Syscall};
use crate::netlink::{self, Messages, Received, flag};

/// The largest batch that a socket requests room for. A larger ruleset becomes several batches.
// More would only cost memory: the kernel copies the whole batch.
const WANTED: usize = 8 << 20;
/// The bytes of the buffer that the kernel keeps for itself.
// `netlink_sendmsg` refuses a message of more than the buffer size less 32.
const OVERHEAD: usize = 32;
/// The timeout for the next piece of a dump.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number of times that a dump is repeated because the tables changed meanwhile.
const ATTEMPTS: usize = 50;
/// An upper bound of answers that one request can have.
// Ends the loop even if the kernel answered without end.
const MOST_ANSWERS: usize = 1 << 20;
/// The buffer for one piece: more than the kernel puts into it.
const PIECE: usize = 128 << 10;

/// A netfilter socket in the network namespace that it was opened in.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: Socket,
    port: u32,
    sequence: u32,
    most: usize,
    buffer: Vec<u8>,
    faults: Injected,
}

/// The kernel's refusal of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The index of the message in its batch.
    pub(crate) place: usize,
    pub(crate) errno: Errno,
    pub(crate) words: Option<String>,
}

/// The result of one dump.
enum DumpRead<T> {
    Complete(T),
    /// The contents changed during the dump.
    Torn,
    Refused(Refused),
}

impl Channel {
    /// Opens a socket in the network namespace of the calling thread.
    pub(crate) fn open() -> Result<Channel, Error> {
        let call = |action| move |source| Error::Call { action, source };
        let errno = |action| {
            move |errno: Errno| Error::Call {
                action,
                source: io::Error::from(errno),
            }
        };
        let mut socket = Socket::new(NETLINK_NETFILTER).map_err(call("open a netfilter socket"))?;
        let address = socket
            .bind_auto()
            .map_err(call("bind a netfilter socket"))?;
        // `NETLINK_CAP_ACK` keeps answers from repeating the refused message, `NETLINK_EXT_ACK`
        // adds the kernel's own message. Older kernels lack them; both are optional.
        let _ = socket.set_cap_ack(true);
        let _ = socket.set_ext_ack(true);
        let patience = TimeVal::new(PATIENCE.as_secs() as i64, 0);
        setsockopt(&socket, sockopt::ReceiveTimeout, &patience)
            .map_err(errno("set up a netfilter socket"))?;
        let most = room(&socket, WANTED).map_err(errno("set up a netfilter socket"))?;
        Ok(Channel {
            socket,
            port: address.port_number(),
            sequence: 1,
            most,
            buffer: vec![0; PIECE],
            faults: Injected::default(),
        })
    }

    /// Injects faults into the system calls.
    pub(crate) fn inject(&mut self, faults: Box<dyn Faults>) {
        self.faults = Injected(Some(faults));
    }

    /// Returns the netlink port of the socket, by which the kernel identifies the owner of a table.
    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    /// Returns the bytes of the largest batch that can be sent.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Makes the buffer smaller.
    pub(crate) fn limit(&mut self, most: usize) {
        if most < self.most {
            // The kernel doubles the size, for its own use.
            let _ = setsockopt(&self.socket, sockopt::SndBuf, &((most + OVERHEAD) / 2));
            self.most = most;
        }
    }

    /// Sends a batch and returns the refused messages. Without any, all of the batch was carried
    /// out; otherwise nothing of it was.
    pub(crate) fn transact(&mut self, batch: &mut Batch) -> Result<Vec<Refused>, Error> {
        let count = batch.items().len();
        let first = self.numbers(count + 1);
        let last = count - 1;
        self.send(batch.complete(first))?;

        let mut refused = Vec::new();
        let mut is_acknowledged = false;
        let read = self.answers(|message| {
            let place = message.sequence.wrapping_sub(first) as usize;
            if message.kind == netlink::ERROR && place < count {
                match message.error() {
                    0 => is_acknowledged |= place == last,
                    _ => refused.push(refusal(place, &message)),
                }
            }
        });
        // One refusal proves that nothing was carried out, whatever answer was lost. The reverse
        // needs both an acknowledgment and no lost answer: the last message is acknowledged also if
        // the kernel refuses the end of the batch.
        if refused.is_empty() {
            let is_lost = read.map_err(|source| Error::Unread { source })?;
            if is_lost || !is_acknowledged {
                return Err(Error::NoAnswer);
            }
        }
        Ok(refused)
    }

    /// Sends one message outside a batch, and hands its answers to `take`.
    pub(crate) fn request(
        &mut self,
        mut message: Vec<u8>,
        mut take: impl FnMut(&Received<'_>),
    ) -> Result<Result<(), Refused>, Error> {
        let first = self.numbers(1);
        netlink::add_flags(&mut message, 0, flag::ACK);
        netlink::number_messages(&mut message, first);
        self.send(&message)?;
        let mut outcome = None;
        self.answers(|message| {
            // An answer to an earlier request that failed midway.
            if message.sequence != first {
            } else if message.kind != netlink::ERROR {
                take(&message);
            } else if message.error() == 0 {
                outcome = Some(Ok(()));
            } else {
                outcome = Some(Err(refusal(0, &message)));
            }
        })
        .map_err(|source| Error::Unread { source })?;
        outcome.ok_or(Error::NoAnswer)
    }

    /// Sends messages that the kernel carries out one by one. Returns those that it refused.
    pub(crate) fn each(&mut self, bytes: &mut [u8], count: usize) -> Result<Vec<Refused>, Error> {
        let first = self.numbers(count);
        let last = count.saturating_sub(1);
        netlink::number_messages(bytes, first);
        netlink::add_flags(bytes, netlink::last_message(bytes), flag::ACK);
        self.send(bytes)?;
        let mut refused = Vec::new();
        let mut is_answered = false;
        let read = self.answers(|message| {
            let place = message.sequence.wrapping_sub(first) as usize;
            if message.kind == netlink::ERROR && place < count {
                is_answered |= place == last;
                if message.error() != 0 {
                    refused.push(refusal(place, &message));
                }
            }
        });
        // Unlike a batch these are no unit: a lost answer could be a refusal of any of them.
        let is_lost = read.map_err(|source| Error::Unread { source })?;
        if is_lost || !is_answered {
            return Err(Error::NoAnswer);
        }
        Ok(refused)
    }

    /// Dumps a list in pieces. If it changes meanwhile, the dump is repeated from the start.
    pub(crate) fn dump<T: Default>(
        &mut self,
        request: &[u8],
        mut take: impl FnMut(&mut T, &Received<'_>),
    ) -> Result<Result<T, Refused>, Error> {
        for _ in 0..ATTEMPTS {
            match self.dump_once(request, &mut take)? {
                DumpRead::Complete(all) => return Ok(Ok(all)),
                DumpRead::Refused(refused) => return Ok(Err(refused)),
                DumpRead::Torn => {}
            }
        }
        Err(Error::Restless)
    }

    fn dump_once<T: Default>(
        &mut self,
        request: &[u8],
        take: &mut impl FnMut(&mut T, &Received<'_>),
    ) -> Result<DumpRead<T>, Error> {
        let first = self.numbers(1);
        let mut request = request.to_vec();
        netlink::add_flags(&mut request, 0, flag::DUMP);
        netlink::number_messages(&mut request, first);
        self.send(&request)?;
        // Each attempt begins with an empty result: a torn dump may repeat or leave out entries.
        let mut all = T::default();
        let mut dump = Dump::new(first);
        loop {
            let length = match self.receive(MsgFlags::empty()) {
                Ok(Some(length)) => length,
                Ok(None) => {
                    // A lost piece. The rest is still read, since the kernel refuses another dump
                    // before its end.
                    dump.is_torn = true;
                    continue;
                }
                Err(source) => {
                    let action = "read the kernel's tables";
                    return Err(Error::Call { action, source });
                }
            };
            let received = self.buffer.get(..length).unwrap_or_default();
            match dump.piece(received, |message| take(&mut all, message)) {
                None => {}
                Some(DumpEnd::Complete) => return Ok(DumpRead::Complete(all)),
                Some(DumpEnd::Torn) => return Ok(DumpRead::Torn),
                Some(DumpEnd::Refused(refused)) => return Ok(DumpRead::Refused(refused)),
                Some(DumpEnd::Busy) => {
                    // An earlier dump was abandoned. Its remaining pieces are discarded first.
                    let action = "read the kernel's tables";
                    let read = self.answers(|_| ());
                    read.map_err(|source| Error::Call { action, source })?;
                    return Ok(DumpRead::Torn);
                }
            }
        }
    }

    /// Subscribes to a multicast group, with a receive buffer of so many bytes, or as many as the
    /// kernel allows.
    pub(crate) fn subscribe(&self, group: u32, room: usize) -> Result<(), Error> {
        if setsockopt(&self.socket, sockopt::RcvBufForce, &room).is_err() {
            // With less room more notifications are lost, which the kernel reports.
            let _ = setsockopt(&self.socket, sockopt::RcvBuf, &room);
        }
        let action = "receive nftables notifications";
        let call = |source| Error::Call { action, source };
        self.socket.add_membership(group).map_err(call)
    }

    /// Waits for a message of a multicast group. Returns whether some were lost.
    pub(crate) fn listen(
        &mut self,
        timeout: Duration,
        take: impl FnMut(Received<'_>),
    ) -> Result<bool, Error> {
        let action = "receive nftables notifications";
        let call = |source| Error::Call { action, source };
        let mut flags = MsgFlags::empty();
        // A receive timeout of zero means none at all.
        if timeout.is_zero() {
            flags = MsgFlags::MSG_DONTWAIT;
        } else {
            let micros = timeout.as_micros().min(u128::from(u32::MAX)).max(1);
            let timeout = TimeVal::microseconds(micros as i64);
            setsockopt(&self.socket, sockopt::ReceiveTimeout, &timeout)
                .map_err(|errno| call(errno.into()))?;
        }
        match self.receive(flags) {
            Ok(Some(length)) => {
                let received = self.buffer.get(..length).unwrap_or_default();
                Ok(!each_message(received, take))
            }
            Ok(None) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(call(error)),
        }
    }

    /// Reads the answers in the buffer without waiting. Returns whether some were lost.
    fn answers(&mut self, mut take: impl FnMut(Received<'_>)) -> io::Result<bool> {
        let mut is_lost = false;
        for _ in 0..MOST_ANSWERS {
            match self.receive(MsgFlags::MSG_DONTWAIT) {
                Ok(Some(length)) => {
                    let received = self.buffer.get(..length).unwrap_or_default();
                    is_lost |= !each_message(received, &mut take);
                }
                // More errors than the buffer has room for. The first ones are there.
                Ok(None) => is_lost = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(is_lost),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Receives a message of the kernel. `None`: a message was lost.
    fn receive(&mut self, flags: MsgFlags) -> io::Result<Option<usize>> {
        loop {
            let received = match self.receive_once(flags) {
                // Only the kernel has port 0: any process may send to this socket.
                Ok((_, sender)) if sender.port_number() != 0 => continue,
                Ok((length, _)) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            // With `MSG_TRUNC` the length is that of the whole message: a longer one is lost.
            return Ok((received <= self.buffer.len()).then_some(received));
        }
    }

    /// Makes one system call.
    fn receive_once(&mut self, flags: MsgFlags) -> io::Result<(usize, SocketAddr)> {
        let fault = self.faults.before(Syscall::Receive);
        if let Some(Fault::Fail(errno)) = fault {
            return Err(errno.into());
        }
        let flags = (flags | MsgFlags::MSG_TRUNC).bits();
        let received = self
            .socket
            .recv_from(&mut self.buffer.as_mut_slice(), flags);
        self.faults.after(Syscall::Receive);
        match fault {
            // With the port of a process the message is discarded without notice.
            Some(Fault::Lose) => received.map(|(length, _)| (length, SocketAddr::new(1, 0))),
            _ => received,
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        loop {
            let source = match self.send_once(bytes) {
                Ok(sent) if sent == bytes.len() => return Ok(()),
                // The kernel took a part of it. The outcome is unknown.
                Ok(_) => return Err(Error::NoAnswer),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.raw_os_error() == Some(Errno::EMSGSIZE as i32) => {
                    let (needed, most) = (bytes.len(), self.most);
                    return Err(Error::SmallBuffer { needed, most });
                }
                Err(error) => error,
            };
            let action = "send to the kernel";
            return Err(Error::Call { action, source });
        }
    }

    /// Makes one system call.
    fn send_once(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = match self.faults.before(Syscall::Send) {
            Some(Fault::Fail(errno)) => return Err(errno.into()),
            Some(Fault::Lose) => Ok(bytes.len()),
            None => self.socket.send_to(bytes, &SocketAddr::new(0, 0), 0),
        };
        self.faults.after(Syscall::Send);
        sent
    }

    /// Reserves sequence numbers.
    fn numbers(&mut self, count: usize) -> u32 {
        let first = self.sequence;
        self.sequence = self.sequence.wrapping_add(count as u32);
        first
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The state of a dump between its pieces.
#[derive(Debug)]
pub(crate) struct Dump {
    /// The sequence number of the request.
    first: u32,
    is_torn: bool,
}

/// The end of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DumpEnd {
    Complete,
    /// The contents changed meanwhile, or a piece is malformed.
    Torn,
    /// The socket has not finished an earlier dump.
    Busy,
    Refused(Refused),
}

impl Dump {
    pub(crate) fn new(first: u32) -> Dump {
        let is_torn = false;
        Dump { first, is_torn }
    }

    /// Hands over the messages of a piece. Returns how the dump ended, if this was its last piece.
    pub(crate) fn piece(
        &mut self,
        piece: &[u8],
        mut take: impl FnMut(&Received<'_>),
    ) -> Option<DumpEnd> {
        let mut messages = Messages(piece);
        for message in messages.by_ref() {
            if message.sequence != self.first {
                continue;
            }
            // The kernel flags a dump whose list changed between two pieces.
            self.is_torn |= message.flags & flag::DUMP_INTERRUPTED != 0;
            match message.kind {
                netlink::ERROR | netlink::DONE if message.error() != 0 => {
                    let refused = refusal(0, &message);
                    let is_busy = refused.errno == Errno::EBUSY;
                    let is_torn = refused.errno == Errno::EINTR;
                    return Some(match (is_busy, is_torn) {
                        (true, _) => DumpEnd::Busy,
                        (_, true) => DumpEnd::Torn,
                        (false, false) => DumpEnd::Refused(refused),
                    });
                }
                netlink::DONE if self.is_torn => return Some(DumpEnd::Torn),
                netlink::DONE => return Some(DumpEnd::Complete),
                _ => take(&message),
            }
        }
        // What follows a malformed message is unread. An audit must not report it as missing.
        self.is_torn |= !messages.0.is_empty();
        None
    }
}

/// Hands over all messages of received bytes. Returns whether they were well formed to the end.
pub(crate) fn each_message(received: &[u8], take: impl FnMut(Received<'_>)) -> bool {
    let mut messages = Messages(received);
    messages.by_ref().for_each(take);
    messages.0.is_empty()
}

/// Enlarges the send buffer, and returns the bytes of the largest batch that fits.
fn room(socket: &Socket, wanted: usize) -> nix::Result<usize> {
    // `SO_SNDBUFFORCE` needs CAP_NET_ADMIN outside user namespaces. The other option stops at
    // net.core.wmem_max, without an error.
    if setsockopt(socket, sockopt::SndBufForce, &wanted).is_err() {
        setsockopt(socket, sockopt::SndBuf, &wanted)?;
    }
    let room = getsockopt(socket, sockopt::SndBuf)?;
    Ok(room.saturating_sub(OVERHEAD).min(wanted))
}

fn refusal(place: usize, message: &Received<'_>) -> Refused {
    Refused {
        place,
        errno: Errno::from_raw(message.error()),
        words: message.words(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Dump, DumpEnd, each_message};
    use crate::netlink::{self, DONE};

    fn message(bytes: &mut Vec<u8>, kind: u16) {
        netlink::message(bytes, kind, 0, 0, |_| ());
    }

    #[test]
    fn an_answer_with_a_broken_message_is_not_complete() {
        let mut whole = Vec::new();
        message(&mut whole, 0xa00);
        message(&mut whole, 0xa00);
        let mut last = Vec::new();
        message(&mut last, DONE);
        for (length, messages, expected) in [
            (40, 2, DumpEnd::Complete),
            (39, 1, DumpEnd::Torn),
            (21, 1, DumpEnd::Torn),
        ] {
            let (mut dump, mut count) = (Dump::new(0), 0);
            let piece = whole.get(..length).unwrap_or_default();
            assert_eq!(dump.piece(piece, |_| count += 1), None);
            assert_eq!(dump.piece(&last, |_| count += 1), Some(expected));
            assert_eq!(count, messages);
            assert_eq!(each_message(piece, |_| ()), length == 40);
        }
    }
}
