//! Cluster-wide policies of a whole cluster: three kinds, both tiers, all kinds of peers.

use serde_json::{Value, json};

use super::{N_NAMES, Population, name};
use crate::rng::Rng;
use crate::selector;

/// The field names of a kind of policy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// ClusterNetworkPolicy.
    Cluster,
    /// AdminNetworkPolicy in its last shape.
    Admin,
    /// AdminNetworkPolicy in its first shape, whose peers can depend on the subject.
    EarlyAdmin,
    /// The BaselineAdminNetworkPolicy.
    Baseline,
}

pub(super) fn build(rng: &mut Rng, population: &Population, serial: u64) -> Value {
    // There can be only one.
    let shape = match rng.below(10) {
        _ if serial == 0 => Shape::Baseline,
        0..7 => Shape::Cluster,
        7..9 => Shape::Admin,
        _ => Shape::EarlyAdmin,
    };
    let home = population.busy_home(rng);
    let (mut ingress, mut egress) = (Vec::new(), Vec::new());
    for index in 0..rng.between(1, 5) {
        if rng.chance(50) {
            ingress.push(rule(rng, population, shape, "from", index));
        } else {
            egress.push(rule(rng, population, shape, "to", index));
        }
    }
    let mut spec = json!({"subject": subject(rng, population, home)});
    if let Value::Object(spec) = &mut spec {
        if !ingress.is_empty() {
            spec.insert("ingress".to_owned(), ingress.into());
        }
        if !egress.is_empty() {
            spec.insert("egress".to_owned(), egress.into());
        }
        if shape != Shape::Baseline {
            spec.insert("priority".to_owned(), rng.below(1001).into());
        }
        if shape == Shape::Cluster {
            let tier = if rng.chance(5) { "Baseline" } else { "Admin" };
            spec.insert("tier".to_owned(), tier.into());
        }
    }
    let (version, kind, name) = match shape {
        Shape::Cluster => ("v1alpha2", "ClusterNetworkPolicy", format!("rule-{serial}")),
        Shape::Admin | Shape::EarlyAdmin => {
            ("v1alpha1", "AdminNetworkPolicy", format!("rule-{serial}"))
        }
        Shape::Baseline => (
            "v1alpha1",
            "BaselineAdminNetworkPolicy",
            "default".to_owned(),
        ),
    };
    json!({
        "apiVersion": format!("policy.networking.k8s.io/{version}"),
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    })
}

fn subject(rng: &mut Rng, population: &Population, home: usize) -> Value {
    let (tenant, env) = population
        .home(home)
        .map_or(("", ""), |home| (&*home.tenant, home.env));
    let namespaces = match rng.below(10) {
        0..3 => json!({"matchLabels": {"env": env}}),
        3..9 => json!({"matchLabels": {"tenant": tenant}}),
        _ => json!({}),
    };
    if rng.chance(80) {
        return json!({"namespaces": namespaces});
    }
    let component = rng.pick(&["api", "web", "worker", "cache", "store"]);
    json!({"pods": {
        "namespaceSelector": namespaces,
        "podSelector": {"matchLabels": {"app.kubernetes.io/component": component}},
    }})
}

fn rule(rng: &mut Rng, population: &Population, shape: Shape, side: &str, index: u64) -> Value {
    let action = match (shape, rng.below(3)) {
        (Shape::Cluster, 0) => "Accept",
        (_, 0) => "Allow",
        (_, 1) | (Shape::Baseline, _) => "Deny",
        (_, _) => "Pass",
    };
    let peers: Vec<Value> = (0..rng.between(1, 3))
        .map(|_| peer(rng, population, shape, side, action))
        .collect();
    let mut rule = json!({
        "action": action,
        "name": format!("{}-{side}-{index}", action.to_lowercase()),
        side: peers,
    });
    if let (true, Value::Object(rule)) = (rng.chance(60), &mut rule) {
        // A port name beside networks: one channel refuses it.
        let with_names = side == "from";
        let key = match shape {
            Shape::Cluster => "protocols",
            Shape::Admin | Shape::EarlyAdmin | Shape::Baseline => "ports",
        };
        let ports: Vec<Value> = (0..rng.between(1, 2))
            .map(|_| port(rng, shape, with_names))
            .collect();
        rule.insert(key.to_owned(), ports.into());
    }
    rule
}

fn peer(rng: &mut Rng, population: &Population, shape: Shape, side: &str, action: &str) -> Value {
    let home = population.busy_home(rng);
    if shape == Shape::EarlyAdmin {
        return early_peer(rng, population, home);
    }
    let Some(place) = population.home(home) else {
        return json!({"namespaces": {}});
    };
    match rng.below(if side == "to" { 100 } else { 80 }) {
        0..46 => json!({"namespaces": {"matchLabels": {"tenant": place.tenant}}}),
        46..50 => json!({"namespaces": {"matchLabels": {"env": place.env}}}),
        50..56 => json!({"namespaces": selector::namespaces(rng, place)}),
        56..79 => json!({"pods": {
            "namespaceSelector": selector::namespaces(rng, place),
            "podSelector": pods(rng, population, home),
        }}),
        79 if shape == Shape::Cluster => json!({"all": {}}),
        80..88 => {
            let n_networks = rng.between(1, 6);
            json!({"networks": selector::networks(rng, n_networks)})
        }
        88..94 => json!({"nodes": nodes(rng)}),
        94.. if action == "Accept" => {
            let exact = name(rng.below(N_NAMES.into()) as u8);
            let below = format!("*.service-{}.example.com", rng.below(12));
            json!({"domainNames": [exact, below]})
        }
        _ => json!({"namespaces": {"matchLabels": {
            "kubernetes.io/metadata.name": place.name,
        }}}),
    }
}

fn early_peer(rng: &mut Rng, population: &Population, home: usize) -> Value {
    let namespaces = match rng.below(4) {
        0 => json!({"sameLabels": ["tenant"]}),
        1 => json!({"notSameLabels": ["tenant"]}),
        2 => json!({"related": "Self"}),
        _ => json!({"related": "NotSelf"}),
    };
    if rng.chance(60) {
        return json!({"namespaces": namespaces});
    }
    let pods = pods(rng, population, home);
    json!({"pods": {"namespaces": namespaces, "podSelector": pods}})
}

fn pods(rng: &mut Rng, population: &Population, home: usize) -> Value {
    match population.app(rng, home).cloned() {
        Some(app) => selector::pods(rng, &app),
        None => json!({}),
    }
}

fn nodes(rng: &mut Rng) -> Value {
    match rng.below(3) {
        0 => json!({"matchLabels": {"pool": rng.pick(&["general", "memory", "edge"])}}),
        1 => json!({"matchExpressions": [
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a", "zone-b"]},
        ]}),
        _ => json!({"matchExpressions": [
            {"key": "node-role.kubernetes.io/worker", "operator": "Exists"},
        ]}),
    }
}

fn port(rng: &mut Rng, shape: Shape, with_names: bool) -> Value {
    let number = rng.pick(&[80, 443, 8080, 8443, 3000, 5432, 6379, 9000, 9090]);
    let choice = rng.below(if with_names { 10 } else { 8 });
    if shape == Shape::Cluster {
        return match choice {
            0..5 => json!({"tcp": {"destinationPort": {"number": number}}}),
            5 => json!({"tcp": {"destinationPort": {"range": {"end": 32767, "start": 30000}}}}),
            6 => json!({"udp": {"destinationPort": {"number": 53}}}),
            7 => json!({"sctp": {"destinationPort": {"number": 9999}}}),
            _ => json!({"destinationNamedPort": rng.pick(&["http", "metrics"])}),
        };
    }
    match choice {
        0..6 => json!({"portNumber": {"port": number, "protocol": "TCP"}}),
        6..8 => json!({"portRange": {"end": 9999, "protocol": "UDP", "start": 9000}}),
        _ => json!({"namedPort": rng.pick(&["http", "metrics"])}),
    }
}
