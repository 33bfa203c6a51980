//! Encodes rules as expressions: small steps of the kernel's virtual machine, on registers.

use std::net::IpAddr;

use palisade_core::net::{Cidr, Family};
use palisade_core::plan::PortBlock;

use super::abi;
use crate::netlink::Put;
use crate::ruleset::{Key, Match, Name, PacketEnd, Rule, Statement, TCP, Verdict};

/// The bytes of all registers: sixteen of four bytes each.
pub(super) const REGISTERS_BYTES: usize = 64;

/// Writes the expressions of a rule.
pub(super) fn write(rule: &Rule, bytes: &mut Vec<u8>) {
    let mut writer = Writer {
        bytes,
        family: None,
        l4: None,
    };
    // The kernel stops at the first comparison that fails: conditions keep the order of the rule.
    for condition in &rule.matches {
        writer.condition(condition);
    }
    for statement in &rule.statements {
        writer.statement(statement);
    }
}

/// Writes a verdict with its chain.
pub(super) fn verdict(verdict: &Verdict, bytes: &mut Vec<u8>) {
    let (code, chain) = match verdict {
        Verdict::Accept => (abi::verdict::ACCEPT, None),
        Verdict::Drop => (abi::verdict::DROP, None),
        Verdict::Jump(chain) => (abi::verdict::JUMP, Some(chain)),
        Verdict::Goto(chain) => (abi::verdict::GOTO, Some(chain)),
        Verdict::Return => (abi::verdict::RETURN, None),
    };
    bytes.nest(abi::data::VERDICT, |bytes| {
        bytes.bytes(abi::verdict::CODE, &code.to_be_bytes());
        if let Some(chain) = chain {
            bytes.text(abi::verdict::CHAIN, chain.as_str());
        }
    });
}

/// A register of four bytes, by its index.
#[derive(Clone, Copy)]
struct Register(usize);

impl Register {
    const FIRST: Register = Register(0);
    /// The first register behind an address of any family.
    const AFTER_ADDRESS: Register = Register(4);

    /// Returns its number in the kernel.
    fn number(self) -> u32 {
        // Every fourth register also has a number as a register of sixteen bytes (1 to 4). The
        // kernel reports that one in dumps, and an audit compares what it reports.
        let place = self.0 as u32;
        if place.is_multiple_of(4) {
            1 + place / 4
        } else {
            8 + place
        }
    }
}

struct Writer<'b> {
    bytes: &'b mut Vec<u8>,
    /// The family that an earlier condition of the rule has matched.
    family: Option<Family>,
    /// The protocol that an earlier condition of the rule has matched.
    l4: Option<u8>,
}

impl Writer<'_> {
    fn condition(&mut self, condition: &Match) {
        let first = Register::FIRST;
        match condition {
            Match::CtMark { mask, equal, value } => self.ct_mark(*mask, *equal, *value),
            Match::CtState(bits) => {
                self.ct(abi::ct::STATE, None, first);
                // Several states match if any of their bits is set.
                self.bitwise(first, &bits.to_ne_bytes(), &[0; 4]);
                self.compare(false, &[0; 4]);
            }
            Match::CtIsReply(is_reply) => {
                self.ct(abi::ct::WAY, None, first);
                self.compare(true, &[u8::from(*is_reply)]);
            }
            Match::L4(protocol) => self.l4(*protocol),
            Match::CtL4(protocol) => {
                self.key(Key::CtL4, first);
                self.compare(true, &[*protocol]);
            }
            Match::HopLimit(hops) => self.hop_limit(*hops),
            Match::Family(family) => self.family(*family),
            Match::CtPort(start, end) => {
                self.key(Key::CtPort, first);
                self.between(&start.to_be_bytes(), &end.to_be_bytes());
            }
            Match::HeaderPort(start, end) => {
                self.key(Key::HeaderPort, first);
                self.between(&start.to_be_bytes(), &end.to_be_bytes());
            }
            Match::IcmpType(start, end) => {
                self.payload(abi::payload::TRANSPORT, 0, 1, first);
                self.between(&[*start], &[*end]);
            }
            Match::TcpNotOpening => self.tcp_not_opening(),
            Match::Lookup { set, key, missing } => {
                self.keys(key);
                let flags = if *missing {
                    abi::lookup::FLAG_INVERTED
                } else {
                    0
                };
                self.lookup(set.as_str(), Register::FIRST, None, flags);
            }
            Match::LookupNumber { map, of, set, rest } => self.lookup_number(map, of, set, rest),
            Match::ReverseRoute => {
                self.expression("fib", |bytes| {
                    bytes.number(abi::fib::TO, first.number());
                    bytes.number(abi::fib::RESULT, abi::fib::INTERFACE);
                    bytes.number(abi::fib::FLAGS, abi::fib::SOURCE_BY_INTERFACE_IN);
                });
                self.compare(true, &[1]);
            }
            Match::Within {
                end,
                block,
                outside,
            } => self.within(*end, block, *outside),
        }
    }

    fn ct_mark(&mut self, mask: u32, equal: bool, value: u32) {
        self.ct(abi::ct::MARK, None, Register::FIRST);
        // Marks are in host byte order. The bits of other programs are masked out.
        if mask != u32::MAX {
            self.bitwise(Register::FIRST, &mask.to_ne_bytes(), &[0; 4]);
        }
        self.compare(equal, &value.to_ne_bytes());
    }

    fn hop_limit(&mut self, hops: u8) {
        if self.family != Some(Family::V6) {
            // Byte 7 of an IPv4 header is a part of the fragment offset.
            self.family(Family::V6);
        }
        self.payload(abi::payload::NETWORK, 7, 1, Register::FIRST);
        self.compare(true, &[hops]);
    }

    fn tcp_not_opening(&mut self) {
        const FIN_SYN_RST_ACK: u8 = 0x17;
        const SYN: u8 = 0x02;
        if self.l4 != Some(TCP) {
            // Byte 13 holds the flags only if the header is one of TCP. The packet's own protocol
            // decides, not that of the connection: the latter may be behind an extension header.
            self.l4(TCP);
        }
        self.payload(abi::payload::TRANSPORT, 13, 1, Register::FIRST);
        self.bitwise(Register::FIRST, &[FIN_SYN_RST_ACK], &[0]);
        self.compare(false, &[SYN]);
    }

    /// Looks up a number in a map, and the number with other fields in a set.
    fn lookup_number(&mut self, map: &Name, of: &[Key], set: &Name, rest: &[Key]) {
        // The key of the map begins in the second register, and its number goes to the first. The
        // other fields then replace the key, behind the number. They may only be fields of `ct`:
        // comparing the packet's family would overwrite the number.
        let (first, second) = (Register::FIRST, Register(1));
        self.keys_at(of, second);
        self.lookup(map.as_str(), second, Some(first.number()), 0);
        self.keys_at(rest, second);
        self.lookup(set.as_str(), first, None, 0);
    }

    fn within(&mut self, end: PacketEnd, block: &Cidr, outside: bool) {
        let prefix = block.net().prefix_len();
        match block.first() {
            IpAddr::V4(network) => {
                self.keys(&[Key::Address(end, Family::V4, prefix)]);
                self.compare(!outside, &network.octets());
            }
            IpAddr::V6(network) => {
                self.keys(&[Key::Address(end, Family::V6, prefix)]);
                self.compare(!outside, &network.octets());
            }
        }
    }

    fn statement(&mut self, statement: &Statement) {
        let first = Register::FIRST;
        match statement {
            Statement::Counter => self.expression("counter", |_| ()),
            Statement::SetCtMark { mask, value } => {
                if *mask == u32::MAX {
                    self.constant(first, &value.to_ne_bytes());
                } else {
                    // `(mark & !mask) ^ ours`: the bits of other programs stay.
                    let ours = value & mask;
                    self.ct(abi::ct::MARK, None, first);
                    self.bitwise(first, &(!mask).to_ne_bytes(), &ours.to_ne_bytes());
                }
                self.expression("ct", |bytes| {
                    bytes.number(abi::ct::KEY, abi::ct::MARK);
                    bytes.number(abi::ct::FROM, first.number());
                });
            }
            Statement::Dispatch { map, key } => {
                // Register 0 is the verdict: a lookup that finds nothing leaves it alone, and the
                // next rule follows.
                const TO_THE_VERDICT: u32 = 0;
                self.keys(key);
                self.lookup(map.as_str(), first, Some(TO_THE_VERDICT), 0);
            }
            Statement::Verdict(of) => self.expression("immediate", |bytes| {
                bytes.number(abi::immediate::TO, 0);
                bytes.nest(abi::immediate::DATA, |bytes| verdict(of, bytes));
            }),
            Statement::Dnat(address, port) => self.dnat(*address, *port),
            Statement::Masquerade => self.expression("masq", |_| ()),
            Statement::Notrack => self.expression("notrack", |_| ()),
        }
    }

    fn l4(&mut self, protocol: u8) {
        self.key(Key::L4, Register::FIRST);
        self.compare(true, &[protocol]);
        self.l4 = Some(protocol);
    }

    fn family(&mut self, family: Family) {
        self.meta(abi::meta::FAMILY, Register::FIRST);
        self.compare(true, &[number_of(family)]);
        self.family = Some(family);
    }

    /// Loads the parts of a key into consecutive registers.
    fn keys(&mut self, key: &[Key]) {
        self.keys_at(key, Register::FIRST);
    }

    fn keys_at(&mut self, key: &[Key], first: Register) {
        // An offset in the header is an address only in packets of its family, which is compared
        // first unless the rule has done that. `ct` needs no comparison: it stops the rule if the
        // tuple is of the other family.
        for part in key {
            if let Key::Address(PacketEnd::Source | PacketEnd::Destination, family, _) = part
                && self.family != Some(*family)
            {
                self.family(*family);
            }
        }
        // All comparisons use the first register: they must be done before parts of the key are
        // loaded.
        let Register(mut place) = first;
        for part in key {
            self.key(*part, Register(place));
            place += part.field().padded() / 4;
        }
    }

    fn key(&mut self, key: Key, to: Register) {
        use abi::payload::{NETWORK, TRANSPORT};
        match key {
            Key::Number(number) => self.constant(to, &number.to_ne_bytes()),
            Key::Address(end, family, prefix) => {
                let (ct, v4, v6) = match end {
                    PacketEnd::CtClient => (Some(abi::ct::ORIGINAL), 0, 0),
                    PacketEnd::CtServer => (Some(abi::ct::REPLY), 0, 0),
                    PacketEnd::Source => (None, 12, 8),
                    PacketEnd::Destination => (None, 16, 24),
                };
                match (ct, family) {
                    (Some(_), Family::V4) => self.ct(abi::ct::SOURCE_IPV4, ct, to),
                    (Some(_), Family::V6) => self.ct(abi::ct::SOURCE_IPV6, ct, to),
                    (None, Family::V4) => self.payload(NETWORK, v4, 4, to),
                    (None, Family::V6) => self.payload(NETWORK, v6, 16, to),
                }
                self.leading_bits(to, family, prefix);
            }
            Key::L4 => self.meta(abi::meta::L4, to),
            Key::CtL4 => self.ct(abi::ct::L4, None, to),
            Key::CtPort => self.ct(abi::ct::SOURCE_PORT, Some(abi::ct::REPLY), to),
            Key::CtPortBits(bits) => {
                self.key(Key::CtPort, to);
                self.bitwise(to, &PortBlock::mask(bits).to_be_bytes(), &[0; 2]);
            }
            Key::HeaderPort => self.payload(TRANSPORT, 2, 2, to),
            Key::SourcePortBits(bits) => {
                // A port is in network byte order. A map of numbers has keys in host byte order.
                self.payload(TRANSPORT, 0, 2, to);
                self.expression("byteorder", |bytes| {
                    use abi::byteorder::{FROM, LENGTH, NETWORK_TO_HOST, OPERATION, SIZE, TO};
                    bytes.number(FROM, to.number());
                    bytes.number(TO, to.number());
                    bytes.number(OPERATION, NETWORK_TO_HOST);
                    bytes.number(LENGTH, 2);
                    bytes.number(SIZE, 2);
                });
                if cfg!(target_endian = "big") {
                    // The two bytes are the upper half of the register.
                    self.shift_right(to, 16);
                }
                self.bitwise(to, &u32::from(bits).to_ne_bytes(), &[0; 4]);
            }
            Key::InterfaceIn => self.meta(abi::meta::INTERFACE_IN, to),
        }
    }

    fn leading_bits(&mut self, register: Register, family: Family, prefix: u8) {
        let prefix = u32::from(prefix);
        match family {
            Family::V4 if prefix < 32 => {
                // A prefix of 0 gives an empty mask: every address becomes 0.
                let mask = !u32::MAX.checked_shr(prefix).unwrap_or(0);
                self.bitwise(register, &mask.to_be_bytes(), &[0; 4]);
            }
            Family::V6 if prefix < 128 => {
                let mask = !u128::MAX.checked_shr(prefix).unwrap_or(0);
                self.bitwise(register, &mask.to_be_bytes(), &[0; 16]);
            }
            Family::V4 | Family::V6 => {}
        }
    }

    fn dnat(&mut self, address: IpAddr, port: u16) {
        use abi::nat;
        let (first, second) = (Register::FIRST, Register::AFTER_ADDRESS);
        match address {
            IpAddr::V4(address) => self.constant(first, &address.octets()),
            IpAddr::V6(address) => self.constant(first, &address.octets()),
        }
        self.constant(second, &port.to_be_bytes());
        let family = if address.is_ipv4() {
            abi::IPV4
        } else {
            abi::IPV6
        };
        self.expression("nat", |bytes| {
            bytes.number(nat::TYPE, nat::DESTINATION);
            bytes.number(nat::FAMILY, u32::from(family));
            // First and last are the same registers: one address, one port.
            bytes.number(nat::FIRST_ADDRESS, first.number());
            bytes.number(nat::LAST_ADDRESS, first.number());
            bytes.number(nat::FIRST_PORT, second.number());
            bytes.number(nat::LAST_PORT, second.number());
            bytes.number(nat::FLAGS, nat::FLAGS_GIVEN);
        });
    }

    fn meta(&mut self, key: u32, to: Register) {
        self.expression("meta", |bytes| {
            bytes.number(abi::meta::KEY, key);
            bytes.number(abi::meta::TO, to.number());
        });
    }

    fn ct(&mut self, key: u32, direction: Option<u8>, to: Register) {
        self.expression("ct", |bytes| {
            bytes.number(abi::ct::TO, to.number());
            bytes.number(abi::ct::KEY, key);
            if let Some(direction) = direction {
                bytes.bytes(abi::ct::DIRECTION, &[direction]);
            }
        });
    }

    fn payload(&mut self, base: u32, offset: u32, length: u32, to: Register) {
        self.expression("payload", |bytes| {
            bytes.number(abi::payload::TO, to.number());
            bytes.number(abi::payload::BASE, base);
            bytes.number(abi::payload::OFFSET, offset);
            bytes.number(abi::payload::LENGTH, length);
        });
    }

    fn bitwise(&mut self, register: Register, mask: &[u8], xor: &[u8]) {
        self.expression("bitwise", |bytes| {
            bytes.number(abi::bitwise::FROM, register.number());
            bytes.number(abi::bitwise::TO, register.number());
            bytes.number(abi::bitwise::LENGTH, mask.len() as u32);
            value(bytes, abi::bitwise::MASK, mask);
            value(bytes, abi::bitwise::XOR, xor);
        });
    }

    fn shift_right(&mut self, register: Register, by: u32) {
        self.expression("bitwise", |bytes| {
            bytes.number(abi::bitwise::FROM, register.number());
            bytes.number(abi::bitwise::TO, register.number());
            bytes.number(abi::bitwise::LENGTH, 4);
            bytes.number(abi::bitwise::OPERATION, abi::bitwise::SHIFT_RIGHT);
            value(bytes, abi::bitwise::DATA, &by.to_ne_bytes());
        });
    }

    fn constant(&mut self, to: Register, constant: &[u8]) {
        self.expression("immediate", |bytes| {
            bytes.number(abi::immediate::TO, to.number());
            value(bytes, abi::immediate::DATA, constant);
        });
    }

    /// Compares the first register with a value.
    fn compare(&mut self, equal: bool, with: &[u8]) {
        let operation = if equal {
            abi::cmp::EQUAL
        } else {
            abi::cmp::NOT_EQUAL
        };
        self.expression("cmp", |bytes| {
            bytes.number(abi::cmp::FROM, Register::FIRST.number());
            bytes.number(abi::cmp::OPERATION, operation);
            value(bytes, abi::cmp::DATA, with);
        });
    }

    /// Matches if the first register is in a range.
    fn between(&mut self, start: &[u8], end: &[u8]) {
        // The cheaper expression, and the one that the kernel may inline.
        if start == end {
            return self.compare(true, start);
        }
        self.expression("range", |bytes| {
            bytes.number(abi::range::FROM, Register::FIRST.number());
            bytes.number(abi::range::OPERATION, abi::range::INSIDE);
            value(bytes, abi::range::FIRST, start);
            value(bytes, abi::range::LAST, end);
        });
    }

    fn lookup(&mut self, set: &str, from: Register, to: Option<u32>, flags: u32) {
        self.expression("lookup", |bytes| {
            bytes.text(abi::lookup::SET, set);
            bytes.number(abi::lookup::FROM, from.number());
            if let Some(to) = to {
                bytes.number(abi::lookup::TO, to);
            }
            bytes.number(abi::lookup::FLAGS, flags);
        });
    }

    fn expression(&mut self, name: &str, inside: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.nest(abi::LIST_ELEM, |bytes| {
            bytes.text(abi::expression::NAME, name);
            bytes.nest(abi::expression::DATA, inside);
        });
    }
}

fn value(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    bytes.nest(kind, |bytes| bytes.bytes(abi::data::VALUE, value));
}

fn number_of(family: Family) -> u8 {
    match family {
        Family::V4 => abi::IPV4,
        Family::V6 => abi::IPV6,
    }
}
