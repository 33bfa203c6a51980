//! Connections made packet by packet, in both directions: TCP, UDP, SCTP and echo, as the kernel's
//! connection tracking accepts them.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result};
use palisade_lab::packet::read::{PacketKind, ReceivedPacket};
use palisade_lab::packet::segment::{ACK, PSH, SYN, Segment};
use palisade_lab::packet::{ProbePayload, ProbeSpec, build};

/// The protocol of a connection.
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

/// All protocols.
pub const PROTOCOLS: [Protocol; 4] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp, Protocol::Echo];

/// A connection from a client to a server.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// Its protocol.
    pub protocol: Protocol,
    /// The client. Its port is the identifier of echoes.
    pub client: SocketAddr,
    /// The address that the client sends to.
    pub destination: SocketAddr,
    /// The address that replies.
    pub server: SocketAddr,
}

/// The sender of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The client.
    FromClient,
    /// The server.
    FromServer,
}

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The first packet of a direction.
    Opening,
    /// The packet that completes the handshake, if the protocol has one.
    Confirming,
    /// Data.
    Running,
}

/// The identifier in the payload of probes.
const PROBE_ID: u32 = 0x0bad_cafe;
/// The initial sequence numbers of client and server.
const INITIAL_SEQUENCES: (u32, u32) = (1_000_000, 2_000_000);
/// The SCTP verification tags of client and server.
const TAGS: (u32, u32) = (0x1111_1111, 0x2222_2222);

impl Connection {
    /// A packet of a phase, if the protocol has one.
    pub fn packet(&self, direction: Direction, node: Phase) -> Result<Option<Vec<u8>>> {
        let (from, to) = match direction {
            Direction::FromClient => (self.client, self.destination),
            Direction::FromServer => (self.server, self.client),
        };
        match self.protocol {
            Protocol::Tcp => segment(from, to, direction, node).map(Some),
            Protocol::Sctp => Ok(Some(ip_packet(
                from.ip(),
                to.ip(),
                132,
                &sctp(from, to, direction, node),
            ))),
            Protocol::Udp | Protocol::Echo if node == Phase::Confirming => Ok(None),
            Protocol::Udp => {
                probe(from, to, from.port(), ProbePayload::Udp { port: to.port() }).map(Some)
            }
            Protocol::Echo => {
                let request = probe(from, to, self.client.port(), ProbePayload::Echo)?;
                Ok(Some(match direction {
                    Direction::FromClient => request,
                    Direction::FromServer => echo_reply(request, from.is_ipv4()),
                }))
            }
        }
    }

    /// Whether a received packet belongs to this connection and direction.
    pub fn matches(&self, direction: Direction, seen: &ReceivedPacket) -> bool {
        let (from, to) = match direction {
            Direction::FromClient => (self.client, self.server),
            Direction::FromServer => (self.destination, self.client),
        };
        if (seen.source, seen.destination) != (from.ip(), to.ip()) {
            return false;
        }
        match (self.protocol, direction) {
            // `ReceivedPacket` has nothing that distinguishes echoes between the same addresses.
            (Protocol::Echo, Direction::FromClient) => {
                matches!(seen.kind, PacketKind::Probe(1 | 58))
            }
            (Protocol::Echo, Direction::FromServer) => seen.kind == PacketKind::EchoReply,
            (Protocol::Tcp | Protocol::Udp | Protocol::Sctp, _) => {
                let is_error = matches!(seen.kind, PacketKind::Error(_));
                seen.ports == Some((from.port(), to.port())) && !is_error
            }
        }
    }
}

fn segment(from: SocketAddr, to: SocketAddr, direction: Direction, node: Phase) -> Result<Vec<u8>> {
    let (client, server) = INITIAL_SEQUENCES;
    let (own, other) = match direction {
        Direction::FromClient => (client, server),
        Direction::FromServer => (server, client),
    };
    let (flags, sequence, acknowledgment, data): (u8, u32, u32, &[u8]) = match (node, direction) {
        (Phase::Opening, Direction::FromClient) => (SYN, own, 0, &[]),
        (Phase::Opening, Direction::FromServer) => (SYN | ACK, own, other + 1, &[]),
        (Phase::Confirming, _) => (ACK, own + 1, other + 1, &[]),
        // Always the same bytes: connection tracking sees a retransmission.
        (Phase::Running, _) => (PSH | ACK, own + 1, other + 1, b"data"),
    };
    let segment = Segment {
        source: from,
        destination: to,
        flags,
        sequence,
        acknowledgment,
        data,
    };
    segment.build().context("cannot build a segment")
}

fn probe(
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
        id: PROBE_ID,
    };
    build(&draft, &mut packet)?;
    Ok(packet)
}

/// Turns an echo request into its reply: another type, and an adapted checksum.
fn echo_reply(mut packet: Vec<u8>, is_ipv4: bool) -> Vec<u8> {
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

/// An SCTP packet: the common header and one chunk.
fn sctp(from: SocketAddr, to: SocketAddr, direction: Direction, node: Phase) -> Vec<u8> {
    const DATA: u8 = 0;
    const INIT: u8 = 1;
    const INIT_ACK: u8 = 2;
    const COOKIE_ECHO: u8 = 10;
    const COOKIE_ACK: u8 = 11;
    let (clients, servers) = TAGS;
    // The receiver has chosen the tag.
    let tag = match (direction, node) {
        (Direction::FromClient, Phase::Opening) => 0,
        (Direction::FromClient, _) => servers,
        (Direction::FromServer, _) => clients,
    };
    let start = |own: u32| {
        let message = [own, 65_535, 0x0001_0001, own];
        message.iter().flat_map(|it| it.to_be_bytes()).collect()
    };
    let (kind, flags, body): (u8, u8, Vec<u8>) = match (direction, node) {
        (Direction::FromClient, Phase::Opening) => (INIT, 0, start(clients)),
        (Direction::FromServer, Phase::Opening) => (INIT_ACK, 0, start(servers)),
        (Direction::FromClient, Phase::Confirming) => (COOKIE_ECHO, 0, vec![1, 2, 3, 4]),
        (Direction::FromServer, Phase::Confirming) => (COOKIE_ACK, 0, Vec::new()),
        // First and last fragment of a message: number, stream, protocol, four bytes.
        (_, Phase::Running) => (DATA, 3, [&[0; 12][..], b"data"].concat()),
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

/// Prepends an IP header.
fn ip_packet(source: IpAddr, destination: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
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
