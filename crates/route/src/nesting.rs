//! How deep a message is nested, before it is read.
//!
//! The library that reads messages follows a way inside of a way, and the other end of a link inside of another end, by
//! recursion and without a limit: 64 KB that no kernel writes would end the process. Neither is ever nested twice.

/// The kinds of messages that are read.
const NEW_LINK: u16 = 16;
const NEW_ROUTE: u16 = 24;

/// The bytes before the attributes of a link, of a route, and of one of several ways.
const LINK: usize = 16;
const ROUTE: usize = 12;
const WAY: usize = 8;

/// A link: what it is; in there its settings; and in there, for pairs, the link at the other end.
const LINK_INFO: u16 = 18;
const LINK_DATA: u16 = 2;
const PEER: u16 = 1;

/// A route: its several ways.
const WAYS: u16 = 9;

/// Whether a message of a kind, without its header, is nested deeper than the kernel does.
pub(crate) fn is_too_deep(kind: u16, body: &[u8]) -> bool {
    match kind {
        NEW_LINK => peers(body).any(|peer| peers(peer).next().is_some()),
        NEW_ROUTE => inside(attributes(after_header(body, ROUTE)), WAYS)
            .flat_map(ways)
            .any(|way| {
                inside(attributes(after_header(way, WAY)), WAYS)
                    .next()
                    .is_some()
            }),
        _ => false,
    }
}

/// The links at the other end of a link.
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

/// The attributes in some bytes, up to where they make no sense.
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

/// Each of several ways with its header, up to where they make no sense.
fn ways(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(half(rest, 0)?);
        let way = rest.get(..length).filter(|it| it.len() >= WAY)?;
        rest = after_header(rest, length);
        Some(way)
    })
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_ne_bytes(*two))
}
