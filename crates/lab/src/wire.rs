//! Sends probes through the lab, and determines the outcome of each.
//!
//! # How an absent packet is known to be absent
//!
//! A denied packet is dropped silently, and a time-out for each would take a thousand time-outs for
//! a thousand packets. Instead, the wire waits for a later packet that is known to arrive:
//!
//! - The links of the lab are pairs of virtual Ethernet devices. Sending into one puts the packet
//!   at the end of a queue that belongs to the processor, and is the same for all devices and
//!   namespaces. The kernel takes packets from its front, and what it forwards goes to the end
//!   again. No neighbor has to be resolved and nothing is steered to other processors: a packet is
//!   never anywhere but in that queue.
//! - The sending thread stays on one processor. All its packets, and whatever is sent in answer to
//!   them, are therefore in one queue, in order.
//! - After a batch of probes the wire sends a marker to itself, which crosses one link. When it
//!   arrives, every packet that was in the queue before it has crossed one link as well, or was
//!   dropped. The next marker is sent after that, and so on: after as many markers as there are
//!   links on the longest path there and back, no packet of the batch is in flight any more.
//!
//! A probe that has not arrived by then was dropped. The marker goes through the loopback link of
//! the fabric, and so through nothing that is under test. If it does not come back, that is an
//! error, never a measurement.
//!
//! What remains is loss for other reasons: a queue or a socket buffer that overflows on a busy
//! machine. Batches are far smaller than either, and the caller (or [`Wire::probe_again`]) sends
//! absent probes again before they count as denied.
//!
//! # Where packets are sent and received
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
use crate::network::{LabNetwork, LinkSide, MARKER, NetworkError, mac};
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

/// The number of probes that are in flight at once.
// Far fewer than the kernel's queue (1,000 packets) and the smallest usual socket buffer (some 300
// packets at one receiver, which is read in between) hold.
const BATCH: usize = 256;
/// The number of probes that are sent before received packets are read.
const BURST: usize = 64;
/// The number of markers: the links of the longest path there and back, and one more.
// From a pod by the port of a node to a pod on a third node it is 6 links each way. The first
// marker only proves that the packets were in the queue.
const ROUNDS: u32 = 13;
/// The time that a marker may take on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// One packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The location that sends it.
    pub from: Location,
    /// Its source address, which may be that of another location.
    pub source: IpAddr,
    /// Its destination address.
    pub destination: IpAddr,
    /// Its payload.
    pub carried: ProbePayload,
    /// Its source port, if it must be a certain one. Otherwise the wire chooses an unused one.
    pub source_port: Option<u16>,
}

/// The result of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeResult {
    /// The location where it arrived.
    pub arrived: Option<Location>,
    /// Whether an answer of the destination came back to the sender: a connection accepted or
    /// refused, an echo, or the error for a closed port.
    pub answered: bool,
}

/// Why a measurement failed. A packet that does not arrive is not a failure.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// A namespace could not be used.
    #[error(transparent)]
    World(#[from] NetworkError),
    /// A probe cannot be a packet.
    #[error("cannot make a probe: {0}")]
    Packet(#[from] PacketError),
    /// A socket could not be opened.
    #[error("cannot open a socket in {place}: {source}")]
    Open {
        /// The location of the socket.
        place: Location,
        /// The error.
        source: io::Error,
    },
    /// A packet could not be sent.
    #[error("cannot send a packet from {place}: {source}")]
    Send {
        /// The sender.
        place: Location,
        /// The error.
        source: io::Error,
    },
    /// Packets could not be received.
    #[error("cannot receive packets: {0}")]
    Receive(io::Error),
    /// The thread could not be kept on one processor.
    #[error("cannot keep this thread on one processor: {0}")]
    Pin(Errno),
    /// A marker was lost: absence of packets proves nothing.
    #[error(
        "a marker packet did not return within {} seconds, and missing packets prove nothing; the \
         machine may be overloaded; try again",
        PATIENCE.as_secs()
    )]
    MarkerLost,
}

/// The sockets in all locations of a built cluster.
#[derive(Debug)]
pub struct Wire {
    world: LabNetwork,
    captures: CaptureSockets,
    /// The index in `captures` of the socket of each pod.
    pods: Vec<usize>,
    nodes: Vec<RawSender>,
    fabric: RawSender,
    /// The raw sockets: location, whether of IPv6, and protocol.
    listening: FxHashSet<(Location, bool, u8)>,
    ports: Ports,
    next_id: u32,
    packet: Vec<u8>,
}

impl Wire {
    /// Returns the network that it belongs to.
    pub fn world(&self) -> &LabNetwork {
        &self.world
    }

    /// Sends a packet that begins with its IP header. From a pod it goes to the pod's node
    /// unchanged, from other locations it is routed by its destination.
    pub fn send(&self, place: Location, packet: &[u8]) -> Result<(), WireError> {
        self.try_send(place, packet)
            .map_err(|source| WireError::Send { place, source })
    }

    /// Hands over everything that has arrived and is unread, with its location.
    pub fn drain(
        &mut self,
        take: &mut dyn FnMut(Location, ReceivedPacket),
    ) -> Result<(), WireError> {
        while self.receive(EpollTimeout::ZERO, take)? {}
        Ok(())
    }

    /// Waits until every packet that the calling thread has sent has arrived or was dropped, and
    /// hands over what arrived. That is certain only if the thread has been on one processor since.
    pub fn settle(
        &mut self,
        take: &mut dyn FnMut(Location, ReceivedPacket),
    ) -> Result<(), WireError> {
        for _ in 0..ROUNDS {
            self.round(take)?;
        }
        self.drain(take)
    }

    /// Sends packets from one location, and returns everything that arrives anywhere because of
    /// them.
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
        self.settle(&mut |place, packet| all.push((place, packet)))?;
        Ok(all)
    }

    /// [`Wire::exchange`] of packets from a pod to hardware addresses of its link. Where pods share
    /// a link, more than the node is there.
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
        self.settle(&mut |place, received| all.push((place, received)))?;
        Ok(all)
    }

    /// Sends every probe once, and returns their results in the same order. `progress` is called
    /// with the number of probes that are done.
    ///
    /// Connection tracking sees each probe as a new connection, except where two probes of a
    /// protocol without ports go between the same two addresses, or a source port was required.
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

    /// Sends absent probes again, which distinguishes a denied packet from one that a busy machine
    /// lost. New results replace the old ones.
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
            let spec = ProbeSpec {
                source: probe.source,
                destination: probe.destination,
                carried: probe.carried,
                source_port: probe
                    .source_port
                    .unwrap_or_else(|| self.ports.take(probe.source, probe.destination, avoid)),
                id,
            };
            self.send_spec(probe.from, &spec, &mut |place, packet| {
                tally.note(place, &packet)
            })?;
            if number % BURST == BURST - 1 {
                self.drain(&mut |place, packet| tally.note(place, &packet))?;
            }
        }
        self.drain(&mut |place, packet| tally.note(place, &packet))?;
        if tally.is_open() {
            self.settle(&mut |place, packet| tally.note(place, &packet))?;
        }
        all.append(&mut tally.finish());
        Ok(())
    }

    /// Sends a probe. A kernel that refuses it, for lack of a route or by a rule of the output
    /// path, is no error but a possible outcome.
    fn send_spec(
        &mut self,
        place: Location,
        spec: &ProbeSpec,
        take: &mut dyn FnMut(Location, ReceivedPacket),
    ) -> Result<(), WireError> {
        let mut packet = std::mem::take(&mut self.packet);
        packet.clear();
        build(spec, &mut packet)?;
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
                // A full queue, which empties by itself.
                Some(Errno::ENOBUFS | Errno::EAGAIN) if Instant::now() < deadline => {
                    self.drain(take)?;
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
        let capture = self
            .pods
            .get(pod)
            .and_then(|capture| self.captures.get(*capture));
        let capture = capture.ok_or(io::ErrorKind::NotFound)?;
        capture.send_frame(pod, to, packet)
    }

    /// Sends one marker, and waits until it is back.
    fn round(&mut self, take: &mut dyn FnMut(Location, ReceivedPacket)) -> Result<(), WireError> {
        let id = self.take_ids(1);
        let mut marker = Vec::new();
        build_marker(MARKER, MARKER, id, &mut marker)?;
        self.send(Location::Outside, &marker)?;
        let deadline = Instant::now() + PATIENCE;
        let mut back = false;
        while !back {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(WireError::MarkerLost);
            }
            let left = EpollTimeout::try_from(left).unwrap_or(EpollTimeout::ZERO);
            self.receive(left, &mut |place, packet| {
                if packet.destination == MARKER && packet.id == Some(id) {
                    back = true;
                } else {
                    take(place, packet);
                }
            })?;
        }
        Ok(())
    }

    fn receive(
        &mut self,
        patience: EpollTimeout,
        take: &mut dyn FnMut(Location, ReceivedPacket),
    ) -> Result<bool, WireError> {
        let received = self.captures.receive(patience, take);
        received.map_err(WireError::Receive)
    }

    /// Reserves numbers that no packet in flight has. 0 is no number.
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

/// Returns the destination address of an IP packet.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(16..20)?).ok()?)),
        Some(6) => Some(IpAddr::from(
            <[u8; 16]>::try_from(packet.get(24..40)?).ok()?,
        )),
        _ => None,
    }
}
