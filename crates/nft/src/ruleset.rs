//! The ruleset of one node as a value, before it is bytes or text.
//!
//! Nothing in it comes from an author of objects: names consist of fixed words, numbers and
//! addresses, and everything else is numbers.

use std::fmt;
use std::net::IpAddr;

use palisade_core::net::{Cidr, Family, Protocol};
use palisade_core::program::RuleId;

/// A name in the kernel. It consists of fixed words, numbers and addresses only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// Makes a name of a fixed word.
    pub fn word(word: &'static str) -> Name {
        Name(word.to_owned())
    }

    /// Makes a name of a word and a number.
    pub fn numbered(word: &'static str, number: u32) -> Name {
        Name(format!("{word}-{number}"))
    }

    /// Makes a name of a word and two numbers.
    pub fn numbered_twice(word: &'static str, number: u32, part: u32) -> Name {
        Name(format!("{word}-{number}-{part}"))
    }

    /// Makes a name of a word and an address.
    pub fn at(word: &'static str, address: IpAddr) -> Name {
        match address {
            IpAddr::V4(address) => Name(format!("{word}-{address}")),
            // Hexadecimal digits only: the `nft` program allows no colon in a name.
            IpAddr::V6(address) => Name(format!("{word}-{:032x}", address.to_bits())),
        }
    }

    /// Returns the text of the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A table of the `inet` family with its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruleset {
    /// The name of the table.
    pub table: Name,
    /// Sets and maps, which rules name.
    pub sets: Vec<Set>,
    /// Chains. Base chains come last: an incomplete table enforces nothing.
    pub chains: Vec<Chain>,
}

/// A set of keys, an interval set, or a map from keys to verdicts or numbers. All but interval sets
/// are hash tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: Name,
    /// The fields of a key.
    pub fields: Vec<Field>,
    /// The keys, one after the other, each of [`Set::width`] bytes in the kernel's form: every
    /// field begins at a multiple of four bytes, and the rest is zero.
    // One buffer instead of an object for each key: a set may have a million elements.
    pub keys: Vec<u8>,
    /// The values of the keys.
    pub values: Values,
    /// The number of elements that the set has room for, at least as many as it has.
    pub size: u32,
}

impl Set {
    /// Makes an empty set.
    pub fn new(name: Name, fields: Vec<Field>) -> Set {
        Set {
            name,
            fields,
            keys: Vec::new(),
            values: Values::Nothing,
            size: 0,
        }
    }

    /// Makes an empty verdict map.
    pub fn map(name: Name, fields: Vec<Field>) -> Set {
        Set {
            values: Values::Verdicts(Vec::new()),
            ..Set::new(name, fields)
        }
    }

    /// Makes an empty map to numbers.
    pub fn numbers(name: Name, fields: Vec<Field>) -> Set {
        Set {
            values: Values::Numbers(Vec::new()),
            ..Set::new(name, fields)
        }
    }

    /// Makes an empty interval set. Keys are compared byte by byte from the front, whatever their
    /// fields are.
    pub fn ranges(name: Name, fields: Vec<Field>) -> Set {
        Set {
            values: Values::Ranges,
            ..Set::new(name, fields)
        }
    }

    /// Returns the bytes of a key.
    pub fn width(&self) -> usize {
        self.fields.iter().map(|field| field.padded()).sum()
    }

    /// Returns the number of keys. A range has two.
    pub fn len(&self) -> usize {
        self.keys.len().checked_div(self.width()).unwrap_or(0)
    }

    /// Reports whether it has no keys.
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

    /// Adds a range: from a first key up to, and without, another. `None`: up to the last key that
    /// differs from the first one in its last field only.
    pub fn push_range(&mut self, first: &[Value], behind: Option<&[Value]>) {
        self.push(first);
        if let Some(behind) = behind {
            return self.push(behind);
        }
        // The end of a range is the key behind it. Behind the largest value of the last field comes
        // the next larger value of the fields before it.
        let whole = self.keys.len() - self.fields.last().map_or(0, |field| field.padded());
        let begin = self.keys.len().saturating_sub(self.width());
        let mut next = self.keys.get(begin..whole).unwrap_or_default().to_vec();
        // Adds one with carry, as the kernel compares: byte by byte from the front.
        for byte in next.iter_mut().rev() {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                break;
            }
        }
        next.resize(self.width(), 0);
        self.keys.extend(next);
    }

    /// Reports whether the key at an index is the end of a range, which is not part of the range.
    pub fn is_end(&self, place: usize) -> bool {
        self.values == Values::Ranges && !place.is_multiple_of(2)
    }

    /// Moves the keys from an index on into a set of the same name and form. Both keys of a range
    /// stay together.
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

    /// Iterates over the keys.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.chunks_exact(self.width().max(1))
    }
}

/// The values of the keys of a set, in the order of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// No values: a plain set.
    Nothing,
    /// No values: the keys are in turn the first of a range, and the first one behind it.
    Ranges,
    /// A verdict for each key.
    Verdicts(Vec<Verdict>),
    /// A number for each key.
    Numbers(Vec<u32>),
}

impl Values {
    /// Returns the number of keys that make one element: two for a range.
    pub(crate) fn together(&self) -> usize {
        match self {
            Values::Ranges => 2,
            Values::Nothing | Values::Verdicts(_) | Values::Numbers(_) => 1,
        }
    }

    /// Returns the number of values. `None`: the set has none.
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
    /// A number of Palisade, or a mark: four bytes in host byte order.
    Number,
    /// An IPv4 address.
    V4,
    /// An IPv6 address.
    V6,
    /// An IP protocol: one byte.
    L4,
    /// A port: two bytes in network byte order.
    Port,
    /// The name of an interface: sixteen bytes, padded with zeros.
    Interface,
}

impl Field {
    /// Returns the field for addresses of a family.
    pub fn address(family: Family) -> Field {
        match family {
            Family::V4 => Field::V4,
            Family::V6 => Field::V6,
        }
    }

    /// Returns the bytes of its value.
    pub fn width(self) -> usize {
        match self {
            Field::Number | Field::V4 => 4,
            Field::V6 | Field::Interface => 16,
            Field::L4 => 1,
            Field::Port => 2,
        }
    }

    /// Returns its bytes in a key.
    pub fn padded(self) -> usize {
        // A field begins at a register, which has four bytes.
        self.width().next_multiple_of(4)
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// A number of Palisade, or a mark.
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

/// The name of a network interface, in the kernel's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interface([u8; 16]);

impl Interface {
    /// The loopback interface.
    pub const LOOPBACK: Interface = Interface(*b"lo\0\0\0\0\0\0\0\0\0\0\0\0\0\0");

    /// Returns the interface of a name, if it can be one: one to fifteen printable bytes, no slash.
    pub fn new(name: &str) -> Option<Interface> {
        // The kernel allows more. A quote would end the name in the text form.
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

/// A chain with its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: Name,
    /// The hook of a base chain. `None`: packets enter it by jumps only.
    pub hook: Option<Hook>,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
}

/// The hook of a base chain. Its policy is always accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hook {
    /// The point in the path of a packet.
    pub point: Point,
    /// Chains with a smaller priority come first.
    pub priority: i32,
    /// Whether the chain translates addresses.
    pub nat: bool,
}

/// A point in the path of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// Before routing.
    Prerouting,
    /// To a process of the node.
    Input,
    /// Through the node, from and to other hosts.
    Forward,
    /// From a process of the node.
    Output,
    /// After routing.
    Postrouting,
}

/// A rule: if all conditions match, its statements take effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The conditions, in the order of evaluation.
    pub matches: Vec<Match>,
    /// The statements.
    pub statements: Vec<Statement>,
    /// The policy rule that it comes from.
    pub origin: Option<RuleId>,
}

/// A condition on a packet and its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// `ct mark & mask == value`, or `!=`.
    CtMark {
        /// The bits that are compared.
        mask: u32,
        /// Whether they must be equal to the value, or must not.
        equal: bool,
        /// The value.
        value: u32,
    },
    /// The state of the connection is one of these bits.
    CtState(u32),
    /// Whether the packet is a reply: against the direction of the connection's first packet.
    CtIsReply(bool),
    /// The IP protocol of the packet. For an ICMP error this is ICMP.
    L4(u8),
    /// The IP protocol of the connection. For an ICMP error this is that of the connection that it
    /// reports on.
    CtL4(u8),
    /// The hop limit of an IPv6 packet.
    HopLimit(u8),
    /// The address family.
    Family(Family),
    /// The connection's destination port after translation (`ct reply proto-src`) is in the range.
    CtPort(u16, u16),
    /// The destination port in the header is in the range.
    HeaderPort(u16, u16),
    /// The first byte of an ICMP or ICMPv6 header is in the range.
    IcmpType(u8, u8),
    /// `tcp flags & (fin | syn | rst | ack) != syn`: the segment opens no connection.
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
    /// The value of a key in a map, followed by more fields, is in a set. If the map does not have
    /// the key, the condition does not match.
    LookupNumber {
        /// The map to numbers.
        map: Name,
        /// The key in the map.
        of: Vec<Key>,
        /// The set, whose first field is a number.
        set: Name,
        /// The other fields.
        rest: Vec<Key>,
    },
    /// A route to the packet's source leaves through the interface that the packet arrived on (`fib
    /// saddr . iif oif exists`). Only for hooks with an input interface.
    ReverseRoute,
    /// An address is in a block, or is not.
    Within {
        /// The address.
        end: PacketEnd,
        /// The block.
        block: Cidr,
        /// Whether the address must be outside.
        outside: bool,
    },
}

/// A part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A constant number.
    Number(u32),
    /// The leading bits of an address; the others are zero.
    Address(PacketEnd, Family, u8),
    /// The IP protocol of the packet.
    L4,
    /// The IP protocol of the connection.
    CtL4,
    /// The connection's destination port after translation.
    CtPort,
    /// Its leading bits; the others are zero.
    CtPortBits(u8),
    /// The destination port in the header.
    HeaderPort,
    /// Some low bits of the source port in the header, as a number in host byte order.
    SourcePortBits(u16),
    /// The interface that the packet arrived on.
    InterfaceIn,
}

impl Key {
    /// Returns the field of a set that it is looked up in.
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
    /// `ct original saddr`: the client, before source translation.
    CtClient,
    /// `ct reply saddr`: the server, after destination translation.
    CtServer,
    /// The source in the header.
    Source,
    /// The destination in the header.
    Destination,
}

/// The effect of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Counts packets and bytes.
    Counter,
    /// Sets some bits of the ct mark.
    SetCtMark {
        /// The bits that are set; all others stay.
        mask: u32,
        /// Their value.
        value: u32,
    },
    /// Looks up a verdict in a map. Without the key the next rule follows.
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
    /// Translates the source to the address of the output interface.
    Masquerade,
    /// Keeps the packet out of connection tracking.
    Notrack,
}

/// The fate of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accepts the packet at this hook.
    Accept,
    /// Drops the packet silently (D5).
    Drop,
    /// Continues in another chain, and then with the next rule.
    Jump(Name),
    /// Continues in another chain, and then in the caller of this one.
    Goto(Name),
    /// Returns to the caller of this chain.
    Return,
}

/// Returns the number of a protocol in IP headers.
pub fn l4(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => TCP,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    }
}

/// The IP protocol TCP.
pub const TCP: u8 = 6;
/// The IP protocol ICMP.
pub const ICMP: u8 = 1;
/// The IP protocol ICMPv6.
pub const ICMP6: u8 = 58;
/// The IPsec authentication header.
pub const AH: u8 = 51;

/// Connection states, as bits of `ct state`.
pub mod state {
    /// The packet fits no connection.
    pub const INVALID: u32 = 1;
    /// The connection has had packets in both directions.
    pub const ESTABLISHED: u32 = 2;
    /// The packet belongs to another connection, as an ICMP error does.
    pub const RELATED: u32 = 4;
    /// The packet may open a connection.
    pub const NEW: u32 = 8;
    /// A rule excluded the packet from tracking.
    pub const UNTRACKED: u32 = 64;
}
