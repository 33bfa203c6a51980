//! Policies, by the keys of their objects.

use super::{Policy, Store};
use crate::live::ObjectKey;
use crate::live::encoded::{encode, head};
use crate::live::slab::{NONE, hash_of};
use crate::live::texts::Symbol;
use crate::model::{Cluster, Place, Policy as Given};

impl Store {
    /// The policy of an object as it is now; `None`: there is none.
    pub(in crate::live) fn set_policy(
        &mut self,
        key: ObjectKey<'_>,
        given: Option<(&Cluster<'_>, &Given<'_>)>,
    ) -> bool {
        let known = self.find_policy(key);
        let Some((cluster, given)) = given else {
            if let Some(id) = known {
                self.remove_policy(id);
            }
            return known.is_some();
        };
        let bytes = encode(cluster, given);
        if let Some(id) = known {
            if self.policies.get(id).is_some_and(|it| *it.bytes == *bytes) {
                return false;
            }
            self.detach(id);
            self.attach(id, bytes.into());
        } else {
            let key = self.policy_key(key);
            let id = self.policies.insert(Policy {
                key,
                ..Policy::default()
            });
            let policies = &self.policies;
            self.policy_index.insert(hash_of(&key), id, |id| {
                hash_of(&policies.get(id).map_or((NONE, NONE, NONE), |it| it.key))
            });
            self.attach(id, bytes.into());
        }
        true
    }

    /// The policy that the annotation of a namespace means (D69).
    pub(in crate::live) fn set_isolation(
        &mut self,
        key: ObjectKey<'_>,
        given: Option<(&Cluster<'_>, &Given<'_>)>,
    ) -> bool {
        let differs = self.set_policy(key, given);
        if differs && let Some(symbol) = self.texts.find(key.name) {
            let isolation = self.find_policy(key);
            let id = self.namespace_ids.get(&symbol).copied();
            if let Some(namespace) = id.and_then(|id| self.namespaces.get_mut(id)) {
                namespace.isolation = isolation;
            }
        }
        differs
    }

    fn policy_key(&mut self, key: ObjectKey<'_>) -> (Symbol, Symbol, Symbol) {
        let ObjectKey {
            kind,
            namespace,
            name,
        } = key;
        (
            self.texts.intern(kind),
            self.texts.intern(namespace),
            self.texts.intern(name),
        )
    }

    fn find_policy(&self, key: ObjectKey<'_>) -> Option<u32> {
        let symbols = (
            self.texts.find(key.kind)?,
            self.texts.find(key.namespace)?,
            self.texts.find(key.name)?,
        );
        self.policy_index.find(hash_of(&symbols), |id| {
            self.policies.get(id).is_some_and(|it| it.key == symbols)
        })
    }

    fn remove_policy(&mut self, id: u32) {
        self.detach(id);
        let Policy {
            key: (kind, namespace, name),
            ..
        } = self.policies.take(id);
        self.policy_index
            .remove(hash_of(&(kind, namespace, name)), id);
        for symbol in [kind, namespace, name] {
            self.texts.release(symbol);
        }
        self.changes.gone_policies.push(id);
    }

    /// Writes down a policy, and who has to know of it.
    fn attach(&mut self, id: u32, bytes: Box<[u8]>) {
        let Some(front) = head(&bytes) else { return };
        let is_ordered = front.place != Place::NetworkPolicy;
        let namespace = front.namespace.map(str::to_owned);
        let namespace = namespace.map(|it| self.use_namespace(&it));
        if is_ordered {
            self.ordered.insert(id);
            self.changes.ordered.push(bytes.clone());
        } else if let Some(namespace) = namespace {
            if let Some(of_namespace) = self.namespaces.get_mut(namespace) {
                of_namespace.policies.push(id);
            }
            self.changes.policed.push(namespace);
        }
        if let Some(policy) = self.policies.get_mut(id) {
            policy.bytes = bytes;
            policy.namespace = namespace;
        }
    }

    /// The opposite of `attach`.
    fn detach(&mut self, id: u32) {
        let Some(policy) = self.policies.get_mut(id) else {
            return;
        };
        let bytes = std::mem::take(&mut policy.bytes);
        let namespace = policy.namespace.take();
        if self.ordered.remove(&id) {
            self.changes.ordered.push(bytes);
        } else if let Some(namespace) = namespace {
            if let Some(of_namespace) = self.namespaces.get_mut(namespace) {
                of_namespace.policies.retain(|it| *it != id);
                of_namespace.policies.shrink_to(4);
            }
            self.changes.policed.push(namespace);
        }
        if let Some(namespace) = namespace {
            self.release_namespace(namespace);
        }
    }

    /// Kind, namespace and name of a policy's object.
    pub(in crate::live) fn policy_name(&self, id: u32) -> Option<(&str, &str, &str)> {
        let (kind, namespace, name) = self.policies.get(id)?.key;
        Some((
            self.texts.get(kind),
            self.texts.get(namespace),
            self.texts.get(name),
        ))
    }
}
