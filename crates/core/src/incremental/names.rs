//! The names of known objects: after a new list, the ones that are not in it are gone.

use super::{IncrementalPlanner, ObjectKey, ObjectKind};

impl IncrementalPlanner {
    /// Returns whether policies of a namespace can select a known pod there: one that has an
    /// address, has not terminated and is outside the host network (D48, D81).
    pub fn has_pods(&self, namespace: &str) -> bool {
        let store = &self.store;
        let name = store.texts.find(namespace);
        let id = name.and_then(|it| store.namespace_ids.get(&it));
        // Classes stay for a while without pods.
        let mut classes = id.into_iter().flat_map(|id| store.classes_of(*id));
        classes.any(|(_, class)| class.n_pods > 0)
    }

    /// Passes on the keys of all known objects of a kind, without pods that have no address or have
    /// terminated.
    pub fn each(&self, kind: ObjectKind, take: &mut dyn FnMut(ObjectKey<'_>)) {
        let store = &self.store;
        let mut take = |namespace: &str, name: &str| {
            take(ObjectKey {
                kind,
                namespace,
                name,
            });
        };
        match kind {
            ObjectKind::Pod => {
                for (id, _) in store.pods.iter().filter(|(_, pod)| pod.is_there()) {
                    let (namespace, name) = store.pod_name(id);
                    take(namespace, name);
                }
            }
            ObjectKind::Namespace => {
                for (_, namespace) in store.namespaces.iter() {
                    // The others exist only as references of pods and policies.
                    if namespace.has_object {
                        take("", store.texts.get(namespace.name));
                    }
                }
            }
            ObjectKind::Node => {
                for id in store.node_ids.values() {
                    take("", store.node_name(*id));
                }
            }
            ObjectKind::Policy(api) => {
                // The API is not stored; it follows from the policy's bytes.
                for (id, _) in store.policies.iter() {
                    if let Some((its_api, namespace, name)) = store.policy_name(id)
                        && its_api == api
                    {
                        take(namespace, name);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::incremental::{HashKey, IncrementalPlanner, ObjectKey, ObjectKind};
    use crate::model::{Cluster, Namespace, Node};
    use crate::policy::PolicyApi;

    fn key(kind: ObjectKind, name: &str) -> ObjectKey<'_> {
        ObjectKey {
            kind,
            namespace: "",
            name,
        }
    }

    #[test]
    fn objects_are_known_until_they_are_removed() {
        let mut planner = IncrementalPlanner::new("n1", HashKey::new(1, 2));
        for name in ["a", "b", "c"] {
            let mut cluster = Cluster::default();
            cluster.namespaces.push(Namespace {
                name,
                labels: Vec::new().into(),
                has_object: true,
            });
            planner.set(key(ObjectKind::Namespace, name), &cluster);
        }
        let mut cluster = Cluster::default();
        cluster.nodes.push(Node {
            name: "n1",
            labels: Vec::new().into(),
            addresses: Vec::new(),
            pod_cidrs: Vec::new(),
            has_object: true,
        });
        planner.set(key(ObjectKind::Node, "n1"), &cluster);
        planner.remove(key(ObjectKind::Namespace, "b"));
        let names = |kind| {
            let mut names = Vec::new();
            planner.each(kind, &mut |key| names.push(key.name.to_owned()));
            names.sort();
            names
        };
        assert_eq!(names(ObjectKind::Namespace), ["a", "c"]);
        assert_eq!(names(ObjectKind::Node), ["n1"]);
        assert!(names(ObjectKind::Pod).is_empty());
        assert!(names(ObjectKind::Policy(PolicyApi::NetworkPolicy)).is_empty());
    }
}
