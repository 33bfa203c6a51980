//! Unfolds a flow query: every source with every destination, after translation.

use std::net::IpAddr;
use std::num::NonZeroU16;

use super::services::{Dialed, backends, offered, offers, service_families};
use super::{FlowEvaluator, Note, QueryError, Transport, is_pod};
use crate::decide::Identity;
use crate::flow_end::{self, Addresses, EndCandidate, EndName};
use crate::model::{Cluster, NodeId, PodId, ServiceId};
use crate::net::{Family, Protocol};
use crate::program::Owner;
use crate::query::{Endpoint, FlowQuery, PortQuery};
use crate::text::{nearest, ticked};

/// One source, one destination and one port, evaluated in every family that fits.
#[derive(Clone, Debug)]
pub(super) struct FlowCase<'c> {
    pub(super) source: EndCandidate<'c>,
    /// The source as the query names it. `source` is a node if outside traffic enters through one.
    pub(super) source_name: EndName,
    pub(super) destination: EndCandidate<'c>,
    pub(super) carried: Transport,
    pub(super) families: Vec<Family>,
    pub(super) via: Option<ServiceId>,
    /// The node through which the flow enters the cluster, if that is known.
    pub(super) entry: Option<NodeId>,
    /// Remarks that do not depend on the verdict, sorted.
    pub(super) notes: Vec<Note>,
    /// Whether a Service translated the destination; a pod that reaches itself is then evaluated
    /// (D77).
    pub(super) is_translated: bool,
    pub(super) node_local: bool,
    /// Whether the destination is the source itself (D139).
    pub(super) is_loopback: bool,
    /// Whether source and destination are the same template, which stands for several pods.
    pub(super) is_template_with_itself: bool,
}

/// A destination after translation.
#[derive(Clone, Debug)]
struct Target<'c> {
    end: EndCandidate<'c>,
    carried: Transport,
    families: Vec<Family>,
    via: Option<ServiceId>,
    is_translated: bool,
    /// Whether the query dials an address that exists only inside the cluster.
    is_inside: bool,
    is_loopback: bool,
}

/// The resolved `via` of a query.
#[derive(Clone, Copy)]
enum Via<'c> {
    Nothing,
    /// Outside traffic enters through a node (D79).
    Node(NodeId, EndCandidate<'c>),
    Service(ServiceId),
}

impl<'c> FlowEvaluator<'c> {
    pub(super) fn unfold(&self, query: &FlowQuery) -> Result<Vec<FlowCase<'c>>, QueryError> {
        let FlowQuery {
            source,
            destination,
            port,
            via,
        } = query;
        let via = match via {
            None => Via::Nothing,
            Some(Endpoint::Node(name)) => {
                let id = self.names.node(name)?;
                Via::Node(id, flow_end::node(self.cluster, id))
            }
            Some(Endpoint::Service(namespace, name)) => {
                Via::Service(self.names.service(namespace, name)?)
            }
            Some(
                Endpoint::Pod(..)
                | Endpoint::Workload(..)
                | Endpoint::Address(_)
                | Endpoint::Block(_),
            ) => return Err(QueryError::Via),
        };
        let sources = self.sources(source)?;
        let via = self.entered(&sources, destination, port, via)?;
        let targets = self.targets(destination, port, &via)?;
        let mut cases = Vec::new();
        for source in &sources {
            for target in &targets {
                cases.extend(self.case(source, target, &via)?);
            }
        }
        // Families are filtered after all cases exist: a pair without a shared family is an error
        // only if no pair has one (D132).
        let may_be = |case: &FlowCase<'_>, family: &Family| {
            case.source.addresses.may_have(*family)
                && (case.is_loopback || case.destination.addresses.may_have(*family))
        };
        for case in &mut cases {
            let mut families = std::mem::take(&mut case.families);
            families.retain(|family| may_be(case, family));
            case.families = families;
        }
        cases.retain(|case| !case.families.is_empty());
        if cases.is_empty() {
            return Err(self.no_family(&sources, &targets, &via));
        }
        Ok(cases)
    }

    /// Returns the Service that a port of a node's address leads to, and the node (D141).
    fn behind_node_port(
        &self,
        destination: &Endpoint,
        port: &PortQuery,
    ) -> Option<(ServiceId, NodeId)> {
        let Endpoint::Address(address) = destination else {
            return None;
        };
        let service = self.services.at_node_port(port)?;
        match self.program.owner(*address) {
            // An address of a Service wins: nodes translate it before anything else.
            Some(Owner::Node(Some(node))) if self.services.at(*address).is_none() => {
                let object = self.cluster.nodes.get(node.0 as usize)?;
                // A host-network pod's other address is not one that the node's ports are open at.
                let is_of_node = object.addresses.contains(address);
                is_of_node.then_some((service, node))
            }
            Some(Owner::Node(_) | Owner::Pod(_)) | None => None,
        }
    }

    /// Adds the node through which a flow from outside enters, if the query dials an address of a
    /// node: the packets arrive there, and nowhere else (D79, D141).
    fn entered(
        &self,
        sources: &[EndCandidate<'_>],
        destination: &Endpoint,
        port: &PortQuery,
        via: Via<'c>,
    ) -> Result<Via<'c>, QueryError> {
        let Some((_, node)) = self.behind_node_port(destination, port) else {
            return Ok(via);
        };
        let is_outside = |it: &EndCandidate<'_>| it.identity == Identity::External;
        match via {
            Via::Nothing if sources.iter().all(is_outside) => {
                Ok(Via::Node(node, flow_end::node(self.cluster, node)))
            }
            Via::Node(other, _) if other != node => Err(QueryError::Via),
            Via::Service(_) => Err(QueryError::Via),
            Via::Nothing | Via::Node(..) => Ok(via),
        }
    }

    /// Returns why no case is left: a node without an address, the protocol's family, or no shared
    /// family.
    fn no_family(
        &self,
        sources: &[EndCandidate<'_>],
        targets: &[Target<'_>],
        via: &Via<'_>,
    ) -> QueryError {
        // A node without an address is reported first: with its object in the input, the other
        // causes may not apply.
        let entry = match via {
            Via::Node(_, entry) => Some(entry),
            Via::Nothing | Via::Service(_) => None,
        };
        let candidates = targets.iter().map(|target| &target.end).chain(sources);
        for candidate in candidates.chain(entry) {
            if let EndName::Node(id) = candidate.name
                && candidate.addresses.is_empty()
                && let Some(node) = self.cluster.nodes.get(id.0 as usize)
            {
                let name = node.name.to_owned();
                return if node.has_object {
                    QueryError::NoAddress(name)
                } else {
                    QueryError::NoNodeObject(name)
                };
            }
        }
        match targets.first().map(|target| target.carried) {
            Some(Transport::Icmp) => QueryError::WrongFamily("icmp", Family::V4),
            Some(Transport::Icmp6(_)) => QueryError::WrongFamily("icmpv6", Family::V6),
            _ => QueryError::NoFamily,
        }
    }

    fn sources(&self, endpoint: &Endpoint) -> Result<Vec<EndCandidate<'c>>, QueryError> {
        match endpoint {
            Endpoint::Service(namespace, name) => {
                let id = self.names.service(namespace, name)?;
                Err(QueryError::FromService(self.cluster.service_name(id)))
            }
            Endpoint::Address(address) if address.is_loopback() => {
                Err(QueryError::Loopback(*address))
            }
            Endpoint::Address(address) => {
                if let Some(id) = self.services.at(*address) {
                    return Err(QueryError::FromService(self.cluster.service_name(id)));
                }
                self.candidates(endpoint)
            }
            Endpoint::Pod(..) | Endpoint::Workload(..) | Endpoint::Node(_) | Endpoint::Block(_) => {
                self.candidates(endpoint)
            }
        }
    }

    /// Returns the candidates of an endpoint that is not a Service.
    pub(super) fn candidates(
        &self,
        endpoint: &Endpoint,
    ) -> Result<Vec<EndCandidate<'c>>, QueryError> {
        let pod = |id: &PodId| flow_end::pod(self.cluster, self.program, *id);
        Ok(match endpoint {
            Endpoint::Pod(namespace, name) => vec![pod(&self.names.pod(namespace, name)?)],
            Endpoint::Workload(namespace, kind, name) => {
                let pods = self.names.workload(namespace, kind, name)?;
                pods.iter().map(pod).collect()
            }
            Endpoint::Node(name) => vec![flow_end::node(self.cluster, self.names.node(name)?)],
            Endpoint::Address(address) if address.is_unspecified() => {
                return Err(QueryError::Unspecified(*address));
            }
            Endpoint::Address(address) => vec![flow_end::at(self.cluster, self.program, *address)],
            Endpoint::Block(block) => {
                let ends = flow_end::within(self.cluster, self.program, *block);
                if ends.is_empty() {
                    return Err(QueryError::NoEndpoint(*block));
                }
                ends
            }
            // `targets` translates Services before it looks up candidates.
            Endpoint::Service(..) => Vec::new(),
        })
    }

    fn targets(
        &self,
        endpoint: &Endpoint,
        port: &PortQuery,
        via: &Via<'c>,
    ) -> Result<Vec<Target<'c>>, QueryError> {
        let dialed = match via {
            Via::Node(..) => Dialed::Either,
            Via::Nothing | Via::Service(_) => Dialed::Service,
        };
        match endpoint {
            Endpoint::Service(namespace, name) => {
                let id = self.names.service(namespace, name)?;
                return self.service_targets(id, port, None, via, dialed);
            }
            Endpoint::Address(address) => {
                let dials = Some(*address);
                if let Some(id) = self.services.at(*address) {
                    return self.service_targets(id, port, dials, via, dialed);
                }
                if let Some((id, _)) = self.behind_node_port(endpoint, port) {
                    return self.service_targets(id, port, dials, via, Dialed::NodePort);
                }
            }
            Endpoint::Pod(..) | Endpoint::Workload(..) | Endpoint::Node(_) | Endpoint::Block(_) => {
            }
        }
        let is_loopback = matches!(endpoint, Endpoint::Address(address) if address.is_loopback());
        let candidates = self.candidates(endpoint)?;
        // `via` changes only how a flow reaches a pod.
        if !matches!(via, Via::Nothing) && !candidates.iter().all(is_pod) {
            return Err(QueryError::Via);
        }
        let mut targets = Vec::new();
        for candidate in &candidates {
            for carried in self.carried(candidate, port) {
                targets.push(Target {
                    end: *candidate,
                    carried,
                    families: families(carried, &Family::BOTH),
                    via: match via {
                        Via::Service(id) => Some(*id),
                        Via::Nothing | Via::Node(..) => None,
                    },
                    is_translated: matches!(via, Via::Service(_)),
                    is_inside: false,
                    is_loopback,
                });
            }
        }
        match port {
            PortQuery::Name(protocol, name) if targets.is_empty() => {
                Err(self.no_port_name(&candidates, *protocol, name))
            }
            PortQuery::Number(..)
            | PortQuery::Name(..)
            | PortQuery::Icmp
            | PortQuery::Icmp6(_)
            | PortQuery::Ip(_)
            | PortQuery::Any => Ok(targets),
        }
    }

    fn no_port_name(
        &self,
        candidates: &[EndCandidate<'_>],
        protocol: Protocol,
        name: &str,
    ) -> QueryError {
        let mut names = Vec::new();
        for candidate in candidates {
            if let Identity::Pod(id) = candidate.identity
                && let Some(pod) = self.cluster.pods.get(id.0 as usize)
            {
                let ports = pod.ports.iter().filter(|it| it.protocol == protocol);
                names.extend(ports.filter_map(|it| it.name));
            }
        }
        names.sort_unstable();
        let help = match nearest(name, &names) {
            Some(near) => format!("; did you mean `{near}`?"),
            None if names.is_empty() => "; only declared container ports have names".to_owned(),
            None => format!("; it has {}", names.join(", ")),
        };
        QueryError::NoPortName(protocol, ticked(name), help)
    }

    /// Returns what a port stands for at a destination; nothing if it is a name that the pod does
    /// not have.
    fn carried(&self, candidate: &EndCandidate<'c>, port: &PortQuery) -> Vec<Transport> {
        match port {
            PortQuery::Number(protocol, port) => vec![Transport::Port(*protocol, *port)],
            PortQuery::Icmp => vec![Transport::Icmp],
            PortQuery::Icmp6(kind) => vec![Transport::Icmp6(*kind)],
            PortQuery::Ip(number) => vec![Transport::Ip(*number)],
            // `answer_ports` replaces `any` by single ports first.
            PortQuery::Any => Vec::new(),
            PortQuery::Name(protocol, name) => {
                let Identity::Pod(id) = candidate.identity else {
                    return Vec::new();
                };
                let pod = self.cluster.pods.get(id.0 as usize);
                let ports = pod.into_iter().flat_map(|pod| pod.ports.iter());
                let named = ports.filter(|it| it.name == Some(name) && it.protocol == *protocol);
                let mut numbers: Vec<NonZeroU16> = named.map(|it| it.port).collect();
                // If several containers use the name, each of their ports is a flow (D34).
                numbers.sort_unstable();
                numbers.dedup();
                let carried = numbers
                    .into_iter()
                    .map(|port| Transport::Port(*protocol, port));
                carried.collect()
            }
        }
    }

    /// Returns the backends of a Service, at the port to which the client's port is translated
    /// (D78, D129).
    fn service_targets(
        &self,
        id: ServiceId,
        port: &PortQuery,
        address: Option<IpAddr>,
        via: &Via<'c>,
        dialed: Dialed,
    ) -> Result<Vec<Target<'c>>, QueryError> {
        let name = || self.cluster.service_name(id);
        let service = self.cluster.services.get(id.0 as usize);
        let service = service.ok_or(QueryError::Via)?;
        if service.is_external_name {
            return Err(QueryError::ExternalName(name()));
        }
        let Some(offered) = offered(service, port, dialed) else {
            return Err(match port {
                PortQuery::Number(..) | PortQuery::Name(..) | PortQuery::Any => {
                    QueryError::NotOffered(name(), offers(service))
                }
                PortQuery::Icmp | PortQuery::Icmp6(_) | PortQuery::Ip(_) => {
                    QueryError::Portless(name())
                }
            });
        };
        // A client that dials an address has chosen the family; a name stands for all families of
        // the Service.
        let family = address.map(Family::of);
        let of_service = family.map_or_else(|| service_families(service), |it| vec![it]);
        let is_inside = match address {
            Some(address) => service.cluster_addresses.contains(&address),
            // A name stands for every way to the Service.
            None => {
                !service.is_headless
                    && service.external_addresses.is_empty()
                    && offered.node_port.is_none()
            }
        };
        let mut targets = Vec::new();
        for (candidate, number) in backends(self.cluster, self.program, service, offered) {
            if let Via::Node(_, node) = via
                && service.external_traffic_local
                && flow_end::runs_on(self.cluster, &candidate) != node.local_to
            {
                continue;
            }
            targets.push(Target {
                end: candidate,
                carried: Transport::Port(offered.protocol, number),
                families: of_service.clone(),
                via: Some(id),
                is_translated: !service.is_headless,
                is_inside,
                is_loopback: false,
            });
        }
        if targets.is_empty() {
            return Err(QueryError::NoBackend(name()));
        }
        Ok(targets)
    }

    /// Returns the remarks that the ends alone justify, sorted.
    fn notes(&self, source: &EndCandidate<'_>, target: &Target<'_>) -> Vec<Note> {
        let mut notes = Vec::new();
        if target.is_inside && source.identity == Identity::External {
            notes.push(Note::ClusterAddressFromOutside);
        }
        let own_node = flow_end::node_name(self.cluster, source);
        if let Identity::Node(_) = target.end.identity
            && own_node.is_some()
            && own_node
                == flow_end::runs_on(self.cluster, &target.end).or(self.node_at(&target.end))
        {
            notes.push(Note::OwnNode);
        }
        // A template stands for several pods, which reach each other.
        if let Identity::Pod(id) = source.identity
            && target.is_translated
            && source.identity == target.end.identity
            && self
                .cluster
                .pods
                .get(id.0 as usize)
                .is_some_and(|it| it.template.is_none())
        {
            notes.push(Note::SelfThroughService);
        }
        notes
    }

    /// Returns the node that has the address of an end.
    fn node_at(&self, end: &EndCandidate<'_>) -> Option<&'c str> {
        match end.identity {
            Identity::Node(node) => Some(self.cluster.nodes.get(node?.0 as usize)?.name),
            Identity::Pod(_) | Identity::External => None,
        }
    }

    fn case(
        &self,
        source: &EndCandidate<'c>,
        target: &Target<'c>,
        via: &Via<'c>,
    ) -> Result<Option<FlowCase<'c>>, QueryError> {
        let target_node = flow_end::node_name(self.cluster, &target.end);
        let mut case = FlowCase {
            source: *source,
            source_name: source.name,
            destination: target.end,
            carried: target.carried,
            families: target.families.clone(),
            via: target.via,
            entry: None,
            notes: self.notes(source, target),
            is_translated: target.is_translated,
            node_local: false,
            is_loopback: target.is_loopback,
            is_template_with_itself: false,
        };
        if target.is_loopback {
            match (source.identity, target.end.name) {
                (Identity::External, EndName::Address(address)) => {
                    return Err(QueryError::Loopback(address));
                }
                // The destination is the source itself: a host-network pod is `HostNetwork` at both
                // ends (D138).
                (Identity::Node(_), _) => case.destination.absence = source.absence,
                _ => {}
            }
            if let EndName::Address(address) = target.end.name {
                case.families = families(target.carried, &[Family::of(address)]);
                if source.addresses != Addresses::Unknown {
                    case.source.addresses = Addresses::single(address);
                }
            }
            return Ok(Some(case));
        }
        // Only outside traffic enters the cluster through a node.
        if let Via::Node(id, node) = via {
            if source.identity != Identity::External {
                return Err(QueryError::Via);
            }
            case.entry = Some(*id);
            let stays_local = is_local_service(self.cluster, target.via);
            // A backend on the entry node, or a Service with `externalTrafficPolicy: Local`, sees
            // the client's address. Otherwise the entry node masquerades, since replies must return
            // through it.
            let is_on_it = target_node.is_some() && target_node == node.local_to;
            if is_pod(&target.end) && !is_on_it && !stays_local {
                // The packet arrives with the address of the node that it came through (D79). The
                // client's address still decides the family.
                case.families.retain(|it| source.addresses.may_have(*it));
                case.source.identity = node.identity;
                case.source.addresses = node.addresses;
            }
            return Ok(Some(case));
        }
        case.node_local =
            source.local_to.is_some() && source.local_to == target_node && is_pod(&target.end);
        // Node-local traffic is exempt with any address (D74): an unknown one must not make the
        // query an error.
        if case.node_local && source.addresses.is_empty() {
            case.source.addresses = Addresses::Unknown;
        }
        if let (Identity::Pod(a), Identity::Pod(b)) = (source.identity, target.end.identity) {
            let pod = self.cluster.pods.get(a.0 as usize);
            let is_template = pod.is_some_and(|pod| pod.template.is_some());
            case.is_template_with_itself = a == b && is_template;
        }
        Ok(Some(case))
    }
}

fn is_local_service(cluster: &Cluster<'_>, via: Option<ServiceId>) -> bool {
    let service = via.and_then(|id| cluster.services.get(id.0 as usize));
    service.is_some_and(|service| service.external_traffic_local)
}

/// Returns the families in which a protocol exists.
fn families(carried: Transport, among: &[Family]) -> Vec<Family> {
    let only = carried.family();
    let fits = |family: &Family| only.is_none_or(|only| only == *family);
    among.iter().copied().filter(fits).collect()
}
