//! Messages of the kernel: tables, connections, notifications, links and routes.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use palisade_nft::load::TABLES;
use palisade_nft::node::MarkBits;
use palisade_nft::reference::{DumpOutcome, answers, connections, notices, tables};
use palisade_route::reference::{answer, list};

/// The bytes are a dump of tables, or notifications of changes. A dump in two buffers equals the
/// dump in one, unless a message is split.
pub fn netfilter(bytes: &[u8]) {
    let [table, _] = TABLES;
    let (parsed, end) = tables(&[bytes], table);
    for name in parsed.ours.iter().map(|it| &it.0) {
        assert!(
            TABLES.contains(&name.as_str()),
            "a table of another program: {name}"
        );
    }
    let rules: usize = parsed.rules.iter().map(|it| it.rules.len()).sum();
    assert_eq!(rules, parsed.steps.len());
    assert!(parsed.counters.len() <= rules);
    let sizes = parsed.elements.iter().map(|it| it.key.len());
    assert!(sizes.sum::<usize>() <= bytes.len(), "more than the input");
    let (messages, is_whole) = lengths(bytes);
    if end == DumpOutcome::Complete {
        // Messages after the end of a dump are ignored.
        let (again, _) = tables(&[bytes, bytes], table);
        assert_eq!(format!("{parsed:?}"), format!("{again:?}"));
    }
    if end == DumpOutcome::Open && !is_whole {
        let (_, end) = tables(&[bytes, &done()], table);
        assert_eq!(
            end,
            DumpOutcome::Again,
            "a dump with a truncated message is complete"
        );
    }
    for at in messages.into_iter().take(8) {
        let (first, second) = bytes.split_at(at);
        let (halves, halves_end) = tables(&[first, second], table);
        assert_eq!(end, halves_end, "the end in pieces differs");
        assert_eq!(
            format!("{parsed:?}"),
            format!("{halves:?}"),
            "the result in pieces differs"
        );
    }

    let (reported, was_whole) = notices(bytes, &[]);
    assert_eq!(was_whole, is_whole);
    assert!(reported.len() <= 64, "more notices than are kept");
    let (foreign, _) = notices(bytes, &[OWN_PORT]);
    assert!(
        foreign.iter().all(|it| reported.contains(it)),
        "own changes are reported"
    );
    answers(bytes);
}

/// The port of the socket in the recorded messages.
const OWN_PORT: u32 = 4_711;

/// The bytes are a dump of connections. The requests that change them are always well-formed.
pub fn conntrack(bytes: &[u8]) {
    let addresses: BTreeSet<IpAddr> = [
        IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::from(Ipv6Addr::LOCALHOST),
        IpAddr::from([10, 1, 0, 1]),
        IpAddr::from(Ipv4Addr::UNSPECIFIED),
    ]
    .into();
    let (parsed, _) = connections(&[bytes], MarkBits::DEFAULT, &addresses);
    assert!(parsed.meant <= parsed.marks.len());
    assert!(
        parsed.count <= parsed.meant,
        "a change of an unselected connection"
    );
    let (changes, is_whole) = lengths(&parsed.changes);
    assert!(
        is_whole && parsed.changes.len() % 4 == 0,
        "a truncated change"
    );
    assert_eq!(changes.len(), parsed.count, "the number of changes differs");
    assert!(
        parsed.changes.len() <= 2 * bytes.len(),
        "more than the input"
    );
}

/// The bytes are a dump of links and routes.
pub fn route(bytes: &[u8]) {
    let parsed = list(&[bytes]).ok().flatten();
    if let Some(parsed) = &parsed {
        let again = list(&[bytes, bytes]).ok().flatten();
        assert_eq!(
            format!("{parsed:?}"),
            format!("{:?}", again.unwrap_or_default())
        );
        assert!(parsed.interfaces.len() + parsed.routes.len() <= bytes.len() / 16);
    }
    if let Ok(Some(parsed)) = answer(bytes) {
        assert!(parsed.interfaces.len() + parsed.routes.len() <= 1);
    }
}

/// The ends of messages by their lengths, and whether the last one is complete.
fn lengths(bytes: &[u8]) -> (Vec<usize>, bool) {
    let mut ends = Vec::new();
    let mut at = 0;
    while let Some(length) = bytes.get(at..).and_then(|it| it.first_chunk::<4>()) {
        let length = u32::from_ne_bytes(*length) as usize;
        if length < 16 || length > bytes.len() - at {
            return (ends, false);
        }
        at = (at + length.next_multiple_of(4)).min(bytes.len());
        ends.push(at);
    }
    (ends, at == bytes.len())
}

/// The end of a dump.
fn done() -> Vec<u8> {
    let head = [&20_u32.to_ne_bytes()[..], &3_u16.to_ne_bytes()];
    let mut bytes = head.concat();
    bytes.resize(20, 0);
    bytes
}
