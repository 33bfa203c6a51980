//! The ruleset of one node as a value: what the kernel is told, before it is bytes or text.
//!
//! Nothing in it comes from an author of objects: names are made here, from words of our own,
//! numbers and addresses, and everything else is numbers.

use std::fmt;
use std::net::IpAddr;

use palisade_core::net::{Cidr, Family, Protocol};
use palisade_core::program::RuleId;

/// A name in the kernel. It can only be made of words of our own, numbers and addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// A word of our own.
    pub fn word(word: &'static str) -> Name {
        Name(word.to_owned())
    }

    /// A word and a number.
    pub fn numbered(word: &'static str, number: u32) -> Name {
        Name(format!("{word}-{number}"))
    }

    /// A word and two numbers.
    pub fn numbered_twice(word: &'static str, number: u32, part: u32) -> Name {
        Name(format!("{word}-{number}-{part}"))
    }

    /// A word and an address; IPv6 is written in hexadecimal digits only, since a colon is not
    /// allowed in names.
    pub fn at(word: &'static str, address: IpAddr) -> Name {
        match address {
            IpAddr::V4(address) => Name(format!("{word}-{address}")),
            IpAddr::V6(address) => Name(format!("{word}-{:032x}", address.to_bits())),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A table of the `inet` family with everything in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruleset {
    /// The table.
    pub table: Name,
    /// Sets and maps.
    pub sets: Vec<Set>,
    /// Chains; those that are hooked come last, so that nothing is enforced by halves.
    pub chains: Vec<Chain>,
}

/// A set of keys or of ranges of them, or a map from keys to verdicts or numbers. All but ranges are hash tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: Name,
    /// What a key is made of.
    pub fields: Vec<Field>,
    /// The keys, one after the other, each [`Set::width`] bytes as the kernel has them: every field
    /// begins at a multiple of four bytes, the rest is zero.
    pub keys: Vec<u8>,
    /// What each key stands for.
    pub values: Values,
    /// How many elements there is room for; at least as many as it has.
    pub size: u32,
}

impl Set {
    /// An empty set.
    pub fn new(name: Name, fields: Vec<Field>) -> Set {
        Set {
            name,
            fields,
            keys: Vec::new(),
            values: Values::Nothing,
            size: 0,
        }
    }

    /// An empty map to verdicts.
    pub fn map(name: Name, fields: Vec<Field>) -> Set {
        Set {
            values: Values::Verdicts(Vec::new()),
            ..Set::new(name, fields)
        }
    }

    /// An empty map to numbers.
    pub fn numbers(name: Name, fields: Vec<Field>) -> Set {
        Set {
            values: Values::Numbers(Vec::new()),
            ..Set::new(name, fields)
        }
    }

    /// An empty set of ranges of keys. They are compared byte by byte from the front, whatever the fields are.
    pub fn ranges(name: Name, fields: Vec<Field>) -> Set {
        Set {
            values: Values::Ranges,
            ..Set::new(name, fields)
        }
    }

    /// The bytes of a key.
    pub fn width(&self) -> usize {
        self.fields.iter().map(|field| field.padded()).sum()
    }

    /// How many keys it has.
    pub fn len(&self) -> usize {
        self.keys.len().checked_div(self.width()).unwrap_or(0)
    }

    /// Whether it has no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Adds a key. The values must be those of the fields, in order.
    pub fn push(&mut self, key: &[Value]) {
        for value in key {
            value.write(&mut self.keys);
        }
    }

    /// Adds a key and its verdict to a map.
    pub fn push_verdict(&mut self, key: &[Value], verdict: Verdict) {
        self.push(key);
        if let Values::Verdicts(verdicts) = &mut self.values {
            verdicts.push(verdict);
        }
    }

    /// Adds a key and its number to a map.
    pub fn push_number(&mut self, key: &[Value], number: u32) {
        self.push(key);
        if let Values::Numbers(numbers) = &mut self.values {
            numbers.push(number);
        }
    }

    /// Adds the range of keys from one on, up to another that is not in it any more; `None`: up to the last key that has the
    /// same fields but the last.
    pub fn push_range(&mut self, first: &[Value], behind: Option<&[Value]>) {
        self.push(first);
        if let Some(behind) = behind {
            return self.push(behind);
        }
        let whole = self.keys.len() - self.fields.last().map_or(0, |field| field.padded());
        let begin = self.keys.len().saturating_sub(self.width());
        let mut next = self.keys.get(begin..whole).unwrap_or_default().to_vec();
        // What comes behind is the next larger of all that stands before.
        for byte in next.iter_mut().rev() {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                break;
            }
        }
        next.resize(self.width(), 0);
        self.keys.extend(next);
    }

    /// Whether the key at a place is the end of a range, which is not in it any more.
    pub fn is_end(&self, place: usize) -> bool {
        self.values == Values::Ranges && !place.is_multiple_of(2)
    }

    /// Takes the keys from a place on into a set of the same name and form. Keys that belong together stay together.
    pub fn split_off(&mut self, place: usize) -> Set {
        let place = place
            .next_multiple_of(self.values.together())
            .min(self.len());
        let values = match &mut self.values {
            Values::Nothing => Values::Nothing,
            Values::Ranges => Values::Ranges,
            Values::Verdicts(it) => Values::Verdicts(it.split_off(place.min(it.len()))),
            Values::Numbers(it) => Values::Numbers(it.split_off(place.min(it.len()))),
        };
        Set {
            name: self.name.clone(),
            fields: self.fields.clone(),
            keys: self.keys.split_off(place * self.width()),
            values,
            size: self.size,
        }
    }

    /// The keys.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.chunks_exact(self.width().max(1))
    }
}

/// What the keys of a set stand for, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// They are in the set, and that is all.
    Nothing,
    /// In turn the first key of a range, and the first one behind it.
    Ranges,
    /// A verdict each.
    Verdicts(Vec<Verdict>),
    /// A number each.
    Numbers(Vec<u32>),
}

impl Values {
    /// How many keys belong together.
    pub(crate) fn together(&self) -> usize {
        match self {
            Values::Ranges => 2,
            Values::Nothing | Values::Verdicts(_) | Values::Numbers(_) => 1,
        }
    }

    /// How many there are; `None`: there is nothing to count.
    pub fn count(&self) -> Option<usize> {
        match self {
            Values::Nothing | Values::Ranges => None,
            Values::Verdicts(verdicts) => Some(verdicts.len()),
            Values::Numbers(numbers) => Some(numbers.len()),
        }
    }
}

/// A field of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// A number of ours, or a mark: four bytes in the machine's order.
    Number,
    /// An IPv4 address.
    V4,
    /// An IPv6 address.
    V6,
    /// An IP protocol: one byte.
    L4,
    /// A port: two bytes in network order.
    Port,
    /// The name of an interface: sixteen bytes, filled up with zeros.
    Interface,
}

impl Field {
    /// The field of an address.
    pub fn address(family: Family) -> Field {
        match family {
            Family::V4 => Field::V4,
            Family::V6 => Field::V6,
        }
    }

    /// Its bytes.
    pub fn width(self) -> usize {
        match self {
            Field::Number | Field::V4 => 4,
            Field::V6 | Field::Interface => 16,
            Field::L4 => 1,
            Field::Port => 2,
        }
    }

    /// Its bytes in a key.
    pub fn padded(self) -> usize {
        self.width().next_multiple_of(4)
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// A number of ours, or a mark.
    Number(u32),
    /// An address.
    Address(IpAddr),
    /// An IP protocol.
    L4(u8),
    /// A port.
    Port(u16),
    /// The name of an interface.
    Interface(Interface),
}

impl Value {
    fn write(self, bytes: &mut Vec<u8>) {
        match self {
            Value::Number(number) => bytes.extend(number.to_ne_bytes()),
            Value::Address(IpAddr::V4(address)) => bytes.extend(address.octets()),
            Value::Address(IpAddr::V6(address)) => bytes.extend(address.octets()),
            Value::L4(protocol) => bytes.extend([protocol, 0, 0, 0]),
            Value::Port(port) => {
                bytes.extend(port.to_be_bytes());
                bytes.extend([0, 0]);
            }
            Value::Interface(interface) => bytes.extend(interface.0),
        }
    }
}

/// The name of a network interface, as the kernel keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interface([u8; 16]);

impl Interface {
    /// The one that a machine reaches itself by.
    pub const LOOPBACK: Interface = Interface(*b"lo\0\0\0\0\0\0\0\0\0\0\0\0\0\0");

    /// The interface of a name, if it can be one: one to fifteen printable bytes, no slash.
    pub fn new(name: &str) -> Option<Interface> {
        let is_fine = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b'"';
        if name.is_empty() || name.len() > 15 || !name.bytes().all(is_fine) {
            return None;
        }
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        Some(Interface(bytes))
    }
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: Name,
    /// Where packets enter it by themselves; `None`: only by jumps.
    pub hook: Option<Hook>,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// Where packets enter a chain. What falls off its end is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hook {
    /// The point of the path.
    pub point: Point,
    /// The smaller one is asked first.
    pub priority: i32,
    /// Whether it may translate addresses.
    pub nat: bool,
}

/// A point of a packet's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// Before routing.
    Prerouting,
    /// To a process of the node.
    Input,
    /// From elsewhere to elsewhere.
    Forward,
    /// From a process of the node.
    Output,
    /// After routing.
    Postrouting,
}

/// A rule: if everything matches, all statements are carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// What must hold, asked in order.
    pub matches: Vec<Match>,
    /// What happens.
    pub statements: Vec<Statement>,
    /// The rule of a policy that it stands for.
    pub origin: Option<RuleId>,
}

/// A condition on a packet and its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// `ct mark & mask == value`, or `!=`.
    CtMark {
        /// The bits that are ours.
        mask: u32,
        /// Whether they must be the value, or must not.
        equal: bool,
        /// The value.
        value: u32,
    },
    /// The state of the connection is one of these bits.
    CtState(u32),
    /// The packet goes the way of the connection's first packet, or the other.
    CtIsReply(bool),
    /// The IP protocol of the packet: of an error of ICMP, ICMP.
    L4(u8),
    /// The IP protocol of the connection: of an error of ICMP, that of what it is about.
    CtL4(u8),
    /// The hop limit of a packet of IPv6.
    HopLimit(u8),
    /// The family.
    Family(Family),
    /// The connection's destination port after translation (`ct reply proto-src`) is in the range.
    CtPort(u16, u16),
    /// The destination port in the header is in the range.
    HeaderPort(u16, u16),
    /// The first byte of the header of ICMP or ICMPv6 is in the range.
    IcmpType(u8, u8),
    /// `tcp flags & (fin | syn | rst | ack) != syn`: it does not open a connection.
    TcpNotOpening,
    /// A key is in a set, or is not.
    Lookup {
        /// The set.
        set: Name,
        /// The key, in the order of the set's fields.
        key: Vec<Key>,
        /// Whether it must be missing.
        missing: bool,
    },
    /// The number that a map has for a key, and what follows it, is in a set. A key that the map does
    /// not have is not.
    LookupNumber {
        /// The map, to numbers.
        map: Name,
        /// The key in the map.
        of: Vec<Key>,
        /// The set, whose first field is a number.
        set: Name,
        /// The other fields.
        rest: Vec<Key>,
    },
    /// What is sent to the packet's source leaves by the interface that the packet came in by
    /// (`fib saddr . iif oif exists`). Only where packets come in.
    WayBack,
    /// An address is in a block, or is not.
    Within {
        /// Which address.
        end: PacketEnd,
        /// The block.
        block: Cidr,
        /// Whether it must be outside.
        outside: bool,
    },
}

/// A part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A number of ours.
    Number(u32),
    /// So many leading bits of an address; the others are zero.
    Address(PacketEnd, Family, u8),
    /// The IP protocol of the packet.
    L4,
    /// The IP protocol of the connection.
    CtL4,
    /// The connection's destination port after translation.
    CtPort,
    /// So many of its leading bits; the others are zero.
    CtPortBits(u8),
    /// The destination port in the header.
    HeaderPort,
    /// Some low bits of the source port in the header, as a number in the machine's order.
    SourcePortBits(u16),
    /// The interface that the packet came in through.
    InterfaceIn,
}

impl Key {
    /// The field of a set that it is looked up in.
    pub fn field(self) -> Field {
        match self {
            Key::Number(_) | Key::SourcePortBits(_) => Field::Number,
            Key::Address(_, family, _) => Field::address(family),
            Key::L4 | Key::CtL4 => Field::L4,
            Key::CtPort | Key::CtPortBits(_) | Key::HeaderPort => Field::Port,
            Key::InterfaceIn => Field::Interface,
        }
    }
}

/// An address of a packet or its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PacketEnd {
    /// `ct original saddr`: who opened the connection, before any translation of the source.
    CtClient,
    /// `ct reply saddr`: who answers it, after translation of the destination.
    CtServer,
    /// The source in the header.
    Source,
    /// The destination in the header.
    Destination,
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Counts packets and bytes.
    Counter,
    /// Sets our bits of the connection's mark.
    SetCtMark {
        /// The bits that are ours.
        mask: u32,
        /// Their value.
        value: u32,
    },
    /// A verdict by a map; nothing happens for keys that it does not have.
    Dispatch {
        /// The map.
        map: Name,
        /// The key.
        key: Vec<Key>,
    },
    /// A verdict.
    Verdict(Verdict),
    /// Translates the destination to an address and port.
    Dnat(IpAddr, u16),
    /// Translates the source to the address of the interface that the packet leaves through.
    Masquerade,
    /// Keeps the packet out of connection tracking.
    Notrack,
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Accept,
    /// It ends here, silently (D5).
    Drop,
    /// Another chain is asked, and then the next rule.
    Jump(Name),
    /// Another chain is asked, and then whoever called this one.
    Goto(Name),
    /// Whoever called this chain goes on.
    Return,
}

/// The number of a protocol in IP headers.
pub fn l4(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => TCP,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    }
}

/// TCP.
pub const TCP: u8 = 6;
/// ICMP.
pub const ICMP: u8 = 1;
/// ICMPv6.
pub const ICMP6: u8 = 58;
/// The authentication header.
pub const AH: u8 = 51;

/// States of connections, as bits.
pub mod state {
    /// Something is wrong with the packet.
    pub const INVALID: u32 = 1;
    /// Packets of both directions were seen.
    pub const ESTABLISHED: u32 = 2;
    /// It belongs to a connection without being of it, as errors of ICMP do.
    pub const RELATED: u32 = 4;
    /// It may open a connection.
    pub const NEW: u32 = 8;
    /// Somebody asked that it is not tracked.
    pub const UNTRACKED: u32 = 64;
}
