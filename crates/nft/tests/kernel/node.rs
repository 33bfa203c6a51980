//! A node with three pods in namespaces of their own, and packets between them and the outside.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::process::Command;

use palisade_core::net::Family;
use palisade_core::plan::{Plan, PodChains};
use palisade_lab::network::LabNetwork;
use palisade_lab::packet::read::ReceivedPacket;
use palisade_lab::packet::{ProbePayload, ProbeSpec, datagram};
use palisade_lab::topology::{Location, NodeSpec, PodSpec, Topology};
use palisade_lab::wire::Wire;
use palisade_nft::node::{Generation, NodeOptions, SenderChecks, Settings};
use palisade_nft::ruleset::{Interface, Ruleset};
use palisade_nft::{Conntrack, Kernel};

pub(crate) const A: Location = Location::Pod(0);
pub(crate) const B: Location = Location::Pod(1);
pub(crate) const C: Location = Location::Pod(2);
pub(crate) const NODE: Location = Location::Node(0);
pub(crate) const OUTSIDE: Location = Location::Outside;

/// The address of a place, in each family.
pub(crate) fn address(place: Location, family: Family) -> IpAddr {
    let [ipv4, ipv6] = match place {
        A => ["10.0.1.1", "fd00:1::1"],
        B => ["10.0.1.2", "fd00:1::2"],
        C => ["10.0.1.3", "fd00:1::3"],
        OUTSIDE => ["203.0.113.9", "2001:db8::9"],
        Location::Node(_) | Location::Pod(_) => ["192.0.2.1", "fd00:ff::1"],
    };
    let text = match family {
        Family::V4 => ipv4,
        Family::V6 => ipv6,
    };
    text.parse().unwrap()
}

fn addresses(place: Location) -> Vec<IpAddr> {
    Family::BOTH.map(|family| address(place, family)).to_vec()
}

/// A plan in which no policy selects any of the pods.
pub(crate) fn open_plan() -> Plan {
    let pods = [A, B, C].into_iter().flat_map(addresses);
    Plan {
        pods: pods.map(|pod| (pod, PodChains::default())).collect(),
        ..Plan::default()
    }
}

/// Whether the source address is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checks {
    /// It is not.
    None,
    /// As the agent has it: the interface to the outside is known to lead elsewhere.
    Known,
    /// The same of every packet.
    Every,
    /// Before the agent knows which interfaces lead elsewhere.
    Unknown,
}

/// The settings of the node.
pub(crate) fn settings(checks: Checks) -> Settings {
    let outside = Interface::new("uplink").unwrap();
    let elsewhere = match checks {
        Checks::None => None,
        Checks::Known | Checks::Every => Some(BTreeSet::from([outside])),
        Checks::Unknown => Some(BTreeSet::new()),
    };
    let every = checks == Checks::Every;
    let checked = elsewhere.map(|elsewhere| SenderChecks::Checked { elsewhere, every });
    let options = NodeOptions {
        senders: checked.unwrap_or(SenderChecks::Trusted),
        ..NodeOptions::default()
    };
    let settings = Settings::of_node(Generation::FIRST, &options);
    assert_eq!(settings.checks_senders(), checks != Checks::None);
    settings
}

/// The node.
pub(crate) struct Node {
    world: LabNetwork,
    pub(crate) wire: Wire,
    pub(crate) kernel: Kernel,
    conntrack: Conntrack,
    last_id: u32,
}

impl Node {
    /// Builds it, without any rules.
    pub(crate) fn build() -> Node {
        let pod = |place| PodSpec {
            node: 0,
            addresses: addresses(place),
        };
        let topology = Topology {
            nodes: vec![NodeSpec {
                addresses: addresses(NODE),
            }],
            pods: [A, B, C].map(pod).to_vec(),
            outside: addresses(OUTSIDE),
        };
        let world = LabNetwork::build(&topology, &|_| {}).unwrap();
        assert_eq!(world.uplink_interface(), "uplink");
        let open = || (Kernel::open().unwrap(), Conntrack::open().unwrap());
        let (kernel, conntrack) = world.in_node(0, open).unwrap();
        Node {
            world: world.clone(),
            wire: Wire::open(&world).unwrap(),
            kernel,
            conntrack,
            last_id: 0,
        }
    }

    /// Installs a ruleset, and deletes all connections.
    pub(crate) fn install(&mut self, ruleset: &Ruleset) {
        self.kernel.install(ruleset).unwrap();
        self.conntrack.flush().unwrap();
    }

    /// Runs the program `ip` in the namespace of the node.
    pub(crate) fn ip(&self, words: &str) {
        let ask = || Command::new("ip").args(words.split(' ')).status();
        assert!(self.world.in_node(0, ask).unwrap().unwrap().success());
    }

    /// Has packets of the node's bridges shown to netfilter.
    pub(crate) fn show_bridged(&self) {
        let show = || {
            for tables in ["iptables", "ip6tables"] {
                let path = format!("/proc/sys/net/bridge/bridge-nf-call-{tables}");
                std::fs::write(path, "1").unwrap();
            }
        };
        self.world.in_node(0, show).unwrap();
    }

    /// A number that no packet has had.
    pub(crate) fn take_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    /// Sends packets from a place. Returns the received packets, with their places.
    pub(crate) fn send(
        &mut self,
        from: Location,
        packets: &[Vec<u8>],
    ) -> Vec<(Location, ReceivedPacket)> {
        let packets = packets.iter().map(Vec::as_slice);
        self.wire.exchange(from, packets).unwrap()
    }

    /// Whether the first packet of a new flow of UDP gets from one place to another.
    pub(crate) fn passes(
        &mut self,
        from: Location,
        source: IpAddr,
        to: Location,
        port: u16,
    ) -> bool {
        let id = self.take_id();
        let packet = datagram(&flow(source, to, port, id), 16).unwrap();
        let seen = self.send(from, &[packet]);
        seen.iter()
            .any(|(place, seen)| *place == to && seen.id == Some(id))
    }
}

/// A packet of UDP to a place, of a flow that belongs to its number.
pub(crate) fn flow(source: IpAddr, to: Location, port: u16, id: u32) -> ProbeSpec {
    ProbeSpec {
        source,
        destination: address(to, Family::of(source)),
        carried: ProbePayload::Udp { port },
        source_port: 20_000 + id as u16,
        id,
    }
}
