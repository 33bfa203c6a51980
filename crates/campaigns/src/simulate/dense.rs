//! Few objects with few labels and addresses: most changes affect most other objects.

use serde_json::{Value, json};

use palisade_generate::Rng;

const NAMESPACES: [&str; 2] = ["x", "y"];
const APPS: [&str; 2] = ["web", "db"];

/// One version of every object.
pub(super) fn objects(rng: &mut Rng, version: u64) -> Vec<Value> {
    let mut objects = Vec::new();
    for name in NAMESPACES {
        let team = rng.pick(&["red", "blue"]);
        objects.push(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"team": team}}}));
    }
    for (number, name) in [(1, "n1"), (2, "n2")] {
        let role = rng.pick(&["worker", "edge"]);
        objects.push(json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"role": role}},
            "status": {"addresses": [
                {"type": "InternalIP", "address": format!("192.0.2.{number}")}]}}));
    }
    for number in 1..=6 {
        objects.push(pod(rng, number, version));
    }
    for number in 0..3 {
        objects.push(network_policy(rng, number));
    }
    for number in 0..2 {
        objects.push(admin_policy(rng, number));
    }
    objects.push(baseline_policy(rng));
    objects.push(cluster_policy(rng));
    objects
}

fn pod(rng: &mut Rng, number: u64, version: u64) -> Value {
    let node = if rng.chance(70) { "n1" } else { "n2" };
    // Sometimes the address of another pod.
    let last = if rng.chance(25) {
        1 + rng.below(6)
    } else {
        number
    };
    let mut addresses = vec![json!({"ip": format!("10.0.0.{last}")})];
    if rng.chance(25) {
        addresses.push(json!({"ip": format!("fd00::{last}")}));
    }
    let mut labels = json!({"app": rng.pick(&APPS)});
    if rng.chance(50)
        && let Some(labels) = labels.as_object_mut()
    {
        labels.insert("track".to_owned(), json!(rng.pick(&["a", "b"])));
    }
    let phase = if rng.chance(90) { "Running" } else { "Failed" };
    let namespace = NAMESPACES.get(usize::from(number > 3)).unwrap_or(&"x");
    let first = addresses.first().and_then(|it| it.get("ip")).cloned();
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("p{number}"), "namespace": namespace, "labels": labels,
            "creationTimestamp": format!("2024-01-0{}T00:00:00Z", 1 + version % 9)},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i",
            "ports": [{"name": "http", "containerPort": rng.pick(&[80, 8080])}]}]},
        "status": {"phase": phase, "podIP": first, "podIPs": addresses}})
}

fn selector(rng: &mut Rng) -> Value {
    match rng.below(4) {
        0 => json!({}),
        1 => json!({"matchLabels": {"track": rng.pick(&["a", "b"])}}),
        _ => json!({"matchLabels": {"app": rng.pick(&APPS)}}),
    }
}

fn team(rng: &mut Rng) -> Value {
    json!({"matchLabels": {"team": rng.pick(&["red", "blue"])}})
}

fn network_policy(rng: &mut Rng, number: u64) -> Value {
    let types = match rng.below(3) {
        0 => json!(["Ingress"]),
        1 => json!(["Egress"]),
        _ => json!(["Ingress", "Egress"]),
    };
    let namespace = rng.pick(&NAMESPACES);
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": format!("q{number}"), "namespace": namespace},
        "spec": {"podSelector": selector(rng), "policyTypes": types,
            "ingress": rules(rng, "from"), "egress": rules(rng, "to")}})
}

fn rules(rng: &mut Rng, word: &str) -> Value {
    // Some unions are large enough for one lookup.
    let most = if rng.chance(15) { 10 } else { 3 };
    let rules = (0..rng.below(most)).map(|_| {
        let mut rule = serde_json::Map::new();
        if rng.chance(85) {
            let peer = match rng.below(5) {
                0 | 1 => json!({"podSelector": selector(rng)}),
                2 => json!({"namespaceSelector": team(rng)}),
                3 => json!({"ipBlock": {"cidr": "10.0.0.0/29", "except": ["10.0.0.2/31"]}}),
                _ => json!({"namespaceSelector": {}, "podSelector": selector(rng)}),
            };
            rule.insert(word.to_owned(), json!([peer]));
        }
        if rng.chance(60) {
            rule.insert("ports".to_owned(), json!([port(rng)]));
        }
        Value::Object(rule)
    });
    Value::Array(rules.collect())
}

fn port(rng: &mut Rng) -> Value {
    match rng.below(4) {
        0 => json!({"port": 80}),
        1 => json!({"port": 8080}),
        2 => json!({"port": "http"}),
        _ => json!({"port": 53, "protocol": "UDP"}),
    }
}

fn subject(rng: &mut Rng) -> Value {
    match rng.below(3) {
        0 => json!({"namespaces": {}}),
        1 => json!({"namespaces": team(rng)}),
        _ => json!({"pods": {"namespaceSelector": {}, "podSelector": selector(rng)}}),
    }
}

fn admin_rules(rng: &mut Rng, word: &str, actions: &[&'static str]) -> Value {
    let rules = (0..rng.below(3)).map(|_| {
        let peer = match rng.below(3) {
            0 => json!({"namespaces": team(rng)}),
            _ => json!({"pods": {"namespaceSelector": {}, "podSelector": selector(rng)}}),
        };
        let mut rule = json!({"action": rng.pick(actions), word: [peer]});
        if rng.chance(40)
            && let Some(map) = rule.as_object_mut()
        {
            let port = rng.pick(&[80, 8080]);
            let ports = json!([{"portNumber": {"protocol": "TCP", "port": port}}]);
            map.insert("ports".to_owned(), ports);
        }
        rule
    });
    Value::Array(rules.collect())
}

fn admin_policy(rng: &mut Rng, number: u64) -> Value {
    const ACTIONS: [&str; 3] = ["Allow", "Deny", "Pass"];
    json!({"apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": "AdminNetworkPolicy",
        "metadata": {"name": format!("a{number}")},
        "spec": {"priority": rng.below(3), "subject": subject(rng),
            "ingress": admin_rules(rng, "from", &ACTIONS),
            "egress": admin_rules(rng, "to", &ACTIONS)}})
}

fn baseline_policy(rng: &mut Rng) -> Value {
    const ACTIONS: [&str; 2] = ["Allow", "Deny"];
    json!({"apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": "BaselineAdminNetworkPolicy",
        "metadata": {"name": "default"},
        "spec": {"subject": subject(rng),
            "ingress": admin_rules(rng, "from", &ACTIONS),
            "egress": admin_rules(rng, "to", &ACTIONS)}})
}

fn cluster_policy(rng: &mut Rng) -> Value {
    const ACTIONS: [&str; 3] = ["Accept", "Deny", "Pass"];
    let tier = rng.pick(&["Admin", "Baseline"]);
    json!({"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "c"},
        "spec": {"tier": tier, "priority": rng.below(3), "subject": subject(rng),
            "ingress": admin_rules(rng, "from", &ACTIONS),
            "egress": admin_rules(rng, "to", &ACTIONS)}})
}
