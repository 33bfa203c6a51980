//! The bytes of packets, and which of them arrived.

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

/// The protocols of honest packets. Connection tracking knows them by their addresses alone: spoofed packets of the same
/// protocol would belong to connections of honest ones.
pub(super) const HONEST_PROTOCOLS: [u8; 2] = [200, 201];
/// The protocols of spoofed packets: IPIP, IPv6 in IPv4, GRE, ESP, OSPF, VRRP, and two unassigned ones.
pub(super) const SPOOFED_PROTOCOLS: [u8; 8] = [4, 41, 47, 50, 89, 112, 220, 250];

/// All nodes of a link, as an address of IPv6 and of hardware.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_HARDWARE: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];

/// The hop limit that messages of the link must have.
const OF_THE_LINK: u8 = 255;
/// How long a datagram is that goes in fragments, and how long each of them may be.
const LONG: usize = 1_800;
const PIECE: usize = 1_200;

/// Packets of one sender.
#[derive(Debug, Default)]
pub(super) struct Batch {
    packets: Vec<([u8; 6], Vec<u8>)>,
}

/// The packets of a batch that arrived.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Where each packet arrived, if it did.
    pub(super) places: Vec<Option<Location>>,
    /// Fragments without a number.
    pub(super) later_fragments: u64,
}

impl Arrivals {
    /// How many arrived. A fragment alone counts, too.
    pub(super) fn count(&self) -> u64 {
        let whole = self.places.iter().flatten().count() as u64;
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

    /// Sends everything, and waits until nothing is under way any more. Packets are numbered from `first`, so many.
    pub(super) fn send(
        &self,
        wire: &mut Wire,
        from: Location,
        first: u32,
        count: usize,
    ) -> Result<Arrivals> {
        let seen = match from {
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
            places: vec![None; count],
            later_fragments: 0,
        };
        for (place, seen) in seen {
            if seen.kind == PacketKind::LaterFragment {
                arrivals.later_fragments += 1;
            }
            if let Some(id) = numbered(&seen)
                && let Some(arrived) = arrivals.places.get_mut(id.wrapping_sub(first) as usize)
            {
                *arrived = arrived.or(Some(place));
            }
        }
        Ok(arrivals)
    }
}

/// The number of a packet that is one of ours itself, and not an answer to one.
fn numbered(seen: &ReceivedPacket) -> Option<u32> {
    // A redirect quotes what it is about, which has the number.
    let is_ours = seen.kind.is_own() || seen.kind == PacketKind::Error(IcmpReason::Other);
    seen.id.filter(|_| is_ours)
}

fn hardware(wire: &Wire, packet: &Packet) -> [u8; 6] {
    let world = wire.world();
    match (packet.from, packet.target) {
        (_, Target::Link) => ALL_NODES_HARDWARE,
        (Location::Pod(_), Target::Place(Location::Pod(to))) if packet.straight => {
            world.pod_hardware(to)
        }
        (Location::Pod(from), Target::Place(_)) => world.gateway_hardware(from),
        // It is routed by its destination.
        (Location::Node(_) | Location::Outside, Target::Place(_)) => [0; 6],
    }
}

/// A packet, or its fragments.
fn bytes(packet: &Packet, id: u32) -> Result<Vec<Vec<u8>>> {
    let destination = match packet.target {
        Target::Place(place) => address(place, packet.family()),
        Target::Link => ALL_NODES.into(),
    };
    // Other ports than those of honest packets: a spoofed packet must not belong to a connection of theirs.
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
            let mut pieces = split(&datagram(&draft, LONG)?, PIECE, id)?;
            if id.is_multiple_of(2) {
                pieces.reverse();
            }
            pieces
        }
        (Payload::Redirect, IpAddr::V4(source), IpAddr::V4(destination)) => {
            vec![redirected(source, destination, id)?]
        }
        (Payload::Advertisement | Payload::Redirect, ..) => {
            let mut bytes = Vec::new();
            build(&draft, &mut bytes)?;
            if let Some(hops) = bytes.get_mut(7) {
                *hops = OF_THE_LINK;
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

/// A redirect of IPv4, of a packet that its receiver would have sent elsewhere.
fn redirected(source: Ipv4Addr, destination: Ipv4Addr, id: u32) -> Result<Vec<u8>> {
    let mut about = Vec::new();
    let draft = ProbeSpec {
        source: destination.into(),
        destination: Ipv4Addr::new(203, 0, 113, 1).into(),
        carried: ProbePayload::Udp { port: 53 },
        source_port: 20_000,
        id,
    };
    build(&draft, &mut about)?;
    Ok(redirect(
        source,
        destination,
        Ipv4Addr::new(10, 0, 1, 2),
        &about,
    )?)
}
