//! The members: pods, nodes, networks outside and Services.

use std::net::IpAddr;

use super::networks::Outside;
use super::{Connectivity, Member, MemberId, NetworkId};
use crate::compile::count;
use crate::decide::Identity;
use crate::flow_end::{self, Addresses, EndCandidate};
use crate::model::{Cluster, NodeId, PodId, PodPhase, ServiceId};
use crate::net::Family;
use crate::program::{AddressAtom, Program};

/// The properties of a member that policies can match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberView<'c> {
    pub(crate) identity: Identity,
    /// Its class, if policies can select it.
    pub(crate) class: Option<u32>,
    /// Its address in each family, if known.
    pub(crate) atoms: [Option<AddressAtom>; 2],
    /// Whether it could have any address (D83).
    pub(crate) is_unknown: bool,
    /// The node in whose host network its packets start.
    pub(crate) local_to: Option<&'c str>,
    /// The node that it runs on, if it is a pod.
    pub(crate) node: Option<&'c str>,
}

pub(crate) fn family_index(family: Family) -> usize {
    match family {
        Family::V4 => 0,
        Family::V6 => 1,
    }
}

impl<'c> MemberView<'c> {
    pub(crate) fn new(
        cluster: &'c Cluster<'c>,
        program: &Program,
        candidate: &EndCandidate<'c>,
    ) -> MemberView<'c> {
        let class = match candidate.identity {
            Identity::Pod(pod) => program.class_id(pod),
            Identity::Node(_) | Identity::External => None,
        };
        let atom = |address: IpAddr| program.address_atom(address);
        MemberView {
            identity: candidate.identity,
            class,
            atoms: Family::BOTH.map(|family| candidate.addresses.of(family).map(atom)),
            is_unknown: candidate.addresses == Addresses::Unknown,
            local_to: candidate.local_to,
            node: flow_end::node_name(cluster, candidate),
        }
    }

    fn outside(outside: &Outside) -> MemberView<'c> {
        let mut atoms = [None; 2];
        if let Some(atom) = atoms.get_mut(family_index(outside.network.family)) {
            *atom = Some(outside.atom);
        }
        MemberView {
            identity: Identity::External,
            class: None,
            atoms,
            is_unknown: false,
            local_to: None,
            node: None,
        }
    }

    /// Returns whether the member has, or could have, an address of a family.
    pub(crate) fn may_have(&self, family: Family) -> bool {
        let atom = self.atoms.get(family_index(family));
        self.is_unknown || atom.is_some_and(Option::is_some)
    }

    pub(crate) fn atom(&self, family: Family) -> Option<AddressAtom> {
        self.atoms.get(family_index(family)).copied().flatten()
    }
}

/// Returns all members with their views, in display order. Services have no view: their backends
/// are evaluated.
pub(super) fn members<'c>(
    cluster: &'c Cluster<'c>,
    program: &Program,
    outside: &[Outside],
) -> Vec<(Member, Option<MemberView<'c>>)> {
    let mut members = Vec::new();
    for (index, pod) in cluster.pods.iter().enumerate() {
        if pod.phase == PodPhase::Terminated {
            // It owns no address and is neither subject nor peer (D81).
            continue;
        }
        let id = PodId(count(index));
        let view = MemberView::new(cluster, program, &flow_end::pod(cluster, program, id));
        members.push((Member::Pod(id), Some(view)));
    }
    for (index, node) in cluster.nodes.iter().enumerate() {
        // A node without a Node object, or without addresses, has no flows.
        if node.has_object && !node.addresses.is_empty() {
            let id = NodeId(count(index));
            let view = MemberView::new(cluster, program, &flow_end::node(cluster, id));
            members.push((Member::Node(id), Some(view)));
        }
    }
    for (index, outside) in outside.iter().enumerate() {
        let member = Member::Network(NetworkId(count(index)));
        members.push((member, Some(MemberView::outside(outside))));
    }
    for (index, service) in cluster.services.iter().enumerate() {
        if !service.is_external_name {
            members.push((Member::Service(ServiceId(count(index))), None));
        }
    }
    members
}

impl Connectivity<'_> {
    /// Returns the name of a member: `shop/web-0`, `shop/deploy/web`, `node/n1`, `shop/svc/web`. A
    /// network has the name of each of its blocks.
    pub fn names(&self, id: MemberId) -> Vec<String> {
        match self.members.get(id.0 as usize) {
            Some(Member::Pod(pod)) => vec![self.cluster.pod_name(*pod)],
            Some(Member::Node(node)) => {
                vec![crate::EndName::Node(*node).text(self.cluster)]
            }
            Some(Member::Service(service)) => vec![self.cluster.service_name(*service)],
            Some(Member::Network(NetworkId(network))) => {
                let network = self.networks.get(*network as usize);
                let blocks = network.iter().flat_map(|network| &network.blocks);
                blocks.map(ToString::to_string).collect()
            }
            None => Vec::new(),
        }
    }
}
