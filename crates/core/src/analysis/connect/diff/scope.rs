//! The endpoints that a change can affect: only their flows are compared.

use rustc_hash::{FxHashMap, FxHashSet};

use super::changes::{Changes, PolicyChange};
use super::ends::{ClusterSide, ComparedEndpoint};
use crate::analysis::affect::selects;
use crate::analysis::connect::Member;
use crate::model::{Cluster, NamespaceId, NodeId, PodId, PolicyId};
use crate::policy::Direction;
use crate::program::Program;

/// For each endpoint whether egress as a source, or ingress as a destination, can differ.
#[derive(Debug, Default)]
pub(super) struct Scope {
    pub(super) sources: Vec<bool>,
    pub(super) destinations: Vec<bool>,
}

/// The number of changed policies above which every pod counts as affected: evaluating all their
/// subjects would cost more than comparing all flows.
const MOST_POLICIES: usize = 256;

impl Scope {
    pub(super) fn new(
        old: &ClusterSide<'_>,
        new: &ClusterSide<'_>,
        endpoints: &[ComparedEndpoint],
        changes: &Changes,
    ) -> Scope {
        // An endpoint too many only costs time: its flows are compared and found equal. One that is
        // missing would hide a difference. So every doubt counts as affected. Peers need no place
        // here: a changed rule changes flows of its subjects only, and a changed endpoint is in by
        // itself, in both roles.
        let mut sides = [
            AffectedEnds::new(old.cluster),
            AffectedEnds::new(new.cluster),
        ];
        for (side, version) in sides.iter_mut().zip([Version::Old, Version::New]) {
            side.objects(changes, version);
            side.policies(
                if version == Version::Old { old } else { new }.program,
                changes,
                version,
            );
        }
        let [of_old, of_new] = &sides;
        let is_affected = |it: &ComparedEndpoint, direction: Direction| {
            let is_one_sided = it.old.is_none() || it.new.is_none();
            let is_of = |side: &AffectedEnds<'_>, member: Option<Member>| {
                member.is_some_and(|member| side.is(member, direction))
            };
            is_one_sided || is_of(of_old, old.member(it.old)) || is_of(of_new, new.member(it.new))
        };
        let all = |direction| {
            endpoints
                .iter()
                .map(|it| is_affected(it, direction))
                .collect()
        };
        Scope {
            sources: all(Direction::Egress),
            destinations: all(Direction::Ingress),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Old,
    New,
}

/// The affected objects of one cluster.
struct AffectedEnds<'c> {
    cluster: &'c Cluster<'c>,
    pods: FxHashSet<PodId>,
    namespaces: FxHashSet<NamespaceId>,
    nodes: FxHashSet<NodeId>,
    /// The pods that changed policies select, by direction.
    selected: [Vec<bool>; 2],
    /// Whether every pod counts as affected, by direction.
    every_pod: [bool; 2],
}

impl<'c> AffectedEnds<'c> {
    fn new(cluster: &'c Cluster<'c>) -> AffectedEnds<'c> {
        AffectedEnds {
            cluster,
            pods: FxHashSet::default(),
            namespaces: FxHashSet::default(),
            nodes: FxHashSet::default(),
            selected: [Vec::new(), Vec::new()],
            every_pod: [false; 2],
        }
    }

    /// Adds the objects that differ themselves.
    fn objects(&mut self, changes: &Changes, version: Version) {
        let is_old = version == Version::Old;
        let pods = changes.pods.iter();
        self.pods
            .extend(pods.filter_map(|it| if is_old { it.old } else { it.new }));
        let namespaces = changes.namespaces.iter();
        self.namespaces
            .extend(namespaces.filter_map(|it| if is_old { it.old } else { it.new }));
        let nodes = changes.nodes.iter();
        self.nodes
            .extend(nodes.filter_map(|it| if is_old { it.old } else { it.new }));
    }

    /// Adds the pods that a changed policy selects.
    fn policies(&mut self, program: &Program, changes: &Changes, version: Version) {
        let side = |change: &PolicyChange| match version {
            Version::Old => change.policy.old,
            Version::New => change.policy.new,
        };
        for (index, direction) in Direction::BOTH.into_iter().enumerate() {
            let affects = |change: &&PolicyChange| match direction {
                Direction::Ingress => change.ingress,
                Direction::Egress => change.egress,
            };
            let policies = changes.policies.iter().filter(affects);
            let policies: Vec<PolicyId> = policies.filter_map(side).collect();
            if policies.len() > MOST_POLICIES {
                if let Some(every_pod) = self.every_pod.get_mut(index) {
                    *every_pod = true;
                }
                continue;
            }
            let selected = selected(self.cluster, program, &policies);
            if let Some(slot) = self.selected.get_mut(index) {
                *slot = selected;
            }
        }
    }

    fn is(&self, member: Member, direction: Direction) -> bool {
        let index = crate::program::direction_index(direction);
        let id = match member {
            Member::Node(id) => return self.nodes.contains(&id),
            Member::Pod(id) => id,
            Member::Network(_) | Member::Service(_) => return false,
        };
        let selected = self.selected.get(index);
        let pod = self.cluster.pods.get(id.0 as usize);
        let of_namespace = pod.is_some_and(|pod| self.namespaces.contains(&pod.namespace));
        // The node that a host-network pod is evaluated as can follow from addresses (D108), so any
        // changed node can concern it.
        let of_node = pod.is_some_and(|pod| pod.host_network) && !self.nodes.is_empty();
        self.every_pod.get(index).copied().unwrap_or(false)
            || self.pods.contains(&id)
            || of_namespace
            || of_node
            || selected.is_some_and(|it| it.get(id.0 as usize).copied().unwrap_or(false))
    }
}

/// Returns for each pod whether one of the policies selects it.
fn selected(cluster: &Cluster<'_>, program: &Program, policies: &[PolicyId]) -> Vec<bool> {
    if policies.is_empty() {
        return Vec::new();
    }
    let mut of_class: FxHashMap<u32, bool> = FxHashMap::default();
    let policies = policies.iter();
    let policies = policies.filter_map(|id| cluster.policies.get(id.0 as usize));
    let policies: Vec<_> = policies.collect();
    let pods = (0..cluster.pods.len()).filter_map(|id| u32::try_from(id).ok());
    // No enforced policy distinguishes the pods of a class: one of them is evaluated for all. For
    // a policy in audit mode that can be wrong, but on this side it decides nothing.
    let is_selected = |id: u32| {
        let Some(class) = program.class_id(PodId(id)) else {
            return false;
        };
        let find = || policies.iter().any(|it| selects(cluster, it, PodId(id)));
        *of_class.entry(class).or_insert_with(find)
    };
    pods.map(is_selected).collect()
}
