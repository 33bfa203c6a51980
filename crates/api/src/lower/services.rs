//! Services: the backends of an address that clients dial, port by port (D78).

use std::collections::HashMap;
use std::num::NonZeroU16;

use palisade_core::model::{
    Backend, BackendTarget, Cluster, NamespaceId, Pod, PodId, PodPhase, Service, ServicePort,
};
use palisade_core::net::Protocol;

use super::Objects;
use super::endpoints::{of_namespace, selected, selects};
use crate::object::ObjectSpec;
use crate::service::{self, EndpointSlice, ServiceKind, SliceEndpoint, SlicePort, TargetPort};

/// The label that names the Service of a slice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The slices of each Service.
type Slices<'o, 'a> = HashMap<(NamespaceId, &'o str), Vec<&'o EndpointSlice<'a>>>;

pub(super) fn lower<'o>(objects: &Objects<'o, '_>, cluster: &mut Cluster<'o>) {
    let mut slices: Slices<'o, '_> = HashMap::new();
    for (_, object) in &objects.list {
        if let ObjectSpec::EndpointSlice(slice) = &object.spec {
            let labels = object.metadata.labels.iter();
            let name = labels.filter(|(key, _)| key == SERVICE_NAME);
            for (_, name) in name {
                let key = (objects.namespace_of(object), &**name);
                slices.entry(key).or_default().push(slice);
            }
        }
    }
    let mut services = Vec::new();
    for (_, object) in &objects.list {
        let ObjectSpec::Service(service) = &object.spec else {
            continue;
        };
        let namespace = objects.namespace_of(object);
        let name = &*object.metadata.name;
        let slices = slices.get(&(namespace, name)).map(Vec::as_slice);
        services.push(one(cluster, namespace, name, service, slices));
    }
    services.sort_by_key(|service| (service.namespace, service.name));
    cluster.services = services;
}

fn one<'o>(
    cluster: &Cluster<'o>,
    namespace: NamespaceId,
    name: &'o str,
    service: &'o service::Service<'_>,
    slices: Option<&[&'o EndpointSlice<'_>]>,
) -> Service<'o> {
    let service::Service {
        kind,
        selector,
        cluster_ips,
        headless,
        external_ips,
        ports,
        external_traffic_local,
        publish_not_ready,
    } = service;
    let pods = match (slices, selector) {
        (None, Some(selector)) => candidates(cluster, namespace, selector, *publish_not_ready),
        _ => Vec::new(),
    };
    let ports = ports.iter().map(|port| {
        let service::ServicePort {
            name,
            port: number,
            protocol,
            target,
            node_port,
        } = port;
        let backends = match slices {
            Some(slices) => in_slices(cluster, namespace, slices, port),
            None => {
                let pods = pods.iter().filter_map(|id| {
                    let pod = cluster.pods.get(id.0 as usize)?;
                    // Clients of a headless Service dial its pods themselves, at the port they
                    // know.
                    let port = if *headless {
                        *number
                    } else {
                        target_port(target, pod, *protocol)?
                    };
                    Some(Backend {
                        target: BackendTarget::Pod(*id),
                        port,
                    })
                });
                pods.collect()
            }
        };
        ServicePort {
            name: name.as_deref().filter(|name| !name.is_empty()),
            port: *number,
            node_port: *node_port,
            protocol: *protocol,
            backends,
        }
    });
    Service {
        namespace,
        name,
        cluster_addresses: cluster_ips.clone(),
        external_addresses: external_ips.clone(),
        is_external_name: *kind == ServiceKind::ExternalName,
        is_headless: *headless,
        external_traffic_local: *external_traffic_local,
        ports: ports.collect(),
    }
}

/// The pods that a selector selects, or the templates of pods that do not exist yet.
fn candidates(
    cluster: &Cluster<'_>,
    namespace: NamespaceId,
    selector: &crate::selector::Selector<'_>,
    publish_not_ready: bool,
) -> Vec<PodId> {
    let live = selected(cluster, namespace, selector);
    if !live.is_empty() {
        let pod = |id: &PodId| cluster.pods.get(id.0 as usize);
        let takes_traffic = |pod: &Pod<'_>| pod.ready || publish_not_ready;
        let live = live.into_iter();
        return live
            .filter(|id| pod(id).is_some_and(takes_traffic))
            .collect();
    }
    // The owner of a workload has a template as well: each future pod is counted once.
    let workloads = &cluster.workloads;
    let start = workloads.partition_point(|it| it.namespace < namespace);
    let end = workloads.partition_point(|it| it.namespace <= namespace);
    let own = workloads.get(start..end).unwrap_or_default();
    let workloads = own.iter().filter(|it| !it.is_owned);
    let pods = workloads.flat_map(|workload| &workload.pods).copied();
    let is_meant = |pod: &Pod<'_>| {
        pod.template.is_some() && pod.namespace == namespace && selects(selector, pod)
    };
    pods.filter(|id| cluster.pods.get(id.0 as usize).is_some_and(is_meant))
        .collect()
}

/// The port of a backend; `None`: it has no port of the name, and is no backend.
fn target_port(target: &TargetPort<'_>, pod: &Pod<'_>, protocol: Protocol) -> Option<NonZeroU16> {
    match target {
        TargetPort::Number(port) => Some(*port),
        TargetPort::Name(name) => {
            let mut ports = pod.ports.iter();
            let found = ports.find(|it| it.name == Some(name) && it.protocol == protocol);
            found.map(|it| it.port)
        }
    }
}

/// The backends in slices. The slice controller sets `ready` also for pods that are published
/// before they are ready.
fn in_slices(
    cluster: &Cluster<'_>,
    namespace: NamespaceId,
    slices: &[&EndpointSlice<'_>],
    port: &service::ServicePort<'_>,
) -> Vec<Backend> {
    let mut backends = Vec::new();
    for slice in slices {
        let own = port.name.as_deref().unwrap_or_default();
        let ports = slice.ports.iter().filter(|it| {
            it.name.as_deref().unwrap_or_default() == own && it.protocol == port.protocol
        });
        // The destination of a port without a number is unknown.
        for number in ports.filter_map(|SlicePort { port, .. }| *port) {
            let endpoints = slice.endpoints.iter();
            for endpoint in endpoints.filter(|it| it.ready) {
                for party in parties(cluster, namespace, endpoint) {
                    let backend = Backend {
                        target: party,
                        port: number,
                    };
                    if !backends.contains(&backend) {
                        backends.push(backend);
                    }
                }
            }
        }
    }
    backends
}

/// A backend is its addresses, or its pod if it has only a name.
fn parties(
    cluster: &Cluster<'_>,
    namespace: NamespaceId,
    endpoint: &SliceEndpoint<'_>,
) -> Vec<BackendTarget> {
    let SliceEndpoint {
        addresses,
        ready: _,
        pod,
    } = endpoint;
    let known = pod.as_ref().and_then(|(_, name)| {
        let mut pods = of_namespace(cluster, namespace);
        pods.find(|(_, pod)| pod.name == name && pod.phase != PodPhase::Terminated)
    });
    match known {
        Some((id, pod)) if pod.addresses.is_empty() => vec![BackendTarget::Pod(id)],
        _ => {
            let addresses = addresses.iter();
            addresses
                .map(|address| BackendTarget::Address(address.to_canonical()))
                .collect()
        }
    }
}
