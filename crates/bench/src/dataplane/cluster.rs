//! The cluster of the benchmark: one full node, and policies for its pods, as manifests.
//!
//! Its objects are read, lowered, compiled and planned, like real ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, Result, bail};
use palisade_api::{Options, Source, lower_within, read};
use palisade_core::budget::Budget;
use palisade_core::compile::compile;
use palisade_core::net::{CidrText, Family};
use palisade_core::plan::{MERGE_OVER, Plan, plan_merging};
use palisade_lab::lab;
use palisade_nft::node::{Generation, NodeOptions, Settings, ruleset};
use palisade_nft::ruleset::Ruleset;
use serde_json::{Value, json};

use super::path;

/// The destination port of the traffic.
pub(super) const PORT: u16 = 5201;
/// The pods of the node.
pub(super) const PODS: usize = 250;
/// The source and the destination pod of the traffic.
pub(super) const CLIENT: usize = 0;
pub(super) const SERVER: usize = 1;
/// Pods of other nodes, which policies select.
const PEERS: usize = 10_000;
/// Addresses that every policy selects.
const SELECTED: usize = 20;
/// Pods that rules of the Admin tier select.
const QUARANTINED: usize = 20;
const NODE: &str = "here";

/// The families that pods have addresses of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stack {
    Ipv4,
    Dual,
}

impl Stack {
    /// The number of pods with as many addresses as a policy selects.
    fn selected(self) -> usize {
        match self {
            Stack::Ipv4 => SELECTED,
            Stack::Dual => SELECTED / 2,
        }
    }

    /// The families.
    pub(super) fn families(self) -> impl Iterator<Item = Family> {
        let is_had = move |it: &Family| self == Stack::Dual || *it == Family::V4;
        Family::BOTH.into_iter().filter(is_had)
    }
}

/// The policies of a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// The number of NetworkPolicies.
    pub(super) policies: usize,
    pub(super) stack: Stack,
}

impl Load {
    /// The number of pods with policies: few policies all select the client and the server.
    fn subjects(self) -> usize {
        if self.policies < 2 * PODS { 2 } else { PODS }
    }

    /// The number of policies of a pod.
    pub(super) fn policies_of(self, pod: usize) -> usize {
        if pod < self.subjects() {
            self.policies.saturating_sub(pod).div_ceil(self.subjects())
        } else {
            0
        }
    }

    /// Whether a policy is its subject's last. The client's and the server's last one allows the
    /// traffic.
    fn is_last(self, policy: usize) -> bool {
        policy + self.subjects() >= self.policies
    }
}

/// The address of a pod of this node.
pub(super) fn pod_address(index: usize, family: Family) -> IpAddr {
    address(1, index, family)
}

/// Networks are far smaller than their numbers could be.
fn address(network: u8, index: usize, family: Family) -> IpAddr {
    let (high, low) = ((index / 250) as u8, (index % 250) as u8 + 1);
    match family {
        Family::V4 => Ipv4Addr::new(10, network, high, low).into(),
        Family::V6 => {
            let (high, low) = (u16::from(high), u16::from(low));
            Ipv6Addr::new(0xfd00, network.into(), 0, 0, 0, 0, high, low).into()
        }
    }
}

/// The ruleset of the node, under a generation of the policies.
pub(super) fn node_ruleset(plan: &Plan, generation: Generation) -> Result<Ruleset> {
    Ok(ruleset(plan, &node_settings(generation)?))
}

/// What the node has to enforce.
pub(super) fn node_plan(load: Load) -> Result<Plan> {
    planned(load, MERGE_OVER)
}

/// The same with a rule of the chain for each rule of the policies.
pub(super) fn unmerged_plan(load: Load) -> Result<Plan> {
    planned(load, usize::MAX)
}

fn planned(load: Load, merge_over: usize) -> Result<Plan> {
    let text = serde_json::to_vec(&objects(load))?;
    let sources = [Source::new("cluster.json", text)];
    let manifests = read(&sources, Options::default(), &|_| {});
    if let Some(problem) = manifests.problems.iter().find(|it| it.is_error()) {
        bail!("the generated cluster is not valid: {}", problem.message);
    }
    let lowered = lower_within(&manifests.objects, Vec::new(), Budget::UNLIMITED);
    let program = compile(&lowered.cluster);
    let plan = plan_merging(&lowered.cluster, &program, NODE, merge_over);
    path::check(&plan, load, merge_over)
        .context("the traffic is not allowed where it should be")?;
    Ok(plan)
}

/// As an agent sets it on a node that has blocks of addresses for its pods.
pub(super) fn node_settings(generation: Generation) -> Result<Settings> {
    let blocks = ["10.1.0.0/24", "fd00:1::/64"];
    let blocks = blocks.into_iter().map(|it| Ok(CidrText::parse(it)?.cidr));
    let options = NodeOptions {
        pod_blocks: blocks.collect::<Result<_>>()?,
        ..lab::node_options()
    };
    Ok(Settings::of_node(generation, &options))
}

fn objects(load: Load) -> Value {
    let mut items = vec![
        node(NODE, "192.168.0.1"),
        node("elsewhere", "192.168.0.2"),
        namespace("local"),
        namespace("peers"),
        namespace("quarantine"),
    ];
    for index in 0..PODS {
        let mut labels = json!({"pod": format!("pod-{index}")});
        if let (true, Some(labels)) = (index < load.stack.selected(), labels.as_object_mut()) {
            labels.insert("team".to_owned(), "traffic".into());
        }
        items.push(pod("local", NODE, &labels, (1, index), load.stack));
    }
    let groups = PEERS / load.stack.selected();
    for index in 0..PEERS {
        let numbers = 0..load.policies.div_ceil(groups);
        let labels = numbers.map(|number| (key(number), group(index, number, load.stack).into()));
        let labels = Value::Object(labels.collect());
        items.push(pod("peers", "elsewhere", &labels, (2, index), load.stack));
    }
    for index in 0..QUARANTINED {
        let labels = json!({"pod": format!("quarantined-{index}")});
        let namespace = "quarantine";
        items.push(pod(namespace, "elsewhere", &labels, (3, index), load.stack));
    }
    items.push(admin_policy());
    items.extend((0..load.policies).map(|index| network_policy(load, index, groups)));
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// The name of the label of the division of the peers with this number.
fn key(number: usize) -> String {
    format!("group-{number}")
}

/// In which group of a division a peer is. The factor has no divisor in common with the number of
/// peers: every division differs, and all groups are equally large.
fn group(peer: usize, number: usize, stack: Stack) -> String {
    let place = (peer * (1 + 10 * number) + number) % PEERS;
    format!("g{}", place / stack.selected())
}

/// A policy for one pod, both directions, with a selector and a port that no other one has.
fn network_policy(load: Load, index: usize, groups: usize) -> Value {
    let subjects = load.subjects();
    let subject = index % subjects;
    let (peer, ports) = if subject < 2 && load.is_last(index) {
        let peer = json!({"podSelector": {"matchLabels": {"team": "traffic"}}});
        let ports = ["TCP", "UDP"].map(|protocol| json!({"protocol": protocol, "port": PORT}));
        (peer, ports.to_vec())
    } else {
        let labels = json!({key(index / groups): format!("g{}", index % groups)});
        let peer = json!({
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "peers"}},
            "podSelector": {"matchLabels": labels},
        });
        let is_tcp = (index / subjects).is_multiple_of(2);
        let protocol = if is_tcp { "TCP" } else { "UDP" };
        let port = json!({"protocol": protocol, "port": 10_000 + index});
        (peer, vec![port])
    };
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": format!("policy-{index:05}"), "namespace": "local"},
        "spec": {
            "podSelector": {"matchLabels": {"pod": format!("pod-{subject}")}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [&peer], "ports": &ports}],
            "egress": [{"to": [&peer], "ports": &ports}],
        },
    })
}

/// Three rules a direction on every pod of the node. None of them matches the traffic.
fn admin_policy() -> Value {
    let rules = |side: &str| {
        let quarantined = json!([{"namespaces": {
            "matchLabels": {"kubernetes.io/metadata.name": "quarantine"}}}]);
        let tcp = json!([{"tcp": {"destinationPort": {"number": 9100}}}]);
        let udp = json!([{"udp": {"destinationPort": {"range": {"start": 30000, "end": 32767}}}}]);
        json!([
            {"name": "probes", "action": "Accept", side: quarantined, "protocols": tcp},
            {"name": "media", "action": "Pass", side: quarantined, "protocols": udp},
            {"name": "all-else", "action": "Deny", side: quarantined},
        ])
    };
    json!({
        "apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "quarantine"},
        "spec": {
            "tier": "Admin",
            "priority": 100,
            "subject": {"namespaces": {
                "matchLabels": {"kubernetes.io/metadata.name": "local"}}},
            "ingress": rules("from"),
            "egress": rules("to"),
        },
    })
}

fn node(name: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    })
}

fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
    })
}

fn pod(
    namespace: &str,
    node: &str,
    labels: &Value,
    (network, index): (u8, usize),
    stack: Stack,
) -> Value {
    let addresses = stack
        .families()
        .map(|family| json!({"ip": address(network, index, family)}));
    let addresses: Vec<Value> = addresses.collect();
    let first = addresses.first().and_then(|it| it.get("ip"));
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("{namespace}-{index:05}"),
            "namespace": namespace,
            "labels": labels,
        },
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "main"}]},
        "status": {"phase": "Running", "podIP": first, "podIPs": addresses},
    })
}
