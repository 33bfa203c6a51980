//! The real kernel: one node in a network namespace, with one link for each address of the flows.
//!
//! The objects determine which pod has an address and on which node it is. The kernel, like the
//! model, only sees packets between addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::IpAddr;

use palisade_agent::Command;
use palisade_lab::network::LabNetwork;
use palisade_lab::packet::ProbePayload;
use palisade_lab::topology::{Location, NodeSpec, PodSpec, Topology, is_routable};
use palisade_lab::wire::{Probe, Wire};
use palisade_nft::{Conntrack, Kernel};

use super::super::evaluation::Packet;
use super::super::expected::OWN;
use super::enforcer::Enforcer;

/// The node's IPv6 address, which no object has: its IPv6 links need one.
const OWN_V6: &str = "fd00:ffff::1";

/// A node with nftables.
pub(super) struct RealKernel {
    places: BTreeMap<IpAddr, Location>,
    kernel: Kernel,
    conntrack: Conntrack,
    wire: Wire,
    /// Whether commands reach the kernel.
    is_connected: bool,
}

impl RealKernel {
    /// Builds the namespaces for some flows. The process must be in a namespace of its own.
    pub(super) fn build(flows: &[Packet], is_connected: bool) -> Result<RealKernel, String> {
        let own = IpAddr::V4(OWN);
        let ends: BTreeSet<IpAddr> = flows.iter().flat_map(|it| [it.client, it.server]).collect();
        let pods = ends.into_iter().filter(|it| *it != own && is_routable(*it));
        let pods: Vec<IpAddr> = pods.collect();
        let own_v6: IpAddr = OWN_V6.parse().map_err(message)?;
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
        let world = LabNetwork::build(&topology, &|_| {}).map_err(message)?;
        let opened = world.in_node(0, || Ok((Kernel::open()?, Conntrack::open()?)));
        let opened: Result<_, palisade_nft::Error> = opened.map_err(message)?;
        let (kernel, conntrack) = opened.map_err(message)?;
        let places = pods.iter().enumerate();
        let mut places: BTreeMap<IpAddr, Location> = places
            .map(|(index, address)| (*address, Location::Pod(index)))
            .collect();
        places.insert(own, Location::Node(0));
        Ok(RealKernel {
            places,
            kernel,
            conntrack,
            wire: Wire::open(&world).map_err(message)?,
            is_connected,
        })
    }

    /// Sends some of the packets, each as the first one of its connection.
    fn send(&mut self, packets: &[(usize, Packet)], passed: &mut [bool]) -> Result<(), String> {
        self.conntrack.flush().map_err(message)?;
        let probes = packets.iter().filter_map(|(_, packet)| self.probe(packet));
        let probes: Vec<Probe> = probes.collect();
        if probes.len() != packets.len() {
            return Err("a packet cannot be sent".to_owned());
        }
        let measured = self.wire.probe(&probes, &|_| {}).map_err(message)?;
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
    fn execute(&mut self, command: Command) -> Result<(), String> {
        match command {
            _ if !self.is_connected => Ok(()),
            Command::Install(ruleset) => self.kernel.install(&ruleset).map(drop).map_err(message),
            Command::Commit(transactions) => transactions
                .iter()
                .try_for_each(|it| self.kernel.commit(it).map(drop))
                .map_err(message),
        }
    }

    fn passes(&mut self, packets: &[Packet]) -> Result<Vec<bool>, String> {
        let mut passed = vec![false; packets.len()];
        // Connection tracking identifies protocols without ports by addresses alone: the second
        // direction between a pair would be the reply of the first.
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
        // Packets of a pod to itself never reach its node.
        packet.client != packet.server && has_place(packet.client) && has_place(packet.server)
    }
}

fn message(error: impl Display) -> String {
    error.to_string()
}
