//! The changed objects that a difference comes from.

use rustc_hash::{FxHashMap, FxHashSet};

use super::changes::{Change, Changes};
use super::compare::ChangeLabel;
use super::{Endpoint, EndpointId, Version};
use crate::analysis::affect::selects;
use crate::analysis::connect::Member;
use crate::compile::count;
use crate::decide::Cause;
use crate::model::{NamespaceId, NodeId, PodId, PolicyId};
use crate::policy::Direction;

/// A changed object, by its index in the lists of [`Changes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangedObject {
    /// An index in [`Changes::policies`].
    Policy(u32),
    /// An index in [`Changes::namespaces`].
    Namespace(u32),
    /// An index in [`Changes::pods`].
    Pod(u32),
    /// An index in [`Changes::nodes`].
    Node(u32),
}

/// Finds the changed objects of blocks, by their identifiers on each side.
pub(super) struct CauseFinder<'b> {
    versions: [Version<'b>; 2],
    changes: &'b Changes,
    ends: &'b [Endpoint],
    policies: [FxHashMap<PolicyId, u32>; 2],
    namespaces: [FxHashMap<NamespaceId, u32>; 2],
    pods: [FxHashMap<PodId, u32>; 2],
    nodes: [FxHashMap<NodeId, u32>; 2],
}

fn places<T: Copy + Eq + std::hash::Hash>(
    changes: impl Iterator<Item = Change<T>>,
) -> [FxHashMap<T, u32>; 2] {
    let mut places = [FxHashMap::default(), FxHashMap::default()];
    let [of_old, of_new] = &mut places;
    for (index, change) in changes.enumerate() {
        of_old.extend(change.old.map(|it| (it, count(index))));
        of_new.extend(change.new.map(|it| (it, count(index))));
    }
    places
}

/// The maximum number of objects of a block.
const MOST: usize = 16;

impl<'b> CauseFinder<'b> {
    pub(super) fn new(
        versions: [Version<'b>; 2],
        changes: &'b Changes,
        ends: &'b [Endpoint],
    ) -> CauseFinder<'b> {
        CauseFinder {
            versions,
            changes,
            ends,
            policies: places(changes.policies.iter().map(|it| it.policy)),
            namespaces: places(changes.namespaces.iter().copied()),
            pods: places(changes.pods.iter().copied()),
            nodes: places(changes.nodes.iter().copied()),
        }
    }

    /// Returns the changed objects that a difference comes from, the most likely first: changed
    /// policies that decide now or decided before, else changed policies that select the subject,
    /// else changed endpoints. `some` returns some sources and some destinations.
    pub(super) fn culprits(
        &self,
        label: &ChangeLabel,
        some: impl FnOnce() -> [Vec<EndpointId>; 2],
    ) -> Vec<ChangedObject> {
        let mut found = Vec::new();
        if label.one_sided.is_none()
            && let Some(decision) = &label.decision
        {
            let isolates = |cause: Option<Cause>| {
                matches!(
                    cause,
                    Some(Cause::Isolation(_) | Cause::DefaultIsolation(_))
                )
            };
            // A rule comes first: it matches the flow itself, while policies isolate whatever the
            // flow is. The sort is stable: otherwise the new side stays first.
            let mut order = [(1, decision.new), (0, decision.old)];
            order.sort_by_key(|(_, cause)| isolates(*cause));
            for (side, cause) in order {
                let policies = self.deciding(side, cause);
                let places = self.policies.get(side);
                let changed = policies.iter().filter_map(|it| places?.get(it));
                found.extend(changed.map(|it| ChangedObject::Policy(*it)));
            }
        }
        if found.is_empty() {
            // Listing members is slow, and only needed here.
            let [sources, destinations] = some();
            if label.one_sided.is_none() {
                found = self.on_subjects(label, &sources, &destinations);
            }
            if found.is_empty() {
                let endpoints = sources.iter().chain(&destinations);
                found = self.among(endpoints, label.one_sided.is_some());
            }
        }
        let mut seen = FxHashSet::default();
        found.retain(|it| seen.insert(*it));
        found.truncate(MOST);
        found
    }

    fn deciding(&self, side: usize, cause: Option<Cause>) -> Vec<PolicyId> {
        let (Some(version), Some(cause)) = (self.versions.get(side), cause) else {
            return Vec::new();
        };
        if let Cause::Isolation(id) | Cause::DefaultIsolation(id) = cause {
            return version.program.isolation(id).to_vec();
        }
        let place = cause.rule().and_then(|rule| version.program.place(rule));
        place.map(|it| it.policy).into_iter().collect()
    }

    /// Returns changed policies that select the subject. A rule with Pass decides nothing itself,
    /// but its policy can be what changed.
    fn on_subjects(
        &self,
        label: &ChangeLabel,
        sources: &[EndpointId],
        destinations: &[EndpointId],
    ) -> Vec<ChangedObject> {
        let directions = match label.decision {
            Some(decision) => vec![decision.direction],
            None => vec![Direction::Egress, Direction::Ingress],
        };
        let mut found = Vec::new();
        for direction in directions {
            let subject = match direction {
                Direction::Egress => sources.first(),
                Direction::Ingress => destinations.first(),
            };
            // The first subject stands for the others: this is a hint, not a proof.
            let endpoint = subject.and_then(|id| self.ends.get(id.0 as usize));
            let Some(endpoint) = endpoint else { continue };
            for (index, change) in self.changes.policies.iter().enumerate() {
                let concerns = match direction {
                    Direction::Ingress => change.ingress,
                    Direction::Egress => change.egress,
                };
                let sides = [
                    (0, endpoint.old, change.policy.old),
                    (1, endpoint.new, change.policy.new),
                ];
                let mut sides = sides.into_iter().filter_map(|(side, member, policy)| {
                    let cluster = self.versions.get(side)?.cluster;
                    let Some(Member::Pod(pod)) = member else {
                        return None;
                    };
                    let policy = cluster.policies.get(policy?.0 as usize)?;
                    Some(selects(cluster, policy, pod))
                });
                if concerns && sides.any(|it| it) {
                    found.push(ChangedObject::Policy(count(index)));
                }
            }
        }
        found
    }

    /// Returns changed objects among endpoints: namespaces first, as one can explain many pods.
    fn among<'e>(
        &self,
        endpoints: impl Iterator<Item = &'e EndpointId>,
        is_one_sided: bool,
    ) -> Vec<ChangedObject> {
        let mut found = Vec::new();
        for endpoint in endpoints.filter_map(|id| self.ends.get(id.0 as usize)) {
            for (side, member) in [(0, endpoint.old), (1, endpoint.new)] {
                let Some(version) = self.versions.get(side) else {
                    continue;
                };
                match member {
                    Some(Member::Pod(id)) => {
                        let pod = version.cluster.pods.get(id.0 as usize);
                        let namespace =
                            pod.and_then(|pod| self.namespaces.get(side)?.get(&pod.namespace));
                        // A one-sided block comes from the endpoint that one cluster lacks.
                        let is_alone = endpoint.old.is_none() || endpoint.new.is_none();
                        if !is_one_sided {
                            found.extend(namespace.map(|it| ChangedObject::Namespace(*it)));
                        }
                        if !is_one_sided || is_alone {
                            let changed = self.pods.get(side).and_then(|it| it.get(&id));
                            found.extend(changed.map(|it| ChangedObject::Pod(*it)));
                        }
                        // A host-network pod is evaluated as its node (D73).
                        let node = pod.filter(|pod| pod.host_network).and_then(|it| it.node);
                        let is_own_node = |change: &&Change<NodeId>| {
                            let of = |side: usize, id: Option<NodeId>| {
                                let nodes = &self.versions.get(side)?.cluster.nodes;
                                Some(nodes.get(id?.0 as usize)?.name)
                            };
                            node.is_none_or(|it| {
                                [of(0, change.old), of(1, change.new)].contains(&Some(it))
                            })
                        };
                        if pod.is_some_and(|pod| pod.host_network) {
                            let nodes = self.changes.nodes.iter().zip(0..);
                            let nodes = nodes.filter(|(change, _)| is_own_node(change));
                            found.extend(nodes.map(|(_, index)| ChangedObject::Node(index)));
                        }
                    }
                    Some(Member::Node(id)) => {
                        let node = self.nodes.get(side).and_then(|it| it.get(&id));
                        found.extend(node.map(|it| ChangedObject::Node(*it)));
                    }
                    Some(Member::Network(_) | Member::Service(_)) | None => {}
                }
            }
        }
        found.sort_unstable();
        found
    }
}
