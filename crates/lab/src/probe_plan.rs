//! Finds the packet that shows the verdict of a flow: its sender, its address and port, and the
//! translations that it needs on the nodes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use palisade_core::EndName;
use palisade_core::answer::{FlowAnswer, Transport};
use palisade_core::decide::Identity;
use palisade_core::model::{BackendTarget, Cluster, NodeId, PodId, ServiceId};
use palisade_core::net::{Family, Protocol};
use palisade_core::query::{FlowQuery, PortQuery};

use crate::complete::{CompletedCluster, OmissionReason};
use crate::services::Entry;
use crate::topology::{Location, is_routable};

/// A packet that shows the verdict of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbePlan {
    /// The location that sends it.
    pub from: Location,
    /// The location where it must arrive.
    pub to: Location,
    /// The source address.
    pub source: IpAddr,
    /// The address that is dialled.
    pub destination: IpAddr,
    /// The transport, with the port that is dialled.
    pub carried: Transport,
    /// A source port that chooses the backend, where that matters.
    pub source_port: Option<u16>,
}

/// The way to measure a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// By a packet.
    Packet(ProbePlan),
    /// None: it never leaves the pod, and no rule can drop it.
    Inside(usize),
}

/// Why no packet can show a flow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unprobeable {
    /// A pod was not built.
    #[error("{0} is not in the lab: {1}")]
    LeftOut(String, OmissionReason),
    /// Source and destination are outside the cluster.
    #[error("source and destination are outside the cluster")]
    Outside,
    /// An address that no packet can be routed to.
    #[error("packets cannot be routed to {0}")]
    Unroutable(IpAddr),
    /// A source or destination has a name, but no known address.
    #[error("the address of {0} is unknown")]
    NoAddress(String),
    /// A node's address belongs to a pod.
    #[error("the address of {0} belongs to another endpoint")]
    AddressTaken(String),
    /// No packet of it can begin a connection.
    #[error("the flow begins no connection, or never leaves its link")]
    Unplaced,
    /// The ports of a node for translations are used up.
    #[error("the lab has too few ports for the flows through this node")]
    TooMany,
    /// It has no port to translate.
    #[error("a flow without ports cannot pass through a node or a Service")]
    Portless,
}

/// An address and a port.
type Backend = (IpAddr, u16);

/// The translations on the nodes: those of Services, and entries for flows that pass through a
/// node.
#[derive(Clone, Debug, Default)]
pub struct NodeEntries {
    /// The entries of every node.
    pub everywhere: Vec<Entry>,
    /// The entries of single nodes.
    pub of_nodes: BTreeMap<usize, Vec<Entry>>,
    /// For each backend of a Service the entry that leads to it, and its index there.
    leading: HashMap<(ServiceId, Protocol, Backend), (usize, usize)>,
    made: HashMap<(usize, Protocol, IpAddr, u16, bool), u16>,
    /// The number of taken ports of a node, by protocol and family.
    taken: HashMap<(usize, Protocol, Family), u16>,
    /// Ports of queries, which must not be translated.
    queried: HashSet<u16>,
    /// Spreads source ports: connections must not share one.
    turn: u16,
}

/// The ports of a node for the lab's own translations: below the source ports of probes.
const ENTRY_PORTS: std::ops::Range<u16> = 10_000..30_000;

/// Plans the probes of flows.
#[derive(Debug)]
pub struct ProbePlanner<'f, 'a> {
    furnished: &'f CompletedCluster<'a>,
    places: HashMap<IpAddr, Location>,
    /// The translations on the nodes.
    pub entries: NodeEntries,
}

impl<'f, 'a> ProbePlanner<'f, 'a> {
    /// Makes a planner for a cluster.
    pub fn new(completed: &'f CompletedCluster<'a>) -> ProbePlanner<'f, 'a> {
        let places: HashMap<IpAddr, Location> = completed.topology.addresses().collect();
        let entries = services(&completed.cluster, &places);
        ProbePlanner {
            furnished: completed,
            places,
            entries,
        }
    }

    /// Keeps the ports of queries free of translations.
    pub fn keep_free<'q>(&mut self, queries: impl IntoIterator<Item = &'q FlowQuery>) {
        let ports = queries.into_iter().filter_map(|query| match query.port {
            PortQuery::Number(_, port) => Some(port.get()),
            PortQuery::Name(..)
            | PortQuery::Icmp
            | PortQuery::Icmp6(_)
            | PortQuery::Ip(_)
            | PortQuery::Any => None,
        });
        self.entries.queried.extend(ports);
    }

    /// Returns how to measure a flow.
    pub fn means(&mut self, single: &FlowAnswer) -> Result<ProbeKind, Unprobeable> {
        let through = single.entry.map(|node| node.0 as usize);
        if !begins(single.transport) {
            return Err(Unprobeable::Unplaced);
        }
        let (to, destination) = self.destination(single)?;
        let family = single.family.unwrap_or(Family::of(destination));
        let (from, source) = self.source(single, to, through.is_some(), family)?;
        let translated = single.flow.via_service;
        if let (Location::Pod(pod), true, false) = (from, from == to, translated) {
            return Ok(ProbeKind::Inside(pod));
        }
        if (from, to) == (Location::Outside, Location::Outside) {
            return Err(Unprobeable::Outside);
        }
        let mut attempt = ProbePlan {
            from,
            to,
            source,
            destination,
            carried: single.transport,
            source_port: None,
        };
        if let Some(node) = through {
            let masquerade = !self.stays_local(single.via);
            self.through_node(node, masquerade, &mut attempt)?;
        } else if translated {
            match from {
                // Without a node in the query it enters at the node of its destination.
                Location::Outside => {
                    let node = self.furnished.topology.node_of(to);
                    self.through_node(node.ok_or(Unprobeable::Outside)?, false, &mut attempt)?;
                }
                Location::Pod(_) | Location::Node(_) => {
                    self.through_service(single, &mut attempt)?
                }
            }
        }
        Ok(ProbeKind::Packet(attempt))
    }

    fn stays_local(&self, service: Option<ServiceId>) -> bool {
        let services = &self.furnished.cluster.services;
        let service = service.and_then(|id| services.get(id.0 as usize));
        service.is_some_and(|service| service.external_traffic_local)
    }

    fn name(&self, end: EndName) -> String {
        end.text(&self.furnished.cluster)
    }

    /// Returns the location of a pod with a network of its own.
    fn pod(&self, id: PodId) -> Result<Location, Unprobeable> {
        if let Some(index) = self.furnished.pod_index(id) {
            return Ok(Location::Pod(index));
        }
        let mut left_out = self.furnished.left_out.iter();
        let reason = left_out
            .find(|(it, _)| *it == id)
            .map(|(_, reason)| *reason);
        let name = self.furnished.cluster.pod_name(id);
        match reason {
            Some(reason) => Err(Unprobeable::LeftOut(name, reason)),
            None => Err(Unprobeable::NoAddress(name)),
        }
    }

    fn destination(&self, single: &FlowAnswer) -> Result<(Location, IpAddr), Unprobeable> {
        let name = || self.name(single.destination);
        if let EndName::Address(address) = single.destination
            && address.is_loopback()
        {
            // Loopback is the source itself.
            return match single.flow.source.identity {
                Identity::Pod(id) => Ok((self.pod(id)?, address)),
                Identity::Node(_) | Identity::External => Err(Unprobeable::Unroutable(address)),
            };
        }
        let built = match single.flow.destination.identity {
            Identity::Pod(id) => self.furnished.pod_index(id),
            Identity::Node(_) | Identity::External => None,
        };
        // If only the address of the source is unknown, any address of this pod shows the flow.
        let built = built.and_then(|index| self.furnished.topology.pods.get(index));
        let any = built.and_then(|pod| pod.addresses.first().copied());
        let address = single.destination_address.or(any);
        let address = address.ok_or_else(|| Unprobeable::NoAddress(name()))?;
        if let Identity::Pod(id) = single.flow.destination.identity {
            let place = self.pod(id)?;
            if self.places.get(&address) != Some(&place) {
                return Err(Unprobeable::AddressTaken(name()));
            }
            return Ok((place, address));
        }
        self.other(single.destination, address)
    }

    /// Returns the location of an endpoint that is no pod.
    fn other(&self, end: EndName, address: IpAddr) -> Result<(Location, IpAddr), Unprobeable> {
        match (end, self.places.get(&address)) {
            (EndName::Node(NodeId(node)), Some(Location::Node(index)))
                if *index != node as usize =>
            {
                Err(Unprobeable::AddressTaken(self.name(end)))
            }
            (_, Some(place @ (Location::Node(_) | Location::Outside))) => Ok((*place, address)),
            (_, Some(Location::Pod(_))) => Err(Unprobeable::AddressTaken(self.name(end))),
            (_, None) if !is_routable(address) => Err(Unprobeable::Unroutable(address)),
            (_, None) => Err(Unprobeable::NoAddress(self.name(end))),
        }
    }

    fn source(
        &self,
        single: &FlowAnswer,
        to: Location,
        through_node: bool,
        family: Family,
    ) -> Result<(Location, IpAddr), Unprobeable> {
        let name = || self.name(single.source);
        let no_address = || Unprobeable::NoAddress(name());
        match (single.source, single.flow.source.identity) {
            // The packet arrives with the node's address. It is sent with the client's.
            (EndName::Address(address), _) if through_node => self.other(single.source, address),
            (_, Identity::Pod(id)) => {
                let place = self.pod(id)?;
                let address = single.source_address.ok_or_else(no_address)?;
                let own = self.places.get(&address);
                if own != Some(&place) && !address.is_loopback() {
                    return Err(Unprobeable::AddressTaken(name()));
                }
                Ok((place, address))
            }
            // A node's address as the source does not make the node the sender (D130).
            (EndName::Address(address), Identity::Node(_)) => {
                let (place, address) = self.other(single.source, address)?;
                let is_of_its_node = matches!(to, Location::Pod(_))
                    && self.furnished.topology.node_of(to).map(Location::Node) == Some(place);
                let from = if is_of_its_node {
                    Location::Outside
                } else {
                    place
                };
                Ok((from, address))
            }
            (EndName::Node(NodeId(node)), _) => {
                let index = node as usize;
                let spec = self.furnished.topology.nodes.get(index);
                let own = spec.into_iter().flat_map(|spec| &spec.addresses).copied();
                let mut own = own.filter(|it| Family::of(*it) == family);
                // A node without an object has addresses in the lab, but none in the prediction.
                let address = single.source_address.or_else(|| own.next());
                let address = address.ok_or_else(no_address)?;
                self.other(single.source, address)
            }
            (end, Identity::Node(_) | Identity::External) => {
                let address = single.source_address.ok_or_else(no_address)?;
                self.other(end, address)
            }
        }
    }

    /// Leads a probe through a Service that its source dials.
    fn through_service(
        &mut self,
        single: &FlowAnswer,
        attempt: &mut ProbePlan,
    ) -> Result<(), Unprobeable> {
        let Transport::Port(protocol, port) = attempt.carried else {
            return Err(Unprobeable::Portless);
        };
        let backend = (attempt.destination, port.get());
        let known = single.via.and_then(|service| {
            let key = (service, protocol, backend);
            let (entry, index) = *self.entries.leading.get(&key)?;
            Some((self.entries.everywhere.get(entry)?, index))
        });
        let Some((entry, index)) = known else {
            // The Service does not lead to this backend in the lab: a translation on the node
            // stands in for it.
            let node = self.furnished.topology.node_of(attempt.from);
            return self.through_node(node.ok_or(Unprobeable::Outside)?, false, attempt);
        };
        let bits = entry.port_bits();
        let index = u16::try_from(index).unwrap_or(0);
        let (address, port) = (entry.address, entry.port);
        attempt.source_port = Some(self.entries.source_port(bits, index));
        attempt.destination = address;
        if let Ok(port) = port.try_into() {
            attempt.carried = Transport::Port(protocol, port);
        }
        Ok(())
    }

    /// Leads a probe through a port of a node.
    fn through_node(
        &mut self,
        node: usize,
        masquerade: bool,
        attempt: &mut ProbePlan,
    ) -> Result<(), Unprobeable> {
        let Transport::Port(protocol, port) = attempt.carried else {
            return Err(Unprobeable::Portless);
        };
        let family = Family::of(attempt.destination);
        let nodes = &self.furnished.topology.nodes;
        let addresses = nodes.get(node).into_iter().flat_map(|it| &it.addresses);
        let mut addresses = addresses.filter(|it| Family::of(**it) == family);
        let address = *addresses.next().ok_or(Unprobeable::Outside)?;
        let backend = (attempt.destination, port.get());
        let entry_port = self
            .entries
            .on_node(node, address, protocol, backend, masquerade)
            .ok_or(Unprobeable::TooMany)?;
        attempt.destination = address;
        if let Ok(port) = entry_port.try_into() {
            attempt.carried = Transport::Port(protocol, port);
        }
        Ok(())
    }
}

impl NodeEntries {
    /// Returns a port of a node that leads to a backend. `None`: all are taken.
    fn on_node(
        &mut self,
        node: usize,
        address: IpAddr,
        protocol: Protocol,
        backend: (IpAddr, u16),
        masquerade: bool,
    ) -> Option<u16> {
        let key = (node, protocol, backend.0, backend.1, masquerade);
        if let Some(known) = self.made.get(&key) {
            return Some(*known);
        }
        let taken = self
            .taken
            .entry((node, protocol, Family::of(address)))
            .or_default();
        let mut free = ENTRY_PORTS.skip(usize::from(*taken));
        let port = free.find(|port| !self.queried.contains(port))?;
        *taken = port - ENTRY_PORTS.start + 1;
        self.made.insert(key, port);
        self.of_nodes.entry(node).or_default().push(Entry {
            address,
            protocol,
            port,
            backends: vec![backend],
            masquerade,
        });
        Some(port)
    }

    /// Returns a source port whose low bits choose a backend.
    fn source_port(&mut self, bits: u16, backend: u16) -> u16 {
        let step = bits.saturating_add(1);
        let turns = 28_000 / step;
        self.turn = (self.turn + 1) % turns.max(1);
        // 32,768 is a multiple of every step: the low bits are those of the backend.
        32_768_u16
            .saturating_add(self.turn.saturating_mul(step))
            .saturating_add(backend)
    }

    /// Returns the translations of a node.
    pub fn of_node(&self, node: usize) -> Vec<Entry> {
        let own = self.of_nodes.get(&node).into_iter().flatten();
        self.everywhere.iter().chain(own).cloned().collect()
    }
}

/// Reports whether a packet of a transport can begin a connection. ICMP errors and replies cannot,
/// nor can on-link messages, nor protocols that only wrap others.
fn begins(carried: Transport) -> bool {
    match carried {
        Transport::Port(..) | Transport::Icmp | Transport::Icmp6(None | Some(128)) => true,
        Transport::Icmp6(Some(_)) => false,
        Transport::Ip(number) => !matches!(number, 0 | 1 | 33 | 43 | 44 | 58 | 60 | 136 | 255),
    }
}

/// Returns the entries of Services. Of two with the same address and port the first one counts.
fn services(cluster: &Cluster<'_>, places: &HashMap<IpAddr, Location>) -> NodeEntries {
    let mut entries = NodeEntries::default();
    let mut dialled = HashMap::new();
    for (index, service) in cluster.services.iter().enumerate() {
        let id = ServiceId(u32::try_from(index).unwrap_or(u32::MAX));
        if service.is_headless || service.is_external_name {
            continue;
        }
        let addresses = service.cluster_addresses.iter();
        for address in addresses.chain(&service.external_addresses) {
            // An address of a pod or node is not translated: packets to that endpoint must reach
            // it.
            if places.contains_key(address) || !is_routable(*address) {
                continue;
            }
            for port in &service.ports {
                let number = port.port.get();
                let key = (*address, port.protocol, number);
                let backends = port.backends.iter().flat_map(|backend| {
                    let own = match backend.target {
                        BackendTarget::Pod(pod) => cluster
                            .pods
                            .get(pod.0 as usize)
                            .map_or(Vec::new(), |pod| pod.addresses.clone()),
                        BackendTarget::Address(address) => vec![address],
                    };
                    // A backend is the first address of its pod in a family.
                    let family = Family::of(*address);
                    let own = own.into_iter().find(|it| Family::of(*it) == family);
                    own.map(|own| (own, backend.port.get()))
                });
                let mut backends: Vec<(IpAddr, u16)> = backends.collect();
                backends.dedup();
                if backends.is_empty() || dialled.contains_key(&key) {
                    continue;
                }
                let entry = entries.everywhere.len();
                dialled.insert(key, entry);
                for (index, backend) in backends.iter().enumerate() {
                    let key = (id, port.protocol, *backend);
                    entries.leading.entry(key).or_insert((entry, index));
                }
                entries.everywhere.push(Entry {
                    address: *address,
                    protocol: port.protocol,
                    port: number,
                    backends,
                    masquerade: false,
                });
            }
        }
    }
    entries
}
