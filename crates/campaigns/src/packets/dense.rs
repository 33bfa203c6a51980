//! Additional NetworkPolicies for a cluster, which make unions large enough for set lookups.

use serde_json::{Value, json};

use palisade_generate::Rng;

/// NetworkPolicies for every namespace that has pods.
pub(super) fn policies(seed: u64, objects: &[Value]) -> Vec<Value> {
    let mut rng = Rng::new(seed ^ 0x6465_6e73_6500);
    let is_pod = |it: &&Value| it.get("kind").is_some_and(|kind| kind == "Pod");
    let pods = objects.iter().filter(is_pod);
    let mut namespaces: Vec<&str> = pods
        .filter_map(|pod| pod.pointer("/metadata/namespace")?.as_str())
        .collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    let mut policies = Vec::new();
    for namespace in namespaces {
        for number in 0..rng.below(6) {
            policies.push(policy(&mut rng, namespace, number));
        }
    }
    policies
}

fn policy(rng: &mut Rng, namespace: &str, number: u64) -> Value {
    let subject = if rng.below(2) == 0 {
        json!({})
    } else {
        app(rng)
    };
    let types = match rng.below(3) {
        0 => json!(["Ingress"]),
        1 => json!(["Egress"]),
        _ => json!(["Ingress", "Egress"]),
    };
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": format!("dense-{number}"), "namespace": namespace},
        "spec": {
            "podSelector": subject,
            "policyTypes": types,
            "ingress": rules(rng, "from"),
            "egress": rules(rng, "to"),
        },
    })
}

fn app(rng: &mut Rng) -> Value {
    json!({"matchLabels": {"app": rng.pick(&["web", "db", "client"])}})
}

fn rules(rng: &mut Rng, peers_key: &str) -> Value {
    let mut rules = Vec::new();
    for _ in 0..1 + rng.below(3) {
        let mut rule = serde_json::Map::new();
        let peers: Vec<Value> = (0..rng.below(3)).map(|_| peer(rng)).collect();
        if !peers.is_empty() {
            rule.insert(peers_key.to_owned(), Value::Array(peers));
        }
        let ports: Vec<Value> = (0..rng.below(4)).map(|_| port(rng)).collect();
        if !ports.is_empty() {
            rule.insert("ports".to_owned(), Value::Array(ports));
        }
        rules.push(Value::Object(rule));
    }
    Value::Array(rules)
}

fn peer(rng: &mut Rng) -> Value {
    match rng.below(6) {
        0 | 1 => json!({"podSelector": app(rng)}),
        2 => json!({"namespaceSelector": {}, "podSelector": app(rng)}),
        3 => {
            let team = rng.pick(&["red", "blue", "green"]);
            json!({"namespaceSelector": {"matchLabels": {"team": team}}})
        }
        4 => json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.1.0/24"]}}),
        _ => json!({"ipBlock": {"cidr": "::/0"}}),
    }
}

fn port(rng: &mut Rng) -> Value {
    match rng.below(7) {
        0 => json!({"port": 80}),
        1 => json!({"port": 8080}),
        2 => json!({"port": 9090}),
        3 => json!({"port": 53, "protocol": "UDP"}),
        4 => json!({"port": 9003, "protocol": "SCTP"}),
        5 => json!({"port": "http"}),
        _ => json!({"port": 80, "endPort": 8079}),
    }
}
