//! NetworkPolicies of a whole cluster.

use serde_json::{Value, json};

use super::Population;
use crate::cluster::App;
use crate::rng::Rng;
use crate::selector;

/// The ports of most rules.
const PORTS: [u64; 9] = [80, 443, 8080, 8443, 3000, 5432, 6379, 9000, 9090];

/// The number of address blocks that the policies share.
const N_BLOCKS: u64 = 300;

/// The address blocks: single hosts, networks, parts of the pods' own range, some with exceptions.
pub(super) fn blocks(rng: &mut Rng) -> Vec<Value> {
    (0..N_BLOCKS)
        .map(|index| {
            let (a, b) = (rng.below(256), rng.below(256));
            match index % 10 {
                0..=3 => json!({"cidr": format!("203.0.{}.{b}/32", a % 128)}),
                4 => json!({"cidr": format!("198.18.{a}.0/24")}),
                5 => json!({
                    "cidr": format!("198.19.{}.0/20", a & 0xf0),
                    "except": [format!("198.19.{}.0/24", (a & 0xf0) + b % 16)],
                }),
                6 => json!({"cidr": format!("10.128.{}.0/24", a % 40)}),
                7 => {
                    let start = (a % 3) * 16;
                    json!({
                        "cidr": format!("10.128.{start}.0/20"),
                        "except": [
                            format!("10.128.{}.0/24", start + b % 8),
                            format!("10.128.{}.128/25", start + 8 + b % 8),
                        ],
                    })
                }
                8 => json!({
                    "cidr": "0.0.0.0/0",
                    "except": ["10.0.0.0/8", format!("172.16.{a}.0/24"), "192.168.0.0/16"],
                }),
                _ => json!({"cidr": format!("fd00:10:{:x}::/48", 0x240 + a % 8)}),
            }
        })
        .collect()
}

pub(super) fn build(
    rng: &mut Rng,
    population: &Population,
    blocks: &[Value],
    serial: u64,
) -> Value {
    let home = if rng.chance(50) {
        population.any_home(rng)
    } else {
        population.busy_home(rng)
    };
    let app = population.app(rng, home).cloned();
    let subject = match rng.below(100) {
        0..26 => json!({"matchLabels": {"app.kubernetes.io/name": format!("retired-{serial}")}}),
        26..45 => json!({}),
        _ => named(app.as_ref()),
    };
    let directions: &[&str] = match rng.below(10) {
        0..6 => &["Ingress"],
        6..9 => &["Egress"],
        _ => &["Ingress", "Egress"],
    };
    let mut spec = json!({"podSelector": subject, "policyTypes": directions});
    let denies_all = rng.chance(4);
    if let Value::Object(spec) = &mut spec {
        for direction in directions {
            let (key, side) = match *direction {
                "Ingress" => ("ingress", "from"),
                _ => ("egress", "to"),
            };
            let n_rules = if denies_all { 0 } else { rng.between(1, 3) };
            let rules: Vec<Value> = (0..n_rules)
                .map(|_| rule(rng, population, blocks, home, side))
                .collect();
            spec.insert(key.to_owned(), rules.into());
        }
    }
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "labels": {"app.kubernetes.io/part-of": "platform"},
            "name": format!("policy-{serial}"),
            "namespace": population.home(home).map_or("", |home| &home.name),
        },
        "spec": spec,
    })
}

fn named(app: Option<&App>) -> Value {
    let name = app.map_or("", |app| &app.name);
    json!({"matchLabels": {"app.kubernetes.io/name": name}})
}

fn rule(
    rng: &mut Rng,
    population: &Population,
    blocks: &[Value],
    home: usize,
    side: &str,
) -> Value {
    let mut rule = json!({});
    let Value::Object(fields) = &mut rule else {
        return rule;
    };
    if !rng.chance(3) {
        let n_peers = match rng.below(10) {
            0..5 => 1,
            5..8 => 2,
            _ => 3,
        };
        let peers: Vec<Value> = (0..n_peers)
            .map(|_| peer(rng, population, blocks, home))
            .collect();
        fields.insert(side.to_owned(), peers.into());
    }
    if rng.chance(70) {
        let ports: Vec<Value> = (0..rng.between(1, 2)).map(|_| port(rng)).collect();
        fields.insert("ports".to_owned(), ports.into());
    }
    rule
}

fn peer(rng: &mut Rng, population: &Population, blocks: &[Value], home: usize) -> Value {
    let own = |rng: &mut Rng| match population.app(rng, home).cloned() {
        Some(app) => selector::pods(rng, &app),
        None => json!({}),
    };
    match rng.below(97) {
        0..40 => {
            let index = rng.below(blocks.len() as u64) as usize;
            json!({"ipBlock": blocks.get(index)})
        }
        40..72 => json!({"podSelector": own(rng)}),
        72..90 => {
            let other = population.busy_home(rng);
            let app = population.app(rng, other).cloned();
            let name = population.home(other).map_or("", |home| &home.name);
            json!({
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                "podSelector": named(app.as_ref()),
            })
        }
        _ => {
            let tenant = population.home(home).map_or("", |home| &home.tenant);
            json!({"namespaceSelector": {"matchLabels": {"tenant": tenant}}})
        }
    }
}

fn port(rng: &mut Rng) -> Value {
    match rng.below(100) {
        0..78 => json!({"port": rng.pick(&PORTS), "protocol": "TCP"}),
        78..85 => json!({"port": 53, "protocol": "UDP"}),
        85..97 => json!({"port": rng.pick(&["http", "metrics"]), "protocol": "TCP"}),
        97..99 => json!({"endPort": 32767, "port": 30000, "protocol": "TCP"}),
        _ => json!({"protocol": "SCTP"}),
    }
}
