//! Whom a change can concern: only flows of these are looked at.

use rustc_hash::{FxHashMap, FxHashSet};

use super::changes::{Changes, PolicyChange};
use super::ends::{ClusterSide, ComparedEnd};
use crate::affect::selects;
use crate::connect::Member;
use crate::model::{Cluster, NamespaceId, NodeId, PodId, PolicyId};
use crate::policy::Direction;
use crate::program::Program;

/// For each end whether flows from it, or to it, may have another verdict than before.
#[derive(Debug, Default)]
pub(super) struct Scope {
    pub(super) sources: Vec<bool>,
    pub(super) destinations: Vec<bool>,
}

/// With more changed policies than these, everyone counts as concerned: to find out would cost more.
const MOST_POLICIES: usize = 256;

impl Scope {
    pub(super) fn new(
        old: &ClusterSide<'_>,
        new: &ClusterSide<'_>,
        ends: &[ComparedEnd],
        changes: &Changes,
    ) -> Scope {
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
        let is_concerned = |end: &ComparedEnd, direction: Direction| {
            let is_one_sided = end.old.is_none() || end.new.is_none();
            let is_of = |side: &AffectedEnds<'_>, member: Option<Member>| {
                member.is_some_and(|member| side.is(member, direction))
            };
            is_one_sided || is_of(of_old, old.member(end.old)) || is_of(of_new, new.member(end.new))
        };
        let all = |direction| {
            ends.iter()
                .map(|end| is_concerned(end, direction))
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

/// Those of one cluster who are concerned.
struct AffectedEnds<'c> {
    cluster: &'c Cluster<'c>,
    pods: FxHashSet<PodId>,
    namespaces: FxHashSet<NamespaceId>,
    nodes: FxHashSet<NodeId>,
    /// The pods that changed policies select, by direction.
    selected: [Vec<bool>; 2],
    everyone: [bool; 2],
}

impl<'c> AffectedEnds<'c> {
    fn new(cluster: &'c Cluster<'c>) -> AffectedEnds<'c> {
        AffectedEnds {
            cluster,
            pods: FxHashSet::default(),
            namespaces: FxHashSet::default(),
            nodes: FxHashSet::default(),
            selected: [Vec::new(), Vec::new()],
            everyone: [false; 2],
        }
    }

    /// Objects that are seen otherwise themselves.
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

    /// Pods that a changed policy selects.
    fn policies(&mut self, program: &Program, changes: &Changes, version: Version) {
        let meant = |change: &PolicyChange| match version {
            Version::Old => change.policy.old,
            Version::New => change.policy.new,
        };
        for (index, direction) in Direction::BOTH.into_iter().enumerate() {
            let concerns = |change: &&PolicyChange| match direction {
                Direction::Ingress => change.ingress,
                Direction::Egress => change.egress,
            };
            let policies = changes.policies.iter().filter(concerns);
            let policies: Vec<PolicyId> = policies.filter_map(meant).collect();
            if policies.len() > MOST_POLICIES {
                if let Some(everyone) = self.everyone.get_mut(index) {
                    *everyone = true;
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
        // Which node a pod of the host network stands for may follow from addresses.
        let of_node = pod.is_some_and(|pod| pod.host_network) && !self.nodes.is_empty();
        self.everyone.get(index).copied().unwrap_or(false)
            || self.pods.contains(&id)
            || of_namespace
            || of_node
            || selected.is_some_and(|it| it.get(id.0 as usize).copied().unwrap_or(false))
    }
}

/// For each pod whether one of some policies selects it. Policies cannot tell the pods of a class apart.
fn selected(cluster: &Cluster<'_>, program: &Program, policies: &[PolicyId]) -> Vec<bool> {
    if policies.is_empty() {
        return Vec::new();
    }
    let mut of_class: FxHashMap<u32, bool> = FxHashMap::default();
    let policies = policies.iter();
    let policies = policies.filter_map(|id| cluster.policies.get(id.0 as usize));
    let policies: Vec<_> = policies.collect();
    let pods = (0..cluster.pods.len()).filter_map(|id| u32::try_from(id).ok());
    let is_selected = |id: u32| {
        let Some(class) = program.class_id(PodId(id)) else {
            return false;
        };
        let find = || policies.iter().any(|it| selects(cluster, it, PodId(id)));
        *of_class.entry(class).or_insert_with(find)
    };
    pods.map(is_selected).collect()
}
