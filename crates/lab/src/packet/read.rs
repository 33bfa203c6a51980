//! Reads received packets: the probe that a packet is, or the one that it replies to.
//!
//! No reader fails on malformed bytes: an unreadable packet is no probe.

use std::net::IpAddr;

use etherparse::{IpNumber, Ipv6ExtensionSlice, LaxIpSlice, TcpHeaderSlice, UdpHeaderSlice};

use crate::packet::MARK;
use crate::packet::segment::{ACK, FIN, PSH, RST, SYN};

/// A received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedPacket {
    /// Its source address.
    pub source: IpAddr,
    /// Its destination address.
    pub destination: IpAddr,
    /// The number of the probe that it is, answers or quotes.
    pub id: Option<u32>,
    /// The kind of packet.
    pub kind: PacketKind,
    /// The source and destination port. Of an ICMP error they are those of the quoted packet.
    pub ports: Option<(u16, u16)>,
    /// The part of its packet, if it is a fragment.
    pub fragment: Option<Fragment>,
}

/// The kind of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// A probe of the lab, of this IP protocol.
    Probe(u8),
    /// A TCP segment that is neither a probe nor an answer to one, with its flags.
    Segment(u8),
    /// TCP: the port is closed.
    Reset,
    /// TCP: the port is open.
    SynAck,
    /// An answer to an echo request.
    EchoReply,
    /// SCTP: an association was accepted or refused.
    SctpAnswer,
    /// An ICMP error that quotes a packet.
    Error(IcmpReason),
    /// A fragment that is not the first one, which alone has the headers.
    LaterFragment,
    /// Any other packet.
    Unknown,
}

impl PacketKind {
    /// Reports whether the lab sends such packets itself, and not in answer to others.
    pub fn is_own(self) -> bool {
        matches!(self, PacketKind::Probe(_) | PacketKind::Segment(_))
    }
}

/// The reason of an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpReason {
    /// The port is closed.
    PortUnreachable,
    /// The host does not know the protocol.
    ProtocolUnreachable,
    /// An administrator prohibits it.
    Prohibited,
    /// There is no route.
    Unreachable,
    /// The packet is too long for a link.
    TooBig,
    /// The hop limit was reached, or a fragment was missing.
    TimeExceeded,
    /// Another reason.
    Other,
}

/// The part of a packet that a fragment has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The identification that the fragments of one packet share.
    pub identification: u32,
    /// The offset in the packet, in bytes.
    pub offset: u32,
    /// Whether more follow.
    pub more: bool,
}

/// Reads a packet that begins with its IP header.
pub fn read(packet: &[u8]) -> Option<ReceivedPacket> {
    read_at_depth(packet, 0)
}

/// Reads the payload of an IPv6 packet, for sockets that do not return its header.
pub(crate) fn read_carried(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    payload: &[u8],
) -> ReceivedPacket {
    let carried = carried(IpNumber(protocol), payload, source.is_ipv6(), 0);
    received(source, destination, carried, None)
}

/// The contents after the IP header.
#[derive(Clone, Copy)]
struct Inside {
    id: Option<u32>,
    kind: PacketKind,
    ports: Option<(u16, u16)>,
}

impl Inside {
    fn new(kind: PacketKind, id: Option<u32>, ports: Option<(u16, u16)>) -> Inside {
        Inside { id, kind, ports }
    }

    /// Makes a probe if there is a number, and otherwise an unknown packet.
    fn probe(protocol: IpNumber, id: Option<u32>, ports: Option<(u16, u16)>) -> Inside {
        let kind = id.map_or(PacketKind::Unknown, |_| PacketKind::Probe(protocol.0));
        Inside { id, kind, ports }
    }
}

fn received(
    source: IpAddr,
    destination: IpAddr,
    inside: Inside,
    fragment: Option<Fragment>,
) -> ReceivedPacket {
    ReceivedPacket {
        source,
        destination,
        id: inside.id,
        kind: inside.kind,
        ports: inside.ports,
        fragment,
    }
}

/// Reads a packet at a depth of quotation.
fn read_at_depth(packet: &[u8], depth: u8) -> Option<ReceivedPacket> {
    // An ICMP error quotes a packet, and a quoted error quotes none: the depth is at most 1.
    let (slice, _) = LaxIpSlice::from_slice(packet).ok()?;
    let fragment = fragment_of(&slice);
    let payload = slice.payload();
    let inside = if fragment.is_some_and(|fragment| fragment.offset > 0) {
        Inside::new(PacketKind::LaterFragment, None, None)
    } else {
        let ipv6 = slice.ipv6().is_some();
        carried(payload.ip_number, payload.payload, ipv6, depth)
    };
    Some(received(
        slice.source_addr(),
        slice.destination_addr(),
        inside,
        fragment,
    ))
}

fn fragment_of(slice: &LaxIpSlice<'_>) -> Option<Fragment> {
    if !slice.is_fragmenting_payload() {
        return None;
    }
    if let Some(ipv4) = slice.ipv4() {
        let header = ipv4.header();
        return Some(Fragment {
            identification: header.identification().into(),
            offset: u32::from(header.fragments_offset().value()) * 8,
            more: header.more_fragments(),
        });
    }
    let extensions = slice.ipv6()?.extensions().clone();
    extensions.into_iter().find_map(|extension| {
        if let Ipv6ExtensionSlice::Fragment(fragment) = extension {
            Some(Fragment {
                identification: fragment.identification(),
                offset: u32::from(fragment.fragment_offset().value()) * 8,
                more: fragment.more_fragments(),
            })
        } else {
            None
        }
    })
}

fn carried(protocol: IpNumber, payload: &[u8], ipv6: bool, depth: u8) -> Inside {
    let unknown = Inside::new(PacketKind::Unknown, None, None);
    match protocol {
        IpNumber::TCP => tcp(payload).unwrap_or(unknown),
        IpNumber::UDP => match UdpHeaderSlice::from_slice(payload) {
            Ok(header) => Inside::probe(
                protocol,
                payload.get(8..).and_then(number_at_start),
                Some((header.source_port(), header.destination_port())),
            ),
            Err(_) => unknown,
        },
        IpNumber::SCTP => sctp(payload).unwrap_or(unknown),
        IpNumber::ICMP if !ipv6 => icmp(payload, depth).unwrap_or(unknown),
        IpNumber::IPV6_ICMP if ipv6 => icmpv6(payload, depth).unwrap_or(unknown),
        _ => Inside::probe(protocol, number_anywhere(payload), None),
    }
}

fn tcp(payload: &[u8]) -> Option<Inside> {
    // An ICMP error may quote as little as the ports and the sequence number of a segment.
    let Ok(header) = TcpHeaderSlice::from_slice(payload) else {
        let ports = ports(payload)?;
        let id = word(payload, 4)?;
        return Some(Inside::new(
            PacketKind::Probe(IpNumber::TCP.0),
            Some(id),
            Some(ports),
        ));
    };
    let ports = Some((header.source_port(), header.destination_port()));
    let flags = [
        (header.fin(), FIN),
        (header.syn(), SYN),
        (header.rst(), RST),
        (header.psh(), PSH),
        (header.ack(), ACK),
    ]
    .into_iter()
    .filter_map(|(set, flag)| set.then_some(flag))
    .sum();
    // A SYN counts as one byte of the sequence.
    let acknowledged = Some(header.acknowledgment_number().wrapping_sub(1));
    Some(if flags == SYN {
        let id = Some(header.sequence_number());
        Inside::new(PacketKind::Probe(IpNumber::TCP.0), id, ports)
    } else if flags == SYN | ACK {
        Inside::new(PacketKind::SynAck, acknowledged, ports)
    } else if flags == RST | ACK {
        Inside::new(PacketKind::Reset, acknowledged, ports)
    } else if flags == RST {
        Inside::new(PacketKind::Reset, None, ports)
    } else {
        Inside::new(
            PacketKind::Segment(flags),
            Some(header.sequence_number()),
            ports,
        )
    })
}

fn sctp(payload: &[u8]) -> Option<Inside> {
    let ports = Some(ports(payload)?);
    let tag = word(payload, 4)?;
    let protocol = IpNumber::SCTP;
    Some(match payload.get(12).copied() {
        // INIT: the tag that its answer must have.
        Some(1) => Inside::probe(protocol, word(payload, 16), ports),
        // INIT ACK and ABORT have that tag.
        Some(2 | 6) => Inside::new(PacketKind::SctpAnswer, Some(tag), ports),
        _ => Inside::new(PacketKind::Unknown, None, ports),
    })
}

fn icmp(payload: &[u8], depth: u8) -> Option<Inside> {
    let kind = *payload.first()?;
    let code = *payload.get(1)?;
    let rest = payload.get(8..)?;
    Some(match kind {
        8 => Inside::probe(IpNumber::ICMP, number_at_start(rest), None),
        0 => Inside::new(PacketKind::EchoReply, number_at_start(rest), None),
        // Redirects (5) quote a packet as errors do.
        3 | 5 | 11 | 12 => error(
            match (kind, code) {
                (3, 2) => IcmpReason::ProtocolUnreachable,
                (3, 3) => IcmpReason::PortUnreachable,
                (3, 4) => IcmpReason::TooBig,
                (3, 9 | 10 | 13) => IcmpReason::Prohibited,
                (3, _) => IcmpReason::Unreachable,
                (11, _) => IcmpReason::TimeExceeded,
                _ => IcmpReason::Other,
            },
            rest,
            depth,
        ),
        _ => Inside::new(PacketKind::Unknown, None, None),
    })
}

fn icmpv6(payload: &[u8], depth: u8) -> Option<Inside> {
    let kind = *payload.first()?;
    let code = *payload.get(1)?;
    let rest = payload.get(8..).unwrap_or_default();
    let at_end = payload
        .len()
        .checked_sub(8)
        .and_then(|start| payload.get(start..))
        .and_then(number_at_start);
    Some(match kind {
        129 => Inside::new(PacketKind::EchoReply, number_at_start(rest), None),
        // The lab's own messages of these types quote nothing.
        1..=4 if number_at_start(rest).is_none() => error(
            match (kind, code) {
                (1, 4) => IcmpReason::PortUnreachable,
                (1, 1 | 5 | 6) => IcmpReason::Prohibited,
                (1, _) => IcmpReason::Unreachable,
                (2, _) => IcmpReason::TooBig,
                (3, _) => IcmpReason::TimeExceeded,
                (4, 1) => IcmpReason::ProtocolUnreachable,
                _ => IcmpReason::Other,
            },
            rest,
            depth,
        ),
        _ => Inside::probe(IpNumber::IPV6_ICMP, at_end, None),
    })
}

fn error(reason: IcmpReason, quoted: &[u8], depth: u8) -> Inside {
    let packet = if depth == 0 {
        read_at_depth(quoted, depth + 1)
    } else {
        None
    };
    let id = packet
        .filter(|packet| packet.kind.is_own())
        .and_then(|packet| packet.id);
    Inside::new(
        PacketKind::Error(reason),
        id,
        packet.and_then(|packet| packet.ports),
    )
}

fn ports(payload: &[u8]) -> Option<(u16, u16)> {
    let word = word(payload, 0)?;
    Some(((word >> 16) as u16, word as u16))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_be_bytes(word))
}

fn number_at_start(bytes: &[u8]) -> Option<u32> {
    if bytes.starts_with(&MARK) {
        word(bytes, 4)
    } else {
        None
    }
}

/// Finds a number. Some protocols have a short header of their own before it.
fn number_anywhere(bytes: &[u8]) -> Option<u32> {
    (0..=16)
        .step_by(4)
        .find_map(|start| bytes.get(start..).and_then(number_at_start))
}
