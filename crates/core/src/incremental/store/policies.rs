//! Policies, by the keys of their objects.

use std::collections::BTreeSet;

use super::{Policy, Store};
use crate::budget::{BudgetOrder, entries};
use crate::incremental::ObjectKey;
use crate::incremental::encoded::{encode, head, title};
use crate::incremental::slab::NONE;
use crate::model::{Cluster, Policy as ModelPolicy, PolicyRank};
use crate::policy::PolicyApi;

impl Store {
    /// Sets the policy of an object; `None` if the object has none. Returns whether the policy
    /// differs.
    pub(in crate::incremental) fn set_policy(
        &mut self,
        key: ObjectKey<'_>,
        lowered: Option<(&Cluster<'_>, &ModelPolicy<'_>)>,
    ) -> bool {
        let (digest, known) = self.find_policy(key);
        let Some((cluster, policy)) = lowered else {
            if let Some(id) = known {
                self.remove_policy(id);
            }
            return known.is_some();
        };
        let entries = entries(policy);
        // The rules of a policy larger than the whole budget can never be enforced. An agent must
        // not keep them: their author chooses their size (D148).
        let with_rules = entries <= self.budget.entries();
        let bytes = encode(cluster, policy, with_rules);
        if let Some(id) = known {
            // The entries as well: without the rules, bytes are equal while entries differ.
            let before = self.policies.get_mut(id);
            let before = before.map(|it| (std::mem::replace(&mut it.entries, entries), &it.bytes));
            if before.is_some_and(|(before, its)| before == entries && **its == *bytes) {
                return false;
            }
            // The number stays, so rules with the same position keep their numbers.
            self.detach(id);
            self.attach(id, bytes.into());
        } else {
            let id = self.policies.insert(Policy {
                digest,
                namespace: NONE,
                next: NONE,
                entries,
                ..Policy::default()
            });
            let policies = &self.policies;
            self.policy_index.insert((digest >> 64) as u64, id, |id| {
                policies.get(id).map_or(0, |it| (it.digest >> 64) as u64)
            });
            self.attach(id, bytes.into());
        }
        true
    }

    /// Sets the policy that the annotation of a namespace stands for (D69).
    // A change of it lists the namespace as policed, so the policies of 2016 there are planned too.
    pub(in crate::incremental) fn set_isolation(
        &mut self,
        key: ObjectKey<'_>,
        lowered: Option<(&Cluster<'_>, &ModelPolicy<'_>)>,
    ) -> bool {
        let differs = self.set_policy(key, lowered);
        if differs && let Some(symbol) = self.texts.find(key.name) {
            let (_, isolation) = self.find_policy(key);
            let id = self.namespace_ids.get(&symbol).copied();
            if let Some(namespace) = id.and_then(|id| self.namespaces.get_mut(id)) {
                namespace.is_isolated = isolation.is_some();
            }
        }
        differs
    }

    fn find_policy(&mut self, key: ObjectKey<'_>) -> (u128, Option<u32>) {
        let ObjectKey {
            kind,
            namespace,
            name,
        } = key;
        // No text has the byte 0xff: different keys have different bytes.
        self.scratch.clear();
        for text in [kind.short(), namespace, name] {
            self.scratch.extend_from_slice(text.as_bytes());
            self.scratch.push(0xff);
        }
        let digest = self.texts.hashes().long(&self.scratch);
        let found = self.policy_index.find((digest >> 64) as u64, |id| {
            self.policies.get(id).is_some_and(|it| it.digest == digest)
        });
        (digest, found)
    }

    fn remove_policy(&mut self, id: u32) {
        self.detach(id);
        let policy = self.policies.take(id);
        self.policy_index.remove((policy.digest >> 64) as u64, id);
        self.changes.gone_policies.push(id);
    }

    /// Stores a policy, adds it to the index of its tier, and notes the change for the commit.
    fn attach(&mut self, id: u32, bytes: Box<[u8]>) {
        let Some(head) = head(&bytes) else { return };
        let is_ordered = head.title.rank != PolicyRank::NetworkPolicy;
        let namespace = head.title.namespace.map(|it| self.use_namespace(it));
        if is_ordered {
            let required = head.subject.map(|subject| self.required_labels(&subject));
            self.ordered.insert(id, required);
            self.changes.ordered.push((id, bytes.clone()));
        } else if let Some(namespace) = namespace {
            if let Some(of_namespace) = self.namespaces.get_mut(namespace)
                && let Some(policy) = self.policies.get_mut(id)
            {
                policy.next = std::mem::replace(&mut of_namespace.first_policy, id);
            }
            self.changes.policed.push(namespace);
        }
        if let Some(policy) = self.policies.get_mut(id) {
            policy.bytes = bytes;
            policy.namespace = namespace.unwrap_or(NONE);
        }
    }

    /// Undoes `attach`. The old bytes go to the changes, which need them to find the old subjects.
    fn detach(&mut self, id: u32) {
        let Some(policy) = self.policies.get_mut(id) else {
            return;
        };
        let bytes = std::mem::take(&mut policy.bytes);
        let namespace = std::mem::replace(&mut policy.namespace, NONE);
        if let Some(required) = self.ordered.remove(&id) {
            if let Some(required) = required {
                self.release_required(&required);
            }
            self.changes.ordered.push((id, bytes));
        } else if namespace != NONE {
            self.unchain(id, namespace);
            self.changes.policed.push(namespace);
        }
        if namespace != NONE {
            self.release_namespace(namespace);
        }
    }

    /// Removes a policy from the linked list of its namespace.
    // By a walk from the start: links in both directions would cost four more bytes per policy.
    fn unchain(&mut self, id: u32, namespace: u32) {
        let after = self.policies.get(id).map_or(NONE, |it| it.next);
        let Some(of_namespace) = self.namespaces.get_mut(namespace) else {
            return;
        };
        if of_namespace.first_policy == id {
            of_namespace.first_policy = after;
            return;
        }
        let mut at = of_namespace.first_policy;
        while let Some(policy) = self.policies.get_mut(at) {
            if policy.next == id {
                policy.next = after;
                return;
            }
            at = policy.next;
        }
    }

    /// Returns the NetworkPolicies of a namespace that do not fit into its budget (D148).
    pub(super) fn over_budget(&self, namespace: u32) -> BTreeSet<u32> {
        let mut policies = self.policies_of(namespace);
        let entries = |id: &u32| self.policies.get(*id).map_or(0, |it| it.entries);
        policies.retain(|id| entries(id) > 0);
        // The usual case, without a sort and without decoding a title.
        let sum = policies.iter().map(entries).fold(0, u64::saturating_add);
        if sum <= self.budget.entries() {
            return BTreeSet::new();
        }
        // Policies of 2016 that are not enforced take no room.
        policies.retain(|id| self.counts(*id));
        policies.sort_by_cached_key(|id| {
            let title = self.policies.get(*id).and_then(|it| title(&it.bytes))?;
            Some(BudgetOrder::new(title.created, title.name, title.api))
        });
        let is_over: Vec<bool> = self.budget.is_over(policies.iter().map(entries)).collect();
        let over = policies.into_iter().zip(is_over);
        over.filter_map(|(id, is_over)| is_over.then_some(id))
            .collect()
    }

    /// Returns the API, namespace and name of a policy.
    pub(in crate::incremental) fn policy_name(&self, id: u32) -> Option<(PolicyApi, &str, &str)> {
        let policy = self.policies.get(id)?;
        let title = title(&policy.bytes)?;
        Some((title.api, title.namespace.unwrap_or_default(), title.name))
    }
}
