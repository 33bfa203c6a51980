//! Probes the kernel's capabilities with a transaction that it must refuse.

use std::net::{IpAddr, Ipv4Addr};

use nix::errno::Errno;
use palisade_core::net::Family;

use super::{Kernel, OWNED};
use crate::encode::{Batch, BatchItem, abi};
use crate::error::{BatchSource, Error};
use crate::ruleset::{
    Chain, Field, Hook, Key, Match, Name, PacketEnd, Point, Rule, Ruleset, Set, Statement, Verdict,
    state,
};

/// The optional capabilities of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// A socket can own a table, which no other program may change.
    pub owner: bool,
    /// An owned table can stay when the socket is closed.
    pub persist: bool,
    /// Addresses can be translated. Only labs need it.
    pub nat: bool,
    /// Packets can be kept out of connection tracking. Only labs need it.
    pub notrack: bool,
}

impl Capabilities {
    /// Returns the flags of Palisade's tables.
    pub(super) fn table_flags(self) -> u32 {
        // An owned table that does not persist would vanish with its process, and all enforcement
        // with it. One that other programs can change is better.
        if self.owner && self.persist { OWNED } else { 0 }
    }
}

/// A trial: a name, whether every ruleset needs it, and a rule.
type Trial = (&'static str, bool, Rule);

// None of these tables ever exists: the transaction that adds them is always refused.
const TABLE: &str = "palisade-probe";
const OWNER_TABLE: &str = "palisade-probe-owner";
const PERSIST_TABLE: &str = "palisade-probe-persist";
const NO_TABLE: &str = "palisade-probe-none";

impl Kernel {
    /// Probes the capabilities of the kernel. It is an error if a necessary one is missing. Nothing
    /// is changed.
    pub fn probe(&mut self) -> Result<Capabilities, Error> {
        // One transaction tries everything and ends with an impossible message. The kernel refuses
        // it as a whole, and reports each message that it refuses, not only the first.
        let trials = trials();
        let (ruleset, nat) = ruleset(&trials);
        let mut batch = Batch::new();
        batch.add_table(TABLE, 0);
        for (place, set) in (0..).zip(&ruleset.sets) {
            batch.add_set(TABLE, set, place);
        }
        for (place, chain) in (0..).zip(&ruleset.chains) {
            batch.add_chain(TABLE, chain, place);
            for (number, rule) in (0..).zip(&chain.rules) {
                batch.add_rule(TABLE, chain, rule, (place, number))?;
            }
        }
        // Tables of their own: a kernel may know the one flag and not the other.
        batch.add_table(OWNER_TABLE, abi::table::FLAG_OWNER);
        batch.add_table(PERSIST_TABLE, OWNED);
        batch.delete_table(NO_TABLE);

        let refused = self.channel.transact(&mut batch)?;
        let mut capabilities = Capabilities {
            owner: true,
            persist: true,
            nat: true,
            notrack: true,
        };
        let mut lacking = Vec::new();
        let mut lacks_nftables = None;
        for refused in refused {
            let subject = batch.items().get(refused.place);
            // The first chain has one rule for each trial, in the same order.
            match subject.unwrap_or(&BatchItem::Transaction) {
                BatchItem::DeleteTable(_) => {}
                BatchItem::AddTable(table) if **table == *OWNER_TABLE => capabilities.owner = false,
                BatchItem::AddTable(table) if **table == *PERSIST_TABLE => {
                    capabilities.persist = false;
                }
                subject if !says_lacking(refused.errno) => {
                    return Err(subject
                        .refusal(BatchSource::Ruleset(&ruleset), &refused)
                        .into());
                }
                BatchItem::AddRule(0, number) => match trials.get(*number as usize) {
                    Some((_, false, _)) => capabilities.notrack = false,
                    Some((what, true, _)) => lacking.push(*what),
                    None => {}
                },
                BatchItem::AddChain(place) | BatchItem::AddRule(place, _) if *place == nat => {
                    capabilities.nat = false;
                }
                BatchItem::AddSet(_) => lacking.push("sets and maps"),
                BatchItem::AddChain(_) | BatchItem::AddRule(..) => lacking.push("base chains"),
                BatchItem::AddTable(_) => {
                    lacks_nftables.get_or_insert("nftables for the inet family");
                }
                BatchItem::Transaction
                | BatchItem::EmptyChain(_)
                | BatchItem::AddElements(..)
                | BatchItem::Operation(..) => {
                    lacks_nftables.get_or_insert("nftables");
                }
            }
        }
        lacking.dedup();
        // Without a table the kernel refuses everything else as well.
        if let Some(all) = lacks_nftables {
            lacking = vec![all];
        }
        if !lacking.is_empty() {
            return Err(Error::Lacking(lacking));
        }
        self.capabilities = Some(capabilities);
        Ok(capabilities)
    }
}

/// Reports whether an error means that the kernel lacks a feature. Lack of permission or memory
/// says nothing about features.
fn says_lacking(errno: Errno) -> bool {
    !matches!(
        errno,
        Errno::EPERM | Errno::EACCES | Errno::ENOMEM | Errno::ENOBUFS | Errno::EINTR
    )
}

/// Returns a ruleset with the trials and every hook, and the index of its chain for translation.
fn ruleset(trials: &[Trial]) -> (Ruleset, u32) {
    let key = |fields: &[Field]| fields.to_vec();
    // Every form of set that a ruleset can have.
    let sets = vec![
        Set::new(Name::word("set4"), key(&[Field::Number, Field::V4])),
        Set::new(Name::word("set6"), key(&[Field::Number, Field::V6])),
        Set::new(
            Name::word("flows"),
            key(&[Field::V4, Field::V4, Field::L4, Field::Port]),
        ),
        Set::new(
            Name::word("interfaces"),
            key(&[Field::Interface, Field::V4]),
        ),
        Set::ranges(Name::word("ranges4"), key(&[Field::Number, Field::V4])),
        Set::ranges(Name::word("ranges6"), key(&[Field::Number, Field::V6])),
        Set::map(Name::word("map"), key(&[Field::V4])),
        Set::numbers(Name::word("numbers"), key(&[Field::L4, Field::Port])),
    ];
    let mut chains = vec![Chain {
        name: Name::word("trials"),
        hook: None,
        rules: trials.iter().map(|(_, _, rule)| rule.clone()).collect(),
    }];
    for (name, point) in [
        ("prerouting", Point::Prerouting),
        ("input", Point::Input),
        ("forward", Point::Forward),
        ("output", Point::Output),
    ] {
        chains.push(Chain {
            name: Name::word(name),
            hook: Some(Hook {
                point,
                priority: 0,
                nat: false,
            }),
            rules: Vec::new(),
        });
    }
    let nat = chains.len() as u32;
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    chains.push(Chain {
        name: Name::word("nat"),
        hook: Some(Hook {
            point: Point::Postrouting,
            priority: 100,
            nat: true,
        }),
        rules: vec![
            rule(&[], &[Statement::Masquerade]),
            rule(&[], &[Statement::Dnat(address, 1)]),
        ],
    });
    let table = Name::word(TABLE);
    let ruleset = Ruleset {
        table,
        sets,
        chains,
    };
    (ruleset, nat)
}

fn rule(matches: &[Match], statements: &[Statement]) -> Rule {
    Rule {
        matches: matches.to_vec(),
        statements: statements.to_vec(),
        origin: None,
    }
}

/// Returns the rules to try: what of a kernel each one needs, and whether Palisade can do without
/// it.
fn trials() -> Vec<Trial> {
    let mut trials = trials_of_connections();
    trials.extend(trials_of_headers());
    trials.push(("notrack", false, rule(&[], &[Statement::Notrack])));
    trials
}

fn needed(what: &'static str, matches: &[Match], statements: &[Statement]) -> Trial {
    (what, true, rule(matches, statements))
}

fn within(set: &'static str, key: &[Key], missing: bool) -> Match {
    Match::Lookup {
        set: Name::word(set),
        key: key.to_vec(),
        missing,
    }
}

/// Returns the trials of connection tracking.
fn trials_of_connections() -> Vec<Trial> {
    let client = |family, prefix| {
        [
            Key::Number(1),
            Key::Address(PacketEnd::CtClient, family, prefix),
        ]
    };
    let mark = Match::CtMark {
        mask: 1 << 16,
        equal: true,
        value: 0,
    };
    let set_mark = Statement::SetCtMark {
        mask: 1 << 16,
        value: 0,
    };
    let way = [Match::CtState(state::NEW), Match::CtIsReply(false)];
    let accept = Statement::Verdict(Verdict::Accept);
    let server = Key::Address(PacketEnd::CtServer, Family::V4, 32);
    let by_number = |of: [Key; 2], set| Match::LookupNumber {
        map: Name::word("numbers"),
        of: of.to_vec(),
        set: Name::word(set),
        rest: vec![server],
    };
    let v4 = within("set4", &client(Family::V4, 32), false);
    let v6 = within("set6", &client(Family::V6, 64), true);
    let number = by_number([Key::CtL4, Key::CtPort], "set4");
    let ranges = [
        by_number([Key::CtL4, Key::CtPortBits(12)], "ranges4"),
        within("ranges6", &client(Family::V6, 128), false),
    ];
    vec![
        needed("counters", &[], &[Statement::Counter]),
        needed("verdicts", &[], &[accept]),
        needed("connection states", &way, &[]),
        needed("connection marks", &[mark], &[set_mark]),
        needed("connection ports", &[Match::CtPort(1, 2)], &[]),
        needed("IPv4 addresses of connections", &[v4], &[]),
        needed("IPv6 addresses of connections", &[v6], &[]),
        needed("connection protocols", &[Match::CtL4(6)], &[]),
        needed("maps to numbers", &[number], &[]),
        needed("interval sets by maps of ports", &ranges, &[]),
    ]
}

/// Returns the trials of headers, interfaces and routes.
fn trials_of_headers() -> Vec<Trial> {
    let source = Key::Address(PacketEnd::Source, Family::V4, 32);
    let headers = [
        Match::L4(6),
        Match::HeaderPort(1, 2),
        Match::TcpNotOpening,
        Match::IcmpType(1, 2),
        Match::HopLimit(255),
    ];
    let flow = [
        source,
        Key::Address(PacketEnd::Destination, Family::V4, 32),
        Key::L4,
        Key::HeaderPort,
    ];
    let some_bits = [
        Key::SourcePortBits(3),
        Key::Address(PacketEnd::CtServer, Family::V4, 24),
    ];
    let keys = [
        within("flows", &flow, false),
        within("interfaces", &[Key::InterfaceIn, source], false),
        within("set4", &some_bits, false),
    ];
    let dispatch = Statement::Dispatch {
        map: Name::word("map"),
        key: vec![Key::Address(PacketEnd::CtServer, Family::V4, 32)],
    };
    vec![
        needed("ports and flags of headers", &headers, &[]),
        needed("keys of header fields", &keys, &[]),
        needed("verdict maps", &[], &[dispatch]),
        needed("route lookups (fib)", &[Match::ReverseRoute], &[]),
    ]
}
