//! Services and EndpointSlices, and the backends of a Service (D78, D129).

use crate::cidr;
use crate::json::{Bad, Map, Res, field, object, opt_bool, opt_list, opt_object, opt_text, texts};
use crate::rule::{Protocol, port_number};
use crate::select::{Labels, Selector, label};
use crate::world::{Meta, Pod, World, kind_of};
use serde_json::Value;
use std::net::IpAddr;

/// Number or name of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PortRef {
    Number(u16),
    Name(String),
}

/// A port of a Service.
#[derive(Clone, Debug)]
pub(crate) struct ServicePort {
    pub(crate) name: String,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
    pub(crate) node_port: Option<u16>,
    pub(crate) target: PortRef,
}

/// A Service.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) external_name: bool,
    pub(crate) headless: bool,
    pub(crate) local: bool,
    pub(crate) publish_not_ready: bool,
    pub(crate) cluster: Vec<IpAddr>,
    /// Load balancer and external addresses.
    pub(crate) outer: Vec<IpAddr>,
    pub(crate) selector: Selector,
    pub(crate) ports: Vec<ServicePort>,
}

/// An EndpointSlice.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    namespace: String,
    labels: Labels,
    endpoints: Vec<(IpAddr, Option<String>)>,
    ports: Vec<(String, Protocol, u16)>,
}

/// The backend of a connection to a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Pod(usize),
    /// Index of the workload.
    Template(usize),
    /// An address out of a slice, and the node in the slice.
    Address(IpAddr, Option<String>),
}

fn protocol(map: &Map) -> Res<Protocol> {
    opt_text(map, "protocol")?.map_or(Ok(Protocol::Tcp), Protocol::read)
}

impl Service {
    /// A Service object.
    pub(crate) fn read(meta: &Meta, object_: &Map) -> Res<Self> {
        let none = Map::new();
        let spec = opt_object(object_, "spec")?.unwrap_or(&none);
        let status = opt_object(object_, "status")?.unwrap_or(&none);
        let mut ports = Vec::new();
        for p in opt_list(spec, "ports")?.into_iter().flatten() {
            let p = object(p)?;
            let port = port_number(field(p, "port").ok_or(Bad)?)?;
            ports.push(ServicePort {
                name: opt_text(p, "name")?.unwrap_or_default().to_owned(),
                protocol: protocol(p)?,
                port,
                node_port: field(p, "nodePort").map(port_number).transpose()?,
                target: match field(p, "targetPort") {
                    None => PortRef::Number(port),
                    Some(Value::String(s)) => PortRef::Name(s.clone()),
                    Some(v) => PortRef::Number(port_number(v)?),
                },
            });
        }
        let mut cluster = Vec::new();
        cluster.extend(opt_text(spec, "clusterIP")?.map(str::to_owned));
        cluster.extend(
            field(spec, "clusterIPs")
                .map(texts)
                .transpose()?
                .unwrap_or_default(),
        );
        let headless = cluster.iter().any(|c| c == "None");
        let mut cluster: Vec<IpAddr> = cluster.iter().filter_map(|c| cidr::address(c)).collect();
        cluster.dedup();
        let mut outer = field(spec, "externalIPs")
            .map(texts)
            .transpose()?
            .unwrap_or_default();
        if let Some(lb) = opt_object(status, "loadBalancer")? {
            for i in opt_list(lb, "ingress")?.into_iter().flatten() {
                outer.extend(opt_text(object(i)?, "ip")?.map(str::to_owned));
            }
        }
        Ok(Self {
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            external_name: opt_text(spec, "type")? == Some("ExternalName"),
            headless,
            local: opt_text(spec, "externalTrafficPolicy")? == Some("Local"),
            publish_not_ready: opt_bool(spec, "publishNotReadyAddresses")?.unwrap_or(false),
            cluster,
            outer: outer.iter().filter_map(|a| cidr::address(a)).collect(),
            selector: Selector::from_map(field(spec, "selector"))?,
            ports,
        })
    }
}

impl Slice {
    /// An EndpointSlice object; only endpoints that are ready are kept.
    pub(crate) fn read(meta: &Meta, object_: &Map) -> Res<Self> {
        let mut endpoints = Vec::new();
        for e in opt_list(object_, "endpoints")?.into_iter().flatten() {
            let e = object(e)?;
            let ready = match opt_object(e, "conditions")? {
                Some(c) => opt_bool(c, "ready")?.unwrap_or(true),
                None => true,
            };
            if !ready {
                continue;
            }
            let node = opt_text(e, "nodeName")?.map(str::to_owned);
            for a in field(e, "addresses")
                .map(texts)
                .transpose()?
                .unwrap_or_default()
            {
                if let Some(a) = cidr::address(&a) {
                    endpoints.push((a, node.clone()));
                }
            }
        }
        let mut ports = Vec::new();
        for p in opt_list(object_, "ports")?.into_iter().flatten() {
            let p = object(p)?;
            if let Some(n) = field(p, "port") {
                let name = opt_text(p, "name")?.unwrap_or_default().to_owned();
                ports.push((name, protocol(p)?, port_number(n)?));
            }
        }
        Ok(Self {
            namespace: meta.namespace.clone(),
            labels: meta.labels.clone(),
            endpoints,
            ports,
        })
    }
}

impl World {
    /// The ready backends of a Service's port, each with the number that the connection arrives at.
    pub(crate) fn backends(&self, service: &Service, port: &ServicePort) -> Vec<(Backend, u16)> {
        let mut out: Vec<(Backend, u16)> = Vec::new();
        let mut add = |b: Backend, n: u16| {
            if !out.contains(&(b.clone(), n)) {
                out.push((b, n));
            }
        };
        // EndpointSlices count when there are any.
        let of_service = |s: &&Slice| {
            s.namespace == service.namespace
                && label(&s.labels, "kubernetes.io/service-name") == Some(&service.name)
        };
        if self.slices.iter().any(|s| of_service(&s)) {
            for s in self.slices.iter().filter(of_service) {
                for (name, protocol, number) in &s.ports {
                    if *name == port.name && *protocol == port.protocol {
                        for (a, node) in &s.endpoints {
                            let number = if service.headless { port.port } else { *number };
                            add(Backend::Address(*a, node.clone()), number);
                        }
                    }
                }
            }
            return out;
        }
        if service.selector.is_empty() {
            return out;
        }
        let resolve = |pod: &Pod| {
            if service.headless {
                // No translation: the port as dialled.
                return Some(port.port);
            }
            match &port.target {
                PortRef::Number(n) => Some(*n),
                PortRef::Name(name) => pod
                    .ports
                    .iter()
                    .find(|p| p.name == *name && p.protocol == port.protocol)
                    .map(|p| p.number),
            }
        };
        let mut found = false;
        for (i, pod) in self.pods.iter().enumerate() {
            if pod.live()
                && self.namespaces[pod.namespace].name == service.namespace
                && service.selector.matches(&pod.labels)
            {
                found = true;
                let ready = !pod.unready && pod.phase != "Pending";
                if (ready || service.publish_not_ready)
                    && let Some(n) = resolve(pod)
                {
                    add(Backend::Pod(i), n);
                }
            }
        }
        if found {
            return out;
        }
        // Templates of workloads without pods, but not of a workload that another workload of the
        // input owns.
        let owned = |owners: &[(String, String)]| {
            self.workloads.iter().any(|w| {
                let here = w.namespace == service.namespace;
                let same = |(k, n): &(String, String)| k == kind_of(w.kind) && *n == w.name;
                here && owners.iter().any(same)
            })
        };
        for (i, w) in self.workloads.iter().enumerate() {
            if w.namespace == service.namespace
                && !owned(&w.owners)
                && service.selector.matches(&w.template.labels)
                && self.pods_of(w).is_empty()
                && let Some(n) = resolve(&w.template)
            {
                add(Backend::Template(i), n);
            }
        }
        out
    }
}
