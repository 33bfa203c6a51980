//! Messages of the kernel: tables, connections, notices, links and routes.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use palisade_nft::load::TABLES;
use palisade_nft::node::MarkBits;
use palisade_nft::reference::{DumpOutcome, answers, connections, notices, tables};
use palisade_route::reference::{answer, list};

/// The bytes are an answer in pieces about tables, or what somebody did to them. A socket has one
/// piece at a time, so that two pieces say what they say as one, unless a message was cut.
pub fn netfilter(bytes: &[u8]) {
    let [table, _] = TABLES;
    let (told, end) = tables(&[bytes], table);
    for name in told.ours.iter().map(|it| &it.0) {
        assert!(TABLES.contains(&name.as_str()), "not our table: {name}");
    }
    let rules: usize = told.rules.iter().map(|it| it.rules.len()).sum();
    assert_eq!(rules, told.steps.len());
    assert!(told.counters.len() <= rules);
    let sizes = told.elements.iter().map(|it| it.key.len());
    assert!(sizes.sum::<usize>() <= bytes.len(), "more than was said");
    let (messages, is_whole) = lengths(bytes);
    if end == DumpOutcome::Complete {
        // What is behind the end of an answer is not part of it.
        let (again, _) = tables(&[bytes, bytes], table);
        assert_eq!(format!("{told:?}"), format!("{again:?}"));
    }
    if end == DumpOutcome::Open && !is_whole {
        let (_, end) = tables(&[bytes, &done()], table);
        assert_eq!(
            end,
            DumpOutcome::Again,
            "an answer with a broken message is complete"
        );
    }
    for at in messages.into_iter().take(8) {
        let (first, second) = bytes.split_at(at);
        let (halves, halves_end) = tables(&[first, second], table);
        assert_eq!(end, halves_end, "another end in pieces");
        assert_eq!(
            format!("{told:?}"),
            format!("{halves:?}"),
            "another answer in pieces"
        );
    }

    let (heard, was_whole) = notices(bytes, &[]);
    assert_eq!(was_whole, is_whole);
    assert!(heard.len() <= 64, "more notices than are kept");
    let (others, _) = notices(bytes, &[OWN_PORT]);
    assert!(
        others.iter().all(|it| heard.contains(it)),
        "own changes are heard"
    );
    answers(bytes);
}

/// The address of the socket that the recorded messages answer.
const OWN_PORT: u32 = 4_711;

/// The bytes are an answer in pieces about connections. What is sent to change them is well-formed
/// whatever was told.
pub fn conntrack(bytes: &[u8]) {
    let addresses: BTreeSet<IpAddr> = [
        IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::from(Ipv6Addr::LOCALHOST),
        IpAddr::from([10, 1, 0, 1]),
        IpAddr::from(Ipv4Addr::UNSPECIFIED),
    ]
    .into();
    let (told, _) = connections(&[bytes], MarkBits::DEFAULT, &addresses);
    assert!(told.meant <= told.marks.len());
    assert!(told.count <= told.meant, "a change of what is not meant");
    let (changes, is_whole) = lengths(&told.changes);
    assert!(is_whole && told.changes.len() % 4 == 0, "a broken change");
    assert_eq!(changes.len(), told.count, "another number of changes");
    assert!(told.changes.len() <= 2 * bytes.len(), "more than was said");
}

/// The bytes are an answer about links and routes.
pub fn route(bytes: &[u8]) {
    let told = list(&[bytes]).ok().flatten();
    if let Some(told) = &told {
        let again = list(&[bytes, bytes]).ok().flatten();
        assert_eq!(
            format!("{told:?}"),
            format!("{:?}", again.unwrap_or_default())
        );
        assert!(told.interfaces.len() + told.routes.len() <= bytes.len() / 16);
    }
    if let Ok(Some(told)) = answer(bytes) {
        assert!(told.interfaces.len() + told.routes.len() <= 1);
    }
}

/// Where messages end, by their lengths alone, and whether the last of them is whole.
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

/// The end of an answer.
fn done() -> Vec<u8> {
    let head = [&20_u32.to_ne_bytes()[..], &3_u16.to_ne_bytes()];
    let mut bytes = head.concat();
    bytes.resize(20, 0);
    bytes
}
