//! Who sends with whose address (D147).
//!
//! The kernel's own routes say which interface an address is reached by, so that nothing has to be known of the
//! interfaces of pods, and nothing is late: what comes from another interface is not of that address. Only
//! interfaces that do not lead to pods of the node are known by name. There what goes and what comes may take
//! different ways, and only addresses of the node's own pods are refused.

use std::net::Ipv6Addr;

use palisade_core::net::{Cidr, Family};
use palisade_core::plan::Plan;

use super::base_chains::{address, drop, known_pods, lookup, missing, rule};
use super::{Settings, pods_of};
use crate::ruleset::{
    Chain, Field, ICMP, ICMP6, Key, Match, Name, PacketEnd, Rule, Set, Value, Verdict, state,
};

/// Interfaces that do not lead to pods of the node.
pub(crate) const ELSEWHERE: &str = "elsewhere";

/// The chain.
const SENDERS: &str = "senders";

/// Each pod's address, twice: two parts of a packet can be compared by it.
pub(crate) fn twice(family: Family) -> &'static str {
    match family {
        Family::V4 => "twice4",
        Family::V6 => "twice6",
    }
}

/// The sets that the checks need beside those of known pods.
pub(super) fn sets(plan: &Plan, settings: &Settings) -> Vec<Set> {
    let Some(elsewhere) = settings.elsewhere() else {
        return Vec::new();
    };
    let mut interfaces = Set::new(Name::word(ELSEWHERE), vec![Field::Interface]);
    for interface in elsewhere {
        interfaces.push(&[Value::Interface(interface)]);
    }
    let mut sets = vec![interfaces];
    for family in Family::BOTH {
        let fields = vec![Field::address(family); 2];
        let mut set = Set::new(Name::word(twice(family)), fields);
        for (address, _) in pods_of(plan, family) {
            set.push(&[Value::Address(address); 2]);
        }
        sets.push(set);
    }
    sets
}

/// A pod sends with its own addresses only, and nobody else with them. Most who are asked are who they
/// say, so that this is asked first.
pub(super) fn chain(settings: &Settings) -> Option<Chain> {
    if !settings.checks_senders() {
        return None;
    }
    let mut rules = vec![not_from(link()), not_from(groups())];
    rules.push(rule(vec![Match::WayBack], Verdict::Return));
    rules.push(drop(vec![from_a_pod()]));
    for family in Family::BOTH {
        let as_a_pod = lookup(known_pods(family), vec![address(PacketEnd::Source, family)]);
        rules.push(drop(vec![Match::Family(family), as_a_pod]));
    }
    Some(Chain {
        name: Name::word(SENDERS),
        hook: None,
        rules,
    })
}

/// A link's own addresses are every pod's, and no policy knows whose: a pod could reach its node by one whatever
/// its policies say. What neighbours have to tell each other was accepted before.
fn link() -> Option<Cidr> {
    Cidr::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0).into(), 10)
}

/// Groups have no sender, and the kernel has a route to them by every interface: its routes would let them pass between
/// the pods of a bridge.
fn groups() -> Option<Cidr> {
    Cidr::new(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0).into(), 8)
}

/// Drops what comes from a pod with an address of a block of IPv6.
fn not_from(block: Option<Cidr>) -> Rule {
    let within = block.map(|block| Match::Within {
        end: PacketEnd::Source,
        block,
        outside: false,
    });
    let mut matches = vec![Match::Family(Family::V6)];
    matches.extend(within);
    matches.push(from_a_pod());
    drop(matches)
}

/// From an interface that may lead to pods.
fn from_a_pod() -> Match {
    missing(ELSEWHERE, vec![Key::InterfaceIn])
}

/// Whoever sends with another's address is not who the rules would judge, and whoever reports errors
/// of others' connections is not of them.
pub(super) fn false_senders(settings: &Settings) -> Vec<Rule> {
    if !settings.checks_senders() {
        return Vec::new();
    }
    let mut rules = vec![rule(Vec::new(), Verdict::Jump(Name::word(SENDERS)))];
    for (family, protocol) in [(Family::V4, ICMP), (Family::V6, ICMP6)] {
        let is_not = |end| {
            let both = vec![address(end, family), address(PacketEnd::Source, family)];
            missing(twice(family), both)
        };
        rules.push(drop(vec![
            Match::Family(family),
            Match::CtState(state::RELATED),
            Match::L4(protocol),
            from_a_pod(),
            is_not(PacketEnd::CtClient),
            is_not(PacketEnd::CtServer),
        ]));
    }
    rules
}

/// A pod is not a router: what it advertises or redirects is not for its node.
pub(super) fn not_a_router(settings: &Settings) -> Vec<Rule> {
    if !settings.checks_senders() {
        return Vec::new();
    }
    let of_type = |kind| {
        drop(vec![
            Match::Family(Family::V6),
            Match::L4(ICMP6),
            Match::IcmpType(kind, kind),
            from_a_pod(),
        ])
    };
    vec![of_type(134), of_type(137)]
}
