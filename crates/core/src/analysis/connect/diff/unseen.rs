//! Changes whose flows cannot be compared: what they select is not in the input.
//!
//! A directory often has policies and not the pods that they select. Then no flow of the input
//! differs, whatever the policies do. Such a change is listed here, unless both versions are equal
//! for every pod that could exist. The check for that is sound and not complete: rules that are
//! equal up to the order and repetition of what is a union.

mod inventory;
mod rules;
mod sets;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;

use self::inventory::{Inventory, LabelList};
use self::rules::{ByRule, Run};
use self::sets::{NAME_LABEL, joined};
use super::Version;
use super::blame::ChangedObject;
use super::changes::{Change, Changes, PolicyChange, same_ports};
use crate::analysis::affect::applies_to;
use crate::compile::count;
use crate::model::{Cluster, NamespaceId, Node, NodeId, Pod, PodId, Policy, PolicyId, label};
use crate::policy::Direction;

pub use self::sets::{NamespaceTerm, SelectedSet};

/// What a change affects and the input does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unseen<'c> {
    /// The changed object.
    pub cause: ChangedObject,
    /// The policy that selects: the changed one, or one that selects otherwise by changed labels.
    pub policy: Change<PolicyId>,
    /// The direction whose verdicts can differ.
    pub direction: Direction,
    /// Whether the policy selects the set as subjects or as peers.
    pub role: SelectedRole,
    /// The selection that has no member in the input.
    pub set: SelectedSet<'c>,
    /// The indexes of the rules that differ before and after; for peers those that select them.
    pub rules: [Vec<u32>; 2],
}

/// What a policy selects pods as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SelectedRole {
    /// The pods to which the policy applies.
    Subject,
    /// The peers of rules.
    Peer,
}

/// Returns what changes affect and the input does not have, by cause, policy and direction.
pub(super) fn unseen<'c>(versions: [Version<'c>; 2], changes: &Changes) -> Vec<Unseen<'c>> {
    if changes.is_empty() {
        return Vec::new();
    }
    let search = Search {
        clusters: versions.map(|it| it.cluster),
        inventories: versions.map(|it| Inventory::new(it.cluster)),
        changes,
    };
    let mut found = Vec::new();
    for (index, change) in (0..).zip(&changes.policies) {
        search.policy(ChangedObject::Policy(index), change, &mut found);
    }
    let objects = search.objects();
    if !objects.is_empty() {
        search.selected_otherwise(&objects, &mut found);
    }
    found.sort_by(|one, other| {
        let key = |it: &Unseen<'_>| {
            let ids = (it.policy.new, it.policy.old);
            (it.cause, ids, it.direction, it.role)
        };
        let by_key = key(one).cmp(&key(other));
        by_key.then_with(|| one.set.cmp(&other.set))
    });
    found
}

/// A policy that has an effect in a direction.
struct Active<'c> {
    policy: &'c Policy<'c>,
    subjects: BTreeSet<SelectedSet<'c>>,
    runs: Vec<Run<'c>>,
    /// The namespaces with subjects.
    homes: Vec<usize>,
}

/// Selections without a member in the input, with the rules that differ on each side.
type Found<'c> = BTreeMap<(SelectedRole, SelectedSet<'c>), [BTreeSet<u32>; 2]>;

fn add<'c>(
    found: &mut Found<'c>,
    role: SelectedRole,
    set: &SelectedSet<'c>,
    rules: [&BTreeSet<u32>; 2],
) {
    let known = found.entry((role, set.clone())).or_default();
    for (known, more) in known.iter_mut().zip(rules) {
        known.extend(more);
    }
}

/// Labels of an object before and after, and how it is named among causes.
struct Relabelled<'c> {
    cause: ChangedObject,
    object: RelabelledObject<'c>,
}

enum RelabelledObject<'c> {
    /// A namespace, by name.
    Namespace(&'c str, [Vec<(&'c str, &'c str)>; 2]),
    /// A pod that both clusters have.
    Pod([&'c Pod<'c>; 2]),
    /// A node that both clusters have.
    Node([&'c Node<'c>; 2]),
}

struct Search<'s, 'c> {
    clusters: [&'c Cluster<'c>; 2],
    inventories: [Inventory<'c>; 2],
    changes: &'s Changes,
}

impl<'c> Search<'_, 'c> {
    /// Returns a policy of a side if it can decide anything in a direction.
    fn active(&self, side: usize, id: PolicyId, direction: Direction) -> Option<Active<'c>> {
        let cluster = *self.clusters.get(side)?;
        let policy = cluster.policies.get(id.0 as usize)?;
        if policy.audited || !applies_to(policy, direction) {
            return None;
        }
        let subject = policy.subject.as_ref()?;
        let runs = rules::runs(cluster, policy, direction);
        // Without isolation, rules that match nothing leave every flow to other policies.
        if runs.is_empty() && !policy.rules(direction).isolates {
            return None;
        }
        let subjects = SelectedSet::of_pods(cluster, policy.namespace, subject);
        let subjects: BTreeSet<SelectedSet<'c>> = subjects.into_iter().collect();
        Some(Active {
            policy,
            homes: self.inventories.get(side)?.homes(subjects.iter()),
            subjects,
            runs,
        })
    }

    fn has(&self, side: usize, set: &SelectedSet<'c>, homes: &[usize]) -> bool {
        let inventory = self.inventories.get(side);
        inventory.is_some_and(|it| it.has(set, homes))
    }

    /// Adds what a changed policy selects and the input does not have.
    fn policy(&self, cause: ChangedObject, change: &PolicyChange, all: &mut Vec<Unseen<'c>>) {
        for direction in Direction::BOTH {
            let is_affected = match direction {
                Direction::Ingress => change.ingress,
                Direction::Egress => change.egress,
            };
            if is_affected {
                let ids = [change.policy.old, change.policy.new].into_iter();
                let mut sides = ids.enumerate().map(|(side, id)| {
                    let id = id?;
                    self.active(side, id, direction)
                });
                let sides = [sides.next().flatten(), sides.next().flatten()];
                let found = self.between(&sides);
                push(all, (cause, change.policy, direction), &found);
            }
        }
    }

    /// Compares two versions of a policy.
    fn between(&self, sides: &[Option<Active<'c>>; 2]) -> Found<'c> {
        let none = BTreeSet::new();
        let subjects = sides
            .each_ref()
            .map(|it| it.as_ref().map_or(&none, |it| &it.subjects));
        let runs = sides
            .each_ref()
            .map(|it| it.as_ref().map_or(&[][..], |it| &it.runs));
        let [old_subjects, new_subjects] = subjects;
        let [old_runs, new_runs] = runs;
        let is_same_rank = match sides {
            [Some(old), Some(new)] => old.policy.rank == new.policy.rank,
            [None, _] | [_, None] => false,
        };
        let mut peers = rules::differing(old_runs, new_runs);
        let is_same_rules = is_same_rank && peers.iter().all(ByRule::is_empty);
        let has_same_subjects = old_subjects == new_subjects;
        if is_same_rules && has_same_subjects {
            return Found::new();
        }
        if !is_same_rank || !has_same_subjects {
            // For a pod that only one version selects, all rules differ.
            peers = runs.map(rules::all);
        }
        let differing = peers.each_ref().map(|peers| {
            let rules = peers.values().flatten();
            rules.copied().collect::<BTreeSet<u32>>()
        });
        let [old_rules, new_rules] = &differing;
        let [old_peers, new_peers] = &peers;
        let mut found = Found::new();
        let by_side = [
            (old_subjects, new_subjects, old_peers),
            (new_subjects, old_subjects, new_peers),
        ];
        for ((side, active), (subjects, others, peers)) in sides.iter().enumerate().zip(by_side) {
            let Some(active) = active else { continue };
            // Pods that both versions select notice other rules only.
            let affected = subjects.iter();
            let affected = affected.filter(|it| !is_same_rules || !others.contains(*it));
            for set in affected.filter(|it| !self.has(side, it, &[])) {
                add(
                    &mut found,
                    SelectedRole::Subject,
                    set,
                    [old_rules, new_rules],
                );
            }
            let absent = peers.keys().filter(|it| !self.has(side, it, &active.homes));
            for set in absent {
                let of = |peers: &ByRule<'c>| peers.get(set).cloned().unwrap_or_default();
                let rules = [of(old_peers), of(new_peers)];
                add(&mut found, SelectedRole::Peer, set, rules.each_ref());
            }
        }
        found
    }

    /// Returns the objects whose labels decide what unchanged policies select.
    fn objects(&self) -> Vec<Relabelled<'c>> {
        let [old, new] = self.clusters;
        let mut objects = Vec::new();
        for (index, change) in (0..).zip(&self.changes.namespaces) {
            let of = |cluster: &'c Cluster<'c>, id: Option<_>| {
                let id: NamespaceId = id?;
                cluster.namespaces.get(id.0 as usize)
            };
            let sides = [of(old, change.old), of(new, change.new)];
            let Some(name) = sides.into_iter().flatten().map(|it| it.name).next() else {
                continue;
            };
            // A namespace that nothing in the input names still has its name (D23).
            let labels =
                sides.map(|it| it.map_or(vec![(NAME_LABEL, name)], |it| it.labels.to_vec()));
            let [before, after] = &labels;
            if before != after {
                objects.push(Relabelled {
                    cause: ChangedObject::Namespace(index),
                    object: RelabelledObject::Namespace(name, labels),
                });
            }
        }
        // Pods of a workload change together: one of them stands for all.
        let mut known = FxHashSet::default();
        for (index, change) in (0..).zip(&self.changes.pods) {
            let of = |cluster: &'c Cluster<'c>, id: Option<_>| {
                let id: PodId = id?;
                cluster.pods.get(id.0 as usize)
            };
            let (Some(before), Some(after)) = (of(old, change.old), of(new, change.new)) else {
                continue;
            };
            let key = [before, after].map(|pod| (&pod.labels, &pod.ports, pod.is_selectable()));
            let [before_key, after_key] = key;
            // An address decides no selection.
            if before_key != after_key && known.insert((after.namespace, key)) {
                objects.push(Relabelled {
                    cause: ChangedObject::Pod(index),
                    object: RelabelledObject::Pod([before, after]),
                });
            }
        }
        for (index, change) in (0..).zip(&self.changes.nodes) {
            let of = |cluster: &'c Cluster<'c>, id: Option<_>| {
                let id: NodeId = id?;
                let node = cluster.nodes.get(id.0 as usize)?;
                node.has_object.then_some(node)
            };
            if let (Some(before), Some(after)) = (of(old, change.old), of(new, change.new)) {
                objects.push(Relabelled {
                    cause: ChangedObject::Node(index),
                    object: RelabelledObject::Node([before, after]),
                });
            }
        }
        objects
    }

    /// Adds what policies select otherwise by the labels of changed objects.
    fn selected_otherwise(&self, objects: &[Relabelled<'c>], all: &mut Vec<Unseen<'c>>) {
        let [_, new] = self.clusters;
        for id in (0..count(new.policies.len())).map(PolicyId) {
            for direction in Direction::BOTH {
                let Some(active) = self.active(1, id, direction) else {
                    continue;
                };
                let selection = self.selection(&active);
                let policy = Change {
                    old: None,
                    new: Some(id),
                };
                for object in objects {
                    let mut found = Found::new();
                    match &object.object {
                        RelabelledObject::Namespace(name, labels) => {
                            self.namespace(&selection, name, labels, &mut found);
                        }
                        RelabelledObject::Pod(pods) => {
                            self.pod(&selection, direction, *pods, &mut found);
                        }
                        RelabelledObject::Node(nodes) => selection.node(*nodes, &mut found),
                    }
                    push(all, (object.cause, policy, direction), &found);
                }
            }
        }
    }

    /// Finds what an unchanged policy selects and the input does not have.
    fn selection<'a>(&self, active: &'a Active<'c>) -> Selection<'a, 'c> {
        let peers = rules::all(&active.runs);
        let subjects = active.subjects.iter();
        let absent = subjects.filter(|it| !self.has(1, it, &[])).cloned();
        let absent_peers = peers.iter();
        let absent_peers = absent_peers.filter(|(set, _)| !self.has(1, set, &active.homes));
        Selection {
            rules: peers.values().flatten().copied().collect(),
            names_ports: rules::names_ports(&active.runs),
            absent_subjects: absent.collect(),
            absent_peers: absent_peers
                .map(|(set, rules)| (set.clone(), rules.clone()))
                .collect(),
            subjects: &active.subjects,
            peers,
        }
    }

    /// Adds what a policy selects otherwise in a namespace with other labels.
    fn namespace(
        &self,
        policy: &Selection<'_, 'c>,
        name: &'c str,
        [before, after]: &[Vec<(&'c str, &'c str)>; 2],
        found: &mut Found<'c>,
    ) {
        let is_other = |term: &NamespaceTerm<'_>| match term {
            NamespaceTerm::Selected(..) => term.selects(before) != term.selects(after),
            NamespaceTerm::SameLabels(keys) | NamespaceTerm::NotSameLabels(keys) => {
                let value = |labels: &LabelList<'c>, key| label(labels, key);
                keys.iter()
                    .any(|key| value(before, key) != value(after, key))
            }
            NamespaceTerm::Named(_) | NamespaceTerm::Own | NamespaceTerm::NotOwn => false,
        };
        let is_home = |term: &NamespaceTerm<'_>| {
            let is_named = matches!(term, NamespaceTerm::Named(it) if *it == name);
            is_named || term.selects(before) || term.selects(after)
        };
        let here = |selector| SelectedSet::Pods(NamespaceTerm::Named(name), selector);
        let mut subject_differs = false;
        for set in policy.subjects {
            let SelectedSet::Pods(term, selector) = set else {
                continue;
            };
            if is_other(term) {
                subject_differs = true;
                let here = here(selector.clone());
                if !self.has(1, &here, &[]) {
                    policy.add_subject(found, &here);
                }
            }
        }
        if subject_differs {
            policy.add_absent_peers(found);
        }
        for (set, rules) in &policy.peers {
            let SelectedSet::Pods(term, selector) = set else {
                continue;
            };
            if !is_other(term) {
                continue;
            }
            let here = here(selector.clone());
            if !self.has(1, &here, &[]) {
                policy.add_peer(found, &here, rules);
            }
            policy.add_absent_subjects(found);
            // A relative term also selects otherwise for subjects in the namespace.
            if !matches!(term, NamespaceTerm::Selected(..)) {
                for subject in policy.subjects {
                    let SelectedSet::Pods(term, selector) = subject else {
                        continue;
                    };
                    let own = SelectedSet::Pods(NamespaceTerm::Named(name), selector.clone());
                    if is_home(term) && !self.has(1, &own, &[]) {
                        policy.add_subject(found, &own);
                    }
                }
                if let Some(rules) = policy.absent_peers.get(set) {
                    policy.add_peer(found, set, rules);
                }
            }
        }
    }

    /// Adds what a policy selects and the input does not have, if it selects a changed pod
    /// otherwise.
    fn pod(
        &self,
        policy: &Selection<'_, 'c>,
        direction: Direction,
        [before, after]: [&'c Pod<'c>; 2],
        found: &mut Found<'c>,
    ) {
        // Flows between the pod and what the input has are compared: most policies end here.
        if policy.absent_subjects.is_empty() && policy.absent_peers.is_empty() {
            return;
        }
        let [_, new] = self.clusters;
        let namespace = new.namespaces.get(after.namespace.0 as usize);
        let Some(namespace) = namespace else { return };
        let has_other_ports = policy.names_ports && !same_ports(&before.ports, &after.ports);
        // The destination's ports are those that names stand for (D34).
        let destination = match direction {
            Direction::Ingress => SelectedRole::Subject,
            Direction::Egress => SelectedRole::Peer,
        };
        let is_other = |set: &SelectedSet<'_>, role: SelectedRole| {
            let SelectedSet::Pods(term, selector) = set else {
                return false;
            };
            let is_here = match term {
                NamespaceTerm::Named(name) => *name == namespace.name,
                NamespaceTerm::Selected(..) => term.selects(&namespace.labels),
                NamespaceTerm::Own
                | NamespaceTerm::NotOwn
                | NamespaceTerm::SameLabels(_)
                | NamespaceTerm::NotSameLabels(_) => true,
            };
            let [before, after] = [before, after].map(|pod| {
                let has = |key: &str| label(&pod.labels, key);
                pod.is_selectable() && selector.matches(has)
            });
            let differs = before != after || (after && has_other_ports && role == destination);
            is_here && differs
        };
        let mut subjects = policy.subjects.iter();
        if subjects.any(|it| is_other(it, SelectedRole::Subject)) {
            policy.add_absent_peers(found);
        }
        if policy
            .peers
            .keys()
            .any(|it| is_other(it, SelectedRole::Peer))
        {
            policy.add_absent_subjects(found);
        }
    }
}

/// What a policy that is the same on both sides selects.
struct Selection<'a, 'c> {
    subjects: &'a BTreeSet<SelectedSet<'c>>,
    peers: ByRule<'c>,
    /// The subjects and peers that are not in the input.
    absent_subjects: Vec<SelectedSet<'c>>,
    absent_peers: ByRule<'c>,
    rules: BTreeSet<u32>,
    names_ports: bool,
}

impl<'c> Selection<'_, 'c> {
    fn add_subject(&self, found: &mut Found<'c>, set: &SelectedSet<'c>) {
        let rules = [&self.rules, &self.rules];
        add(found, SelectedRole::Subject, set, rules);
    }

    fn add_absent_subjects(&self, found: &mut Found<'c>) {
        for set in &self.absent_subjects {
            self.add_subject(found, set);
        }
    }

    fn add_peer(&self, found: &mut Found<'c>, set: &SelectedSet<'c>, rules: &BTreeSet<u32>) {
        add(found, SelectedRole::Peer, set, [rules, rules]);
    }

    fn add_absent_peers(&self, found: &mut Found<'c>) {
        for (set, rules) in &self.absent_peers {
            self.add_peer(found, set, rules);
        }
    }

    /// Adds the absent subjects if the policy selects a node with other labels otherwise as a peer.
    fn node(&self, nodes: [&Node<'_>; 2], found: &mut Found<'c>) {
        let is_other = |set: &SelectedSet<'_>| {
            let SelectedSet::Nodes(selector) = set else {
                return false;
            };
            let selects = |node: &Node<'_>| {
                let has = |key: &str| label(&node.labels, key);
                selector.matches(has)
            };
            let [before, after] = nodes.map(selects);
            before != after
        };
        if self.peers.keys().any(is_other) {
            self.add_absent_subjects(found);
        }
    }
}

/// Adds selections, those that differ in a listed value as one.
fn push<'c>(
    all: &mut Vec<Unseen<'c>>,
    (cause, policy, direction): (ChangedObject, Change<PolicyId>, Direction),
    found: &Found<'c>,
) {
    for role in [SelectedRole::Subject, SelectedRole::Peer] {
        let of_role = found.iter().filter(|((it, _), _)| *it == role);
        let of_role = of_role.map(|((_, set), rules)| (set.clone(), rules.clone()));
        let sets = joined(of_role.collect(), |known: &mut [BTreeSet<u32>; 2], more| {
            for (known, more) in known.iter_mut().zip(more) {
                known.extend(more);
            }
        });
        for (set, rules) in sets {
            all.push(Unseen {
                cause,
                policy,
                direction,
                role,
                set,
                rules: rules.map(|it| it.into_iter().collect()),
            });
        }
    }
}
