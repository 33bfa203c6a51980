//! Connections made of single packets, so that every packet of both directions is known: TCP, UDP, SCTP
//! and echo, as the kernel's connection tracking takes them.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result};
use palisade_lab::packet::read::{PacketKind, ReceivedPacket};
use palisade_lab::packet::segment::{ACK, PSH, SYN, Segment};
use palisade_lab::packet::{ProbePayload, ProbeSpec, build};

/// What a connection is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// Echo requests and replies.
    Echo,
}

/// All of them.
pub const PROTOCOLS: [Protocol; 4] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp, Protocol::Echo];

/// A connection of a client to a server.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// What it is of.
    pub protocol: Protocol,
    /// The client. Its port is the identifier of echoes.
    pub client: SocketAddr,
    /// Whom the client dials.
    pub dialled: SocketAddr,
    /// Who answers.
    pub server: SocketAddr,
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The client.
    There,
    /// The server.
    Back,
}

/// Which packet of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The first ones of a way: what is needed until the other side may answer.
    Opening,
    /// What completes the opening; nothing for protocols that need no more.
    Confirming,
    /// Data.
    Running,
}

/// The number in every packet, where there is room for one.
const NUMBER: u32 = 0x0bad_cafe;
/// The first sequence numbers of both sides.
const SEQUENCES: (u32, u32) = (1_000_000, 2_000_000);
/// The tags that both sides of SCTP chose.
const TAGS: (u32, u32) = (0x1111_1111, 0x2222_2222);

impl Connection {
    /// A packet of it; none where the protocol has none.
    pub fn packet(&self, way: Way, stage: Stage) -> Result<Option<Vec<u8>>> {
        let (from, to) = match way {
            Way::There => (self.client, self.dialled),
            Way::Back => (self.server, self.client),
        };
        match self.protocol {
            Protocol::Tcp => segment(from, to, way, stage).map(Some),
            Protocol::Sctp => Ok(Some(carry(
                from.ip(),
                to.ip(),
                132,
                &sctp(from, to, way, stage),
            ))),
            Protocol::Udp | Protocol::Echo if stage == Stage::Confirming => Ok(None),
            Protocol::Udp => {
                made(from, to, from.port(), ProbePayload::Udp { port: to.port() }).map(Some)
            }
            Protocol::Echo => {
                let request = made(from, to, self.client.port(), ProbePayload::Echo)?;
                Ok(Some(match way {
                    Way::There => request,
                    Way::Back => reply(request, from.is_ipv4()),
                }))
            }
        }
    }

    /// Whether a packet that was seen is this connection's, on its way.
    pub fn is_its(&self, way: Way, seen: &ReceivedPacket) -> bool {
        let (from, to) = match way {
            Way::There => (self.client, self.server),
            Way::Back => (self.dialled, self.client),
        };
        if (seen.source, seen.destination) != (from.ip(), to.ip()) {
            return false;
        }
        match (self.protocol, way) {
            // Echoes between two addresses are told apart by nothing that a reader says.
            (Protocol::Echo, Way::There) => matches!(seen.kind, PacketKind::Probe(1 | 58)),
            (Protocol::Echo, Way::Back) => seen.kind == PacketKind::EchoReply,
            (Protocol::Tcp | Protocol::Udp | Protocol::Sctp, _) => {
                let is_error = matches!(seen.kind, PacketKind::Error(_));
                seen.ports == Some((from.port(), to.port())) && !is_error
            }
        }
    }
}

fn segment(from: SocketAddr, to: SocketAddr, way: Way, stage: Stage) -> Result<Vec<u8>> {
    let (client, server) = SEQUENCES;
    let (own, other) = match way {
        Way::There => (client, server),
        Way::Back => (server, client),
    };
    let (flags, sequence, acknowledgment, data): (u8, u32, u32, &[u8]) = match (stage, way) {
        (Stage::Opening, Way::There) => (SYN, own, 0, &[]),
        (Stage::Opening, Way::Back) => (SYN | ACK, own, other + 1, &[]),
        (Stage::Confirming, _) => (ACK, own + 1, other + 1, &[]),
        // The same bytes again and again: to connection tracking, somebody is impatient.
        (Stage::Running, _) => (PSH | ACK, own + 1, other + 1, b"data"),
    };
    let segment = Segment {
        source: from,
        destination: to,
        flags,
        sequence,
        acknowledgment,
        data,
    };
    segment.build().context("a segment cannot be made")
}

fn made(
    from: SocketAddr,
    to: SocketAddr,
    source_port: u16,
    carried: ProbePayload,
) -> Result<Vec<u8>> {
    let mut packet = Vec::new();
    let draft = ProbeSpec {
        source: from.ip(),
        destination: to.ip(),
        carried,
        source_port,
        id: NUMBER,
    };
    build(&draft, &mut packet)?;
    Ok(packet)
}

/// Makes a reply of a request: another type, and the checksum that follows from it.
fn reply(mut packet: Vec<u8>, is_ipv4: bool) -> Vec<u8> {
    let (start, to, difference) = match is_ipv4 {
        // 8 becomes 0: the sum of all words gets smaller by 0x0800, and its complement larger.
        true => (20, 0, 0x0800_u32),
        // 128 becomes 129.
        false => (40, 129, 0xffff - 0x0100),
    };
    if let Some([kind, _, high, low]) = packet.get_mut(start..start + 4) {
        let sum = u32::from(u16::from_be_bytes([*high, *low])) + difference;
        let folded = ((sum & 0xffff) + (sum >> 16)) as u16;
        [*high, *low] = folded.to_be_bytes();
        *kind = to;
    }
    packet
}

/// A packet of SCTP: the common header and one chunk.
fn sctp(from: SocketAddr, to: SocketAddr, way: Way, stage: Stage) -> Vec<u8> {
    const DATA: u8 = 0;
    const INIT: u8 = 1;
    const INIT_ACK: u8 = 2;
    const COOKIE_ECHO: u8 = 10;
    const COOKIE_ACK: u8 = 11;
    let (clients, servers) = TAGS;
    // Who receives has chosen the tag.
    let tag = match (way, stage) {
        (Way::There, Stage::Opening) => 0,
        (Way::There, _) => servers,
        (Way::Back, _) => clients,
    };
    let start = |own: u32| {
        let words = [own, 65_535, 0x0001_0001, own];
        words.iter().flat_map(|it| it.to_be_bytes()).collect()
    };
    let (kind, flags, body): (u8, u8, Vec<u8>) = match (way, stage) {
        (Way::There, Stage::Opening) => (INIT, 0, start(clients)),
        (Way::Back, Stage::Opening) => (INIT_ACK, 0, start(servers)),
        (Way::There, Stage::Confirming) => (COOKIE_ECHO, 0, vec![1, 2, 3, 4]),
        (Way::Back, Stage::Confirming) => (COOKIE_ACK, 0, Vec::new()),
        // First and last fragment of a message: number, stream, protocol, four bytes.
        (_, Stage::Running) => (DATA, 3, [&[0; 12][..], b"data"].concat()),
    };
    let mut bytes = Vec::new();
    bytes.extend(from.port().to_be_bytes());
    bytes.extend(to.port().to_be_bytes());
    bytes.extend(tag.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend([kind, flags]);
    bytes.extend((body.len() as u16 + 4).to_be_bytes());
    bytes.extend(body);
    let checksum = crc32c::crc32c(&bytes);
    if let Some(field) = bytes.get_mut(8..12) {
        field.copy_from_slice(&checksum.to_le_bytes());
    }
    bytes
}

/// Puts an IP header before something.
fn carry(source: IpAddr, destination: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let length = (20 + payload.len()) as u16;
            packet.extend([0x45, 0]);
            packet.extend(length.to_be_bytes());
            packet.extend([0, 1, 0, 0, 64, protocol, 0, 0]);
            packet.extend(source.octets());
            packet.extend(destination.octets());
            let sum: u32 = packet
                .chunks_exact(2)
                .filter_map(|it| it.first_chunk::<2>())
                .map(|it| u32::from(u16::from_be_bytes(*it)))
                .sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            if let Some(field) = packet.get_mut(10..12) {
                field.copy_from_slice(&(!(sum as u16)).to_be_bytes());
            }
        }
        (source, destination) => {
            let octets = |address| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            packet.extend([0x60, 0, 0, 0]);
            packet.extend((payload.len() as u16).to_be_bytes());
            packet.extend([protocol, 64]);
            packet.extend(octets(source));
            packet.extend(octets(destination));
        }
    }
    packet.extend(payload);
    packet
}
