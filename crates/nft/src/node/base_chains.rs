//! The base chains, and the chains of their verdicts.

use std::net::{IpAddr, Ipv6Addr};

use palisade_core::net::{Cidr, Family};
use palisade_core::plan::Plan;
use palisade_core::policy::Direction;

use super::{ChainNames, EstablishedFlows, Settings, chain_names, pods_of, senders};
use crate::ruleset::{
    AH, Chain, Field, Hook, ICMP6, Key, Match, Name, PacketEnd, Point, Rule, Set, Statement, TCP,
    Value, Verdict, state,
};

/// The chain for an accept by the client's side.
pub(super) const EGRESS_ALLOWED: &str = "egress-allowed";
/// The chain for an accept by both sides.
pub(super) const STAMP: &str = "stamp";
/// The chain for packets without a connection to evaluate.
const UNPLACED: &str = "unplaced";

/// The priority of the base chains: before other filters.
// The order costs nothing: a drop in any table is final, an accept is not.
const PRIORITY: i32 = -10;

/// Returns the name of the set of known addresses of pods.
pub(crate) fn known_pods(family: Family) -> &'static str {
    match family {
        Family::V4 => "known4",
        Family::V6 => "known6",
    }
}

fn untracked(family: Family) -> &'static str {
    match family {
        Family::V4 => "untracked4",
        Family::V6 => "untracked6",
    }
}

pub(super) fn address(end: PacketEnd, family: Family) -> Key {
    Key::Address(end, family, family.bits())
}

pub(super) fn lookup(set: &'static str, key: Vec<Key>) -> Match {
    Match::Lookup {
        set: Name::word(set),
        key,
        missing: false,
    }
}

pub(super) fn missing(set: &'static str, key: Vec<Key>) -> Match {
    Match::Lookup {
        set: Name::word(set),
        key,
        missing: true,
    }
}

pub(super) fn rule(matches: Vec<Match>, verdict: Verdict) -> Rule {
    Rule {
        matches,
        statements: vec![Statement::Verdict(verdict)],
        origin: None,
    }
}

pub(super) fn drop(matches: Vec<Match>) -> Rule {
    Rule {
        matches,
        statements: vec![Statement::Counter, Statement::Verdict(Verdict::Drop)],
        origin: None,
    }
}

fn goto(chain: &'static str) -> Verdict {
    Verdict::Goto(Name::word(chain))
}

/// Makes the sets that only these chains use, as far as the settings need them.
pub(super) fn sets(plan: &Plan, settings: &Settings) -> Vec<Set> {
    let mut sets = senders::sets(plan, settings);
    for family in Family::BOTH {
        let field = Field::address(family);
        if settings.knows_pods() {
            let mut set = Set::new(Name::word(known_pods(family)), vec![field]);
            for (address, _) in pods_of(plan, family) {
                set.push(&[Value::Address(address)]);
            }
            sets.push(set);
        }
        if !settings.untracked.is_empty() {
            let fields = vec![field, field, Field::L4, Field::Port];
            let mut set = Set::new(Name::word(untracked(family)), fields);
            for (client, server, protocol, port) in &settings.untracked {
                if (Family::of(*client), Family::of(*server)) == (family, family) {
                    set.push(&[
                        Value::Address(*client),
                        Value::Address(*server),
                        Value::L4(*protocol),
                        Value::Port(*port),
                    ]);
                }
            }
            sets.push(set);
        }
    }
    sets
}

/// Makes the chains that verdicts lead to.
pub(crate) fn verdicts(settings: &Settings) -> Vec<Chain> {
    let (mark, generation) = (settings.mark, settings.generation);
    let set_mark = |value| Statement::SetCtMark {
        mask: mark.mask(),
        value,
    };
    let chain = |name, rules| Chain {
        name: Name::word(name),
        hook: None,
        rules,
    };
    let egress_allowed = Rule {
        statements: vec![set_mark(mark.half(generation))],
        ..Rule::default()
    };
    let stamp = Rule {
        statements: vec![
            set_mark(mark.full(generation)),
            Statement::Verdict(Verdict::Accept),
        ],
        ..Rule::default()
    };
    // Neighbor discovery is exempt, and has no connection: it comes first.
    let mut unplaced = link_control();
    unplaced.extend(unknown_pods(settings, PacketEnd::Source, &[]));
    for family in Family::BOTH {
        if !settings.untracked.is_empty() {
            let key = vec![
                address(PacketEnd::Source, family),
                address(PacketEnd::Destination, family),
                Key::L4,
                Key::HeaderPort,
            ];
            let matches = vec![Match::Family(family), lookup(untracked(family), key)];
            unplaced.push(rule(matches, Verdict::Accept));
        }
    }
    // Source and destination count in both directions. A segment of a server from an unknown
    // connection would begin a connection in its direction; the packets of its client would then
    // pass as replies.
    for family in Family::BOTH {
        for end in [PacketEnd::Source, PacketEnd::Destination] {
            for direction in Direction::BOTH {
                let set = chain_names(direction, family).subjects;
                let subject = lookup(set, vec![address(end, family)]);
                unplaced.push(drop(vec![Match::Family(family), subject]));
            }
        }
    }
    unplaced.push(rule(Vec::new(), Verdict::Accept));
    let mut chains = vec![
        chain(EGRESS_ALLOWED, vec![egress_allowed]),
        chain(STAMP, vec![stamp]),
        chain(UNPLACED, unplaced),
    ];
    chains.extend(senders::chain(settings));
    chains
}

/// Makes the rules that accept on-link messages of IPv6 (D89).
fn link_control() -> Vec<Rule> {
    // A routed packet is no on-link message. The hop limit of neighbor discovery is 255, which no
    // routed packet has. That of multicast listener messages is 1, which a packet has that was
    // routed once with 2: their destination must be multicast as well, which is not routed.
    let of_types = |from, to, hops| {
        vec![
            Match::Family(Family::V6),
            Match::L4(ICMP6),
            Match::IcmpType(from, to),
            Match::HopLimit(hops),
        ]
    };
    let groups = Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0);
    let to_a_group = Cidr::new(IpAddr::V6(groups), 8).map(|block| Match::Within {
        end: PacketEnd::Destination,
        block,
        outside: false,
    });
    let mut rules = vec![rule(of_types(133, 137, 255), Verdict::Accept)];
    for (from, to) in [(130, 132), (143, 143)] {
        rules.extend(to_a_group.clone().map(|to_a_group| {
            let mut matches = of_types(from, to, 1);
            matches.push(to_a_group);
            rule(matches, Verdict::Accept)
        }));
    }
    rules
}

/// Makes the base chains.
pub(crate) fn base_chains(settings: &Settings) -> Vec<Chain> {
    let chain = |name, point, rules| Chain {
        name: Name::word(name),
        hook: Some(Hook {
            point,
            priority: PRIORITY,
            nat: false,
        }),
        rules,
    };
    let mut chains = vec![chain("forward", Point::Forward, forward(settings))];
    if settings.evaluate_own_node {
        chains.push(chain("input", Point::Input, input(settings)));
    } else if settings.checks_senders() {
        // Source addresses are checked also where policies do not apply to the node.
        chains.push(chain("input", Point::Input, senders_of_input(settings)));
    }
    chains
}

/// Makes the rules for packets between pods, other nodes and the outside.
fn forward(settings: &Settings) -> Vec<Rule> {
    let mut rules = evaluated(settings);
    rules.extend(senders::false_senders(settings));
    rules.extend(evaluated_on_another_path(settings));
    // Before any accept: the rules of a known pod could accept traffic of an unknown one.
    rules.extend(unknown_pods(settings, PacketEnd::CtClient, &[]));
    rules.extend(unknown_pods(settings, PacketEnd::CtServer, &[]));
    // Without a connection the header decides. The source follows in the chain for such packets,
    // but not the destination: `input` has the same chain, and the node's own address may be in a
    // block of pods.
    rules.extend(unknown_pods(
        settings,
        PacketEnd::Destination,
        &[no_connection()],
    ));
    rules.extend(placed());
    rules.extend(evaluate(settings, Direction::Egress));
    rules.extend(evaluate(settings, Direction::Ingress));
    rules.push(rule(Vec::new(), goto(STAMP)));
    rules
}

/// Makes the rules for packets to the node itself (D75). Its own packets pass no chain on their way
/// out, and replies to them are accepted (D74).
fn input(settings: &Settings) -> Vec<Rule> {
    let mut rules = evaluated(settings);
    rules.extend(senders_of_input(settings));
    rules.extend(evaluated_on_another_path(settings));
    // Without the full mark: the source of each reply is checked, or a pod could forge replies to
    // the node.
    rules.push(rule(vec![Match::CtIsReply(true)], Verdict::Accept));
    rules.extend(placed());
    // Only the client: the server is the node, whose address may be in a block of pods.
    rules.extend(unknown_pods(settings, PacketEnd::CtClient, &[]));
    // Only the client's side: a node is no subject.
    rules.extend(evaluate(settings, Direction::Egress));
    rules.push(rule(Vec::new(), goto(STAMP)));
    rules
}

/// Makes the rules that check the senders of packets to the node.
fn senders_of_input(settings: &Settings) -> Vec<Rule> {
    let mut rules = senders::not_a_router(settings);
    // On-link messages have link-local sources, which the check of source addresses drops.
    rules.extend(link_control());
    rules.extend(senders::false_senders(settings));
    rules
}

/// Makes the rule of the fast path. It accepts packets of evaluated connections, in both directions
/// and of every protocol.
fn evaluated(settings: &Settings) -> Vec<Rule> {
    let mut matches = matches_evaluated(settings);
    // A ct mark belongs to the connection, not to the packet. With this check no sender can put
    // packets into the connection of another pod, even with its addresses and ports.
    if settings.checks_every_sender() {
        matches.push(Match::ReverseRoute);
    }
    vec![rule(matches, Verdict::Accept)]
}

/// Makes the fast path for packets that have no route back through their interface, but passed the
/// check of source addresses. They come from interfaces that do not lead to pods.
fn evaluated_on_another_path(settings: &Settings) -> Option<Rule> {
    let is_left = settings.checks_every_sender();
    is_left.then(|| rule(matches_evaluated(settings), Verdict::Accept))
}

/// Returns all rules that accept packets because of the mark of their connection.
pub(super) fn fast_paths(settings: &Settings) -> Vec<Rule> {
    let mut rules = evaluated(settings);
    rules.extend(evaluated_on_another_path(settings));
    rules
}

/// Returns the conditions of the fast path.
fn matches_evaluated(settings: &Settings) -> Vec<Match> {
    let (mask, value) = match settings.established {
        EstablishedFlows::Evaluate => (
            settings.mark.mask(),
            settings.mark.full(settings.generation),
        ),
        EstablishedFlows::Keep => (settings.mark.full_bit(), settings.mark.full_bit()),
    };
    let is_full = Match::CtMark {
        mask,
        equal: true,
        value,
    };
    // Not related: a connection that a helper expects inherits the mark of its master, and must be
    // evaluated by itself.
    let is_its_own = Match::CtState(state::NEW | state::ESTABLISHED);
    vec![is_full, is_its_own]
}

/// Makes the rule that accepts replies of established connections.
pub(super) fn established_answers() -> Rule {
    let matches = vec![Match::CtState(state::ESTABLISHED), Match::CtIsReply(true)];
    rule(matches, Verdict::Accept)
}

fn no_connection() -> Match {
    Match::CtState(state::INVALID | state::UNTRACKED)
}

/// Makes the rules that lead packets without a usable tuple to a chain of their own.
fn placed() -> Vec<Rule> {
    // A segment in mid-stream would begin a connection whose direction is a guess.
    let opens_tcp = |matches: [Match; 2]| {
        let mut all = vec![Match::CtState(state::NEW), Match::CtL4(TCP)];
        all.extend(matches);
        rule(all, goto(UNPLACED))
    };
    vec![
        rule(vec![no_connection()], goto(UNPLACED)),
        opens_tcp([Match::L4(TCP), Match::TcpNotOpening]),
        // Connection tracking reads TCP behind an authentication header, but its flags are out of
        // reach of a rule.
        opens_tcp([Match::Family(Family::V6), Match::L4(AH)]),
    ]
}

/// Makes the rules that lead to the chain of the subject, and drop the packet if that did not
/// accept it.
fn evaluate(settings: &Settings, direction: Direction) -> Vec<Rule> {
    let mut rules = Vec::new();
    for family in Family::BOTH {
        let ChainNames { map, subject, .. } = chain_names(direction, family);
        // One rule for each verdict map: the kernel walks a map again for every further rule with
        // it.
        rules.push(Rule {
            statements: vec![Statement::Dispatch {
                map: Name::word(map),
                key: vec![address(subject, family)],
            }],
            ..Rule::default()
        });
    }
    for family in Family::BOTH {
        let ChainNames {
            subjects, subject, ..
        } = chain_names(direction, family);
        // The client's chain comes back with every packet, and the half mark is its accept. The
        // server's chain comes back only if it did not accept, or was still empty for the packet.
        let is_subject = lookup(subjects, vec![address(subject, family)]);
        rules.push(drop(match direction {
            Direction::Egress => {
                let not_allowed = Match::CtMark {
                    mask: settings.mark.mask(),
                    equal: false,
                    value: settings.mark.half(settings.generation),
                };
                vec![not_allowed, is_subject]
            }
            Direction::Ingress => vec![is_subject],
        }));
    }
    rules
}

/// Makes the rules that drop packets of unknown pods (D84), at one end of packets that meet some
/// conditions.
fn unknown_pods(settings: &Settings, end: PacketEnd, conditions: &[Match]) -> Vec<Rule> {
    let of_block = |block: &Cidr| {
        let family = Family::of(block.first());
        let mut matches = conditions.to_vec();
        matches.push(Match::Within {
            end,
            block: *block,
            outside: false,
        });
        matches.push(missing(known_pods(family), vec![address(end, family)]));
        drop(matches)
    };
    settings.pod_blocks.iter().map(of_block).collect()
}
