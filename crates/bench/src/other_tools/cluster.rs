//! The input of both programs: what netpol-analyzer can read, in one directory.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context as _, Result};
use palisade_generate::point::{Plan, each_object};
use palisade_generate::{Style, to_yaml};
use serde_json::{Map, Value, json};

/// The parts of the cluster that both programs read.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    /// Pods by `namespace/name`, with the place of each in answers.
    pub(super) pods: BTreeMap<String, usize>,
    /// The same by netpol-analyzer's name for a workload: `namespace/owner[Kind]`.
    pub(super) workloads: BTreeMap<String, usize>,
    /// By place: the address.
    pub(super) addresses: Vec<Option<Ipv4Addr>>,
    /// The address blocks of all policies, without their exceptions: first and last address.
    pub(super) blocks: Vec<(u32, u32)>,
    pub(super) network_policies: u64,
    pub(super) admin_policies: u64,
    pub(super) bytes: u64,
}

/// Writes a cluster of a number of workloads, one pod each.
pub(super) fn write(dir: &Path, seed: u64, workloads: u64, admin_policies: u64) -> Result<Cluster> {
    let mut plan = Plan::new(
        workloads,
        workloads.div_ceil(10),
        workloads / 2,
        admin_policies,
    );
    plan.seed = seed;
    plan.spread.replicas_cap = 1;
    // It reads neither, and would only warn.
    plan.spread.pods_per_node = None;
    plan.spread.service_percent = 0;
    fs::create_dir_all(dir).with_context(|| format!("cannot create `{}`", dir.display()))?;
    let mut text = String::new();
    let mut cluster = Cluster {
        network_policies: plan.network_policies,
        admin_policies,
        ..Cluster::default()
    };
    each_object(&plan, &mut |object| {
        let kind = object.get("kind").and_then(Value::as_str);
        let earlier = (kind == Some("ClusterNetworkPolicy")).then(|| admin(object));
        let object = earlier.as_ref().unwrap_or(object);
        if kind == Some("Pod") {
            cluster.add(object);
        }
        blocks(object, &mut cluster.blocks);
        if !text.is_empty() {
            text.push_str("---\n");
        }
        to_yaml(&mut text, object, Style::Kubectl);
        Ok(())
    })?;
    cluster.bytes = text.len() as u64;
    let path = dir.join("cluster.yaml");
    fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
    Ok(cluster)
}

impl Cluster {
    fn add(&mut self, pod: &Value) {
        let at = self.pods.len();
        let word = |path: &str| {
            let word = pod.pointer(path).and_then(Value::as_str);
            word.unwrap_or_default().to_owned()
        };
        let namespace = word("/metadata/namespace");
        let owner = word("/metadata/ownerReferences/0/name");
        let kind = word("/metadata/ownerReferences/0/kind");
        let workload = format!("{namespace}/{owner}[{kind}]");
        let name = format!("{namespace}/{}", word("/metadata/name"));
        self.addresses.push(word("/status/podIP").parse().ok());
        self.pods.insert(name, at);
        self.workloads.insert(workload, at);
    }

    /// The name of a pod, for people.
    pub(super) fn name(&self, at: usize) -> &str {
        let mut pods = self.pods.iter();
        pods.find(|(_, place)| **place == at)
            .map_or("", |(name, _)| name)
    }

    /// Whether the address of a pod is in a block of some policy.
    pub(super) fn is_in_some_block(&self, at: usize) -> bool {
        let address = self.addresses.get(at).copied().flatten().map(u32::from);
        address.is_some_and(|address| {
            let mut blocks = self.blocks.iter();
            blocks.any(|(first, last)| (*first..=*last).contains(&address))
        })
    }
}

/// A cluster-wide policy in the first version of the API, as far as it can express it. Baseline
/// becomes Admin, as that version has only one baseline policy.
fn admin(policy: &Value) -> Value {
    let field = |path: &str| policy.pointer(path).cloned().unwrap_or_default();
    let mut spec = Map::new();
    for name in ["priority", "subject"] {
        spec.insert(name.to_owned(), field(&format!("/spec/{name}")));
    }
    for side in ["ingress", "egress"] {
        if let Value::Array(rules) = field(&format!("/spec/{side}")) {
            let rules: Vec<Value> = rules.into_iter().map(rule).collect();
            spec.insert(side.to_owned(), rules.into());
        }
    }
    json!({
        "apiVersion": "policy.networking.k8s.io/v1alpha1",
        "kind": "AdminNetworkPolicy",
        "metadata": field("/metadata"),
        "spec": spec,
    })
}

fn rule(mut rule: Value) -> Value {
    let Value::Object(fields) = &mut rule else {
        return rule;
    };
    if fields.get("action").is_some_and(|it| it == "Accept") {
        fields.insert("action".to_owned(), "Allow".into());
    }
    if let Some(Value::Array(protocols)) = fields.remove("protocols") {
        let ports = protocols.iter().filter_map(|protocol| {
            let (name, of_protocol) = protocol.as_object()?.iter().next()?;
            let port = of_protocol.pointer("/destinationPort/number")?;
            let protocol = name.to_ascii_uppercase();
            Some(json!({"portNumber": {"port": port, "protocol": protocol}}))
        });
        let ports: Vec<Value> = ports.collect();
        fields.insert("ports".to_owned(), ports.into());
    }
    rule
}

/// All address blocks in a value.
fn blocks(value: &Value, found: &mut Vec<(u32, u32)>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("cidr").and_then(Value::as_str).and_then(range));
            for value in map.values() {
                blocks(value, found);
            }
        }
        Value::Array(items) => {
            for item in items {
                blocks(item, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The first and the last address of an IPv4 block.
pub(super) fn range(block: &str) -> Option<(u32, u32)> {
    let (address, prefix) = block.split_once('/').unwrap_or((block, "32"));
    let address = u32::from(address.parse::<Ipv4Addr>().ok()?);
    let prefix: u32 = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
    let rest = u32::MAX.checked_shr(prefix).unwrap_or(0);
    Some((address & !rest, address | rest))
}
