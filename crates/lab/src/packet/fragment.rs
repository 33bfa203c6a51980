//! Splits a packet into fragments, as a sender with a smaller link would.

use etherparse::{IpFragOffset, Ipv4Header, Ipv6FragmentHeader, Ipv6Header};

use crate::packet::PacketError;

/// Splits a whole IP packet into pieces of at most `limit` bytes. The identification distinguishes
/// them from the pieces of other packets between the same two addresses.
pub fn split(
    packet: &[u8],
    limit: usize,
    identification: u32,
) -> Result<Vec<Vec<u8>>, PacketError> {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => {
            let (header, payload) =
                Ipv4Header::from_slice(packet).map_err(|_| PacketError::Unfragmentable)?;
            split_ipv4(&header, payload, limit, identification)
        }
        Some(6) => {
            let (header, payload) =
                Ipv6Header::from_slice(packet).map_err(|_| PacketError::Unfragmentable)?;
            split_ipv6(&header, payload, limit, identification)
        }
        _ => Err(PacketError::Unfragmentable),
    }
}

fn split_ipv4(
    whole: &Ipv4Header,
    payload: &[u8],
    limit: usize,
    identification: u32,
) -> Result<Vec<Vec<u8>>, PacketError> {
    let mut pieces = Vec::new();
    for piece in cut(payload, limit, whole.header_len())? {
        let mut header = whole.clone();
        header.identification = identification as u16;
        header.fragment_offset = piece.offset;
        header.more_fragments = piece.more;
        header.dont_fragment = false;
        header
            .set_payload_len(piece.bytes.len())
            .map_err(|error| PacketError::TooLong(error.to_string()))?;
        let mut out = Vec::new();
        // `write` computes the checksum.
        header.write(&mut out)?;
        out.extend_from_slice(piece.bytes);
        pieces.push(out);
    }
    Ok(pieces)
}

fn split_ipv6(
    whole: &Ipv6Header,
    payload: &[u8],
    limit: usize,
    identification: u32,
) -> Result<Vec<Vec<u8>>, PacketError> {
    let mut pieces = Vec::new();
    let headers = Ipv6Header::LEN + Ipv6FragmentHeader::LEN;
    for piece in cut(payload, limit, headers)? {
        let mut header = whole.clone();
        header.next_header = etherparse::IpNumber::IPV6_FRAGMENTATION_HEADER;
        header
            .set_payload_length(Ipv6FragmentHeader::LEN + piece.bytes.len())
            .map_err(|error| PacketError::TooLong(error.to_string()))?;
        let fragment = Ipv6FragmentHeader {
            next_header: whole.next_header,
            fragment_offset: piece.offset,
            more_fragments: piece.more,
            identification,
        };
        let mut out = header.to_bytes().to_vec();
        out.extend_from_slice(&fragment.to_bytes());
        out.extend_from_slice(piece.bytes);
        pieces.push(out);
    }
    Ok(pieces)
}

struct FragmentPart<'a> {
    bytes: &'a [u8],
    offset: IpFragOffset,
    more: bool,
}

/// Splits a payload. All pieces but the last have a multiple of 8 bytes, since offsets are in units
/// of 8.
fn cut(payload: &[u8], limit: usize, headers: usize) -> Result<Vec<FragmentPart<'_>>, PacketError> {
    let eights = limit.saturating_sub(headers) / 8;
    if eights == 0 {
        return Err(PacketError::Unfragmentable);
    }
    let count = payload.len().div_ceil(eights * 8);
    payload
        .chunks(eights * 8)
        .enumerate()
        .map(|(index, bytes)| {
            let offset = u16::try_from(index * eights)
                .ok()
                .and_then(|offset| IpFragOffset::try_new(offset).ok())
                .ok_or_else(|| PacketError::TooLong("an offset exceeds 65,528".to_owned()))?;
            Ok(FragmentPart {
                bytes,
                offset,
                more: index + 1 < count,
            })
        })
        .collect()
}
