//! Packets as bytes: writes probes that carry a number, and reads received packets.
//!
//! Every probe carries a number of 32 bits where translation of addresses and ports leaves it
//! alone: the sequence number of TCP, the initiate tag of SCTP, and a marked position in the
//! payload of everything else. The receiver identifies the probe by it. Answers repeat the number:
//! a reset acknowledges the sequence number, an echo reply repeats the payload, and an ICMP error
//! quotes the packet. Checksums are correct, since connection tracking verifies them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::err::packet::BuildWriteError;
use etherparse::{
    Icmpv4Type, Icmpv6Type, IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, Ipv6Extensions,
    Ipv6Header, PacketBuilder, PacketBuilderStep, icmpv4, icmpv6,
};

pub mod fragment;
pub mod read;
pub mod segment;

/// The bytes in front of a probe's number in payloads.
// The first two also make it an option of neighbor discovery (an experimental type, and a length of
// 8 bytes). Messages of that protocol stay well formed with a number at their end.
pub(crate) const MARK: [u8; 4] = [253, 1, 0x50, 0x4c];

/// The time to live of every packet.
// Hosts ignore neighbor discovery with it, as they should: the lab measures only whether it
// arrives.
const HOPS: u8 = 64;

/// The payload of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbePayload {
    /// The first segment of a TCP connection.
    Tcp {
        /// The destination port.
        port: u16,
    },
    /// A UDP datagram.
    Udp {
        /// The destination port.
        port: u16,
    },
    /// The first packet of an SCTP association.
    Sctp {
        /// The destination port.
        port: u16,
    },
    /// An echo request, of ICMP or ICMPv6.
    Echo,
    /// An ICMPv6 message of any type, well formed for neighbour discovery and group membership.
    Icmpv6 {
        /// The type.
        kind: u8,
    },
    /// Another IP protocol, with a payload without meaning.
    Other {
        /// The protocol's number.
        protocol: u8,
    },
}

impl ProbePayload {
    /// Returns the destination port, if the protocol has ports.
    pub fn port(self) -> Option<u16> {
        match self {
            ProbePayload::Tcp { port }
            | ProbePayload::Udp { port }
            | ProbePayload::Sctp { port } => Some(port),
            ProbePayload::Echo | ProbePayload::Icmpv6 { .. } | ProbePayload::Other { .. } => None,
        }
    }

    /// Returns the number of the IP protocol in a family.
    pub fn protocol(self, ipv6: bool) -> u8 {
        match self {
            ProbePayload::Tcp { .. } => IpNumber::TCP.0,
            ProbePayload::Udp { .. } => IpNumber::UDP.0,
            ProbePayload::Sctp { .. } => IpNumber::SCTP.0,
            ProbePayload::Echo if ipv6 => IpNumber::IPV6_ICMP.0,
            ProbePayload::Echo => IpNumber::ICMP.0,
            ProbePayload::Icmpv6 { .. } => IpNumber::IPV6_ICMP.0,
            ProbePayload::Other { protocol } => protocol,
        }
    }
}

/// The contents of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// The source address.
    pub source: IpAddr,
    /// The destination address, of the same family.
    pub destination: IpAddr,
    /// The payload.
    pub carried: ProbePayload,
    /// The source port, or the identifier of an echo request.
    pub source_port: u16,
    /// The probe's number, which is not 0.
    pub id: u32,
}

/// Why a packet cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// The addresses are of different families.
    #[error("no packet can go from {from} to {to}: their address families differ")]
    Families {
        /// The source.
        from: IpAddr,
        /// The destination.
        to: IpAddr,
    },
    /// ICMPv6 between IPv4 addresses.
    #[error("ICMPv6 needs IPv6 addresses")]
    Icmpv6OverIpv4,
    /// An echo reply, which looks like an answer.
    #[error("an echo reply is an answer and cannot be a probe")]
    EchoReply,
    /// A protocol number that is not for [`ProbePayload::Other`].
    #[error("IP protocol {0} cannot be sent as an unknown protocol: {1}")]
    Protocol(u8, &'static str),
    /// The packet is not whole, or has extension headers.
    #[error("only a whole packet without extension headers can be split into fragments")]
    Unfragmentable,
    /// The packet is too long.
    #[error("the packet is too long: {0}")]
    TooLong(String),
}

impl From<BuildWriteError> for PacketError {
    fn from(error: BuildWriteError) -> PacketError {
        PacketError::TooLong(error.to_string())
    }
}

impl From<io::Error> for PacketError {
    fn from(error: io::Error) -> PacketError {
        PacketError::TooLong(error.to_string())
    }
}

/// Appends the bytes of a probe, from the IP header on.
pub fn build(spec: &ProbeSpec, out: &mut Vec<u8>) -> Result<(), PacketError> {
    let ProbeSpec {
        source_port, id, ..
    } = *spec;
    let ipv6 = spec.destination.is_ipv6();
    let packet = ip(spec.source, spec.destination, id)?;
    let number = numbered(id);
    match spec.carried {
        ProbePayload::Tcp { port } => packet
            .tcp(source_port, port, id, 64_240)
            .syn()
            .write(out, &[])?,
        ProbePayload::Udp { port } => packet.udp(source_port, port).write(out, &number)?,
        ProbePayload::Sctp { port } => {
            let init = sctp_init(source_port, port, id);
            packet.write(out, IpNumber::SCTP, &init)?;
        }
        ProbePayload::Echo if ipv6 => packet
            .icmpv6_echo_request(source_port, 1)
            .write(out, &number)?,
        ProbePayload::Echo => packet
            .icmpv4_echo_request(source_port, 1)
            .write(out, &number)?,
        ProbePayload::Icmpv6 { kind: 129 } => return Err(PacketError::EchoReply),
        ProbePayload::Icmpv6 { kind } => {
            let IpAddr::V6(destination) = spec.destination else {
                return Err(PacketError::Icmpv6OverIpv4);
            };
            let (start, mut rest) = icmpv6_body(kind, source_port, destination);
            rest.extend(number);
            packet.icmpv6_raw(kind, 0, start).write(out, &rest)?;
        }
        ProbePayload::Other { protocol } => {
            let mut payload = lead(protocol, ipv6)?.to_vec();
            payload.extend(number);
            payload.extend([0; 8]);
            packet.write(out, IpNumber(protocol), &payload)?;
        }
    }
    Ok(())
}

/// Makes the ICMP error for a closed port in answer to a packet: a whole IP packet.
pub fn port_unreachable(
    source: IpAddr,
    destination: IpAddr,
    sent: &[u8],
) -> Result<Vec<u8>, PacketError> {
    let quoted = sent.get(..sent.len().min(500)).unwrap_or_default();
    let mut out = Vec::new();
    let packet = ip(source, destination, 1)?;
    if destination.is_ipv6() {
        let port = icmpv6::DestUnreachableCode::Port;
        let kind = Icmpv6Type::DestinationUnreachable(port);
        packet.icmpv6(kind).write(&mut out, quoted)?;
    } else {
        let port = icmpv4::DestUnreachableHeader::Port;
        let kind = Icmpv4Type::DestinationUnreachable(port);
        packet.icmpv4(kind).write(&mut out, quoted)?;
    }
    Ok(out)
}

/// Makes an IPv4 redirect to another gateway in answer to a packet: a whole IP packet.
pub fn redirect(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    gateway: Ipv4Addr,
    sent: &[u8],
) -> Result<Vec<u8>, PacketError> {
    const REDIRECT: u8 = 5;
    const FOR_HOST: u8 = 1;
    let quoted = sent.get(..sent.len().min(500)).unwrap_or_default();
    let mut out = Vec::new();
    ip(source.into(), destination.into(), 1)?
        .icmpv4_raw(REDIRECT, FOR_HOST, gateway.octets())
        .write(&mut out, quoted)?;
    Ok(out)
}

/// Appends an echo reply without a request, which every stack ignores silently.
pub(crate) fn build_marker(
    source: IpAddr,
    destination: IpAddr,
    id: u32,
    out: &mut Vec<u8>,
) -> Result<(), PacketError> {
    let packet = ip(source, destination, id)?;
    let number = numbered(id);
    if destination.is_ipv6() {
        packet.icmpv6_echo_reply(0, 1).write(out, &number)?;
    } else {
        packet.icmpv4_echo_reply(0, 1).write(out, &number)?;
    }
    Ok(())
}

/// Makes a UDP datagram of any length. Its payload begins with the number, as a probe's does.
pub fn datagram(spec: &ProbeSpec, length: usize) -> Result<Vec<u8>, PacketError> {
    let mut payload = numbered(spec.id).to_vec();
    payload.resize(length.max(payload.len()), b'.');
    let port = spec.carried.port().unwrap_or_default();
    let mut out = Vec::new();
    ip(spec.source, spec.destination, spec.id)?
        .udp(spec.source_port, port)
        .write(&mut out, &payload)?;
    Ok(out)
}

/// Starts a packet with its IP header.
pub(crate) fn ip(
    source: IpAddr,
    destination: IpAddr,
    id: u32,
) -> Result<PacketBuilderStep<IpHeaders>, PacketError> {
    let headers = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => IpHeaders::Ipv4(
            Ipv4Header {
                time_to_live: HOPS,
                source: source.octets(),
                destination: destination.octets(),
                // Only fragments need it. The low half of the number distinguishes packets.
                identification: id as u16,
                dont_fragment: false,
                ..Ipv4Header::default()
            },
            Ipv4Extensions::default(),
        ),
        (IpAddr::V6(source), IpAddr::V6(destination)) => IpHeaders::Ipv6(
            Ipv6Header {
                hop_limit: HOPS,
                source: source.octets(),
                destination: destination.octets(),
                ..Ipv6Header::default()
            },
            Ipv6Extensions::default(),
        ),
        (from, to) => return Err(PacketError::Families { from, to }),
    };
    Ok(PacketBuilder::ip(headers))
}

/// Returns a number in the form of payloads.
fn numbered(id: u32) -> [u8; 8] {
    let [a, b, c, d] = MARK;
    let [e, f, g, h] = id.to_be_bytes();
    [a, b, c, d, e, f, g, h]
}

/// Returns the first four bytes after the checksum, and the bytes before the number.
fn icmpv6_body(kind: u8, identifier: u16, destination: Ipv6Addr) -> ([u8; 4], Vec<u8>) {
    const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let [high, low] = identifier.to_be_bytes();
    match kind {
        128 => ([high, low, 0, 1], Vec::new()),
        // Listener query, report and done: a group.
        130..=132 => ([0; 4], ALL_NODES.octets().to_vec()),
        // Router advertisement: hop limit, then lifetimes of zero.
        134 => ([HOPS, 0, 0, 0], vec![0; 8]),
        // Neighbor solicitation and advertisement: the target.
        135 | 136 => ([0; 4], destination.octets().to_vec()),
        // Redirect: the target, and the destination.
        137 => (
            [0; 4],
            [destination.octets(), destination.octets()].concat(),
        ),
        // Others, such as router solicitation (133) and a listener report without groups (143).
        _ => ([0; 4], Vec::new()),
    }
}

/// Returns the first packet of an association: the common header and an INIT chunk.
fn sctp_init(source_port: u16, port: u16, id: u32) -> Vec<u8> {
    // etherparse does not know SCTP. The checksum is CRC32c, sent with its lowest byte first (RFC
    // 9260).
    let mut bytes = Vec::with_capacity(32);
    bytes.extend(source_port.to_be_bytes());
    bytes.extend(port.to_be_bytes());
    // An INIT has no verification tag yet, and the checksum is computed over zeros.
    bytes.extend([0; 8]);
    // Chunk: INIT, no flags, 20 bytes.
    bytes.extend([1, 0, 0, 20]);
    bytes.extend(id.to_be_bytes());
    bytes.extend(65_535_u32.to_be_bytes());
    bytes.extend([0, 1, 0, 1]);
    bytes.extend(id.to_be_bytes());
    let checksum = crc32c::crc32c(&bytes);
    if let Some(field) = bytes.get_mut(8..12) {
        field.copy_from_slice(&checksum.to_le_bytes());
    }
    bytes
}

/// Returns the bytes that must come first in a protocol for a well-formed packet. Connection
/// tracking, and readers of extension headers, look into it.
fn lead(protocol: u8, ipv6: bool) -> Result<&'static [u8], PacketError> {
    match protocol {
        0 | 43 | 44 | 60 => Err(PacketError::Protocol(protocol, "it is a part of IP itself")),
        1 | 6 | 17 | 58 | 132 => Err(PacketError::Protocol(protocol, "it has a form of its own")),
        33 | 136 => Err(PacketError::Protocol(
            protocol,
            "connection tracking would find it malformed",
        )),
        255 => Err(PacketError::Protocol(protocol, "it is reserved")),
        // GRE: no flags, version 0, carries nothing known.
        47 => Ok(&[0; 4]),
        // Authentication header of 16 bytes before an experimental protocol. With nothing behind
        // it, connection tracking would refuse the packet.
        51 => Ok(&[253, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]),
        // Mobility and two more are headers of 8 bytes, before the same.
        135 | 139 | 140 if ipv6 => Ok(&[253, 0, 0, 0, 0, 0, 0, 0]),
        _ => Ok(&[]),
    }
}

#[cfg(test)]
mod tests;
