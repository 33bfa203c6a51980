//! What to ask about a whole cluster: every ordered pair, on every port that is declared and some
//! that are not.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU16;

use palisade_core::model::{Cluster, Peer, Pod, PodId, PortMatch};
use palisade_core::net::{Cidr, Family, Protocol};
use palisade_core::policy::Direction;
use palisade_core::query::{Endpoint, FlowQuery, PortQuery};

use crate::complete::CompletedCluster;
use crate::topology::is_routable;

/// So many addresses outside the cluster are asked about at most, of each family.
const MOST_OUTSIDE: usize = 8;

/// Services are asked from every pod, but from fewer if there would be more flows than these.
const MOST_BY_SERVICES: usize = 200_000;

/// Addresses outside the cluster that policies tell apart: one of each block that they name, and one
/// that they do not.
pub fn outside(cluster: &Cluster<'_>) -> Vec<IpAddr> {
    let mut addresses = BTreeSet::new();
    let mut families = BTreeSet::new();
    let of_pods = cluster.pods.iter().flat_map(|pod| &pod.addresses);
    families.extend(of_pods.map(|address| Family::of(*address)));
    let in_cluster = |address: IpAddr| {
        let pods = cluster.pods.iter().flat_map(|pod| &pod.addresses);
        let nodes = cluster.nodes.iter().flat_map(|node| &node.addresses);
        pods.chain(nodes).any(|it| *it == address)
    };
    let mut add = |block: &Cidr| {
        let first = block.first();
        let second = match first {
            IpAddr::V4(it) => IpAddr::V4(it.to_bits().saturating_add(1).into()),
            IpAddr::V6(it) => IpAddr::V6(it.to_bits().saturating_add(1).into()),
        };
        let candidates = [second, first].into_iter();
        let fitting = candidates.filter(|it| block.contains(*it) && is_routable(*it));
        addresses.extend(fitting.filter(|it| !in_cluster(*it)).take(1));
    };
    for policy in &cluster.policies {
        for direction in Direction::BOTH {
            for rule in &policy.rules(direction).list {
                let peers = rule.effect.iter().filter_map(|it| it.peers.as_ref());
                for peer in peers.flatten() {
                    if let Peer::Block { cidr, except } = peer {
                        add(cidr);
                        except.iter().for_each(&mut add);
                    }
                }
            }
        }
    }
    let elsewhere = [
        IpAddr::from([203, 0, 113, 200]),
        IpAddr::from([0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 0x200]),
    ];
    let fits = |it: &IpAddr| families.is_empty() || families.contains(&Family::of(*it));
    let mut some: Vec<IpAddr> = Vec::new();
    for family in Family::BOTH {
        let of_family = addresses.iter().filter(|it| Family::of(**it) == family);
        some.extend(of_family.filter(|it| fits(it)).take(MOST_OUTSIDE));
    }
    some.extend(elsewhere.into_iter().filter(fits));
    some.dedup();
    some
}

/// Everything to ask about a cluster that has been furnished.
pub fn matrix(furnished: &CompletedCluster<'_>) -> Vec<FlowQuery> {
    let cluster = &furnished.cluster;
    let undeclared = undeclared(cluster);
    let pods: Vec<(PodId, &Pod<'_>)> = furnished
        .pods
        .iter()
        .filter_map(|id| Some((*id, cluster.pods.get(id.0 as usize)?)))
        .collect();
    let nodes = cluster.nodes.iter();
    let nodes: Vec<Endpoint> = nodes.map(|it| Endpoint::Node(it.name.to_owned())).collect();
    let beyond = furnished.topology.outside.iter();
    let beyond: Vec<Endpoint> = beyond.map(|it| Endpoint::Address(*it)).collect();
    let pod_endpoints: Vec<Endpoint> = pods.iter().map(|(_, pod)| endpoint(cluster, pod)).collect();
    let sources = pod_endpoints.iter().chain(&nodes).chain(&beyond);
    let sources: Vec<&Endpoint> = sources.collect();
    let mut questions = Vec::new();
    for (destination, (_, pod)) in pod_endpoints.iter().zip(&pods) {
        let ports = ports(pod, &undeclared);
        for source in sources.iter().filter(|it| **it != destination) {
            ask(
                &mut questions,
                source,
                destination,
                &ports,
                &families(cluster, source, pod),
            );
        }
    }
    // Whoever is no pod has no rules of his own, so that one port and one echo show enough.
    let few: Vec<PortQuery> = undeclared.iter().take(1).cloned().collect();
    for destination in nodes.iter().chain(&beyond) {
        for (source, (_, pod)) in pod_endpoints.iter().zip(&pods) {
            ask(
                &mut questions,
                source,
                destination,
                &few,
                &families(cluster, destination, pod),
            );
        }
    }
    let backends = cluster.services.iter().flat_map(|it| &it.ports);
    let n_backends: usize = backends.map(|port| port.backends.len()).sum();
    let n_clients = (MOST_BY_SERVICES / n_backends.max(1)).max(1);
    let step = pod_endpoints.len().div_ceil(n_clients).max(1);
    for service in &cluster.services {
        if service.is_external_name || service.is_headless {
            continue;
        }
        let namespace = cluster.namespace_name(service.namespace).to_owned();
        let destination = Endpoint::Service(namespace, service.name.to_owned());
        for port in service.ports.iter().filter(|it| !it.backends.is_empty()) {
            for source in pod_endpoints.iter().step_by(step) {
                questions.push(FlowQuery {
                    source: source.clone(),
                    destination: destination.clone(),
                    port: PortQuery::Number(port.protocol, port.port),
                    via: None,
                });
            }
        }
    }
    questions
}

fn endpoint(cluster: &Cluster<'_>, pod: &Pod<'_>) -> Endpoint {
    let namespace = cluster.namespace_name(pod.namespace).to_owned();
    Endpoint::Pod(namespace, pod.name.to_owned())
}

/// The families that someone and a pod have in common.
fn families(cluster: &Cluster<'_>, other: &Endpoint, pod: &Pod<'_>) -> Vec<Family> {
    let has = |addresses: &[IpAddr], family| addresses.iter().any(|it| Family::of(*it) == family);
    let others = |family| match other {
        Endpoint::Address(address) => Family::of(*address) == family,
        Endpoint::Node(name) => {
            let node = cluster.nodes.iter().find(|node| node.name == name);
            node.is_some_and(|node| has(&node.addresses, family))
        }
        // Their pods were all made with the same families, or say so when they are asked.
        Endpoint::Pod(..) | Endpoint::Workload(..) | Endpoint::Service(..) => true,
    };
    let both = Family::BOTH.into_iter();
    both.filter(|family| has(&pod.addresses, *family) && others(*family))
        .collect()
}

fn ask(
    questions: &mut Vec<FlowQuery>,
    source: &Endpoint,
    destination: &Endpoint,
    ports: &[PortQuery],
    families: &[Family],
) {
    let echo = families.iter().map(|family| match family {
        Family::V4 => PortQuery::Icmp,
        Family::V6 => PortQuery::Icmp6(None),
    });
    for port in ports.iter().cloned().chain(echo) {
        questions.push(FlowQuery {
            source: source.clone(),
            destination: destination.clone(),
            port,
            via: None,
        });
    }
}

/// The ports of a pod, and those that nobody declares.
fn ports(pod: &Pod<'_>, undeclared: &[PortQuery]) -> Vec<PortQuery> {
    let declared: BTreeSet<(Protocol, NonZeroU16)> = pod
        .ports
        .iter()
        .map(|declared| (declared.protocol, declared.port))
        .collect();
    let declared = declared.into_iter();
    let declared = declared.map(|(protocol, port)| PortQuery::Number(protocol, port));
    declared.chain(undeclared.iter().cloned()).collect()
}

/// Ports that no pod declares: one that no rule names, and of each protocol one that a rule does.
fn undeclared(cluster: &Cluster<'_>) -> Vec<PortQuery> {
    let declared: BTreeSet<(Protocol, NonZeroU16)> = cluster
        .pods
        .iter()
        .flat_map(|pod| pod.ports.iter())
        .map(|it| (it.protocol, it.port))
        .collect();
    let mut named = BTreeSet::new();
    for policy in &cluster.policies {
        for direction in Direction::BOTH {
            for rule in &policy.rules(direction).list {
                let ports = rule.effect.iter().filter_map(|it| it.ports.as_ref());
                for port in ports.flatten() {
                    if let PortMatch::Numbers(protocol, range) = port {
                        named.insert((*protocol, range.start()));
                        named.insert((*protocol, range.end()));
                    }
                }
            }
        }
    }
    let is_free = |it: &(Protocol, NonZeroU16)| !declared.contains(it) && !named.contains(it);
    let mut ports = Vec::new();
    let numbers = (7_777u16..).filter_map(NonZeroU16::new);
    let free = numbers.map(|port| (Protocol::Tcp, port)).find(is_free);
    ports.extend(free);
    for protocol in Protocol::ALL {
        let of_protocol = named.iter().filter(|it| it.0 == protocol);
        let undeclared = of_protocol.filter(|it| !declared.contains(it));
        ports.extend(undeclared.copied().next());
    }
    if !ports.iter().any(|(protocol, _)| *protocol == Protocol::Udp)
        && let Some(port) = NonZeroU16::new(5_353)
    {
        ports.push((Protocol::Udp, port));
    }
    let queries = ports.into_iter();
    queries
        .map(|(protocol, port)| PortQuery::Number(protocol, port))
        .collect()
}

/// The node that a question's flow enters the cluster through.
pub fn through(furnished: &CompletedCluster<'_>, question: &FlowQuery) -> Option<usize> {
    match &question.via {
        Some(Endpoint::Node(name)) => furnished.node_index(name),
        Some(
            Endpoint::Pod(..)
            | Endpoint::Workload(..)
            | Endpoint::Service(..)
            | Endpoint::Address(_),
        )
        | None => None,
    }
}

/// The addresses outside that questions name.
pub fn named<'q>(questions: impl IntoIterator<Item = &'q FlowQuery>) -> Vec<IpAddr> {
    let ends = questions.into_iter();
    let ends = ends.flat_map(|question| [&question.source, &question.destination]);
    let addresses = ends.filter_map(|end| match end {
        Endpoint::Address(address) => Some(*address),
        Endpoint::Pod(..) | Endpoint::Workload(..) | Endpoint::Service(..) | Endpoint::Node(_) => {
            None
        }
    });
    let mut addresses: Vec<IpAddr> = addresses.collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}
