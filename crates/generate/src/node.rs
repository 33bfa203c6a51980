//! Nodes that pods run on.

use serde_json::{Value, json};

use super::rng::Rng;

pub(super) fn name(index: u64) -> String {
    format!("node-{index:04}")
}

pub(super) fn address(index: u64) -> String {
    format!("192.168.{}.{}", index / 250, index % 250 + 1)
}

pub(super) fn build(rng: &mut Rng, index: u64) -> Value {
    let (name, address) = (name(index), address(index));
    let conditions = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(|kind| {
        json!({
            "lastHeartbeatTime": rng.time(),
            "lastTransitionTime": rng.time(),
            "status": if kind == "Ready" { "True" } else { "False" },
            "type": kind,
        })
    });
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "node-role.kubernetes.io/worker": "",
                "pool": rng.pick(&["general", "memory", "edge"]),
                "topology.kubernetes.io/zone": rng.pick(&["zone-a", "zone-b", "zone-c"]),
            },
            "name": name,
        },
        "spec": {"providerID": format!("cloud:///{}", rng.uid())},
        "status": {
            "addresses": [
                {"address": address, "type": "InternalIP"},
                {"address": name, "type": "Hostname"},
            ],
            "capacity": {"cpu": "16", "memory": "65805372Ki", "pods": "110"},
            "conditions": conditions,
            "nodeInfo": {"kubeletVersion": "v1.34.1", "operatingSystem": "linux"},
        },
    })
}
