//! Rules over integers, and the order in which the tiers evaluate them.

use std::collections::HashMap;
use std::net::IpAddr;

use super::atoms::{AddressBounds, PortBounds};
use super::labels::{LabelSpace, count};
use super::sets::PodSets;
use crate::budget::limits_names;
use crate::domain::DomainPattern;
use crate::model::{Cluster, Effect, Peer, Policy, PolicyId, PolicyRank, PortMatch};
use crate::net::Cidr;
use crate::policy::{Action, BASELINE_ADMIN_PRIORITY, Direction, PolicyApi, Tier};
use crate::program::{
    AddressAtoms, Lists, NamedPort, PortAtoms, Rule, RulePlace, Slice, direction_index,
};

/// Everything that rules name. It must be complete before any rule can be compiled.
#[derive(Debug, Default)]
pub(super) struct Vocabulary<'c, 'a> {
    pub(super) sets: PodSets<'a>,
    pub(super) nodes: LabelSpace<'a>,
    /// The port names that rules use.
    pub(super) port_names: HashMap<PortName<'a>, u32>,
    /// The subject of each policy, and the sets and node selectors of each rule.
    pub(super) subjects: Vec<Option<u32>>,
    rules: Vec<RuleDraft<'c, 'a>>,
    lists: Lists,
    resolved: Vec<IpAddr>,
    /// The learned addresses of each pattern of domain names.
    of_pattern: HashMap<&'c DomainPattern, Vec<IpAddr>>,
    addresses: AddressBounds,
    ports: PortBounds,
}

/// A port name, and at which pods a rule matches by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PortName<'a> {
    /// At every pod that has ports of this name (D34).
    All(&'a str),
    /// At pods where the name stands for [few ports](crate::budget::PORTS_OF_A_NAME).
    Few(&'a str),
}

impl<'a> PortName<'a> {
    fn of(name: &'a str, policy: &Policy<'_>, direction: Direction) -> PortName<'a> {
        if limits_names(policy, direction) {
            PortName::Few(name)
        } else {
            PortName::All(name)
        }
    }
}

/// A rule whose selectors are compiled. Its blocks and ports wait for the atoms of all rules.
#[derive(Debug)]
struct RuleDraft<'c, 'a> {
    place: RulePlace,
    action: Action,
    any_peer: bool,
    sets: Slice,
    nodes: Slice,
    /// The addresses that domain names stand for, in `Vocabulary::resolved`.
    resolved: Slice,
    names: Slice,
    peers: &'c [Peer<'a>],
    ports: Option<&'c [PortMatch<'a>]>,
}

impl<'c, 'a> Vocabulary<'c, 'a> {
    /// Collects everything that the enforced policies name. If a policy that works by isolation
    /// does not isolate in a direction, its rules of that direction are ignored (D31).
    pub(super) fn collect(
        cluster: &'c Cluster<'a>,
        is_enforced: &dyn Fn(PolicyId, &Policy<'_>) -> bool,
    ) -> Vocabulary<'c, 'a> {
        let mut vocabulary = Vocabulary::default();
        for (index, policy) in cluster.policies.iter().enumerate() {
            let id = PolicyId(count(index));
            // A policy without a subject keeps its number and has no rules: numbers of policies are
            // places in the cluster.
            let subject = policy.subject.as_ref().filter(|_| is_enforced(id, policy));
            let subject = subject.map(|subject| vocabulary.sets.add(subject));
            vocabulary.subjects.push(subject);
            if subject.is_none() {
                continue;
            }
            for direction in Direction::BOTH {
                let rules = policy.rules(direction);
                if !works_by_isolation(policy) || rules.isolates {
                    for (index, rule) in rules.list.iter().enumerate() {
                        // Rules that failed closed to nothing are left out. The others keep the
                        // index of their list, which output names.
                        if let Some(effect) = &rule.effect {
                            let place = RulePlace {
                                policy: id,
                                direction,
                                index: count(index),
                            };
                            vocabulary.rule(cluster, policy, place, effect);
                        }
                    }
                }
            }
        }
        vocabulary
    }

    fn rule(
        &mut self,
        cluster: &'c Cluster<'a>,
        policy: &Policy<'_>,
        place: RulePlace,
        effect: &'c Effect<'a>,
    ) {
        let Effect {
            action,
            peers,
            ports,
        } = effect;
        let mut any_peer = peers.is_none();
        let (sets, nodes) = (self.lists.sets.len(), count(self.lists.nodes.len()));
        let resolved = count(self.resolved.len());
        for peer in peers.iter().flatten() {
            match peer {
                Peer::Pods(set) => {
                    let set = self.sets.add(set);
                    // A rule has few peers: a search is cheaper than a set of its own.
                    let known = self.lists.sets.get(sets..).unwrap_or_default();
                    if !known.contains(&set) {
                        self.lists.sets.push(set);
                    }
                }
                Peer::Nodes(selector) => self.lists.nodes.push(self.nodes.selector(selector)),
                Peer::Block { cidr, except } => {
                    self.addresses.add(*cidr);
                    except.iter().for_each(|block| self.addresses.add(*block));
                }
                Peer::Domains(patterns) => self.resolve(cluster, patterns),
                Peer::All => any_peer = true,
            }
        }
        // Rules with the same peers in another order have the same group in `plan`.
        if let Some(sets) = self.lists.sets.get_mut(sets..) {
            sets.sort_unstable();
        }
        let names = count(self.lists.names.len());
        for port in ports.iter().flatten() {
            match port {
                PortMatch::Numbers(protocol, range) => self.ports.add(*protocol, *range),
                PortMatch::Named(protocol, name) => {
                    let next = count(self.port_names.len());
                    let name = PortName::of(name, policy, place.direction);
                    self.lists.names.push(NamedPort {
                        name: *self.port_names.entry(name).or_insert(next),
                        protocol: *protocol,
                    });
                }
            }
        }
        self.rules.push(RuleDraft {
            place,
            action: *action,
            any_peer,
            sets: slice(count(sets), &self.lists.sets),
            nodes: slice(nodes, &self.lists.nodes),
            resolved: slice(resolved, &self.resolved),
            names: slice(names, &self.lists.names),
            peers: peers.as_deref().unwrap_or_default(),
            ports: ports.as_deref(),
        });
    }

    /// Adds the learned addresses of some patterns, each as a block of one address.
    fn resolve(&mut self, cluster: &'c Cluster<'a>, patterns: &'c [DomainPattern]) {
        for pattern in patterns {
            let addresses = self
                .of_pattern
                .entry(pattern)
                .or_insert_with(|| cluster.learned_for(std::slice::from_ref(pattern)).collect());
            for address in addresses {
                self.addresses.add(Cidr::single(*address));
                self.resolved.push(*address);
            }
        }
    }

    /// Compiles the rules. No policy may be added afterwards.
    pub(super) fn compile(&mut self) -> CompiledRules {
        let addresses = std::mem::take(&mut self.addresses).finish();
        let ports = std::mem::take(&mut self.ports).finish();
        let mut lists = std::mem::take(&mut self.lists);
        let drafts = std::mem::take(&mut self.rules);
        let mut rules = Vec::with_capacity(drafts.len());
        rules.extend(drafts.into_iter().map(|draft| {
            let start = count(lists.blocks.len());
            for peer in draft.peers {
                if let Peer::Block { cidr, except } = peer {
                    blocks(&addresses, *cidr, except, &mut lists.blocks);
                }
            }
            for address in draft.resolved.of(&self.resolved) {
                blocks(&addresses, Cidr::single(*address), &[], &mut lists.blocks);
            }
            let blocks = slice(start, &lists.blocks);
            let start = count(lists.ports.len());
            let mut port_bits = 0;
            for port in draft.ports.into_iter().flatten() {
                if let PortMatch::Numbers(protocol, range) = port {
                    let first = ports.of(*protocol, range.start().get());
                    let last = ports.of(*protocol, range.end().get());
                    lists.ports.push((first, last + 1));
                    port_bits |= remainders(first, last);
                }
            }
            Rule {
                place: draft.place,
                action: draft.action,
                any_peer: draft.any_peer,
                sets: draft.sets,
                blocks,
                nodes: draft.nodes,
                any_port: draft.ports.is_none(),
                port_bits,
                ports: slice(start, &lists.ports),
                names: draft.names,
            }
        }));
        lists.shrink();
        CompiledRules {
            rules,
            lists,
            addresses,
            ports,
        }
    }
}

/// All rules, and the lists and atoms that their numbers refer to.
#[derive(Debug)]
pub(super) struct CompiledRules {
    pub(super) rules: Vec<Rule>,
    pub(super) lists: Lists,
    pub(super) addresses: AddressAtoms,
    pub(super) ports: PortAtoms,
}

fn slice<T>(start: u32, list: &[T]) -> Slice {
    Slice {
        start,
        end: count(list.len()),
    }
}

/// Returns a bit for the remainder by 64 of each number from `first` to `last`.
fn remainders(first: u32, last: u32) -> u64 {
    match last.saturating_sub(first) {
        length @ 0..63 => (u64::MAX >> (63 - length)).rotate_left(first % 64),
        _ => u64::MAX,
    }
}

/// Adds the runs of atoms of a block without its exceptions.
fn blocks(atoms: &AddressAtoms, cidr: Cidr, except: &[Cidr], runs: &mut Vec<(u32, u32)>) {
    // Exceptions lie inside their block: reading refuses all others (D88, D121). They may overlap
    // or contain each other, so `start` never goes back.
    let run = |block: Cidr| (atoms.of(block.first()).0, atoms.of(block.last()).0 + 1);
    let (mut start, end) = run(cidr);
    let mut holes: Vec<(u32, u32)> = except.iter().map(|block| run(*block)).collect();
    holes.sort_unstable();
    for (hole_start, hole_end) in holes {
        if start < hole_start {
            runs.push((start, hole_start));
        }
        start = start.max(hole_end);
    }
    if start < end {
        runs.push((start, end));
    }
}

/// Whether a policy isolates, and its rules only accept.
fn works_by_isolation(policy: &Policy<'_>) -> bool {
    match policy.rank {
        PolicyRank::NetworkPolicy | PolicyRank::DefaultGroup => true,
        PolicyRank::EarlyAdmin | PolicyRank::Ordered(..) => false,
    }
}

/// The Baseline priority of the default policies: after every valid priority, and after that of
/// BaselineAdminNetworkPolicy (1.2).
const DEFAULT_GROUP_PRIORITY: i64 = BASELINE_ADMIN_PRIORITY + 1;

/// The precedence of a rule in its tier: class, priority, kind, name, index. The smallest is first.
pub(crate) type OrderKey<'a> = (u8, i64, PolicyApi, &'a str, u32);

/// Returns the tier of a rule and its precedence there; `None`: it is not in an ordered tier.
pub(crate) fn order(
    rank: PolicyRank,
    (api, name): (PolicyApi, &str),
    action: Action,
    index: u32,
) -> Option<(Tier, OrderKey<'_>)> {
    let key = |class, priority| (class, priority, api, name, index);
    // The 2021 draft has no priorities. All its Deny rules come before all its Allow rules, of
    // whichever policy (D61): the action sorts first, and names cannot change a verdict. Class 2
    // puts policies with a priority after both.
    match rank {
        PolicyRank::EarlyAdmin => {
            let class = if action == Action::Deny { 0 } else { 1 };
            Some((Tier::Admin, key(class, 0)))
        }
        PolicyRank::Ordered(Tier::Admin, priority) => Some((Tier::Admin, key(2, priority))),
        PolicyRank::Ordered(Tier::Baseline, priority) => Some((Tier::Baseline, key(0, priority))),
        PolicyRank::DefaultGroup => Some((Tier::Baseline, key(0, DEFAULT_GROUP_PRIORITY))),
        PolicyRank::NetworkPolicy => None,
    }
}

/// Whether a rule of the Baseline tier is one of the default policies or comes before them.
pub(super) fn up_to_default_group(key: &OrderKey<'_>) -> bool {
    // An invalid priority keeps its place (D116): other kinds may have 1002 too, or more.
    (key.1, key.2) <= (DEFAULT_GROUP_PRIORITY, PolicyApi::Default)
}

/// Returns where the rules of each policy are, for each direction.
pub(super) fn by_policy(rules: &[Rule], n_policies: usize) -> [Vec<Slice>; 2] {
    let mut slices = [
        vec![Slice::default(); n_policies],
        vec![Slice::default(); n_policies],
    ];
    for (id, rule) in rules.iter().enumerate() {
        // `Vocabulary::collect` adds the rules of a policy and direction one after the other.
        if let Some(slices) = slices.get_mut(direction_index(rule.place.direction))
            && let Some(slice) = slices.get_mut(rule.place.policy.0 as usize)
        {
            if slice.end == 0 {
                slice.start = count(id);
            }
            slice.end = count(id + 1);
        }
    }
    slices
}
