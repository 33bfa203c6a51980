//! Parts of the cluster as a model, for the compiler.

use std::collections::HashMap;
use std::num::NonZeroU16;
use std::sync::Arc;

use super::Store;
use crate::compile::count;
use crate::incremental::encoded::{decode, isolation, title};
use crate::model::{Cluster, ContainerPort, Labels, Namespace, NamespaceId, Origin, Pod, PodPhase};
use crate::policy::PolicyApi;

/// A small cluster for one run of the compiler: a few classes, and policies that could select them.
pub(in crate::incremental) struct Excerpt<'s> {
    store: &'s Store,
    pub(in crate::incremental) cluster: Cluster<'s>,
    namespaces: HashMap<&'s str, NamespaceId>,
    /// The number in the store of each policy of the cluster.
    pub(in crate::incremental) policies: Vec<u32>,
}

impl<'s> Excerpt<'s> {
    pub(in crate::incremental) fn new(store: &'s Store) -> Excerpt<'s> {
        Excerpt {
            store,
            cluster: Cluster::default(),
            namespaces: HashMap::new(),
            policies: Vec::new(),
        }
    }

    /// Adds a pod that stands for a class. Pods are numbered in the order of these calls.
    // A class is a subject only. It needs no address: the members of groups come from the store.
    pub(in crate::incremental) fn add_class(&mut self, id: u32) {
        let store = self.store;
        let Some(class) = store.classes.get(id) else {
            return;
        };
        let namespace = store.namespaces.get(class.namespace);
        let name = namespace.map_or("", |it| store.texts.get(it.name));
        let namespace = self.namespace(name);
        self.cluster.pods.push(Pod {
            namespace,
            name: "",
            template: None,
            labels: store.labels_of(class.labels),
            ports: store.ports_of(class.ports),
            addresses: Vec::new(),
            node: None,
            host_network: false,
            phase: PodPhase::Running,
            ready: true,
            created: None,
            origin: Origin(u32::MAX),
        });
    }

    /// Adds a policy, without its rules if it does not fit into the budget of its namespace (D148).
    pub(in crate::incremental) fn add_policy(&mut self, id: u32) {
        let Some(policy) = self.store.policies.get(id) else {
            return;
        };
        let over = self.store.over_budget.get(&policy.namespace);
        let policy = if over.is_some_and(|it| it.contains(&id)) {
            isolation(&policy.bytes, &mut |name| self.namespace(name))
        } else {
            decode(&policy.bytes, &mut |name| self.namespace(name))
        };
        if let Some(policy) = policy {
            self.cluster.policies.push(policy);
            self.policies.push(id);
        }
    }

    /// Returns the number of a namespace, which is new if nothing has named it yet.
    fn namespace(&mut self, name: &'s str) -> NamespaceId {
        // In the order of first use, and not sorted as in a whole cluster. The order matters only
        // for pods that claim the same address, and pods of an excerpt have none.
        if let Some(known) = self.namespaces.get(name) {
            return *known;
        }
        let id = NamespaceId(count(self.cluster.namespaces.len()));
        let store = self.store;
        // A policy can name a namespace that the store does not have.
        let found = store.texts.find(name);
        let found = found.and_then(|symbol| store.namespace_ids.get(&symbol));
        let found = found.and_then(|id| store.namespaces.get(*id));
        self.cluster.namespaces.push(Namespace {
            name,
            labels: found
                .map(|it| store.labels_of(it.labels))
                .unwrap_or_default(),
            has_object: found.is_some_and(|it| it.has_object),
        });
        self.namespaces.insert(name, id);
        id
    }
}

impl Store {
    fn labels_of(&self, id: u32) -> Labels<'_> {
        let pairs = self.labels.get(id).iter();
        pairs
            .map(|(key, value)| (self.texts.get(*key), self.texts.get(*value)))
            .collect()
    }

    fn ports_of(&self, id: u32) -> Arc<[ContainerPort<'_>]> {
        let ports = self.ports.get(id).iter();
        let ports = ports.filter_map(|(name, protocol, port)| {
            Some(ContainerPort {
                name: Some(self.texts.get(*name)),
                port: NonZeroU16::new(*port)?,
                protocol: *protocol,
            })
        });
        ports.collect()
    }

    /// Returns whether a policy is enforced. Those of 2016 need an isolated namespace (D69).
    pub(in crate::incremental) fn counts(&self, policy: u32) -> bool {
        let Some(policy) = self.policies.get(policy) else {
            return false;
        };
        let api = title(&policy.bytes).map(|it| it.api);
        let is_2016 = api.is_some_and(PolicyApi::is_of_2016);
        let namespace = self.namespaces.get(policy.namespace);
        !is_2016 || namespace.is_some_and(|it| it.is_isolated)
    }
}
