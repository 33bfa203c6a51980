//! The engine's verdicts for the flows of a simulation, for the objects of one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;

use palisade_core::decide::{Flow, FlowEnd, Identity, Traffic};
use palisade_core::model::{Cluster, PodId};
use palisade_core::net::{Cidr, Family, Protocol};
use palisade_core::policy::{Direction, Verdict};
use palisade_core::program::{Owner, Program};
use palisade_nft::ruleset::{Point, l4};

use super::catalog::Catalog;
use super::evaluation::Packet;
use palisade_generate::Rng;

/// The simulated node.
pub(super) const NODE: &str = "n1";

/// Its own address.
pub(super) const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// The expected verdicts, in the order of the flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExpectedVerdicts {
    pub(super) allowed: Vec<bool>,
    /// The pods of the addresses.
    owners: BTreeMap<IpAddr, String>,
}

/// The treatment of addresses without a known pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodBlocks {
    /// Allowed.
    Open,
    /// Denied within the blocks of the Node object.
    OfNode,
    /// Denied within these blocks.
    Given(Vec<Cidr>),
}

impl ExpectedVerdicts {
    /// The verdicts without a ruleset.
    pub(super) fn open(flows: &[Packet]) -> ExpectedVerdicts {
        ExpectedVerdicts {
            allowed: vec![true; flows.len()],
            owners: BTreeMap::new(),
        }
    }

    /// No flow is certainly allowed.
    pub(super) fn closed(flows: &[Packet]) -> ExpectedVerdicts {
        ExpectedVerdicts {
            allowed: vec![false; flows.len()],
            owners: BTreeMap::new(),
        }
    }

    pub(super) fn of(
        cluster: &Cluster<'_>,
        program: &Program,
        blocks: &PodBlocks,
        flows: &[Packet],
    ) -> ExpectedVerdicts {
        let node = cluster.nodes.iter().find(|it| it.name == NODE);
        let blocks: &[Cidr] = match blocks {
            PodBlocks::Open => &[],
            PodBlocks::OfNode => node.map_or(&[], |it| it.pod_cidrs.as_slice()),
            PodBlocks::Given(blocks) => blocks,
        };
        let evaluator = NodeEvaluator {
            cluster,
            program,
            blocks,
        };
        let allowed = flows.iter().map(|flow| evaluator.allows(flow));
        let ends: BTreeSet<IpAddr> = flows.iter().flat_map(|it| [it.client, it.server]).collect();
        let owners = ends.iter().filter_map(|end| match program.owner(*end)? {
            Owner::Pod(pod) => Some((*end, cluster.pod_name(pod))),
            Owner::Node(_) => None,
        });
        ExpectedVerdicts {
            allowed: allowed.collect(),
            owners: owners.collect(),
        }
    }

    /// The pods at both ends of a flow.
    pub(super) fn owners(&self, flow: &Packet) -> [Option<String>; 2] {
        [flow.client, flow.server].map(|end| self.owners.get(&end).cloned())
    }

    /// The flows that both allow.
    pub(super) fn and(&self, other: &ExpectedVerdicts) -> ExpectedVerdicts {
        let both = self.allowed.iter().zip(&other.allowed);
        ExpectedVerdicts {
            allowed: both.map(|(one, other)| *one && *other).collect(),
            owners: BTreeMap::new(),
        }
    }

    /// The flows that at least one allows.
    pub(super) fn or(&self, other: &ExpectedVerdicts) -> ExpectedVerdicts {
        let both = self.allowed.iter().zip(&other.allowed);
        ExpectedVerdicts {
            allowed: both.map(|(one, other)| *one || *other).collect(),
            owners: BTreeMap::new(),
        }
    }

    pub(super) fn allows(&self, flow: usize) -> bool {
        self.allowed.get(flow).copied().unwrap_or(false)
    }
}

struct NodeEvaluator<'j> {
    cluster: &'j Cluster<'j>,
    program: &'j Program,
    blocks: &'j [Cidr],
}

impl NodeEvaluator<'_> {
    /// Whether an address belongs to a pod of the node.
    fn is_local(&self, address: IpAddr) -> bool {
        match self.program.owner(address) {
            Some(Owner::Pod(PodId(pod))) => {
                let pod = self.cluster.pods.get(pod as usize);
                pod.is_some_and(|pod| pod.node == Some(NODE))
            }
            Some(Owner::Node(_)) | None => false,
        }
    }

    fn end(&self, address: IpAddr) -> FlowEnd {
        let identity = match self.program.owner(address) {
            Some(Owner::Pod(pod)) => Identity::Pod(pod),
            Some(Owner::Node(node)) => Identity::Node(node),
            None => Identity::External,
        };
        FlowEnd {
            identity,
            address: self.program.address_atom(address),
        }
    }

    /// Evaluates a packet as this node does: egress and ingress of its own pods.
    fn allows(&self, packet: &Packet) -> bool {
        let (client, server) = (self.is_local(packet.client), self.is_local(packet.server));
        for (address, is_local) in [(packet.client, client), (packet.server, server)] {
            if !is_local && self.blocks.iter().any(|block| block.contains(address)) {
                return false;
            }
        }
        let flow = Flow {
            source: self.end(packet.client),
            destination: self.end(packet.server),
            traffic: traffic(packet),
            via_service: true,
            node_local: false,
        };
        let allows =
            |direction| self.program.direction(&flow, direction).verdict() == Verdict::Allow;
        let own_node = packet.point == Point::Input;
        (!client || allows(Direction::Egress))
            && (!server || own_node || allows(Direction::Ingress))
    }
}

fn traffic(packet: &Packet) -> Traffic {
    let protocol = match packet.l4 {
        6 => Protocol::Tcp,
        17 => Protocol::Udp,
        132 => Protocol::Sctp,
        _ => return Traffic::Portless,
    };
    NonZeroU16::new(packet.port).map_or(Traffic::Portless, |port| Traffic::Port(protocol, port))
}

/// Addresses of a simulation, at most.
const MAX_ADDRESSES: usize = 9;

/// The flows of a simulation: between some addresses, a few ports each.
pub(super) fn flows(rng: &mut Rng, catalog: &Catalog<'_>) -> Vec<Packet> {
    let mut addresses = catalog.addresses.clone();
    while addresses.len() > MAX_ADDRESSES {
        let place = rng.below(addresses.len() as u64) as usize;
        addresses.remove(place);
    }
    let own = IpAddr::V4(OWN);
    for other in [OWN, [203, 0, 113, 7].into(), [10, 0, 0, 200].into()] {
        addresses.push(IpAddr::V4(other));
    }
    addresses.sort_unstable();
    addresses.dedup();
    let ports = [
        (l4(Protocol::Tcp), 80),
        (l4(Protocol::Tcp), 8080),
        (l4(Protocol::Tcp), 9090),
        (l4(Protocol::Udp), 53),
        (l4(Protocol::Sctp), 9003),
        (47, 0),
    ];
    let mut flows = Vec::new();
    for client in &addresses {
        for server in &addresses {
            if Family::of(*client) != Family::of(*server) {
                continue;
            }
            // Connections that the node itself opens are exempt (D74).
            if *client == own {
                continue;
            }
            let point = if *server == own {
                Point::Input
            } else {
                Point::Forward
            };
            let (l4, port) = rng.pick(&ports);
            for (l4, port) in [(6, 80), (l4, port)] {
                flows.push(Packet {
                    client: *client,
                    server: *server,
                    l4,
                    port,
                    point,
                    established: false,
                    reply: false,
                    mark: 0,
                });
            }
        }
    }
    flows.sort_unstable();
    flows.dedup();
    flows
}
