//! Clearing removes stale marks from connections, and changes nothing else.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use palisade_nft::Conntrack;
use palisade_nft::node::MarkBits;

use crate::Test;

pub(crate) const TESTS: &[Test] = &[
    ("marks::stale_marks_are_cleared", stale_ones),
    ("marks::marks_of_an_address_are_cleared", of_an_address),
    ("marks::there_is_room_to_speak_of", room),
];

/// Adds a UDP connection to the kernel, in either family. Its destination address ends in 2, and
/// the address that replies in `server`.
fn connection(number: u16, is_v6: bool, mark: u32, server: u8) -> Vec<u8> {
    let attribute = |kind: u16, value: &[u8]| {
        let mut bytes = Vec::new();
        bytes.extend((value.len() as u16 + 4).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    const NESTED: u16 = 0x8000;
    let address = |last: u8| {
        let mut bytes = if is_v6 { vec![0xfd; 16] } else { vec![10; 4] };
        *bytes.last_mut().unwrap() = last;
        bytes
    };
    let first = if is_v6 { 3 } else { 1 };
    let tuple = |from: u8, to: u8, ports: [u16; 2]| {
        let ip = [
            attribute(first, &address(from)),
            attribute(first + 1, &address(to)),
        ];
        let proto = [
            attribute(1, &[17]),
            attribute(2, &ports[0].to_be_bytes()),
            attribute(3, &ports[1].to_be_bytes()),
        ];
        [
            attribute(1 | NESTED, &ip.concat()),
            attribute(2 | NESTED, &proto.concat()),
        ]
        .concat()
    };
    let body = [
        attribute(1 | NESTED, &tuple(1, 2, [number, 53])),
        attribute(2 | NESTED, &tuple(server, 1, [53, number])),
        attribute(7, &600u32.to_be_bytes()),
        attribute(8, &mark.to_be_bytes()),
    ]
    .concat();
    let mut bytes = Vec::new();
    bytes.extend((20 + body.len() as u32).to_ne_bytes());
    bytes.extend((1u16 << 8).to_ne_bytes());
    // To be made, not to be there yet.
    bytes.extend(0x601u16.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([if is_v6 { 10 } else { 2 }, 0, 0, 0]);
    bytes.extend(body);
    bytes
}

fn add(connections: impl Iterator<Item = (u16, bool, u32)>) {
    add_behind(2, connections);
}

fn add_behind(server: u8, connections: impl Iterator<Item = (u16, bool, u32)>) {
    let socket = Socket::new(NETLINK_NETFILTER).unwrap();
    let all: Vec<Vec<u8>> = connections
        .map(|(number, is_v6, mark)| connection(number, is_v6, mark, server))
        .collect();
    for some in all.chunks(100) {
        let bytes = some.concat();
        socket.send_to(&bytes, &SocketAddr::new(0, 0), 0).unwrap();
    }
}

fn stale_ones() {
    let bits = MarkBits::DEFAULT;
    let low = MarkBits::new(0xff).unwrap();
    let mut conntrack = Conntrack::open().unwrap();
    // Generations 1 to 10, with other bits set by other programs.
    let mark = |number: u16| u32::from(number % 10 + 1) << 17 | 1 << 16 | 0x22;
    add((1..=2000).map(|number| (number, false, mark(number))));
    add((1..=2000).map(|number| (number, true, mark(number))));
    add((2001..=2100).map(|number| (number, true, 0)));
    assert_eq!(conntrack.count().unwrap(), 4100);
    let before = conntrack.generations(bits).unwrap();
    let all = (1..=10).map(|number| (number, 400)).chain([(0, 100)]);
    assert_eq!(before, all.collect());

    // The kernel leaves out those from 8 on.
    let done = conntrack.clear_marks(bits, &(3..=7)).unwrap();
    assert_eq!((done.seen, done.cleared, done.ended), (2900, 2000, 0));
    let kept = [1, 2, 8, 9, 10].map(|number| (number, 400));
    let after = conntrack.generations(bits).unwrap();
    assert_eq!(after, kept.into_iter().chain([(0, 2100)]).collect());
    // 0x22 is 0x11 above the lowest of those bits.
    let others = conntrack.generations(low).unwrap();
    assert_eq!(others, [(0, 100), (0x11, 4000)].into());
    assert_eq!(conntrack.count().unwrap(), 4100);

    let one = conntrack.clear_marks(bits, &(9..=9)).unwrap();
    assert_eq!((one.seen, one.cleared), (400, 400));
    let rest = conntrack.clear_marks(bits, &(1..=0x7fff)).unwrap();
    assert_eq!((rest.seen, rest.cleared), (4100, 1600));
    assert_eq!(conntrack.generations(bits).unwrap(), [(0, 4100)].into());
    let none = conntrack.clear_marks(bits, &(1..=0x7fff)).unwrap();
    assert_eq!(none.cleared, 0);
}

fn of_an_address() {
    let bits = MarkBits::DEFAULT;
    let mut conntrack = Conntrack::open().unwrap();
    add((1..=300).map(|number| (number, false, 3 << 16)));
    add((1..=200).map(|number| (number, true, 3 << 16)));
    let mut v6 = [0xfd; 16];
    v6[15] = 2;
    let server = BTreeSet::from([IpAddr::from(v6), IpAddr::from([10, 10, 10, 3])]);
    let done = conntrack.clear_addresses(bits, &server).unwrap();
    assert_eq!((done.seen, done.cleared), (500, 200));
    let left = conntrack.generations(bits).unwrap();
    assert_eq!(left, [(0, 200), (1, 300)].into());
    let client = BTreeSet::from([IpAddr::from([10, 10, 10, 1])]);
    let done = conntrack.clear_addresses(bits, &client).unwrap();
    assert_eq!((done.seen, done.cleared), (500, 300));
    assert_eq!(conntrack.generations(bits).unwrap(), [(0, 500)].into());
    // The server of a translated connection is the address that replies.
    add_behind(7, (301..=340).map(|number| (number, false, 3 << 16)));
    add((341..=350).map(|number| (number, false, 3 << 16)));
    let server = BTreeSet::from([IpAddr::from([10, 10, 10, 7])]);
    let done = conntrack.clear_addresses(bits, &server).unwrap();
    assert_eq!((done.seen, done.cleared), (550, 40));
    let left = conntrack.generations(bits).unwrap();
    assert_eq!(left, [(0, 540), (1, 10)].into());
}

fn room() {
    let mut conntrack = Conntrack::open().unwrap();
    assert_eq!(conntrack.count().unwrap(), 0);
    assert!(conntrack.max().unwrap().is_none_or(|most| most > 1000));
    add([(1, false, 0)].into_iter());
    assert_eq!(conntrack.count().unwrap(), 1);
    conntrack.flush().unwrap();
    assert_eq!(conntrack.count().unwrap(), 0);
}
