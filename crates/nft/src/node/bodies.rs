//! The chains of pods, and of what they have to face.

use std::collections::BTreeMap;

use palisade_core::net::{Family, PortRange, Protocol};
use palisade_core::plan::Within;
use palisade_core::plan::{Body, BodyId, Group, GroupId, PeerCondition, Plan, PortCondition, Step};
use palisade_core::policy::{Action, Direction, Verdict as Decided};

use super::{Words, addresses_of, membership, words};
use crate::ruleset::{Chain, Field, Key, Match, Name, Rule, Set, Statement, Value, Verdict, l4};

/// From so many steps on, a union is asked by port first.
const MANY: usize = 16;

/// Adds the chains of all pods of the node, and the maps that they need.
pub(super) fn chains(plan: &Plan, sets: &mut Vec<Set>, chains: &mut Vec<Chain>) {
    for family in Family::BOTH {
        let mut of_pods = Vec::new();
        let mut needed = vec![false; plan.bodies.len()];
        for pod in &plan.pods {
            for direction in Direction::BOTH {
                let Some(BodyId(body)) = pod.body(direction) else {
                    continue;
                };
                let words = words(direction, family);
                for address in addresses_of(&pod.addresses, family) {
                    if let Some(needed) = needed.get_mut(body as usize) {
                        *needed = true;
                    }
                    // A chain for each pod, so that a change of its policies is one rule rewritten in place.
                    let goto = Verdict::Goto(Name::numbered(words.body, body));
                    of_pods.push(Chain {
                        name: Name::at(words.pod, address),
                        hook: None,
                        rules: vec![verdict(goto)],
                    });
                }
            }
        }
        let bodies = (0u32..).zip(plan.bodies.iter().zip(needed));
        for (id, (body, _)) in bodies.filter(|(_, (_, needed))| *needed) {
            let mut drafts = BodyChains {
                plan,
                family,
                words: words(body.direction, family),
                id,
                parts: 0,
                sets,
                chains,
            };
            drafts.body(body);
        }
        chains.extend(of_pods);
    }
}

fn verdict(verdict: Verdict) -> Rule {
    Rule {
        statements: vec![Statement::Verdict(verdict)],
        ..Rule::default()
    }
}

/// The chains of one body for one family. They only ever go forward, so that the end of
/// a chain is the end of the judgement.
struct BodyChains<'b> {
    plan: &'b Plan,
    family: Family,
    words: Words,
    id: u32,
    parts: u32,
    sets: &'b mut Vec<Set>,
    chains: &'b mut Vec<Chain>,
}

impl BodyChains<'_> {
    fn body(&mut self, body: &Body) {
        let name = Name::numbered(self.words.body, self.id);
        let passes = body.admin.iter().any(|step| step.action == Action::Pass);
        let mut rules = Vec::new();
        if passes {
            let rest = self.part();
            self.steps(&body.admin, Some(&rest), &mut rules);
            rules.push(verdict(Verdict::Goto(rest.clone())));
            let after = self.rest(body, Vec::new());
            self.chains.push(Chain {
                name: rest,
                hook: None,
                rules: after,
            });
        } else {
            self.steps(&body.admin, None, &mut rules);
            rules = self.rest(body, rules);
        }
        self.chains.push(Chain {
            name,
            hook: None,
            rules,
        });
    }

    /// A chain more of this body.
    fn part(&mut self) -> Name {
        self.parts += 1;
        Name::numbered_twice(self.words.body, self.id, self.parts)
    }

    /// What comes after the Admin tier.
    fn rest(&mut self, body: &Body, mut rules: Vec<Rule>) -> Vec<Rule> {
        let end = match body.end {
            Decided::Allow => Verdict::Goto(Name::word(self.words.allowed)),
            Decided::Deny => Verdict::Drop,
        };
        let end = Rule {
            statements: vec![Statement::Counter, Statement::Verdict(end)],
            ..Rule::default()
        };
        if !body.is_union || body.rest.len() <= MANY {
            self.steps(&body.rest, None, &mut rules);
            rules.push(end);
            return rules;
        }
        let (by_port, others) = by_port(&body.rest);
        let common = self.part();
        let mut of_common = Vec::new();
        self.steps(&others, None, &mut of_common);
        of_common.push(end);
        let map_name = self.part();
        let mut map = Set::map(map_name.clone(), vec![Field::L4, Field::Port]);
        for ((protocol, port), steps) in by_port {
            let chain = self.part();
            let mut of_port = Vec::new();
            for (step, at) in steps {
                if let Some(matches) = self.at(at) {
                    self.step(&step, &matches, None, &mut of_port);
                }
            }
            of_port.push(verdict(Verdict::Goto(common.clone())));
            let key = [Value::L4(l4(protocol)), Value::Port(port)];
            map.push_verdict(&key, Verdict::Goto(chain.clone()));
            self.chains.push(Chain {
                name: chain,
                hook: None,
                rules: of_port,
            });
        }
        self.chains.push(Chain {
            name: common.clone(),
            hook: None,
            rules: of_common,
        });
        self.sets.push(map);
        rules.push(Rule {
            statements: vec![Statement::Dispatch {
                map: map_name,
                key: vec![Key::L4, Key::CtPort],
            }],
            ..Rule::default()
        });
        rules.push(verdict(Verdict::Goto(common)));
        rules
    }

    /// Steps, each with all its ports.
    fn steps(&self, steps: &[Step], pass: Option<&Name>, rules: &mut Vec<Rule>) {
        for step in steps {
            let Some(ports) = &step.ports else {
                self.step(step, &[], pass, rules);
                continue;
            };
            for port in ports {
                let PortCondition {
                    protocol,
                    range,
                    at,
                } = port;
                // The protocol and the port are cheap to ask, so that they are asked first.
                let mut matches = vec![Match::L4(l4(*protocol))];
                if *range != PortRange::ALL {
                    let range = Match::CtPort(range.start().get(), range.end().get());
                    matches.push(range);
                }
                if let Some(at) = self.at(*at) {
                    matches.extend(at);
                    self.step(step, &matches, pass, rules);
                }
            }
        }
    }

    /// What says that the other end is where a name stands for the port; `None`: nobody is.
    fn at(&self, at: Option<GroupId>) -> Option<Vec<Match>> {
        match at {
            None => Some(Vec::new()),
            Some(group) => Some(vec![self.of_group(group, false)?]),
        }
    }

    /// A step behind what its port needs: a rule for each condition on the other end.
    fn step(&self, step: &Step, before: &[Match], pass: Option<&Name>, rules: &mut Vec<Rule>) {
        let verdict = match (step.action, pass) {
            (Action::Deny, _) => Verdict::Drop,
            (Action::Pass, Some(rest)) => Verdict::Goto(rest.clone()),
            (Action::Accept | Action::Pass, _) => Verdict::Goto(Name::word(self.words.allowed)),
        };
        let mut push = |peer: Vec<Match>| {
            let mut matches = before.to_vec();
            matches.extend(peer);
            rules.push(Rule {
                matches,
                statements: vec![Statement::Counter, Statement::Verdict(verdict.clone())],
                origin: Some(step.rule),
            });
        };
        match &step.peers {
            None => push(Vec::new()),
            Some(peers) => {
                let peers = peers.iter().filter_map(|peer| self.peer(peer));
                peers.for_each(&mut push);
            }
        }
    }

    /// A condition on the other end; `None`: it speaks of the other family.
    fn peer(&self, peer: &PeerCondition) -> Option<Vec<Match>> {
        let mut matches = Vec::new();
        match peer.within {
            Within::Family(family) => {
                if family != self.family {
                    return None;
                }
            }
            Within::Group(group) => matches.push(self.of_group(group, false)?),
        }
        for group in &peer.except {
            matches.extend(self.of_group(*group, true));
        }
        Some(matches)
    }

    /// Whether the other end is in a group, or is not; `None`: the group is of the other family.
    fn of_group(&self, id: GroupId, missing: bool) -> Option<Match> {
        let bits = match (self.plan.groups.get(id.0 as usize)?, self.family) {
            (Group::Hosts(_), Family::V4) => 32,
            (Group::Hosts(_), Family::V6) => 128,
            (Group::Nets(family, ..), _) if *family != self.family => return None,
            (Group::Nets(_, length, _), _) => *length,
        };
        let set = Name::word(membership(self.family));
        let key = vec![
            Key::Number(id.0),
            Key::Address(self.words.peer, self.family, bits),
        ];
        Some(Match::Lookup { set, key, missing })
    }
}

/// A port that some step is about alone, and the steps that are about it, each with the group that
/// the other end must be in.
type ByPort = BTreeMap<(Protocol, u16), Vec<(Step, Option<GroupId>)>>;

/// The steps of a union by the single ports they are about, and what is left of them.
fn by_port(steps: &[Step]) -> (ByPort, Vec<Step>) {
    let mut of_ports: ByPort = BTreeMap::new();
    let mut others = Vec::new();
    for step in steps {
        let Some(ports) = &step.ports else {
            others.push(step.clone());
            continue;
        };
        let is_single = |port: &&PortCondition| port.range.start() == port.range.end();
        for port in ports.iter().filter(is_single) {
            let key = (port.protocol, port.range.start().get());
            let of_port = of_ports.entry(key).or_default();
            of_port.push((step.clone(), port.at));
        }
        let wide = ports.iter().filter(|port| !is_single(port));
        let wide: Vec<PortCondition> = wide.copied().collect();
        if !wide.is_empty() {
            others.push(Step {
                ports: Some(wide),
                ..step.clone()
            });
        }
    }
    (of_ports, others)
}
