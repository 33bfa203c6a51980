//! The nesting depth of a message, checked before it is parsed.
//!
//! The parser of the library recurses without a limit into next hops inside of next hops, and into
//! the peer of a link inside of a peer: 64 KB that no kernel writes would end the process. Kernels
//! never nest either of them twice.

/// The types of messages that are parsed.
const NEW_LINK: u16 = 16;
const NEW_ROUTE: u16 = 24;

/// The lengths of the headers before the attributes of a link, of a route, and of one of several
/// next hops.
const LINK: usize = 16;
const ROUTE: usize = 12;
const NEXT_HOP: usize = 8;

/// A link: its kind; inside, its settings; inside, for pairs, the peer link.
const LINK_INFO: u16 = 18;
const LINK_DATA: u16 = 2;
const PEER: u16 = 1;

/// A route: its next hops.
const MULTIPATH: u16 = 9;

/// Returns whether a message of a type, without its header, is nested deeper than the kernel does.
pub(crate) fn is_too_deep(kind: u16, payload: &[u8]) -> bool {
    match kind {
        NEW_LINK => peers(payload).any(|peer| peers(peer).next().is_some()),
        NEW_ROUTE => inside(attributes(after_header(payload, ROUTE)), MULTIPATH)
            .flat_map(next_hops)
            .any(|hop| {
                inside(attributes(after_header(hop, NEXT_HOP)), MULTIPATH)
                    .next()
                    .is_some()
            }),
        _ => false,
    }
}

/// Returns the peers of a link.
fn peers(link: &[u8]) -> impl Iterator<Item = &[u8]> {
    let infos = inside(attributes(after_header(link, LINK)), LINK_INFO);
    let data = infos.flat_map(|info| inside(attributes(info), LINK_DATA));
    data.flat_map(|data| inside(attributes(data), PEER))
}

fn after_header(bytes: &[u8], header: usize) -> &[u8] {
    bytes.get(header..).unwrap_or_default()
}

fn inside<'b>(
    attributes: impl Iterator<Item = (u16, &'b [u8])>,
    kind: u16,
) -> impl Iterator<Item = &'b [u8]> {
    attributes.filter_map(move |(found, value)| (found == kind).then_some(value))
}

/// Returns the attributes in some bytes, up to the first malformed one.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const TYPE: u16 = 0x3fff;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(half(rest, 0)?);
        let kind = half(rest, 2)? & TYPE;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Returns the next hops with their headers, up to the first malformed one.
fn next_hops(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(half(rest, 0)?);
        let hop = rest.get(..length).filter(|it| it.len() >= NEXT_HOP)?;
        rest = after_header(rest, length);
        Some(hop)
    })
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_ne_bytes(*two))
}
