//! The real kernel: one node in a network namespace, with a link of its own to each address of the flows.
//!
//! Which pod has an address, and on which node that pod is, changes with the objects. The kernel of the node does not know:
//! it sees packets between addresses, as the model does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::IpAddr;

use palisade_agent::Command;
use palisade_lab::network::LabNetwork;
use palisade_lab::packet::ProbePayload;
use palisade_lab::topology::{Location, NodeSpec, PodSpec, Topology, is_routable};
use palisade_lab::wire::{Probe, Wire};
use palisade_nft::{Conntrack, Kernel};

use super::super::truth::OWN;
use super::super::walk::Packet;
use super::enforcer::Enforcer;

/// The node's address of IPv6, which no object has: links of IPv6 need one.
const OWN_V6: &str = "fd00:ffff::1";

/// A node that enforces.
pub(super) struct RealKernel {
    places: BTreeMap<IpAddr, Location>,
    kernel: Kernel,
    conntrack: Conntrack,
    wire: Wire,
    /// Whether commands reach the kernel.
    is_reached: bool,
}

impl RealKernel {
    /// Builds the namespaces for some flows. The process must have entered a namespace of its own before.
    pub(super) fn build(flows: &[Packet], is_reached: bool) -> Result<RealKernel, String> {
        let own = IpAddr::V4(OWN);
        let ends: BTreeSet<IpAddr> = flows.iter().flat_map(|it| [it.client, it.server]).collect();
        let pods = ends.into_iter().filter(|it| *it != own && is_routable(*it));
        let pods: Vec<IpAddr> = pods.collect();
        let own_v6: IpAddr = OWN_V6.parse().map_err(words)?;
        let topology = Topology {
            nodes: vec![NodeSpec {
                addresses: vec![own, own_v6],
            }],
            pods: pods
                .iter()
                .map(|address| PodSpec {
                    node: 0,
                    addresses: vec![*address],
                })
                .collect(),
            outside: Vec::new(),
        };
        let world = LabNetwork::build(&topology, &|_| {}).map_err(words)?;
        let opened = world.in_node(0, || Ok((Kernel::open()?, Conntrack::open()?)));
        let opened: Result<_, palisade_nft::Error> = opened.map_err(words)?;
        let (kernel, conntrack) = opened.map_err(words)?;
        let places = pods.iter().enumerate();
        let mut places: BTreeMap<IpAddr, Location> = places
            .map(|(index, address)| (*address, Location::Pod(index)))
            .collect();
        places.insert(own, Location::Node(0));
        Ok(RealKernel {
            places,
            kernel,
            conntrack,
            wire: Wire::open(&world).map_err(words)?,
            is_reached,
        })
    }

    /// Sends some of the packets, each as the first one of its connection.
    fn send(&mut self, packets: &[(usize, Packet)], passed: &mut [bool]) -> Result<(), String> {
        self.conntrack.flush().map_err(words)?;
        let probes = packets.iter().filter_map(|(_, packet)| self.probe(packet));
        let probes: Vec<Probe> = probes.collect();
        if probes.len() != packets.len() {
            return Err("a packet cannot be sent".to_owned());
        }
        let measured = self.wire.probe(&probes, &|_| {}).map_err(words)?;
        for ((index, packet), measured) in packets.iter().zip(measured) {
            let arrived = measured.arrived.is_some();
            if arrived && measured.arrived != self.places.get(&packet.server).copied() {
                return Err(format!("{packet:?} arrives at {:?}", measured.arrived));
            }
            if let Some(passed) = passed.get_mut(*index) {
                *passed = arrived;
            }
        }
        Ok(())
    }

    fn probe(&self, packet: &Packet) -> Option<Probe> {
        let port = packet.port;
        Some(Probe {
            from: *self.places.get(&packet.client)?,
            source: packet.client,
            destination: packet.server,
            carried: match packet.l4 {
                6 => ProbePayload::Tcp { port },
                17 => ProbePayload::Udp { port },
                132 => ProbePayload::Sctp { port },
                protocol => ProbePayload::Other { protocol },
            },
            source_port: None,
        })
    }
}

impl Enforcer for RealKernel {
    fn carry_out(&mut self, command: Command) -> Result<(), String> {
        match command {
            _ if !self.is_reached => Ok(()),
            Command::Install(ruleset) => self.kernel.install(&ruleset).map(drop).map_err(words),
            Command::Commit(transactions) => transactions
                .iter()
                .try_for_each(|it| self.kernel.commit(it).map(drop))
                .map_err(words),
        }
    }

    fn passes(&mut self, packets: &[Packet]) -> Result<Vec<bool>, String> {
        let mut passed = vec![false; packets.len()];
        // Connection tracking knows protocols without ports by their addresses alone: of the two directions between a
        // pair, the second would be the answer to the first.
        let mut rounds: [Vec<(usize, Packet)>; 3] = Default::default();
        let [ported, forth, back] = &mut rounds;
        for (index, packet) in packets.iter().enumerate() {
            let round = match packet.port {
                0 if packet.client < packet.server => &mut *forth,
                0 => &mut *back,
                _ => &mut *ported,
            };
            round.push((index, *packet));
        }
        for round in rounds.iter().filter(|it| !it.is_empty()) {
            self.send(round, &mut passed)?;
        }
        Ok(passed)
    }

    fn can_send(&self, packet: &Packet) -> bool {
        let has_place = |end: IpAddr| self.places.contains_key(&end);
        // What a pod sends to itself never reaches its node.
        packet.client != packet.server && has_place(packet.client) && has_place(packet.server)
    }
}

fn words(error: impl Display) -> String {
    error.to_string()
}
