//! A packet's way through the rules, and all the ways that it may have gone if a transaction was
//! committed while it was under way.
//!
//! The kernel gives a packet that enters a hooked chain the rules of that moment, until it leaves it.
//! Elements are those of the moment that they are asked in. So there is one moment, anywhere on the way,
//! from which on chains that are entered by their hook and sets that are asked are those of after. A chain
//! that the transaction made is empty before, one that it deleted is empty after; a map that it deleted is
//! empty after, too, while a plain set keeps what it had.

use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;

use palisade_core::net::Family;
use palisade_core::plan::PortBlock;
use palisade_nft::ruleset::{
    Key, Match, Name, PacketEnd, Point, Rule, Statement, TCP, Value, Verdict, state,
};

use super::table::{Data, Kind, Table};

/// A packet of a connection, without translation on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packet {
    /// Who opened the connection.
    pub client: IpAddr,
    /// Who answers it.
    pub server: IpAddr,
    /// The IP protocol.
    pub l4: u8,
    /// The server's port; 0 for protocols without ports.
    pub port: u16,
    /// Where on its path it is.
    pub point: Point,
    /// Whether the connection is there already.
    pub established: bool,
    /// Whether it goes to the client.
    pub reply: bool,
    /// The connection's mark.
    pub mark: u32,
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Packet {
            client,
            server,
            l4,
            port,
            ..
        } = self;
        write!(f, "{client} to {server}, protocol {l4}, port {port}")
    }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Whether it goes on.
    pub passed: bool,
    /// The mark that its connection has then.
    pub mark: u32,
}

/// The tables that packets meet, and what they were before the last transaction, if one of them was just
/// committed.
#[derive(Clone, Copy, Debug)]
pub struct Hooks<'t> {
    /// The tables of after.
    pub after: &'t [Table],
    /// The tables of before.
    pub before: &'t [Table],
}

impl<'t> Hooks<'t> {
    /// Tables that nobody changes.
    pub fn quiet(tables: &'t [Table]) -> Hooks<'t> {
        Hooks {
            after: tables,
            before: tables,
        }
    }

    /// What becomes of a packet that comes when all is done.
    pub fn after(self, packet: Packet) -> Fate {
        Walk::new(Hooks::quiet(self.after), packet, None).pass()
    }

    /// Everything that may become of a packet that is under way during the commit, other than if it came
    /// before or after it.
    pub fn torn(self, packet: Packet) -> Vec<Fate> {
        let mut first = Walk::new(self, packet, None);
        let _ = first.pass();
        let turns = first.turns;
        let at = |turn| Walk::new(self, packet, Some(turn)).pass();
        (0..turns).map(at).collect()
    }
}

/// How deep chains may call each other.
const DEEPEST: usize = 16;

/// Where a chain ends.
enum Ending {
    Accept,
    Drop,
    /// Its caller goes on.
    Fell,
}

struct Walk<'t> {
    hooks: Hooks<'t>,
    packet: Packet,
    mark: u32,
    /// The commit comes at this of the turns.
    at: Option<usize>,
    /// How often it made, or would have made, a difference whether the commit is over.
    turns: usize,
    is_over: bool,
}

impl<'t> Walk<'t> {
    fn new(hooks: Hooks<'t>, packet: Packet, at: Option<usize>) -> Walk<'t> {
        Walk {
            hooks,
            packet,
            mark: packet.mark,
            at,
            turns: 0,
            is_over: false,
        }
    }

    /// Counts a place where it makes a difference whether the commit is over, and says whether it is.
    fn turn(&mut self) -> bool {
        if !self.is_over {
            self.is_over = self.at == Some(self.turns);
            self.turns += 1;
        }
        self.is_over
    }

    fn pass(&mut self) -> Fate {
        let mut handles: Vec<u64> = Vec::new();
        let all = self.hooks.before.iter().chain(self.hooks.after);
        for table in all {
            if !handles.contains(&table.handle) {
                handles.push(table.handle);
            }
        }
        // At equal priority the newer one is asked first.
        handles.sort_unstable();
        for handle in handles.into_iter().rev() {
            let find = |tables: &'t [Table]| tables.iter().find(|it| it.handle == handle);
            let (before, after) = (find(self.hooks.before), find(self.hooks.after));
            let is_same = match (before, after) {
                (Some(before), Some(after)) => Rc::ptr_eq(&before.chains, &after.chains),
                _ => false,
            };
            let entered = match (is_same, before, after) {
                (true, Some(before), _) => Some(before),
                _ if self.turn() => after,
                _ => before,
            };
            let Some(entered) = entered else {
                // On its hook already, or still, but without rules that count.
                continue;
            };
            let way = Way {
                rules: entered,
                before,
                after,
            };
            if !self.enter(way) {
                return Fate {
                    passed: false,
                    mark: self.mark,
                };
            }
        }
        Fate {
            passed: true,
            mark: self.mark,
        }
    }

    /// Whether a table lets the packet pass.
    fn enter(&mut self, way: Way<'t>) -> bool {
        for (point, name) in &way.rules.hooked {
            if *point != self.packet.point {
                continue;
            }
            match self.chain(way, name, 0) {
                Ending::Accept | Ending::Fell => {}
                Ending::Drop => return false,
            }
        }
        true
    }

    fn chain(&mut self, way: Way<'t>, name: &Name, depth: usize) -> Ending {
        // A chain that the transaction has made, as a packet of before it sees it.
        let Some(chain) = way.rules.chains.get(name) else {
            return Ending::Fell;
        };
        if depth > DEEPEST {
            return Ending::Drop;
        }
        for rule in &chain.rules {
            match self.rule(way, rule) {
                None => {}
                Some(Verdict::Accept) => return Ending::Accept,
                Some(Verdict::Drop) => return Ending::Drop,
                Some(Verdict::Return) => return Ending::Fell,
                Some(Verdict::Goto(to)) => return self.chain(way, to, depth + 1),
                Some(Verdict::Jump(to)) => match self.chain(way, to, depth + 1) {
                    Ending::Fell => {}
                    ending @ (Ending::Accept | Ending::Drop) => return ending,
                },
            }
        }
        Ending::Fell
    }

    fn rule(&mut self, way: Way<'t>, rule: &'t Rule) -> Option<&'t Verdict> {
        for condition in &rule.matches {
            if !self.holds(way, condition) {
                return None;
            }
        }
        for statement in &rule.statements {
            match statement {
                Statement::SetCtMark { mask, value } => {
                    self.mark = self.mark & !mask | value & mask;
                }
                Statement::Dispatch { map, key } => {
                    let key = self.key(key)?;
                    if let Some(Data::Verdict(verdict)) = self.find(way, map, &key) {
                        return Some(verdict);
                    }
                }
                Statement::Verdict(verdict) => return Some(verdict),
                Statement::Counter
                | Statement::Dnat(..)
                | Statement::Masquerade
                | Statement::Notrack => {}
            }
        }
        None
    }

    fn holds(&mut self, way: Way<'t>, condition: &Match) -> bool {
        let packet = self.packet;
        match condition {
            Match::CtMark { mask, equal, value } => (self.mark & mask == *value) == *equal,
            Match::CtState(bits) => {
                let is = if packet.established {
                    state::ESTABLISHED
                } else {
                    state::NEW
                };
                bits & is != 0
            }
            Match::CtIsReply(is_reply) => packet.reply == *is_reply,
            Match::L4(l4) | Match::CtL4(l4) => packet.l4 == *l4,
            Match::HopLimit(hops) => *hops == 63,
            Match::Family(family) => self.family() == *family,
            Match::CtPort(from, to) => (*from..=*to).contains(&packet.port),
            Match::HeaderPort(from, to) => (*from..=*to).contains(&self.header_port()),
            // Echoes, where it is ICMP at all.
            Match::IcmpType(from, to) => (*from..=*to).contains(&8),
            // Nobody lies here, and where routes lead is not a matter of this model.
            Match::ReverseRoute => true,
            Match::TcpNotOpening => packet.l4 == TCP && packet.established,
            Match::Lookup { set, key, missing } => {
                // Where a part of the key cannot be read, the rule ends.
                let Some(key) = self.key(key) else {
                    return false;
                };
                self.find(way, set, &key).is_none() == *missing
            }
            Match::LookupNumber { map, of, set, rest } => {
                let Some(of) = self.key(of) else {
                    return false;
                };
                let Some(Data::Number(number)) = self.find(way, map, &of) else {
                    return false;
                };
                let Some(rest) = self.key(rest) else {
                    return false;
                };
                let mut key = number.to_ne_bytes().to_vec();
                key.extend(rest);
                self.find(way, set, &key).is_some()
            }
            Match::Within {
                end,
                block,
                outside,
            } => {
                let address = self.address(*end);
                Family::of(block.first()) == Family::of(address)
                    && block.contains(address) != *outside
            }
        }
    }

    fn family(&self) -> Family {
        Family::of(self.packet.client)
    }

    fn header_port(&self) -> u16 {
        if self.packet.reply {
            CLIENT_PORT
        } else {
            self.packet.port
        }
    }

    fn address(&self, end: PacketEnd) -> IpAddr {
        let Packet { client, server, .. } = self.packet;
        match (end, self.packet.reply) {
            (PacketEnd::CtClient, _)
            | (PacketEnd::Source, false)
            | (PacketEnd::Destination, true) => client,
            (PacketEnd::CtServer, _)
            | (PacketEnd::Source, true)
            | (PacketEnd::Destination, false) => server,
        }
    }

    /// The bytes of a key; `None`: the packet is of another family.
    fn key(&self, parts: &[Key]) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(24);
        for part in parts {
            let value = match part {
                Key::Number(number) => Value::Number(*number),
                Key::Address(end, family, bits) => {
                    if *family != self.family() {
                        return None;
                    }
                    Value::Address(masked(self.address(*end), *bits))
                }
                Key::L4 | Key::CtL4 => Value::L4(self.packet.l4),
                Key::CtPort => Value::Port(self.packet.port),
                Key::CtPortBits(bits) => Value::Port(self.packet.port & PortBlock::mask(*bits)),
                Key::HeaderPort => Value::Port(self.header_port()),
                Key::SourcePortBits(bits) => Value::Number(u32::from(CLIENT_PORT & bits)),
                Key::InterfaceIn => return None,
            };
            write(value, &mut bytes);
        }
        Some(bytes)
    }

    /// What a set has for a key.
    fn find(&mut self, way: Way<'t>, set: &Name, key: &[u8]) -> Option<&'t Data> {
        if let (Some(before), Some(after)) = (way.before, way.after)
            && Rc::ptr_eq(&before.sets, &after.sets)
        {
            return after.sets.get(set)?.find(key);
        }
        let before = way.before.and_then(|table| table.sets.get(set));
        let after = way.after.and_then(|table| table.sets.get(set));
        let was = before.and_then(|it| it.find(key));
        let is = match (before, after) {
            // Deleted by the transaction.
            (Some(before), None) if matches!(before.kind, Kind::Plain | Kind::Ranges) => was,
            (_, after) => after.and_then(|it| it.find(key)),
        };
        if was == is {
            return is;
        }
        if self.turn() { is } else { was }
    }
}

/// The port that connections of the model come from.
const CLIENT_PORT: u16 = 40_000;

/// A table's rules as they are for a packet that entered it, and its sets.
#[derive(Clone, Copy)]
struct Way<'t> {
    rules: &'t Table,
    before: Option<&'t Table>,
    after: Option<&'t Table>,
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    let zeros = |width: u8| u32::from(width.saturating_sub(bits));
    match address {
        IpAddr::V4(it) => {
            let mask = u32::MAX.checked_shl(zeros(32)).unwrap_or(0);
            IpAddr::V4((it.to_bits() & mask).into())
        }
        IpAddr::V6(it) => {
            let mask = u128::MAX.checked_shl(zeros(128)).unwrap_or(0);
            IpAddr::V6((it.to_bits() & mask).into())
        }
    }
}

/// Fields are as the kernel has them, each filled up to four bytes.
fn write(value: Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Number(number) => bytes.extend(number.to_ne_bytes()),
        Value::Address(IpAddr::V4(address)) => bytes.extend(address.octets()),
        Value::Address(IpAddr::V6(address)) => bytes.extend(address.octets()),
        Value::L4(protocol) => bytes.extend([protocol, 0, 0, 0]),
        Value::Port(port) => {
            bytes.extend(port.to_be_bytes());
            bytes.extend([0, 0]);
        }
        Value::Interface(_) => {}
    }
}
