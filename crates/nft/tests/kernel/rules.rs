//! Short ways to write rulesets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use palisade_core::net::{Cidr, CidrText};
use palisade_nft::ruleset::{
    Chain, Field, Hook, Interface, Match, Name, Point, Rule, Ruleset, Set, Statement, Value,
    Verdict,
};

/// A rule.
pub(crate) fn rule(matches: &[Match], statements: &[Statement]) -> Rule {
    Rule {
        matches: matches.to_vec(),
        statements: statements.to_vec(),
        origin: None,
    }
}

/// A chain that is only jumped to.
pub(crate) fn inner(name: Name, rules: Vec<Rule>) -> Chain {
    Chain {
        name,
        hook: None,
        rules,
    }
}

/// A chain on a hook.
pub(crate) fn hooked(name: &'static str, point: Point, rules: Vec<Rule>) -> Chain {
    Chain {
        name: Name::word(name),
        hook: Some(Hook {
            point,
            priority: -10,
            nat: false,
        }),
        rules,
    }
}

/// The set that says the generation.
pub(crate) fn generation(number: u32) -> Set {
    let mut set = Set::new(Name::word("generation"), vec![Field::Number]);
    set.push(&[Value::Number(number)]);
    set.size = 1;
    set
}

/// A small ruleset: clients of a set are accepted and others dropped.
pub(crate) fn small(number: u32) -> Ruleset {
    let mut clients = Set::new(Name::word("mem4"), vec![Field::Number, Field::V4]);
    for last in 1..=200 {
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        clients.push(&[Value::Number(7), Value::Address(address)]);
    }
    let mut map = Set::map(Name::word("eg4"), vec![Field::V4]);
    let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    let chain = Name::at("e", address);
    map.push_verdict(&[Value::Address(address)], Verdict::Jump(chain.clone()));
    let accept = rule(
        &[],
        &[Statement::Counter, Statement::Verdict(Verdict::Accept)],
    );
    Ruleset {
        table: Name::word("ignored"),
        sets: vec![generation(number), clients, map],
        chains: vec![
            inner(chain, vec![accept.clone()]),
            hooked("forward", Point::Forward, vec![accept.clone()]),
            hooked("input", Point::Input, vec![accept]),
        ],
    }
}

/// The address `fd00::n`.
pub(crate) fn v6(last: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last))
}

/// A block of addresses.
pub(crate) fn block(text: &str) -> Cidr {
    CidrText::parse(text).unwrap().cidr
}

/// The loopback interface.
pub(crate) fn lo() -> Interface {
    Interface::new("lo").unwrap()
}
