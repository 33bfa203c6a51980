//! The flow queries for a whole cluster: every ordered pair, on every declared port and some
//! undeclared ones.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU16;

use palisade_core::model::{Cluster, Peer, Pod, PodId, PortMatch};
use palisade_core::net::{Cidr, Family, Protocol};
use palisade_core::policy::Direction;
use palisade_core::query::{Endpoint, FlowQuery, PortQuery};

use crate::complete::CompletedCluster;
use crate::topology::is_routable;

/// The most addresses outside the cluster that are queried, of each family.
const MOST_OUTSIDE: usize = 8;

/// The number of flows above which Services are queried from fewer than all pods.
const MOST_BY_SERVICES: usize = 200_000;

/// Returns addresses outside the cluster that policies distinguish: one of each block that they
/// name, and one of none.
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
        // The second address, since the first one is usually that of the network itself.
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

/// Returns the flow queries for a completed cluster.
pub fn matrix(completed: &CompletedCluster<'_>) -> Vec<FlowQuery> {
    let cluster = &completed.cluster;
    let undeclared = undeclared(cluster);
    let pods: Vec<(PodId, &Pod<'_>)> = completed
        .pods
        .iter()
        .filter_map(|id| Some((*id, cluster.pods.get(id.0 as usize)?)))
        .collect();
    let nodes = cluster.nodes.iter();
    let nodes: Vec<Endpoint> = nodes.map(|it| Endpoint::Node(it.name.to_owned())).collect();
    let beyond = completed.topology.outside.iter();
    let beyond: Vec<Endpoint> = beyond.map(|it| Endpoint::Address(*it)).collect();
    let pod_endpoints: Vec<Endpoint> = pods.iter().map(|(_, pod)| endpoint(cluster, pod)).collect();
    let sources = pod_endpoints.iter().chain(&nodes).chain(&beyond);
    let sources: Vec<&Endpoint> = sources.collect();
    let mut queries = Vec::new();
    for (destination, (_, pod)) in pod_endpoints.iter().zip(&pods) {
        let ports = ports(pod, &undeclared);
        for source in sources.iter().filter(|it| **it != destination) {
            add_queries(
                &mut queries,
                source,
                destination,
                &ports,
                &families(cluster, source, pod),
            );
        }
    }
    // Only pods have rules: for other destinations one port and one echo are enough.
    let few: Vec<PortQuery> = undeclared.iter().take(1).cloned().collect();
    for destination in nodes.iter().chain(&beyond) {
        for (source, (_, pod)) in pod_endpoints.iter().zip(&pods) {
            add_queries(
                &mut queries,
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
                queries.push(FlowQuery {
                    source: source.clone(),
                    destination: destination.clone(),
                    port: PortQuery::Number(port.protocol, port.port),
                    via: None,
                });
            }
        }
    }
    queries
}

fn endpoint(cluster: &Cluster<'_>, pod: &Pod<'_>) -> Endpoint {
    let namespace = cluster.namespace_name(pod.namespace).to_owned();
    Endpoint::Pod(namespace, pod.name.to_owned())
}

/// Returns the families that an endpoint and a pod have in common.
fn families(cluster: &Cluster<'_>, other: &Endpoint, pod: &Pod<'_>) -> Vec<Family> {
    let has = |addresses: &[IpAddr], family| addresses.iter().any(|it| Family::of(*it) == family);
    let others = |family| match other {
        Endpoint::Address(address) => Family::of(*address) == family,
        Endpoint::Block(block) => Family::of(block.first()) == family,
        Endpoint::Node(name) => {
            let node = cluster.nodes.iter().find(|node| node.name == name);
            node.is_some_and(|node| has(&node.addresses, family))
        }
        // Their pods have all families of the cluster, or the query returns an error.
        Endpoint::Pod(..) | Endpoint::Workload(..) | Endpoint::Service(..) => true,
    };
    let both = Family::BOTH.into_iter();
    both.filter(|family| has(&pod.addresses, *family) && others(*family))
        .collect()
}

fn add_queries(
    queries: &mut Vec<FlowQuery>,
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
        queries.push(FlowQuery {
            source: source.clone(),
            destination: destination.clone(),
            port,
            via: None,
        });
    }
}

/// Returns the ports of a pod, and the undeclared ones.
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

/// Returns ports that no pod declares: one that no rule names, and one of each protocol that a rule
/// names.
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

/// Returns the addresses that queries name.
pub fn named<'q>(queries: impl IntoIterator<Item = &'q FlowQuery>) -> Vec<IpAddr> {
    let endpoints = queries.into_iter();
    let endpoints = endpoints.flat_map(|query| [&query.source, &query.destination]);
    let addresses = endpoints.filter_map(|endpoint| match endpoint {
        Endpoint::Address(address) => Some(*address),
        // Which addresses of a block matter is known only once policies are compiled.
        Endpoint::Block(_)
        | Endpoint::Pod(..)
        | Endpoint::Workload(..)
        | Endpoint::Service(..)
        | Endpoint::Node(_) => None,
    });
    let mut addresses: Vec<IpAddr> = addresses.collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}
