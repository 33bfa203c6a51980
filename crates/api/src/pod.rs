//! Pods, and the templates of pods that do not exist yet.

use std::borrow::Cow;
use std::net::IpAddr;
use std::num::NonZeroU16;

use palisade_core::budget::{PORTS_OF_A_NAME, crowded_names};
use palisade_core::net::Protocol;

use crate::decode::{Decode, Readable, Unreadable};
use crate::fields::Fields;
use crate::metadata::{Labels, labels};
use crate::names::is_port_name;
use crate::path::At;
use crate::ports::{port_name_help, port_number, protocol_or_empty};
use crate::problem::Code;
use palisade_core::text::ticked;

/// The fields of a pod that policies see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod<'a> {
    /// Its specification.
    pub spec: PodSpec<'a>,
    /// Its status.
    pub status: PodStatus<'a>,
}

/// The fields of a pod's specification that policies see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSpec<'a> {
    /// The node it is bound to.
    pub node_name: Option<Cow<'a, str>>,
    /// Whether it is a host-network pod.
    pub host_network: bool,
    /// The ports of its containers, and of init containers that keep running.
    pub ports: Vec<ContainerPort<'a>>,
}

/// A port that a container declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPort<'a> {
    /// Its name, by which rules may refer to it.
    pub name: Option<Cow<'a, str>>,
    /// Its number.
    pub port: NonZeroU16,
    /// Its protocol.
    pub protocol: Protocol,
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Not all containers have started.
    Pending,
    /// Running.
    Running,
    /// Terminated with success; its address may belong to another pod.
    Succeeded,
    /// Terminated with an error; likewise.
    Failed,
    /// Its node does not respond, or the status has no phase.
    #[default]
    Unknown,
}

/// The fields of a pod's status that policies see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodStatus<'a> {
    /// The phase.
    pub phase: Phase,
    /// The pod's addresses.
    pub addresses: Vec<IpAddr>,
    /// Whether its condition `Ready` is not true.
    pub unready: bool,
    /// The address of its node, as written.
    pub host_ip: Option<Cow<'a, str>>,
}

const SPEC: Fields = Fields::open(&["nodeName", "hostNetwork", "containers", "initContainers"]);

/// Reads a pod's `spec`.
pub(crate) fn pod_spec<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<PodSpec<'a>> {
    let mut spec = PodSpec::default();
    let anchor = d.anchor();
    d.object(at, SPEC, |d, name, at| match name {
        "nodeName" => spec.node_name = d.string(at).ok().map(|text| text.value),
        "hostNetwork" => spec.host_network = d.boolean(at).unwrap_or(false),
        "containers" => {
            let containers = d.list(at, 0..=usize::MAX, container).unwrap_or_default();
            spec.ports
                .extend(containers.into_iter().flat_map(|it| it.ports));
        }
        _ => {
            // Only init containers that keep running can be reached by name (D34).
            let containers = d.list(at, 0..=usize::MAX, container).unwrap_or_default();
            let sidecars = containers.into_iter().filter(|it| it.always);
            spec.ports.extend(sidecars.flat_map(|it| it.ports));
        }
    })?;
    let named = |it: &'_ ContainerPort<'a>| Some((it.name.clone()?, it.protocol, it.port));
    for (name, ports) in crowded_names(spec.ports.iter().filter_map(named)) {
        d.report(
            Code::PortNameCrowded,
            at,
            anchor,
            format!(
                "{ports} ports of this pod have the name {}; ingress rules of NetworkPolicies match names with at most {PORTS_OF_A_NAME} ports",
                ticked(&name)
            ),
            "use different names, or write port numbers in the rules",
        );
    }
    Ok(spec)
}

#[derive(Default)]
struct Container<'a> {
    always: bool,
    ports: Vec<ContainerPort<'a>>,
}

const CONTAINER: Fields = Fields::open(&["name", "ports", "restartPolicy"]);

fn container<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Container<'a> {
    let mut container = Container::default();
    drop(d.object(at, CONTAINER, |d, name, at| match name {
        "name" => drop(d.string(at)),
        "restartPolicy" => container.always = d.string(at).is_ok_and(|it| it.value == "Always"),
        _ => {
            let ports = d
                .list(at, 0..=usize::MAX, container_port)
                .unwrap_or_default();
            container.ports = ports.into_iter().flatten().collect();
        }
    }));
    container
}

const PORT: Fields = Fields::strict(&["name", "containerPort", "protocol", "hostPort", "hostIP"])
    .hints(&[
        ("port", "the field is `containerPort`"),
        ("targetPort", "the field is `containerPort`"),
    ]);

fn container_port<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<ContainerPort<'a>> {
    let mut port_name = None;
    let mut number = Err(Unreadable);
    let mut proto = Ok(Protocol::Tcp);
    let found_fields = d.object(at, PORT, |d, name, at| match name {
        "name" => {
            if let Ok(text) = d.string(at) {
                if is_port_name(&text.value) {
                    port_name = Some(text.value);
                } else if !text.value.is_empty() {
                    d.report(
                        Code::PortName,
                        at,
                        text.span,
                        format!("{} is not the name of a port", ticked(&text.value)),
                        port_name_help(&text.value),
                    );
                }
            }
        }
        "containerPort" => number = port_number(d, at),
        "protocol" => proto = protocol_or_empty(d, at),
        "hostPort" => d.check_integer(at),
        _ => drop(d.string(at)),
    })?;
    d.require(at, &found_fields, "containerPort", "");
    let (port, _) = number?;
    Ok(ContainerPort {
        name: port_name,
        port,
        protocol: proto?,
    })
}

const STATUS: Fields = Fields::open(&["phase", "podIP", "podIPs", "hostIP", "conditions"]);
const CONDITION: Fields = Fields::open(&["type", "status"]);
const PHASES: [(&str, Phase); 6] = [
    // The zero value, which programs write.
    ("", Phase::Unknown),
    ("Pending", Phase::Pending),
    ("Running", Phase::Running),
    ("Succeeded", Phase::Succeeded),
    ("Failed", Phase::Failed),
    ("Unknown", Phase::Unknown),
];

/// Reads a pod's `status`.
pub(crate) fn pod_status<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<PodStatus<'a>> {
    const POD_IP: Fields = Fields::open(&["ip"]);
    let mut status = PodStatus::default();
    let mut first = None;
    d.object(at, STATUS, |d, name, at| match name {
        "phase" => {
            if let Ok((phase, _)) = d.word(at, &PHASES, &[]) {
                status.phase = phase;
            }
        }
        "podIP" => first = optional_address(d, at),
        "podIPs" => {
            let addresses = d.list(at, 0..=usize::MAX, |d, at| {
                let mut address = None;
                drop(d.object(at, POD_IP, |d, _, at| address = optional_address(d, at)));
                address
            });
            status.addresses = addresses
                .unwrap_or_default()
                .into_iter()
                .flatten()
                .collect();
        }
        "conditions" => {
            let unready = d.list(at, 0..=usize::MAX, |d, at| {
                let mut is_ready = false;
                let mut is_false = false;
                drop(d.object(at, CONDITION, |d, name, at| {
                    let text = d.string(at).map(|text| text.value).unwrap_or_default();
                    match name {
                        "type" => is_ready = text == "Ready",
                        _ => is_false = text == "False",
                    }
                }));
                is_ready && is_false
            });
            status.unready = unready.unwrap_or_default().contains(&true);
        }
        _ => status.host_ip = d.string(at).ok().map(|text| text.value),
    })?;
    // `podIP` alone counts (D140).
    if status.addresses.is_empty() {
        status.addresses.extend(first);
    }
    Ok(status)
}

/// Reads an address that may be empty.
pub(crate) fn optional_address(d: &mut Decode<'_, '_>, at: &At<'_>) -> Option<IpAddr> {
    let text = d.string(at).ok()?;
    if text.value.is_empty() {
        return None;
    }
    match text.value.parse::<IpAddr>() {
        Ok(address) => Some(address.to_canonical()),
        Err(_) => {
            d.report(
                Code::IpInvalid,
                at,
                text.span,
                format!("{} is not an IP address", ticked(&text.value)),
                address_help(&text.value),
            );
            None
        }
    }
}

fn address_help(text: &str) -> &'static str {
    if text.contains('/') {
        "write the address without a prefix length"
    } else if text.eq_ignore_ascii_case("none") {
        "write `None` for a headless Service"
    } else {
        "write one IPv4 or IPv6 address"
    }
}

/// The template of a workload's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodTemplate<'a> {
    /// The labels that its pods will have.
    pub labels: Labels<'a>,
    /// Their specification.
    pub spec: PodSpec<'a>,
}

const TEMPLATE: Fields = Fields::strict(&["metadata", "spec"]);
const TEMPLATE_METADATA: Fields = Fields::open(&["labels"]);

/// Reads `template`.
pub(crate) fn pod_template<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<PodTemplate<'a>> {
    let mut template = PodTemplate::default();
    d.object(at, TEMPLATE, |d, name, at| match name {
        "metadata" => {
            drop(d.object(at, TEMPLATE_METADATA, |d, _, at| {
                template.labels = labels(d, at).unwrap_or_default();
            }));
        }
        _ => template.spec = pod_spec(d, at).unwrap_or_default(),
    })?;
    Ok(template)
}
