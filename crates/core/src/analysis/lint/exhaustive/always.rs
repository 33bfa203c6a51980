//! Rules that earlier rules of their own policy cover for any pods, namespaces and nodes (D8).
//!
//! The check needs no object. For each label key that the rules name, a peer has no such label, one
//! of the named values, or another value. Its address is in one of the intervals between block
//! boundaries, and a port is in one of the intervals between range boundaries, with any subset of
//! the named ports. A combination of these is a *point*. If an earlier rule matches at every point
//! at which a rule matches, the rule is never the first.
//!
//! Some points cannot exist, such as a pod with a multicast address. They are tried too, which can
//! only hide a finding and never make a wrong one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use super::possible::NAME;
use crate::domain::DomainPattern;
use crate::labels::Selector;
use crate::model::{
    Cluster, Effect, NamespaceSet, Peer, PodSet, Policy, PolicyId, PolicyRank, PortMatch,
};
use crate::net::{Cidr, Family, Protocol};
use crate::policy::{Action, Direction};
use crate::program::RulePlace;

/// The maximum number of label combinations, and of points in all. A rule with more has no finding.
const MAX_LABELS: usize = 4096;
const MAX_POINTS: usize = 1 << 18;
/// The maximum number of distinct port names in the rules. Each doubles the number of ports to try.
const MAX_NAMES: usize = 4;

/// A value that no selector has: a label cannot contain a null character.
const OTHER: &str = "\u{0}other";

/// Returns the rules that are always covered, each with the rules that cover it.
pub(super) fn covered(cluster: &Cluster<'_>) -> Vec<(RulePlace, BTreeSet<RulePlace>)> {
    let mut found = Vec::new();
    for (id, policy) in (0..).zip(&cluster.policies) {
        let is_ordered = match policy.rank {
            PolicyRank::EarlyAdmin | PolicyRank::Ordered(..) => true,
            PolicyRank::NetworkPolicy | PolicyRank::DefaultGroup => false,
        };
        // Rules of unions have no order, so none comes first. Audited policies decide nothing.
        if !is_ordered || policy.audited || policy.subject.is_none() {
            continue;
        }
        for direction in Direction::BOTH {
            of_list(cluster, policy, PolicyId(id), direction, &mut found);
        }
    }
    found
}

type Ranked<'r, 'a> = (u32, &'r Effect<'a>);

/// Adds the covered rules of one list.
fn of_list(
    cluster: &Cluster<'_>,
    policy: &Policy<'_>,
    id: PolicyId,
    direction: Direction,
    found: &mut Vec<(RulePlace, BTreeSet<RulePlace>)>,
) {
    let list = &policy.rules(direction).list;
    let effects = (0..).zip(list).filter(|(_, it)| !it.failed_closed);
    let mut effects: Vec<Ranked<'_, '_>> = effects
        .filter_map(|(index, rule)| Some((index, rule.effect.as_ref()?)))
        .collect();
    if policy.rank == PolicyRank::EarlyAdmin {
        // Every Deny takes precedence over every Allow (D61), whatever their order in the list.
        effects.sort_by_key(|it| (it.1.action != Action::Deny, it.0));
    }
    for (at, (index, rule)) in effects.iter().enumerate() {
        let earlier = effects.get(..at).unwrap_or_default();
        let space = Space::new(cluster, direction, rule, earlier);
        if let Some(by) = space.and_then(|it| it.covering()) {
            let place = |index: u32| RulePlace {
                policy: id,
                direction,
                index,
            };
            found.push((place(*index), by.into_iter().map(place).collect()));
        }
    }
}

/// The kind of object that a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerKind {
    Pod,
    Node,
    Outside,
}

/// How a label of the subject's namespace compares with the same label of the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compared {
    Same,
    Different,
    Absent,
}

/// A peer as the rules see it.
#[derive(Clone, Copy)]
struct Point<'p> {
    sort: PeerKind,
    /// The labels of its namespace, and its own.
    namespace: &'p BTreeMap<&'p str, Option<&'p str>>,
    own: &'p BTreeMap<&'p str, Option<&'p str>>,
    address: IpAddr,
    /// A domain name of the address.
    domain: Option<&'p DomainPattern>,
    /// Whether its namespace is the subject's.
    is_home: bool,
    compared: &'p BTreeMap<&'p str, Compared>,
}

/// A port as the rules see it: protocol and number, `None` for protocols without ports, and a bit
/// for each name in [`Space::names`] that it has.
struct Port {
    at: Option<(Protocol, NonZeroU16)>,
    names: usize,
}

/// A rule and the earlier rules of its list, with the points that they distinguish.
struct Space<'s, 'a> {
    cluster: &'s Cluster<'a>,
    direction: Direction,
    rule: &'s Effect<'a>,
    earlier: &'s [Ranked<'s, 'a>],
    names: Vec<&'s str>,
}

/// The values in which peers differ, one list for each dimension.
struct Dimensions<'p> {
    namespaces: Vec<BTreeMap<&'p str, Option<&'p str>>>,
    pods: Vec<BTreeMap<&'p str, Option<&'p str>>>,
    nodes: Vec<BTreeMap<&'p str, Option<&'p str>>>,
    compared: Vec<BTreeMap<&'p str, Compared>>,
    addresses: Vec<IpAddr>,
    patterns: Vec<Option<&'p DomainPattern>>,
    /// Whether the peer's namespace is the subject's.
    homes: &'static [bool],
}

impl Dimensions<'_> {
    /// Returns the maximum number of peers at one address; `None` if there are too many.
    fn peers(&self) -> Option<usize> {
        let n_labels = self.namespaces.len().checked_mul(self.pods.len())?;
        if n_labels > MAX_LABELS {
            return None;
        }
        let n_pods = n_labels.checked_mul(2 * self.compared.len())?;
        n_pods.checked_add(self.nodes.len() + 1)
    }

    /// Calls `test` for every point, until it returns `None`.
    fn each_point(&self, test: &mut impl FnMut(&Point<'_>) -> Option<()>) -> Option<()> {
        let none = BTreeMap::new();
        let never_compared = BTreeMap::new();
        for address in &self.addresses {
            for domain in &self.patterns {
                // A peer has one kind, and selectors of one kind do not match the others. The kinds
                // therefore add points; within a kind, the dimensions multiply.
                let outside = Point {
                    sort: PeerKind::Outside,
                    namespace: &none,
                    own: &none,
                    address: *address,
                    domain: *domain,
                    is_home: false,
                    compared: &never_compared,
                };
                test(&outside)?;
                for own in &self.nodes {
                    let node = Point {
                        sort: PeerKind::Node,
                        own,
                        ..outside
                    };
                    test(&node)?;
                }
                self.each_pod(&outside, test)?;
            }
        }
        Some(())
    }

    fn each_pod(
        &self,
        outside: &Point<'_>,
        test: &mut impl FnMut(&Point<'_>) -> Option<()>,
    ) -> Option<()> {
        for namespace in &self.namespaces {
            for own in &self.pods {
                for compared in &self.compared {
                    for is_home in self.homes {
                        let pod = Point {
                            sort: PeerKind::Pod,
                            namespace,
                            own,
                            is_home: *is_home,
                            compared,
                            ..*outside
                        };
                        test(&pod)?;
                    }
                }
            }
        }
        Some(())
    }
}

/// The distinguishable values of each key; `None` is a missing label.
type Domains<'s> = BTreeMap<&'s str, BTreeSet<Option<&'s str>>>;

impl<'s, 'a> Space<'s, 'a> {
    fn new(
        cluster: &'s Cluster<'a>,
        direction: Direction,
        rule: &'s Effect<'a>,
        earlier: &'s [Ranked<'s, 'a>],
    ) -> Option<Space<'s, 'a>> {
        if earlier.is_empty() {
            return None;
        }
        let mut space = Space {
            cluster,
            direction,
            rule,
            earlier,
            names: Vec::new(),
        };
        let ports = space.effects().filter_map(|it| it.ports.as_ref()).flatten();
        let names = ports.filter_map(|it| match it {
            PortMatch::Named(_, name) => Some(*name),
            PortMatch::Numbers(..) => None,
        });
        let names: BTreeSet<&str> = names.collect();
        space.names = names.into_iter().collect();
        (space.names.len() <= MAX_NAMES).then_some(space)
    }

    fn effects(&self) -> impl Iterator<Item = &'s Effect<'a>> + '_ {
        let earlier = self.earlier.iter().map(|it| it.1);
        earlier.chain([self.rule])
    }

    fn peers(&self) -> impl Iterator<Item = &'s Peer<'a>> + '_ {
        self.effects().filter_map(|it| it.peers.as_ref()).flatten()
    }

    fn pod_sets(&self) -> impl Iterator<Item = &'s PodSet<'a>> + '_ {
        self.peers().filter_map(|it| match it {
            Peer::Pods(set) => Some(set),
            Peer::Nodes(_) | Peer::Block { .. } | Peer::Domains(_) | Peer::All => None,
        })
    }

    /// Returns the indices of the earlier rules that cover the rule; `None` if they do not cover
    /// it, or if there are too many points.
    fn covering(&self) -> Option<BTreeSet<u32>> {
        let dimensions = self.dimensions()?;
        let ports = self.ports();
        let n_addresses = dimensions.addresses.len() * dimensions.patterns.len();
        let n_points = dimensions.peers()?.checked_mul(n_addresses * ports.len())?;
        if n_points > MAX_POINTS {
            return None;
        }
        let mut by = BTreeSet::new();
        dimensions.each_point(&mut |point| self.at(point, &ports, &mut by))?;
        // A rule that matches nowhere is not covered; `NEVER-MATCHES` reports it.
        (!by.is_empty()).then_some(by)
    }

    /// Returns the values in which peers differ; `None` if there are too many.
    fn dimensions(&self) -> Option<Dimensions<'_>> {
        let nodes = self.peers().filter_map(|it| match it {
            Peer::Nodes(selector) => Some(selector),
            Peer::Pods(_) | Peer::Block { .. } | Peer::Domains(_) | Peer::All => None,
        });
        // The subject's own namespace and another one double the points of pods, so both are tried
        // only if a rule distinguishes them.
        let depends_on_home = |set: &PodSet<'_>| match &set.namespaces {
            NamespaceSet::Own | NamespaceSet::NotOwn => true,
            NamespaceSet::Exact(_)
            | NamespaceSet::Selected { .. }
            | NamespaceSet::SameLabels(_)
            | NamespaceSet::NotSameLabels(_) => false,
        };
        Some(Dimensions {
            namespaces: combinations(&self.namespace_domains())?,
            pods: combinations(&domains(self.pod_sets().filter_map(|it| it.pods.as_ref())))?,
            nodes: combinations(&domains(nodes))?,
            compared: self.comparisons()?,
            addresses: self.addresses(),
            patterns: self.patterns(),
            homes: if self.pod_sets().any(depends_on_home) {
                &[false, true]
            } else {
                &[false]
            },
        })
    }

    /// Tests the rule at a point, for all ports. Returns `None` if it matches and no earlier rule
    /// does; adds the first earlier rules that match to `by`.
    fn at(&self, point: &Point<'_>, ports: &[Port], by: &mut BTreeSet<u32>) -> Option<()> {
        if !self.is_peer(self.rule, point) {
            return Some(());
        }
        let earlier = self.earlier.iter().filter(|it| self.is_peer(it.1, point));
        let earlier: Vec<&Ranked<'_, '_>> = earlier.collect();
        for port in ports {
            // Only pods have named ports (D33), and the name is that of the destination.
            let can_be_named = self.direction == Direction::Ingress || point.sort == PeerKind::Pod;
            if (port.names != 0 && !can_be_named) || !self.is_port(self.rule, port) {
                continue;
            }
            let first = earlier.iter().find(|it| self.is_port(it.1, port))?;
            by.insert(first.0);
        }
        Some(())
    }

    fn is_peer(&self, effect: &Effect<'_>, point: &Point<'_>) -> bool {
        let Some(peers) = &effect.peers else {
            return true;
        };
        let own = |key: &str| point.own.get(key).copied().flatten();
        peers.iter().any(|peer| match peer {
            Peer::All => true,
            Peer::Block { cidr, except } => {
                cidr.contains(point.address) && !except.iter().any(|it| it.contains(point.address))
            }
            Peer::Nodes(selector) => point.sort == PeerKind::Node && selector.matches(own),
            Peer::Domains(patterns) => point
                .domain
                .is_some_and(|it| patterns.iter().any(|wider| includes(wider, it))),
            Peer::Pods(set) => {
                let pods = set.pods.as_ref();
                point.sort == PeerKind::Pod
                    && pods.is_none_or(|it| it.matches(own))
                    && self.is_namespace(&set.namespaces, point)
            }
        })
    }

    fn is_namespace(&self, set: &NamespaceSet<'_>, point: &Point<'_>) -> bool {
        let has = |key: &str| point.namespace.get(key).copied().flatten();
        let compared = |key: &str| point.compared.get(key).copied();
        match set {
            NamespaceSet::Exact(id) => has(NAME) == Some(self.cluster.namespace_name(*id)),
            NamespaceSet::Selected { selector, except } => {
                selector.matches(has) && !except.iter().any(|it| it.matches(has))
            }
            NamespaceSet::Own => point.is_home,
            NamespaceSet::NotOwn => !point.is_home,
            NamespaceSet::SameLabels(keys) => {
                let same = |key: &&str| has(key).is_some() && compared(key) == Some(Compared::Same);
                !keys.is_empty() && keys.iter().all(same)
            }
            NamespaceSet::NotSameLabels(keys) => {
                let both = |key: &&str| {
                    has(key).is_some() && compared(key).is_some_and(|it| it != Compared::Absent)
                };
                let differs = |key: &&str| compared(key) == Some(Compared::Different);
                keys.iter().all(both) && keys.iter().any(differs)
            }
        }
    }

    fn is_port(&self, effect: &Effect<'_>, port: &Port) -> bool {
        let Some(ports) = &effect.ports else {
            return true;
        };
        let Some((protocol, number)) = port.at else {
            return false;
        };
        ports.iter().any(|it| match it {
            PortMatch::Numbers(its, range) => *its == protocol && range.contains(number),
            PortMatch::Named(its, name) => {
                let at = self.names.iter().position(|it| it == name);
                let has = at.is_some_and(|at| port.names >> at & 1 == 1);
                has && its.is_none_or(|its| its == protocol)
            }
        })
    }

    fn namespace_domains(&self) -> Domains<'s> {
        let selectors = self.pod_sets().flat_map(|set| match &set.namespaces {
            NamespaceSet::Selected { selector, except } => {
                except.iter().chain([selector]).collect::<Vec<_>>()
            }
            NamespaceSet::Exact(_)
            | NamespaceSet::Own
            | NamespaceSet::NotOwn
            | NamespaceSet::SameLabels(_)
            | NamespaceSet::NotSameLabels(_) => Vec::new(),
        });
        let mut all = domains(selectors);
        for set in self.pod_sets() {
            match &set.namespaces {
                NamespaceSet::Exact(id) => {
                    let values = all.entry(NAME).or_default();
                    values.extend([Some(self.cluster.namespace_name(*id)), Some(OTHER)]);
                }
                NamespaceSet::SameLabels(keys) | NamespaceSet::NotSameLabels(keys) => {
                    for key in keys {
                        all.entry(key).or_default().extend([None, Some(OTHER)]);
                    }
                }
                NamespaceSet::Selected { .. } | NamespaceSet::Own | NamespaceSet::NotOwn => {}
            }
        }
        // Every namespace has the label with its name (D23).
        if let Some(values) = all.get_mut(NAME) {
            values.remove(&None);
        }
        all
    }

    /// Returns every way in which the subject's namespace can compare with the peer's, for the keys
    /// that rules compare.
    fn comparisons(&self) -> Option<Vec<BTreeMap<&'s str, Compared>>> {
        let keys = self.pod_sets().flat_map(|set| match &set.namespaces {
            NamespaceSet::SameLabels(keys) | NamespaceSet::NotSameLabels(keys) => keys.as_slice(),
            NamespaceSet::Exact(_)
            | NamespaceSet::Selected { .. }
            | NamespaceSet::Own
            | NamespaceSet::NotOwn => &[],
        });
        let keys: BTreeSet<&str> = keys.copied().collect();
        let mut all = vec![BTreeMap::new()];
        for key in keys {
            let outcomes = [Compared::Same, Compared::Different, Compared::Absent];
            let longer = all.iter().flat_map(|it| {
                outcomes.map(|outcome| {
                    let mut it = it.clone();
                    it.insert(key, outcome);
                    it
                })
            });
            all = longer.collect();
            if all.len() > MAX_LABELS {
                return None;
            }
        }
        Some(all)
    }

    /// Returns the first address of each interval between block boundaries, in both families.
    fn addresses(&self) -> Vec<IpAddr> {
        let blocks = self.peers().flat_map(|it| match it {
            Peer::Block { cidr, except } => except.iter().chain([cidr]).copied().collect(),
            Peer::Pods(_) | Peer::Nodes(_) | Peer::Domains(_) | Peer::All => Vec::new(),
        });
        // A rule changes only at the first address of a block and behind its last one. The first
        // interval starts at 0.
        let mut v4 = BTreeSet::from([0_u32]);
        let mut v6 = BTreeSet::from([0_u128]);
        for block in blocks {
            let [first, last] = bounds(block);
            match Family::of(block.first()) {
                Family::V4 => {
                    v4.extend(u32::try_from(first));
                    v4.extend(u32::try_from(last).ok().and_then(|it| it.checked_add(1)));
                }
                Family::V6 => {
                    v6.insert(first);
                    v6.extend(last.checked_add(1));
                }
            }
        }
        let v4 = v4.into_iter().map(|it| IpAddr::V4(Ipv4Addr::from_bits(it)));
        let v6 = v6.into_iter().map(|it| IpAddr::V6(Ipv6Addr::from_bits(it)));
        v4.chain(v6).collect()
    }

    /// Returns the domain patterns of the rule, and none. An address may have any of them or no
    /// name; patterns of earlier rules alone make no point at which the rule matches by name.
    fn patterns(&self) -> Vec<Option<&'s DomainPattern>> {
        let peers = self.rule.peers.iter().flatten();
        let patterns = peers.flat_map(|it| match it {
            Peer::Domains(patterns) => patterns.as_slice(),
            Peer::Pods(_) | Peer::Nodes(_) | Peer::Block { .. } | Peer::All => &[],
        });
        patterns.map(Some).chain([None]).collect()
    }

    /// Returns the first port of each interval with each set of names, and one entry without a
    /// port.
    fn ports(&self) -> Vec<Port> {
        let mut ports = vec![Port { at: None, names: 0 }];
        for protocol in Protocol::ALL {
            let mut starts = BTreeSet::from([1_u16]);
            for it in self.effects().filter_map(|it| it.ports.as_ref()).flatten() {
                if let PortMatch::Numbers(its, range) = it
                    && *its == protocol
                {
                    starts.insert(range.start().get());
                    starts.extend(range.end().get().checked_add(1));
                }
            }
            for number in starts.into_iter().filter_map(NonZeroU16::new) {
                for names in 0..1_usize << self.names.len() {
                    ports.push(Port {
                        at: Some((protocol, number)),
                        names,
                    });
                }
            }
        }
        ports
    }
}

/// Returns the first and last address of a block as numbers.
fn bounds(block: Cidr) -> [u128; 2] {
    [block.first(), block.last()].map(|it| match it {
        IpAddr::V4(it) => u128::from(it.to_bits()),
        IpAddr::V6(it) => it.to_bits(),
    })
}

/// Whether `wider` matches every name that `pattern` matches.
fn includes(wider: &DomainPattern, pattern: &DomainPattern) -> bool {
    if wider == pattern {
        return true;
    }
    // With the dot: `*.example.com` does not match names below `myexample.com`.
    let below = pattern.name.strip_suffix(wider.name.as_str());
    wider.wildcard && below.is_some_and(|it| it.ends_with('.'))
}

/// Returns the values that selectors distinguish for each key: none, each named value, and one
/// more.
fn domains<'s>(selectors: impl IntoIterator<Item = &'s Selector<&'s str>>) -> Domains<'s> {
    let mut all: Domains<'s> = BTreeMap::new();
    let requirements = selectors.into_iter().flat_map(|it| &it.requirements);
    for it in requirements {
        let values = all.entry(it.key).or_default();
        values.extend([None, Some(OTHER)]);
        values.extend(it.values.iter().map(|it| Some(*it)));
    }
    all
}

/// Returns every combination of values; `None` if there are too many.
fn combinations<'s>(domains: &Domains<'s>) -> Option<Vec<BTreeMap<&'s str, Option<&'s str>>>> {
    let mut all = vec![BTreeMap::new()];
    for (key, values) in domains {
        if all.len().checked_mul(values.len())? > MAX_LABELS {
            return None;
        }
        let longer = all.iter().flat_map(|it| {
            values.iter().map(move |value| {
                let mut it = it.clone();
                it.insert(*key, *value);
                it
            })
        });
        all = longer.collect();
    }
    Some(all)
}
