//! The objects that differ between two clusters, by the properties that affect verdicts.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::compile::count;
use crate::model::{
    Cluster, ContainerPort, Effect, Namespace, NamespaceId, NamespaceSet, Node, NodeId, Peer, Pod,
    PodId, PodPhase, PodSet, Policy, PolicyId, Rules,
};
use crate::policy::{Direction, PolicyApi};

/// An object that only one cluster has, or that differs between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<T> {
    /// The object in the old cluster; `None`: it is new.
    pub old: Option<T>,
    /// The object in the new cluster; `None`: it is gone.
    pub new: Option<T>,
}

/// A policy that differs, and the directions in which verdicts can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyChange {
    /// The policy in both clusters.
    pub policy: Change<PolicyId>,
    /// Whether ingress is affected.
    pub ingress: bool,
    /// Whether egress is affected.
    pub egress: bool,
}

/// The objects that differ.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Policies of all API versions, in the order of the new cluster, then those that are gone.
    pub policies: Vec<PolicyChange>,
    /// Namespaces whose labels differ.
    pub namespaces: Vec<Change<NamespaceId>>,
    /// Live pods and templates that are new, gone, or match policies by other properties.
    pub pods: Vec<Change<PodId>>,
    /// Nodes with other labels or addresses, or that only one cluster has.
    pub nodes: Vec<Change<NodeId>>,
}

impl Changes {
    /// Compares the objects of two clusters.
    pub fn between<'c>(old: &'c Cluster<'c>, new: &'c Cluster<'c>) -> Changes {
        Changes {
            policies: policies(old, new),
            namespaces: namespaces(old, new),
            pods: pods(old, new),
            nodes: nodes(old, new),
        }
    }

    /// Returns whether no object differs.
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty()
            && self.namespaces.is_empty()
            && self.pods.is_empty()
            && self.nodes.is_empty()
    }
}

/// An item of a list and its index.
type Placed<'x, T> = (u32, &'x T);

/// Pairs the items of two lists by key: the new list in order, then the items that are gone.
fn matched<'x, K: Eq + std::hash::Hash, T>(
    old: &'x [T],
    new: &'x [T],
    old_key: impl Fn(&'x T) -> Option<K>,
    new_key: impl Fn(&'x T) -> Option<K>,
) -> Vec<Change<Placed<'x, T>>> {
    let placed = |list: &'x [T]| list.iter().enumerate().map(|(id, it)| (count(id), it));
    let mut left: FxHashMap<K, Placed<'x, T>> = FxHashMap::default();
    left.reserve(old.len());
    for it in placed(old) {
        if let Some(key) = old_key(it.1) {
            left.insert(key, it);
        }
    }
    let mut pairs = Vec::with_capacity(new.len());
    for it in placed(new) {
        if let Some(key) = new_key(it.1) {
            pairs.push(Change {
                old: left.remove(&key),
                new: Some(it),
            });
        }
    }
    // The order of a hash map must not reach the output.
    let mut gone: Vec<Placed<'x, T>> = left.into_values().collect();
    gone.sort_unstable_by_key(|(id, _)| *id);
    let gone = gone.into_iter().map(|it| Change {
        old: Some(it),
        new: None,
    });
    pairs.extend(gone);
    pairs
}

impl<T> Change<Placed<'_, T>> {
    fn ids<I>(&self, id: impl Fn(u32) -> I) -> Change<I> {
        Change {
            old: self.old.map(|(it, _)| id(it)),
            new: self.new.map(|(it, _)| id(it)),
        }
    }
}

/// Returns the pairs whose sides differ.
fn changed<'x, T, I>(
    pairs: Vec<Change<Placed<'x, T>>>,
    id: impl Fn(u32) -> I,
    same: impl Fn(&'x T, &'x T) -> bool,
) -> Vec<Change<I>> {
    let is_changed = |pair: &Change<Placed<'x, T>>| match (pair.old, pair.new) {
        (Some((_, old)), Some((_, new))) => !same(old, new),
        (None, _) | (_, None) => true,
    };
    let pairs = pairs.into_iter().filter(is_changed);
    pairs.map(|pair| pair.ids(&id)).collect()
}

fn policies<'c>(old: &'c Cluster<'c>, new: &'c Cluster<'c>) -> Vec<PolicyChange> {
    fn key<'c>(cluster: &'c Cluster<'c>, policy: &'c Policy<'c>) -> (PolicyApi, &'c str, &'c str) {
        let namespace = policy.namespace.map_or("", |it| cluster.namespace_name(it));
        (policy.api, namespace, policy.name)
    }
    let same = Same {
        old,
        new,
        same_names: old.learned == new.learned,
    };
    let pairs = matched(
        &old.policies,
        &new.policies,
        |it| Some(key(old, it)),
        |it| Some(key(new, it)),
    );
    let changed = pairs.into_iter().filter_map(|pair| {
        let change = |affects: &dyn Fn(Direction) -> bool| PolicyChange {
            policy: pair.ids(PolicyId),
            ingress: affects(Direction::Ingress),
            egress: affects(Direction::Egress),
        };
        // Another subject can change any verdict in the directions of the policy; with the same
        // subject only a direction whose rules differ is affected.
        let has_effect = |direction: Direction| {
            let mut sides = [pair.old, pair.new].into_iter().flatten();
            sides.any(|(_, policy)| crate::analysis::affect::applies_to(policy, direction))
        };
        match (pair.old, pair.new) {
            (Some((_, old)), Some((_, new))) if same.selection(old, new) => {
                let differs = |direction| !same.rules(old.rules(direction), new.rules(direction));
                let change = change(&differs);
                (change.ingress || change.egress).then_some(change)
            }
            _ => Some(change(&has_effect)),
        }
    });
    changed.collect()
}

/// Compares policies of two clusters. Namespaces are compared by name: their indexes differ.
struct Same<'s, 'c> {
    old: &'s Cluster<'c>,
    new: &'s Cluster<'c>,
    same_names: bool,
}

impl Same<'_, '_> {
    fn selection(&self, old: &Policy<'_>, new: &Policy<'_>) -> bool {
        let subject = match (&old.subject, &new.subject) {
            (Some(old), Some(new)) => self.set(old, new),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        subject && old.rank == new.rank && old.audited == new.audited
    }

    fn set(&self, old: &PodSet<'_>, new: &PodSet<'_>) -> bool {
        let namespaces = match (&old.namespaces, &new.namespaces) {
            (NamespaceSet::Exact(old), NamespaceSet::Exact(new)) => {
                self.old.namespace_name(*old) == self.new.namespace_name(*new)
            }
            (old, new) => old == new,
        };
        namespaces && old.pods == new.pods
    }

    fn rules(&self, old: &Rules<'_>, new: &Rules<'_>) -> bool {
        old.isolates == new.isolates
            && old.list.len() == new.list.len()
            && old
                .list
                .iter()
                .zip(&new.list)
                .all(|(old, new)| match (&old.effect, &new.effect) {
                    (Some(old), Some(new)) => self.effect(old, new),
                    (None, None) => true,
                    (Some(_), None) | (None, Some(_)) => false,
                })
    }

    fn effect(&self, old: &Effect<'_>, new: &Effect<'_>) -> bool {
        let peers = match (&old.peers, &new.peers) {
            (Some(old), Some(new)) => {
                old.len() == new.len() && old.iter().zip(new).all(|(old, new)| self.peer(old, new))
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        peers && old.action == new.action && old.ports == new.ports
    }

    fn peer(&self, old: &Peer<'_>, new: &Peer<'_>) -> bool {
        match (old, new) {
            (Peer::Pods(old), Peer::Pods(new)) => self.set(old, new),
            // The same pattern stands for other addresses if other addresses were learned.
            (Peer::Domains(_), Peer::Domains(_)) => self.same_names && old == new,
            (old, new) => old == new,
        }
    }
}

fn namespaces(old: &Cluster<'_>, new: &Cluster<'_>) -> Vec<Change<NamespaceId>> {
    let name = |it: &Namespace<'_>| Some(it.name.to_owned());
    let pairs = matched(&old.namespaces, &new.namespaces, name, name);
    changed(pairs, NamespaceId, |old, new| old.labels == new.labels)
}

fn pods<'c>(old: &'c Cluster<'c>, new: &'c Cluster<'c>) -> Vec<Change<PodId>> {
    type Key<'c> = (&'c str, Option<&'static str>, &'c str);
    fn key<'c>(cluster: &'c Cluster<'c>, pod: &'c Pod<'c>) -> Option<Key<'c>> {
        let namespace = cluster.namespace_name(pod.namespace);
        // A terminated pod has no flows (D81): it counts as gone.
        (pod.phase != PodPhase::Terminated).then_some((namespace, pod.template, pod.name))
    }
    let pairs = matched(&old.pods, &new.pods, |it| key(old, it), |it| key(new, it));
    changed(pairs, PodId, |old, new| {
        old.labels == new.labels
            && same_ports(&old.ports, &new.ports)
            && old.addresses == new.addresses
            && old.node == new.node
            && old.host_network == new.host_network
    })
}

/// Returns whether containers declare the same ports, in any order.
pub(super) fn same_ports(old: &[ContainerPort<'_>], new: &[ContainerPort<'_>]) -> bool {
    let sorted = |ports: &[ContainerPort<'_>]| -> BTreeSet<_> {
        let ports = ports.iter();
        ports
            .map(|it| (it.protocol, it.port, it.name.map(str::to_owned)))
            .collect()
    };
    old == new || sorted(old) == sorted(new)
}

fn nodes(old: &Cluster<'_>, new: &Cluster<'_>) -> Vec<Change<NodeId>> {
    let name = |it: &Node<'_>| Some(it.name.to_owned());
    let pairs = matched(&old.nodes, &new.nodes, name, name);
    changed(pairs, NodeId, |old, new| {
        old.labels == new.labels
            && old.addresses == new.addresses
            && old.has_object == new.has_object
    })
}
