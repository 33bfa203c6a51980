//! Services as destinations: which Service a client dials, and the backends behind its ports.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU16;

use crate::flow_end::{self, EndCandidate};
use crate::model::{Backend, BackendTarget, Cluster, Service, ServiceId, ServicePort};
use crate::net::{Family, Protocol};
use crate::program::Program;
use crate::query::PortQuery;

/// The Services of a cluster, by what clients dial: an address of the Service, or a port of every
/// node.
#[derive(Debug)]
pub struct Services {
    by_address: HashMap<IpAddr, ServiceId>,
    by_node_port: HashMap<(Protocol, NonZeroU16), ServiceId>,
}

impl Services {
    pub(super) fn new(cluster: &Cluster<'_>) -> Services {
        let mut by_address = HashMap::new();
        let mut by_node_port = HashMap::new();
        for (index, service) in cluster.services.iter().enumerate() {
            let id = ServiceId(u32::try_from(index).unwrap_or(u32::MAX));
            let addresses = service.cluster_addresses.iter();
            for address in addresses.chain(&service.external_addresses) {
                // If two Services claim an address, the first by namespace and name gets it. API
                // servers allocate cluster addresses only once; files may repeat them.
                by_address.entry(address.to_canonical()).or_insert(id);
            }
            for port in &service.ports {
                if let Some(number) = port.node_port {
                    by_node_port.entry((port.protocol, number)).or_insert(id);
                }
            }
        }
        Services {
            by_address,
            by_node_port,
        }
    }

    /// Returns the Service that has an address.
    pub(super) fn at(&self, address: IpAddr) -> Option<ServiceId> {
        self.by_address.get(&address).copied()
    }

    /// Returns the Service to which a port of every node leads.
    pub(super) fn at_node_port(&self, port: &PortQuery) -> Option<ServiceId> {
        match port {
            PortQuery::Number(protocol, number) => {
                self.by_node_port.get(&(*protocol, *number)).copied()
            }
            PortQuery::Name(..)
            | PortQuery::Icmp
            | PortQuery::Icmp6(_)
            | PortQuery::Ip(_)
            | PortQuery::Any => None,
        }
    }

    /// Returns the node ports of a protocol.
    pub(super) fn node_ports(&self, protocol: Protocol) -> impl Iterator<Item = NonZeroU16> {
        let ports = self.by_node_port.keys();
        let ports = ports.filter(move |(of, _)| *of == protocol);
        ports.map(|(_, number)| *number)
    }
}

/// The ports of a Service that a client can dial at the destination of a query.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialed {
    /// A name or an address of the Service: its own ports.
    Service,
    /// The same, or a node port: from outside, through a node.
    Either,
    /// An address of a node: only node ports lead to the Service.
    NodePort,
}

/// Returns the families in which clients dial a Service.
pub(crate) fn service_families(service: &Service<'_>) -> Vec<Family> {
    let addresses = &service.cluster_addresses;
    let mut families = Family::BOTH.to_vec();
    // A headless Service has no cluster address; its backends decide the family.
    if !addresses.is_empty() {
        families.retain(|family| addresses.iter().any(|it| Family::of(*it) == *family));
    }
    families
}

/// Returns the backends of a port of a Service, each with its own port (D78).
pub(crate) fn backends<'c>(
    cluster: &'c Cluster<'c>,
    program: &Program,
    service: &Service<'_>,
    offered: &ServicePort<'_>,
) -> Vec<(EndCandidate<'c>, NonZeroU16)> {
    let backing = |backend: &Backend| {
        let candidate = match backend.target {
            BackendTarget::Pod(id) => flow_end::pod(cluster, program, id),
            BackendTarget::Address(it) => flow_end::at(cluster, program, it),
        };
        // Clients of a headless Service dial its backends directly: nothing is translated.
        let number = if service.is_headless {
            offered.port
        } else {
            backend.port
        };
        (candidate, number)
    };
    offered.backends.iter().map(backing).collect()
}

/// Returns the port of a Service that a client dials.
pub(super) fn offered<'s, 'a>(
    service: &'s Service<'a>,
    port: &PortQuery,
    dialed: Dialed,
) -> Option<&'s ServicePort<'a>> {
    let mut ports = service.ports.iter();
    match port {
        PortQuery::Number(protocol, number) => ports.find(|it| {
            let is_port = dialed != Dialed::NodePort && it.port == *number;
            let is_node_port = dialed != Dialed::Service && it.node_port == Some(*number);
            it.protocol == *protocol && (is_port || is_node_port)
        }),
        PortQuery::Name(protocol, name) => {
            ports.find(|it| it.protocol == *protocol && it.name == Some(name))
        }
        PortQuery::Icmp | PortQuery::Icmp6(_) | PortQuery::Ip(_) | PortQuery::Any => None,
    }
}

pub(super) fn offers(service: &Service<'_>) -> String {
    let port =
        |it: &ServicePort<'_>| format!("{}/{}", it.protocol.name().to_ascii_lowercase(), it.port);
    let ports: Vec<String> = service.ports.iter().map(port).collect();
    if ports.is_empty() {
        return "none".to_owned();
    }
    ports.join(", ")
}
