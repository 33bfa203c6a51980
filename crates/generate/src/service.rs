//! Services in front of applications.

use serde_json::{Value, json};

use super::cluster::App;
use super::rng::Rng;

pub(super) fn build(rng: &mut Rng, app: &App, serial: u64) -> Value {
    let address = format!("10.96.{}.{}", rng.below(256), rng.between(1, 254));
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "annotations": {"prometheus.io/scrape": "true"},
            "labels": {
                "app.kubernetes.io/component": app.component,
                "app.kubernetes.io/name": app.name,
            },
            "name": format!("{}-{serial}", app.name),
            "namespace": app.home.name,
        },
        "spec": {
            "clusterIP": address,
            "clusterIPs": [address],
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [
                {"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"},
                {"name": "metrics", "port": 9090, "protocol": "TCP", "targetPort": 9090},
            ],
            "selector": {
                "app.kubernetes.io/component": app.component,
                "app.kubernetes.io/name": app.name,
            },
            "sessionAffinity": "None",
            "type": "ClusterIP",
        },
        "status": {"loadBalancer": {}},
    })
}
