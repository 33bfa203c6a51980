//! The node under test, with its pods.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::{Context as _, Result};
use palisade_core::net::Family;
use palisade_lab::network::LabNetwork;
use palisade_lab::topology::{Location, NodeSpec, PodSpec, Topology};

use super::objects::pod_address;
use super::traffic::Clock;

/// The pod that may connect to the server.
pub const CLIENT: usize = 0;
/// The server's pod.
pub const SERVER: usize = 1;
/// A client that no rule admits.
pub const OTHER_CLIENT: usize = 2;
/// Places for pods that are created and deleted.
pub const SPARE: [usize; 3] = [3, 4, 5];

/// The number of places for pods.
pub const PLACES: usize = 6;

/// The namespaces of the tests.
#[derive(Debug)]
pub struct TestNode {
    /// The namespaces.
    pub world: LabNetwork,
    /// The clock of all timestamps.
    pub clock: Clock,
}

impl TestNode {
    /// Builds the namespaces. The process must be in a namespace of its own.
    pub fn build() -> Result<TestNode> {
        let address = |text: &str| text.parse::<IpAddr>();
        let pods = (0..PLACES).map(|place| PodSpec {
            node: 0,
            addresses: Family::BOTH
                .map(|family| pod_address(place, family))
                .to_vec(),
        });
        let topology = Topology {
            nodes: vec![NodeSpec {
                addresses: vec![address("192.0.2.1")?, address("fd00:ff::1")?],
            }],
            pods: pods.collect(),
            outside: vec![address("203.0.113.1")?, address("2001:db8::1")?],
        };
        let world = LabNetwork::build(&topology, &|_| {}).context("cannot build the namespaces")?;
        Ok(TestNode {
            world,
            clock: Clock::start(),
        })
    }

    /// Runs the work in the node's network namespace.
    pub fn on_node<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.world.in_node(0, work)?
    }

    /// A UDP socket in a pod, at a port of its address.
    pub fn socket(&self, pod: usize, family: Family, port: u16) -> Result<UdpSocket> {
        let address = SocketAddr::new(pod_address(pod, family), port);
        let socket = self
            .world
            .run_in(Location::Pod(pod), || UdpSocket::bind(address))?;
        socket.with_context(|| format!("cannot bind {address}"))
    }

    /// Several such sockets, at any ports.
    pub fn sockets(&self, pod: usize, family: Family, count: usize) -> Result<Vec<UdpSocket>> {
        (0..count).map(|_| self.socket(pod, family, 0)).collect()
    }
}
