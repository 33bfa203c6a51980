//! Checks of source addresses (D147).
//!
//! The kernel's own routes say through which interface an address is reached. Nothing must be known
//! of the interfaces of pods, and a route of the plugin counts at once: a packet from another
//! interface has a false source address. Only interfaces that do not lead to pods of the node are
//! known by name. There requests and replies may take different paths, and only addresses of the
//! node's own pods are refused.

use std::net::Ipv6Addr;

use palisade_core::net::{Cidr, Family};
use palisade_core::plan::Plan;

use super::base_chains::{address, drop, known_pods, lookup, missing, rule};
use super::{Settings, pods_of};
use crate::ruleset::{
    Chain, Field, ICMP, ICMP6, Key, Match, Name, PacketEnd, Rule, Set, Value, Verdict, state,
};

/// The set of interfaces that do not lead to pods of the node.
pub(crate) const ELSEWHERE: &str = "elsewhere";

/// The chain of the checks.
const SENDERS: &str = "senders";

/// Returns the name of the set with each pod's address paired with itself.
// nftables cannot compare two parts of a packet with each other. A lookup of both parts together
// can.
pub(crate) fn twice(family: Family) -> &'static str {
    match family {
        Family::V4 => "twice4",
        Family::V6 => "twice6",
    }
}

/// Makes the sets of the checks, except those of known pods.
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

/// Makes the chain that drops packets with a false source address.
pub(super) fn chain(settings: &Settings) -> Option<Chain> {
    if !settings.checks_senders() {
        return None;
    }
    // Before the route lookup: these sources have a route through every interface.
    let mut rules = vec![not_from(link()), not_from(groups())];
    // Nearly every packet passes here, with one route lookup.
    rules.push(rule(vec![Match::ReverseRoute], Verdict::Return));
    // No route back through this interface. From one that may lead to pods, the packet is dropped.
    // From elsewhere replies may take another path: only addresses of this node's pods are refused.
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

/// Returns the block of link-local addresses.
// Any pod can have any of them, and no policy knows which pod it is: a pod could reach its node by
// one whatever its policies deny. Neighbor discovery was accepted before.
fn link() -> Option<Cidr> {
    Cidr::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0).into(), 10)
}

/// Returns the block of multicast addresses.
// They are no valid source. The kernel has a route to them through every interface, and would
// forward such packets between the pods of a bridge.
fn groups() -> Option<Cidr> {
    Cidr::new(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0).into(), 8)
}

/// Makes the rule that drops packets from pods with a source address of an IPv6 block.
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

/// Matches packets from interfaces that may lead to pods.
fn from_a_pod() -> Match {
    missing(ELSEWHERE, vec![Key::InterfaceIn])
}

/// Makes the rules that check the source address, and the sender of ICMP errors.
pub(super) fn false_senders(settings: &Settings) -> Vec<Rule> {
    if !settings.checks_senders() {
        return Vec::new();
    }
    let mut rules = vec![rule(Vec::new(), Verdict::Jump(Name::word(SENDERS)))];
    // An ICMP error is evaluated as the connection that it reports on. From a pod's interface it
    // must come from an end of that connection: any other pod could disturb connections of
    // strangers. From elsewhere any router on the path may send it.
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

/// Makes the rules that drop what pods advertise or redirect as routers. The node must not learn
/// routes from them.
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
