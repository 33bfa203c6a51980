//! The group registry of excerpts: groups by their meaning, with numbers that outlive a program.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::super::digest::Hashes;
use super::super::encoded::{conditions_bytes, selection_bytes};
use super::super::named::{NamedText, SubsetText, SubsetTexts};
use super::super::store::Store;
use super::super::texts::Symbol;
use crate::compile::count;
use crate::model::{NamespaceSet, Peer};
use crate::net::{Family, Protocol};
use crate::plan::{GroupId, GroupKey, GroupMeaning, GroupRegistry, GroupRole, SubsetId, SubsetKey};
use crate::policy::Direction;
use crate::program::{RuleId, RulePlace};

/// The meaning of a group, with texts as bytes. It borrows nothing and outlives the excerpt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::incremental) enum TextSpec {
    /// Pod sets and selectors of nodes in encoded form, single addresses, and named ports; each
    /// list is sorted.
    Hosts {
        pods: Vec<Box<[u8]>>,
        nodes: Vec<Box<[u8]>>,
        singles: Vec<IpAddr>,
        named: Vec<NamedText>,
    },
    Nets(Family, u8, Vec<IpAddr>),
    Ranges(Family, Vec<IpAddr>),
    Named(Box<str>, Protocol, NonZeroU16),
}

/// The numbers of groups.
#[derive(Debug)]
pub(super) struct GroupNumbers {
    // By role: the dataplane applies members of groups that accept and of groups that narrow at
    // different times of a change, so no group can be both.
    accepting: HashMap<Arc<TextSpec>, u32, Hashes>,
    narrowing: HashMap<Arc<TextSpec>, u32, Hashes>,
    specs: FxHashMap<u32, Arc<TextSpec>>,
    pub(super) next: u32,
    /// The numbers that are new since the last commit, in use or not.
    pub(super) fresh: Vec<u32>,
    /// The destinations of groups with named ports.
    pub(super) amongs: SubsetTexts,
}

impl GroupNumbers {
    pub(super) fn new(hashes: Hashes) -> GroupNumbers {
        GroupNumbers {
            accepting: HashMap::with_hasher(hashes),
            narrowing: HashMap::with_hasher(hashes),
            specs: FxHashMap::default(),
            next: 0,
            fresh: Vec::new(),
            amongs: SubsetTexts::new(hashes),
        }
    }

    fn number(&mut self, spec: TextSpec, role: GroupRole) -> u32 {
        let ids = match role {
            GroupRole::Accepts => &mut self.accepting,
            GroupRole::Narrows => &mut self.narrowing,
        };
        if let Some(known) = ids.get(&spec) {
            return *known;
        }
        let id = self.next;
        self.next += 1;
        let spec = Arc::new(spec);
        ids.insert(Arc::clone(&spec), id);
        self.specs.insert(id, spec);
        self.fresh.push(id);
        id
    }

    pub(super) fn spec(&self, id: u32) -> Option<&Arc<TextSpec>> {
        self.specs.get(&id)
    }

    /// Removes a group. No other group gets its number.
    // The kernel deletes the members of an ended group last. A new group of the same number would
    // have both kinds of members for a while.
    pub(super) fn release(&mut self, id: u32) {
        if let Some(spec) = self.specs.remove(&id) {
            // The other role may have a group of the same meaning under another number.
            for ids in [&mut self.accepting, &mut self.narrowing] {
                if ids.get(&spec) == Some(&id) {
                    ids.remove(&spec);
                }
            }
        }
    }

    fn together(&self, groups: &[GroupId], named: Vec<NamedText>) -> TextSpec {
        let (mut all_pods, mut all_nodes, mut all_singles) = (Vec::new(), Vec::new(), Vec::new());
        for GroupId(id) in groups {
            if let Some(TextSpec::Hosts {
                pods,
                nodes,
                singles,
                ..
            }) = self.specs.get(id).map(|it| &**it)
            {
                all_pods.extend_from_slice(pods);
                all_nodes.extend_from_slice(nodes);
                all_singles.extend_from_slice(singles);
            }
        }
        hosts(all_pods, all_nodes, all_singles, named)
    }

    /// Returns the pods of a group of named pods, all or those in a subset.
    fn named(&self, GroupId(at): GroupId, subset: Option<Arc<SubsetText>>) -> Option<NamedText> {
        match &**self.specs.get(&at)? {
            TextSpec::Named(name, protocol, port) => Some(NamedText {
                name: name.clone(),
                protocol: *protocol,
                port: *port,
                subset,
            }),
            TextSpec::Hosts { .. } | TextSpec::Nets(..) | TextSpec::Ranges(..) => None,
        }
    }
}

// Sorted and without duplicates: peers in another order are the same group.
fn hosts(
    mut pods: Vec<Box<[u8]>>,
    mut nodes: Vec<Box<[u8]>>,
    mut singles: Vec<IpAddr>,
    mut named: Vec<NamedText>,
) -> TextSpec {
    pods.sort_unstable();
    pods.dedup();
    nodes.sort_unstable();
    nodes.dedup();
    singles.sort_unstable();
    singles.dedup();
    named.sort_unstable();
    named.dedup();
    TextSpec::Hosts {
        pods,
        nodes,
        singles,
        named,
    }
}

/// The numbers of rules. A number is valid while its policy exists, and is not used again.
// A policy that changes keeps the numbers of its rules, by their positions. Steps of rules that
// did not change are then equal, and their chains stay.
#[derive(Debug, Default)]
pub(super) struct RuleNumbers {
    ids: BTreeMap<(u32, Direction, u32), u32>,
    places: FxHashMap<u32, (u32, Direction, u32)>,
    next: u32,
}

impl RuleNumbers {
    fn number(&mut self, policy: u32, direction: Direction, index: u32) -> u32 {
        let place = (policy, direction, index);
        if let Some(known) = self.ids.get(&place) {
            return *known;
        }
        let id = self.next;
        self.next += 1;
        self.ids.insert(place, id);
        self.places.insert(id, place);
        id
    }

    /// Returns the policy, the direction and the position in the rule list.
    pub(super) fn place(&self, id: u32) -> Option<(u32, Direction, u32)> {
        self.places.get(&id).copied()
    }

    /// Removes the rules of a policy.
    pub(super) fn remove(&mut self, policy: u32) {
        let [first, second] = Direction::BOTH;
        let of_policy = (policy, first.min(second), 0)..=(policy, first.max(second), u32::MAX);
        let of_policy = self.ids.range(of_policy);
        let of_policy: Vec<_> = of_policy.map(|(place, id)| (*place, *id)).collect();
        for (place, id) in of_policy {
            self.ids.remove(&place);
            self.places.remove(&id);
        }
    }
}

/// Names of ports, with the ports that each stands for at some pod.
pub(super) type PortNames = BTreeMap<Box<str>, Vec<(Protocol, NonZeroU16)>>;

/// The registry of one planner run.
pub(super) struct ExcerptRegistry<'e> {
    pub(super) store: &'e Store,
    pub(super) groups: &'e mut GroupNumbers,
    pub(super) rules: &'e mut RuleNumbers,
    /// The number in the store of each policy of the program.
    pub(super) policies: &'e [u32],
    /// The number of addresses with each list of ports.
    pub(super) with_ports: &'e FxHashMap<u32, u32>,
    /// The names of ports that the run resolved, with their results.
    pub(super) names: std::cell::RefCell<PortNames>,
    /// The ports of all names, made when the first name is resolved.
    pub(super) by_name: std::cell::OnceCell<PortsByName>,
    /// The destinations of rules with named ports, by [`SubsetId`].
    pub(super) amongs: Vec<Arc<SubsetText>>,
}

impl GroupRegistry for ExcerptRegistry<'_> {
    fn group(&mut self, _: &GroupKey, role: GroupRole, meaning: GroupMeaning<'_, '_>) -> GroupId {
        let spec = match meaning {
            GroupMeaning::Nets(family, length, nets) => {
                TextSpec::Nets(family, length, nets.to_vec())
            }
            GroupMeaning::Ranges(family, bounds) => TextSpec::Ranges(family, bounds.to_vec()),
            GroupMeaning::Named(name, protocol, port) => {
                TextSpec::Named(name.into(), protocol, port)
            }
            GroupMeaning::Union(groups, named) => {
                let named = named.iter().filter_map(|(at, subset)| {
                    let subset = match subset {
                        None => None,
                        Some(it) => Some(Arc::clone(self.amongs.get(it.0 as usize)?)),
                    };
                    self.groups.named(*at, subset)
                });
                self.groups.together(groups, named.collect())
            }
            GroupMeaning::Hosts {
                cluster,
                subject,
                peers,
                singles,
            } => {
                let (mut pods, mut nodes) = (Vec::new(), Vec::new());
                for peer in peers {
                    match peer {
                        Peer::Pods(set) => {
                            let name_of = |it: &NamespaceSet<'_>| match it {
                                NamespaceSet::Exact(id) => Some(cluster.namespace_name(*id)),
                                NamespaceSet::Own => Some(subject.name),
                                NamespaceSet::Selected { .. }
                                | NamespaceSet::NotOwn
                                | NamespaceSet::SameLabels(_)
                                | NamespaceSet::NotSameLabels(_) => None,
                            };
                            // By name: numbers of namespaces differ from excerpt to excerpt.
                            let exact = name_of(&set.namespaces);
                            pods.extend(selection_bytes(set, exact, subject));
                        }
                        Peer::Nodes(selector) => nodes.push(conditions_bytes(selector)),
                        // The planner passes blocks and learned addresses by themselves.
                        Peer::Block { .. } | Peer::Domains(_) | Peer::All => {}
                    }
                }
                hosts(pods, nodes, singles.to_vec(), Vec::new())
            }
        };
        GroupId(self.groups.number(spec, role))
    }

    fn subset(&mut self, key: &SubsetKey, hosts: &[GroupId]) -> SubsetId {
        let specs = hosts.iter().filter_map(|it| self.groups.spec(it.0));
        let mut pods = Vec::new();
        for spec in specs {
            if let TextSpec::Hosts { pods: selected, .. } = &**spec {
                pods.extend_from_slice(selected);
            }
        }
        pods.sort_unstable();
        pods.dedup();
        let id = SubsetId(count(self.amongs.len()));
        self.amongs.push(self.groups.amongs.keep(SubsetText {
            pods,
            bounds: key.bounds.clone(),
        }));
        id
    }

    fn ports(&self, _: u32, name: &str) -> Vec<(Protocol, NonZeroU16)> {
        // Of all pods with an address, not only those of the excerpt: a name is resolved at each
        // destination (D33).
        let by_name = self
            .by_name
            .get_or_init(|| PortsByName::new(self.store, self.with_ports));
        let ports = by_name.of(self.store, name);
        self.names.borrow_mut().insert(name.into(), ports.clone());
        ports
    }

    fn rule(&mut self, _: RuleId, place: RulePlace) -> RuleId {
        let policy = self.policies.get(place.policy.0 as usize).copied();
        let policy = policy.unwrap_or(u32::MAX);
        RuleId(self.rules.number(policy, place.direction, place.index))
    }
}

/// The ports of each name at pods that have an address, ascending.
#[derive(Debug)]
pub(super) struct PortsByName(FxHashMap<Symbol, Vec<(Protocol, NonZeroU16)>>);

impl PortsByName {
    pub(super) fn new(store: &Store, with_ports: &FxHashMap<u32, u32>) -> PortsByName {
        let mut by_name: FxHashMap<Symbol, Vec<(Protocol, NonZeroU16)>> = FxHashMap::default();
        for list in with_ports.keys() {
            for (name, protocol, port) in store.ports.get(*list) {
                if let Some(port) = NonZeroU16::new(*port) {
                    by_name.entry(*name).or_default().push((*protocol, port));
                }
            }
        }
        for ports in by_name.values_mut() {
            ports.sort_unstable();
            ports.dedup();
        }
        PortsByName(by_name)
    }

    pub(super) fn of(&self, store: &Store, name: &str) -> Vec<(Protocol, NonZeroU16)> {
        let name = store.texts.find(name);
        let ports = name.and_then(|name| self.0.get(&name));
        ports.cloned().unwrap_or_default()
    }
}
