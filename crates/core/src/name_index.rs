//! Finds pods, workloads, Services and nodes by name, and suggests similar names.

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::model::{Cluster, NodeId, PodId, PodPhase, ServiceId};
use crate::text::{nearest, ticked};

/// The objects of a cluster by name.
#[derive(Debug)]
pub struct NameIndex<'c> {
    cluster: &'c Cluster<'c>,
    pods: FxHashMap<(&'c str, &'c str), PodId>,
    workloads: FxHashMap<(&'c str, &'c str, &'c str), usize>,
    services: FxHashMap<(&'c str, &'c str), ServiceId>,
    nodes: FxHashMap<&'c str, NodeId>,
}

/// A name that no usable object has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownName {
    /// No object has the name.
    #[error("{what} {name} not found{suggestion}")]
    NoSuch {
        /// The kind of object, as in the message.
        what: &'static str,
        /// The name, quoted.
        name: String,
        /// A similar name, or nothing.
        suggestion: String,
    },
    /// The pod has terminated.
    #[error("the pod {0} has terminated; it has no flows")]
    Terminated(String),
}

impl<'c> NameIndex<'c> {
    /// Creates the index of a cluster.
    pub fn new(cluster: &'c Cluster<'c>) -> NameIndex<'c> {
        let id = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        let mut names = NameIndex {
            cluster,
            pods: FxHashMap::with_capacity_and_hasher(cluster.pods.len(), FxBuildHasher),
            workloads: FxHashMap::with_capacity_and_hasher(cluster.workloads.len(), FxBuildHasher),
            services: FxHashMap::with_capacity_and_hasher(cluster.services.len(), FxBuildHasher),
            nodes: FxHashMap::with_capacity_and_hasher(cluster.nodes.len(), FxBuildHasher),
        };
        for (index, pod) in cluster.pods.iter().enumerate() {
            // A template is found by its workload, not as a pod.
            if pod.template.is_none() {
                let key = (cluster.namespace_name(pod.namespace), pod.name);
                names.pods.insert(key, PodId(id(index)));
            }
        }
        for (index, workload) in cluster.workloads.iter().enumerate() {
            let namespace = cluster.namespace_name(workload.namespace);
            let key = (namespace, workload.kind, workload.name);
            names.workloads.insert(key, index);
        }
        for (index, service) in cluster.services.iter().enumerate() {
            let key = (cluster.namespace_name(service.namespace), service.name);
            names.services.insert(key, ServiceId(id(index)));
        }
        for (index, node) in cluster.nodes.iter().enumerate() {
            names.nodes.insert(node.name, NodeId(id(index)));
        }
        names
    }

    /// Returns the live pod of a name.
    pub fn pod(&self, namespace: &str, name: &str) -> Result<PodId, UnknownName> {
        let Some(id) = self.pods.get(&(namespace, name)).copied() else {
            return Err(self.no_pod(namespace, name));
        };
        let pod = self.cluster.pods.get(id.0 as usize);
        // The address may already belong to another pod (D81): an answer would concern that pod.
        if pod.is_some_and(|pod| pod.phase == PodPhase::Terminated) {
            return Err(UnknownName::Terminated(ticked(&format!(
                "{namespace}/{name}"
            ))));
        }
        Ok(id)
    }

    /// Returns the pods that stand for a workload.
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

    /// Returns the Service of a name.
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

    /// Returns the node of a name.
    pub fn node(&self, name: &str) -> Result<NodeId, UnknownName> {
        self.nodes.get(name).copied().ok_or_else(|| {
            let names = self.nodes.keys().map(|name| format!("node/{name}"));
            no_such("node", &format!("node/{name}"), names.collect())
        })
    }

    /// Returns the error for an unknown pod, with a suggestion.
    fn no_pod(&self, namespace: &str, name: &str) -> UnknownName {
        let full = format!("{namespace}/{name}");
        // The name of a workload or Service without its kind is more likely than a misspelled pod;
        // then the right name in another namespace; a similar name last.
        let mut suggestions: Vec<String> = Vec::new();
        let workloads = self.workloads.keys();
        for (its_namespace, kind, its_name) in workloads {
            if *its_namespace == namespace && *its_name == name {
                suggestions.push(format!("{namespace}/{kind}/{name}"));
            }
        }
        for (its_namespace, its_name) in self.services.keys() {
            if *its_namespace == namespace && *its_name == name {
                suggestions.push(format!("{namespace}/svc/{name}"));
            }
        }
        if suggestions.is_empty() {
            let pods = self.pods.keys().filter(|(_, its_name)| *its_name == name);
            suggestions.extend(pods.map(|(namespace, name)| format!("{namespace}/{name}")));
        }
        // Hash maps have no stable order: the smallest name makes the message reproducible.
        if let Some(first) = suggestions.iter().min() {
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
    // Also for a stable choice among names at the same distance.
    names.sort();
    let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
    let suggestion = match nearest(full, &borrowed) {
        Some(name) => format!("; did you mean `{name}`?"),
        None if names.is_empty() => format!("; the input has no {what}"),
        None => String::new(),
    };
    UnknownName::NoSuch {
        what,
        name: ticked(full),
        suggestion,
    }
}
