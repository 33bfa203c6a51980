//! Deployments around the same containers as the pods.

use serde_json::{Value, json};

use super::cluster::App;
use super::pod;
use super::rng::Rng;

pub(super) fn build(rng: &mut Rng, app: &App) -> Value {
    let replicas = rng.between(1, 9);
    let selector = json!({
        "app.kubernetes.io/component": app.component,
        "app.kubernetes.io/name": app.name,
    });
    let labels = json!({
        "app.kubernetes.io/component": app.component,
        "app.kubernetes.io/name": app.name,
        "app.kubernetes.io/version": app.version,
        "tier": "backend",
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "annotations": {"deployment.kubernetes.io/revision": rng.between(1, 30).to_string()},
            "labels": labels,
            "name": app.name,
            "namespace": app.home.name,
        },
        "spec": {
            "progressDeadlineSeconds": 600,
            "replicas": replicas,
            "revisionHistoryLimit": 10,
            "selector": {"matchLabels": selector},
            "strategy": {
                "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
                "type": "RollingUpdate",
            },
            "template": {
                "metadata": {
                    "annotations": {"checksum/config": rng.hex(64)},
                    "labels": labels,
                },
                "spec": {
                    "containers": [pod::container(rng, app, &app.name)],
                    "dnsPolicy": "ClusterFirst",
                    "restartPolicy": "Always",
                    "schedulerName": "default-scheduler",
                    "securityContext": {"fsGroup": 2000, "runAsNonRoot": true},
                    "serviceAccountName": app.name,
                    "terminationGracePeriodSeconds": 30,
                    "volumes": pod::own_volumes(app),
                },
            },
        },
        "status": {
            "availableReplicas": replicas,
            "conditions": [
                {
                    "lastTransitionTime": rng.time(),
                    "lastUpdateTime": rng.time(),
                    "message": "Deployment has minimum availability.",
                    "reason": "MinimumReplicasAvailable",
                    "status": "True",
                    "type": "Available",
                },
                {
                    "lastTransitionTime": rng.time(),
                    "lastUpdateTime": rng.time(),
                    "message": format!(
                        "ReplicaSet \"{}-{}\" has successfully progressed.", app.name, app.hash
                    ),
                    "reason": "NewReplicaSetAvailable",
                    "status": "True",
                    "type": "Progressing",
                },
            ],
            "observedGeneration": 4,
            "readyReplicas": replicas,
            "replicas": replicas,
            "updatedReplicas": replicas,
        },
    })
}
