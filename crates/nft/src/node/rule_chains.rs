//! The chains of pods, and rule chains: the rules of pods in one direction.

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
use super::{ChainNames, chain_names, membership, pods_of, ranges_of};
use crate::ruleset::{Chain, Key, Match, Name, Rule, Statement, Verdict, l4};

/// Adds the rule chains of the plan, and the chains of all pods of the node.
pub(super) fn chains(plan: &Plan, chains: &mut Vec<Chain>) {
    let needed = needed(plan);
    let kind = |id: GroupId| plan.groups.get(&id).map(|group| group.kind);
    for (id, rule_chain) in &plan.chains {
        for family in Family::BOTH {
            // A rule chain exists only in the families of the pods that use it.
            if needed.contains(&(*id, family)) {
                of_rule_chain(*id, rule_chain, family, &kind, chains);
            }
        }
    }
    for family in Family::BOTH {
        for (address, pod_chains) in pods_of(plan, family) {
            for direction in Direction::BOTH {
                let id = pod_chains.chain(direction);
                chains.extend(id.map(|id| of_pod(address, direction, id)));
            }
        }
    }
}

/// Adds the chains of a rule chain for one family. The last one is the one that pods lead to.
pub(crate) fn of_rule_chain(
    id: RuleChainId,
    rule_chain: &RuleChain,
    family: Family,
    kind: &dyn Fn(GroupId) -> Option<GroupKind>,
    chains: &mut Vec<Chain>,
) {
    let mut writer = RuleChainWriter {
        kind,
        family,
        words: chain_names(rule_chain.direction, family),
        id: id.0,
        chains,
    };
    writer.write_chain(rule_chain);
}

/// Makes the chain of a pod's address.
// A chain for each address: a change of the pod's policies is one rule, rewritten in place.
pub(crate) fn of_pod(
    address: IpAddr,
    direction: Direction,
    RuleChainId(number): RuleChainId,
) -> Chain {
    let names = chain_names(direction, Family::of(address));
    let goto = Verdict::Goto(Name::numbered(names.rule_chain, number));
    Chain {
        name: Name::at(names.pod, address),
        hook: None,
        rules: vec![verdict(goto)],
    }
}

/// Returns each rule chain with the families of the pods that use it.
fn needed(plan: &Plan) -> BTreeSet<(RuleChainId, Family)> {
    let mut needed = BTreeSet::new();
    for (address, chains) in &plan.pods {
        for id in [chains.egress, chains.ingress].into_iter().flatten() {
            needed.insert((id, Family::of(*address)));
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

/// Writes the chains of one rule chain for one family.
// No chain returns from another: `goto` only. Where a chain ends without a verdict, the evaluation
// of its side ends without an accept.
struct RuleChainWriter<'b> {
    kind: &'b dyn Fn(GroupId) -> Option<GroupKind>,
    family: Family,
    words: ChainNames,
    id: u32,
    chains: &'b mut Vec<Chain>,
}

impl RuleChainWriter<'_> {
    fn write_chain(&mut self, rule_chain: &RuleChain) {
        let name = Name::numbered(self.words.rule_chain, self.id);
        let passes = rule_chain
            .admin
            .iter()
            .any(|step| step.action == Action::Pass);
        let mut rules = Vec::new();
        if passes {
            // Pass leads behind the Admin tier, and nftables cannot skip rules within a chain: the
            // rest is a chain of its own.
            let rest = Name::numbered_twice(self.words.rule_chain, self.id, 1);
            self.steps(&rule_chain.admin, Some(&rest), &mut rules);
            rules.push(verdict(Verdict::Goto(rest.clone())));
            let mut after = Vec::new();
            self.rest(rule_chain, &mut after);
            self.chains.push(Chain {
                name: rest,
                hook: None,
                rules: after,
            });
        } else {
            self.steps(&rule_chain.admin, None, &mut rules);
            self.rest(rule_chain, &mut rules);
        }
        self.chains.push(Chain {
            name,
            hook: None,
            rules,
        });
    }

    /// Adds the rules after the Admin tier.
    fn rest(&self, rule_chain: &RuleChain, rules: &mut Vec<Rule>) {
        // Rules of NetworkPolicies are a union, in which the order does not matter: lookups in sets
        // come first, since one of them stands for many rules.
        self.sets(&rule_chain.merged, rules);
        self.steps(&rule_chain.rest, None, rules);
        let end = match rule_chain.verdict {
            Decided::Allow => Verdict::Goto(Name::word(self.words.allowed)),
            Decided::Deny => Verdict::Drop,
        };
        rules.push(counted(Vec::new(), end));
    }

    /// Adds the lookups of a union: ports for any peer, ports for groups, groups for every port.
    fn sets(&self, merged: &MergedUnion, rules: &mut Vec<Rule>) {
        // A lookup matches blocks of one length, of which there are five: at most 17 rules,
        // whatever the policies say.
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

    /// Adds the rules of steps, each with all its ports.
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
                // Protocol and port come first, since they cost least. Both are the connection's:
                // in a packet, an extension header may hide them.
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

    /// Returns the condition that the peer has the named port. `None`: no pod of the family has it.
    fn at(&self, at: Option<GroupId>) -> Option<Vec<Match>> {
        match at {
            None => Some(Vec::new()),
            Some(group) => Some(vec![self.of_group(group, false)?]),
        }
    }

    /// Adds the rules of a step behind the conditions of its port: one for each peer.
    fn step(&self, step: &Step, before: &[Match], pass: Option<&Name>, rules: &mut Vec<Rule>) {
        let verdict = match (step.action, pass) {
            (Action::Deny, _) => Verdict::Drop,
            (Action::Pass, Some(rest)) => Verdict::Goto(rest.clone()),
            // In the Baseline tier only the default follows: Pass is an accept there (D10).
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

    /// Returns the conditions on the peer. `None`: it is of the other family.
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
        // An exception of the other family has no address in this peer, and gives no condition.
        for group in &peer.except {
            matches.extend(self.of_group(*group, true));
        }
        Some(matches)
    }

    /// Returns the condition that the peer is in a group, or is not. `None`: the group is of the
    /// other family.
    fn of_group(&self, id: GroupId, missing: bool) -> Option<Match> {
        let all = self.family.bits();
        let (set, bits) = match (self.kind)(id)? {
            GroupKind::Nets(family, _) | GroupKind::Ranges(family) if family != self.family => {
                return None;
            }
            GroupKind::Hosts => (membership(self.family), all),
            // All blocks of a group have the same length: one masked lookup in a hash. A tree of
            // intervals would take ten times as long.
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

/// Returns the lengths of blocks of ports, single ports first.
fn lengths<'b>(blocks: impl IntoIterator<Item = &'b PortBlock>) -> impl Iterator<Item = u8> {
    let lengths: BTreeSet<u8> = blocks.into_iter().map(|block| block.bits).collect();
    lengths.into_iter().rev()
}

/// Returns the key of the block with so many bits that has the connection's port.
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
