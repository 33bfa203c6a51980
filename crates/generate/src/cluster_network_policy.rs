//! ClusterNetworkPolicies with the fields that every channel of the API has.

use serde_json::{Value, json};

use super::cluster::App;
use super::rng::Rng;
use super::selector;

pub(super) fn build(rng: &mut Rng, app: &App, other: &App, serial: u64) -> Value {
    let tier = if rng.chance(80) { "Admin" } else { "Baseline" };
    let (n_ingress, n_egress) = (rng.below(4), rng.between(1, 4));
    let ingress: Vec<Value> = (0..n_ingress)
        .map(|index| rule(rng, "from", index, app, other))
        .collect();
    let egress: Vec<Value> = (0..n_egress)
        .map(|index| rule(rng, "to", index, app, other))
        .collect();
    json!({
        "apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": "ClusterNetworkPolicy",
        "metadata": {"name": format!("{}-{serial}", app.home.tenant)},
        "spec": {
            "egress": egress,
            "ingress": ingress,
            "priority": rng.below(1001),
            "subject": subject(rng, app),
            "tier": tier,
        },
    })
}

fn subject(rng: &mut Rng, app: &App) -> Value {
    if rng.chance(70) {
        return json!({"namespaces": selector::namespaces(rng, &app.home)});
    }
    json!({"pods": {
        "namespaceSelector": selector::namespaces(rng, &app.home),
        "podSelector": selector::pods(rng, app),
    }})
}

fn rule(rng: &mut Rng, side: &str, index: u64, app: &App, other: &App) -> Value {
    let action = rng.pick(&["Accept", "Deny", "Pass"]);
    let peers: Vec<Value> = (0..rng.between(1, 3))
        .map(|_| peer(rng, side, app, other))
        .collect();
    let mut rule = json!({
        "action": action,
        "name": format!("{}-{side}-{index}", action.to_lowercase()),
        side: peers,
    });
    if let (true, Value::Object(rule)) = (rng.chance(60), &mut rule) {
        // A port name and networks in one egress rule: one channel refuses it.
        let named_ports = side == "from";
        rule.insert("protocols".to_owned(), protocols(rng, named_ports).into());
    }
    rule
}

fn peer(rng: &mut Rng, side: &str, app: &App, other: &App) -> Value {
    match rng.below(if side == "to" { 4 } else { 2 }) {
        0 => json!({"namespaces": selector::namespaces(rng, &other.home)}),
        1 => json!({"pods": {"podSelector": selector::pods(rng, app)}}),
        2 => {
            let n_networks = rng.between(1, 6);
            json!({"networks": selector::networks(rng, n_networks)})
        }
        _ => json!({"pods": {
            "namespaceSelector": selector::namespaces(rng, &other.home),
            "podSelector": selector::pods(rng, other),
        }}),
    }
}

fn protocols(rng: &mut Rng, named_ports: bool) -> Vec<Value> {
    (0..rng.between(1, 3))
        .map(|_| match rng.below(if named_ports { 5 } else { 4 }) {
            0..=1 => json!({"tcp": {"destinationPort": {"number": rng.between(1, 65535)}}}),
            2 => json!({"tcp": {"destinationPort": {"range": {"end": 32767, "start": 30000}}}}),
            3 => json!({"udp": {"destinationPort": {"number": 53}}}),
            _ => json!({"destinationNamedPort": "metrics"}),
        })
        .collect()
}
