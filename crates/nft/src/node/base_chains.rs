//! The chains that every packet meets, and those that verdicts lead to.

use std::net::{IpAddr, Ipv6Addr};

use palisade_core::net::{Cidr, Family};
use palisade_core::plan::Plan;
use palisade_core::policy::Direction;

use super::{ChainNames, Established, Settings, pods_of, senders, words};
use crate::ruleset::{
    AH, Chain, Field, Hook, ICMP6, Key, Match, Name, PacketEnd, Point, Rule, Set, Statement, TCP,
    Value, Verdict, state,
};

/// The client's side said yes.
pub(super) const EGRESS_ALLOWED: &str = "egress-allowed";
/// Both sides said yes.
pub(super) const STAMP: &str = "stamp";
/// What connection tracking cannot place.
const UNPLACED: &str = "unplaced";

/// Before other firewalls, which costs nothing: a drop of anyone is final, an accept is not.
const PRIORITY: i32 = -10;

/// Addresses of pods of the node.
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

/// The sets that only these chains use, as far as the settings need them.
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

/// The chains that verdicts lead to.
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
    // Either end counts in either direction: what one side sends in the middle of a connection would
    // open a way for the other side, whose packets would then pass as answers.
    for family in Family::BOTH {
        for end in [PacketEnd::Source, PacketEnd::Destination] {
            for direction in Direction::BOTH {
                let set = words(direction, family).subjects;
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

/// On-link control of IPv6 is not for policies (D89). What was routed is not on its link any more: a
/// neighbour's hop limit is 255, which no routed packet has. Messages about groups have 1, as has
/// what was routed with 2; but they go to groups, and those are not routed.
fn link_control() -> Vec<Rule> {
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

/// The chains that packets enter.
pub(crate) fn hooked(settings: &Settings) -> Vec<Chain> {
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
    if settings.judge_own_node {
        chains.push(chain("input", Point::Input, input(settings)));
    } else if settings.checks_senders() {
        // Who sends is asked all the same, and nothing else.
        chains.push(chain("input", Point::Input, senders_of_input(settings)));
    }
    chains
}

/// Everything between pods, other nodes and the outside.
fn forward(settings: &Settings) -> Vec<Rule> {
    let mut rules = evaluated(settings);
    rules.extend(senders::false_senders(settings));
    rules.extend(evaluated_on_another_path(settings));
    // Before anyone says yes.
    rules.extend(unknown_pods(settings, PacketEnd::CtClient, &[]));
    rules.extend(unknown_pods(settings, PacketEnd::CtServer, &[]));
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

/// Connections from pods to their own node (D75). What the node started itself is not judged (D74):
/// it passes no chain on its way out, and its replies are let in.
fn input(settings: &Settings) -> Vec<Rule> {
    let mut rules = evaluated(settings);
    rules.extend(senders_of_input(settings));
    rules.extend(evaluated_on_another_path(settings));
    // Not marked as judged: every reply's sender is asked, or a pod could forge answers to the node.
    rules.push(rule(vec![Match::CtIsReply(true)], Verdict::Accept));
    rules.extend(placed());
    // The server is the node, whose address may well be one of a block of pods.
    rules.extend(unknown_pods(settings, PacketEnd::CtClient, &[]));
    rules.extend(evaluate(settings, Direction::Egress));
    rules.push(rule(Vec::new(), goto(STAMP)));
    rules
}

/// Who talks to the node.
fn senders_of_input(settings: &Settings) -> Vec<Rule> {
    let mut rules = senders::not_a_router(settings);
    // These come from addresses of the link, which no pod has in the cluster's eyes.
    rules.extend(link_control());
    rules.extend(senders::false_senders(settings));
    rules
}

/// The fast path: judged under this generation, or under any if what was allowed is kept, both directions, all
/// protocols. A mark is the connection's and not the packet's: where every sender is checked, nobody who knows the
/// ports of another's connection can put packets into it.
fn evaluated(settings: &Settings) -> Vec<Rule> {
    let mut matches = matches_evaluated(settings);
    if settings.checks_every_sender() {
        matches.push(Match::WayBack);
    }
    vec![rule(matches, Verdict::Accept)]
}

/// What is judged, comes from elsewhere and does not go back the way it came.
fn evaluated_on_another_path(settings: &Settings) -> Option<Rule> {
    let is_left = settings.checks_every_sender();
    is_left.then(|| rule(matches_evaluated(settings), Verdict::Accept))
}

/// All rules that let connections pass because they were judged.
pub(super) fn fast_paths(settings: &Settings) -> Vec<Rule> {
    let mut rules = evaluated(settings);
    rules.extend(evaluated_on_another_path(settings));
    rules
}

/// Connections that a helper expects begin with the mark of the one that announced them: they are related, and
/// judged by themselves.
fn matches_evaluated(settings: &Settings) -> Vec<Match> {
    let (mask, value) = match settings.established {
        Established::Judge => (
            settings.mark.mask(),
            settings.mark.full(settings.generation),
        ),
        Established::Keep => (settings.mark.full_bit(), settings.mark.full_bit()),
    };
    let is_full = Match::CtMark {
        mask,
        equal: true,
        value,
    };
    let is_its_own = Match::CtState(state::NEW | state::ESTABLISHED);
    vec![is_full, is_its_own]
}

/// Answers of established connections, whoever evaluated those.
pub(super) fn established_answers() -> Rule {
    let matches = vec![Match::CtState(state::ESTABLISHED), Match::CtIsReply(true)];
    rule(matches, Verdict::Accept)
}

fn no_connection() -> Match {
    Match::CtState(state::INVALID | state::UNTRACKED)
}

/// What has no connection, or would begin one in the middle, is kept apart: rules on the tuple of
/// a connection cannot judge it. An authentication header hides from the packet what connection
/// tracking reads behind it, so that the flags of TCP cannot be asked there.
fn placed() -> Vec<Rule> {
    let opens_tcp = |matches: [Match; 2]| {
        let mut all = vec![Match::CtState(state::NEW), Match::CtL4(TCP)];
        all.extend(matches);
        rule(all, goto(UNPLACED))
    };
    vec![
        rule(vec![no_connection()], goto(UNPLACED)),
        opens_tcp([Match::L4(TCP), Match::TcpNotOpening]),
        opens_tcp([Match::Family(Family::V6), Match::L4(AH)]),
    ]
}

/// Asks the chain of the subject, and drops if it has one that did not say yes. The answer of the
/// client's chain is the mark; that of the server's is that it does not come back.
fn evaluate(settings: &Settings, direction: Direction) -> Vec<Rule> {
    let mut rules = Vec::new();
    for family in Family::BOTH {
        let ChainNames { map, subject, .. } = words(direction, family);
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
        } = words(direction, family);
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

/// Addresses of pods that nobody has told us of (D84), at one end of what meets some conditions.
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
