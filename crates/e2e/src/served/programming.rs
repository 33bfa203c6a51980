//! The time from a request that writes an object until the kernel has its rules.

#![allow(
    clippy::indexing_slicing,
    reason = "a missing field of a value is null"
)]

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use palisade_nft::watch::TableWatcher;
use serde::Serialize;
use serde_json::{Value, json};

use super::fill::Filled;
use crate::writer::{Writer, place};
use palisade_generate::Rng;
use palisade_generate::point::NODE;

/// The time without changes in the kernel before the next object is written: the agent's cleanup is
/// done by then.
const QUIET: Duration = Duration::from_millis(60);
/// The timeout.
const PATIENCE: Duration = Duration::from_secs(20);
/// The interval between denying changes, which an agent's rate limit allows without a pause.
const BETWEEN: Duration = Duration::from_millis(110);

/// The kind of a written object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum WrittenKind {
    /// A NetworkPolicy of pods of the node: created, changed, deleted.
    NetworkPolicy,
    /// A policy of the cluster that has subjects on the node: created, changed, deleted.
    ClusterPolicy,
    /// A pod of the node gets its address; it is deleted.
    Pod,
}

impl WrittenKind {
    pub(super) const ALL: [WrittenKind; 3] = [
        WrittenKind::NetworkPolicy,
        WrittenKind::ClusterPolicy,
        WrittenKind::Pod,
    ];
}

/// From the request being sent to the kernel's first and last transaction, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Time {
    pub(super) first: u64,
    pub(super) last: u64,
    /// Until the server had answered.
    pub(super) answered: u64,
}

/// A request.
struct Request {
    method: &'static str,
    path: String,
    body: Value,
}

/// Writes objects of a kind, one after the other.
pub(super) async fn programmed(
    writer: &Writer,
    filled: &Filled,
    kind: WrittenKind,
    writes: u64,
    seed: u64,
) -> Result<Vec<Time>> {
    let mut watcher = TableWatcher::open()?;
    let mut rng = Rng::new(seed ^ (kind as u64) << 32);
    let mut times = Vec::new();
    let mut number = 0;
    while (times.len() as u64) < writes {
        number += 1;
        for request in requests(writer, filled, kind, &mut rng, number).await? {
            times.push(measured(writer, &mut watcher, &request).await?);
        }
    }
    Ok(times)
}

async fn measured(writer: &Writer, watcher: &mut TableWatcher, request: &Request) -> Result<Time> {
    while watcher.next(QUIET)?.is_some() {}
    tokio::time::sleep(BETWEEN.saturating_sub(QUIET)).await;
    let Request { method, path, body } = request;
    let started = Instant::now();
    writer.request(method, path, body).await?;
    let answered = started.elapsed();
    let mut changes: Option<(Instant, Instant)> = None;
    loop {
        let notice = watcher.next(QUIET)?;
        let now = Instant::now();
        match (notice, &mut changes) {
            (Some(_), Some((_, last))) => *last = now,
            (Some(_), None) => changes = Some((now, now)),
            (None, Some((first, last))) => {
                let since = |it: Instant| it.saturating_duration_since(started).as_micros() as u64;
                return Ok(Time {
                    first: since(*first),
                    last: since(*last),
                    answered: answered.as_micros() as u64,
                });
            }
            (None, None) if started.elapsed() < PATIENCE => {}
            (None, None) => bail!("{method} {path} changed nothing in the kernel"),
        }
    }
}

/// Requests that each change what the kernel must hold.
async fn requests(
    writer: &Writer,
    filled: &Filled,
    kind: WrittenKind,
    rng: &mut Rng,
    number: u64,
) -> Result<Vec<Request>> {
    let mut any = |pods: &'_ [Value]| {
        let place = rng.below(pods.len().max(1) as u64) as usize;
        pods.get(place).cloned().context("there are no pods")
    };
    let local = any(&filled.local)?;
    let other = any(&filled.elsewhere)?;
    let (namespace, labels) = (
        &local["metadata"]["namespace"],
        &local["metadata"]["labels"],
    );
    let app = |pod: &Value| json!({"matchLabels": {"app": pod["metadata"]["labels"]["app"]}});
    let home = |pod: &Value| json!({"matchLabels": {"kubernetes.io/metadata.name": pod["metadata"]["namespace"]}});
    let port = 20_000 + number % 40_000;
    let object = match kind {
        WrittenKind::NetworkPolicy => json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": format!("measured-{number}"), "namespace": namespace},
            "spec": {
                "podSelector": {"matchLabels": {"app": labels["app"]}},
                "policyTypes": ["Ingress"],
                "ingress": [{
                    "from": [{"namespaceSelector": home(&other), "podSelector": app(&other)}],
                    "ports": [{"port": port, "protocol": "TCP"}],
                }],
            },
        }),
        WrittenKind::ClusterPolicy => json!({
            "apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
            "metadata": {"name": format!("measured-{number}")},
            "spec": {
                "tier": "Admin", "priority": 500,
                "subject": {"pods": {"namespaceSelector": home(&local), "podSelector": app(&local)}},
                "ingress": [{
                    "action": "Deny",
                    "from": [{"pods": {"namespaceSelector": home(&other), "podSelector": app(&other)}}],
                    "protocols": [{"tcp": {"destinationPort": {"number": port}}}],
                }],
            },
        }),
        WrittenKind::Pod => {
            let mut pod = local;
            pod["metadata"]["name"] = json!(format!("measured-{number}"));
            pod["metadata"]["ownerReferences"] = Value::Null;
            pod["metadata"]["generateName"] = Value::Null;
            // Addresses of no other pod.
            let address = format!("10.255.{}.{}", number / 250 % 250, number % 250 + 1);
            pod["status"]["podIP"] = json!(address);
            pod["status"]["podIPs"] = json!([{"ip": address}]);
            pod
        }
    };
    let place = place(&object).context("servers have no such object")?;
    let deletion = Request {
        method: "DELETE",
        path: place.own.clone(),
        body: json!({"gracePeriodSeconds": 0}),
    };
    if kind == WrittenKind::Pod {
        // A pod without an address is not in the kernel.
        let mut bare = object.clone();
        bare["status"] = Value::Null;
        writer.create(&bare).await?;
        anyhow::ensure!(object["spec"]["nodeName"] == NODE, "the pod is elsewhere");
        let running = Request {
            method: "PATCH",
            path: format!("{}/status", place.own),
            body: json!({"status": object["status"]}),
        };
        return Ok(vec![running, deletion]);
    }
    let mut changed = json!({"spec": {"ingress": object["spec"]["ingress"]}});
    let ports = match kind {
        WrittenKind::ClusterPolicy => json!([{"tcp": {"destinationPort": {"number": port + 1}}}]),
        WrittenKind::NetworkPolicy | WrittenKind::Pod => {
            json!([{"port": port + 1, "protocol": "TCP"}])
        }
    };
    let field = if kind == WrittenKind::ClusterPolicy {
        "protocols"
    } else {
        "ports"
    };
    changed["spec"]["ingress"][0][field] = ports;
    Ok(vec![
        Request {
            method: "POST",
            path: place.collection,
            body: object,
        },
        Request {
            method: "PATCH",
            path: place.own,
            body: changed,
        },
        deletion,
    ])
}
