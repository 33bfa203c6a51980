//! The chains of pods, and of what they have to face.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use palisade_core::net::{Family, PortRange};
use palisade_core::plan::{
    GroupId, GroupKind, MergedUnion, PeerCondition, PeerScope, Plan, PortBlock, PortCondition,
    RuleChain, RuleChainId, Step,
};
use palisade_core::policy::{Action, Direction, Verdict as Decided};

use super::unions::{by_port, nets_by_port, open};
use super::{ChainNames, membership, pods_of, ranges_of, words};
use crate::ruleset::{Chain, Key, Match, Name, Rule, Statement, Verdict, l4};

/// Adds the chains of all pods of the node.
pub(super) fn chains(plan: &Plan, chains: &mut Vec<Chain>) {
    let needed = needed(plan);
    let kind = |id: GroupId| plan.groups.get(&id).map(|group| group.kind);
    for (id, body) in &plan.chains {
        for family in Family::BOTH {
            if needed.contains(&(*id, family)) {
                of_body(*id, body, family, &kind, chains);
            }
        }
    }
    for family in Family::BOTH {
        for (address, faced) in pods_of(plan, family) {
            for direction in Direction::BOTH {
                let body = faced.body(direction);
                chains.extend(body.map(|body| of_pod(address, direction, body)));
            }
        }
    }
}

/// Adds the chains of a body for one family; the last of them is the one that pods lead to.
pub(crate) fn of_body(
    id: RuleChainId,
    body: &RuleChain,
    family: Family,
    kind: &dyn Fn(GroupId) -> Option<GroupKind>,
    chains: &mut Vec<Chain>,
) {
    let mut drafts = BodyChains {
        kind,
        family,
        words: words(body.direction, family),
        id: id.0,
        chains,
    };
    drafts.body(body);
}

/// The chain of a pod's address. Each has its own, so that a change of its policies is one rule rewritten in
/// place.
pub(crate) fn of_pod(
    address: IpAddr,
    direction: Direction,
    RuleChainId(body): RuleChainId,
) -> Chain {
    let words = words(direction, Family::of(address));
    let goto = Verdict::Goto(Name::numbered(words.body, body));
    Chain {
        name: Name::at(words.pod, address),
        hook: None,
        rules: vec![verdict(goto)],
    }
}

/// The families of the pods that have to face each body.
fn needed(plan: &Plan) -> BTreeSet<(RuleChainId, Family)> {
    let mut needed = BTreeSet::new();
    for (address, faced) in &plan.pods {
        for body in [faced.egress, faced.ingress].into_iter().flatten() {
            needed.insert((body, Family::of(*address)));
        }
    }
    needed
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
    kind: &'b dyn Fn(GroupId) -> Option<GroupKind>,
    family: Family,
    words: ChainNames,
    id: u32,
    chains: &'b mut Vec<Chain>,
}

impl BodyChains<'_> {
    fn body(&mut self, body: &RuleChain) {
        let name = Name::numbered(self.words.body, self.id);
        let passes = body.admin.iter().any(|step| step.action == Action::Pass);
        let mut rules = Vec::new();
        if passes {
            let rest = Name::numbered_twice(self.words.body, self.id, 1);
            self.steps(&body.admin, Some(&rest), &mut rules);
            rules.push(verdict(Verdict::Goto(rest.clone())));
            let mut after = Vec::new();
            self.rest(body, &mut after);
            self.chains.push(Chain {
                name: rest,
                hook: None,
                rules: after,
            });
        } else {
            self.steps(&body.admin, None, &mut rules);
            self.rest(body, &mut rules);
        }
        self.chains.push(Chain {
            name,
            hook: None,
            rules,
        });
    }

    /// What comes after the Admin tier.
    fn rest(&self, body: &RuleChain, rules: &mut Vec<Rule>) {
        self.sets(&body.merged, rules);
        self.steps(&body.rest, None, rules);
        let end = match body.verdict {
            Decided::Allow => Verdict::Goto(Name::word(self.words.allowed)),
            Decided::Deny => Verdict::Drop,
        };
        rules.push(counted(Vec::new(), end));
    }

    /// What of a union is in sets: ports for anyone, ports for groups, groups for every port. There are five lengths of blocks of ports, so
    /// that this is at most 17 rules, whatever was written.
    fn sets(&self, merged: &MergedUnion, rules: &mut Vec<Rule>) {
        for bits in lengths(merged.open(self.family)) {
            let [length, protocol, port] = block_keys(bits);
            let is_open = Match::Lookup {
                set: Name::word(open(self.family)),
                key: vec![Key::Number(self.id), length, protocol, port],
                missing: false,
            };
            self.allow(is_open, rules);
        }
        let peer = Key::Address(self.words.peer, self.family, self.family.bits());
        let hosts = (by_port(self.id), membership(self.family));
        let nets = (nets_by_port(self.family, self.id), ranges_of(self.family));
        let of_nets = merged.nets_of_ports(self.family);
        for ((map, set), ports) in [(hosts, &merged.of_ports), (nets, of_nets)] {
            for bits in lengths(ports.keys()) {
                let may_use = Match::LookupNumber {
                    map: map.clone(),
                    of: block_keys(bits).to_vec(),
                    set: Name::word(set),
                    rest: vec![peer],
                };
                self.allow(may_use, rules);
            }
        }
        let hosts = (merged.any_port, membership(self.family));
        let nets = (merged.nets_of_any_port(self.family), ranges_of(self.family));
        for (group, set) in [hosts, nets] {
            if let Some(GroupId(number)) = group {
                let is_member = Match::Lookup {
                    set: Name::word(set),
                    key: vec![Key::Number(number), peer],
                    missing: false,
                };
                self.allow(is_member, rules);
            }
        }
    }

    fn allow(&self, condition: Match, rules: &mut Vec<Rule>) {
        let allowed = Verdict::Goto(Name::word(self.words.allowed));
        rules.push(counted(vec![condition], allowed));
    }

    /// Steps, each with all its ports.
    fn steps(&self, steps: &[Arc<Step>], pass: Option<&Name>, rules: &mut Vec<Rule>) {
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
                // The protocol and the port are cheap to ask, so that they are asked first. Both are those
                // of the connection: what a packet's own headers say may be something else.
                let mut matches = vec![Match::CtL4(l4(*protocol))];
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
            PeerScope::Family(family) => {
                if family != self.family {
                    return None;
                }
            }
            PeerScope::Group(group) => matches.push(self.of_group(group, false)?),
        }
        for group in &peer.except {
            matches.extend(self.of_group(*group, true));
        }
        Some(matches)
    }

    /// Whether the other end is in a group, or is not; `None`: the group is of the other family.
    fn of_group(&self, id: GroupId, missing: bool) -> Option<Match> {
        let all = self.family.bits();
        let (set, bits) = match (self.kind)(id)? {
            GroupKind::Nets(family, _) | GroupKind::Ranges(family) if family != self.family => {
                return None;
            }
            GroupKind::Hosts => (membership(self.family), all),
            GroupKind::Nets(_, length) => (membership(self.family), length),
            GroupKind::Ranges(_) => (ranges_of(self.family), all),
        };
        let set = Name::word(set);
        let key = vec![
            Key::Number(id.0),
            Key::Address(self.words.peer, self.family, bits),
        ];
        Some(Match::Lookup { set, key, missing })
    }
}

/// The lengths of some blocks of ports, single ports first.
fn lengths<'b>(blocks: impl IntoIterator<Item = &'b PortBlock>) -> impl Iterator<Item = u8> {
    let lengths: BTreeSet<u8> = blocks.into_iter().map(|block| block.bits).collect();
    lengths.into_iter().rev()
}

/// The block of so many bits that the connection's port is in, as it stands in the sets of unions.
fn block_keys(bits: u8) -> [Key; 3] {
    let port = match bits {
        16 => Key::CtPort,
        _ => Key::CtPortBits(bits),
    };
    [Key::Number(bits.into()), Key::CtL4, port]
}

fn counted(matches: Vec<Match>, verdict: Verdict) -> Rule {
    Rule {
        matches,
        statements: vec![Statement::Counter, Statement::Verdict(verdict)],
        origin: None,
    }
}
