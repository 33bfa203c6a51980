//! NetworkPolicies in the shapes that users write.

use serde_json::{Value, json};

use super::cluster::App;
use super::rng::Rng;
use super::selector;

pub(super) fn build(rng: &mut Rng, app: &App, other: &App, serial: u64) -> Value {
    let (shape, spec) = spec(rng, app, other);
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "labels": {"app.kubernetes.io/name": app.name},
            "name": format!("{}-{shape}-{serial}", app.name),
            "namespace": app.home.name,
        },
        "spec": spec,
    })
}

fn spec(rng: &mut Rng, app: &App, other: &App) -> (&'static str, Value) {
    match rng.below(10) {
        0 => (
            "deny-all",
            json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}),
        ),
        1 => (
            "isolate",
            json!({
                "ingress": [],
                "podSelector": selector::pods(rng, app),
                "policyTypes": ["Ingress"],
            }),
        ),
        2 => (
            "open",
            json!({
                "ingress": [{}],
                "podSelector": selector::pods(rng, app),
                "policyTypes": ["Ingress"],
            }),
        ),
        3 => (
            "same-namespace",
            json!({
                "ingress": [{"from": [{"podSelector": {}}]}],
                "podSelector": {},
            }),
        ),
        4..=6 => (
            "ingress",
            json!({
                "ingress": rules(rng, "from", app, other),
                "podSelector": selector::pods(rng, app),
                "policyTypes": ["Ingress"],
            }),
        ),
        7..=8 => (
            "egress",
            json!({
                "egress": with_dns(rules(rng, "to", app, other)),
                "podSelector": selector::pods(rng, app),
                "policyTypes": ["Egress"],
            }),
        ),
        _ => (
            "both",
            json!({
                "egress": with_dns(rules(rng, "to", app, other)),
                "ingress": rules(rng, "from", app, other),
                "podSelector": selector::pods(rng, app),
                "policyTypes": ["Ingress", "Egress"],
            }),
        ),
    }
}

fn rules(rng: &mut Rng, side: &str, app: &App, other: &App) -> Vec<Value> {
    (0..rng.between(1, 3))
        .map(|_| {
            let peers: Vec<Value> = (0..rng.between(1, 3))
                .map(|_| peer(rng, app, other))
                .collect();
            let mut rule = json!({side: peers});
            if let (true, Value::Object(rule)) = (rng.chance(70), &mut rule) {
                rule.insert("ports".to_owned(), ports(rng, app).into());
            }
            rule
        })
        .collect()
}

fn with_dns(mut rules: Vec<Value>) -> Vec<Value> {
    rules.push(json!({
        "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}],
        "to": [{
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
        }],
    }));
    rules
}

fn peer(rng: &mut Rng, app: &App, other: &App) -> Value {
    match rng.below(10) {
        0..=2 => json!({"podSelector": selector::pods(rng, app)}),
        3 => json!({"namespaceSelector": selector::namespaces(rng, &other.home)}),
        4..=5 => json!({
            "namespaceSelector": selector::namespaces(rng, &other.home),
            "podSelector": selector::pods(rng, other),
        }),
        6 => {
            let block = rng.below(256);
            json!({"ipBlock": {
                "cidr": format!("10.{block}.0.0/16"),
                "except": [format!("10.{block}.4.0/24"), format!("10.{block}.5.0/24")],
            }})
        }
        7 => json!({"ipBlock": {"cidr": format!("fd00:{:x}::/32", rng.below(4096))}}),
        _ => json!({"ipBlock": {"cidr": format!("203.0.113.{}/32", rng.below(256))}}),
    }
}

fn ports(rng: &mut Rng, app: &App) -> Vec<Value> {
    (0..rng.between(1, 2))
        .map(|_| match rng.below(8) {
            0..=3 => json!({"port": app.port, "protocol": "TCP"}),
            4 => json!({"port": "http", "protocol": "TCP"}),
            5 => json!({"endPort": 32767, "port": rng.between(30000, 32000), "protocol": "TCP"}),
            6 => json!({"protocol": "SCTP"}),
            _ => json!({"port": rng.between(1024, 65535)}),
        })
        .collect()
}
