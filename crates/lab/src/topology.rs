//! The topology of a cluster to build: nodes, pods and outside addresses, as plain data.

use std::fmt;
use std::net::IpAddr;

use rustc_hash::FxHashMap;

/// A location that packets are sent from, and arrive at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Location {
    /// A pod, by its index in [`Topology::pods`].
    Pod(usize),
    /// A node's own network, by its index in [`Topology::nodes`].
    Node(usize),
    /// Everything outside the cluster.
    Outside,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Pod(index) => write!(f, "pod {index}"),
            Location::Node(index) => write!(f, "node {index}"),
            Location::Outside => f.write_str("the outside"),
        }
    }
}

/// The topology of a cluster: its nodes, its pods, and addresses outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The nodes.
    pub nodes: Vec<NodeSpec>,
    /// The pods of all nodes.
    pub pods: Vec<PodSpec>,
    /// Addresses of hosts outside the cluster.
    pub outside: Vec<IpAddr>,
}

/// A node of the topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSpec {
    /// The node's own addresses.
    pub addresses: Vec<IpAddr>,
}

/// A pod with a network of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSpec {
    /// The index of its node.
    pub node: usize,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// Why a topology cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// Two locations have the same address, or one location has it twice.
    #[error("the address {address} belongs to {first} and to {second}: give each its own address")]
    Duplicate {
        /// The address.
        address: IpAddr,
        /// The location that has it.
        first: Location,
        /// The other location that has it.
        second: Location,
    },
    /// An address that cannot be routed to one host.
    #[error("the address {address} of {place} is {reason}: packets cannot be routed to it")]
    Unroutable {
        /// The address.
        address: IpAddr,
        /// The location that has it.
        place: Location,
        /// The kind of address.
        reason: &'static str,
    },
    /// A pod is on a node that does not exist.
    #[error("pod {pod} is on node {node}; the topology has {nodes} nodes")]
    NoSuchNode {
        /// The pod's index.
        pod: usize,
        /// The index of its node.
        node: usize,
        /// The number of nodes.
        nodes: usize,
    },
    /// More locations than the interface names and hardware addresses of the lab can distinguish.
    #[error("{count} {what} are too many: at most {limit} can be built")]
    TooMany {
        /// Nodes or pods.
        what: &'static str,
        /// Their number.
        count: usize,
        /// The most that can be built.
        limit: usize,
    },
}

/// The most nodes, and the most pods.
// No machine could run more, and indices stay within names and numbers of interfaces.
const MOST: usize = 65_000;

impl Topology {
    /// Checks that it can be built: every address is a unicast address with one owner, and every
    /// pod is on a node.
    pub fn check(&self) -> Result<(), TopologyError> {
        for (what, count) in [("nodes", self.nodes.len()), ("pods", self.pods.len())] {
            if count > MOST {
                return Err(TopologyError::TooMany {
                    what,
                    count,
                    limit: MOST,
                });
            }
        }
        for (index, pod) in self.pods.iter().enumerate() {
            if pod.node >= self.nodes.len() {
                return Err(TopologyError::NoSuchNode {
                    pod: index,
                    node: pod.node,
                    nodes: self.nodes.len(),
                });
            }
        }
        let mut owners = FxHashMap::default();
        for (address, place) in self.addresses() {
            if let Some(reason) = unroutable(address) {
                return Err(TopologyError::Unroutable {
                    address,
                    place,
                    reason,
                });
            }
            if let Some(first) = owners.insert(address, place) {
                return Err(TopologyError::Duplicate {
                    address,
                    first,
                    second: place,
                });
            }
        }
        Ok(())
    }

    /// Returns the node of a location.
    pub fn node_of(&self, place: Location) -> Option<usize> {
        match place {
            Location::Pod(pod) => self.pods.get(pod).map(|pod| pod.node),
            Location::Node(node) => Some(node),
            Location::Outside => None,
        }
    }

    /// Returns every address with its owner: those of nodes, of pods, and then those outside.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, Location)> + '_ {
        let nodes = self.nodes.iter().enumerate().flat_map(|(index, node)| {
            node.addresses
                .iter()
                .map(move |address| (*address, Location::Node(index)))
        });
        let pods = self.pods.iter().enumerate().flat_map(|(index, pod)| {
            pod.addresses
                .iter()
                .map(move |address| (*address, Location::Pod(index)))
        });
        let outside = self
            .outside
            .iter()
            .map(|address| (*address, Location::Outside));
        nodes.chain(pods).chain(outside)
    }

    /// Reports whether any address is one of IPv6.
    pub fn has_ipv6(&self) -> bool {
        self.addresses().any(|(address, _)| address.is_ipv6())
    }
}

/// Reports whether a location may have an address: one host must have it, and packets must be
/// routable to it.
pub fn is_routable(address: IpAddr) -> bool {
    unroutable(address).is_none()
}

/// Returns the kind of an address that no routed host can have.
fn unroutable(address: IpAddr) -> Option<&'static str> {
    // The lab's own gateways use link-local IPv4. IPv4 in IPv6 never appears on a wire.
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let reserved = match address {
        IpAddr::V4(address) => address.octets()[0] == 0 || address.octets()[0] >= 240,
        IpAddr::V6(address) => address.to_ipv4_mapped().is_some(),
    };
    if address.is_unspecified() {
        Some("the unspecified address")
    } else if address.is_loopback() {
        Some("a loopback address")
    } else if address.is_multicast() {
        Some("a multicast address")
    } else if link_local {
        Some("a link-local address")
    } else if reserved {
        Some("a reserved address")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
