//! Short ways to write rulesets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use palisade_core::net::{Cidr, CidrText};
use palisade_nft::ruleset::{
    Chain, Field, Hook, Interface, Match, Name, Point, Rule, Ruleset, Set, Statement, Value,
    Values, Verdict,
};
use palisade_nft::{Op, Transaction};

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

/// The set of the generation.
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

/// Elements `number . 10.0.0.(last + 1)` of a set like that of the clients.
pub(crate) fn elements(set: &Set, keys: &[[u8; 2]]) -> Set {
    let mut some = Set::new(set.name.clone(), set.fields.clone());
    for [number, last] in keys {
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, last + 1));
        some.push(&[Value::Number((*number).into()), Value::Address(address)]);
    }
    some
}

/// Applies a transaction to a ruleset. Panics where the kernel would refuse it.
pub(crate) fn apply(ruleset: &mut Ruleset, transaction: &Transaction) {
    for op in &transaction.ops {
        match op {
            Op::AddChain(name) => {
                assert!(ruleset.chains.iter().all(|chain| chain.name != *name));
                ruleset.chains.insert(0, inner(name.clone(), Vec::new()));
            }
            Op::Rewrite(new) => {
                let chain = ruleset.chains.iter_mut().find(|it| it.name == new.name);
                chain.unwrap().rules.clone_from(&new.rules);
            }
            Op::DeleteChain(name) => {
                let place = ruleset.chains.iter().position(|it| it.name == *name);
                ruleset.chains.remove(place.unwrap());
                let word = format!(" {name}");
                let rules = ruleset.chains.iter().flat_map(|chain| &chain.rules);
                let is_led_to = |rule: &Rule| rule.to_string().ends_with(&word);
                assert!(!rules.into_iter().any(is_led_to), "{op}");
                for set in &ruleset.sets {
                    if let Values::Verdicts(verdicts) = &set.values {
                        let mut verdicts = verdicts.iter();
                        assert!(!verdicts.any(|it| it.to_string().ends_with(&word)), "{op}");
                    }
                }
            }
            Op::AddSet(set) => {
                assert!(ruleset.sets.iter().all(|it| it.name != set.name));
                ruleset.sets.push(set.clone());
            }
            Op::DeleteSet(name) => {
                let place = ruleset.sets.iter().position(|it| it.name == *name);
                ruleset.sets.remove(place.unwrap());
            }
            Op::AddElements(some) => {
                let set = ruleset.sets.iter_mut().find(|it| it.name == some.name);
                let set = set.unwrap();
                assert!(some.iter().all(|key| set.iter().all(|it| it != key)));
                set.keys.extend(&some.keys);
                match (&mut set.values, &some.values) {
                    (Values::Verdicts(all), Values::Verdicts(new)) => all.extend_from_slice(new),
                    (Values::Numbers(all), Values::Numbers(new)) => all.extend(new),
                    (all, new) => assert_eq!(all, new),
                }
            }
            Op::DeleteElements(some) => {
                let set = ruleset.sets.iter_mut().find(|it| it.name == some.name);
                let set = set.unwrap();
                for key in some.iter() {
                    let place = set.iter().position(|it| it == key).unwrap();
                    let width = set.width();
                    set.keys.drain(place * width..(place + 1) * width);
                    match &mut set.values {
                        Values::Nothing | Values::Ranges => {}
                        Values::Verdicts(all) => drop(all.remove(place)),
                        Values::Numbers(all) => drop(all.remove(place)),
                    }
                }
            }
        }
    }
}
