//! Flowtables of other programs.

use std::io;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use palisade_nft::{InstalledFlowtable, flowtables};

use crate::Test;

pub(crate) const TESTS: &[Test] = &[(
    "flowtables of others are found",
    flowtables_of_others_are_found,
)];

const NFTABLES: u16 = 10 << 8;
const NEW_TABLE: u16 = NFTABLES;
const DELETE_TABLE: u16 = NFTABLES | 2;
const NEW_FLOWTABLE: u16 = NFTABLES | 22;
const INET: u8 = 1;

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len() + 4).unwrap();
    let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn nested(kind: u16, inside: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | 0x8000, &inside.concat())
}

fn message(kind: u16, flags: u16, family: u8, resource: u16, inside: &[Vec<u8>]) -> Vec<u8> {
    let inside = inside.concat();
    let length = u32::try_from(inside.len() + 20).unwrap();
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((flags | 1).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    bytes.extend(inside);
    bytes
}

/// Executes messages in one batch. The error is that of the first refused message.
fn transact(messages: &[Vec<u8>]) -> io::Result<()> {
    const ACK: u16 = 4;
    let mut all = message(0x10, 0, 0, 10, &[]);
    all.extend(messages.concat());
    // The last message is answered, also if all is well.
    let last = all.len() - messages.last().unwrap().len();
    all[last + 6] |= u8::try_from(ACK).unwrap();
    all.extend(message(0x11, 0, 0, 10, &[]));
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.send_to(&all, &SocketAddr::new(0, 0), 0)?;
    let mut answer = Vec::with_capacity(4096);
    socket.recv(&mut answer, 0)?;
    let number = i32::from_ne_bytes(answer[16..20].try_into().unwrap());
    match number {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(-number)),
    }
}

fn table(name: &str) -> Vec<u8> {
    let name = attribute(1, format!("{name}\0").as_bytes());
    message(NEW_TABLE, 0x400, INET, 0, &[name])
}

fn flowtable(table: &str, name: &str, device: &str) -> Vec<u8> {
    let text = |kind, text: &str| attribute(kind, format!("{text}\0").as_bytes());
    let number = |kind, number: u32| attribute(kind, &number.to_be_bytes());
    // At `ingress`.
    let hook = [number(1, 0), number(2, 0), nested(3, &[text(1, device)])];
    let inside = [text(1, table), text(2, name), nested(3, &hook)];
    message(NEW_FLOWTABLE, 0x400, INET, 0, &inside)
}

fn flowtables_of_others_are_found() {
    assert_eq!(flowtables().unwrap(), []);
    transact(&[table("other")]).unwrap();
    assert_eq!(flowtables().unwrap(), []);
    match transact(&[flowtable("other", "fast", "lo")]) {
        Ok(()) => {
            let expected = InstalledFlowtable {
                table: "other".to_owned(),
                name: "fast".to_owned(),
                interfaces: vec!["lo".to_owned()],
            };
            assert_eq!(flowtables().unwrap(), [expected]);
        }
        // A kernel without the module has no flowtables to find.
        Err(error) => {
            let not_found = io::ErrorKind::NotFound;
            assert_eq!(error.kind(), not_found, "{error}");
        }
    }
    let name = attribute(1, b"other\0");
    transact(&[message(DELETE_TABLE, 0, INET, 0, &[name])]).unwrap();
    assert_eq!(flowtables().unwrap(), []);
}
