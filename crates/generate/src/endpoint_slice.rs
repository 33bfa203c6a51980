//! Endpoint slices as the control plane keeps them.

use serde_json::{Value, json};

use super::cluster::App;
use super::rng::Rng;

pub(super) fn build(rng: &mut Rng, app: &App, suffix: &str) -> Value {
    let n_endpoints = rng.between(1, 12);
    let endpoints: Vec<Value> = (0..n_endpoints).map(|_| endpoint(rng, app)).collect();
    json!({
        "addressType": "IPv4",
        "apiVersion": "discovery.k8s.io/v1",
        "endpoints": endpoints,
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": format!("{}-", app.name),
            "generation": rng.between(1, 400),
            "labels": {
                "app.kubernetes.io/name": app.name,
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                "kubernetes.io/service-name": app.name,
            },
            "name": format!("{}-{suffix}", app.name),
            "namespace": app.home.name,
            "ownerReferences": [{
                "apiVersion": "v1",
                "blockOwnerDeletion": true,
                "controller": true,
                "kind": "Service",
                "name": app.name,
                "uid": rng.uid(),
            }],
        },
        "ports": [
            {"name": "http", "port": app.port, "protocol": "TCP"},
            {"name": "metrics", "port": 9090, "protocol": "TCP"},
        ],
    })
}

fn endpoint(rng: &mut Rng, app: &App) -> Value {
    let ready = !rng.chance(5);
    let (high, middle, low) = (rng.between(128, 255), rng.below(256), rng.between(1, 254));
    let address = format!("10.{high}.{middle}.{low}");
    json!({
        "addresses": [address],
        "conditions": {"ready": ready, "serving": ready, "terminating": false},
        "nodeName": format!("node-{:04}", rng.below(2000)),
        "targetRef": {
            "kind": "Pod",
            "name": format!("{}-{}-{}", app.name, app.hash, rng.suffix(5)),
            "namespace": app.home.name,
            "uid": rng.uid(),
        },
        "zone": rng.pick(&["zone-a", "zone-b", "zone-c"]),
    })
}
