//! Who is known, for whoever is told all objects once more and has to find out who is gone.

use super::{IncrementalPlanner, ObjectKey};

impl IncrementalPlanner {
    /// Whether a pod of a namespace is known that its policies can select: one that has an address, has not ended and is
    /// not of the host network (D48, D81).
    pub fn has_pods(&self, namespace: &str) -> bool {
        let store = &self.store;
        let name = store.texts.find(namespace);
        let id = name.and_then(|it| store.namespace_ids.get(&it));
        let mut classes = id.into_iter().flat_map(|id| store.classes_of(*id));
        classes.any(|(_, class)| class.n_pods > 0)
    }

    /// Hands on the names of all objects of a kind that are known, by the word that stands for the kind alone. Pods that
    /// nobody could reach, because they have no address or have ended, are not known.
    pub fn each(&self, kind: &'static str, take: &mut dyn FnMut(ObjectKey<'_>)) {
        let store = &self.store;
        let mut take = |namespace: &str, name: &str| {
            take(ObjectKey {
                kind,
                namespace,
                name,
            });
        };
        match kind {
            "pod" => {
                for (id, _) in store.pods.iter().filter(|(_, pod)| pod.is_there()) {
                    let (namespace, name) = store.pod_name(id);
                    take(namespace, name);
                }
            }
            "ns" => {
                for (_, namespace) in store.namespaces.iter() {
                    if namespace.known {
                        take("", store.texts.get(namespace.name));
                    }
                }
            }
            "node" => {
                for id in store.node_ids.values() {
                    take("", store.node_name(*id));
                }
            }
            _ => {
                for (id, _) in store.policies.iter() {
                    if let Some((its_kind, namespace, name)) = store.policy_name(id)
                        && its_kind == kind
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
    use crate::incremental::{HashKey, IncrementalPlanner, ObjectKey};
    use crate::model::{Cluster, Namespace, Node};

    fn key<'k>(kind: &'static str, name: &'k str) -> ObjectKey<'k> {
        ObjectKey {
            kind,
            namespace: "",
            name,
        }
    }

    #[test]
    fn whoever_was_told_and_is_not_gone_is_known() {
        let mut live = IncrementalPlanner::new("n1", HashKey::new(1, 2));
        for name in ["a", "b", "c"] {
            let mut cluster = Cluster::default();
            cluster.namespaces.push(Namespace {
                name,
                labels: Vec::new().into(),
                has_object: true,
            });
            live.set(key("ns", name), &cluster);
        }
        let mut cluster = Cluster::default();
        cluster.nodes.push(Node {
            name: "n1",
            labels: Vec::new().into(),
            addresses: Vec::new(),
            pod_cidrs: Vec::new(),
            has_object: true,
        });
        live.set(key("node", "n1"), &cluster);
        live.remove(key("ns", "b"));
        let names = |kind| {
            let mut names = Vec::new();
            live.each(kind, &mut |key| names.push(key.name.to_owned()));
            names.sort();
            names
        };
        assert_eq!(names("ns"), ["a", "c"]);
        assert_eq!(names("node"), ["n1"]);
        assert!(names("pod").is_empty() && names("netpol").is_empty());
    }
}
