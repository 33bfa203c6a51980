//! Who is called what: from names to pods, workloads, Services and nodes, with suggestions.

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::model::{Cluster, NodeId, PodId, PodLifecycle, ServiceId};
use crate::text::{nearest, ticked};

/// The names of a cluster.
#[derive(Debug)]
pub struct NameIndex<'c> {
    cluster: &'c Cluster<'c>,
    pods: FxHashMap<(&'c str, &'c str), PodId>,
    workloads: FxHashMap<(&'c str, &'c str, &'c str), usize>,
    services: FxHashMap<(&'c str, &'c str), ServiceId>,
    nodes: FxHashMap<&'c str, NodeId>,
}

/// A name that stands for nothing that could be asked about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownName {
    /// No such thing.
    #[error("there is no {what} {name}{suggestion}")]
    NoSuch {
        /// The sort of thing.
        what: &'static str,
        /// Its name, quoted.
        name: String,
        /// What may be meant.
        suggestion: String,
    },
    /// The pod has ended.
    #[error("the pod {0} has ended, so that no flow starts or ends there")]
    Ended(String),
}

impl<'c> NameIndex<'c> {
    /// Makes the directory of a cluster.
    pub fn new(cluster: &'c Cluster<'c>) -> NameIndex<'c> {
        let id = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        let mut directory = NameIndex {
            cluster,
            pods: FxHashMap::with_capacity_and_hasher(cluster.pods.len(), FxBuildHasher),
            workloads: FxHashMap::with_capacity_and_hasher(cluster.workloads.len(), FxBuildHasher),
            services: FxHashMap::with_capacity_and_hasher(cluster.services.len(), FxBuildHasher),
            nodes: FxHashMap::with_capacity_and_hasher(cluster.nodes.len(), FxBuildHasher),
        };
        for (index, pod) in cluster.pods.iter().enumerate() {
            if pod.template.is_none() {
                let key = (cluster.namespace_name(pod.namespace), pod.name);
                directory.pods.insert(key, PodId(id(index)));
            }
        }
        for (index, workload) in cluster.workloads.iter().enumerate() {
            let namespace = cluster.namespace_name(workload.namespace);
            let key = (namespace, workload.kind, workload.name);
            directory.workloads.insert(key, index);
        }
        for (index, service) in cluster.services.iter().enumerate() {
            let key = (cluster.namespace_name(service.namespace), service.name);
            directory.services.insert(key, ServiceId(id(index)));
        }
        for (index, node) in cluster.nodes.iter().enumerate() {
            directory.nodes.insert(node.name, NodeId(id(index)));
        }
        directory
    }

    /// The pod of a name, if it still lives.
    pub fn pod(&self, namespace: &str, name: &str) -> Result<PodId, UnknownName> {
        let Some(id) = self.pods.get(&(namespace, name)).copied() else {
            return Err(self.no_pod(namespace, name));
        };
        let pod = self.cluster.pods.get(id.0 as usize);
        if pod.is_some_and(|pod| pod.life == PodLifecycle::Ended) {
            return Err(UnknownName::Ended(ticked(&format!("{namespace}/{name}"))));
        }
        Ok(id)
    }

    /// The pods that stand for a workload.
    pub fn workload(
        &self,
        namespace: &str,
        kind: &str,
        name: &str,
    ) -> Result<&[PodId], UnknownName> {
        let found = self.workloads.get(&(namespace, kind, name));
        let found = found.and_then(|index| self.cluster.workloads.get(*index));
        found.map(|workload| &*workload.pods).ok_or_else(|| {
            let full = format!("{namespace}/{kind}/{name}");
            let names = self.workloads.keys();
            let names = names.map(|(namespace, kind, name)| format!("{namespace}/{kind}/{name}"));
            no_such("workload", &full, names.collect())
        })
    }

    /// The Service of a name.
    pub fn service(&self, namespace: &str, name: &str) -> Result<ServiceId, UnknownName> {
        self.services
            .get(&(namespace, name))
            .copied()
            .ok_or_else(|| {
                let full = format!("{namespace}/svc/{name}");
                let names = self.services.keys();
                let names = names.map(|(namespace, name)| format!("{namespace}/svc/{name}"));
                no_such("Service", &full, names.collect())
            })
    }

    /// The node of a name.
    pub fn node(&self, name: &str) -> Result<NodeId, UnknownName> {
        self.nodes.get(name).copied().ok_or_else(|| {
            let names = self.nodes.keys().map(|name| format!("node/{name}"));
            no_such("node", &format!("node/{name}"), names.collect())
        })
    }

    /// A pod that does not exist may be the name of a workload, or stand in another namespace.
    fn no_pod(&self, namespace: &str, name: &str) -> UnknownName {
        let full = format!("{namespace}/{name}");
        let mut meant: Vec<String> = Vec::new();
        let workloads = self.workloads.keys();
        for (its_namespace, kind, its_name) in workloads {
            if *its_namespace == namespace && *its_name == name {
                meant.push(format!("{namespace}/{kind}/{name}"));
            }
        }
        for (its_namespace, its_name) in self.services.keys() {
            if *its_namespace == namespace && *its_name == name {
                meant.push(format!("{namespace}/svc/{name}"));
            }
        }
        if meant.is_empty() {
            let pods = self.pods.keys().filter(|(_, its_name)| *its_name == name);
            meant.extend(pods.map(|(namespace, name)| format!("{namespace}/{name}")));
        }
        if let Some(first) = meant.iter().min() {
            return UnknownName::NoSuch {
                what: "pod",
                name: ticked(&full),
                suggestion: format!("; did you mean `{first}`?"),
            };
        }
        let names = self
            .pods
            .keys()
            .map(|(namespace, name)| format!("{namespace}/{name}"));
        no_such("pod", &full, names.collect())
    }
}

fn no_such(what: &'static str, full: &str, mut names: Vec<String>) -> UnknownName {
    names.sort();
    let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
    let suggestion = match nearest(full, &borrowed) {
        Some(name) => format!("; did you mean `{name}`?"),
        None if names.is_empty() => format!("; no {what} is given"),
        None => String::new(),
    };
    UnknownName::NoSuch {
        what,
        name: ticked(full),
        suggestion,
    }
}
