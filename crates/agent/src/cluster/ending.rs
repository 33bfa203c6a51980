//! Namespaces that are being deleted, and NetworkPolicies that outlive their deletion (D145).
//!
//! An API server deletes the objects of a namespace in any order: its NetworkPolicies may be gone
//! minutes before its pods (CVE-2024-7598). They stay in force until the namespace has no pod left
//! that they could select. A namespace is marked as terminating at least five seconds before its
//! first object is deleted: the namespace controller waits that long.
//!
//! Pods without an address are not in the store, which has only what packets can meet.
//! Those that may get one are stored here, of all namespaces: any namespace may be deleted next.
//! There are few at a time.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use palisade_core::model::{Cluster, PodPhase};

use crate::objects::ObjectStore;

/// The namespaces that are being deleted, and their deleted NetworkPolicies that stay in force.
#[derive(Debug, Default)]
pub(super) struct TerminatingNamespaces {
    namespaces: BTreeMap<String, Namespace>,
    /// The hashes of the names of pods that may get an address, by namespace.
    waiting: BTreeMap<String, HashSet<u128>>,
}

#[derive(Debug, Default)]
struct Namespace {
    /// The names of its deleted NetworkPolicies that stay in force.
    policies: BTreeSet<String>,
    /// Whether the namespace itself is gone: its entry ends with its last pod.
    is_gone: bool,
}

/// Returns whether a pod has no address and may get one that policies select.
pub(super) fn is_waiting(meaning: &Cluster<'_>) -> bool {
    let mut pods = meaning.pods.iter();
    pods.any(|it| it.addresses.is_empty() && !it.host_network && it.phase != PodPhase::Terminated)
}

impl TerminatingNamespaces {
    /// Records whether a namespace is being deleted. Returns the NetworkPolicies that need not be
    /// enforced any longer: a deletion is final, so a namespace that is not being deleted is a new
    /// one of that name, and all pods of the old one are gone.
    pub(super) fn note(&mut self, namespace: &str, is_ending: bool) -> BTreeSet<String> {
        if !is_ending {
            let former = self.namespaces.remove(namespace);
            return former.map(|it| it.policies).unwrap_or_default();
        }
        let found = self.namespaces.entry(namespace.to_owned());
        found.or_default().is_gone = false;
        BTreeSet::new()
    }

    /// Records that a namespace is gone. Events of its pods may still follow.
    pub(super) fn gone(&mut self, namespace: &str) {
        if let Some(entry) = self.namespaces.get_mut(namespace) {
            entry.is_gone = true;
            if entry.policies.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
    }

    /// Records whether an existing pod has no address and may get one.
    pub(super) fn note_pod(&mut self, namespace: &str, pod: u128, is_waiting: bool) {
        if is_waiting {
            let of_namespace = self.waiting.entry(namespace.to_owned());
            of_namespace.or_default().insert(pod);
        } else if let Some(of_namespace) = self.waiting.get_mut(namespace) {
            of_namespace.remove(&pod);
            if of_namespace.is_empty() {
                self.waiting.remove(namespace);
            }
        }
    }

    /// Removes the pods that a complete list does not mention.
    pub(super) fn retain_pods(&mut self, mentioned: &HashSet<u128>) {
        self.waiting.retain(|_, pods| {
            pods.retain(|it| mentioned.contains(it));
            !pods.is_empty()
        });
    }

    /// Keeps a deleted NetworkPolicy in force if its namespace is being deleted, until
    /// [`over`](TerminatingNamespaces::over) returns it. Returns whether it does. Whether the
    /// namespace has pods does not matter here: some may be unknown yet.
    pub(super) fn keep(&mut self, namespace: &str, name: &str) -> bool {
        let Some(found) = self.namespaces.get_mut(namespace) else {
            return false;
        };
        found.policies.insert(name.to_owned());
        true
    }

    /// Records that a NetworkPolicy exists again.
    pub(super) fn is_back(&mut self, namespace: &str, name: &str) {
        if let Some(found) = self.namespaces.get_mut(namespace) {
            found.policies.remove(name);
        }
    }

    /// Returns the NetworkPolicies of a namespace that need not be enforced any longer, provided
    /// that all pods are known. The namespace itself is being deleted until it is gone.
    pub(super) fn over(&mut self, namespace: &str, store: &dyn ObjectStore) -> BTreeSet<String> {
        let Some(found) = self.namespaces.get_mut(namespace) else {
            return BTreeSet::new();
        };
        // Pods without an address are only in `waiting`, the others only in the store.
        if self.waiting.contains_key(namespace) || store.has_pods(namespace) {
            return BTreeSet::new();
        }
        let kept = std::mem::take(&mut found.policies);
        if found.is_gone {
            self.namespaces.remove(namespace);
        }
        kept
    }

    /// Returns the namespaces that are being deleted, and those that are gone and have pods.
    pub(super) fn namespaces(&self) -> Vec<String> {
        self.namespaces.keys().cloned().collect()
    }

    /// Returns the number of deleted NetworkPolicies that are still enforced.
    pub(super) fn kept(&self) -> usize {
        self.namespaces.values().map(|it| it.policies.len()).sum()
    }
}
