//! What the NetworkPolicies of one namespace may make every node keep (D148).
//!
//! Whoever may write NetworkPolicies in a namespace writes something that all agents read, plan and tell the kernel. How much is
//! planned and told is bounded for each namespace: a policy that does not fit isolates its subjects and allows nothing. Which policies fit is a pure
//! function of the objects, so that every node and every command says the same.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

use crate::labels::Selector;
use crate::model::{Cluster, Effect, NamespaceId, NamespaceSet, Peer, PodSet, PolicyRank};
use crate::model::{Policy, PolicyId, PortMatch};
use crate::net::Protocol;
use crate::plan::port_blocks;
use crate::policy::Direction;

/// The entries that the NetworkPolicies of one namespace may have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Budget(u64);

/// A rule's ports and peers are usually looked up apart, so that it takes as much room as both together. Where rules overlap in ever
/// different ways it is one for each pair, and a rule with many pairs counts this part of them.
const PAIRS_OF_AN_ENTRY: u64 = 5;

/// How many ports of one pod a name in an ingress rule of a NetworkPolicy may stand for. Where more ports of a pod have the name, such a
/// rule does not match by it: the author of the pod chooses the names, and each port is a pair with each peer of the rule.
pub const PORTS_OF_A_NAME: usize = 8;

/// Whether the rules of a policy match by names of [few ports](PORTS_OF_A_NAME) only.
///
/// Rules of NetworkPolicies accept, so that fewer matches deny more. A rule that may deny matches all ports of a name (D34).
pub(crate) fn limits_names(policy: &Policy<'_>, direction: Direction) -> bool {
    direction == Direction::Ingress && policy.rank == PolicyRank::NetworkPolicy
}

/// The names that stand for [more ports](PORTS_OF_A_NAME) of a pod, and for how many.
pub fn crowded_names<N: Ord>(
    ports: impl Iterator<Item = (N, Protocol, NonZeroU16)> + Clone,
) -> BTreeMap<N, usize> {
    // Hardly any pod has so many ports.
    if ports.clone().count() <= PORTS_OF_A_NAME {
        return BTreeMap::new();
    }
    let mut numbers: BTreeMap<N, BTreeSet<(Protocol, NonZeroU16)>> = BTreeMap::new();
    for (name, protocol, port) in ports {
        numbers.entry(name).or_default().insert((protocol, port));
    }
    let counts = numbers.into_iter();
    let counts = counts.map(|(name, ports)| (name, ports.len()));
    counts.filter(|(_, n)| *n > PORTS_OF_A_NAME).collect()
}

/// The kernel keeps where a block of addresses begins and where it ends.
const ENTRIES_OF_A_BLOCK: u64 = 2;

impl Budget {
    /// Everything fits.
    pub const UNLIMITED: Budget = Budget(u64::MAX);

    /// So many entries; 0 stands for no limit.
    pub const fn new(entries: u64) -> Budget {
        if entries == 0 {
            Budget::UNLIMITED
        } else {
            Budget(entries)
        }
    }

    /// How many entries fit.
    pub fn entries(self) -> u64 {
        self.0
    }

    /// Which policies of a namespace do not fit, of the entries of each, in their [order](Order). Those that do not fit take no room
    /// from others.
    pub fn is_over(self, entries: impl IntoIterator<Item = u64>) -> impl Iterator<Item = bool> {
        let mut room = self.0;
        entries.into_iter().map(move |entries| {
            let fits = entries <= room;
            if fits {
                room -= entries;
            }
            !fits
        })
    }
}

impl Default for Budget {
    /// Far more than people write: a thousand policies of a hundred entries each.
    fn default() -> Budget {
        Budget(100_000)
    }
}

/// The order in which policies take room: the oldest first, those without a time of creation last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BudgetOrder<'a> {
    created: (bool, Option<u64>),
    name: &'a str,
    generation: crate::policy::PolicyApi,
}

impl<'a> BudgetOrder<'a> {
    /// The place of a policy among those of its namespace.
    pub fn of(policy: &Policy<'a>) -> BudgetOrder<'a> {
        BudgetOrder::new(policy.created, policy.name, policy.generation)
    }

    pub(crate) fn new(
        created: Option<u64>,
        name: &'a str,
        generation: crate::policy::PolicyApi,
    ) -> BudgetOrder<'a> {
        BudgetOrder {
            created: (created.is_none(), created),
            name,
            generation,
        }
    }
}

/// A policy that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverBudget {
    /// Which.
    pub policy: PolicyId,
    /// How many entries it has.
    pub entries: u64,
}

/// Gives the namespaces of a cluster a budget, and takes the rules away from the policies that do not fit.
pub fn apply(cluster: &mut Cluster<'_>, budget: Budget) -> Vec<OverBudget> {
    cluster.budget = budget;
    let mut of_namespaces: BTreeMap<NamespaceId, Vec<(PolicyId, u64)>> = BTreeMap::new();
    for (id, policy) in (0..).map(PolicyId).zip(&cluster.policies) {
        let entries = entries(policy);
        if let Some(namespace) = policy.namespace.filter(|_| entries > 0) {
            of_namespaces
                .entry(namespace)
                .or_default()
                .push((id, entries));
        }
    }
    let mut all = Vec::new();
    for mut policies in of_namespaces.into_values() {
        let sum = policies
            .iter()
            .fold(0_u64, |sum, (_, it)| sum.saturating_add(*it));
        if sum <= budget.entries() {
            continue;
        }
        policies.sort_by_key(|(id, _)| cluster.policies.get(id.0 as usize).map(BudgetOrder::of));
        let is_over = budget.is_over(policies.iter().map(|(_, entries)| *entries));
        let over = policies.iter().zip(is_over).filter(|(_, is_over)| *is_over);
        all.extend(over.map(|((policy, entries), _)| OverBudget {
            policy: *policy,
            entries: *entries,
        }));
    }
    all.sort_unstable_by_key(|it| it.policy);
    for OverBudget { policy, .. } in &all {
        if let Some(policy) = cluster.policies.get_mut(policy.0 as usize) {
            close(policy);
        }
    }
    all
}

/// Whether the policies that fit still do, for whoever has changed some of them.
pub(crate) fn holds(cluster: &Cluster<'_>) -> bool {
    let mut of_namespaces: BTreeMap<NamespaceId, u64> = BTreeMap::new();
    for policy in &cluster.policies {
        if let Some(namespace) = policy.namespace.filter(|_| !policy.is_over_budget) {
            let sum = of_namespaces.entry(namespace).or_default();
            *sum = sum.saturating_add(entries(policy));
        }
    }
    let mut sums = of_namespaces.into_values();
    sums.all(|sum| sum <= cluster.budget.entries())
}

/// A policy that does not fit isolates as before, and its rules allow nothing.
fn close(policy: &mut Policy<'_>) {
    policy.is_over_budget = true;
    for rules in [&mut policy.ingress, &mut policy.egress] {
        for rule in &mut rules.list {
            rule.effect = None;
            rule.failed_closed = true;
        }
    }
}

/// The entries of a policy; only NetworkPolicies that are enforced have any.
pub fn entries(policy: &Policy<'_>) -> u64 {
    if policy.rank != PolicyRank::NetworkPolicy || policy.audited {
        return 0;
    }
    let rules = policy.ingress.list.iter().chain(&policy.egress.list);
    let effects = rules.filter_map(|it| it.effect.as_ref());
    effects.map(of_rule).fold(0, u64::saturating_add)
}

/// At least one; its ports and its peers together; or a fifth of their pairs.
fn of_rule(effect: &Effect<'_>) -> u64 {
    let ports = sum(effect.ports.as_deref(), of_port);
    let peers = sum(effect.peers.as_deref(), of_peer);
    let each = sum(effect.ports.as_deref(), with_each_peer);
    let pairs = each.saturating_mul(peers) / PAIRS_OF_AN_ENTRY;
    ports.saturating_add(peers).max(pairs).max(1)
}

fn sum<T>(list: Option<&[T]>, of: impl Fn(&T) -> u64) -> u64 {
    let list = list.unwrap_or_default().iter();
    list.map(of).fold(0, u64::saturating_add)
}

/// A range is as many as it has [blocks](crate::plan::PortBlock).
fn of_port(port: &PortMatch<'_>) -> u64 {
    match port {
        PortMatch::Named(..) => 1,
        PortMatch::Numbers(_, range) => u64::from(port_blocks(*range)),
    }
}

/// How many ports a rule's peers may have to be kept for, one by one.
fn with_each_peer(port: &PortMatch<'_>) -> u64 {
    match port {
        PortMatch::Named(..) => PORTS_OF_A_NAME as u64,
        PortMatch::Numbers(..) => of_port(port),
    }
}

/// One for the peer, and one for each label or value; two for a block of addresses, and two for each exception.
fn of_peer(peer: &Peer<'_>) -> u64 {
    let more = match peer {
        Peer::Pods(PodSet { namespaces, pods }) => {
            let of_namespaces = match namespaces {
                NamespaceSet::Exact(_) | NamespaceSet::Own | NamespaceSet::NotOwn => 0,
                NamespaceSet::Selected { selector, except } => {
                    of_selector(selector) + sum(Some(except), of_selector)
                }
                NamespaceSet::SameLabels(keys) | NamespaceSet::NotSameLabels(keys) => {
                    keys.len() as u64
                }
            };
            of_namespaces + pods.as_ref().map_or(0, of_selector)
        }
        Peer::Nodes(selector) => of_selector(selector),
        Peer::Block { except, .. } => {
            return (except.len() as u64)
                .saturating_add(1)
                .saturating_mul(ENTRIES_OF_A_BLOCK);
        }
        Peer::Domains(patterns) => patterns.len() as u64,
        Peer::All => 0,
    };
    1 + more
}

fn of_selector(selector: &Selector<&str>) -> u64 {
    let requirements = selector.requirements.iter();
    requirements.map(|it| it.values.len().max(1) as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::{Operator, Requirement};
    use crate::model::NamespaceSet::Own;
    use crate::net::{Cidr, PortRange, Protocol};
    use crate::policy::Action;

    fn ports(ranges: &[(u16, u16)]) -> Option<Vec<PortMatch<'static>>> {
        let ranges = ranges.iter().map(|(start, end)| {
            let (start, end) = ((*start).try_into().unwrap(), (*end).try_into().unwrap());
            PortMatch::Numbers(Protocol::Tcp, PortRange::new(start, end).unwrap())
        });
        Some(ranges.collect())
    }

    fn block(except: usize) -> Peer<'static> {
        let cidr = Cidr::new("10.0.0.0".parse().unwrap(), 8).unwrap();
        Peer::Block {
            cidr,
            except: vec![cidr; except],
        }
    }

    fn of(peers: Option<Vec<Peer<'_>>>, ports: Option<Vec<PortMatch<'_>>>) -> u64 {
        of_rule(&Effect {
            action: Action::Accept,
            peers,
            ports,
        })
    }

    #[test]
    fn a_rule_is_its_ports_and_peers() {
        assert_eq!(of(None, None), 1);
        assert_eq!(of(None, ports(&[(80, 80)])), 1);
        assert_eq!(of(Some(vec![block(3)]), ports(&[(80, 80), (443, 443)])), 10);
        let named = Some(vec![PortMatch::Named(None, "http")]);
        assert_eq!(of(Some(vec![Peer::All]), named), 2);
    }

    #[test]
    fn a_range_is_its_blocks() {
        assert_eq!(of(None, ports(&[(8000, 8015)])), 1);
        assert_eq!(of(None, ports(&[(8000, 8016)])), 2);
        assert_eq!(of(None, ports(&[(1, 65_534)])), 104);
        assert_eq!(of(None, ports(&[(1, 65_535)])), 1);
    }

    #[test]
    fn a_selector_is_the_values_it_asks_for() {
        let requirement = |operator, values| Requirement {
            key: "app",
            operator,
            values,
        };
        let pods = |requirements| {
            Peer::Pods(PodSet {
                namespaces: Own,
                pods: Some(Selector { requirements }),
            })
        };
        assert_eq!(of_peer(&pods(Vec::new())), 1);
        let both = vec![
            requirement(Operator::In, vec!["a", "b", "c"]),
            requirement(Operator::Exists, Vec::new()),
        ];
        assert_eq!(of_peer(&pods(both)), 5);
    }

    #[test]
    fn a_rule_with_many_pairs_is_a_fifth_of_them() {
        let singles: Vec<(u16, u16)> = (1..=100).map(|port| (port, port)).collect();
        assert_eq!(of(Some(vec![block(19)]), ports(&singles)), 800);
        assert_eq!(of(Some(vec![block(99)]), ports(&singles)), 4_000);
    }

    #[test]
    fn a_name_is_as_many_pairs_as_it_may_stand_for_ports() {
        let names: Vec<PortMatch<'_>> = vec![PortMatch::Named(None, "http"); 10];
        assert_eq!(of(Some(vec![block(9)]), Some(names.clone())), 320);
        assert_eq!(of(None, Some(names)), 10);
    }

    #[test]
    fn what_does_not_fit_takes_no_room() {
        let over: Vec<bool> = Budget::new(10).is_over([4, 7, 6, 1, 0]).collect();
        assert_eq!(over, [false, true, false, true, false]);
        let huge = [u64::MAX, u64::MAX];
        assert!(!Budget::new(0).is_over([u64::MAX]).any(|it| it));
        assert_eq!(Budget::new(1).is_over(huge).filter(|it| *it).count(), 2);
    }
}
