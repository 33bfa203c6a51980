//! The fields that Palisade reads, for all kinds at once, borrowed from the input.
//!
//! One structure for every kind lets the decoder read the bytes once, wherever the key `kind` is.
//! No code reads the fields: they exist to be decoded.
#![expect(dead_code, reason = "decoding is all that is measured")]

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

/// A string that is copied only if it has escapes. serde borrows a bare `Cow` field, but not one
/// inside an `Option` or a `Vec`; this type borrows there as well.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A map of strings, in the order of the input.
#[derive(Debug)]
pub(crate) struct Entries<'a>(Vec<(Text<'a>, Text<'a>)>);

/// A port by number or by name.
#[derive(Debug)]
pub(crate) enum Port<'a> {
    Number(u64),
    Name(Text<'a>),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct List<'a> {
    #[serde(borrow)]
    api_version: Text<'a>,
    kind: Text<'a>,
    pub(crate) items: Vec<Object<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Object<'a> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    metadata: Option<Metadata<'a>>,
    spec: Option<Spec<'a>>,
    status: Option<Status<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    namespace: Option<Text<'a>>,
    labels: Option<Entries<'a>>,
    annotations: Option<Entries<'a>>,
    owner_references: Option<Vec<Owner<'a>>>,
    creation_timestamp: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner<'a> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    name: Option<Text<'a>>,
    controller: Option<bool>,
}

/// Pod, NetworkPolicy, ClusterNetworkPolicy and AdminNetworkPolicy.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    node_name: Option<Text<'a>>,
    host_network: Option<bool>,
    containers: Option<Vec<Container<'a>>>,
    init_containers: Option<Vec<Container<'a>>>,
    pod_selector: Option<Selector<'a>>,
    policy_types: Option<Vec<Text<'a>>>,
    tier: Option<Text<'a>>,
    priority: Option<i64>,
    subject: Option<Peer<'a>>,
    ingress: Option<Vec<Rule<'a>>>,
    egress: Option<Vec<Rule<'a>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    restart_policy: Option<Text<'a>>,
    ports: Option<Vec<ContainerPort<'a>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerPort<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    container_port: Option<u64>,
    protocol: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
struct Status<'a> {
    #[serde(borrow)]
    phase: Option<Text<'a>>,
    #[serde(rename = "podIP")]
    pod_ip: Option<Text<'a>>,
    #[serde(rename = "podIPs")]
    pod_ips: Option<Vec<Address<'a>>>,
}

#[derive(Debug, Deserialize)]
struct Address<'a> {
    #[serde(borrow)]
    ip: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
struct Rule<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    action: Option<Text<'a>>,
    from: Option<Vec<Peer<'a>>>,
    to: Option<Vec<Peer<'a>>>,
    ports: Option<Vec<RulePort<'a>>>,
    protocols: Option<Vec<Protocol<'a>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Peer<'a> {
    #[serde(borrow)]
    pod_selector: Option<Selector<'a>>,
    namespace_selector: Option<Selector<'a>>,
    ip_block: Option<Block<'a>>,
    namespaces: Option<Selector<'a>>,
    pods: Option<NamespacedPod<'a>>,
    nodes: Option<Selector<'a>>,
    networks: Option<Vec<Text<'a>>>,
    domain_names: Option<Vec<Text<'a>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NamespacedPod<'a> {
    #[serde(borrow)]
    namespace_selector: Option<Selector<'a>>,
    pod_selector: Option<Selector<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Selector<'a> {
    #[serde(borrow)]
    match_labels: Option<Entries<'a>>,
    match_expressions: Option<Vec<Expression<'a>>>,
}

#[derive(Debug, Deserialize)]
struct Expression<'a> {
    #[serde(borrow)]
    key: Option<Text<'a>>,
    operator: Option<Text<'a>>,
    values: Option<Vec<Text<'a>>>,
}

#[derive(Debug, Deserialize)]
struct Block<'a> {
    #[serde(borrow)]
    cidr: Option<Text<'a>>,
    except: Option<Vec<Text<'a>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RulePort<'a> {
    #[serde(borrow)]
    protocol: Option<Text<'a>>,
    port: Option<Port<'a>>,
    end_port: Option<u64>,
    port_number: Option<PortNumber<'a>>,
    named_port: Option<Text<'a>>,
    port_range: Option<PortRange<'a>>,
}

#[derive(Debug, Deserialize)]
struct PortNumber<'a> {
    #[serde(borrow)]
    protocol: Option<Text<'a>>,
    port: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct PortRange<'a> {
    #[serde(borrow)]
    protocol: Option<Text<'a>>,
    start: Option<u64>,
    end: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Protocol<'a> {
    tcp: Option<Destination>,
    udp: Option<Destination>,
    sctp: Option<Destination>,
    #[serde(borrow)]
    destination_named_port: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Destination {
    destination_port: Option<DestinationPort>,
}

#[derive(Debug, Deserialize)]
struct DestinationPort {
    number: Option<u64>,
    range: Option<Range>,
}

#[derive(Debug, Deserialize)]
struct Range {
    start: Option<u64>,
    end: Option<u64>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;

        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a map of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(EntriesVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Port<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PortVisitor;

        impl<'de> Visitor<'de> for PortVisitor {
            type Value = Port<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a port number or name")
            }

            fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
                Ok(Port::Number(number))
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Port::Name(Text(Cow::Borrowed(name))))
            }

            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Port::Name(Text(Cow::Owned(name.to_owned()))))
            }
        }

        deserializer.deserialize_any(PortVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_without_escapes_are_borrowed() {
        let text = r#"{"apiVersion":"v1","items":[{"metadata":{"name":"a","labels":{"k":"v"}},
            "spec":{"ingress":[{"ports":[{"port":"http"},{"port":80}]}]}}],"kind":"List"}"#;
        let list: List<'_> = serde_json::from_str(text).unwrap();
        let object = &list.items[0];
        let metadata = object.metadata.as_ref().unwrap();
        assert!(matches!(metadata.name, Some(Text(Cow::Borrowed("a")))));
        let labels = metadata.labels.as_ref().unwrap();
        assert!(matches!(
            labels.0[0],
            (Text(Cow::Borrowed("k")), Text(Cow::Borrowed("v")))
        ));
        let rule = &object.spec.as_ref().unwrap().ingress.as_ref().unwrap()[0];
        let ports = rule.ports.as_ref().unwrap();
        assert!(matches!(
            ports[0].port,
            Some(Port::Name(Text(Cow::Borrowed("http"))))
        ));
        assert!(matches!(ports[1].port, Some(Port::Number(80))));
    }
}
