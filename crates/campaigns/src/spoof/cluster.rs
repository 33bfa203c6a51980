//! Two nodes with routed and bridged pods, and an agent on each.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use anyhow::{Context as _, Result};
use palisade_core::net::Family;
use palisade_lab::network::LabNetwork;
use palisade_lab::packet::ProbePayload;
use palisade_lab::topology::{Location, NodeSpec, PodSpec, Topology};
use palisade_lab::wire::{Probe, Wire};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::bytes::{HONEST_PROTOCOLS, SPOOFED_PROTOCOLS};
use crate::agents::Agent;
use crate::ip::ip;

/// A pod's node, and the route to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pod {
    /// The index of its node.
    pub(super) node: usize,
    /// Its bridge, or `None` if it is routed.
    pub(super) bridge: Option<u8>,
}

const fn routed(node: usize) -> Pod {
    Pod { node, bridge: None }
}

const fn bridged(node: usize, bridge: u8) -> Pod {
    Pod {
        node,
        bridge: Some(bridge),
    }
}

/// All pods.
pub(super) const PODS: [Pod; 8] = [
    routed(0),
    routed(0),
    bridged(0, 0),
    bridged(0, 0),
    bridged(0, 1),
    routed(1),
    bridged(1, 0),
    bridged(1, 0),
];
/// The number of nodes.
pub(super) const NODES: usize = 2;

/// The gateway of pods in the lab, an address of no interface.
pub(super) const LAB_GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// Whether two pods are on one bridge.
pub(super) fn share_bridge(one: usize, other: usize) -> bool {
    match (PODS.get(one), PODS.get(other)) {
        (Some(one), Some(other)) => one.bridge.is_some() && one == other,
        _ => false,
    }
}

/// An address of the node's block: `number` among the routed pods, or on a bridge.
pub(super) fn block_address(node: usize, bridge: Option<u8>, number: u8, family: Family) -> IpAddr {
    // There are two nodes and two bridges.
    let node = node as u8 + 1;
    let bridge = bridge.map_or(0, |it| it + 1);
    match family {
        Family::V4 => Ipv4Addr::new(10, 0, node, 64 * bridge + number).into(),
        Family::V6 => {
            let (node, bridge) = (u16::from(node), u16::from(bridge));
            Ipv6Addr::new(0xfd00, node, 0, 0, bridge, 0, 0, number.into()).into()
        }
    }
}

/// The address of a node's bridge: the last host address of its IPv4 subnet.
pub(super) fn bridge_address(node: usize, bridge: u8, family: Family) -> IpAddr {
    block_address(node, Some(bridge), 62, family)
}

/// The address of a location.
pub(super) fn address(place: Location, family: Family) -> IpAddr {
    match place {
        Location::Pod(pod) => {
            let Pod { node, bridge } = PODS.get(pod).copied().unwrap_or(routed(0));
            block_address(node, bridge, pod as u8 + 1, family)
        }
        Location::Node(node) => match family {
            Family::V4 => Ipv4Addr::new(192, 0, 2, node as u8 + 1).into(),
            Family::V6 => Ipv6Addr::new(0xfd00, 0xff, 0, 0, 0, 0, 0, node as u16 + 1).into(),
        },
        Location::Outside => match family {
            Family::V4 => Ipv4Addr::new(203, 0, 113, 1).into(),
            Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
        },
    }
}

/// The nodes, their agents, and the sockets in all locations.
#[derive(Debug)]
pub(super) struct Cluster {
    /// The sockets.
    pub(super) wire: Wire,
    _agents: Vec<Agent>,
    _files: TempDir,
}

impl Cluster {
    /// Builds the nodes, and starts an agent on each with an option `--false-sender`.
    pub(super) fn build(palisade: &Path, false_sender: &str) -> Result<Cluster> {
        let both = |place| Family::BOTH.map(|family| address(place, family)).to_vec();
        let topology = Topology {
            nodes: (0..NODES)
                .map(|node| NodeSpec {
                    addresses: both(Location::Node(node)),
                })
                .collect(),
            pods: PODS
                .iter()
                .enumerate()
                .map(|(pod, it)| PodSpec {
                    node: it.node,
                    addresses: both(Location::Pod(pod)),
                })
                .collect(),
            outside: both(Location::Outside),
        };
        let network =
            LabNetwork::build(&topology, &|_| {}).context("cannot build the namespaces")?;
        for node in 0..NODES {
            prepare(&network, node).with_context(|| format!("node {node}"))?;
        }
        let mut wire = Wire::open(&network)?;
        listen(&mut wire)?;
        let files = TempDir::new()?;
        let source = files.path().join("objects");
        fs::create_dir(&source)?;
        fs::write(source.join("all.json"), objects().to_string())?;
        let mut agents = Vec::new();
        for node in 0..NODES {
            let args = [
                format!("--node={}", name(node)),
                format!("--source={}", source.display()),
                format!("--false-sender={false_sender}"),
            ];
            let log = files.path().join(format!("log{node}"));
            agents.push(Agent::start(palisade, &network, node, &args, log)?);
        }
        for (node, agent) in agents.iter().enumerate() {
            agent.wait(&network, node)?;
        }
        Ok(Cluster {
            wire,
            _agents: agents,
            _files: files,
        })
    }

    /// The number of routes of nodes and pods that a redirect has changed.
    pub(super) fn redirected(&self) -> Result<u64> {
        let mut count = 0;
        let nodes = (0..NODES).map(Location::Node);
        for place in nodes.chain((0..PODS.len()).map(Location::Pod)) {
            let cache = self.network().run_in(place, || ip("route show cache"))??;
            count += cache.matches("redirected").count() as u64;
        }
        Ok(count)
    }

    /// The namespaces.
    pub(super) fn network(&self) -> &LabNetwork {
        self.wire.world()
    }
}

/// Opens sockets for all protocols on nodes and outside: they listen from the first probe on.
fn listen(wire: &mut Wire) -> Result<()> {
    let locations = (0..NODES).map(Location::Node).chain([Location::Outside]);
    let mut probes = Vec::new();
    for place in locations {
        for protocol in HONEST_PROTOCOLS.into_iter().chain(SPOOFED_PROTOCOLS) {
            probes.extend(Family::BOTH.map(|family| Probe {
                from: Location::Pod(0),
                source: address(Location::Pod(0), family),
                destination: address(place, family),
                carried: ProbePayload::Other { protocol },
                source_port: None,
            }));
        }
    }
    wire.probe(&probes, &|_| {})?;
    Ok(())
}

fn name(node: usize) -> String {
    format!("n{}", node + 1)
}

/// Attaches pods to the node's bridges, and passes bridged packets to netfilter.
fn prepare(network: &LabNetwork, node: usize) -> Result<()> {
    let on_bridges = PODS
        .iter()
        .enumerate()
        .filter_map(|(pod, it)| Some((pod, it.bridge.filter(|_| it.node == node)?)));
    let on_bridges: Vec<(usize, u8)> = on_bridges.collect();
    let mut bridges: Vec<u8> = on_bridges.iter().map(|(_, bridge)| *bridge).collect();
    bridges.dedup();
    network.in_node(node, || -> Result<()> {
        for (setting, value) in [
            ("bridge/bridge-nf-call-iptables", "1"),
            ("bridge/bridge-nf-call-ip6tables", "1"),
            // Connection tracking then accepts any sequence number: injection needs no guess.
            ("netfilter/nf_conntrack_tcp_be_liberal", "1"),
        ] {
            let path = format!("/proc/sys/net/{setting}");
            fs::write(&path, value).with_context(|| format!("cannot set {path}"))?;
        }
        for bridge in bridges {
            ip(&format!("link add bridge{bridge} type bridge"))?;
            ip(&format!("link set bridge{bridge} up"))?;
            for (family, length) in Family::BOTH.into_iter().zip([26, 80]) {
                let own = bridge_address(node, bridge, family);
                let once = if own.is_ipv6() { " nodad" } else { "" };
                ip(&format!("addr add {own}/{length} dev bridge{bridge}{once}"))?;
            }
        }
        for (pod, bridge) in on_bridges {
            let interface = network.pod_interface(pod);
            let hardware = network.pod_hardware(pod).map(|it| format!("{it:02x}"));
            let hardware = hardware.join(":");
            ip(&format!("link set {interface} master bridge{bridge}"))?;
            for family in Family::BOTH {
                let address = address(Location::Pod(pod), family);
                let length = if address.is_ipv4() { 32 } else { 128 };
                ip(&format!("route del {address}/{length}"))?;
                ip(&format!(
                    "neigh replace {address} lladdr {hardware} dev bridge{bridge}"
                ))?;
            }
        }
        Ok(())
    })?
}

/// The nodes and pods, without a policy: only the check of senders drops packets.
fn objects() -> Value {
    let mut items = vec![json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"},
    })];
    for node in 0..NODES {
        let addresses = Family::BOTH
            .map(|it| json!({"type": "InternalIP", "address": address(Location::Node(node), it)}));
        let block = node + 1;
        items.push(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name(node)},
            "spec": {"podCIDRs": [format!("10.0.{block}.0/24"), format!("fd00:{block}::/64")]},
            "status": {"addresses": addresses},
        }));
    }
    for (pod, it) in PODS.iter().enumerate() {
        let addresses = Family::BOTH.map(|it| json!({"ip": address(Location::Pod(pod), it)}));
        items.push(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("p{pod}"), "namespace": "x"},
            "spec": {"nodeName": name(it.node), "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running", "podIPs": addresses},
        }));
    }
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}
