//! Sending probes through the lab, and knowing what became of each.
//!
//! # How an absent packet is known to be absent
//!
//! A packet that was denied is dropped silently, and a time-out would make a thousand of them take a
//! thousand time-outs. Instead, the wire waits for a later packet that is known to arrive:
//!
//! - The links of the lab are pairs of virtual Ethernet devices. Sending into one puts the packet at
//!   the end of a queue which belongs to the processor and is the same for all devices and
//!   namespaces; the kernel takes packets from its front, and what it forwards goes to the end again.
//!   No neighbour has to be resolved and nothing is steered to other processors, so that a packet is
//!   never anywhere but in that queue.
//! - The sending thread stays on one processor. All its packets, and whatever is sent in answer to
//!   them, are therefore in one queue, in order.
//! - After a batch of probes the wire sends a marker to itself, which crosses one link. When it
//!   arrives, every packet that was in the queue before it has crossed one link, too, or was dropped.
//!   The next marker is sent after that, and so on: after as many markers as there are links on the
//!   longest way there and back, no packet of the batch can be under way any more.
//!
//! A probe that has not been seen by then was dropped. The marker goes through the loopback link of
//! the fabric and so through nothing that is being tested; if it does not come back, that is an error,
//! never a measurement.
//!
//! What remains is loss for other reasons: a queue or a socket buffer that overflows on a busy
//! machine. Batches are far smaller than either, and whoever measures (or [`Wire::probe_again`]) asks again before anyone
//! believes in a denial.
//!
//! # Where packets go in and where they are seen
//!
//! | Place | From | To |
//! |---|---|---|
//! | pod | frames on its interface, straight to its node | frames on its interface |
//! | node | locally generated: the output path | raw sockets, behind the input path |
//! | outside | as a node, in the fabric | as a node, in the fabric |

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::EpollTimeout;
use rustc_hash::FxHashSet;

use crate::network::rtnl::Mac;
use crate::network::{LabNetwork, LinkSide, MARKER, WorldError, mac};
use crate::packet::read::ReceivedPacket;
use crate::packet::{PacketError, ProbePayload, ProbeSpec, build, build_marker};
use crate::topology::Location;

mod open;
mod pin;
mod ports;
mod sockets;
mod tally;

use pin::CpuPin;
use ports::Ports;
use sockets::{CaptureSockets, RawSender};
use tally::BatchTally;

/// How many probes are under way at once: far fewer than the kernel's queue (1,000 packets) and the
/// smallest usual socket buffer (some 300 packets at one receiver, which is read in between) hold.
const BATCH: usize = 256;
/// How many are sent before what has arrived is read.
const BURST: usize = 64;
/// How many links the longest way crosses, there and back: from a pod by the port of a node to a pod
/// on a third node it is 6 each way. One more, since the first marker only finds the packets queued.
const ROUNDS: u32 = 13;
/// How long a marker may take on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// One packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Where it starts.
    pub from: Location,
    /// Its source address, which need not be one of that place's.
    pub source: IpAddr,
    /// Its destination address.
    pub destination: IpAddr,
    /// What it carries.
    pub carried: ProbePayload,
    /// Its source port, if it must be a certain one; otherwise one that is not in use.
    pub source_port: Option<u16>,
}

/// What became of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeResult {
    /// Where it arrived.
    pub arrived: Option<Location>,
    /// Whether an answer of the destination came back to where it started: a connection accepted
    /// or refused, an echo, or the message that nobody listens.
    pub answered: bool,
}

/// Why a measurement failed. A packet that does not arrive is not a failure.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// A namespace could not be used.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A probe makes no sense.
    #[error("cannot make a probe: {0}")]
    Packet(#[from] PacketError),
    /// A socket could not be opened.
    #[error("cannot open a socket in {place}: {source}")]
    Open {
        /// Where.
        place: Location,
        /// Why not.
        source: io::Error,
    },
    /// A packet could not be sent.
    #[error("cannot send a packet from {place}: {source}")]
    Send {
        /// From where.
        place: Location,
        /// Why not.
        source: io::Error,
    },
    /// Packets could not be received.
    #[error("cannot receive packets: {0}")]
    Receive(io::Error),
    /// The thread could not be kept on one processor.
    #[error("cannot keep this thread on one processor: {0}")]
    Pin(Errno),
    /// A marker was lost, so that absence proves nothing.
    #[error(
        "a marker did not come back within {} seconds, so that nothing follows from packets that did \
         not arrive: the machine may be overloaded; try again",
        PATIENCE.as_secs()
    )]
    MarkerLost,
}

/// The sockets in all places of a built cluster.
#[derive(Debug)]
pub struct Wire {
    world: LabNetwork,
    ears: CaptureSockets,
    /// Where in `ears` the socket of each pod is.
    pods: Vec<usize>,
    nodes: Vec<RawSender>,
    fabric: RawSender,
    /// Where, of which family and for which protocol there is a raw socket.
    listening: FxHashSet<(Location, bool, u8)>,
    ports: Ports,
    next_id: u32,
    packet: Vec<u8>,
}

impl Wire {
    /// The cluster it is in.
    pub fn world(&self) -> &LabNetwork {
        &self.world
    }

    /// Sends a packet that begins with its IP header. From a pod it goes to the pod's node as it is;
    /// from elsewhere it is routed by its destination.
    pub fn send(&self, place: Location, packet: &[u8]) -> Result<(), WireError> {
        self.try_send(place, packet)
            .map_err(|source| WireError::Send { place, source })
    }

    /// Hands over everything that has arrived and was not read yet, with the place where it did.
    pub fn drain(
        &mut self,
        heard: &mut dyn FnMut(Location, ReceivedPacket),
    ) -> Result<(), WireError> {
        while self.hear(EpollTimeout::ZERO, heard)? {}
        Ok(())
    }

    /// Waits until every packet sent before by the calling thread has arrived or was dropped, and
    /// hands over what arrived. That is certain only if the thread has been on one processor since.
    pub fn settle(
        &mut self,
        heard: &mut dyn FnMut(Location, ReceivedPacket),
    ) -> Result<(), WireError> {
        for _ in 0..ROUNDS {
            self.round(heard)?;
        }
        self.drain(heard)
    }

    /// Sends packets from one place, and returns everything that arrives anywhere because of them.
    pub fn exchange<'a>(
        &mut self,
        place: Location,
        packets: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Vec<(Location, ReceivedPacket)>, WireError> {
        let _pin = CpuPin::here().map_err(WireError::Pin)?;
        self.drain(&mut |_, _| ())?;
        for packet in packets {
            self.send(place, packet)?;
        }
        let mut all = Vec::new();
        self.settle(&mut |place, seen| all.push((place, seen)))?;
        Ok(all)
    }

    /// [`Wire::exchange`] of packets that a pod sends to hardware addresses of its link: where pods share one, not only its
    /// node is there.
    pub fn exchange_on_link<'a>(
        &mut self,
        pod: usize,
        packets: impl IntoIterator<Item = ([u8; 6], &'a [u8])>,
    ) -> Result<Vec<(Location, ReceivedPacket)>, WireError> {
        let _pin = CpuPin::here().map_err(WireError::Pin)?;
        self.drain(&mut |_, _| ())?;
        for (to, packet) in packets {
            let sent = self.try_send_frame(pod, to, packet);
            let place = Location::Pod(pod);
            sent.map_err(|source| WireError::Send { place, source })?;
        }
        let mut all = Vec::new();
        self.settle(&mut |place, seen| all.push((place, seen)))?;
        Ok(all)
    }

    /// Sends every probe once and says what became of it, in the same order. `progress` is called
    /// with the number of probes that are done.
    ///
    /// Connection tracking sees each probe as a new connection, except where two probes of a protocol
    /// without ports go between the same two addresses, or a source port was asked for.
    pub fn probe(
        &mut self,
        probes: &[Probe],
        progress: &dyn Fn(usize),
    ) -> Result<Vec<ProbeResult>, WireError> {
        let _pin = CpuPin::here().map_err(WireError::Pin)?;
        self.listen_for(probes)?;
        let avoid = probes.iter().filter_map(|probe| probe.carried.port());
        let avoid: FxHashSet<u16> = avoid.collect();
        self.drain(&mut |_, _| ())?;
        let mut all = Vec::with_capacity(probes.len());
        for batch in probes.chunks(BATCH) {
            self.probe_batch(batch, &avoid, &mut all)?;
            progress(all.len());
        }
        Ok(all)
    }

    /// Probes again what did not arrive, to tell a packet that was denied from one that a busy
    /// machine lost. What is found replaces what was measured before.
    pub fn probe_again(
        &mut self,
        probes: &[Probe],
        measured: &mut [ProbeResult],
    ) -> Result<(), WireError> {
        let (mut places, absent): (Vec<_>, Vec<_>) = measured
            .iter_mut()
            .zip(probes)
            .filter(|(measured, _)| measured.arrived.is_none())
            .unzip();
        let again = self.probe(&absent.into_iter().copied().collect::<Vec<_>>(), &|_| ())?;
        for (place, measured) in places.iter_mut().zip(again) {
            **place = measured;
        }
        Ok(())
    }

    fn probe_batch(
        &mut self,
        batch: &[Probe],
        avoid: &FxHashSet<u16>,
        all: &mut Vec<ProbeResult>,
    ) -> Result<(), WireError> {
        let first = self.take_ids(batch.len());
        let mut tally = BatchTally::new(batch, first);
        for (number, (probe, id)) in batch.iter().zip(first..).enumerate() {
            let draft = ProbeSpec {
                source: probe.source,
                destination: probe.destination,
                carried: probe.carried,
                source_port: probe
                    .source_port
                    .unwrap_or_else(|| self.ports.take(probe.source, probe.destination, avoid)),
                id,
            };
            self.send_draft(probe.from, &draft, &mut |place, seen| {
                tally.note(place, &seen)
            })?;
            if number % BURST == BURST - 1 {
                self.drain(&mut |place, seen| tally.note(place, &seen))?;
            }
        }
        self.drain(&mut |place, seen| tally.note(place, &seen))?;
        if tally.is_open() {
            self.settle(&mut |place, seen| tally.note(place, &seen))?;
        }
        all.append(&mut tally.finish());
        Ok(())
    }

    /// Sends a probe. That the kernel refuses to take it, for want of a route or by a rule of the
    /// output path, is one of the things that can become of it.
    fn send_draft(
        &mut self,
        place: Location,
        draft: &ProbeSpec,
        heard: &mut dyn FnMut(Location, ReceivedPacket),
    ) -> Result<(), WireError> {
        let mut packet = std::mem::take(&mut self.packet);
        packet.clear();
        build(draft, &mut packet)?;
        let deadline = Instant::now() + PATIENCE;
        let sent = loop {
            let error = match self.try_send(place, &packet) {
                Ok(()) => break Ok(()),
                Err(error) => error,
            };
            match error.raw_os_error().map(Errno::from_raw) {
                Some(
                    Errno::EPERM
                    | Errno::EACCES
                    | Errno::EINVAL
                    | Errno::ENETUNREACH
                    | Errno::EHOSTUNREACH
                    | Errno::EADDRNOTAVAIL,
                ) => break Ok(()),
                // A full queue; it empties by itself.
                Some(Errno::ENOBUFS | Errno::EAGAIN) if Instant::now() < deadline => {
                    self.drain(heard)?;
                }
                _ => break Err(error),
            }
        };
        self.packet = packet;
        sent.map_err(|source| WireError::Send { place, source })
    }

    fn try_send(&self, place: Location, packet: &[u8]) -> io::Result<()> {
        let raw = match place {
            Location::Pod(index) => {
                return self.try_send_frame(index, mac(LinkSide::NodeOfPod, index), packet);
            }
            Location::Node(index) => self.nodes.get(index).ok_or(io::ErrorKind::NotFound)?,
            Location::Outside => &self.fabric,
        };
        let destination = destination(packet).ok_or(io::ErrorKind::InvalidInput)?;
        raw.send(packet, destination)
    }

    fn try_send_frame(&self, pod: usize, to: Mac, packet: &[u8]) -> io::Result<()> {
        let ear = self.pods.get(pod).and_then(|ear| self.ears.get(*ear));
        let ear = ear.ok_or(io::ErrorKind::NotFound)?;
        ear.send_frame(pod, to, packet)
    }

    /// Sends one marker and waits until it is back.
    fn round(&mut self, heard: &mut dyn FnMut(Location, ReceivedPacket)) -> Result<(), WireError> {
        let id = self.take_ids(1);
        let mut packet = Vec::new();
        build_marker(MARKER, MARKER, id, &mut packet)?;
        self.send(Location::Outside, &packet)?;
        let deadline = Instant::now() + PATIENCE;
        let mut back = false;
        while !back {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(WireError::MarkerLost);
            }
            let left = EpollTimeout::try_from(left).unwrap_or(EpollTimeout::ZERO);
            self.hear(left, &mut |place, seen| {
                if seen.destination == MARKER && seen.id == Some(id) {
                    back = true;
                } else {
                    heard(place, seen);
                }
            })?;
        }
        Ok(())
    }

    fn hear(
        &mut self,
        patience: EpollTimeout,
        heard: &mut dyn FnMut(Location, ReceivedPacket),
    ) -> Result<bool, WireError> {
        let heard = self.ears.hear(patience, heard);
        heard.map_err(WireError::Receive)
    }

    /// Numbers that no packet under way has; 0 is none.
    fn take_ids(&mut self, count: usize) -> u32 {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let first = match self.next_id.checked_add(count) {
            Some(_) => self.next_id,
            None => 1,
        };
        self.next_id = first.saturating_add(count);
        first
    }
}

/// The destination address of an IP packet.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(16..20)?).ok()?)),
        Some(6) => Some(IpAddr::from(
            <[u8; 16]>::try_from(packet.get(24..40)?).ok()?,
        )),
        _ => None,
    }
}
