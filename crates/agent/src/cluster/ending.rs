//! Namespaces that are being deleted.
//!
//! An API server deletes the objects of a namespace in any order, so that its NetworkPolicies may be gone minutes before
//! its pods are (CVE-2024-7598). They stay in force until no pod of the namespace is left that they could select (D145). A
//! namespace says that it is being deleted at least five seconds before its first object is: the namespace controller
//! waits that long.
//!
//! Pods without an address are not in the planner's store, which counts what packets can meet. Those that may get one are
//! remembered here, for all namespaces, since any of them may be deleted next; there are few at a time.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use palisade_core::incremental::IncrementalPlanner;
use palisade_core::model::{Cluster, PodLifecycle};

/// The namespaces that are being deleted, and their NetworkPolicies that are gone and still enforced.
#[derive(Debug, Default)]
pub(super) struct TerminatingNamespaces {
    namespaces: BTreeMap<String, Namespace>,
    /// The hashes of the names of pods that may get an address, by namespace.
    waiting: BTreeMap<String, HashSet<u128>>,
}

#[derive(Debug, Default)]
struct Namespace {
    /// The names of its NetworkPolicies that are gone and still enforced.
    policies: BTreeSet<String>,
    /// Whether it is gone, so that nothing is left to be done when its pods are.
    is_gone: bool,
}

/// Whether a pod has no address and may get one that policies select.
pub(super) fn is_waiting(meaning: &Cluster<'_>) -> bool {
    let mut pods = meaning.pods.iter();
    pods.any(|it| it.addresses.is_empty() && !it.host_network && it.life != PodLifecycle::Ended)
}

impl TerminatingNamespaces {
    /// Notes what a namespace says of itself. Returns the NetworkPolicies that need not be enforced any more: a deletion is
    /// never taken back, so that one that is not being deleted is another namespace of that name, and all pods of the
    /// former are gone.
    pub(super) fn note(&mut self, namespace: &str, is_ending: bool) -> BTreeSet<String> {
        if !is_ending {
            let former = self.namespaces.remove(namespace);
            return former.map(|it| it.policies).unwrap_or_default();
        }
        let found = self.namespaces.entry(namespace.to_owned());
        found.or_default().is_gone = false;
        BTreeSet::new()
    }

    /// Notes that a namespace is gone. Its pods may be heard of later.
    pub(super) fn gone(&mut self, namespace: &str) {
        if let Some(found) = self.namespaces.get_mut(namespace) {
            found.is_gone = true;
            if found.policies.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
    }

    /// Notes whether a pod that is there has no address and may get one.
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

    /// Drops all pods that a list does not mention.
    pub(super) fn retain_pods(&mut self, mentioned: &HashSet<u128>) {
        self.waiting.retain(|_, pods| {
            pods.retain(|it| mentioned.contains(it));
            !pods.is_empty()
        });
    }

    /// Whether a NetworkPolicy that is gone still has to be enforced; then it is, until [`over`](Ending::over) says
    /// otherwise. Whether there are pods is not asked: one may not have been told of yet.
    pub(super) fn keep(&mut self, namespace: &str, name: &str) -> bool {
        let Some(found) = self.namespaces.get_mut(namespace) else {
            return false;
        };
        found.policies.insert(name.to_owned());
        true
    }

    /// Notes that a NetworkPolicy is there after all.
    pub(super) fn is_back(&mut self, namespace: &str, name: &str) {
        if let Some(found) = self.namespaces.get_mut(namespace) {
            found.policies.remove(name);
        }
    }

    /// The NetworkPolicies of a namespace that need not be enforced any more if all pods are known and none of its pods is
    /// left. It is being deleted until it is gone.
    pub(super) fn over(&mut self, namespace: &str, live: &IncrementalPlanner) -> BTreeSet<String> {
        let Some(found) = self.namespaces.get_mut(namespace) else {
            return BTreeSet::new();
        };
        if self.waiting.contains_key(namespace) || live.has_pods(namespace) {
            return BTreeSet::new();
        }
        let kept = std::mem::take(&mut found.policies);
        if found.is_gone {
            self.namespaces.remove(namespace);
        }
        kept
    }

    /// The namespaces that are being deleted, and those that are gone and have pods.
    pub(super) fn namespaces(&self) -> Vec<String> {
        self.namespaces.keys().cloned().collect()
    }

    /// How many NetworkPolicies are enforced that are gone.
    pub(super) fn kept(&self) -> usize {
        self.namespaces.values().map(|it| it.policies.len()).sum()
    }
}
