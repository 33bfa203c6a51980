//! The socket that we speak with the kernel through.
//!
//! The kernel carries out a batch while it is being sent, so that its answers are there when
//! sending returns: they are read without waiting. Only what is read in pieces is waited for, and
//! not for ever.

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

/// The largest batch that we ask for room for. More would only cost memory: a ruleset that is larger
/// is given in several.
const WANTED: usize = 8 << 20;
/// What the kernel keeps of the buffer for itself.
const OVERHEAD: usize = 32;
/// How long we wait for the next piece.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often we begin anew when something changed while it was read.
const ATTEMPTS: usize = 50;
/// More answers than fit into the socket's buffer.
const MOST_ANSWERS: usize = 1 << 20;
/// More than the kernel puts into one piece.
const PIECE: usize = 128 << 10;

/// A socket of netfilter, in the network namespace that it was opened in.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: Socket,
    port: u32,
    sequence: u32,
    most: usize,
    buffer: Vec<u8>,
    faults: Injected,
}

/// That the kernel refused a message of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Which message.
    pub(crate) place: usize,
    pub(crate) errno: Errno,
    pub(crate) words: Option<String>,
}

/// What came of reading in pieces.
enum DumpRead<T> {
    Complete(T),
    /// Something changed meanwhile.
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
        // Answers need not repeat what they answer. Older kernels do not have these; we can do
        // without.
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

    /// Makes calls go wrong.
    pub(crate) fn inject(&mut self, faults: Box<dyn Faults>) {
        self.faults = Injected(Some(faults));
    }

    /// The address of the socket, by which the kernel knows the owner of a table.
    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    /// The largest batch that can be sent.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Makes do with a smaller buffer.
    pub(crate) fn limit(&mut self, most: usize) {
        if most < self.most {
            // The kernel takes twice what it is told, for its own use.
            let _ = setsockopt(&self.socket, sockopt::SndBuf, &((most + OVERHEAD) / 2));
            self.most = most;
        }
    }

    /// Lets the kernel carry out a batch; says what it refused. If that is nothing, all was done,
    /// and otherwise nothing.
    pub(crate) fn transact(&mut self, batch: &mut Batch) -> Result<Vec<Refused>, Error> {
        let count = batch.subjects().len();
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
        // Whatever else was lost: a batch of which something was refused was not carried out. But the last
        // message is acknowledged also where the end of the batch was refused.
        if refused.is_empty() {
            let is_lost = read.map_err(|source| Error::Unread { source })?;
            if is_lost || !is_acknowledged {
                return Err(Error::NoAnswer);
            }
        }
        Ok(refused)
    }

    /// Sends one message that is not part of a batch, and reads what the kernel has to say to it.
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

    /// Sends messages that are carried out each for itself; says which of them were refused.
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
        let is_lost = read.map_err(|source| Error::Unread { source })?;
        if is_lost || !is_answered {
            return Err(Error::NoAnswer);
        }
        Ok(refused)
    }

    /// Reads something in pieces. If it changes meanwhile, it is read again from the start.
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
        let mut all = T::default();
        let mut dump = Dump::new(first);
        loop {
            let length = match self.receive(MsgFlags::empty()) {
                Ok(Some(length)) => length,
                Ok(None) => {
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
                    // What is left of the earlier reading comes first.
                    let action = "read the kernel's tables";
                    let read = self.answers(|_| ());
                    read.map_err(|source| Error::Call { action, source })?;
                    return Ok(DumpRead::Torn);
                }
            }
        }
    }

    /// Asks to be told what a multicast group is told, with room for so many bytes that nobody has read yet,
    /// or as many as we are given.
    pub(crate) fn subscribe(&self, group: u32, room: usize) -> Result<(), Error> {
        if setsockopt(&self.socket, sockopt::RcvBufForce, &room).is_err() {
            // With less room more is lost, which is noticed.
            let _ = setsockopt(&self.socket, sockopt::RcvBuf, &room);
        }
        let action = "listen to changes of nftables";
        let call = |source| Error::Call { action, source };
        self.socket.add_membership(group).map_err(call)
    }

    /// Waits for something that a multicast group is told, and takes it. Says whether something was lost.
    pub(crate) fn listen(
        &mut self,
        timeout: Duration,
        take: impl FnMut(Received<'_>),
    ) -> Result<bool, Error> {
        let action = "listen to changes of nftables";
        let call = |source| Error::Call { action, source };
        let mut flags = MsgFlags::empty();
        // No time at all would mean for ever.
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

    /// Reads the answers that are there. Says whether some were lost.
    fn answers(&mut self, mut take: impl FnMut(Received<'_>)) -> io::Result<bool> {
        let mut is_lost = false;
        for _ in 0..MOST_ANSWERS {
            match self.receive(MsgFlags::MSG_DONTWAIT) {
                Ok(Some(length)) => {
                    let received = self.buffer.get(..length).unwrap_or_default();
                    is_lost |= !each_message(received, &mut take);
                }
                // There were more errors than room for them; the first ones are there.
                Ok(None) => is_lost = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(is_lost),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Receives something of the kernel's. `None`: something was lost.
    fn receive(&mut self, flags: MsgFlags) -> io::Result<Option<usize>> {
        loop {
            let received = match self.receive_once(flags) {
                Ok((_, sender)) if sender.port_number() != 0 => continue,
                Ok((length, _)) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            return Ok((received <= self.buffer.len()).then_some(received));
        }
    }

    /// One call of the system.
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
            // As if it came from nobody: it is passed over, and nobody is told.
            Some(Fault::Lose) => received.map(|(length, _)| (length, SocketAddr::new(1, 0))),
            _ => received,
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        loop {
            let source = match self.send_once(bytes) {
                Ok(sent) if sent == bytes.len() => return Ok(()),
                // It was taken in part: nobody can say what came of it.
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

    /// One call of the system.
    fn send_once(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = match self.faults.before(Syscall::Send) {
            Some(Fault::Fail(errno)) => return Err(errno.into()),
            Some(Fault::Lose) => Ok(bytes.len()),
            None => self.socket.send_to(bytes, &SocketAddr::new(0, 0), 0),
        };
        self.faults.after(Syscall::Send);
        sent
    }

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

/// An answer in pieces, as they arrive.
#[derive(Debug)]
pub(crate) struct Dump {
    /// The number of the request.
    first: u32,
    is_torn: bool,
}

/// What came of an answer in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DumpEnd {
    Complete,
    /// Something changed meanwhile, or a piece cannot be read to its end.
    Torn,
    /// An earlier reading was given up.
    Busy,
    Refused(Refused),
}

impl Dump {
    pub(crate) fn new(first: u32) -> Dump {
        let is_torn = false;
        Dump { first, is_torn }
    }

    /// Hands on the messages of a piece; what came of the answer, if that was its last piece.
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
        // What a broken message hides must not be taken for gone.
        self.is_torn |= !messages.0.is_empty();
        None
    }
}

/// Hands on all messages of what was received; says whether it could be read to its end.
pub(crate) fn each_message(received: &[u8], take: impl FnMut(Received<'_>)) -> bool {
    let mut messages = Messages(received);
    messages.by_ref().for_each(take);
    messages.0.is_empty()
}

/// Asks for room for large batches; says how large they may be. Only the superuser of the machine
/// gets as much as it wants.
fn room(socket: &Socket, wanted: usize) -> nix::Result<usize> {
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
