//! The ends of flows: identity, addresses and node of each endpoint.

use std::net::IpAddr;

use crate::address_space::{address, bits, blocks, intervals};
use crate::decide::{Absence, Identity};
use crate::model::{Cluster, NodeId, Pod, PodId, PodPhase};
use crate::net::{Cidr, Family};
use crate::program::{Owner, Program};

/// The name of an end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndName {
    /// A pod or a template.
    Pod(PodId),
    /// A node, as a process in its network.
    Node(NodeId),
    /// An address, of an object or outside the cluster.
    Address(IpAddr),
    /// Addresses outside the cluster that no policy distinguishes.
    Block(Cidr),
}

impl EndName {
    /// Returns the name in text: `shop/web-0`, `shop/deploy/web`, `node/n1`, `203.0.113.7`.
    pub fn text(self, cluster: &Cluster<'_>) -> String {
        match self {
            EndName::Pod(id) => cluster.pod_name(id),
            EndName::Node(id) => {
                let node = cluster.nodes.get(id.0 as usize);
                format!("node/{}", node.map_or("", |node| node.name))
            }
            EndName::Address(address) => address.to_string(),
            EndName::Block(block) => block.to_string(),
        }
    }
}

/// A possible end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndCandidate<'c> {
    pub(crate) name: EndName,
    pub(crate) identity: Identity,
    /// Why the end is not a pod; used only if `identity` is not a pod.
    pub(crate) absence: Absence,
    pub(crate) addresses: Addresses,
    /// The node in whose network the end's packets start (D74).
    pub(crate) local_to: Option<&'c str>,
}

/// The addresses of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addresses {
    /// At most one of each family: IPv4, then IPv6.
    Known(Option<IpAddr>, Option<IpAddr>),
    /// Any address: the pod has none yet (D83).
    Unknown,
}

impl Addresses {
    fn first(addresses: &[IpAddr]) -> Addresses {
        let of = |family| {
            addresses
                .iter()
                .copied()
                .find(|it| Family::of(*it) == family)
        };
        Addresses::Known(of(Family::V4), of(Family::V6))
    }

    pub(crate) fn single(address: IpAddr) -> Addresses {
        Addresses::first(&[address])
    }

    /// Returns the address of a family, if known.
    pub(crate) fn of(self, family: Family) -> Option<IpAddr> {
        match (self, family) {
            (Addresses::Known(address, _), Family::V4) => address,
            (Addresses::Known(_, address), Family::V6) => address,
            (Addresses::Unknown, _) => None,
        }
    }

    /// Returns whether the end has, or could have, an address of the family.
    pub(crate) fn may_have(self, family: Family) -> bool {
        self == Addresses::Unknown || self.of(family).is_some()
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Addresses::Known(None, None)
    }
}

/// Returns a pod as an end. A host-network pod is its node (D73).
pub(crate) fn pod<'c>(cluster: &'c Cluster<'c>, program: &Program, id: PodId) -> EndCandidate<'c> {
    let Some(pod) = cluster.pods.get(id.0 as usize) else {
        // Ids come from the same cluster: not reached.
        return external(IpAddr::from([0, 0, 0, 0]));
    };
    if pod.host_network {
        return host_network_pod(cluster, program, id, pod);
    }
    EndCandidate {
        name: EndName::Pod(id),
        identity: Identity::Pod(id),
        absence: Absence::External,
        addresses: if pod.addresses.is_empty() {
            Addresses::Unknown
        } else {
            Addresses::first(&pod.addresses)
        },
        local_to: None,
    }
}

fn host_network_pod<'c>(
    cluster: &'c Cluster<'c>,
    program: &Program,
    id: PodId,
    pod: &Pod<'c>,
) -> EndCandidate<'c> {
    let node_of_address = || {
        let owners = pod.addresses.iter().map(|it| program.owner(*it));
        owners.into_iter().find_map(|owner| match owner {
            Some(Owner::Node(node)) => node,
            Some(Owner::Pod(_)) | None => None,
        })
    };
    // A pod without a node name is on the node that has its address.
    let node = match pod.node {
        Some(name) => cluster.node(name),
        None => node_of_address(),
    };
    let node_object = node.and_then(|node| cluster.nodes.get(node.0 as usize));
    let of_node = Addresses::first(node_object.map_or(&[], |node| &node.addresses));
    let own = Addresses::first(&pod.addresses);
    let is_some_nodes = |address: IpAddr| {
        let mut nodes = cluster.nodes.iter();
        nodes.any(|node| node.addresses.contains(&address))
    };
    let address = |family| match own.of(family) {
        // An address that no node has is the pod's own (D108). Otherwise the node's first address
        // of the family stands for the pod as for the node (D133).
        Some(own) if !is_some_nodes(own) => Some(own),
        own => of_node.of(family).or(own),
    };
    let addresses = Addresses::Known(address(Family::V4), address(Family::V6));
    EndCandidate {
        name: EndName::Pod(id),
        identity: Identity::Node(node),
        absence: Absence::HostNetwork,
        addresses: if addresses.is_empty() {
            Addresses::Unknown
        } else {
            addresses
        },
        local_to: pod.node.or(node_object.map(|node| node.name)),
    }
}

/// Returns a node as an end: a process in its network.
pub(crate) fn node<'c>(cluster: &'c Cluster<'c>, id: NodeId) -> EndCandidate<'c> {
    let node = cluster.nodes.get(id.0 as usize);
    EndCandidate {
        name: EndName::Node(id),
        // Node selectors match labels of objects; a node that only pods name has none.
        identity: Identity::Node(node.filter(|node| node.has_object).map(|_| id)),
        absence: Absence::Node,
        addresses: Addresses::first(node.map_or(&[], |node| &node.addresses)),
        local_to: node.map(|node| node.name),
    }
}

/// Returns an address as an end. An address is never local to a node (D130).
pub(crate) fn at<'c>(cluster: &'c Cluster<'c>, program: &Program, at: IpAddr) -> EndCandidate<'c> {
    match program.owner(at) {
        Some(Owner::Pod(id)) => EndCandidate {
            // The flow has this address, whatever others the pod has.
            addresses: Addresses::single(at),
            ..pod(cluster, program, id)
        },
        Some(Owner::Node(node)) => EndCandidate {
            identity: Identity::Node(node),
            absence: Absence::Node,
            ..external(at)
        },
        None => external(at),
    }
}

/// Returns the ends of a block: its pods and nodes, and its parts outside the cluster that no
/// policy distinguishes.
pub(crate) fn within<'c>(
    cluster: &'c Cluster<'c>,
    program: &Program,
    block: Cidr,
) -> Vec<EndCandidate<'c>> {
    let owners = program.owners.iter().map(|(address, _)| address);
    let mut owned: Vec<IpAddr> = owners.filter(|it| block.contains(*it)).collect();
    // The owners are a hash map: sorted, the answer is the same in every run.
    owned.sort_unstable();
    let mut ends: Vec<EndCandidate<'c>> = Vec::new();
    ends.extend(owned.iter().map(|it| at(cluster, program, *it)));
    for (first, last) in intervals(program, Family::of(block.first()), &[block]) {
        if !block.contains(first) {
            continue;
        }
        for part in blocks(first, last) {
            ends.extend(first_free(&owned, part).map(|free| EndCandidate {
                name: EndName::Block(part),
                ..external(free)
            }));
        }
    }
    ends
}

/// Returns the first address of a block that no pod or node has. `owned` is sorted.
fn first_free(owned: &[IpAddr], block: Cidr) -> Option<IpAddr> {
    let family = Family::of(block.first());
    let mut free = bits(block.first());
    let start = owned.partition_point(|it| *it < block.first());
    for owned in owned.iter().skip(start) {
        if *owned != address(family, free) {
            break;
        }
        free = free.checked_add(1)?;
    }
    (free <= bits(block.last())).then(|| address(family, free))
}

fn external<'c>(address: IpAddr) -> EndCandidate<'c> {
    EndCandidate {
        name: EndName::Address(address),
        identity: Identity::External,
        absence: Absence::External,
        addresses: Addresses::single(address),
        local_to: None,
    }
}

/// Returns the node where an end runs: a pod's node, or the node whose network the end uses.
pub(crate) fn runs_on<'c>(cluster: &'c Cluster<'c>, end: &EndCandidate<'c>) -> Option<&'c str> {
    node_name(cluster, end).or(end.local_to)
}

/// Returns the node of a pod, if it is live and has a network of its own.
pub(crate) fn node_name<'c>(cluster: &'c Cluster<'c>, end: &EndCandidate<'c>) -> Option<&'c str> {
    match end.identity {
        Identity::Pod(id) => {
            let pod = cluster.pods.get(id.0 as usize);
            // A pod that has terminated runs on no node (D81).
            pod.filter(|pod| pod.phase != PodPhase::Terminated)?.node
        }
        Identity::Node(_) | Identity::External => None,
    }
}
