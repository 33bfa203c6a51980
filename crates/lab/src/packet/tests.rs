//! Every kind of probe, written and read back.

use std::net::Ipv4Addr;

use super::fragment::split;
use super::read::{IcmpReason, PacketKind, ReceivedPacket, read};
use super::segment::{ACK, PSH, Segment};
use super::{PacketError, ProbePayload, ProbeSpec, build, datagram, redirect};

const KINDS: [ProbePayload; 6] = [
    ProbePayload::Tcp { port: 80 },
    ProbePayload::Udp { port: 53 },
    ProbePayload::Sctp { port: 3868 },
    ProbePayload::Echo,
    ProbePayload::Other { protocol: 47 },
    ProbePayload::Other { protocol: 51 },
];

fn draft(carried: ProbePayload, ipv6: bool) -> ProbeSpec {
    let [source, destination] = if ipv6 {
        ["fd00::1", "fd00::2"]
    } else {
        ["10.0.0.1", "10.0.0.2"]
    };
    ProbeSpec {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        carried,
        source_port: 40_000,
        id: 0xdead_beef,
    }
}

fn bytes(draft: &ProbeSpec) -> Vec<u8> {
    let mut out = Vec::new();
    build(draft, &mut out).unwrap();
    out
}

#[track_caller]
fn check(draft: &ProbeSpec) -> ReceivedPacket {
    let seen = read(&bytes(draft)).unwrap();
    assert_eq!(seen.source, draft.source);
    assert_eq!(seen.destination, draft.destination);
    assert_eq!(seen.id, Some(draft.id), "{draft:?}");
    assert!(matches!(seen.kind, PacketKind::Probe(_)), "{seen:?}");
    assert_eq!(
        seen.ports,
        draft.carried.port().map(|port| (draft.source_port, port))
    );
    seen
}

#[test]
fn a_probe_survives_encoding() {
    for ipv6 in [false, true] {
        for carried in KINDS {
            check(&draft(carried, ipv6));
        }
    }
    for kind in 0..=255 {
        if kind != 129 {
            check(&draft(ProbePayload::Icmpv6 { kind }, true));
        }
    }
    for protocol in 0..=255 {
        for ipv6 in [false, true] {
            let draft = draft(ProbePayload::Other { protocol }, ipv6);
            if build(&draft, &mut Vec::new()).is_ok() {
                check(&draft);
            }
        }
    }
}

#[test]
fn an_error_names_the_probe_that_it_quotes() {
    for ipv6 in [false, true] {
        for carried in KINDS {
            let probe = draft(carried, ipv6);
            let quoted = bytes(&probe);
            let mut out = Vec::new();
            let packet = super::ip(probe.destination, probe.source, 1).unwrap();
            if ipv6 {
                packet
                    .icmpv6_raw(1, 4, [0; 4])
                    .write(&mut out, &quoted)
                    .unwrap();
            } else {
                packet
                    .icmpv4_raw(3, 3, [0; 4])
                    .write(&mut out, &quoted)
                    .unwrap();
            }
            let seen = read(&out).unwrap();
            assert_eq!(seen.kind, PacketKind::Error(IcmpReason::PortUnreachable));
            assert_eq!(seen.id, Some(probe.id), "{carried:?}");
            assert_eq!(seen.source, probe.destination);
        }
    }
}

#[test]
fn any_packet_that_arrives_is_handled() {
    let packets: Vec<Vec<u8>> = [false, true]
        .into_iter()
        .flat_map(|ipv6| KINDS.map(|carried| bytes(&draft(carried, ipv6))))
        .collect();
    let mut random: u32 = 1;
    for packet in &packets {
        for length in 0..packet.len() {
            let _ = read(&packet[..length]);
        }
        for _ in 0..2_000 {
            let mut changed = packet.clone();
            for _ in 0..3 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let place = (random >> 8) as usize % changed.len();
                changed[place] = (random >> 24) as u8;
            }
            let _ = read(&changed);
        }
    }
    assert_eq!(read(&[]), None);
}

#[test]
fn packets_that_cannot_be_sent_are_refused() {
    let mut mixed = draft(ProbePayload::Echo, false);
    mixed.destination = "fd00::2".parse().unwrap();
    assert!(matches!(
        build(&mixed, &mut Vec::new()),
        Err(PacketError::Families { .. })
    ));
    let over = draft(ProbePayload::Icmpv6 { kind: 135 }, false);
    assert!(matches!(
        build(&over, &mut Vec::new()),
        Err(PacketError::Icmpv6OverIpv4)
    ));
    let tcp = draft(ProbePayload::Other { protocol: 6 }, false);
    assert!(matches!(
        build(&tcp, &mut Vec::new()),
        Err(PacketError::Protocol(6, _))
    ));
}

#[test]
fn fragments_are_the_whole_in_pieces() {
    for ipv6 in [false, true] {
        let headers = if ipv6 { 48 } else { 20 };
        let draft = draft(ProbePayload::Udp { port: 53 }, ipv6);
        let whole = datagram(&draft, 3_000).unwrap();
        let pieces = split(&whole, 1_300, 77).unwrap();
        assert_eq!(pieces.len(), 3);
        let mut joined = Vec::new();
        for (index, piece) in pieces.iter().enumerate() {
            assert!(piece.len() <= 1_300);
            let seen = read(piece).unwrap();
            let fragment = seen.fragment.unwrap();
            assert_eq!(fragment.identification, 77);
            assert_eq!(fragment.offset as usize, joined.len());
            assert_eq!(fragment.more, index < 2);
            if index == 0 {
                assert_eq!(seen.id, Some(draft.id));
                assert_eq!(seen.ports, Some((40_000, 53)));
            } else {
                assert_eq!((seen.id, seen.kind), (None, PacketKind::LaterFragment));
            }
            joined.extend_from_slice(&piece[headers..]);
        }
        assert_eq!(joined, whole[if ipv6 { 40 } else { 20 }..]);
    }
}

#[test]
fn a_segment_in_mid_stream_is_no_probe() {
    let segment = Segment {
        source: "10.0.0.1:40000".parse().unwrap(),
        destination: "10.0.0.2:80".parse().unwrap(),
        flags: PSH | ACK,
        sequence: 5,
        acknowledgment: 6,
        data: b"hello",
    };
    let seen = read(&segment.build().unwrap()).unwrap();
    assert_eq!(seen.kind, PacketKind::Segment(PSH | ACK));
    assert_eq!(seen.id, Some(5));
    assert_eq!(seen.ports, Some((40_000, 80)));
}

#[test]
fn a_redirect_quotes_its_packet() {
    let mut about = Vec::new();
    build(&draft(ProbePayload::Udp { port: 53 }, false), &mut about).unwrap();
    let id = read(&about).unwrap().id;
    assert!(id.is_some());
    let [from, to, by] = [1, 2, 3].map(|last| Ipv4Addr::new(10, 0, 0, last));
    let packet = redirect(from, to, by, &about).unwrap();
    // RFC 792: type 5, code 1 for a host, and the gateway after the checksum.
    assert_eq!(packet[20..22], [5, 1]);
    assert_eq!(packet[24..28], by.octets());
    let seen = read(&packet).unwrap();
    assert_eq!(
        (seen.kind, seen.id),
        (PacketKind::Error(IcmpReason::Other), id)
    );
}

/// The value is from RFC 3720, appendix B.4: 32 bytes of zeros.
#[test]
fn the_checksum_of_sctp_is_crc32c() {
    assert_eq!(
        crc32c::crc32c(&[0; 32]).to_le_bytes(),
        [0xaa, 0x36, 0x91, 0x8a]
    );
}
