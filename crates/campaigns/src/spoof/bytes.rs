//! Encodes packets, sends them, and reports which arrived.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::Result;
use palisade_lab::packet::fragment::split;
use palisade_lab::packet::read::{IcmpReason, PacketKind, ReceivedPacket};
use palisade_lab::packet::{ProbePayload, ProbeSpec, build, datagram, redirect};
use palisade_lab::topology::Location;
use palisade_lab::wire::Wire;

use super::claims::Payload;
use super::cluster::address;
use super::generate::{Packet, Target};

/// The protocols of honest packets. Connection tracking identifies them by addresses alone: spoofed
/// packets of the same protocol would belong to connections of honest ones.
pub(super) const HONEST_PROTOCOLS: [u8; 2] = [200, 201];
/// The protocols of spoofed packets: IPIP, IPv6 in IPv4, GRE, ESP, OSPF, VRRP, and two unassigned
/// ones.
pub(super) const SPOOFED_PROTOCOLS: [u8; 8] = [4, 41, 47, 50, 89, 112, 220, 250];

/// The IPv6 and hardware addresses of all nodes of a link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_HARDWARE: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];

/// The hop limit that neighbor discovery requires.
const LINK_HOP_LIMIT: u8 = 255;
/// The length of a fragmented datagram, and of its fragments.
const DATAGRAM_LENGTH: usize = 1_800;
const FRAGMENT_LENGTH: usize = 1_200;

/// Packets of one sender.
#[derive(Debug, Default)]
pub(super) struct Batch {
    packets: Vec<([u8; 6], Vec<u8>)>,
}

/// The packets of a batch that arrived.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// The location where each packet arrived.
    pub(super) locations: Vec<Option<Location>>,
    /// Later fragments, which have no number.
    pub(super) later_fragments: u64,
}

impl Arrivals {
    /// The number of packets that arrived. A single fragment counts.
    pub(super) fn count(&self) -> u64 {
        let whole = self.locations.iter().flatten().count() as u64;
        whole.max(u64::from(self.later_fragments > 0))
    }
}

impl Batch {
    /// Adds bytes, from the IP header on.
    pub(super) fn add_bytes(&mut self, to: [u8; 6], packet: Vec<u8>) {
        self.packets.push((to, packet));
    }

    /// Adds a packet, or its fragments.
    pub(super) fn add(&mut self, wire: &Wire, packet: &Packet, id: u32) -> Result<()> {
        let to = hardware(wire, packet);
        for bytes in bytes(packet, id)? {
            self.add_bytes(to, bytes);
        }
        Ok(())
    }

    /// Sends all packets, and waits until none is in flight. They have the `count` numbers from
    /// `first` on.
    pub(super) fn send(
        &self,
        wire: &mut Wire,
        from: Location,
        first: u32,
        count: usize,
    ) -> Result<Arrivals> {
        let received = match from {
            Location::Pod(pod) => {
                let frames = self.packets.iter();
                wire.exchange_on_link(pod, frames.map(|(to, packet)| (*to, packet.as_slice())))?
            }
            Location::Node(_) | Location::Outside => {
                let packets = self.packets.iter();
                wire.exchange(from, packets.map(|(_, packet)| packet.as_slice()))?
            }
        };
        let mut arrivals = Arrivals {
            locations: vec![None; count],
            later_fragments: 0,
        };
        for (place, received) in received {
            if received.kind == PacketKind::LaterFragment {
                arrivals.later_fragments += 1;
            }
            if let Some(id) = probe_id(&received)
                && let Some(arrived) = arrivals.locations.get_mut(id.wrapping_sub(first) as usize)
            {
                *arrived = arrived.or(Some(place));
            }
        }
        Ok(arrivals)
    }
}

/// The number of a probe, if the packet is not a reply to one.
fn probe_id(received: &ReceivedPacket) -> Option<u32> {
    // A redirect quotes a packet with the number.
    let is_probe = received.kind.is_own() || received.kind == PacketKind::Error(IcmpReason::Other);
    received.id.filter(|_| is_probe)
}

fn hardware(wire: &Wire, packet: &Packet) -> [u8; 6] {
    let network = wire.world();
    match (packet.from, packet.target) {
        (_, Target::Link) => ALL_NODES_HARDWARE,
        (Location::Pod(_), Target::Place(Location::Pod(to))) if packet.direct => {
            network.pod_hardware(to)
        }
        (Location::Pod(from), Target::Place(_)) => network.gateway_hardware(from),
        // The kernel routes it by its destination.
        (Location::Node(_) | Location::Outside, Target::Place(_)) => [0; 6],
    }
}

/// A packet, or its fragments.
fn bytes(packet: &Packet, id: u32) -> Result<Vec<Vec<u8>>> {
    let destination = match packet.target {
        Target::Place(place) => address(place, packet.family()),
        Target::Link => ALL_NODES.into(),
    };
    // Spoofed packets have other ports: they must not belong to connections of honest ones.
    let (source_port, protocols) = match packet.claim {
        Some(_) => (20_000 + (id % 15_000) as u16, &SPOOFED_PROTOCOLS[..]),
        None => (40_000 + (id % 20_000) as u16, &HONEST_PROTOCOLS[..]),
    };
    let port = 1_000 + (id / 20_000 % 1_000) as u16;
    let carried = match packet.payload {
        Payload::Tcp => ProbePayload::Tcp { port },
        Payload::Udp | Payload::Fragments => ProbePayload::Udp { port },
        Payload::Sctp => ProbePayload::Sctp { port },
        Payload::Echo => ProbePayload::Echo,
        Payload::Other => ProbePayload::Other {
            protocol: protocols
                .get(id as usize % protocols.len())
                .copied()
                .unwrap_or(253),
        },
        Payload::Advertisement => ProbePayload::Icmpv6 { kind: 134 },
        Payload::Redirect => ProbePayload::Icmpv6 { kind: 137 },
    };
    let draft = ProbeSpec {
        source: packet.source,
        destination,
        carried,
        source_port,
        id,
    };
    Ok(match (packet.payload, packet.source, destination) {
        (Payload::Fragments, ..) => {
            let mut pieces = split(&datagram(&draft, DATAGRAM_LENGTH)?, FRAGMENT_LENGTH, id)?;
            if id.is_multiple_of(2) {
                pieces.reverse();
            }
            pieces
        }
        (Payload::Redirect, IpAddr::V4(source), IpAddr::V4(destination)) => {
            vec![ipv4_redirect(source, destination, id)?]
        }
        (Payload::Advertisement | Payload::Redirect, ..) => {
            let mut bytes = Vec::new();
            build(&draft, &mut bytes)?;
            if let Some(hops) = bytes.get_mut(7) {
                *hops = LINK_HOP_LIMIT;
            }
            vec![bytes]
        }
        _ => {
            let mut bytes = Vec::new();
            build(&draft, &mut bytes)?;
            vec![bytes]
        }
    })
}

/// An IPv4 redirect of a packet that its receiver would have sent.
fn ipv4_redirect(source: Ipv4Addr, destination: Ipv4Addr, id: u32) -> Result<Vec<u8>> {
    let mut quoted = Vec::new();
    let draft = ProbeSpec {
        source: destination.into(),
        destination: Ipv4Addr::new(203, 0, 113, 1).into(),
        carried: ProbePayload::Udp { port: 53 },
        source_port: 20_000,
        id,
    };
    build(&draft, &mut quoted)?;
    Ok(redirect(
        source,
        destination,
        Ipv4Addr::new(10, 0, 1, 2),
        &quoted,
    )?)
}
