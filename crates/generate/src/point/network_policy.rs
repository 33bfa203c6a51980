//! NetworkPolicies: mostly small, for one application each; a quarter of them select no pod.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::adversary::Adversary;
use super::objects::Take;
use super::population::{Population, instance};
use super::{Part, Plan};
use crate::cluster::{App, as_served};
use crate::rng::Rng;

/// The ports of rules.
const PORTS: [u64; 10] = [80, 443, 8080, 8443, 3000, 5432, 6379, 9000, 9090, 53];

/// The number of address blocks that ordinary policies share.
const N_BLOCKS: u64 = 300;

/// Passes on all NetworkPolicies.
pub(super) fn each(plan: &Plan, population: &Population, take: Take<'_>) -> Result<()> {
    let mut rng = plan.rng(Part::NetworkPolicies);
    let writer = Writer {
        plan,
        population,
        blocks: blocks(&mut plan.rng(Part::Blocks)),
    };
    for serial in 0..plan.network_policies {
        let mut value = writer.policy(&mut rng, serial);
        as_served(&mut rng, false, true, &mut value);
        take(value)?;
    }
    Ok(())
}

struct Writer<'p> {
    plan: &'p Plan,
    population: &'p Population,
    blocks: Vec<Value>,
}

/// Which rules a policy has.
#[derive(Clone, Copy, Debug)]
enum Sides {
    Ingress,
    Egress,
    Both,
}

impl Writer<'_> {
    fn policy(&self, rng: &mut Rng, serial: u64) -> Value {
        let namespace = self.namespace(rng, serial);
        let home = self.population.home(namespace);
        let app = self.population.any_app(rng, namespace);
        let sides = match rng.below(10) {
            0..6 => Sides::Ingress,
            6..9 => Sides::Egress,
            // With a fixed number of rules they are all on one side.
            _ if self.plan.rules.is_some() => Sides::Egress,
            _ => Sides::Both,
        };
        let mut spec = Map::new();
        let subject = self.subject(rng, app.as_ref(), serial);
        spec.insert("podSelector".to_owned(), subject);
        let sides: &[(&str, &str, &str)] = match sides {
            Sides::Ingress => &[("Ingress", "ingress", "from")],
            Sides::Egress => &[("Egress", "egress", "to")],
            Sides::Both => &[("Ingress", "ingress", "from"), ("Egress", "egress", "to")],
        };
        for (_, list, peers) in sides {
            let rules = self.rules(rng, peers, namespace, serial);
            if !rules.is_empty() {
                spec.insert((*list).to_owned(), rules.into());
            }
        }
        let types: Vec<Value> = sides.iter().map(|(kind, ..)| Value::from(*kind)).collect();
        spec.insert("policyTypes".to_owned(), types.into());
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": format!("policy-{serial}"), "namespace": home.name},
            "spec": spec,
        })
    }

    /// Half of the policies are spread evenly, half follow the pods.
    fn namespace(&self, rng: &mut Rng, serial: u64) -> usize {
        if self.plan.adversary == Some(Adversary::PolicyPerPod) {
            return self.population.namespace_of(serial);
        }
        if rng.chance(50) {
            self.population.any_namespace(rng)
        } else {
            self.population.busy_namespace(rng)
        }
    }

    fn subject(&self, rng: &mut Rng, app: Option<&App>, serial: u64) -> Value {
        match self.plan.adversary {
            Some(Adversary::PolicyPerPod) => return one_pod(serial),
            Some(Adversary::OneNamespace) => return json!({}),
            Some(Adversary::Negative) => return negative(rng, app),
            Some(_) | None => {}
        }
        match (rng.below(100), app) {
            (0..26, _) | (_, None) => {
                json!({"matchLabels": {"app": format!("retired-{}", rng.below(20))}})
            }
            (26..45, _) => json!({}),
            (_, Some(app)) => one_app(rng, app),
        }
    }

    /// One policy of twenty-five has no rules and denies.
    fn rules(&self, rng: &mut Rng, peers: &str, namespace: usize, serial: u64) -> Vec<Value> {
        let n_rules = match (self.plan.rules, rng.below(100)) {
            (Some(fixed), _) => fixed,
            (None, 0..4) => 0,
            (None, 4..62) => 1,
            (None, 62..86) => 2,
            (None, _) => 3,
        };
        (0..n_rules)
            .map(|index| {
                let number = serial * n_rules + index;
                self.rule(rng, peers, namespace, number)
            })
            .collect()
    }

    /// `number` counts the rules of all policies if every policy has as many.
    fn rule(&self, rng: &mut Rng, peers: &str, namespace: usize, number: u64) -> Value {
        let n_peers = match (self.plan.rules, rng.below(100)) {
            (Some(_), _) | (None, 0..55) => 1,
            (None, 55..80) => 2,
            (None, 80..95) => 3,
            (None, _) => 4,
        };
        let list = (0..n_peers).map(|_| self.peer(rng, namespace, number));
        let list: Vec<Value> = list.collect();
        let mut rule = json!({peers: list});
        if let (Some(port), Value::Object(rule)) = (self.port(rng, number), &mut rule) {
            rule.insert("ports".to_owned(), json!([port]));
        }
        rule
    }

    fn peer(&self, rng: &mut Rng, namespace: usize, number: u64) -> Value {
        match self.plan.adversary {
            Some(Adversary::OwnClass) => {
                return json!({
                    "namespaceSelector": {},
                    "podSelector": one_pod(number % self.plan.pods.max(1)),
                });
            }
            Some(Adversary::Blocks) => return json!({"ipBlock": self.hostile_block(rng)}),
            Some(Adversary::Negative) => {
                let app = self.population.any_app(rng, namespace);
                let tenants = json!([self.population.any_tenant(rng)]);
                return json!({
                    "namespaceSelector": {"matchExpressions": [
                        {"key": "tenant", "operator": "NotIn", "values": tenants},
                    ]},
                    "podSelector": negative(rng, app.as_ref()),
                });
            }
            Some(Adversary::NamespaceSelectors) => {
                return json!({"namespaceSelector": self.own_selector(rng, number)});
            }
            Some(_) | None => {}
        }
        match rng.below(100) {
            0..40 => {
                let at = rng.below(self.blocks.len() as u64) as usize;
                json!({"ipBlock": self.blocks.get(at)})
            }
            40..72 => json!({"podSelector": self.some_pods(rng, namespace)}),
            72..90 => {
                let other = self.population.any_namespace(rng);
                let name = self.population.home(other).name;
                json!({
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                    "podSelector": self.some_pods(rng, other),
                })
            }
            90..97 => {
                let tenant = self.population.home(namespace).tenant;
                json!({"namespaceSelector": {"matchLabels": {"tenant": tenant}}})
            }
            _ => json!({"namespaceSelector": {}}),
        }
    }

    /// Of five selectors of pods four name an application, and one takes all.
    fn some_pods(&self, rng: &mut Rng, namespace: usize) -> Value {
        match self.population.any_app(rng, namespace) {
            Some(app) if rng.chance(82) => one_app(rng, &app),
            Some(_) | None => json!({}),
        }
    }

    fn port(&self, rng: &mut Rng, number: u64) -> Option<Value> {
        if self.plan.adversary == Some(Adversary::PortRanges) {
            let n_rules = self.plan.network_policies * self.plan.rules.unwrap_or(1);
            let width = 65_000 / n_rules.clamp(1, 32_500);
            let first = 1 + (number * width) % 65_000;
            // The last port of each part is in no range: no two ranges adjoin.
            let last = first + width.saturating_sub(2);
            return Some(json!({"endPort": last, "port": first, "protocol": "TCP"}));
        }
        match rng.below(1_000) {
            0 => Some(json!({"endPort": 32_767, "port": 30_000, "protocol": "TCP"})),
            1..600 => Some(match rng.pick(&PORTS) {
                53 => json!({"port": 53, "protocol": "UDP"}),
                port => json!({"port": port, "protocol": "TCP"}),
            }),
            _ => None,
        }
    }

    /// A block somewhere among the pods, with one to three exceptions inside.
    fn hostile_block(&self, rng: &mut Rng) -> Value {
        let prefix = rng.between(18, 26);
        let size = 1_u64 << (32 - prefix);
        let n_addresses = (self.plan.nodes().max(1) << 8).max(size);
        let start = rng.below(n_addresses) / size * size;
        let except: Vec<String> = (0..rng.between(1, 3))
            .map(|_| {
                let prefix = rng.between(prefix + 1, 30);
                let size_inside = 1_u64 << (32 - prefix);
                let offset = rng.below(size) / size_inside * size_inside;
                block(start + offset, prefix)
            })
            .collect();
        json!({"cidr": block(start, prefix), "except": except})
    }

    /// A selector of namespaces that no rule of another number has.
    fn own_selector(&self, rng: &mut Rng, number: u64) -> Value {
        let n_tenants = self.population.n_tenants();
        // The number written in the base of the tenants' count: no two numbers give one set, as
        // every place of it has tenants of its own.
        let third = n_tenants.div_ceil(3).max(1);
        let mut rest = number;
        let mut tenants = Vec::new();
        for place in 0..3 {
            let index = (place * third + rest % third).min(n_tenants.saturating_sub(1));
            tenants.push(super::population::tenant(index));
            rest /= third;
        }
        json!({"matchExpressions": [
            {"key": "tenant", "operator": "In", "values": tenants},
            {"key": "env", "operator": "NotIn", "values": [Population::any_environment(rng)]},
        ]})
    }
}

/// A block that starts at an address counted from the pods' first.
fn block(offset: u64, prefix: u64) -> String {
    let base = u32::from(std::net::Ipv4Addr::new(10, 128, 0, 0));
    let address = std::net::Ipv4Addr::from(base.wrapping_add(offset as u32));
    format!("{address}/{prefix}")
}

fn one_pod(pod: u64) -> Value {
    json!({"matchLabels": {"instance": instance(pod)}})
}

/// Nine of ten selectors are equalities; the others select the same application by expressions.
fn one_app(rng: &mut Rng, app: &App) -> Value {
    match rng.below(100) {
        0..91 => json!({"matchLabels": {"app": app.name}}),
        91..93 => json!({"matchExpressions": [
            {"key": "app", "operator": "In", "values": [app.name]},
        ]}),
        93..95 => json!({
            "matchExpressions": [{"key": "version", "operator": "Exists"}],
            "matchLabels": {"app": app.name},
        }),
        95..97 => json!({
            "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["test"]}],
            "matchLabels": {"app": app.name},
        }),
        97..99 => json!({
            "matchExpressions": [{"key": "quarantine", "operator": "DoesNotExist"}],
            "matchLabels": {"app": app.name},
        }),
        _ => json!({"matchLabels": {"app": app.name, "version": app.version}}),
    }
}

fn negative(rng: &mut Rng, app: Option<&App>) -> Value {
    let app = app.map(|app| app.name.as_str()).unwrap_or_default();
    if rng.chance(70) {
        json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [app]}]})
    } else {
        let key = format!("quarantine-{}", rng.below(100));
        json!({"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]})
    }
}

/// Hosts and networks outside, and all addresses except private ones. None ends inside the pods'
/// range: authors of policies do not know the future addresses of pods.
fn blocks(rng: &mut Rng) -> Vec<Value> {
    (0..N_BLOCKS)
        .map(|index| {
            // The index is part of each block: no two are equal.
            let part = index % 256;
            match index % 10 {
                0..=4 => {
                    let host = index / 128 * 64 + rng.below(64);
                    json!({"cidr": format!("203.0.{}.{host}/32", index % 128)})
                }
                5..=6 => json!({"cidr": format!("198.18.{part}.0/24")}),
                7 => {
                    let network = 16 + index % 16;
                    json!({
                        "cidr": format!("172.{network}.0.0/16"),
                        "except": [format!("172.{network}.{part}.0/24")],
                    })
                }
                8 => json!({"cidr": format!("10.{}.0.0/16", index % 96)}),
                _ => json!({
                    "cidr": "0.0.0.0/0",
                    "except": ["10.0.0.0/8", format!("172.16.{part}.0/24"), "192.168.0.0/16"],
                }),
            }
        })
        .collect()
}
