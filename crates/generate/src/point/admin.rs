//! Cluster-wide policies: at random, or as administrators write them.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::adversary::Adversary;
use super::objects::Take;
use super::population::{MONITORING, NAME_SERVER, Population, SYSTEM, tenant};
use super::{AdminSet, Part, Plan};
use crate::cluster::as_served;
use crate::rng::Rng;

/// The ports of rules.
const PORTS: [u64; 10] = [80, 443, 8080, 8443, 3000, 5432, 6379, 9000, 9090, 53];

/// Priorities go up to 1000.
const N_PRIORITIES: u64 = 1_001;

/// Passes on all cluster-wide policies.
pub(super) fn each(plan: &Plan, population: &Population, take: Take<'_>) -> Result<()> {
    let mut rng = plan.rng(Part::AdminPolicies);
    for serial in 0..plan.admin_policies {
        let spec = match plan.admin_set {
            AdminSet::Random => random(&mut rng, plan, population, serial),
            AdminSet::Structured => structured(population, serial),
        };
        let mut value = json!({
            "apiVersion": "policy.networking.k8s.io/v1alpha2",
            "kind": "ClusterNetworkPolicy",
            "metadata": {"name": format!("cluster-policy-{serial}")},
            "spec": spec,
        });
        as_served(&mut rng, false, true, &mut value);
        take(value)?;
    }
    Ok(())
}

fn random(rng: &mut Rng, plan: &Plan, population: &Population, serial: u64) -> Value {
    let one_priority = plan.adversary == Some(Adversary::OnePriority);
    let negative = plan.adversary == Some(Adversary::Negative);
    // The factor has no divisor in common with the number of priorities, so none comes twice before
    // all have come.
    let priority = (serial * 389 + 7) % N_PRIORITIES;
    let is_baseline = rng.chance(5);
    let subject = match rng.below(10) {
        _ if negative => not_tenant(&population.any_tenant(rng)),
        _ if one_priority => json!({}),
        0..3 => json!({"matchLabels": {"env": Population::any_environment(rng)}}),
        3..9 => json!({"matchLabels": {"tenant": population.any_tenant(rng)}}),
        _ => json!({}),
    };
    let (fewest, most) = plan.admin_rules;
    let (mut ingress, mut egress): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    for index in 0..rng.between(fewest, most) {
        let (side, rules) = if rng.chance(60) {
            ("from", &mut ingress)
        } else {
            ("to", &mut egress)
        };
        rules.push(rule(rng, population, (side, index), negative));
    }
    let mut spec = Map::new();
    spec.insert("subject".to_owned(), json!({"namespaces": subject}));
    let at = if one_priority { 500 } else { priority };
    spec.insert("priority".to_owned(), at.into());
    let is_baseline = is_baseline && !one_priority;
    let tier = if is_baseline { "Baseline" } else { "Admin" };
    spec.insert("tier".to_owned(), tier.into());
    for (name, rules) in [("ingress", ingress), ("egress", egress)] {
        if !rules.is_empty() {
            spec.insert(name.to_owned(), rules.into());
        }
    }
    spec.into()
}

fn rule(rng: &mut Rng, population: &Population, at: (&str, u64), negative: bool) -> Value {
    let (side, index) = at;
    let action = rng.pick(&["Accept", "Deny", "Pass"]);
    let mut rule = json!({
        "action": action,
        "name": format!("{}-{index}", action.to_lowercase()),
        side: [peer(rng, population, side, negative)],
    });
    if let (true, Value::Object(rule)) = (rng.chance(60), &mut rule) {
        let protocols = json!([port(rng.pick(&PORTS))]);
        rule.insert("protocols".to_owned(), protocols);
    }
    rule
}

fn peer(rng: &mut Rng, population: &Population, side: &str, negative: bool) -> Value {
    if negative {
        return json!({"namespaces": not_tenant(&population.any_tenant(rng))});
    }
    match rng.below(100) {
        0..40 => {
            json!({"namespaces": {"matchLabels": {"tenant": population.any_tenant(rng)}}})
        }
        40..60 => {
            json!({"namespaces": {"matchLabels": {"env": Population::any_environment(rng)}}})
        }
        60..75 => {
            let namespace = population.any_namespace(rng);
            let name = population.home(namespace).name;
            json!({"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": name}}})
        }
        75..90 => json!({"pods": {
            "namespaceSelector": {"matchLabels": {"env": Population::any_environment(rng)}},
            "podSelector": {"matchLabels": {"tier": Population::any_tier(rng)}},
        }}),
        90..95 if side == "to" => {
            json!({"networks": [format!("198.18.{}.0/24", rng.below(256))]})
        }
        _ => json!({"namespaces": {}}),
    }
}

fn port(port: u64) -> Value {
    match port {
        53 => json!({"udp": {"destinationPort": {"number": 53}}}),
        port => json!({"tcp": {"destinationPort": {"number": port}}}),
    }
}

fn not_tenant(tenant: &str) -> Value {
    json!({"matchExpressions": [{"key": "tenant", "operator": "NotIn", "values": [tenant]}]})
}

/// DNS and metrics for all, then the isolation of tenants, then the isolation of environments in
/// each tenant, up to the number of policies.
fn structured(population: &Population, serial: u64) -> Value {
    let named = |name: &str| json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
    match serial {
        0 => json!({
            "egress": [{
                "action": "Accept",
                "name": "names",
                "protocols": [
                    {"tcp": {"destinationPort": {"number": 53}}},
                    {"udp": {"destinationPort": {"number": 53}}},
                ],
                "to": [{"pods": {
                    "namespaceSelector": named(SYSTEM),
                    "podSelector": {"matchLabels": {"app": NAME_SERVER}},
                }}],
            }],
            "priority": 0,
            "subject": {"namespaces": {}},
            "tier": "Admin",
        }),
        1 => json!({
            "ingress": [{
                "action": "Accept",
                "from": [{"namespaces": named(MONITORING)}],
                "name": "metrics",
                "protocols": [port(9090)],
            }],
            "priority": 1,
            "subject": {"namespaces": {}},
            "tier": "Admin",
        }),
        _ => {
            let n_tenants = population.n_tenants().max(1);
            let number = serial - 2;
            let own = json!({"matchLabels": {"tenant": tenant(number % n_tenants)}});
            let priority = 2 + number % (N_PRIORITIES - 2);
            if number < n_tenants {
                return json!({
                    "ingress": [
                        {"action": "Pass", "from": [{"namespaces": own}], "name": "own-tenant"},
                        {"action": "Deny", "from": [{"namespaces": {}}], "name": "other-tenants"},
                    ],
                    "priority": priority,
                    "subject": {"namespaces": own},
                    "tier": "Admin",
                });
            }
            let environments = ["prod", "staging", "test", "dev"];
            let round = (number / n_tenants) as usize;
            let env = environments.get(round % 4).copied().unwrap_or("prod");
            let subject = json!({"matchLabels": {
                "env": env, "tenant": tenant(number % n_tenants),
            }});
            let others = json!({"matchExpressions": [
                {"key": "env", "operator": "NotIn", "values": [env]},
            ]});
            json!({
                "ingress": [
                    {"action": "Deny", "from": [{"namespaces": others}], "name": "other-stages"},
                ],
                "priority": priority,
                "subject": {"namespaces": subject},
                "tier": "Admin",
            })
        }
    }
}
