//! Services by translation, as a service proxy installs them on each node.
//!
//! The backend of a connection depends on the low bits of its source port alone. A probe chooses
//! its backend by that port, and any other client gets some backend.

use std::collections::BTreeSet;
use std::net::IpAddr;

use palisade_core::net::{Family, Protocol};
use palisade_nft::ruleset::{
    Chain, Field, Hook, Key, Match, Name, PacketEnd, Point, Rule, Ruleset, Set, Statement, Value,
    Verdict, l4,
};

/// A translation of an address and port that clients dial.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The address that they dial.
    pub address: IpAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// The port that they dial.
    pub port: u16,
    /// The addresses and ports of the backends, all of the family of the address.
    pub backends: Vec<(IpAddr, u16)>,
    /// Whether the backend sees the node instead of the client.
    pub masquerade: bool,
}

impl Entry {
    /// Returns the bits of the source port that choose the backend.
    pub fn port_bits(&self) -> u16 {
        // A source port has no more bits to spare.
        let n_backends = u16::try_from(self.backends.len()).unwrap_or(u16::MAX);
        n_backends.clamp(1, 1 << 14).next_power_of_two() - 1
    }
}

/// The bit of the ct mark that requests masquerading. Policies use the upper half.
const MASQUERADE: u32 = 1;

/// Makes the translations of one node.
pub fn translations(entries: &[Entry]) -> Ruleset {
    let mut sets = Vec::new();
    let mut chains = Vec::new();
    for family in Family::BOTH {
        let of_family = |entry: &&Entry| Family::of(entry.address) == family;
        let address = Field::address(family);
        let fields = vec![address, Field::L4, Field::Port];
        let mut dialled = Set::map(Name::word(entries_of(family)), fields);
        let mut hairpins = Set::new(Name::word(hairpins_of(family)), vec![address, address]);
        let mut paired = BTreeSet::new();
        let numbered = (0u32..).zip(entries).filter(|(_, entry)| of_family(entry));
        for (number, entry) in numbered {
            if entry.backends.is_empty() {
                continue;
            }
            let key = [
                Value::Address(entry.address),
                Value::L4(l4(entry.protocol)),
                Value::Port(entry.port),
            ];
            let chain = Name::numbered("entry", number);
            dialled.push_verdict(&key, Verdict::Goto(chain));
            one(number, entry, &mut sets, &mut chains);
            for (backend, _) in &entry.backends {
                if paired.insert(*backend) {
                    let backend = Value::Address(*backend);
                    hairpins.push(&[backend, backend]);
                }
            }
        }
        sets.extend([dialled, hairpins]);
    }
    chains.extend(hooked());
    for set in &mut sets {
        set.size = u32::try_from(set.len() * 2).unwrap_or(u32::MAX).max(16);
    }
    Ruleset {
        table: Name::word("lab-services"),
        sets,
        chains,
    }
}

fn entries_of(family: Family) -> &'static str {
    match family {
        Family::V4 => "dialled4",
        Family::V6 => "dialled6",
    }
}

fn hairpins_of(family: Family) -> &'static str {
    match family {
        Family::V4 => "hairpins4",
        Family::V6 => "hairpins6",
    }
}

/// Adds the chains of one entry: one that chooses, and one for each backend that translates.
fn one(number: u32, entry: &Entry, sets: &mut Vec<Set>, chains: &mut Vec<Chain>) {
    let map_name = Name::numbered("choice", number);
    let mut choice = Set::map(map_name.clone(), vec![Field::Number]);
    let bits = entry.port_bits();
    let n_backends = entry.backends.len();
    for value in 0..=bits {
        let backend = u32::try_from(usize::from(value) % n_backends.max(1)).unwrap_or(0);
        let chain = Name::numbered_twice("backend", number, backend);
        choice.push_verdict(&[Value::Number(value.into())], Verdict::Goto(chain));
    }
    sets.push(choice);
    for (backend, (address, port)) in (0u32..).zip(&entry.backends) {
        let mut statements = Vec::new();
        if entry.masquerade {
            statements.push(Statement::SetCtMark {
                mask: MASQUERADE,
                value: MASQUERADE,
            });
        }
        statements.push(Statement::Dnat(*address, *port));
        chains.push(Chain {
            name: Name::numbered_twice("backend", number, backend),
            hook: None,
            rules: vec![Rule {
                statements,
                ..Rule::default()
            }],
        });
    }
    chains.push(Chain {
        name: Name::numbered("entry", number),
        hook: None,
        rules: vec![Rule {
            statements: vec![Statement::Dispatch {
                map: map_name,
                key: vec![Key::SourcePortBits(bits)],
            }],
            ..Rule::default()
        }],
    });
}

fn hooked() -> Vec<Chain> {
    let chain = |name, point, priority, rules| Chain {
        name: Name::word(name),
        hook: Some(Hook {
            point,
            priority,
            nat: true,
        }),
        rules,
    };
    let dial = Family::BOTH.map(|family| Rule {
        matches: vec![Match::Family(family)],
        statements: vec![Statement::Dispatch {
            map: Name::word(entries_of(family)),
            key: vec![
                Key::Address(PacketEnd::Destination, family, family.bits()),
                Key::L4,
                Key::HeaderPort,
            ],
        }],
        origin: None,
    });
    let marked = Match::CtMark {
        mask: MASQUERADE,
        equal: true,
        value: MASQUERADE,
    };
    let masquerade = |matches| Rule {
        matches,
        statements: vec![Statement::Masquerade],
        origin: None,
    };
    let mut leave = vec![masquerade(vec![marked])];
    for family in Family::BOTH {
        let pair = Match::Lookup {
            set: Name::word(hairpins_of(family)),
            key: vec![
                Key::Address(PacketEnd::Source, family, family.bits()),
                Key::Address(PacketEnd::Destination, family, family.bits()),
            ],
            missing: false,
        };
        leave.push(masquerade(vec![Match::Family(family), pair]));
    }
    vec![
        chain("prerouting", Point::Prerouting, -100, dial.to_vec()),
        chain("output", Point::Output, -100, dial.to_vec()),
        chain("postrouting", Point::Postrouting, 100, leave),
    ]
}
