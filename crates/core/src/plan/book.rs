//! What a group means, and who gives it its number and its members.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;

use super::{Group, GroupId, GroupKind};
use crate::compile::count;
use crate::model::{Cluster, Namespace, NodeId, Peer};
use crate::net::{Family, Protocol};
use crate::policy::Action;
use crate::program::{NONE, Owner, Program, RuleId, RulePlace};

/// What makes a group, in the numbers of one program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GroupKey {
    /// Pods, nodes and single addresses that are meant together.
    Hosts {
        /// Pod sets; with those that depend on the subject, which namespaces it is related to.
        sets: Vec<(u32, Option<u32>)>,
        nodes: Vec<u32>,
        singles: Vec<IpAddr>,
    },
    /// Blocks of one length.
    Nets(Family, u8, Vec<IpAddr>),
    /// Ranges of addresses, by where they begin and end.
    Ranges(Family, Vec<IpAddr>),
    /// Pods whose port of a number has a name.
    Named(u32, Protocol, NonZeroU16),
}

/// What a group is for. What accepts and what narrows are kept apart, so that a change can put one before the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Role {
    /// Steps that accept name it.
    Accepts,
    /// Steps that deny or pass on name it: who joins it may lose something.
    Narrows,
}

impl Role {
    pub(super) fn of(action: Action) -> Role {
        match action {
            Action::Accept => Role::Accepts,
            Action::Deny | Action::Pass => Role::Narrows,
        }
    }
}

/// The same without numbers: what the group means in any cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meaning<'m, 'a> {
    /// The pods and nodes that some peers mean for subjects of a namespace, and single addresses.
    Hosts {
        cluster: &'m Cluster<'a>,
        subject: &'m Namespace<'a>,
        peers: &'m [Peer<'a>],
        singles: &'m [IpAddr],
    },
    /// All hosts of some groups.
    Together(&'m [GroupId]),
    /// Blocks of one length, by their first addresses.
    Nets(Family, u8, &'m [IpAddr]),
    /// Ranges of addresses, by where they begin and end.
    Ranges(Family, &'m [IpAddr]),
    /// Pods whose port of a number has this name.
    Named(&'m str, Protocol, NonZeroU16),
}

/// Where a plan is written down.
pub(crate) trait Book {
    /// The number of a group that was not asked for before.
    fn group(&mut self, key: &GroupKey, role: Role, meaning: Meaning<'_, '_>) -> GroupId;

    /// The ports that a name stands for at some pod that has an address; the name as a number of the
    /// program, and as text.
    fn ports(&self, number: u32, name: &str) -> Vec<(Protocol, NonZeroU16)>;

    /// The number that steps have for a rule.
    fn rule(&mut self, id: RuleId, place: RulePlace) -> RuleId;
}

/// The book of a program that has all pods: members are known at once.
pub(super) struct WholeCluster<'p> {
    program: &'p Program,
    /// The addresses of the pods of each class.
    of_class: Vec<Vec<IpAddr>>,
    /// The addresses of each node.
    of_node: Vec<Vec<IpAddr>>,
    /// The classes of each pod set.
    of_set: Vec<Vec<u32>>,
    pub(super) groups: BTreeMap<GroupId, Group>,
}

impl<'p> WholeCluster<'p> {
    pub(super) fn new(cluster: &Cluster<'_>, program: &'p Program) -> WholeCluster<'p> {
        let mut of_class = vec![Vec::new(); program.classes.len()];
        let mut of_node = vec![Vec::new(); cluster.nodes.len()];
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
        WholeCluster {
            program,
            of_class,
            of_node,
            of_set,
            groups: BTreeMap::new(),
        }
    }

    fn hosts(&self, sets: &[(u32, Option<u32>)], nodes: &[u32], singles: &[IpAddr]) -> Vec<IpAddr> {
        let mut hosts = singles.to_vec();
        for (set, group) in sets {
            let classes = self.of_set.get(*set as usize);
            for class in classes.into_iter().flatten() {
                if self.is_meant(*set, *group, *class) {
                    let addresses = self.of_class.get(*class as usize);
                    hosts.extend(addresses.into_iter().flatten());
                }
            }
        }
        for set in nodes {
            let nodes = self.program.node_sets.get(*set as usize);
            for NodeId(node) in nodes.into_iter().flatten() {
                let addresses = self.of_node.get(*node as usize);
                hosts.extend(addresses.into_iter().flatten());
            }
        }
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    /// Whether a class of a pod set is meant by subjects of a group of namespaces.
    fn is_meant(&self, set: u32, subject_group: Option<u32>, class: u32) -> bool {
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

    fn hosts_with_port(&self, name: u32, protocol: Protocol, port: NonZeroU16) -> Vec<IpAddr> {
        let mut hosts = Vec::new();
        for (class, addresses) in self.program.classes.iter().zip(&self.of_class) {
            let map = self.program.port_map(class);
            let entry = map.and_then(|map| map.entry(protocol, port));
            if entry.is_some_and(|entry| entry.names.contains(&name)) {
                hosts.extend(addresses);
            }
        }
        hosts.sort_unstable();
        hosts
    }
}

impl Book for WholeCluster<'_> {
    fn group(&mut self, key: &GroupKey, _: Role, _: Meaning<'_, '_>) -> GroupId {
        let id = GroupId(count(self.groups.len()));
        let (kind, addresses) = match key {
            GroupKey::Nets(family, length, nets) => {
                (GroupKind::Nets(*family, *length), nets.clone())
            }
            GroupKey::Ranges(family, bounds) => (GroupKind::Ranges(*family), bounds.clone()),
            GroupKey::Named(name, protocol, port) => (
                GroupKind::Hosts,
                self.hosts_with_port(*name, *protocol, *port),
            ),
            GroupKey::Hosts {
                sets,
                nodes,
                singles,
            } => (GroupKind::Hosts, self.hosts(sets, nodes, singles)),
        };
        self.groups.insert(id, Group { kind, addresses });
        id
    }

    fn ports(&self, number: u32, _: &str) -> Vec<(Protocol, NonZeroU16)> {
        let classes = self.program.classes.iter().zip(&self.of_class);
        let classes = classes.filter(|(_, addresses)| !addresses.is_empty());
        let maps = classes.filter_map(|(class, _)| self.program.port_map(class));
        let entries = maps.flat_map(|map| &map.entries);
        let entries = entries.filter(|entry| entry.names.contains(&number));
        let mut ports: Vec<(Protocol, NonZeroU16)> =
            entries.map(|entry| (entry.protocol, entry.port)).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    fn rule(&mut self, id: RuleId, _: RulePlace) -> RuleId {
        id
    }
}
