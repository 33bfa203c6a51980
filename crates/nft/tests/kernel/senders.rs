//! The checks of senders (D147), with packets: dropped and accepted ones, and that each rule is
//! needed.

use std::net::IpAddr;

use palisade_core::net::Family;
use palisade_lab::packet::fragment::split;
use palisade_lab::packet::read::{PacketKind, ReceivedPacket};
use palisade_lab::packet::{ProbePayload, ProbeSpec, build, datagram, port_unreachable};
use palisade_lab::topology::Location;
use palisade_nft::node::ruleset;
use palisade_nft::ruleset::{Match, Rule, Ruleset, state};

use crate::Test;
use crate::node::{A, B, C, Checks, NODE, Node, OUTSIDE, address, flow, open_plan, settings};

pub(crate) const TESTS: &[Test] = &[
    ("senders::only_the_owner_sends_with_an_address", owners),
    (
        "senders::replies_with_addresses_of_others_are_dropped",
        answers,
    ),
    ("senders::errors_come_from_the_ends_of_a_connection", errors),
    ("senders::pods_do_not_advertise_routes", routers),
    (
        "senders::packets_injected_into_connections_are_dropped_with_drop_every",
        evaluated,
    ),
    ("senders::ways_may_differ_elsewhere", other_ways),
    ("senders::a_pod_without_a_route_is_closed", no_way),
];

/// The tests that change the routes of the node.
pub(crate) const WITH_IP: &[Test] = &[
    ("senders::addresses_follow_their_routes", moves),
    ("senders::link_local_senders_are_dropped", of_the_link),
    ("senders::no_packet_comes_from_a_group", of_a_group),
];

const EVERY: [Checks; 4] = [Checks::None, Checks::Known, Checks::Every, Checks::Unknown];
const PORT: u16 = 7_000;

/// The ruleset of a node without policies: only the checks drop packets.
fn checking(checks: Checks) -> Ruleset {
    ruleset(&open_plan(), &settings(checks))
}

/// A ruleset without some of its rules. At least one must have been there.
fn without(mut ruleset: Ruleset, is_removed: impl Fn(&Rule) -> bool) -> Ruleset {
    let count = |ruleset: &Ruleset| -> usize {
        let chains = ruleset.chains.iter();
        chains.map(|chain| chain.rules.len()).sum()
    };
    let before = count(&ruleset);
    for chain in &mut ruleset.chains {
        chain.rules.retain(|rule| !is_removed(rule));
    }
    assert!(count(&ruleset) < before, "no rule was removed");
    ruleset
}

/// Whether a rule has a lookup in a set.
fn looks_up(rule: &Rule, word: &str) -> bool {
    let mut matches = rule.matches.iter();
    matches.any(|it| matches!(it, Match::Lookup { set, .. } if set.as_str().starts_with(word)))
}

/// Whether a rule is one of the chain of senders.
fn is_of_senders(rule: &Rule) -> bool {
    looks_up(rule, "elsewhere") || looks_up(rule, "known")
}

/// A packet with a false sender: its source address, its sender and its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FalseSender {
    /// A pod sends as another pod of the node.
    OfAPod,
    /// A pod sends as a host outside.
    OfTheOutside,
    /// A pod sends as its node.
    OfTheNode,
    /// A host outside sends as a pod.
    FromTheOutside,
}

const FALSE_SENDERS: [(FalseSender, Location, Location); 4] = [
    (FalseSender::OfAPod, A, B),
    (FalseSender::OfTheOutside, A, OUTSIDE),
    (FalseSender::OfTheNode, A, NODE),
    (FalseSender::FromTheOutside, OUTSIDE, A),
];

/// Sends with every false sender, to a pod and to the node, in both families: those in the list
/// arrive, the others do not. Packets with a true sender always arrive.
#[track_caller]
fn check_false_senders(node: &mut Node, ruleset: &Ruleset, heard: &[FalseSender]) {
    node.install(ruleset);
    for family in Family::BOTH {
        for to in [C, NODE] {
            for (false_sender, from, owner) in FALSE_SENDERS {
                let arrives = node.passes(from, address(owner, family), to, PORT);
                assert_eq!(
                    arrives,
                    heard.contains(&false_sender),
                    "{false_sender:?} to {to}, {family}"
                );
            }
            for from in [A, B, OUTSIDE] {
                let own = address(from, family);
                assert!(node.passes(from, own, to, PORT), "{from} to {to}, {family}");
            }
        }
        let own = address(A, family);
        assert!(node.passes(A, own, OUTSIDE, PORT), "{family}");
    }
}

fn owners() {
    let mut node = Node::build();
    let all = FALSE_SENDERS.map(|(false_sender, ..)| false_sender);
    for checks in EVERY {
        let heard = if checks == Checks::None {
            &all[..]
        } else {
            &[]
        };
        check_false_senders(&mut node, &checking(checks), heard);
    }
    // Also where policies do not apply to traffic to the node.
    let mut settings = settings(Checks::Known);
    settings.evaluate_own_node = false;
    check_false_senders(&mut node, &ruleset(&open_plan(), &settings), &[]);
    for kind in [134, 137] {
        assert!(!node_receives(&mut node, A, kind), "{kind}");
        assert!(node_receives(&mut node, OUTSIDE, kind), "{kind}");
    }
    // Each rule of the chain is needed for its own false senders.
    let rules = checking(Checks::Known);
    let drops_pods = |rule: &Rule| looks_up(rule, "elsewhere") && rule.matches.len() == 1;
    check_false_senders(
        &mut node,
        &without(rules.clone(), drops_pods),
        &[FalseSender::OfTheOutside, FalseSender::OfTheNode],
    );
    let drops_names = |rule: &Rule| looks_up(rule, "known");
    check_false_senders(
        &mut node,
        &without(rules.clone(), drops_names),
        &[FalseSender::FromTheOutside],
    );
    check_false_senders(&mut node, &without(rules, is_of_senders), &all);
}

/// The node sends a request to a host outside. Returns whether a pod's reply with that address
/// arrives, and whether the host's does.
fn answered(node: &mut Node, family: Family) -> (bool, bool) {
    let (own, server) = (address(NODE, family), address(OUTSIDE, family));
    let id = node.take_id();
    let question = ProbeSpec {
        source_port: 5_300,
        ..flow(own, OUTSIDE, 53, id)
    };
    node.send(NODE, &[datagram(&question, 16).unwrap()]);
    let mut answer = |from: Location| {
        let id = node.take_id();
        let draft = ProbeSpec {
            source_port: 53,
            ..flow(server, NODE, 5_300, id)
        };
        let seen = node.send(from, &[datagram(&draft, 16).unwrap()]);
        seen.iter()
            .any(|(place, seen)| *place == NODE && seen.id == Some(id))
    };
    let of_pods = [A, B].map(&mut answer);
    let own = answer(OUTSIDE);
    // Also after the host has replied.
    let later = answer(A);
    assert_eq!(of_pods, [later; 2]);
    (later, own)
}

fn answers() {
    let mut node = Node::build();
    for checks in EVERY {
        node.install(&checking(checks));
        for family in Family::BOTH {
            let is_heard = checks == Checks::None;
            assert_eq!(answered(&mut node, family), (is_heard, true), "{checks:?}");
        }
    }
    node.install(&without(checking(Checks::Known), is_of_senders));
    for family in Family::BOTH {
        assert_eq!(answered(&mut node, family), (true, true));
    }
}

/// The places whose ICMP errors for a flow from `A` to `C` arrive at `A`.
fn arriving_errors(node: &mut Node, family: Family) -> Vec<Location> {
    let id = node.take_id();
    let sent = datagram(&flow(address(A, family), C, PORT, id), 16).unwrap();
    node.send(A, std::slice::from_ref(&sent));
    let is_heard = |(place, seen): &(Location, ReceivedPacket)| {
        *place == A && matches!(seen.kind, PacketKind::Error(_)) && seen.id == Some(id)
    };
    let mut heard = Vec::new();
    for from in [B, C, OUTSIDE] {
        let source = address(from, family);
        let error = port_unreachable(source, address(A, family), &sent).unwrap();
        if node.send(from, &[error]).iter().any(is_heard) {
            heard.push(from);
        }
    }
    heard
}

/// An ICMP error from elsewhere may be of a router on the way.
fn errors() {
    let mut node = Node::build();
    for checks in EVERY {
        node.install(&checking(checks));
        let expected = match checks {
            Checks::None => vec![B, C, OUTSIDE],
            Checks::Known | Checks::Every => vec![C, OUTSIDE],
            // A router of the path cannot be distinguished from a pod.
            Checks::Unknown => vec![C],
        };
        for family in Family::BOTH {
            assert_eq!(arriving_errors(&mut node, family), expected, "{checks:?}");
        }
    }
    let matches_errors = |rule: &Rule| rule.matches.contains(&Match::CtState(state::RELATED));
    node.install(&without(checking(Checks::Known), matches_errors));
    for family in Family::BOTH {
        assert_eq!(arriving_errors(&mut node, family), [B, C, OUTSIDE]);
    }
}

/// Whether a message of ICMPv6 of a neighbour gets to the node.
fn node_receives(node: &mut Node, from: Location, kind: u8) -> bool {
    node_receives_from(node, from, address(from, Family::V6), kind)
}

fn node_receives_from(node: &mut Node, from: Location, source: IpAddr, kind: u8) -> bool {
    let id = node.take_id();
    let draft = ProbeSpec {
        carried: ProbePayload::Icmpv6 { kind },
        ..flow(source, NODE, 0, id)
    };
    let mut packet = Vec::new();
    build(&draft, &mut packet).unwrap();
    // The hop limit that only neighbours' packets have.
    packet[7] = 255;
    let seen = node.send(from, &[packet]);
    seen.iter()
        .any(|(place, seen)| *place == NODE && seen.id == Some(id))
}

/// Router advertisements have type 134, redirects 137, and neighbor solicitations 135.
fn routers() {
    let mut node = Node::build();
    for checks in EVERY {
        node.install(&checking(checks));
        for kind in [134, 137] {
            let is_heard = node_receives(&mut node, A, kind);
            assert_eq!(is_heard, checks == Checks::None, "{kind}, {checks:?}");
            let of_a_router = node_receives(&mut node, OUTSIDE, kind);
            assert_eq!(of_a_router, checks != Checks::Unknown, "{kind}, {checks:?}");
        }
        assert!(node_receives(&mut node, A, 135), "{checks:?}");
    }
    let matches_routers = |rule: &Rule| {
        let mut matches = rule.matches.iter();
        matches.any(|it| matches!(it, Match::IcmpType(134, 134) | Match::IcmpType(137, 137)))
    };
    node.install(&without(checking(Checks::Known), matches_routers));
    for kind in [134, 137] {
        assert!(node_receives(&mut node, A, kind), "{kind}");
    }
}

/// Injects packets of `B` into an evaluated flow from `A` to `C`. Returns whether a datagram
/// arrives, and the number of fragments that do.
fn injected(node: &mut Node, family: Family) -> (bool, usize) {
    let id = node.take_id();
    let opening = flow(address(A, family), C, PORT, id);
    let seen = node.send(A, &[datagram(&opening, 16).unwrap()]);
    let is_of = |id: u32| {
        move |(place, seen): &(Location, ReceivedPacket)| *place == C && seen.id == Some(id)
    };
    assert!(seen.iter().any(is_of(id)));
    let id = node.take_id();
    let whole = datagram(&ProbeSpec { id, ..opening }, 16).unwrap();
    let is_whole = node.send(B, &[whole]).iter().any(is_of(id));
    let long = datagram(&opening, 3_000).unwrap();
    let pieces = split(&long, 1_280, node.take_id()).unwrap();
    let seen = node.send(B, &pieces);
    let pieces = seen.iter().filter(|(place, seen)| {
        *place == C && seen.fragment.is_some() && seen.source == opening.source
    });
    (is_whole, pieces.count())
}

/// Packets of evaluated connections pass by the connection's mark from any sender, unless every
/// packet is checked.
fn evaluated() {
    let mut node = Node::build();
    for checks in EVERY {
        node.install(&checking(checks));
        let expected = match checks {
            Checks::None | Checks::Known | Checks::Unknown => (true, 3),
            Checks::Every => (false, 0),
        };
        for family in Family::BOTH {
            assert_eq!(injected(&mut node, family), expected, "{checks:?}");
        }
    }
    let mut trusting = checking(Checks::Every);
    for chain in &mut trusting.chains {
        let evaluated = chain.rules.iter_mut().filter(|it| uses_marks(it));
        evaluated.for_each(|it| it.matches.retain(|it| *it != Match::ReverseRoute));
    }
    node.install(&trusting);
    for family in Family::BOTH {
        assert_eq!(injected(&mut node, family), (true, 3));
    }
}

fn uses_marks(rule: &Rule) -> bool {
    let mut matches = rule.matches.iter();
    matches.any(|it| matches!(it, Match::CtMark { equal: true, .. }))
}

/// A packet from elsewhere may have an address that is reached through another interface, the first
/// packet of a connection and later ones. An address of the node itself is an example.
fn other_ways() {
    let mut node = Node::build();
    for checks in EVERY {
        node.install(&checking(checks));
        for family in Family::BOTH {
            let id = node.take_id();
            let packet = datagram(&flow(address(NODE, family), C, PORT, id), 16).unwrap();
            for _ in 0..2 {
                let seen = node.send(OUTSIDE, std::slice::from_ref(&packet));
                let arrives = seen
                    .iter()
                    .any(|(place, seen)| *place == C && seen.id == Some(id));
                assert_eq!(arrives, checks != Checks::Unknown, "{family}, {checks:?}");
            }
        }
    }
}

/// An address without a route is no valid sender.
fn no_way() {
    let mut node = Node::build();
    node.install(&checking(Checks::Known));
    for family in Family::BOTH {
        let unrouted = match family {
            Family::V4 => "10.0.1.77",
            Family::V6 => "fd00:1::77",
        };
        let unrouted = unrouted.parse().unwrap();
        assert!(!node.passes(A, unrouted, C, PORT), "{family}");
        // From elsewhere it passes: it is no known address of a pod.
        assert!(node.passes(OUTSIDE, unrouted, C, PORT), "{family}");
    }
}

/// The valid sender of an address is the end of its route, and changes with the route.
fn moves() {
    let mut node = Node::build();
    node.install(&checking(Checks::Known));
    for family in Family::BOTH {
        let own = address(A, family);
        let (option, bits) = match family {
            Family::V4 => ("-4", 32),
            Family::V6 => ("-6", 128),
        };
        let route = |what: &str, end: &str| {
            node.ip(&format!("{option} route {what} {own}/{bits}{end}"));
        };
        route("del", "");
        route("add", " dev pod1");
        assert!(!node.passes(A, own, C, PORT), "{family}");
        assert!(node.passes(B, own, C, PORT), "{family}");
        let route = |what: &str, end: &str| {
            node.ip(&format!("{option} route {what} {own}/{bits}{end}"));
        };
        route("del", "");
        assert!(!node.passes(A, own, C, PORT), "{family}");
        assert!(!node.passes(B, own, C, PORT), "{family}");
    }
}

/// Link-local addresses belong to no pod: only neighbor discovery uses them.
fn of_the_link() {
    let mut node = Node::build();
    for interface in ["pod0", "uplink"] {
        node.ip(&format!("addr add fe80::99/64 dev {interface}"));
    }
    let source = "fe80::5".parse().unwrap();
    for checks in EVERY {
        node.install(&checking(checks));
        let is_heard = node.passes(A, source, NODE, PORT);
        assert_eq!(is_heard, checks == Checks::None, "{checks:?}");
        let is_heard = node.passes(OUTSIDE, source, NODE, PORT);
        assert_eq!(is_heard, checks != Checks::Unknown, "{checks:?}");
        assert!(node_receives_from(&mut node, A, source, 135), "{checks:?}");
        // Duplicate address detection sends from the unspecified address.
        let none = "::".parse().unwrap();
        assert!(node_receives_from(&mut node, A, none, 135), "{checks:?}");
    }
}

/// Every interface has routes to IPv6 groups: the route check alone accepts them as senders. Only a
/// bridge forwards such a packet, the kernel does not route it.
fn of_a_group() {
    let mut node = Node::build();
    node.show_bridged();
    node.ip("link add bridge0 type bridge");
    node.ip("link set bridge0 up");
    for pod in ["pod0", "pod1"] {
        node.ip(&format!("link set {pod} master bridge0"));
    }
    let own = address(A, Family::V6);
    node.ip(&format!("route del {own}/128"));
    node.ip(&format!("route add {own}/128 dev bridge0"));
    let hardware = node.wire.world().pod_hardware(1);
    let groups = ["ff02::1", "ff02::5", "ff0e::5"].map(|it| it.parse().unwrap());
    for checks in EVERY {
        node.install(&checking(checks));
        for source in groups.into_iter().chain([own]) {
            let id = node.take_id();
            let packet = datagram(&flow(source, B, PORT, id), 16).unwrap();
            let seen = node
                .wire
                .exchange_on_link(0, [(hardware, packet.as_slice())]);
            let arrives = seen
                .unwrap()
                .iter()
                .any(|(place, seen)| *place == B && seen.id == Some(id));
            let passes = source == own || checks == Checks::None;
            assert_eq!(arrives, passes, "{source}, {checks:?}");
        }
    }
}
