//! Packets as bytes: making probes that carry a number, and reading whatever arrives.
//!
//! Every probe carries a number of 32 bits where translation of addresses and ports leaves it alone,
//! so that whoever receives it knows which probe it is: the sequence number of TCP, the initiate tag
//! of SCTP, and a marked place in the payload of everything else. Answers name it again: a reset
//! acknowledges the sequence number, an echo reply repeats the payload, and an ICMP error quotes the
//! packet it is about. Checksums are always right, since connection tracking looks at them.

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

/// What stands in front of a probe's number in payloads. The first two bytes also make it an option
/// of neighbour discovery (an experimental type, and a length of 8 bytes), so that the messages of
/// that protocol remain well formed with a number at their end.
pub(crate) const MARK: [u8; 4] = [253, 1, 0x50, 0x4c];

/// The time to live of every packet. Neighbour discovery is never believed with it, which is as
/// well: it is only to be seen whether it gets through.
const HOPS: u8 = 64;

/// What a probe carries.
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
    /// Another IP protocol. What it carries means nothing.
    Other {
        /// The protocol's number.
        protocol: u8,
    },
}

impl ProbePayload {
    /// The destination port, if the protocol has ports.
    pub fn port(self) -> Option<u16> {
        match self {
            ProbePayload::Tcp { port }
            | ProbePayload::Udp { port }
            | ProbePayload::Sctp { port } => Some(port),
            ProbePayload::Echo | ProbePayload::Icmpv6 { .. } | ProbePayload::Other { .. } => None,
        }
    }

    /// The number of the IP protocol between addresses of the given family.
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

/// Everything that makes a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// The source address.
    pub source: IpAddr,
    /// The destination address, of the same family.
    pub destination: IpAddr,
    /// What it carries.
    pub carried: ProbePayload,
    /// The source port, or the identifier of an echo request.
    pub source_port: u16,
    /// The probe's number, which is not 0.
    pub id: u32,
}

/// Why a packet cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// IPv4 to IPv6 or the other way round.
    #[error("no packet can go from {from} to {to}: they are of different families")]
    Families {
        /// The source.
        from: IpAddr,
        /// The destination.
        to: IpAddr,
    },
    /// ICMPv6 between IPv4 addresses.
    #[error("ICMPv6 needs IPv6 addresses")]
    Icmpv6OverIpv4,
    /// An echo reply, which would be taken for an answer.
    #[error("an echo reply is an answer and cannot be a probe")]
    EchoReply,
    /// A protocol number that is not for [`ProbePayload::Other`].
    #[error("IP protocol {0} cannot be sent as an unknown protocol: {1}")]
    Protocol(u8, &'static str),
    /// Not a whole packet that can be cut into fragments.
    #[error("only a whole packet without extension headers can be cut into fragments")]
    Unfragmentable,
    /// It does not fit.
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

/// Appends the probe's bytes, from the IP header on.
pub fn build(draft: &ProbeSpec, out: &mut Vec<u8>) -> Result<(), PacketError> {
    let ProbeSpec {
        source_port, id, ..
    } = *draft;
    let ipv6 = draft.destination.is_ipv6();
    let packet = ip(draft.source, draft.destination, id)?;
    let number = numbered(id);
    match draft.carried {
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
            let IpAddr::V6(destination) = draft.destination else {
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

/// The error that nobody listens at a port, about a packet that was sent: a whole IP packet.
pub fn port_unreachable(
    source: IpAddr,
    destination: IpAddr,
    about: &[u8],
) -> Result<Vec<u8>, PacketError> {
    let quoted = about.get(..about.len().min(500)).unwrap_or_default();
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

/// The message that a packet should have gone by another gateway, of IPv4: a whole IP packet.
pub fn redirect(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    gateway: Ipv4Addr,
    about: &[u8],
) -> Result<Vec<u8>, PacketError> {
    const REDIRECT: u8 = 5;
    const FOR_HOST: u8 = 1;
    let quoted = about.get(..about.len().min(500)).unwrap_or_default();
    let mut out = Vec::new();
    ip(source.into(), destination.into(), 1)?
        .icmpv4_raw(REDIRECT, FOR_HOST, gateway.octets())
        .write(&mut out, quoted)?;
    Ok(out)
}

/// Appends an echo reply that nobody asked for, which every stack takes in without a word.
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

/// Makes a UDP datagram of any length whose payload begins with the number, as a probe's does.
pub fn datagram(draft: &ProbeSpec, length: usize) -> Result<Vec<u8>, PacketError> {
    let mut payload = numbered(draft.id).to_vec();
    payload.resize(length.max(payload.len()), b'.');
    let port = draft.carried.port().unwrap_or_default();
    let mut out = Vec::new();
    ip(draft.source, draft.destination, draft.id)?
        .udp(draft.source_port, port)
        .write(&mut out, &payload)?;
    Ok(out)
}

/// The header that every packet begins with.
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
                // Only fragments need it; the low half of the number tells packets apart.
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

/// A number as it stands in payloads.
fn numbered(id: u32) -> [u8; 8] {
    let [a, b, c, d] = MARK;
    let [e, f, g, h] = id.to_be_bytes();
    [a, b, c, d, e, f, g, h]
}

/// The first four bytes after the checksum, and what comes before the number.
fn icmpv6_body(kind: u8, identifier: u16, destination: Ipv6Addr) -> ([u8; 4], Vec<u8>) {
    const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let [high, low] = identifier.to_be_bytes();
    match kind {
        128 => ([high, low, 0, 1], Vec::new()),
        // Listener query, report and done: a group.
        130..=132 => ([0; 4], ALL_NODES.octets().to_vec()),
        // Router advertisement: hops, then how long things may be believed.
        134 => ([HOPS, 0, 0, 0], vec![0; 8]),
        // Neighbour solicitation and advertisement: whom it is about.
        135 | 136 => ([0; 4], destination.octets().to_vec()),
        // Redirect: the better way, and whereto.
        137 => (
            [0; 4],
            [destination.octets(), destination.octets()].concat(),
        ),
        // Among others router solicitation (133) and the report of no groups at all (143).
        _ => ([0; 4], Vec::new()),
    }
}

/// The first packet of an association. etherparse does not know SCTP; this is its common header and
/// an INIT chunk. The checksum is CRC32c, sent with its lowest byte first (RFC 9260).
fn sctp_init(source_port: u16, port: u16, id: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(32);
    bytes.extend(source_port.to_be_bytes());
    bytes.extend(port.to_be_bytes());
    // An INIT has no verification tag yet, and the checksum is taken over zeros.
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

/// What must come first for the packet to be well formed, for protocols which connection tracking or
/// a reader of extension headers looks into.
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
        // Authentication header of 16 bytes before something experimental. (Before nothing at all,
        // connection tracking would not take it.)
        51 => Ok(&[253, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]),
        // Mobility and two more are headers of 8 bytes, the same.
        135 | 139 | 140 if ipv6 => Ok(&[253, 0, 0, 0, 0, 0, 0, 0]),
        _ => Ok(&[]),
    }
}

#[cfg(test)]
mod tests;
