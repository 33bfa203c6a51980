//! The socket that we speak with the kernel through.
//!
//! The kernel carries out a batch while it is being sent, so that its answers are there when
//! sending returns: they are read without waiting. Only what is read in pieces is waited for, and
//! not for ever.

use std::io;
use std::time::Duration;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, getsockopt, setsockopt, sockopt};
use nix::sys::time::TimeVal;

use crate::encode::Batch;
use crate::error::Error;
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
enum Reading<T> {
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
        })
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
        send(&self.socket, batch.complete(first), self.most)?;

        let mut refused = Vec::new();
        let mut is_acknowledged = false;
        self.answers(|message| {
            let place = message.sequence.wrapping_sub(first) as usize;
            if message.kind == netlink::ERROR && place < count {
                match message.error() {
                    0 => is_acknowledged |= place == last,
                    _ => refused.push(refusal(place, &message)),
                }
            }
        })?;
        if refused.is_empty() && !is_acknowledged {
            return Err(Error::NoAnswer);
        }
        Ok(refused)
    }

    /// Sends one message that is not part of a batch, and reads what the kernel has to say to it.
    pub(crate) fn ask(
        &mut self,
        mut message: Vec<u8>,
        mut take: impl FnMut(&Received<'_>),
    ) -> Result<Result<(), Refused>, Error> {
        let first = self.numbers(1);
        netlink::add_flags(&mut message, 0, flag::ACK);
        netlink::number_messages(&mut message, first);
        send(&self.socket, &message, self.most)?;
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
        })?;
        outcome.ok_or(Error::NoAnswer)
    }

    /// Reads something in pieces. If it changes meanwhile, it is read again from the start.
    pub(crate) fn dump<T: Default>(
        &mut self,
        request: &[u8],
        mut take: impl FnMut(&mut T, &Received<'_>),
    ) -> Result<Result<T, Refused>, Error> {
        for _ in 0..ATTEMPTS {
            match self.dump_once(request, &mut take)? {
                Reading::Complete(all) => return Ok(Ok(all)),
                Reading::Refused(refused) => return Ok(Err(refused)),
                Reading::Torn => {}
            }
        }
        Err(Error::Restless)
    }

    fn dump_once<T: Default>(
        &mut self,
        request: &[u8],
        take: &mut impl FnMut(&mut T, &Received<'_>),
    ) -> Result<Reading<T>, Error> {
        let first = self.numbers(1);
        let mut request = request.to_vec();
        netlink::add_flags(&mut request, 0, flag::DUMP);
        netlink::number_messages(&mut request, first);
        send(&self.socket, &request, self.most)?;
        let mut all = T::default();
        let mut is_torn = false;
        loop {
            let length = match self.receive(MsgFlags::empty()) {
                Ok(Some(length)) => length,
                Ok(None) => {
                    is_torn = true;
                    continue;
                }
                Err(source) => {
                    let action = "read the kernel's tables";
                    return Err(Error::Call { action, source });
                }
            };
            let received = self.buffer.get(..length).unwrap_or_default();
            for message in Messages(received).filter(|message| message.sequence == first) {
                is_torn |= message.flags & flag::DUMP_INTERRUPTED != 0;
                match message.kind {
                    netlink::ERROR | netlink::DONE if message.error() != 0 => {
                        let refused = refusal(0, &message);
                        if refused.errno == Errno::EINTR {
                            return Ok(Reading::Torn);
                        }
                        return Ok(Reading::Refused(refused));
                    }
                    netlink::DONE if is_torn => return Ok(Reading::Torn),
                    netlink::DONE => return Ok(Reading::Complete(all)),
                    _ => take(&mut all, &message),
                }
            }
        }
    }

    /// Reads the answers that are there.
    fn answers(&mut self, mut take: impl FnMut(Received<'_>)) -> Result<(), Error> {
        loop {
            match self.receive(MsgFlags::MSG_DONTWAIT) {
                Ok(Some(length)) => {
                    let received = self.buffer.get(..length).unwrap_or_default();
                    Messages(received).for_each(&mut take);
                }
                // There were more errors than room for them; the first ones are there.
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(source) => {
                    let action = "read the kernel's answer";
                    return Err(Error::Call { action, source });
                }
            }
        }
    }

    /// Receives something of the kernel's. `None`: something was lost.
    fn receive(&mut self, flags: MsgFlags) -> io::Result<Option<usize>> {
        loop {
            let mut buffer = self.buffer.as_mut_slice();
            match self
                .socket
                .recv_from(&mut buffer, (flags | MsgFlags::MSG_TRUNC).bits())
            {
                Ok((_, sender)) if sender.port_number() != 0 => {}
                Ok((length, _)) if length > self.buffer.len() => return Ok(None),
                Ok((length, _)) => return Ok(Some(length)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn numbers(&mut self, count: usize) -> u32 {
        let first = self.sequence;
        self.sequence = self.sequence.wrapping_add(count as u32);
        first
    }
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

fn send(socket: &Socket, bytes: &[u8], most: usize) -> Result<(), Error> {
    let kernel = SocketAddr::new(0, 0);
    loop {
        let source = match socket.send_to(bytes, &kernel, 0) {
            Ok(sent) if sent == bytes.len() => return Ok(()),
            Ok(_) => io::Error::from(io::ErrorKind::WriteZero),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.raw_os_error() == Some(Errno::EMSGSIZE as i32) => {
                let needed = bytes.len();
                return Err(Error::SmallBuffer { needed, most });
            }
            Err(error) => error,
        };
        let action = "send to the kernel";
        return Err(Error::Call { action, source });
    }
}

fn refusal(place: usize, message: &Received<'_>) -> Refused {
    Refused {
        place,
        errno: Errno::from_raw(message.error()),
        words: message.words(),
    }
}
