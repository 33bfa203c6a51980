//! Valid objects as seeds, and the dictionary of replacement values.

use palisade_api::Kind;
use serde_json::{Value, json};

/// A policy kind that has a fuzz target.
#[derive(Debug)]
pub struct Target {
    /// The kind.
    pub kind: Kind,
    /// The name of the target and of its corpus.
    pub name: &'static str,
    api_version: &'static str,
    specs: fn() -> Vec<Value>,
}

/// The targets.
pub const TARGETS: [Target; 7] = [
    Target {
        kind: Kind::NetworkPolicy,
        name: "network_policy",
        api_version: "networking.k8s.io/v1",
        specs: || vec![network_policy()],
    },
    Target {
        kind: Kind::NetworkPolicy2016,
        name: "network_policy_2016",
        api_version: "v1beta",
        specs: || vec![network_policy_2016()],
    },
    Target {
        kind: Kind::AdminNetworkPolicy,
        name: "admin_network_policy",
        api_version: "policy.networking.k8s.io/v1alpha1",
        specs: || ["K", "N", "F"].map(admin).to_vec(),
    },
    Target {
        kind: Kind::BaselineAdminNetworkPolicy,
        name: "baseline_admin_network_policy",
        api_version: "policy.networking.k8s.io/v1alpha1",
        specs: || ["K", "N", "F"].map(baseline).to_vec(),
    },
    Target {
        kind: Kind::ClusterNetworkPolicy,
        name: "cluster_network_policy",
        api_version: "policy.networking.k8s.io/v1alpha2",
        specs: || vec![cluster_network_policy()],
    },
    Target {
        kind: Kind::EarlyClusterNetworkPolicy,
        name: "early_cluster_network_policy",
        api_version: "networking.k8s.io/v1alpha1",
        specs: || vec![early("from", "to", true)],
    },
    Target {
        kind: Kind::DefaultNetworkPolicy,
        name: "default_network_policy",
        api_version: "networking.k8s.io/v1alpha1",
        specs: || vec![early("onlyFrom", "onlyTo", false)],
    },
];

impl Target {
    /// Valid objects of the kind that together use every field.
    pub fn seeds(&self) -> Vec<Value> {
        let object = |spec| {
            json!({
                "apiVersion": self.api_version,
                "kind": self.kind.name(),
                "metadata": {"name": "default", "labels": {"a": "b"}, "annotations": {"c": "d"}},
                "spec": spec,
            })
        };
        (self.specs)().into_iter().map(object).collect()
    }
}

/// Like an AdminNetworkPolicy, but without a priority.
fn baseline(shape: &str) -> Value {
    let mut spec = admin(shape);
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("priority");
    }
    spec
}

fn selector() -> Value {
    json!({
        "matchLabels": {"app": "db"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["a", "b"]},
            {"key": "x", "operator": "Exists"},
        ],
    })
}

fn ports() -> Value {
    json!([{"port": 80}, {"protocol": "UDP", "port": "dns"}, {"port": 1, "endPort": 9}, {}])
}

fn network_policy() -> Value {
    let peers = json!([
        {"podSelector": selector()},
        {"namespaceSelector": {}, "podSelector": {}},
        {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
    ]);
    json!({
        "podSelector": selector(),
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": peers, "ports": ports()}, {}],
        "egress": [{"to": peers, "ports": ports()}],
    })
}

fn network_policy_2016() -> Value {
    json!({
        "podSelector": {"role": "backend"},
        "ingress": [
            {"from": [{"pods": {"role": "web"}}, {"namespaces": selector()}], "ports": [{"port": 80}]},
            {},
        ],
    })
}

fn admin(shape: &str) -> Value {
    let namespaces = |inner: Value| match shape {
        "F" => selector(),
        _ => inner,
    };
    let pods = match shape {
        "K" => json!({"namespaces": {"related": "Self"}, "podSelector": selector()}),
        "N" => json!({"namespaces": {"namespaceSelector": {}}, "podSelector": {}}),
        _ => json!({"namespaceSelector": {}, "podSelector": selector()}),
    };
    let peers = vec![
        json!({"namespaces": namespaces(json!({"sameLabels": ["tenant"]}))}),
        json!({"namespaces": namespaces(json!({"notSameLabels": ["tenant"]}))}),
        json!({"namespaces": namespaces(json!({"namespaceSelector": selector()}))}),
        json!({"pods": pods}),
    ];
    let mut to = peers.clone();
    if shape == "F" {
        to.push(json!({"networks": ["10.0.0.0/8", "fd00::/8"]}));
        to.push(json!({"nodes": selector()}));
    }
    let ports = json!([
        {"portNumber": {"protocol": "TCP", "port": 80}},
        {"portRange": {"protocol": "UDP", "start": 1, "end": 9}},
        {"namedPort": "http"},
    ]);
    json!({
        "priority": 10,
        "subject": {"pods": {"namespaceSelector": {}, "podSelector": selector()}},
        "ingress": [{"name": "one", "action": "Allow", "from": peers, "ports": ports}],
        "egress": [{"action": "Deny", "to": to}],
    })
}

fn cluster_network_policy() -> Value {
    let protocols = json!([
        {"tcp": {"destinationPort": {"number": 80}}},
        {"udp": {"destinationPort": {"range": {"start": 1, "end": 9}}}},
        {"sctp": {"destinationPort": {"number": 9}}},
        {"destinationNamedPort": "http"},
    ]);
    json!({
        "tier": "Admin",
        "priority": 10,
        "subject": {"namespaces": selector()},
        "ingress": [{
            "name": "one",
            "action": "Accept",
            "from": [{"namespaces": {}}, {"pods": {"podSelector": selector()}}, {"all": {}}],
            "protocols": protocols,
        }],
        "egress": [{
            "action": "Accept",
            "to": [
                {"networks": ["10.0.0.0/8", "fd00::/8"]},
                {"nodes": selector()},
                {"domainNames": ["*.example.com", "example.org."]},
                {"all": {}},
            ],
        }],
    })
}

fn early(from: &str, to: &str, actions: bool) -> Value {
    let peers = json!([
        {"namespaces": {"self": true}, "podSelector": selector()},
        {"namespaces": {"selector": {}, "except": [selector()]}},
        {"ipBlock": {"cidr": "10.0.0.0/8"}},
    ]);
    let mut ingress = json!({"ports": ports()});
    let mut egress = json!({});
    if let (Some(ingress), Some(egress)) = (ingress.as_object_mut(), egress.as_object_mut()) {
        ingress.insert(from.to_owned(), peers.clone());
        egress.insert(to.to_owned(), peers);
        if actions {
            ingress.insert("action".to_owned(), json!("Deny"));
            egress.insert("action".to_owned(), json!("Allow"));
        }
    }
    json!({
        "appliedTo": {"namespaceSelector": {}, "podSelector": selector()},
        "ingress": [ingress],
        "egress": [egress],
    })
}

/// Texts that are keys or values of some field, and some that are none.
const TEXTS: &[&str] = &[
    "",
    "y",
    "null",
    "80",
    "-1",
    "TCP",
    "tcp",
    "SCTP",
    "Allow",
    "Accept",
    "Deny",
    "Pass",
    "Admin",
    "Baseline",
    "Ingress",
    "Egress",
    "In",
    "NotIn",
    "Exists",
    "DoesNotExist",
    "Self",
    "self",
    "NotSelf",
    "10.0.0.0/8",
    "10.0.0.1/8",
    "010.0.0.0/8",
    "::/0",
    "::ffff:1.2.3.4/96",
    "1.2.3.4",
    "a/b/c",
    "*.com",
    "**.a.b",
    "a_.b",
    "{{ .x }}",
    "from",
    "to",
    "onlyFrom",
    "onlyTo",
    "ports",
    "protocols",
    "action",
    "namespaces",
    "pods",
    "podSelector",
    "namespaceSelector",
    "matchLabels",
    "matchExpressions",
    "key",
    "operator",
    "values",
    "subject",
    "priority",
    "tier",
    "networks",
    "nodes",
    "domainNames",
    "all",
    "ipBlock",
    "cidr",
    "except",
    "related",
    "sameLabels",
    "notSameLabels",
    "self",
    "selector",
    "portNumber",
    "portRange",
    "namedPort",
    "port",
    "endPort",
    "protocol",
    "start",
    "end",
    "number",
    "range",
    "destinationPort",
    "tcp",
    "udp",
    "sctp",
    "destinationNamedPort",
    "name",
    "spec",
    "metadata",
    "status",
    "conditions",
    "type",
    "labels",
    "annotations",
    "appliedTo",
    "policyTypes",
    "ingress",
    "egress",
    "http",
    "Http",
    "a-very-long-port-name",
    "\u{7}",
    "\u{202e}x",
    "é",
    "x y",
];

/// Keys and values that have a meaning in some field, and some that have none.
pub(super) fn dictionary() -> Vec<Value> {
    let mut dictionary: Vec<Value> = TEXTS.iter().map(|it| Value::from(*it)).collect();
    dictionary.extend([
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(-1),
        json!(80),
        json!(1000),
        json!(1001),
        json!(65535),
        json!(65536),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(1.5),
        json!({}),
        json!([]),
        json!([null]),
        json!({"": ""}),
        json!([[]]),
    ]);
    dictionary
}
