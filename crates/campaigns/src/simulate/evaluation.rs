//! The evaluation of a packet, and all evaluations that are possible while a transaction is
//! committed.
//!
//! A packet that enters a base chain keeps the rules of that moment until it leaves the chain. A
//! set lookup reads the elements of its own moment. Hence there is one moment in the evaluation
//! from which on entered base chains and looked-up sets are those after the commit. A chain that
//! the transaction created is empty before it, and a deleted one is empty after it. A deleted map
//! is empty after it too, but a deleted plain set keeps its elements.

use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;

use palisade_core::net::Family;
use palisade_core::plan::PortBlock;
use palisade_nft::ruleset::{
    Key, Match, Name, PacketEnd, Point, Rule, Statement, TCP, Value, Verdict, state,
};

use super::table::{Data, SetKind, Table};

/// A packet of a connection without address translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packet {
    /// The address that opened the connection.
    pub client: IpAddr,
    /// The other address.
    pub server: IpAddr,
    /// The IP protocol.
    pub l4: u8,
    /// The server's port; 0 for protocols without ports.
    pub port: u16,
    /// The hook that it passes.
    pub point: Point,
    /// Whether the connection exists.
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

/// The outcome of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketOutcome {
    /// Whether it passed.
    pub passed: bool,
    /// The mark of its connection after that.
    pub mark: u32,
}

/// The tables that packets pass, and the tables before the last transaction.
#[derive(Clone, Copy, Debug)]
pub struct Hooks<'t> {
    /// The tables after the transaction.
    pub after: &'t [Table],
    /// The tables before the transaction.
    pub before: &'t [Table],
}

impl<'t> Hooks<'t> {
    /// Tables without a transaction.
    pub fn quiet(tables: &'t [Table]) -> Hooks<'t> {
        Hooks {
            after: tables,
            before: tables,
        }
    }

    /// The outcome of a packet after the commit.
    pub fn after(self, packet: Packet) -> PacketOutcome {
        Evaluation::new(Hooks::quiet(self.after), packet, None).run()
    }

    /// The other possible outcomes of a packet in flight during the commit.
    pub fn torn(self, packet: Packet) -> Vec<PacketOutcome> {
        let mut first = Evaluation::new(self, packet, None);
        let _ = first.run();
        let n_observations = first.n_observations;
        let commit_at = |observe| Evaluation::new(self, packet, Some(observe)).run();
        (0..n_observations).map(commit_at).collect()
    }
}

/// The maximum depth of jumps.
const MAX_DEPTH: usize = 16;

/// The result of a chain.
enum ChainResult {
    Accept,
    Drop,
    /// The calling chain continues.
    Continue,
}

struct Evaluation<'t> {
    hooks: Hooks<'t>,
    packet: Packet,
    mark: u32,
    /// The index of the observation before which the commit happens.
    commit_at: Option<usize>,
    /// The number of observations: moments where the commit makes a difference.
    n_observations: usize,
    is_committed: bool,
}

impl<'t> Evaluation<'t> {
    fn new(hooks: Hooks<'t>, packet: Packet, commit_at: Option<usize>) -> Evaluation<'t> {
        Evaluation {
            hooks,
            packet,
            mark: packet.mark,
            commit_at,
            n_observations: 0,
            is_committed: false,
        }
    }

    /// Counts an observation, and returns whether the commit is over.
    fn observe(&mut self) -> bool {
        if !self.is_committed {
            self.is_committed = self.commit_at == Some(self.n_observations);
            self.n_observations += 1;
        }
        self.is_committed
    }

    fn run(&mut self) -> PacketOutcome {
        let mut handles: Vec<u64> = Vec::new();
        let all = self.hooks.before.iter().chain(self.hooks.after);
        for table in all {
            if !handles.contains(&table.handle) {
                handles.push(table.handle);
            }
        }
        // At equal priority the newer one comes first.
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
                _ if self.observe() => after,
                _ => before,
            };
            let Some(entered) = entered else {
                // Its base chains are registered, but without rules of this moment.
                continue;
            };
            let view = TableView {
                rules: entered,
                before,
                after,
            };
            if !self.enter(view) {
                return PacketOutcome {
                    passed: false,
                    mark: self.mark,
                };
            }
        }
        PacketOutcome {
            passed: true,
            mark: self.mark,
        }
    }

    /// Whether a table accepts the packet.
    fn enter(&mut self, view: TableView<'t>) -> bool {
        for (point, name) in &view.rules.hooked {
            if *point != self.packet.point {
                continue;
            }
            match self.chain(view, name, 0) {
                ChainResult::Accept | ChainResult::Continue => {}
                ChainResult::Drop => return false,
            }
        }
        true
    }

    fn chain(&mut self, view: TableView<'t>, name: &Name, depth: usize) -> ChainResult {
        // A chain that the transaction created is empty for packets from before it.
        let Some(chain) = view.rules.chains.get(name) else {
            return ChainResult::Continue;
        };
        if depth > MAX_DEPTH {
            return ChainResult::Drop;
        }
        for rule in &chain.rules {
            match self.rule(view, rule) {
                None => {}
                Some(Verdict::Accept) => return ChainResult::Accept,
                Some(Verdict::Drop) => return ChainResult::Drop,
                Some(Verdict::Return) => return ChainResult::Continue,
                Some(Verdict::Goto(to)) => return self.chain(view, to, depth + 1),
                Some(Verdict::Jump(to)) => match self.chain(view, to, depth + 1) {
                    ChainResult::Continue => {}
                    result @ (ChainResult::Accept | ChainResult::Drop) => return result,
                },
            }
        }
        ChainResult::Continue
    }

    fn rule(&mut self, view: TableView<'t>, rule: &'t Rule) -> Option<&'t Verdict> {
        for condition in &rule.matches {
            if !self.matches(view, condition) {
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
                    if let Some(Data::Verdict(verdict)) = self.find(view, map, &key) {
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

    fn matches(&mut self, view: TableView<'t>, condition: &Match) -> bool {
        let packet = self.packet;
        match condition {
            Match::CtMark { mask, equal, value } => (self.mark & mask == *value) == *equal,
            Match::CtState(bits) => {
                let current = if packet.established {
                    state::ESTABLISHED
                } else {
                    state::NEW
                };
                bits & current != 0
            }
            Match::CtIsReply(is_reply) => packet.reply == *is_reply,
            Match::L4(l4) | Match::CtL4(l4) => packet.l4 == *l4,
            Match::HopLimit(hops) => *hops == 63,
            Match::Family(family) => self.family() == *family,
            Match::CtPort(from, to) => (*from..=*to).contains(&packet.port),
            Match::HeaderPort(from, to) => (*from..=*to).contains(&self.header_port()),
            // Every ICMP packet of the model is an echo.
            Match::IcmpType(from, to) => (*from..=*to).contains(&8),
            // The model has neither forged addresses nor routes.
            Match::ReverseRoute => true,
            Match::TcpNotOpening => packet.l4 == TCP && packet.established,
            Match::Lookup { set, key, missing } => {
                // The rule ends if a field of the key cannot be read.
                let Some(key) = self.key(key) else {
                    return false;
                };
                self.find(view, set, &key).is_none() == *missing
            }
            Match::LookupNumber { map, of, set, rest } => {
                let Some(of) = self.key(of) else {
                    return false;
                };
                let Some(Data::Number(number)) = self.find(view, map, &of) else {
                    return false;
                };
                let Some(rest) = self.key(rest) else {
                    return false;
                };
                let mut key = number.to_ne_bytes().to_vec();
                key.extend(rest);
                self.find(view, set, &key).is_some()
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

    /// The bytes of a key, or `None` if the packet is of another family.
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

    /// Looks up a key in a set.
    fn find(&mut self, view: TableView<'t>, set: &Name, key: &[u8]) -> Option<&'t Data> {
        if let (Some(before), Some(after)) = (view.before, view.after)
            && Rc::ptr_eq(&before.sets, &after.sets)
        {
            return after.sets.get(set)?.find(key);
        }
        let before = view.before.and_then(|table| table.sets.get(set));
        let after = view.after.and_then(|table| table.sets.get(set));
        let previous = before.and_then(|it| it.find(key));
        let current = match (before, after) {
            // Deleted by the transaction.
            (Some(before), None) if matches!(before.kind, SetKind::Plain | SetKind::Ranges) => {
                previous
            }
            (_, after) => after.and_then(|it| it.find(key)),
        };
        if previous == current {
            return current;
        }
        if self.observe() { current } else { previous }
    }
}

/// The source port of connections in the model.
const CLIENT_PORT: u16 = 40_000;

/// A table as a packet sees it: the rules of the moment it entered, and the sets.
#[derive(Clone, Copy)]
struct TableView<'t> {
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

/// Writes a field as in the kernel, padded to four bytes.
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
