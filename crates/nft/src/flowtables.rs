//! Lists the flowtables of all tables. Packets of an offloaded connection pass no chain behind the
//! hook of its flowtable; Palisade has none.

use crate::encode::abi::{UNSPECIFIED, flowtable, kind};
use crate::error::Error;
use crate::load::unreadable;
use crate::netlink::{self, Attributes, Received};
use crate::socket::Channel;

/// A flowtable of any table of the network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledFlowtable {
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// The names of the interfaces that it is hooked at. A name that ends with `*` is a prefix.
    pub interfaces: Vec<String>,
}

/// Lists all flowtables of the calling thread's network namespace, of every family.
pub fn flowtables() -> Result<Vec<InstalledFlowtable>, Error> {
    let mut request = Vec::new();
    // One dump for all families: a flowtable of `ip` bypasses the `inet` table as well.
    netlink::message(&mut request, kind::GET_FLOWTABLE, 0, UNSPECIFIED, |_| ());
    let mut channel = Channel::open()?;
    let dumped = channel.dump(&request, |all: &mut Vec<InstalledFlowtable>, message| {
        all.extend(flowtable_in(message));
    })?;
    dumped.map_err(|refused| unreadable("flowtables", refused))
}

/// Reads the flowtable in a message.
pub(crate) fn flowtable_in(message: &Received<'_>) -> Option<InstalledFlowtable> {
    if message.kind != kind::NEW_FLOWTABLE {
        return None;
    }
    let attributes = message.attributes();
    // A message without some attributes still counts: an overlooked flowtable would be an unnoticed
    // bypass.
    let text = |kind| {
        let text = attributes.find(kind).map(netlink::text);
        text.unwrap_or_default()
    };
    let hook = attributes.inside(flowtable::HOOK);
    Some(InstalledFlowtable {
        table: text(flowtable::TABLE),
        name: text(flowtable::NAME),
        interfaces: interfaces(hook.inside(flowtable::HOOK_DEVICES)),
    })
}

fn interfaces(devices: Attributes<'_>) -> Vec<String> {
    let name = |(kind, name): (u16, &[u8])| {
        // Linux 6.16 writes a prefix as a name without its final zero. Later kernels have an
        // attribute of its own for it.
        let is_beginning = match kind {
            flowtable::DEVICE_NAME => name.last() != Some(&0),
            flowtable::DEVICE_PREFIX => true,
            _ => return None,
        };
        let star = if is_beginning { "*" } else { "" };
        Some(netlink::text(name) + star)
    };
    devices.filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Messages, Put as _};

    fn read(bytes: &[u8]) -> Vec<InstalledFlowtable> {
        Messages(bytes).filter_map(|it| flowtable_in(&it)).collect()
    }

    fn message(kind: u16, inside: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        netlink::message(&mut bytes, kind, 0, 1, inside);
        bytes
    }

    #[test]
    fn names_and_beginnings_of_names_are_read() {
        let bytes = message(0xa16, |bytes| {
            bytes.text(1, "other");
            bytes.text(2, "fast");
            bytes.nest(3, |bytes| {
                bytes.number(1, 0);
                bytes.number(2, 0);
                bytes.nest(3, |bytes| {
                    bytes.text(1, "eth0");
                    bytes.bytes(1, b"veth");
                    bytes.text(2, "cali");
                    bytes.text(9, "not known");
                });
            });
            bytes.number(4, 1);
        });
        let expected = InstalledFlowtable {
            table: "other".to_owned(),
            name: "fast".to_owned(),
            interfaces: ["eth0", "veth*", "cali*"].map(str::to_owned).into(),
        };
        assert_eq!(read(&bytes), [expected]);
    }

    #[test]
    fn other_messages_are_skipped_and_bare_flowtables_read() {
        let of_generation = message(0xa0f, |bytes| bytes.number(1, 7));
        assert_eq!(read(&of_generation), []);
        let bare = message(0xa16, |bytes| bytes.text(2, "fast"));
        let expected = InstalledFlowtable {
            table: String::new(),
            name: "fast".to_owned(),
            interfaces: Vec::new(),
        };
        assert_eq!(read(&bare), [expected]);
    }
}
