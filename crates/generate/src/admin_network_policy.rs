//! AdminNetworkPolicies in the last released shape, with the fields of the standard channel.

use serde_json::{Value, json};

use super::cluster::App;
use super::rng::Rng;
use super::selector;

pub(super) fn build(rng: &mut Rng, app: &App, other: &App, serial: u64) -> Value {
    let (n_ingress, n_egress) = (rng.between(1, 4), rng.below(4));
    let ingress: Vec<Value> = (0..n_ingress)
        .map(|index| rule(rng, "from", index, app, other))
        .collect();
    let egress: Vec<Value> = (0..n_egress)
        .map(|index| rule(rng, "to", index, app, other))
        .collect();
    json!({
        "apiVersion": "policy.networking.k8s.io/v1alpha1",
        "kind": "AdminNetworkPolicy",
        "metadata": {"name": format!("{}-{serial}", app.home.tenant)},
        "spec": {
            "egress": egress,
            "ingress": ingress,
            "priority": rng.below(1001),
            "subject": {"namespaces": selector::namespaces(rng, &app.home)},
        },
    })
}

fn rule(rng: &mut Rng, side: &str, index: u64, app: &App, other: &App) -> Value {
    let action = rng.pick(&["Allow", "Deny", "Pass"]);
    let peers: Vec<Value> = (0..rng.between(1, 3))
        .map(|_| peer(rng, side, app, other))
        .collect();
    let mut rule = json!({
        "action": action,
        "name": format!("{}-{side}-{index}", action.to_lowercase()),
        side: peers,
    });
    if let (true, Value::Object(rule)) = (rng.chance(60), &mut rule) {
        rule.insert("ports".to_owned(), ports(rng, app).into());
    }
    rule
}

fn peer(rng: &mut Rng, side: &str, app: &App, other: &App) -> Value {
    match rng.below(if side == "to" { 3 } else { 2 }) {
        0 => json!({"namespaces": selector::namespaces(rng, &other.home)}),
        1 => json!({"pods": {
            "namespaceSelector": selector::namespaces(rng, &other.home),
            "podSelector": selector::pods(rng, app),
        }}),
        _ => {
            let n_networks = rng.between(1, 4);
            json!({"networks": selector::networks(rng, n_networks)})
        }
    }
}

fn ports(rng: &mut Rng, app: &App) -> Vec<Value> {
    (0..rng.between(1, 2))
        .map(|_| match rng.below(3) {
            0..=1 => json!({"portNumber": {"port": app.port, "protocol": "TCP"}}),
            _ => json!({"portRange": {"end": 9999, "protocol": "UDP", "start": 9000}}),
        })
        .collect()
}
