//! The objects of the tests: a node, its pods and their policies, as manifests.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use palisade_core::net::Family;
use serde_json::{Value, json};

/// The node under test.
pub const NODE: &str = "here";
/// The namespace of all pods and policies.
pub const NAMESPACE: &str = "churn";
/// The address blocks of the node's pods.
pub const POD_BLOCKS: [&str; 2] = ["10.0.1.0/24", "fd00:1::/64"];

/// An object's kind and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The kind.
    pub kind: &'static str,
    /// The name.
    pub name: String,
}

/// All objects of the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects(BTreeMap<Key, Value>);

impl Objects {
    /// A node and a namespace.
    pub fn new() -> Objects {
        let mut objects = Objects::default();
        objects.put(
            "Node",
            NODE,
            json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": NODE},
                "spec": {"podCIDR": POD_BLOCKS[0], "podCIDRs": POD_BLOCKS},
                "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]},
            }),
        );
        objects.put(
            "Namespace",
            NAMESPACE,
            json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": NAMESPACE,
                    "labels": {"kubernetes.io/metadata.name": NAMESPACE},
                },
            }),
        );
        objects
    }

    /// Sets an object.
    pub fn put(&mut self, kind: &'static str, name: &str, object: Value) {
        let name = name.to_owned();
        self.0.insert(Key { kind, name }, object);
    }

    /// Deletes an object.
    pub fn take(&mut self, kind: &'static str, name: &str) {
        let name = name.to_owned();
        self.0.remove(&Key { kind, name });
    }

    /// Sets a pod.
    pub fn put_pod(&mut self, pod: &Pod<'_>) {
        self.put("Pod", pod.name, pod.object());
    }

    /// Sets a NetworkPolicy.
    pub fn put_policy(&mut self, name: &str, spec: &Value) {
        let object = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec,
        });
        self.put("NetworkPolicy", name, object);
    }

    /// Every object, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.0.iter()
    }

    /// An object.
    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.0.get(key)
    }

    /// All of them as one list.
    pub fn list(&self) -> Value {
        let items: Vec<&Value> = self.0.values().collect();
        json!({"apiVersion": "v1", "kind": "List", "items": items})
    }
}

/// A pod.
#[derive(Clone, Debug)]
pub struct Pod<'a> {
    /// Its name.
    pub name: &'a str,
    /// The value of its label `app`.
    pub app: &'a str,
    /// Its node.
    pub node: &'a str,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its phase.
    pub phase: &'a str,
    /// The minute of its creation.
    pub minute: u64,
    /// Its identity.
    pub uid: u64,
}

impl<'a> Pod<'a> {
    /// A running pod of the node with the addresses of a place.
    pub fn at(name: &'a str, app: &'a str, place: usize) -> Pod<'a> {
        Pod {
            name,
            app,
            node: NODE,
            addresses: Family::BOTH
                .map(|family| pod_address(place, family))
                .to_vec(),
            phase: "Running",
            minute: 0,
            uid: 0,
        }
    }

    /// A running pod of another node.
    pub fn elsewhere(name: &'a str, app: &'a str, number: u8) -> Pod<'a> {
        Pod {
            node: "elsewhere",
            addresses: vec![
                Ipv4Addr::new(10, 0, 2, number).into(),
                Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, number.into()).into(),
            ],
            ..Pod::at(name, app, 0)
        }
    }

    fn object(&self) -> Value {
        let addresses = self.addresses.iter();
        let addresses: Vec<Value> = addresses.map(|it| json!({"ip": it})).collect();
        let (hour, minute) = (self.minute / 60 % 24, self.minute % 60);
        let mut status = json!({"phase": self.phase});
        if let (Some(status), Some(first)) = (status.as_object_mut(), self.addresses.first()) {
            status.insert("podIP".to_owned(), json!(first));
            status.insert("podIPs".to_owned(), json!(addresses));
        }
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": NAMESPACE,
                "uid": format!("00000000-0000-4000-8000-{:012}", self.uid),
                "creationTimestamp": format!("2026-01-01T{hour:02}:{minute:02}:00Z"),
                "labels": {"app": self.app},
            },
            "spec": {"nodeName": self.node, "containers": [{"name": "main", "image": "main"}]},
            "status": status,
        })
    }
}

/// The address of one of the node's places for pods.
pub fn pod_address(place: usize, family: Family) -> IpAddr {
    // The number of places is small.
    let last = place as u8 + 1;
    match family {
        Family::V4 => Ipv4Addr::new(10, 0, 1, last).into(),
        Family::V6 => Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, last.into()).into(),
    }
}

/// A NetworkPolicy spec that allows pods with one label `app` ingress from pods with another, on
/// TCP and UDP ports.
pub fn admits(subject: &str, peer: &str, ports: &[u16]) -> Value {
    json!({
        "podSelector": {"matchLabels": {"app": subject}},
        "policyTypes": ["Ingress"],
        "ingress": [{
            "from": [{"podSelector": {"matchLabels": {"app": peer}}}],
            "ports": both_protocols(ports),
        }],
    })
}

/// A NetworkPolicy spec that allows pods with one label `app` egress to pods with another, on TCP
/// and UDP ports.
pub fn sends(subject: &str, peer: &str, ports: &[u16]) -> Value {
    json!({
        "podSelector": {"matchLabels": {"app": subject}},
        "policyTypes": ["Egress"],
        "egress": [{
            "to": [{"podSelector": {"matchLabels": {"app": peer}}}],
            "ports": both_protocols(ports),
        }],
    })
}

/// A NetworkPolicy spec that isolates pods with a label `app` in both directions.
pub fn isolates(subject: &str) -> Value {
    json!({
        "podSelector": {"matchLabels": {"app": subject}},
        "policyTypes": ["Ingress", "Egress"],
    })
}

fn both_protocols(ports: &[u16]) -> Vec<Value> {
    let ports = ports
        .iter()
        .flat_map(|port| ["TCP", "UDP"].map(|protocol| (protocol, port)));
    ports
        .map(|(protocol, port)| json!({"protocol": protocol, "port": port}))
        .collect()
}
