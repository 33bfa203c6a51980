//! The meaning of groups, and the registry that has their numbers and members.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;

use rustc_hash::FxHashMap;

use super::named::{Bounds, NamedKey, SubsetId, SubsetKey, contains};
use super::{Group, GroupId, GroupKind};
use crate::compile::count;
use crate::model::{Cluster, Namespace, NodeId, Peer};
use crate::net::{Family, Protocol};
use crate::policy::Action;
use crate::program::{NONE, Owner, Program, RuleId, RulePlace};

/// The content of a group, in the numbers of one program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GroupKey {
    /// Pods, nodes and single addresses.
    Hosts {
        /// Pod sets; for one with a relation, the subject's group of namespaces.
        sets: Vec<(u32, Option<u32>)>,
        nodes: Vec<u32>,
        singles: Vec<IpAddr>,
        named: Vec<NamedKey>,
    },
    /// Blocks of one length.
    Nets(Family, u8, Vec<IpAddr>),
    /// Ranges of addresses, by their bounds.
    Ranges(Family, Vec<IpAddr>),
    /// Pods at which a name stands for a port.
    Named(u32, Protocol, NonZeroU16),
}

/// The kind of steps that name a group.
// Groups whose members can change never serve both kinds. A packet may look up one group before a
// change and another one after it; with separate groups, a dataplane can apply first what only
// closes, and then what only opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum GroupRole {
    /// Steps that accept.
    Accepts,
    /// Steps that deny or pass: an address that joins the group may lose access.
    Narrows,
}

impl GroupRole {
    pub(super) fn of(action: Action) -> GroupRole {
        match action {
            Action::Accept => GroupRole::Accepts,
            Action::Deny | Action::Pass => GroupRole::Narrows,
        }
    }
}

/// The content of a group without numbers of a program: its meaning in any cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GroupMeaning<'m, 'a> {
    /// The pods and nodes that some peers match for subjects of a namespace, and single addresses.
    Hosts {
        cluster: &'m Cluster<'a>,
        subject: &'m Namespace<'a>,
        peers: &'m [Peer<'a>],
        singles: &'m [IpAddr],
    },
    /// All hosts of some groups, and groups of pods that have a name at a port: all of these pods,
    /// or those in a list of destinations.
    Union(&'m [GroupId], &'m [(GroupId, Option<SubsetId>)]),
    /// Blocks of one length, by their first addresses.
    Nets(Family, u8, &'m [IpAddr]),
    /// Ranges of addresses, by their bounds.
    Ranges(Family, &'m [IpAddr]),
    /// Pods at which this name stands for a port.
    Named(&'m str, Protocol, NonZeroU16),
}

/// The numbers of groups and rules in a plan.
// `WholeCluster` numbers them for one plan. The incremental planner keeps numbers from plan to
// plan, and its programs are excerpts: hence both a key in numbers of the program and a meaning.
pub(crate) trait GroupRegistry {
    /// Returns the number of a group. Called once for each key and role of a program.
    fn group(&mut self, key: &GroupKey, role: GroupRole, meaning: GroupMeaning<'_, '_>) -> GroupId;

    /// Returns the number of the pods that are in some groups or have an address in some ranges.
    fn subset(&mut self, key: &SubsetKey, hosts: &[GroupId]) -> SubsetId;

    /// Returns the ports that a name stands for at some pod with an address. The name comes as a
    /// number of the program and as text.
    fn ports(&self, number: u32, name: &str) -> Vec<(Protocol, NonZeroU16)>;

    /// Returns the number that steps have for a rule.
    fn rule(&mut self, id: RuleId, place: RulePlace) -> RuleId;
}

/// The registry of a program that has all pods: groups get their members at once.
pub(super) struct WholeCluster<'p> {
    program: &'p Program,
    /// The addresses of the pods of each class.
    of_class: Vec<Vec<IpAddr>>,
    /// The addresses of each node.
    of_node: Vec<Vec<IpAddr>>,
    /// The classes of each pod set.
    of_set: Vec<Vec<u32>>,
    /// For each port name its ports, and the classes that have the name at each. Only classes with
    /// an address count.
    of_name: FxHashMap<u32, ByPort>,
    amongs: Vec<PodSubset>,
    pub(super) groups: BTreeMap<GroupId, Group>,
}

/// For each port the classes that have a name there.
type ByPort = BTreeMap<(Protocol, NonZeroU16), Vec<u32>>;

/// A list of destinations.
struct PodSubset {
    /// The classes of pods in it, ascending.
    classes: Vec<u32>,
    /// The addresses of other pods in it.
    bounds: Bounds,
}

impl<'p> WholeCluster<'p> {
    pub(super) fn new(cluster: &Cluster<'_>, program: &'p Program) -> WholeCluster<'p> {
        let mut of_class = vec![Vec::new(); program.classes.len()];
        let mut of_node = vec![Vec::new(); cluster.nodes.len()];
        // From owners and not from pods: an address that two pods claim belongs to one of them
        // (D82), and its groups must be those of that pod.
        for (address, owner) in program.owners.iter() {
            let list = match owner {
                Owner::Pod(pod) => {
                    let class = program.class_id(pod);
                    class.and_then(|class| of_class.get_mut(class as usize))
                }
                Owner::Node(Some(NodeId(node))) => of_node.get_mut(node as usize),
                Owner::Node(None) => None,
            };
            if let Some(list) = list {
                list.push(address);
            }
        }
        let n_sets = program.set_relations.len();
        let mut of_set = vec![Vec::new(); n_sets];
        for (id, class) in program.classes.iter().enumerate() {
            for set in program.sets_of(class) {
                if let Some(classes) = of_set.get_mut(set as usize) {
                    classes.push(count(id));
                }
            }
        }
        let mut of_name: FxHashMap<u32, ByPort> = FxHashMap::default();
        let classes = program.classes.iter().zip(&of_class);
        for (id, (class, addresses)) in (0..).zip(classes) {
            let map = program.port_map(class);
            // A name at pods without addresses would make a port that no packet can match.
            let map = map.filter(|_| !addresses.is_empty());
            for entry in map.into_iter().flat_map(|map| &map.entries) {
                for name in &entry.names {
                    let ports = of_name.entry(*name).or_default();
                    let classes = ports.entry((entry.protocol, entry.port));
                    classes.or_default().push(id);
                }
            }
        }
        WholeCluster {
            program,
            of_class,
            of_node,
            of_set,
            of_name,
            amongs: Vec::new(),
            groups: BTreeMap::new(),
        }
    }

    fn hosts(&self, sets: &[(u32, Option<u32>)], nodes: &[u32], singles: &[IpAddr]) -> Vec<IpAddr> {
        let mut hosts = singles.to_vec();
        for class in self.classes(sets) {
            let addresses = self.of_class.get(class as usize);
            hosts.extend(addresses.into_iter().flatten());
        }
        for set in nodes {
            let nodes = self.program.node_sets.get(*set as usize);
            for NodeId(node) in nodes.into_iter().flatten() {
                let addresses = self.of_node.get(*node as usize);
                hosts.extend(addresses.into_iter().flatten());
            }
        }
        hosts
    }

    /// Returns the classes of some pod sets, some of them perhaps twice.
    fn classes(&self, sets: &[(u32, Option<u32>)]) -> impl Iterator<Item = u32> {
        sets.iter().flat_map(|(set, group)| {
            let classes = self.of_set.get(*set as usize).into_iter().flatten();
            let related = classes.filter(|class| self.is_related(*set, *group, **class));
            related.copied()
        })
    }

    /// Whether a class of a pod set is related to subjects of a group of namespaces.
    fn is_related(&self, set: u32, subject_group: Option<u32>, class: u32) -> bool {
        let Some(subject_group) = subject_group else {
            return true;
        };
        let relation = self.program.set_relations.get(set as usize).copied();
        let relation = relation.flatten();
        let relation = relation.and_then(|it| self.program.relations.get(it as usize));
        let class = self.program.classes.get(class as usize);
        let (Some(relation), Some(class)) = (relation, class) else {
            return false;
        };
        let group = relation.groups.get(class.namespace as usize).copied();
        let group = group.filter(|group| *group != NONE);
        group.is_some_and(|group| (group == subject_group) == relation.same)
    }

    /// Adds the pods at which a name stands for a port.
    fn with_port(&self, named: &NamedKey, hosts: &mut Vec<IpAddr>) {
        // An unknown list of destinations has no pods. No list at all would mean every pod.
        let subset = match named.subset.map(|it| self.amongs.get(it.0 as usize)) {
            Some(None) => return,
            subset => subset.flatten(),
        };
        let ports = self.of_name.get(&named.name);
        let classes = ports.and_then(|ports| ports.get(&(named.protocol, named.port)));
        for id in classes.into_iter().flatten() {
            let addresses = self.of_class.get(*id as usize).into_iter().flatten();
            let addresses = addresses.copied();
            // A class in the list is in it whole. Of other classes only pods whose address is in
            // the ranges are destinations (D35).
            match subset.filter(|it| it.classes.binary_search(id).is_err()) {
                None => hosts.extend(addresses),
                Some(subset) => hosts.extend(addresses.filter(|it| contains(&subset.bounds, *it))),
            }
        }
    }
}

impl GroupRegistry for WholeCluster<'_> {
    fn group(&mut self, key: &GroupKey, _: GroupRole, _: GroupMeaning<'_, '_>) -> GroupId {
        let id = GroupId(count(self.groups.len()));
        let (kind, mut addresses) = match key {
            GroupKey::Nets(family, length, nets) => {
                (GroupKind::Nets(*family, *length), nets.clone())
            }
            GroupKey::Ranges(family, bounds) => (GroupKind::Ranges(*family), bounds.clone()),
            GroupKey::Named(name, protocol, port) => {
                let mut hosts = Vec::new();
                let named = NamedKey {
                    name: *name,
                    protocol: *protocol,
                    port: *port,
                    subset: None,
                };
                self.with_port(&named, &mut hosts);
                (GroupKind::Hosts, hosts)
            }
            GroupKey::Hosts {
                sets,
                nodes,
                singles,
                named,
            } => {
                let mut hosts = self.hosts(sets, nodes, singles);
                for named in named {
                    self.with_port(named, &mut hosts);
                }
                (GroupKind::Hosts, hosts)
            }
        };
        addresses.sort_unstable();
        addresses.dedup();
        self.groups.insert(id, Group { kind, addresses });
        id
    }

    fn subset(&mut self, key: &SubsetKey, _: &[GroupId]) -> SubsetId {
        let mut classes: Vec<u32> = self.classes(&key.sets).collect();
        classes.sort_unstable();
        classes.dedup();
        let id = SubsetId(count(self.amongs.len()));
        self.amongs.push(PodSubset {
            classes,
            bounds: key.bounds.clone(),
        });
        id
    }

    fn ports(&self, number: u32, _: &str) -> Vec<(Protocol, NonZeroU16)> {
        let ports = self.of_name.get(&number);
        let ports = ports.into_iter().flat_map(BTreeMap::keys);
        ports.copied().collect()
    }

    fn rule(&mut self, id: RuleId, _: RulePlace) -> RuleId {
        id
    }
}
