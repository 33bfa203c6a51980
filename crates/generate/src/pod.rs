//! Pods with everything that a server prints: defaults, volumes, tolerations and status.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::cluster::App;
use super::node;
use super::rng::{Rng, unique_suffix};

/// The node of a pod, and its rare properties.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    pub(super) node: u64,
    /// Whether it has a second container.
    pub(super) sidecar: bool,
    pub(super) host_network: bool,
    /// Whether it has terminated.
    pub(super) finished: bool,
    /// The percentage of pods with a second address.
    pub(super) dual_stack_percent: u64,
}

impl Situation {
    /// One pod of a hundred uses its node's network, two have finished, ten have two addresses.
    pub(super) fn any(rng: &mut Rng, n_nodes: u64, sidecar: bool) -> Situation {
        let node = rng.below(n_nodes);
        let host_network = rng.chance(1);
        Situation {
            node,
            sidecar,
            host_network,
            finished: !host_network && rng.chance(2),
            dual_stack_percent: 10,
        }
    }
}

/// `serial` makes its name and its address: no two pods may share one.
pub(super) fn build(rng: &mut Rng, app: &App, serial: u64, situation: Situation) -> Value {
    let Situation {
        node,
        sidecar,
        host_network,
        finished,
        dual_stack_percent,
    } = situation;
    let host = node::address(node);
    let replica_set = format!("{}-{}", app.name, app.hash);

    let mut containers = vec![container(rng, app, app.component)];
    let mut statuses = vec![container_status(rng, app.component, finished)];
    if sidecar {
        containers.push(proxy(rng));
        statuses.push(container_status(rng, "proxy", finished));
    }
    let mut spec = json!({
        "containers": containers,
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": true,
        "nodeName": node::name(node),
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "restartPolicy": if finished { "Never" } else { "Always" },
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccount": app.name,
        "serviceAccountName": app.name,
        "terminationGracePeriodSeconds": 30,
        "tolerations": tolerations(),
        "volumes": volumes(app),
    });
    if let Value::Object(spec) = &mut spec {
        if host_network {
            spec.insert("hostNetwork".to_owned(), true.into());
        }
        if rng.chance(15) {
            let native_sidecar = rng.chance(50);
            spec.insert(
                "initContainers".to_owned(),
                json!([init(rng, native_sidecar)]),
            );
        }
        if rng.chance(10) {
            spec.insert("affinity".to_owned(), anti_affinity(app));
        }
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "annotations": {
                "checksum/config": rng.hex(64),
                "prometheus.io/port": "9090",
                "prometheus.io/scrape": "true",
            },
            "generateName": format!("{replica_set}-"),
            "labels": {
                "app.kubernetes.io/component": app.component,
                "app.kubernetes.io/name": app.name,
                "app.kubernetes.io/version": app.version,
                "pod-template-hash": app.hash,
                "tier": "backend",
            },
            "name": format!("{replica_set}-{}", unique_suffix(serial)),
            "namespace": app.home.name,
            "ownerReferences": [{
                "apiVersion": "apps/v1",
                "blockOwnerDeletion": true,
                "controller": true,
                "kind": "ReplicaSet",
                "name": replica_set,
                "uid": rng.uid(),
            }],
        },
        "spec": spec,
        "status": {
            "conditions": conditions(rng, finished),
            "containerStatuses": statuses,
            "hostIP": host,
            "hostIPs": [{"ip": host}],
            "phase": if finished { "Succeeded" } else { "Running" },
            "podIP": address(serial, host_network, &host),
            "podIPs": addresses(rng, serial, host_network, dual_stack_percent, &host),
            "qosClass": "Burstable",
            "startTime": rng.time(),
        },
    })
}

/// The main container, also for templates.
pub(super) fn container(rng: &mut Rng, app: &App, name: &str) -> Value {
    let cpu = rng.pick(&["50m", "100m", "250m", "1"]);
    let memory = rng.pick(&["64Mi", "128Mi", "512Mi", "1Gi"]);
    let image = format!(
        "registry.example.com/{}/{}:{}",
        app.home.tenant, app.name, app.version
    );
    json!({
        "args": [
            "--config=/etc/service/application.yaml",
            format!("--listen=0.0.0.0:{}", app.port),
        ],
        "env": env(rng, app),
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "livenessProbe": probe(30, "/healthz"),
        "name": name,
        "ports": [
            {"containerPort": app.port, "name": "http", "protocol": "TCP"},
            {"containerPort": 9090, "name": "metrics", "protocol": "TCP"},
        ],
        "readinessProbe": probe(5, "/readyz"),
        "resources": {
            "limits": {"memory": memory},
            "requests": {"cpu": cpu, "memory": memory},
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            {"mountPath": "/etc/service", "name": "config", "readOnly": true},
            {"mountPath": "/tmp", "name": "scratch"},
        ],
    })
}

/// The volumes that an author writes.
pub(super) fn own_volumes(app: &App) -> Value {
    let config = format!("{}-config", app.name);
    json!([
        {"configMap": {"defaultMode": 420, "name": config}, "name": "config"},
        {"emptyDir": {}, "name": "scratch"},
    ])
}

fn env(rng: &mut Rng, app: &App) -> Value {
    let mut env = vec![
        json!({"name": "POD_IP", "valueFrom": {
            "fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}),
        json!({"name": "DATABASE_PASSWORD", "valueFrom": {
            "secretKeyRef": {"key": "password", "name": format!("{}-database", app.name)}}}),
        json!({"name": "LOG_LEVEL", "value": "info"}),
        json!({"name": "WORKERS", "value": rng.between(1, 16).to_string()}),
    ];
    for index in 0..rng.below(3) {
        let url = format!(
            "http://backend-{index}.{}.svc.cluster.local:8080",
            app.home.name
        );
        env.push(json!({"name": format!("BACKEND_{index}_URL"), "value": url}));
    }
    env.into()
}

fn probe(period: u64, path: &str) -> Value {
    json!({
        "failureThreshold": 3,
        "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
        "periodSeconds": period,
        "successThreshold": 1,
        "timeoutSeconds": 1,
    })
}

fn proxy(rng: &mut Rng) -> Value {
    json!({
        "args": ["proxy", "--domain=cluster.local", "--log-output-level=default:warn"],
        "image": format!("registry.example.com/mesh/proxy@sha256:{}", rng.hex(64)),
        "imagePullPolicy": "IfNotPresent",
        "name": "proxy",
        "ports": [
            {"containerPort": 15090, "name": "proxy-metrics", "protocol": "TCP"},
            {"containerPort": 15053, "name": "proxy-dns", "protocol": "UDP"},
        ],
        "resources": {"requests": {"cpu": "10m", "memory": "40Mi"}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    })
}

fn init(rng: &mut Rng, native_sidecar: bool) -> Value {
    let mut init = json!({
        "command": ["/bin/sh", "-c", "until nslookup database; do\n  sleep 2\ndone\nexec migrate"],
        "image": format!("registry.example.com/tools/init:{}", rng.below(50)),
        "imagePullPolicy": "IfNotPresent",
        "name": "init",
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    });
    if let (true, Value::Object(init)) = (native_sidecar, &mut init) {
        init.insert("restartPolicy".to_owned(), "Always".into());
        init.insert(
            "ports".to_owned(),
            json!([{"containerPort": 4191, "name": "admin"}]),
        );
    }
    init
}

fn anti_affinity(app: &App) -> Value {
    json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "podAffinityTerm": {
            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": app.name}},
            "topologyKey": "kubernetes.io/hostname",
        },
        "weight": 100,
    }]}})
}

fn tolerations() -> Value {
    let keys = [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ];
    let tolerations: Vec<Value> = keys
        .iter()
        .map(|key| {
            json!({
                "effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300,
            })
        })
        .collect();
    tolerations.into()
}

fn volumes(app: &App) -> Value {
    let mut volumes = own_volumes(app);
    if let Value::Array(volumes) = &mut volumes {
        volumes.push(json!({
            "name": "kube-api-access",
            "projected": {
                "defaultMode": 420,
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {
                        "items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt",
                    }},
                    {"downwardAPI": {"items": [{
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                        "path": "namespace",
                    }]}},
                ],
            },
        }));
    }
    volumes
}

fn conditions(rng: &mut Rng, finished: bool) -> Value {
    let unready = finished || rng.chance(4);
    let types = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ];
    let conditions: Vec<Value> = types
        .iter()
        .map(|&kind| {
            let ready = !(unready && kind.ends_with("Ready"));
            let mut condition = json!({
                "lastProbeTime": null,
                "lastTransitionTime": rng.time(),
                "status": if ready { "True" } else { "False" },
                "type": kind,
            });
            if let (false, Value::Object(condition)) = (ready, &mut condition) {
                // Longer than a line: kubectl folds it.
                let message = "containers with unready status because the readiness probe of the \
                               main container has failed since the last restart of the node";
                condition.insert("message".to_owned(), message.into());
                condition.insert("reason".to_owned(), "ContainersNotReady".into());
            }
            condition
        })
        .collect();
    conditions.into()
}

fn container_status(rng: &mut Rng, name: &str, finished: bool) -> Value {
    let state = if finished {
        json!({"terminated": {
            "exitCode": 0, "finishedAt": rng.time(), "reason": "Completed", "startedAt": rng.time(),
        }})
    } else {
        json!({"running": {"startedAt": rng.time()}})
    };
    json!({
        "containerID": format!("containerd://{}", rng.hex(64)),
        "image": format!("registry.example.com/library/{name}:stable"),
        "imageID": format!("registry.example.com/library/{name}@sha256:{}", rng.hex(64)),
        "lastState": {},
        "name": name,
        "ready": !finished,
        "restartCount": rng.below(4),
        "started": !finished,
        "state": state,
    })
}

/// The pod's own address: no two pods of a run share one.
fn address(serial: u64, host_network: bool, host: &str) -> String {
    if host_network {
        return host.to_owned();
    }
    let base = u32::from(Ipv4Addr::new(10, 128, 0, 0));
    Ipv4Addr::from(base | (serial & 0x7f_ffff) as u32).to_string()
}

fn addresses(
    rng: &mut Rng,
    serial: u64,
    host_network: bool,
    dual_stack_percent: u64,
    host: &str,
) -> Value {
    let mut addresses = vec![json!({"ip": address(serial, host_network, host)})];
    if !host_network && rng.chance(dual_stack_percent) {
        let (high, low) = ((serial >> 16) & 0xffff, serial & 0xffff);
        addresses.push(json!({"ip": format!("fd00:10:244:1:2:3:{high:x}:{low:x}")}));
    }
    addresses.into()
}
