//! Services and EndpointSlices: how an address that clients dial becomes the address of a pod.

use std::borrow::Cow;
use std::net::IpAddr;
use std::num::NonZeroU16;

use palisade_core::net::Protocol;

use crate::decode::{Decode, Readable, Unreadable};
use crate::fields::Fields;
use crate::input::ValueShape;
use crate::path::At;
use crate::pod::optional_address;
use crate::ports::{port_name_help, port_number, protocol_or_empty};
use crate::problem::{Code, Span};
use crate::selector::Selector;
use crate::workload::bare_selector;
use palisade_core::text::ticked;

/// The fields of a Service that policies see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service<'a> {
    /// Its type.
    pub kind: ServiceKind,
    /// The selector of its backends; without one, EndpointSlices list them.
    pub selector: Option<Selector<'a>>,
    /// Its addresses inside the cluster; none for a headless one.
    pub cluster_ips: Vec<IpAddr>,
    /// Whether it is headless: its clients dial the addresses of its backends.
    pub headless: bool,
    /// Its addresses for clients outside the cluster.
    pub external_ips: Vec<IpAddr>,
    /// Its ports.
    pub ports: Vec<ServicePort<'a>>,
    /// Whether external traffic stays on the node it arrives at.
    pub external_traffic_local: bool,
    /// Whether pods that are not ready count as backends.
    pub publish_not_ready: bool,
}

/// The type of a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServiceKind {
    /// Inside the cluster.
    #[default]
    ClusterIp,
    /// At a port of every node.
    NodePort,
    /// At a load balancer.
    LoadBalancer,
    /// As another DNS name.
    ExternalName,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort<'a> {
    /// Its name, which EndpointSlices repeat.
    pub name: Option<Cow<'a, str>>,
    /// What clients dial.
    pub port: NonZeroU16,
    /// The protocol.
    pub protocol: Protocol,
    /// The port of its backends.
    pub target: TargetPort<'a>,
    /// The port of every node that maps to it.
    pub node_port: Option<NonZeroU16>,
}

/// The port of the backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPort<'a> {
    /// A number.
    Number(NonZeroU16),
    /// The name of a container port.
    Name(Cow<'a, str>),
}

const SPEC: Fields = Fields::open(&[
    "type",
    "selector",
    "clusterIP",
    "clusterIPs",
    "externalIPs",
    "ports",
    "externalTrafficPolicy",
    "publishNotReadyAddresses",
]);
const KINDS: [(&str, ServiceKind); 5] = [
    // The zero value, which programs write and an API server reads as absent.
    ("", ServiceKind::ClusterIp),
    ("ClusterIP", ServiceKind::ClusterIp),
    ("NodePort", ServiceKind::NodePort),
    ("LoadBalancer", ServiceKind::LoadBalancer),
    ("ExternalName", ServiceKind::ExternalName),
];
const TRAFFIC: [(&str, bool); 2] = [("Cluster", false), ("Local", true)];

/// Reads a Service's `spec`.
pub(crate) fn spec<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    service: &mut Service<'a>,
) -> Readable<()> {
    let mut first = None;
    d.object(at, SPEC, |d, name, at| match name {
        "type" => {
            service.kind = d
                .word(at, &KINDS, &[])
                .map_or(ServiceKind::ClusterIp, |it| it.0)
        }
        "selector" => {
            service.selector = bare_selector(d, at)
                .ok()
                .filter(|selector| !selector.selects_everything());
        }
        "clusterIP" => first = cluster_ip(d, at, &mut service.headless),
        "clusterIPs" => {
            let headless = &mut service.headless;
            let addresses = d.list(at, 0..=2, |d, at| cluster_ip(d, at, headless));
            let addresses = addresses.unwrap_or_default();
            service.cluster_ips = addresses.into_iter().flatten().collect();
        }
        "externalIPs" => {
            let addresses = d
                .list(at, 0..=usize::MAX, optional_address)
                .unwrap_or_default();
            service.external_ips.extend(addresses.into_iter().flatten());
        }
        "ports" => {
            let ports = d.list(at, 0..=usize::MAX, port).unwrap_or_default();
            service.ports = ports.into_iter().flatten().collect();
        }
        "externalTrafficPolicy" => {
            service.external_traffic_local = d.word(at, &TRAFFIC, &[]).is_ok_and(|it| it.0);
        }
        _ => service.publish_not_ready = d.boolean(at).unwrap_or(false),
    })?;
    if service.cluster_ips.is_empty() {
        service.cluster_ips.extend(first);
    }
    Ok(())
}

const STATUS: Fields = Fields::open(&["loadBalancer"]);
const LOAD_BALANCER: Fields = Fields::open(&["ingress"]);
const LOAD_BALANCER_INGRESS: Fields = Fields::open(&["ip"]);

/// Reads a Service's `status`: the addresses of its load balancer.
pub(crate) fn status<'a>(d: &mut Decode<'a, '_>, at: &At<'_>, service: &mut Service<'a>) {
    drop(d.object(at, STATUS, |d, _, at| {
        drop(d.object(at, LOAD_BALANCER, |d, _, at| {
            drop(d.list(at, 0..=usize::MAX, |d, at| {
                drop(d.object(at, LOAD_BALANCER_INGRESS, |d, _, at| {
                    service.external_ips.extend(optional_address(d, at));
                }));
            }));
        }));
    }));
}

/// Reads a cluster address; the text `None` makes the Service headless.
fn cluster_ip(d: &mut Decode<'_, '_>, at: &At<'_>, headless: &mut bool) -> Option<IpAddr> {
    let span = d.span();
    if d.shape() == ValueShape::Str && d.written(span).trim_matches(['"', '\'']) == "None" {
        d.skip();
        *headless = true;
        return None;
    }
    optional_address(d, at)
}

const PORT: Fields = Fields::strict(&[
    "name",
    "port",
    "protocol",
    "targetPort",
    "nodePort",
    "appProtocol",
]);

fn port<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<ServicePort<'a>> {
    let mut port_name = None;
    let mut number = Err(Unreadable);
    let mut proto = Ok(Protocol::Tcp);
    let mut target = None;
    let mut node_port = None;
    let found_fields = d.object(at, PORT, |d, name, at| match name {
        "name" => port_name = d.string(at).ok().map(|text| text.value),
        "port" => number = port_number(d, at),
        "protocol" => proto = protocol_or_empty(d, at),
        "targetPort" => target = Some(target_port(d, at)),
        "nodePort" => {
            node_port = d
                .integer_in(at, 0..=65535)
                .ok()
                .and_then(|(port, _)| u16::try_from(port).ok().and_then(NonZeroU16::new));
        }
        _ => drop(d.string(at)),
    })?;
    d.require(at, &found_fields, "port", "");
    let (port, _) = number?;
    let target = target.transpose()?.flatten();
    let target = target.unwrap_or(TargetPort::Number(port));
    Ok(ServicePort {
        name: port_name,
        port,
        protocol: proto?,
        target,
        node_port,
    })
}

/// Reads `targetPort`; `None` if it is the zero value, which an API server reads as absent.
fn target_port<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<Option<TargetPort<'a>>> {
    if d.shape() != ValueShape::Str {
        d.hint_type("a port is a number, or the name of a container port");
        let span = d.span();
        if d.written(span) == "0" {
            d.skip();
            return Ok(None);
        }
        return port_number(d, at).map(|(port, _)| Some(TargetPort::Number(port)));
    }
    let text = d.string(at)?;
    if text.value.is_empty() {
        return Ok(None);
    }
    if crate::names::is_port_name(&text.value) {
        return Ok(Some(TargetPort::Name(text.value)));
    }
    d.report(
        Code::PortName,
        at,
        text.span,
        format!("{} is not a port name", ticked(&text.value)),
        port_name_help(&text.value),
    );
    Err(Unreadable)
}

/// The fields of an EndpointSlice that policies see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointSlice<'a> {
    /// The backends.
    pub endpoints: Vec<SliceEndpoint<'a>>,
    /// The ports of all of them; an absent number means every port.
    pub ports: Vec<SlicePort<'a>>,
    /// The type of the addresses.
    address_type: AddressType,
    /// The places of addresses that are not IPv4, not IPv6 or neither: reported when the type is
    /// known.
    texts: Vec<AddressText>,
}

/// The address type of an EndpointSlice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AddressType {
    #[default]
    Any,
    V4,
    V6,
    HostName,
}

/// An address of an EndpointSlice, with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AddressText {
    endpoint: usize,
    index: usize,
    span: Span,
    address: Option<IpAddr>,
}

impl EndpointSlice<'_> {
    /// Checks the addresses when the type of the slice is known.
    pub(crate) fn check_addresses(&mut self, d: &mut Decode<'_, '_>) {
        for text in std::mem::take(&mut self.texts) {
            let (fits, what) = match (self.address_type, text.address) {
                (AddressType::HostName, _) => (true, ""),
                (AddressType::V4, address) => (address.is_some_and(|it| it.is_ipv4()), "IPv4"),
                (AddressType::V6, address) => (address.is_some_and(|it| it.is_ipv6()), "IPv6"),
                (AddressType::Any, address) => (address.is_some(), "IP"),
            };
            if !fits {
                let path = format!("endpoints[{}].addresses[{}]", text.endpoint, text.index);
                let message = format!("{} is not an {what} address", ticked(d.written(text.span)));
                let help = "every address must have the slice's `addressType`";
                d.report_late(Code::IpInvalid, Some(path), text.span, message, help);
            }
        }
    }
}

/// A backend of an EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SliceEndpoint<'a> {
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Whether it is ready; unknown counts as ready.
    pub ready: bool,
    /// Its pod, by namespace and name.
    pub pod: Option<(Option<Cow<'a, str>>, Cow<'a, str>)>,
}

/// A port of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort<'a> {
    /// The name of the Service's port.
    pub name: Option<Cow<'a, str>>,
    /// The number.
    pub port: Option<NonZeroU16>,
    /// The protocol.
    pub protocol: Protocol,
}

const ENDPOINT: Fields = Fields::open(&["addresses", "conditions", "targetRef"]);
const CONDITIONS: Fields = Fields::open(&["ready"]);
const TARGET_REF: Fields = Fields::open(&["kind", "namespace", "name"]);
const SLICE_PORT: Fields = Fields::open(&["name", "port", "protocol"]);
const ADDRESS_TYPES: [(&str, AddressType); 3] = [
    ("IPv4", AddressType::V4),
    ("IPv6", AddressType::V6),
    ("FQDN", AddressType::HostName),
];

/// Reads a field of an EndpointSlice, which has them at the top level.
pub(crate) fn slice_field<'a>(
    d: &mut Decode<'a, '_>,
    name: &str,
    at: &At<'_>,
    slice: &mut EndpointSlice<'a>,
) {
    match name {
        "addressType" => {
            if let Ok((address_type, _)) = d.word(at, &ADDRESS_TYPES, &[]) {
                slice.address_type = address_type;
            }
        }
        "endpoints" => {
            let texts = &mut slice.texts;
            let mut n_endpoints = 0;
            let endpoints = d.list(at, 0..=1000, |d, at| {
                n_endpoints += 1;
                endpoint(d, at, n_endpoints - 1, texts)
            });
            slice.endpoints = endpoints.unwrap_or_default();
        }
        _ => slice.ports = d.list(at, 0..=100, slice_port).unwrap_or_default(),
    }
}

fn endpoint<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    number: usize,
    texts: &mut Vec<AddressText>,
) -> SliceEndpoint<'a> {
    let mut endpoint = SliceEndpoint {
        ready: true,
        ..SliceEndpoint::default()
    };
    drop(d.object(at, ENDPOINT, |d, name, at| match name {
        "addresses" => {
            let mut index = 0;
            let addresses = d.list(at, 1..=100, |d, at| {
                index += 1;
                let text = d.string(at).ok()?;
                let address = text.value.parse::<IpAddr>().ok();
                texts.push(AddressText {
                    endpoint: number,
                    index: index - 1,
                    span: text.span,
                    address,
                });
                address
            });
            endpoint.addresses = addresses
                .unwrap_or_default()
                .into_iter()
                .flatten()
                .collect();
        }
        "conditions" => {
            drop(d.object(at, CONDITIONS, |d, _, at| {
                endpoint.ready = d.boolean(at).unwrap_or(true)
            }));
        }
        _ => endpoint.pod = target_ref(d, at),
    }));
    endpoint
}

fn target_ref<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
) -> Option<(Option<Cow<'a, str>>, Cow<'a, str>)> {
    let mut kind = None;
    let mut namespace = None;
    let mut target = None;
    drop(d.object(at, TARGET_REF, |d, name, at| {
        let text = d.string(at).ok().map(|text| text.value);
        match name {
            "kind" => kind = text,
            "namespace" => namespace = text,
            _ => target = text,
        }
    }));
    target
        .filter(|_| kind.as_deref() == Some("Pod"))
        .map(|target| (namespace, target))
}

fn slice_port<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> SlicePort<'a> {
    let mut slice_port = SlicePort {
        name: None,
        port: None,
        protocol: Protocol::Tcp,
    };
    drop(d.object(at, SLICE_PORT, |d, name, at| match name {
        "name" => slice_port.name = d.string(at).ok().map(|text| text.value),
        "port" => slice_port.port = port_number(d, at).ok().map(|(port, _)| port),
        _ => slice_port.protocol = protocol_or_empty(d, at).unwrap_or(Protocol::Tcp),
    }));
    slice_port
}
