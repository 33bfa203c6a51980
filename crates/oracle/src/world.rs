//! The cluster as it is evaluated: namespaces, pods, nodes, workloads, Services (D22, D23, D34,
//! D81, D82, D106, D140).

use crate::cidr;
use crate::json::{
    Bad, Map, Res, field, list, object, opt_bool, opt_integer, opt_list, opt_object, opt_text,
    string_map, text,
};
use crate::rule::Protocol;
use crate::select::{Labels, Selector};
use crate::service::{Service, Slice};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// A namespace; its labels have `kubernetes.io/metadata.name` (D23).
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    pub(crate) name: String,
    pub(crate) labels: Labels,
}

/// A container port with a name.
#[derive(Clone, Debug)]
pub(crate) struct NamedPort {
    pub(crate) name: String,
    pub(crate) protocol: Protocol,
    pub(crate) number: u16,
    /// Whether the pod has at most eight ports of this name: docs/reference/model.md ("Budgets").
    pub(crate) counts: bool,
}

/// A pod, or the template of a workload.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) id: String,
    /// Index of its namespace.
    pub(crate) namespace: usize,
    pub(crate) labels: Labels,
    pub(crate) node: Option<String>,
    pub(crate) host: bool,
    pub(crate) ports: Vec<NamedPort>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) phase: String,
    pub(crate) created: String,
    pub(crate) unready: bool,
    /// Kind and name of its owners.
    pub(crate) owners: Vec<(String, String)>,
    pub(crate) template: bool,
}

impl Pod {
    /// D81: not Succeeded, not Failed.
    pub(crate) fn live(&self) -> bool {
        self.phase != "Succeeded" && self.phase != "Failed"
    }
}

/// A node: addresses with whether they are internal (D106).
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) addresses: Vec<(IpAddr, bool)>,
}

/// A workload.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) selector: Option<Selector>,
    pub(crate) owners: Vec<(String, String)>,
    pub(crate) template: Pod,
}

/// Everything that is not a policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) namespaces: Vec<Namespace>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) workloads: Vec<Workload>,
    pub(crate) services: Vec<Service>,
    pub(crate) slices: Vec<Slice>,
    /// Lower-case names without the last dot (D54), folded addresses.
    pub(crate) dns: Vec<(String, IpAddr)>,
    pub(crate) pod_by_id: HashMap<String, usize>,
    /// The live pod that an address belongs to (D22, D82).
    pub(crate) pod_by_address: HashMap<IpAddr, usize>,
}

/// Name, namespace, labels and the rest of metadata.
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) labels: Labels,
    pub(crate) annotations: Labels,
    pub(crate) created: String,
    pub(crate) owners: Vec<(String, String)>,
}

impl Meta {
    /// `Err`: the object is skipped (D123).
    pub(crate) fn read(object_: &Map) -> Res<Self> {
        let meta = object(field(object_, "metadata").ok_or(Bad)?)?;
        let word = |k: &str| opt_text(meta, k).map(|t| t.unwrap_or_default().to_owned());
        let mut owners = Vec::new();
        for o in opt_list(meta, "ownerReferences")?.into_iter().flatten() {
            let o = object(o)?;
            let get = |k: &str| opt_text(o, k).map(|t| t.unwrap_or_default().to_owned());
            owners.push((get("kind")?, get("name")?));
        }
        let namespace = word("namespace")?;
        Ok(Self {
            name: text(field(meta, "name").ok_or(Bad)?)?.to_owned(),
            // D140.
            namespace: if namespace.is_empty() {
                "default".to_owned()
            } else {
                namespace
            },
            uid: word("uid")?,
            labels: string_map(field(meta, "labels"))?,
            annotations: string_map(field(meta, "annotations"))?,
            created: word("creationTimestamp")?,
            owners,
        })
    }
}

impl World {
    /// The index of a namespace; one without an object has only its name as label (D23).
    pub(crate) fn namespace(&mut self, name: &str) -> usize {
        if let Some(i) = self.namespaces.iter().position(|n| n.name == name) {
            return i;
        }
        self.add_namespace(name, &[]);
        self.namespaces.len() - 1
    }

    /// D23: `kubernetes.io/metadata.name` is its name, even if the object has another value.
    pub(crate) fn add_namespace(&mut self, name: &str, labels: &[(String, String)]) {
        let key = "kubernetes.io/metadata.name";
        let mut labels: Labels = labels.iter().filter(|(k, _)| k != key).cloned().collect();
        labels.push((key.to_owned(), name.to_owned()));
        self.namespaces.push(Namespace {
            name: name.to_owned(),
            labels,
        });
    }

    /// A Pod object.
    pub(crate) fn add_pod(&mut self, meta: &Meta, object_: &Map) -> Res<()> {
        let none = Map::new();
        let status = opt_object(object_, "status")?.unwrap_or(&none);
        let mut texts = Vec::new();
        for ip in opt_list(status, "podIPs")?.into_iter().flatten() {
            texts.extend(opt_text(object(ip)?, "ip")?);
        }
        // D140: podIP counts where podIPs is missing.
        if texts.is_empty() {
            texts.extend(opt_text(status, "podIP")?);
        }
        let mut unready = false;
        for c in opt_list(status, "conditions")?.into_iter().flatten() {
            let c = object(c)?;
            unready |=
                opt_text(c, "type")? == Some("Ready") && opt_text(c, "status")? == Some("False");
        }
        let spec = opt_object(object_, "spec")?.unwrap_or(&none);
        let namespace = self.namespace(&meta.namespace);
        let id = format!("{}/{}", meta.namespace, meta.name);
        let mut pod = pod_spec(spec, id, namespace, meta.labels.clone())?;
        pod.addresses = texts.into_iter().filter_map(cidr::address).collect();
        pod.phase = opt_text(status, "phase")?.unwrap_or_default().to_owned();
        pod.created.clone_from(&meta.created);
        pod.owners.clone_from(&meta.owners);
        pod.unready = unready;
        self.pods.push(pod);
        Ok(())
    }

    /// A Node object.
    pub(crate) fn add_node(&mut self, meta: &Meta, object_: &Map) -> Res<()> {
        let none = Map::new();
        let status = opt_object(object_, "status")?.unwrap_or(&none);
        let mut addresses = Vec::new();
        for a in opt_list(status, "addresses")?.into_iter().flatten() {
            let a = object(a)?;
            // D106: InternalIP and ExternalIP that parse.
            let internal = match opt_text(a, "type")? {
                Some("InternalIP") => true,
                Some("ExternalIP") => false,
                _ => continue,
            };
            if let Some(a) = opt_text(a, "address")?.and_then(cidr::address) {
                addresses.push((a, internal));
            }
        }
        self.nodes.push(Node {
            name: meta.name.clone(),
            labels: meta.labels.clone(),
            addresses,
        });
        Ok(())
    }

    /// A workload; `kind` is the word in endpoints.
    pub(crate) fn add_workload(
        &mut self,
        kind: &'static str,
        meta: &Meta,
        object_: &Map,
    ) -> Res<()> {
        let none = Map::new();
        let mut spec = opt_object(object_, "spec")?.unwrap_or(&none);
        if kind == "cronjob" {
            let job = opt_object(spec, "jobTemplate")?.unwrap_or(&none);
            spec = opt_object(job, "spec")?.unwrap_or(&none);
        }
        let selector = match field(spec, "selector") {
            None => None,
            Some(v) if kind == "rc" => Some(Selector::from_map(Some(v))?),
            Some(v) => Some(Selector::read(v)?),
        };
        let template = opt_object(spec, "template")?.unwrap_or(&none);
        let template_meta = opt_object(template, "metadata")?.unwrap_or(&none);
        let labels = string_map(field(template_meta, "labels"))?;
        let pod = opt_object(template, "spec")?.unwrap_or(&none);
        let namespace = self.namespace(&meta.namespace);
        let id = format!("{}/{kind}/{}", meta.namespace, meta.name);
        let mut template = pod_spec(pod, id, namespace, labels)?;
        template.template = true;
        self.workloads.push(Workload {
            kind,
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            selector,
            owners: meta.owners.clone(),
            template,
        });
        Ok(())
    }

    /// Sorts, and assigns each address to one pod.
    pub(crate) fn finish(&mut self) {
        self.pods.sort_by(|a, b| a.id.cmp(&b.id));
        self.nodes.sort_by(|a, b| a.name.cmp(&b.name));
        for i in 0..self.pods.len() {
            let pod = &self.pods[i];
            self.pod_by_id.insert(pod.id.clone(), i);
            // D22: live and not on the host network.
            if !pod.live() || pod.host {
                continue;
            }
            for a in pod.addresses.clone() {
                let held = self.pod_by_address.get(&a);
                if held.is_none_or(|h| self.prefer(i, *h)) {
                    self.pod_by_address.insert(a, i);
                }
            }
        }
    }

    /// D82, D134: Running, then Pending, then the rest; newest; smaller namespace/name.
    fn prefer(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.pods[a], &self.pods[b]);
        let rank = |p: &Pod| match p.phase.as_str() {
            "Running" => 0,
            "Pending" => 1,
            _ => 2,
        };
        let place = |p: &Pod| (self.namespaces[p.namespace].name.clone(), p.id.clone());
        (rank(a), &b.created, place(a)) < (rank(b), &a.created, place(b))
    }

    /// The Node object of a name.
    pub(crate) fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|n| n.name == name)
    }

    /// The live pods of a workload: by owner references, else by its selector.
    pub(crate) fn pods_of(&self, workload: &Workload) -> Vec<usize> {
        let owned_by = |owners: &[(String, String)], kind: &str, name: &str| {
            owners.iter().any(|(k, n)| k == kind && n == name)
        };
        let kind = kind_of(workload.kind);
        // A Deployment and a CronJob own pods through other workloads.
        let mut owners = vec![(kind, workload.name.as_str())];
        let between = match workload.kind {
            "deploy" => Some("rs"),
            "cronjob" => Some("job"),
            _ => None,
        };
        for w in &self.workloads {
            if Some(w.kind) == between
                && w.namespace == workload.namespace
                && owned_by(&w.owners, kind, &workload.name)
            {
                owners.push((kind_of(w.kind), w.name.as_str()));
            }
        }
        let here = |p: &Pod| p.live() && p.namespace == workload.template.namespace;
        let all = 0..self.pods.len();
        let owned: Vec<usize> = all
            .clone()
            .filter(|i| {
                let p = &self.pods[*i];
                here(p) && owners.iter().any(|(k, n)| owned_by(&p.owners, k, n))
            })
            .collect();
        if !owned.is_empty() {
            return owned;
        }
        let Some(selector) = workload.selector.as_ref().filter(|s| !s.is_empty()) else {
            return Vec::new();
        };
        all.filter(|i| here(&self.pods[*i]) && selector.matches(&self.pods[*i].labels))
            .collect()
    }
}

/// The kind of an endpoint word.
pub(crate) fn kind_of(word: &str) -> &'static str {
    match word {
        "deploy" => "Deployment",
        "sts" => "StatefulSet",
        "ds" => "DaemonSet",
        "rs" => "ReplicaSet",
        "rc" => "ReplicationController",
        "job" => "Job",
        "cronjob" => "CronJob",
        _ => "",
    }
}

/// The common part of pods and templates.
fn pod_spec(spec: &Map, id: String, namespace: usize, labels: Labels) -> Res<Pod> {
    let mut ports: Vec<NamedPort> = Vec::new();
    // D34: containers, and init containers that keep running.
    let mut containers: Vec<&Map> = Vec::new();
    for c in opt_list(spec, "containers")?.into_iter().flatten() {
        containers.push(object(c)?);
    }
    for c in opt_list(spec, "initContainers")?.into_iter().flatten() {
        let c = object(c)?;
        if opt_text(c, "restartPolicy")? == Some("Always") {
            containers.push(c);
        }
    }
    for c in containers {
        for p in field(c, "ports")
            .map(list)
            .transpose()?
            .into_iter()
            .flatten()
        {
            ports.extend(container_port(p)?);
        }
    }
    let all = ports.clone();
    for port in &mut ports {
        let same = all.iter().filter(|p| p.name == port.name);
        let distinct: HashSet<_> = same.map(|p| (p.protocol, p.number)).collect();
        port.counts = distinct.len() <= 8;
    }
    Ok(Pod {
        id,
        namespace,
        labels,
        node: opt_text(spec, "nodeName")?
            .filter(|n| !n.is_empty())
            .map(str::to_owned),
        host: opt_bool(spec, "hostNetwork")?.unwrap_or(false),
        ports,
        addresses: Vec::new(),
        phase: String::new(),
        created: String::new(),
        unready: false,
        owners: Vec::new(),
        template: false,
    })
}

/// D34: the protocol defaults to TCP.
fn container_port(v: &Value) -> Res<Option<NamedPort>> {
    let map = object(v)?;
    let protocol = opt_text(map, "protocol")?.map_or(Ok(Protocol::Tcp), Protocol::read)?;
    let number = opt_integer(map, "containerPort")?.ok_or(Bad)?;
    let number = u16::try_from(number).map_err(|_| Bad)?;
    Ok(opt_text(map, "name")?.map(|n| NamedPort {
        name: n.to_owned(),
        protocol,
        number,
        counts: true,
    }))
}
