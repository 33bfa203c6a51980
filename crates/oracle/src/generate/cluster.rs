//! Random namespaces, nodes, pods, workloads and Services.

use super::marks::{Mark, is_np0};
use super::rng::Rng;
use serde_json::{Value, json};
use std::net::IpAddr;

/// Values of the labels that selectors use.
pub(crate) const TEAMS: [&str; 3] = ["red", "blue", "green"];
pub(crate) const TENANTS: [&str; 2] = ["t1", "t2"];
pub(crate) const APPS: [&str; 3] = ["web", "db", "client"];
pub(crate) const TRACKS: [&str; 2] = ["a", "b"];
/// Addresses outside the cluster.
pub(crate) const OUTSIDE: [&str; 5] = [
    "203.0.113.7",
    "203.0.113.77",
    "198.51.100.200",
    "2001:db8:ffff::7",
    "fd00:9::9",
];

/// A generated pod.
#[derive(Clone, Debug)]
pub(crate) struct PodInfo {
    pub(crate) id: String,
    pub(crate) addresses: Vec<String>,
    pub(crate) live: bool,
    pub(crate) host: bool,
    /// Whether no other pod has its addresses.
    pub(crate) sole: bool,
    pub(crate) pending: bool,
    pub(crate) node: Option<String>,
    /// Protocol and name of its ports.
    pub(crate) names: Vec<(&'static str, String)>,
    app: &'static str,
}

/// A generated Service.
#[derive(Clone, Debug)]
pub(crate) struct ServiceInfo {
    pub(crate) id: String,
    pub(crate) addresses: Vec<String>,
    /// Protocol and number as dialled, name, node port.
    pub(crate) ports: Vec<(&'static str, u16, String, Option<u16>)>,
}

/// A cluster, and the words for queries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) objects: Vec<Value>,
    pub(crate) namespaces: Vec<&'static str>,
    /// The namespaces with an isolating annotation.
    pub(crate) isolated: Vec<&'static str>,
    pub(crate) nodes: Vec<String>,
    pub(crate) node_addresses: Vec<String>,
    pub(crate) pods: Vec<PodInfo>,
    pub(crate) workloads: Vec<String>,
    pub(crate) services: Vec<ServiceInfo>,
}

/// The annotations of D69, D71 and D126; the second half does not isolate.
fn annotations(rng: &mut Rng, isolate: bool) -> Value {
    const WORD: &str = "net.beta.kubernetes.io/network-isolation";
    const JSON: &str = "net.beta.kubernetes.io/network-policy";
    let deny = r#"{"ingress":{"isolation":"DefaultDeny"}}"#;
    if isolate {
        match rng.below(9) {
            0..=2 => json!({WORD: "true"}),
            3 => json!({WORD: *rng.pick(&["yes", "True", "", "1"])}),
            4 | 5 => json!({JSON: deny}),
            6 => json!({JSON: *rng.pick(&["{", "DefaultDeny", r#"{"ingress":"#])}),
            7 => json!({WORD: "false", JSON: deny}),
            _ => json!({WORD: "true", JSON: "{}"}),
        }
    } else {
        match rng.below(3) {
            0 => json!({WORD: "false"}),
            1 => json!({JSON: "{}"}),
            _ => json!({WORD: "false", JSON: "{}"}),
        }
    }
}

/// Makes a cluster. The planned policies decide which namespaces are isolated.
pub(crate) fn cluster(rng: &mut Rng, plans: &[Mark]) -> Cluster {
    let mut c = Cluster::default();
    let mut names = ["x", "y", "z", "u", "w"];
    rng.shuffle(&mut names);
    c.namespaces = names[..2 + rng.below(4)].to_vec();
    let early = plans.iter().any(|p| is_np0(p.generation));
    for (i, name) in c.namespaces.clone().into_iter().enumerate() {
        let mut labels = serde_json::Map::new();
        if rng.chance(4, 5) {
            labels.insert("team".into(), json!(rng.pick(&TEAMS)));
        }
        if rng.chance(3, 5) {
            labels.insert("tenant".into(), json!(rng.pick(&TENANTS)));
        }
        if rng.chance(1, 12) {
            // D23: overridden.
            labels.insert("kubernetes.io/metadata.name".into(), json!("other"));
        }
        let mut meta = json!({"name": name, "labels": labels});
        let isolate = (early && i == 0 && rng.chance(9, 10)) || rng.chance(1, 12);
        if isolate {
            meta["annotations"] = annotations(rng, true);
            c.isolated.push(name);
        } else if rng.chance(1, 8) {
            meta["annotations"] = annotations(rng, false);
        } else if rng.chance(1, 6) {
            continue;
        }
        c.objects
            .push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": meta}));
    }
    let dual = c.add_nodes(rng);
    c.add_pods(rng, &dual);
    c.add_workloads(rng);
    for i in 0..rng.below(4) {
        c.add_service(rng, i);
    }
    c
}

/// Containers with ports; `multi` is a name on two containers with two numbers.
fn containers(rng: &mut Rng) -> Value {
    let mut ports = Vec::new();
    if rng.chance(2, 3) {
        ports.push(json!({"name": "http", "containerPort": *rng.pick(&[80, 8080, 9090])}));
    }
    if rng.chance(1, 2) {
        ports.push(json!({"name": "dns", "containerPort": 53, "protocol": "UDP"}));
    }
    if rng.chance(1, 4) {
        ports.push(json!({"name": "dns", "containerPort": 53, "protocol": "TCP"}));
    }
    if rng.chance(1, 5) {
        ports.push(json!({"name": "sig", "containerPort": 9003, "protocol": "SCTP"}));
    }
    if rng.chance(1, 5) {
        // The name of another protocol.
        ports.push(json!({"name": "web", "containerPort": 80, "protocol": "UDP"}));
    }
    let multi = rng.chance(1, 4);
    if multi {
        ports.push(json!({"name": "multi", "containerPort": 80}));
    }
    let mut list = vec![json!({"name": "c", "image": "i", "ports": ports})];
    if multi {
        list.push(
            json!({"name": "d", "image": "i", "ports": [{"name": "multi", "containerPort": 8080}]}),
        );
        if rng.chance(1, 6) {
            // As many ports as a name may have, or one more.
            for more in 1..=6 + rng.below(2) {
                list.push(
                    json!({"name": format!("m{more}"), "image": "i", "ports": [{"name": "multi", "containerPort": 80 + more}]}),
                );
            }
        }
    }
    let mut spec = json!({"containers": list});
    if rng.chance(1, 4) {
        let mut init =
            json!({"name": "i", "image": "i", "ports": [{"name": "side", "containerPort": 81}]});
        if rng.chance(2, 3) {
            init["restartPolicy"] = json!("Always");
        }
        spec["initContainers"] = json!([init]);
    }
    spec
}

/// The port names for queries (D34).
fn names(spec: &Value) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    for c in ["containers", "initContainers"] {
        for c in spec[c].as_array().into_iter().flatten() {
            if c["name"] == "i" && c.get("restartPolicy").is_none() {
                continue;
            }
            for p in c["ports"].as_array().into_iter().flatten() {
                let protocol = match p["protocol"].as_str() {
                    Some("UDP") => "udp",
                    Some("SCTP") => "sctp",
                    _ => "tcp",
                };
                out.push((protocol, p["name"].as_str().unwrap_or_default().to_owned()));
            }
        }
    }
    out
}

fn pod_labels(rng: &mut Rng, app: &str) -> Value {
    let mut labels = json!({"app": app});
    if rng.chance(1, 2) {
        labels["track"] = json!(rng.pick(&TRACKS));
    }
    labels
}

impl Cluster {
    /// Which nodes have both families.
    fn add_nodes(&mut self, rng: &mut Rng) -> Vec<bool> {
        let mut dual = Vec::new();
        for i in 1..=1 + rng.below(3) {
            let name = format!("n{i}");
            let mut addresses = vec![json!({"type": "Hostname", "address": name})];
            let mut add = |kind: &str, a: String| {
                addresses.push(json!({"type": kind, "address": a}));
                self.node_addresses.push(a);
            };
            add("InternalIP", format!("192.0.2.{i}"));
            if rng.chance(1, 3) {
                add("InternalIP", format!("192.0.2.5{i}"));
            }
            if rng.chance(1, 3) {
                add("ExternalIP", format!("198.51.100.{i}"));
            }
            dual.push(rng.chance(2, 3));
            if dual.last() == Some(&true) {
                add("InternalIP", format!("2001:db8::{i}"));
            }
            let mut labels = json!({"role": *rng.pick(&["worker", "control-plane"])});
            if rng.chance(1, 2) {
                labels["zone"] = json!(rng.pick(&TRACKS));
            }
            self.objects.push(json!({"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": labels}, "status": {"addresses": addresses}}));
            self.nodes.push(name);
        }
        dual
    }

    fn add_pods(&mut self, rng: &mut Rng, dual: &[bool]) {
        for i in 1..=4 + rng.below(11) {
            let n = rng.below(self.namespaces.len());
            let namespace = self.namespaces[n];
            let app = *rng.pick(&APPS);
            let mut spec = containers(rng);
            let node = rng.below(self.nodes.len());
            let both = match rng.below(10) {
                0 => true,
                1 => {
                    // A node that no object describes.
                    spec["nodeName"] = json!("ghost");
                    true
                }
                _ => {
                    spec["nodeName"] = json!(self.nodes[node]);
                    dual[node]
                }
            };
            let mut addresses = match rng.below(10) {
                0 => Vec::new(),
                1 | 2 => vec![format!("10.0.{n}.{i}")],
                3 if both => vec![format!("fd00:0:0:{n}::{i}")],
                4 if both => vec![format!("fd00:0:0:{n}::{i}"), format!("10.0.{n}.{i}")],
                _ if both => vec![format!("10.0.{n}.{i}"), format!("fd00:0:0:{n}::{i}")],
                _ => vec![format!("10.0.{n}.{i}")],
            };
            let host = rng.chance(1, 9) && spec["nodeName"] != json!("ghost");
            let mut sole = !host;
            if host {
                spec["hostNetwork"] = json!(true);
                let named = spec.get("nodeName").is_some();
                addresses = match rng.below(6) {
                    // D108: on no Node object.
                    0 if named => vec![format!("192.0.2.10{}", i % 10)],
                    1 if named => Vec::new(),
                    _ => vec![format!("192.0.2.{}", node + 1)],
                };
            } else if rng.chance(1, 9) && i > 1 {
                // D82: the address of another pod.
                let other = rng.below(self.pods.len());
                if !self.pods[other].host && !self.pods[other].addresses.is_empty() {
                    addresses.clone_from(&self.pods[other].addresses);
                    self.pods[other].sole = false;
                    sole = false;
                }
            } else if rng.chance(1, 25) {
                // D107: an address of a node, but not its first.
                let later = ["192.0.2.5", "198.51.100."];
                let found = self.node_addresses.iter().find(|a| {
                    later.iter().any(|l| a.starts_with(l)) && a.len() > "192.0.2.5".len()
                });
                if let Some(a) = found {
                    addresses = vec![a.clone()];
                    sole = false;
                }
            }
            self.push_pod(rng, i, namespace, app, &spec, addresses, sole, host);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a pod")]
    fn push_pod(
        &mut self,
        rng: &mut Rng,
        i: usize,
        namespace: &'static str,
        app: &'static str,
        spec: &Value,
        addresses: Vec<String>,
        sole: bool,
        host: bool,
    ) {
        let phase = match rng.below(24) {
            0 | 1 => "Pending",
            2 => "Succeeded",
            3 => "Failed",
            4 => "Unknown",
            5 => "",
            _ => "Running",
        };
        let mut status = json!({});
        if !phase.is_empty() {
            status["phase"] = json!(phase);
        }
        if addresses.len() == 1 && rng.chance(1, 8) {
            // D140.
            status["podIP"] = json!(addresses[0]);
        } else if !addresses.is_empty() {
            let ips: Vec<Value> = addresses.iter().map(|a| json!({"ip": a})).collect();
            status["podIP"] = json!(addresses[0]);
            status["podIPs"] = json!(ips);
        }
        if rng.chance(1, 8) {
            status["conditions"] = json!([{"type": "Ready", "status": "False"}]);
        }
        let name = format!("p{i}");
        let mut meta =
            json!({"name": name, "namespace": namespace, "labels": pod_labels(rng, app)});
        if rng.chance(5, 6) {
            meta["creationTimestamp"] = json!(format!("2024-01-0{}T00:00:00Z", 1 + rng.below(4)));
        }
        self.objects.push(json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}));
        self.pods.push(PodInfo {
            id: format!("{namespace}/{name}"),
            addresses,
            live: phase != "Succeeded" && phase != "Failed",
            pending: phase == "Pending" || status.get("conditions").is_some(),
            node: spec["nodeName"].as_str().map(str::to_owned),
            names: names(spec),
            host,
            sole,
            app,
        });
    }

    /// Workloads own some of the pods; some workloads have none.
    fn add_workloads(&mut self, rng: &mut Rng) {
        let kinds = [
            ("deploy", "apps/v1", "Deployment"),
            ("sts", "apps/v1", "StatefulSet"),
            ("ds", "apps/v1", "DaemonSet"),
            ("rs", "apps/v1", "ReplicaSet"),
            ("rc", "v1", "ReplicationController"),
            ("job", "batch/v1", "Job"),
            ("cronjob", "batch/v1", "CronJob"),
        ];
        for i in 0..rng.below(4) {
            let (word, api, kind) = *rng.pick(&kinds);
            let namespace = *rng.pick(&self.namespaces);
            let (name, app) = (format!("w{i}"), *rng.pick(&APPS));
            let how = rng.below(3);
            // 0: pods by owner reference; 1: by selector, if it finds any; 2: none.
            let chosen = if how == 1 {
                json!({"app": app})
            } else {
                json!({"wl": name})
            };
            let mut labels = pod_labels(rng, app);
            labels["wl"] = json!(name);
            let template = json!({"metadata": {"labels": labels}, "spec": containers(rng)});
            let spec = match word {
                "rc" => json!({"selector": chosen, "template": template}),
                "cronjob" => {
                    json!({"schedule": "@daily", "jobTemplate": {"spec": {"template": template}}})
                }
                "job" if how != 1 => json!({"template": template}),
                _ => json!({"selector": {"matchLabels": chosen}, "template": template}),
            };
            self.objects.push(json!({"apiVersion": api, "kind": kind,
                "metadata": {"name": name, "namespace": namespace}, "spec": spec}));
            if how == 0 {
                let mut owner = json!({"apiVersion": api, "kind": kind, "name": name, "controller": true, "uid": name});
                let between = match word {
                    "deploy" => Some("ReplicaSet"),
                    "cronjob" => Some("Job"),
                    _ => None,
                };
                if let Some(kind) = between {
                    let middle = format!("{name}-m");
                    let mut spec = json!({"template": template});
                    if kind == "ReplicaSet" {
                        spec["selector"] = json!({"matchLabels": chosen});
                    }
                    let api = if kind == "Job" { "batch/v1" } else { "apps/v1" };
                    self.objects.push(json!({"apiVersion": api, "kind": kind,
                        "metadata": {"name": middle, "namespace": namespace, "ownerReferences": [owner]}, "spec": spec}));
                    owner = json!({"apiVersion": api, "kind": kind, "name": middle, "controller": true, "uid": middle});
                }
                for o in &mut self.objects {
                    let here = o["kind"] == "Pod" && o["metadata"]["namespace"] == namespace;
                    if here && o["metadata"].get("ownerReferences").is_none() && rng.chance(1, 2) {
                        o["metadata"]["ownerReferences"] = json!([owner]);
                    }
                }
            }
            self.workloads.push(format!("{namespace}/{word}/{name}"));
        }
    }

    fn add_service(&mut self, rng: &mut Rng, i: usize) {
        let namespace = *rng.pick(&self.namespaces);
        let (name, app) = (format!("s{i}"), *rng.pick(&APPS));
        let kind = match rng.below(20) {
            0 => "ExternalName",
            1..=4 => "NodePort",
            5..=8 => "LoadBalancer",
            _ => "ClusterIP",
        };
        let headless = kind == "ClusterIP" && rng.chance(1, 4);
        let mut info = ServiceInfo {
            id: format!("{namespace}/svc/{name}"),
            addresses: Vec::new(),
            ports: Vec::new(),
        };
        let slices = rng.chance(1, 3);
        // A port name on a host-network pod, which does not resolve.
        let on_host = self
            .pods
            .iter()
            .any(|p| p.host && p.app == app && p.id.starts_with(&format!("{namespace}/")));
        let mut ports = Vec::new();
        for (k, (protocol, port)) in [("tcp", 80u16), ("udp", 53)].into_iter().enumerate() {
            if k == 1 && rng.chance(1, 2) {
                break;
            }
            let mut p = json!({"name": format!("port{k}"), "port": port});
            if protocol == "udp" {
                p["protocol"] = json!("UDP");
            }
            match rng.below(4) {
                0 if !slices && !on_host => {
                    p["targetPort"] = json!(if protocol == "udp" { "dns" } else { "http" })
                }
                1 | 2 => p["targetPort"] = json!(*rng.pick(&[80, 8080, 81])),
                _ => {}
            }
            let node_port = (kind == "NodePort" || kind == "LoadBalancer")
                .then_some(30080 + 10 * u16::try_from(i).unwrap() + port % 7);
            if let Some(n) = node_port {
                p["nodePort"] = json!(n);
            }
            info.ports
                .push((protocol, port, format!("port{k}"), node_port));
            ports.push(p);
        }
        let mut spec = json!({"type": kind, "selector": {"app": app}, "ports": ports});
        let mut status = json!({});
        if headless {
            spec["clusterIP"] = json!("None");
        } else if kind == "ExternalName" {
            spec["externalName"] = json!("a.example.com");
        } else {
            let (four, six) = (format!("10.96.0.{}", i + 1), format!("fd96::{}", i + 1));
            info.addresses = match rng.below(6) {
                0 => vec![six],
                1 | 2 => vec![four, six],
                _ => vec![four],
            };
            spec["clusterIP"] = json!(info.addresses[0]);
            if info.addresses.len() > 1 || rng.chance(1, 2) {
                spec["clusterIPs"] = json!(info.addresses);
            }
        }
        // Its address is IPv4, so the Service must have that family.
        if kind == "LoadBalancer" && info.addresses[0].contains('.') {
            let a = format!("203.0.113.20{i}");
            status["loadBalancer"] = json!({"ingress": [{"ip": a}]});
            info.addresses.push(a);
        }
        if kind != "ClusterIP" && rng.chance(1, 3) {
            spec["externalTrafficPolicy"] = json!("Local");
        }
        if rng.chance(1, 6) {
            spec["publishNotReadyAddresses"] = json!(true);
        }
        if slices && kind != "ExternalName" {
            self.add_slices(rng, namespace, &name, app, &ports);
        }
        self.objects
            .push(json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": status}));
        self.services.push(info);
    }

    /// Ready and unready pods, and sometimes an address outside.
    fn add_slices(
        &mut self,
        rng: &mut Rng,
        namespace: &str,
        name: &str,
        app: &str,
        ports: &[Value],
    ) {
        let ports: Vec<Value> = ports
            .iter()
            .map(|p| {
                let number = p.get("targetPort").unwrap_or(&p["port"]);
                let protocol = p.get("protocol").cloned().unwrap_or(json!("TCP"));
                json!({"name": p["name"], "port": number, "protocol": protocol})
            })
            .collect();
        for (kind, outside, colon) in [
            ("IPv4", "203.0.113.30", false),
            ("IPv6", "2001:db8:ffff::30", true),
        ] {
            let mut endpoints = Vec::new();
            for p in &self.pods {
                let here = p.id.starts_with(&format!("{namespace}/")) && p.app == app;
                if !here || !p.live || p.host || !p.sole {
                    continue;
                }
                for a in p.addresses.iter().filter(|a| a.contains(':') == colon) {
                    let ready = if p.pending {
                        json!(false)
                    } else {
                        json!(rng.chance(5, 6))
                    };
                    endpoints.push(json!({"addresses": [a], "conditions": {"ready": ready}}));
                }
            }
            if rng.chance(1, 3) {
                endpoints.push(json!({"addresses": [outside]}));
            }
            if kind == "IPv6" && endpoints.is_empty() {
                continue;
            }
            self.objects.push(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": format!("{name}-{}", kind.to_lowercase()), "namespace": namespace,
                    "labels": {"kubernetes.io/service-name": name}},
                "addressType": kind, "endpoints": endpoints, "ports": ports}));
        }
    }

    /// What was learned from DNS: addresses outside, and of pods.
    pub(crate) fn dns(&self, rng: &mut Rng) -> Vec<(String, IpAddr)> {
        let names = [
            "a.example.com",
            "b.a.example.com.",
            "Ads.Example.COM",
            "example.com",
            "www.example.org",
        ];
        (0..rng.below(6))
            .map(|_| {
                let pod = self.pods.iter().find_map(|p| p.addresses.first());
                let address = match pod {
                    Some(a) if rng.chance(1, 4) => a.as_str(),
                    _ => *rng.pick(&OUTSIDE),
                };
                ((*rng.pick(&names)).to_owned(), address.parse().unwrap())
            })
            .collect()
    }
}
