//! Deliberate mistakes in rulesets: the comparison of engine and kernel must detect each.

use palisade_core::net::Family;
use palisade_nft::ruleset::{
    Chain, Hook, ICMP, ICMP6, Key, Match, Name, PacketEnd, Point, Rule, Ruleset, Statement, Values,
    Verdict, state,
};

/// A mistake in a ruleset.
#[derive(Clone, Copy, Debug)]
pub struct Mistake {
    /// What it does.
    pub name: &'static str,
    /// Makes the mistake.
    pub make: fn(&mut Ruleset),
}

/// All mistakes.
pub const MISTAKES: [Mistake; 38] = [
    mistake("forged ICMP errors pass", |it| {
        remove_rules(it, |rule| {
            rule.matches.contains(&Match::CtState(state::RELATED))
        });
    }),
    mistake("pods may send router advertisements", |it| {
        remove_rules(it, |rule| {
            let is_router =
                |it: &Match| matches!(it, Match::IcmpType(134, 134) | Match::IcmpType(137, 137));
            rule.matches.iter().any(is_router)
        });
    }),
    mistake("senders may use any address", |it| {
        rewrite_chain(it, "senders", Vec::clear)
    }),
    mistake("no base chain is registered", |it| {
        it.chains.retain(|chain| chain.hook.is_none())
    }),
    mistake("the forward chain is missing", |it| {
        remove_chain(it, "forward")
    }),
    mistake("the input chain is missing", |it| remove_chain(it, "input")),
    mistake("every connection counts as evaluated", |it| {
        each_match(it, |found| {
            if let Match::CtMark {
                mask,
                equal: true,
                value,
            } = found
            {
                (*mask, *value) = (0, 0);
            }
        });
    }),
    mistake("the client's side decides for both", |it| {
        let full = full_mark(it);
        each_statement(it, |found| {
            if let Statement::SetCtMark { value, .. } = found {
                *value = full;
            }
        });
        each_match(it, |found| {
            if let Match::CtMark {
                equal: false,
                value,
                ..
            } = found
            {
                *value = full;
            }
        });
        rewrite_chain(it, "egress-allowed", |rules| {
            for rule in rules {
                rule.statements.push(Statement::Verdict(Verdict::Accept));
            }
        });
    }),
    mistake("packets of state invalid are not separated", |it| {
        remove_rules(it, |rule| {
            rule.matches.iter().any(|it| is_state(it, state::INVALID))
        });
    }),
    mistake("segments without a connection are not separated", |it| {
        remove_rules(it, |rule| rule.matches.contains(&Match::TcpNotOpening));
    }),
    mistake("separated packets are accepted", |it| {
        rewrite_chain(it, "unplaced", |rules| rules.retain(|rule| !drops(rule)));
    }),
    mistake("ICMP errors of a connection are dropped", |it| {
        for word in ["forward", "input"] {
            rewrite_chain(it, word, |rules| {
                let related = Rule {
                    matches: vec![Match::CtState(state::RELATED)],
                    statements: vec![Statement::Verdict(Verdict::Drop)],
                    origin: None,
                };
                rules.insert(1, related);
            });
        }
    }),
    mistake(
        "rules match the protocol of the packet, not of the connection",
        |it| {
            each_match(it, |found| {
                if let Match::CtL4(protocol) = found {
                    *found = Match::L4(*protocol);
                }
            });
        },
    ),
    mistake("link messages may be routed", |it| {
        each_rule(it, |rule| {
            rule.matches.retain(|it| !matches!(it, Match::HopLimit(_)))
        });
    }),
    mistake(
        "multicast listener messages may have any destination",
        |it| {
            each_rule(it, |rule| {
                if rule.matches.contains(&Match::HopLimit(1)) {
                    rule.matches
                        .retain(|it| !matches!(it, Match::Within { .. }));
                }
            });
        },
    ),
    mistake("link messages are exempt in both families", |it| {
        each_rule(it, |rule| {
            if rule
                .matches
                .iter()
                .any(|it| matches!(it, Match::HopLimit(_)))
            {
                let is_of_ipv6 =
                    |it: &Match| matches!(it, Match::HopLimit(_) | Match::Family(Family::V6));
                rule.matches.retain(|it| !is_of_ipv6(it));
            }
        });
    }),
    mistake("neighbor discovery is evaluated", |it| {
        remove_rules(it, |rule| {
            rule.matches
                .iter()
                .any(|it| matches!(it, Match::IcmpType(..)))
        });
    }),
    mistake("replies to the node are evaluated", |it| {
        remove_rules(it, |rule| rule.matches.contains(&Match::CtIsReply(true)));
        rewrite_chain(it, "input", |rules| swap_ends(rules));
    }),
    mistake("the node's own packets are evaluated", |it| {
        let forward = it
            .chains
            .iter()
            .find(|chain| is_named(&chain.name, "forward"));
        let mut rules = forward.map(|chain| chain.rules.clone()).unwrap_or_default();
        // Packets of the node have no input interface; the kernel refuses to match one in the
        // output hook.
        let to_senders = Statement::Verdict(Verdict::Jump(Name::word("senders")));
        rules.retain(|rule| !rule.statements.contains(&to_senders) && !looks_up(rule, "elsewhere"));
        it.chains.push(Chain {
            name: Name::word("output"),
            hook: Some(Hook {
                point: Point::Output,
                priority: -10,
                nat: false,
            }),
            rules,
        });
    }),
    mistake("the two directions are swapped", |it| {
        rewrite_chain(it, "forward", |rules| swap_ends(rules));
    }),
    mistake("egress is not evaluated", |it| {
        remove_rules(it, |rule| {
            dispatches(rule, "egress4")
                || dispatches(rule, "egress6")
                || looks_up(rule, "judged-egress4")
                || looks_up(rule, "judged-egress6")
        });
    }),
    mistake("ingress is not evaluated", |it| {
        remove_rules(it, |rule| {
            dispatches(rule, "ingress4")
                || dispatches(rule, "ingress6")
                || looks_up(rule, "judged-ingress4")
                || looks_up(rule, "judged-ingress6")
        });
    }),
    mistake("IPv6 is not evaluated", |it| {
        remove_rules(it, |rule| {
            ["egress6", "ingress6"]
                .iter()
                .any(|map| dispatches(rule, map))
                || ["judged-egress6", "judged-ingress6"]
                    .iter()
                    .any(|set| looks_up(rule, set))
        });
    }),
    mistake("IPv4 ingress is not evaluated", |it| {
        remove_rules(it, |rule| {
            dispatches(rule, "ingress4") || looks_up(rule, "judged-ingress4")
        });
    }),
    mistake("exceptions of blocks are ignored", |it| {
        each_rule(it, |rule| {
            if rule.origin.is_some() {
                rule.matches
                    .retain(|it| !matches!(it, Match::Lookup { missing: true, .. }));
            }
        });
    }),
    mistake("rules match any peer", |it| {
        each_rule(it, |rule| {
            if rule.origin.is_some() {
                rule.matches
                    .retain(|it| !matches!(it, Match::Lookup { missing: false, .. }));
            }
        });
    }),
    mistake("ports map to the wrong groups", |it| {
        for set in &mut it.sets {
            if let Values::Numbers(numbers) = &mut set.values {
                numbers.rotate_left(1);
            }
        }
    }),
    mistake("ports open to all peers are missing", |it| {
        for set in &mut it.sets {
            if is_named(&set.name, "open4") || is_named(&set.name, "open6") {
                set.keys.clear();
            }
        }
    }),
    mistake("rules match any port", |it| {
        each_rule(it, |rule| {
            rule.matches.retain(|it| !matches!(it, Match::CtPort(..)))
        });
    }),
    mistake("port ranges end one port early", |it| {
        each_match(it, |found| {
            if let Match::CtPort(from, to) = found
                && from < to
            {
                *to -= 1;
            }
        });
    }),
    mistake("rules match any protocol", |it| {
        each_rule(it, |rule| {
            if rule.origin.is_some() {
                rule.matches.retain(|it| !matches!(it, Match::CtL4(_)));
            }
        });
    }),
    mistake("rules for SCTP match TCP", |it| {
        each_match(it, |found| {
            if let Match::CtL4(protocol @ 132) = found {
                *protocol = 6;
            }
        });
    }),
    mistake("ICMP is exempt", |it| {
        rewrite_chain(it, "forward", |rules| {
            for protocol in [ICMP, ICMP6] {
                rules.insert(
                    1,
                    Rule {
                        matches: vec![Match::L4(protocol)],
                        statements: vec![Statement::Verdict(Verdict::Accept)],
                        origin: None,
                    },
                );
            }
        });
    }),
    mistake("rules with action Deny are missing", |it| {
        remove_rules(it, |rule| rule.origin.is_some() && drops(rule));
    }),
    mistake("isolated pods accept by default", |it| {
        each_rule(it, |rule| {
            if rule.origin.is_none() && rule.matches.is_empty() && drops(rule) {
                rule.statements = vec![Statement::Verdict(Verdict::Accept)];
            }
        });
    }),
    mistake("rules are in reverse order", |it| {
        for chain in it.chains.iter_mut().filter(|chain| chain.hook.is_none()) {
            let n_steps = chain
                .rules
                .iter()
                .take_while(|rule| rule.origin.is_some())
                .count();
            if let Some(steps) = chain.rules.get_mut(..n_steps) {
                steps.reverse();
            }
        }
    }),
    mistake("groups have no IPv6 members", |it| {
        for set in it
            .sets
            .iter_mut()
            .filter(|set| is_named(&set.name, "members6"))
        {
            set.keys.clear();
        }
    }),
    mistake("address blocks are one bit too long", |it| {
        each_match(it, |found| {
            if let Match::Lookup { key, .. } = found {
                for part in key {
                    if let Key::Address(end, family, bits) = part
                        && *bits > 0
                        && *bits < family.bits()
                    {
                        *part = Key::Address(*end, *family, *bits + 1);
                    }
                }
            }
        });
    }),
];

const fn mistake(name: &'static str, make: fn(&mut Ruleset)) -> Mistake {
    Mistake { name, make }
}

fn is_named(name: &Name, word: &str) -> bool {
    name.as_str() == word
}

fn is_state(found: &Match, bit: u32) -> bool {
    matches!(found, Match::CtState(bits) if bits & bit != 0)
}

fn drops(rule: &Rule) -> bool {
    rule.statements.contains(&Statement::Verdict(Verdict::Drop))
}

fn dispatches(rule: &Rule, word: &str) -> bool {
    let mut statements = rule.statements.iter();
    statements.any(|it| matches!(it, Statement::Dispatch { map, .. } if is_named(map, word)))
}

/// Whether a rule looks up an end of a connection in a set.
fn looks_up(rule: &Rule, word: &str) -> bool {
    let of_connection = |key: &[Key]| {
        let mut key = key.iter();
        key.any(|it| {
            matches!(
                it,
                Key::Address(PacketEnd::CtClient | PacketEnd::CtServer, ..)
            )
        })
    };
    let mut matches = rule.matches.iter();
    matches.any(
        |it| matches!(it, Match::Lookup { set, key, .. } if is_named(set, word) && of_connection(key)),
    )
}

fn remove_chain(ruleset: &mut Ruleset, word: &str) {
    ruleset.chains.retain(|chain| !is_named(&chain.name, word));
}

fn each_rule(ruleset: &mut Ruleset, change: impl Fn(&mut Rule)) {
    let rules = ruleset.chains.iter_mut().flat_map(|chain| &mut chain.rules);
    rules.for_each(change);
}

fn each_match(ruleset: &mut Ruleset, change: impl Fn(&mut Match)) {
    each_rule(ruleset, |rule| rule.matches.iter_mut().for_each(&change));
}

fn each_statement(ruleset: &mut Ruleset, change: impl Fn(&mut Statement)) {
    each_rule(ruleset, |rule| rule.statements.iter_mut().for_each(&change));
}

fn remove_rules(ruleset: &mut Ruleset, condition: impl Fn(&Rule) -> bool) {
    for chain in &mut ruleset.chains {
        chain.rules.retain(|rule| !condition(rule));
    }
}

fn rewrite_chain(ruleset: &mut Ruleset, word: &str, change: impl Fn(&mut Vec<Rule>)) {
    let mut chains = ruleset.chains.iter_mut();
    if let Some(chain) = chains.find(|chain| is_named(&chain.name, word)) {
        change(&mut chain.rules);
    }
}

/// Exchanges client and server in lookups.
fn swap_ends(rules: &mut [Rule]) {
    let swap = |key: &mut Vec<Key>| {
        for part in key {
            if let Key::Address(end @ (PacketEnd::CtClient | PacketEnd::CtServer), ..) = part {
                *end = match end {
                    PacketEnd::CtClient => PacketEnd::CtServer,
                    PacketEnd::CtServer | PacketEnd::Source | PacketEnd::Destination => {
                        PacketEnd::CtClient
                    }
                };
            }
        }
    };
    for rule in rules {
        for found in &mut rule.matches {
            if let Match::Lookup { key, .. } = found {
                swap(key);
            }
        }
        for statement in &mut rule.statements {
            if let Statement::Dispatch { key, .. } = statement {
                swap(key);
            }
        }
    }
}

/// The mark of connections that both directions have accepted.
fn full_mark(ruleset: &Ruleset) -> u32 {
    let rules = ruleset.chains.iter().flat_map(|chain| &chain.rules);
    let mut full = 0;
    for found in rules.flat_map(|rule| &rule.matches) {
        if let Match::CtMark {
            equal: true, value, ..
        } = found
        {
            full = *value;
        }
    }
    full
}
