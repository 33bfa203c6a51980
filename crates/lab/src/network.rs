//! A cluster of network namespaces: one for each node, one for each pod, and one for everything
//! else.
//!
//! ```text
//!  pod 0      pod 1            pod 2
//!  eth0       eth0             eth0
//!   |          |                |
//!  pod0       pod1             pod2
//!  [ node 0 ]  uplink      [ node 1 ]  uplink
//!                |                       |
//!              node0                   node1
//!                   [ fabric: routes between nodes, and is the outside ]
//! ```
//!
//! Everything is routed. A pod's only route is its node. A node has a route to each of its pods,
//! and a default route to the fabric. The fabric has a route to each address of the cluster.
//! Hardware addresses are fixed and all neighbors permanent: no packet ever waits for the
//! resolution of a neighbor, and packets of one sender keep their order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::topology::{Location, Topology};

mod error;
pub(crate) mod namespace;
pub(crate) mod rtnl;
pub(crate) mod settings;

use error::LINK_PATIENCE;
pub use error::NetworkError;
use namespace::Namespace;
pub use rtnl::RtnlError;
use rtnl::{LOOPBACK, Mac, Rtnl, VethEnd};
use settings::NamespaceRole;

/// The number of `eth0` in a pod and of `uplink` in a node.
const OWN_INTERFACE: u32 = 2;
/// The number of the first interface to a pod in a node, and to a node in the fabric.
// The two ends of a pair must have different numbers. Otherwise the kernel would take up to a
// second to notice that the link is up.
const FIRST_INTERFACE: u32 = 10;

/// The gateway of a pod, which is its node, and of a node, which is the fabric.
const GATEWAY: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 1, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
];
/// A node as the fabric's gateway to its pods.
const NODE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 1, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2)),
];

/// The name of a node's interface to the other nodes.
pub(crate) const UPLINK: &str = "uplink";

/// An address of the fabric that no location of the cluster has, for packets of the lab itself.
pub(crate) const MARKER: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 1, 3));

/// A built cluster. Clones share it. It ends with the last clone, when no thread or socket is in it
/// any more.
#[derive(Clone, Debug)]
pub struct LabNetwork(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    topology: Topology,
    owners: FxHashMap<IpAddr, Location>,
    fabric: Namespace,
    nodes: Vec<Namespace>,
    pods: Vec<Namespace>,
}

impl LabNetwork {
    /// Builds a cluster. `progress` is called with the number of namespaces made so far.
    ///
    /// The calling process must have the right to make namespaces: see [`crate::privilege::enter`].
    pub fn build(
        topology: &Topology,
        progress: &dyn Fn(usize),
    ) -> Result<LabNetwork, NetworkError> {
        topology.check()?;
        let ipv6 = settings::has_ipv6();
        if topology.has_ipv6() && !ipv6 {
            return Err(NetworkError::NoIpv6);
        }
        let mut made = 0;
        let mut make = |place, role| {
            let namespace = make_namespace(place, role, ipv6)?;
            made += 1;
            progress(made);
            Ok::<Namespace, NetworkError>(namespace)
        };
        let fabric = make(Location::Outside, NamespaceRole::Router)?;
        let nodes = (0..topology.nodes.len())
            .map(|index| make(Location::Node(index), NamespaceRole::Router))
            .collect::<Result<Vec<_>, _>>()?;
        let pods = (0..topology.pods.len())
            .map(|index| make(Location::Pod(index), NamespaceRole::Host))
            .collect::<Result<Vec<_>, _>>()?;
        let world = LabNetwork(Arc::new(Inner {
            owners: topology.addresses().collect(),
            topology: topology.clone(),
            fabric,
            nodes,
            pods,
        }));
        world.connect_pods(ipv6)?;
        world.connect_nodes(ipv6)?;
        world.await_links()?;
        Ok(world)
    }

    /// Returns the topology that it was built from.
    pub fn topology(&self) -> &Topology {
        &self.0.topology
    }

    /// Returns the location that has an address.
    pub fn owner(&self, address: IpAddr) -> Option<Location> {
        self.0.owners.get(&address).copied()
    }

    /// Runs `work` in the network namespace of a location, on the calling thread.
    pub fn run_in<T>(&self, place: Location, work: impl FnOnce() -> T) -> Result<T, NetworkError> {
        self.namespace(place)?
            .run(work)
            .map_err(|source| NetworkError::Namespace { place, source })
    }

    /// Runs `work` in a node's network namespace, on the calling thread.
    pub fn in_node<T>(&self, index: usize, work: impl FnOnce() -> T) -> Result<T, NetworkError> {
        self.run_in(Location::Node(index), work)
    }

    /// Runs `work` in a pod's network namespace, on the calling thread.
    pub fn in_pod<T>(&self, index: usize, work: impl FnOnce() -> T) -> Result<T, NetworkError> {
        self.run_in(Location::Pod(index), work)
    }

    /// Runs `work` in the namespace of everything outside the cluster, on the calling thread.
    pub fn in_fabric<T>(&self, work: impl FnOnce() -> T) -> Result<T, NetworkError> {
        self.run_in(Location::Outside, work)
    }

    /// Returns the name of a pod's interface on its node.
    pub fn pod_interface(&self, index: usize) -> String {
        format!("pod{index}")
    }

    /// Returns the hardware address of a pod.
    pub fn pod_hardware(&self, index: usize) -> [u8; 6] {
        mac(LinkSide::Pod, index)
    }

    /// Returns the hardware address of a pod's node on the link to the pod.
    pub fn gateway_hardware(&self, index: usize) -> [u8; 6] {
        mac(LinkSide::NodeOfPod, index)
    }

    /// Returns the name of a node's interface to the other nodes.
    pub fn uplink_interface(&self) -> &'static str {
        UPLINK
    }

    /// Returns a path by which another program can enter the network namespace of a location while
    /// this process lives.
    pub fn namespace_path(&self, place: Location) -> Result<PathBuf, NetworkError> {
        let number = self.namespace(place)?.as_fd().as_raw_fd();
        Ok(PathBuf::from(format!(
            "/proc/{}/fd/{number}",
            std::process::id()
        )))
    }

    fn namespace(&self, place: Location) -> Result<&Namespace, NetworkError> {
        match place {
            Location::Pod(index) => self.0.pods.get(index),
            Location::Node(index) => self.0.nodes.get(index),
            Location::Outside => Some(&self.0.fabric),
        }
        .ok_or(NetworkError::NoSuchPlace(place))
    }

    /// Adds a pair of interfaces between each pod and its node, and routes on both sides.
    fn connect_pods(&self, ipv6: bool) -> Result<(), NetworkError> {
        // One batch for each node: a system call for each pod would dominate the time to build a
        // large lab.
        for (node, _) in self.0.nodes.iter().enumerate() {
            let pods = self.0.topology.pods.iter().zip(&self.0.pods).enumerate();
            self.configure(Location::Node(node), |rtnl| {
                for (index, (pod, namespace)) in pods.filter(|(_, (pod, _))| pod.node == node) {
                    let interface = interface(index);
                    rtnl.add_pair(
                        VethEnd {
                            name: &self.pod_interface(index),
                            index: interface,
                            mac: mac(LinkSide::NodeOfPod, index),
                        },
                        VethEnd {
                            name: "eth0",
                            index: OWN_INTERFACE,
                            mac: mac(LinkSide::Pod, index),
                        },
                        namespace.as_fd(),
                    );
                    for address in &pod.addresses {
                        rtnl.add_neighbour(interface, *address, mac(LinkSide::Pod, index));
                        rtnl.add_route(*address, interface, None);
                    }
                }
            })?;
        }
        for (index, pod) in self.0.topology.pods.iter().enumerate() {
            self.configure(Location::Pod(index), |rtnl| {
                rtnl.set_up(OWN_INTERFACE);
                for address in &pod.addresses {
                    rtnl.add_address(OWN_INTERFACE, *address);
                }
                add_gateway(rtnl, mac(LinkSide::NodeOfPod, index), ipv6);
            })?;
        }
        Ok(())
    }

    /// Adds a pair of interfaces between each node and the fabric, and routes on both sides.
    fn connect_nodes(&self, ipv6: bool) -> Result<(), NetworkError> {
        self.configure(Location::Outside, |rtnl| {
            for (index, (node, namespace)) in
                self.0.topology.nodes.iter().zip(&self.0.nodes).enumerate()
            {
                let interface = interface(index);
                rtnl.add_pair(
                    VethEnd {
                        name: &format!("node{index}"),
                        index: interface,
                        mac: mac(LinkSide::FabricOfNode, index),
                    },
                    VethEnd {
                        name: self.uplink_interface(),
                        index: OWN_INTERFACE,
                        mac: mac(LinkSide::Node, index),
                    },
                    namespace.as_fd(),
                );
                for gateway in families(NODE, ipv6) {
                    rtnl.add_neighbour(interface, gateway, mac(LinkSide::Node, index));
                }
                for address in &node.addresses {
                    rtnl.add_route(*address, interface, Some(of_family(NODE, *address)));
                }
            }
            for pod in &self.0.topology.pods {
                for address in &pod.addresses {
                    let gateway = of_family(NODE, *address);
                    rtnl.add_route(*address, interface(pod.node), Some(gateway));
                }
            }
            for address in self.0.topology.outside.iter().chain([&MARKER]) {
                rtnl.add_address(LOOPBACK, *address);
            }
        })?;
        for (index, node) in self.0.topology.nodes.iter().enumerate() {
            self.configure(Location::Node(index), |rtnl| {
                rtnl.set_up(OWN_INTERFACE);
                for address in &node.addresses {
                    rtnl.add_address(OWN_INTERFACE, *address);
                }
                add_gateway(rtnl, mac(LinkSide::FabricOfNode, index), ipv6);
            })?;
        }
        Ok(())
    }

    /// Waits until every link carries packets.
    fn await_links(&self) -> Result<(), NetworkError> {
        // An end that was brought up before the other one drops packets until the kernel notices
        // that, a moment later.
        let deadline = Instant::now() + LINK_PATIENCE;
        let nodes = (0..self.0.nodes.len()).map(Location::Node);
        for place in nodes.chain([Location::Outside]) {
            while let Some(interface) = self.slow_link(place)? {
                if Instant::now() > deadline {
                    return Err(NetworkError::LinkDown { place, interface });
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    fn slow_link(&self, place: Location) -> Result<Option<String>, NetworkError> {
        let waiting = self.run_in(place, || Rtnl::open().and_then(|mut rtnl| rtnl.not_ready()))?;
        let waiting = waiting.map_err(|source| NetworkError::Network { place, source })?;
        Ok(waiting.into_iter().next())
    }

    fn configure(&self, place: Location, work: impl FnOnce(&mut Rtnl)) -> Result<(), NetworkError> {
        self.run_in(place, || {
            let mut rtnl = Rtnl::open()?;
            work(&mut rtnl);
            rtnl.commit()
        })?
        .map_err(|source| NetworkError::Network { place, source })
    }
}

/// The two sides of the two kinds of links.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LinkSide {
    /// `eth0` of a pod.
    Pod = 0x10,
    /// The interface of a pod on its node.
    NodeOfPod = 0x11,
    /// `uplink` of a node.
    Node = 0x20,
    /// The interface of a node on the fabric.
    FabricOfNode = 0x21,
}

/// Makes a hardware address from an index. The bit of locally administered addresses is set.
pub(crate) fn mac(side: LinkSide, index: usize) -> Mac {
    let [.., a, b, c, d] = index.to_be_bytes();
    [0x02, side as u8, a, b, c, d]
}

fn make_namespace(
    place: Location,
    role: NamespaceRole,
    ipv6: bool,
) -> Result<Namespace, NetworkError> {
    let (namespace, prepared) = Namespace::make(|| {
        settings::apply(role, ipv6)?;
        let bring_up = || {
            let mut rtnl = Rtnl::open()?;
            rtnl.set_up(LOOPBACK);
            rtnl.commit()
        };
        bring_up().map_err(|source| NetworkError::Network { place, source })
    })
    .map_err(|source| NetworkError::Namespace { place, source })?;
    prepared?;
    Ok(namespace)
}

fn add_gateway(rtnl: &mut Rtnl, hardware: Mac, ipv6: bool) {
    for gateway in families(GATEWAY, ipv6) {
        rtnl.add_neighbour(OWN_INTERFACE, gateway, hardware);
        rtnl.add_default_route(OWN_INTERFACE, gateway);
    }
}

fn families(gateways: [IpAddr; 2], ipv6: bool) -> impl Iterator<Item = IpAddr> {
    gateways
        .into_iter()
        .filter(move |gateway| ipv6 || gateway.is_ipv4())
}

fn of_family([ipv4, ipv6]: [IpAddr; 2], like: IpAddr) -> IpAddr {
    if like.is_ipv4() { ipv4 } else { ipv6 }
}

/// Returns the number of an interface. The topology's check keeps indices far below the limit.
fn interface(index: usize) -> u32 {
    FIRST_INTERFACE.saturating_add(u32::try_from(index).unwrap_or(u32::MAX))
}
