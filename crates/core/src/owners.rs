//! The owner of each address: pods before nodes, and one pod where several claim it.

use std::cmp::Reverse;
use std::net::IpAddr;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::compile::count;
use crate::model::{Cluster, NodeId, Pod, PodId, PodPhase};
use crate::program::Owner;

/// An address that more than one object claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressConflict {
    /// The address.
    pub address: IpAddr,
    /// The pod that owns it.
    pub winner: PodId,
    /// The other pod that claims it; `None`: a node claims it.
    pub loser: Option<PodId>,
}

/// Returns the owner of each address (D22, D82, D107, D108).
pub fn owners(cluster: &Cluster<'_>) -> FxHashMap<IpAddr, Owner> {
    let n_claims = cluster.pods.len() + cluster.nodes.len();
    let mut owners: FxHashMap<IpAddr, Owner> =
        FxHashMap::with_capacity_and_hasher(n_claims, FxBuildHasher);
    // The order of these loops is the precedence of D22: a later claim never replaces an earlier
    // one, except that of a pod over another pod (D82).
    for (index, pod) in with_own_address(cluster) {
        for address in &pod.addresses {
            let claim = Owner::Pod(index);
            let owner = owners.entry(*address).or_insert(claim);
            if let Owner::Pod(other) = *owner
                && other != index
                && let Some(other) = cluster.pods.get(other.0 as usize)
                && precedence(pod.phase, pod.created) < precedence(other.phase, other.created)
            {
                *owner = claim;
            }
        }
    }
    for (index, node) in cluster.nodes.iter().enumerate() {
        for address in &node.addresses {
            let node = Owner::Node(Some(NodeId(count(index))));
            owners.entry(*address).or_insert(node);
        }
    }
    // A host-network pod's address is its node's, also if no Node object lists it (D108).
    for pod in &cluster.pods {
        if pod.host_network && pod.phase != PodPhase::Terminated {
            let node = pod.node.and_then(|name| cluster.node(name));
            for address in &pod.addresses {
                owners.entry(*address).or_insert(Owner::Node(node));
            }
        }
    }
    owners
}

/// Returns the addresses that several objects claim, in order.
pub fn conflicts(cluster: &Cluster<'_>) -> Vec<AddressConflict> {
    let owners = owners(cluster);
    let mut conflicts = Vec::new();
    for (index, pod) in with_own_address(cluster) {
        for address in &pod.addresses {
            if let Some(Owner::Pod(winner)) = owners.get(address)
                && *winner != index
            {
                conflicts.push(AddressConflict {
                    address: *address,
                    winner: *winner,
                    loser: Some(index),
                });
            }
        }
    }
    for address in cluster.nodes.iter().flat_map(|node| &node.addresses) {
        if let Some(Owner::Pod(winner)) = owners.get(address) {
            conflicts.push(AddressConflict {
                address: *address,
                winner: *winner,
                loser: None,
            });
        }
    }
    // Two nodes, or one node twice, may claim the address of a pod: one conflict is enough.
    conflicts.sort_unstable();
    conflicts.dedup();
    conflicts
}

/// Returns the pods with a network of their own that have not ended.
fn with_own_address<'c, 'a>(
    cluster: &'c Cluster<'a>,
) -> impl Iterator<Item = (PodId, &'c Pod<'a>)> {
    let pods = cluster.pods.iter().enumerate();
    pods.filter(|(_, pod)| pod.is_selectable())
        .map(|(index, pod)| (PodId(count(index)), pod))
}

/// Returns a key for pods of one address; the smallest wins. Phase comes first: a newer pod that is
/// only pending must not take the address of a running one (D82). Pods with equal keys keep their
/// order, which is by namespace and name (D134).
pub(crate) fn precedence(
    life: PodPhase,
    created: Option<&str>,
) -> (PodPhase, Reverse<Option<&str>>) {
    (life, Reverse(created))
}
