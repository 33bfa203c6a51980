//! Sentences for near misses.

use palisade_core::EndName;
use palisade_core::analysis::nearest::{Condition, NearMiss};
use palisade_core::answer::{FlowAnswer, Transport};
use palisade_core::decide::Identity;
use palisade_core::labels::{Operator, Requirement};
use palisade_core::model::{Cluster, NamespaceSet, PortMatch};
use palisade_core::policy::{Action, Direction};

use crate::draw::clean;

/// The other end of a denied flow.
struct Other<'t> {
    name: String,
    /// Its namespace, if it is a pod.
    namespace: Option<&'t str>,
}

impl<'t> Other<'t> {
    fn of(cluster: &'t Cluster<'_>, single: &FlowAnswer, direction: Direction) -> Other<'t> {
        let (name, end) = match direction {
            Direction::Ingress => (single.source, single.flow.source),
            Direction::Egress => (single.destination, single.flow.destination),
        };
        let pod = match end.identity {
            Identity::Pod(id) => cluster.pods.get(id.0 as usize),
            Identity::Node(_) | Identity::External => None,
        };
        Other {
            name: name.text(cluster),
            namespace: pod.map(|pod| cluster.namespace_name(pod.namespace)),
        }
    }
}

/// Describes a near miss: `netpol/shop/db#ingress[0] would allow app=api; shop/web has app=web`.
pub(super) fn sentence(
    cluster: &Cluster<'_>,
    single: &FlowAnswer,
    direction: Direction,
    miss: &NearMiss<'_>,
) -> String {
    let other = Other::of(cluster, single, direction);
    let wants: Vec<String> = miss
        .conditions
        .iter()
        .map(|want| wanted(cluster, want))
        .collect();
    let has: Vec<String> = miss
        .conditions
        .iter()
        .filter_map(|want| found(single, direction, &other, want))
        .collect();
    let rule = cluster.rule_name(miss.rule);
    let effect = cluster.effect(miss.rule);
    let does = match effect.map(|effect| effect.action) {
        Some(Action::Pass) => "pass",
        Some(Action::Accept | Action::Deny) | None => "allow",
    };
    let text = format!("{rule} would {does} {}", wants.join(" and "));
    if has.is_empty() {
        return clean(&text);
    }
    clean(&format!("{text}; {}", has.join(", ")))
}

/// Formats a requirement: `app=api`, `app in (a, b)`, `app exists`.
pub(crate) fn requirement(requirement: &Requirement<&str>) -> String {
    let Requirement {
        key,
        operator,
        values,
    } = requirement;
    match (operator, values.as_slice()) {
        (Operator::In, [value]) => format!("{key}={value}"),
        (Operator::In, values) => format!("{key} in ({})", values.join(", ")),
        (Operator::NotIn, [value]) => format!("{key}!={value}"),
        (Operator::NotIn, values) => format!("{key} not in ({})", values.join(", ")),
        (Operator::Exists, _) => format!("{key} with any value"),
        (Operator::DoesNotExist, _) => format!("no {key}"),
    }
}

fn wanted(cluster: &Cluster<'_>, want: &Condition<'_>) -> String {
    match want {
        Condition::PodLabel(it, _) => requirement(it),
        Condition::NamespaceLabel(it, _) => format!("namespaces with {}", requirement(it)),
        Condition::NodeLabel(it, _) => format!("nodes with {}", requirement(it)),
        Condition::Namespace(id) => {
            let name = cluster.namespace_name(*id);
            format!("pods of the namespace {name}")
        }
        Condition::Relation(set) => match set {
            NamespaceSet::Own => "pods of the subject's own namespace".to_owned(),
            NamespaceSet::NotOwn => "pods of other namespaces than the subject's".to_owned(),
            NamespaceSet::SameLabels(keys) => {
                let keys = keys.join(", ");
                format!("namespaces with the same value of {keys} as the subject's")
            }
            NamespaceSet::NotSameLabels(keys) => {
                let keys = keys.join(", ");
                format!("namespaces with another value of {keys} than the subject's")
            }
            NamespaceSet::Exact(_) | NamespaceSet::Selected { .. } => {
                "namespaces that it does not exclude".to_owned()
            }
        },
        Condition::Pod => "pods".to_owned(),
        Condition::Node => "nodes".to_owned(),
        Condition::Address(cidr, except) if except.is_empty() => cidr.to_string(),
        Condition::Address(cidr, except) => {
            let except: Vec<String> = except.iter().map(ToString::to_string).collect();
            format!("{cidr} except {}", except.join(", "))
        }
        Condition::Domain(patterns) => {
            let names = patterns.iter().map(|it| {
                let wildcard = if it.wildcard { "*." } else { "" };
                format!("{wildcard}{}", it.name)
            });
            let names: Vec<String> = names.collect();
            format!("the addresses of {}", names.join(", "))
        }
        Condition::Port(ports) => {
            let ports: Vec<String> = ports.iter().map(port).collect();
            if ports.is_empty() {
                "no readable port".to_owned()
            } else {
                ports.join(", ")
            }
        }
    }
}

fn port(port: &PortMatch<'_>) -> String {
    match port {
        PortMatch::Numbers(protocol, range) => {
            let protocol = protocol.name().to_ascii_lowercase();
            let (start, end) = (range.start().get(), range.end().get());
            match (start, end) {
                (1, u16::MAX) => format!("{protocol}/*"),
                _ if start == end => format!("{protocol}/{start}"),
                _ => format!("{protocol}/{start}-{end}"),
            }
        }
        PortMatch::Named(Some(protocol), name) => {
            format!("{}/{name}", protocol.name().to_ascii_lowercase())
        }
        PortMatch::Named(None, name) => format!("the port named {name}"),
    }
}

fn found(
    single: &FlowAnswer,
    direction: Direction,
    other: &Other<'_>,
    want: &Condition<'_>,
) -> Option<String> {
    let has = |whose: &str, it: &Requirement<&str>, value: &Option<&str>| match value {
        Some(value) => format!("{whose} has {}={value}", it.key),
        None => format!("{whose} has no {}", it.key),
    };
    let name = &other.name;
    match want {
        Condition::PodLabel(it, value) | Condition::NodeLabel(it, value) => {
            Some(has(name, it, value))
        }
        Condition::NamespaceLabel(it, value) => {
            let namespace = other.namespace?;
            Some(has(&format!("the namespace {namespace}"), it, value))
        }
        Condition::Namespace(_) | Condition::Relation(_) => {
            let namespace = other.namespace?;
            Some(format!("{name} is in {namespace}"))
        }
        Condition::Pod => Some(format!("{name} is not a pod of the cluster")),
        Condition::Node => Some(format!("{name} is not a node")),
        Condition::Address(..) | Condition::Domain(_) => {
            let (end, address) = match direction {
                Direction::Ingress => (single.source, single.source_address),
                Direction::Egress => (single.destination, single.destination_address),
            };
            let address = address.filter(|_| !matches!(end, EndName::Address(_)));
            address.map(|address| format!("{name} has {address}"))
        }
        Condition::Port(_) => Some(format!("the flow is {}", carried(single.transport))),
    }
}

fn carried(carried: Transport) -> String {
    match carried {
        Transport::Port(protocol, port) => {
            format!("{}/{port}", protocol.name().to_ascii_lowercase())
        }
        Transport::Icmp => "icmp".to_owned(),
        Transport::Icmp6(_) => "icmpv6".to_owned(),
        Transport::Ip(number) => format!("ip/{number}"),
    }
}
