//! Bounds the NetworkPolicies of one namespace that every node must enforce (D148).
//!
//! All agents read, plan and install what the owners of a namespace write. The part that is planned
//! and installed is bounded for each namespace: a policy over the budget isolates its subjects and
//! allows nothing. Which policies fit is a pure function of the objects: all nodes and all commands
//! agree.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

use crate::labels::Selector;
use crate::model::{Cluster, Effect, NamespaceId, NamespaceSet, Peer, PodSet, PolicyRank};
use crate::model::{Policy, PolicyId, PortMatch};
use crate::net::Protocol;
use crate::plan::port_blocks;
use crate::policy::Direction;

/// The number of entries that the NetworkPolicies of one namespace may have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Budget(u64);

/// The number of pairs of a port and a peer that count as one entry.
///
/// A rule's ports and peers usually become separate lookups, and the rule takes as much room as
/// both together. Where rules overlap in ever different ways, each pair becomes an element.
const PAIRS_OF_AN_ENTRY: u64 = 5;

/// The number of ports of one pod that a name in an ingress rule of a NetworkPolicy may stand for.
///
/// If more ports of a pod have the name, the rule does not match by it: the author of the pod
/// chooses the names, and each port is a pair with each peer of the rule.
pub const PORTS_OF_A_NAME: usize = 8;

/// Returns whether the rules of a policy match only names of [few ports](PORTS_OF_A_NAME).
///
/// Rules of NetworkPolicies accept: fewer matches deny more. A rule that may deny matches all ports
/// of a name (D34).
pub(crate) fn limits_names(policy: &Policy<'_>, direction: Direction) -> bool {
    direction == Direction::Ingress && policy.rank == PolicyRank::NetworkPolicy
}

/// Returns the names that stand for [too many ports](PORTS_OF_A_NAME) of a pod, each with its
/// number of ports.
pub fn crowded_names<N: Ord>(
    ports: impl Iterator<Item = (N, Protocol, NonZeroU16)> + Clone,
) -> BTreeMap<N, usize> {
    // Nearly all pods have fewer ports, and this function runs for every pod: no map for those.
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

/// The kernel stores a block of addresses as two elements: where it begins and where it ends.
const ENTRIES_OF_A_BLOCK: u64 = 2;

impl Budget {
    /// No limit.
    pub const UNLIMITED: Budget = Budget(u64::MAX);

    /// Creates a budget; 0 means no limit.
    pub const fn new(entries: u64) -> Budget {
        if entries == 0 {
            Budget::UNLIMITED
        } else {
            Budget(entries)
        }
    }

    /// Returns the limit.
    pub fn entries(self) -> u64 {
        self.0
    }

    /// Returns for each policy of a namespace whether it is over the budget, from the entries of
    /// the policies in their [order](BudgetOrder).
    pub fn is_over(self, entries: impl IntoIterator<Item = u64>) -> impl Iterator<Item = bool> {
        let mut room = self.0;
        entries.into_iter().map(move |entries| {
            let fits = entries <= room;
            if fits {
                // A policy over the budget takes no entries: it allows nothing and costs nothing.
                // Otherwise one huge old policy would disable all younger ones.
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

/// The order in which policies take entries: the oldest first, those without a creation time last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BudgetOrder<'a> {
    created: (bool, Option<u64>),
    name: &'a str,
    generation: crate::policy::PolicyApi,
}

impl<'a> BudgetOrder<'a> {
    /// Returns the position of a policy among those of its namespace.
    pub fn of(policy: &Policy<'a>) -> BudgetOrder<'a> {
        BudgetOrder::new(policy.created, policy.name, policy.api)
    }

    pub(crate) fn new(
        created: Option<u64>,
        name: &'a str,
        generation: crate::policy::PolicyApi,
    ) -> BudgetOrder<'a> {
        BudgetOrder {
            // The oldest policies come first: a new policy must not disable those that are in
            // force. `None` would sort before every time, hence the flag.
            created: (created.is_none(), created),
            name,
            generation,
        }
    }
}

/// A policy that does not fit into the budget of its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverBudget {
    /// The policy that isolates and allows nothing.
    pub policy: PolicyId,
    /// Its number of entries.
    pub entries: u64,
}

/// Sets the budget of each namespace of a cluster, and removes the effects of the policies that do
/// not fit.
pub fn apply(cluster: &mut Cluster<'_>, budget: Budget) -> Vec<OverBudget> {
    cluster.budget = budget;
    let mut of_namespaces: BTreeMap<NamespaceId, Vec<(PolicyId, u64)>> = BTreeMap::new();
    for (id, policy) in (0..).map(PolicyId).zip(&cluster.policies) {
        let entries = entries(policy);
        // A policy without entries always fits; cluster-wide policies have no budget.
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
        // Nearly every namespace is far below its budget and needs no order.
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
    // Namespaces are visited by id, reports list policies in the order of the cluster.
    all.sort_unstable_by_key(|it| it.policy);
    for OverBudget { policy, .. } in &all {
        if let Some(policy) = cluster.policies.get_mut(policy.0 as usize) {
            remove_effects(policy);
        }
    }
    all
}

/// Removes the effects of all rules; the policy isolates as before.
fn remove_effects(policy: &mut Policy<'_>) {
    policy.is_over_budget = true;
    for rules in [&mut policy.ingress, &mut policy.egress] {
        for rule in &mut rules.list {
            // The rule stays in its list: rules are identified by their index.
            rule.effect = None;
            rule.failed_closed = true;
        }
    }
}

/// Returns the entries of a policy; only enforced NetworkPolicies have any.
pub fn entries(policy: &Policy<'_>) -> u64 {
    if policy.rank != PolicyRank::NetworkPolicy || policy.audited {
        return 0;
    }
    let rules = policy.ingress.list.iter().chain(&policy.egress.list);
    let effects = rules.filter_map(|it| it.effect.as_ref());
    effects.map(of_rule).fold(0, u64::saturating_add)
}

/// Returns the entries of a rule: its ports and peers together, or a fifth of their pairs if that
/// is more.
fn of_rule(effect: &Effect<'_>) -> u64 {
    let ports = sum(effect.ports.as_deref(), of_port);
    let peers = sum(effect.peers.as_deref(), of_peer);
    let each = sum(effect.ports.as_deref(), with_each_peer);
    let pairs = each.saturating_mul(peers) / PAIRS_OF_AN_ENTRY;
    // A rule for every peer and port is at least one rule of a chain.
    ports.saturating_add(peers).max(pairs).max(1)
}

fn sum<T>(list: Option<&[T]>, of: impl Fn(&T) -> u64) -> u64 {
    let list = list.unwrap_or_default().iter();
    list.map(of).fold(0, u64::saturating_add)
}

/// Returns the entries of a port; a range counts its [blocks](crate::plan::PortBlock).
fn of_port(port: &PortMatch<'_>) -> u64 {
    match port {
        PortMatch::Named(..) => 1,
        PortMatch::Numbers(_, range) => u64::from(port_blocks(*range)),
    }
}

/// Returns for how many ports the peers of a rule may be stored, one by one.
fn with_each_peer(port: &PortMatch<'_>) -> u64 {
    match port {
        // The author of a rule cannot know how many ports of a pod have the name: the most that are
        // matched counts.
        PortMatch::Named(..) => PORTS_OF_A_NAME as u64,
        PortMatch::Numbers(..) => of_port(port),
    }
}

/// Returns the entries of a peer: two for each block and exception, otherwise one and one for each
/// value of a selector.
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
    // `Exists` and `DoesNotExist` have no values, and cost as much as one.
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
    fn a_selector_counts_its_values() {
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
    fn a_port_name_counts_as_many_pairs_as_ports_it_may_match() {
        let names: Vec<PortMatch<'_>> = vec![PortMatch::Named(None, "http"); 10];
        assert_eq!(of(Some(vec![block(9)]), Some(names.clone())), 320);
        assert_eq!(of(None, Some(names)), 10);
    }

    #[test]
    fn a_policy_over_budget_takes_no_entries() {
        let over: Vec<bool> = Budget::new(10).is_over([4, 7, 6, 1, 0]).collect();
        assert_eq!(over, [false, true, false, true, false]);
        let huge = [u64::MAX, u64::MAX];
        assert!(!Budget::new(0).is_over([u64::MAX]).any(|it| it));
        assert_eq!(Budget::new(1).is_over(huge).filter(|it| *it).count(), 2);
    }
}
