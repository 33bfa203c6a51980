//! Namespaces that are being deleted.
//!
//! An API server deletes the objects of a namespace in any order, so that its NetworkPolicies may be gone minutes before
//! its pods are (CVE-2024-7598). They stay in force until no pod of the namespace is left (D145). A namespace says that it
//! is being deleted at least five seconds before its first object is: the namespace controller waits that long.

use std::collections::{BTreeMap, BTreeSet};

use palisade_core::live::Live;

/// The namespaces that are being deleted, and the names of their NetworkPolicies that are gone and still enforced.
#[derive(Debug, Default)]
pub(super) struct Ending {
    namespaces: BTreeMap<String, BTreeSet<String>>,
}

impl Ending {
    /// What a namespace says of itself.
    pub(super) fn note(&mut self, namespace: &str, is_ending: bool) {
        if is_ending && !self.namespaces.contains_key(namespace) {
            let none = BTreeSet::new();
            self.namespaces.insert(namespace.to_owned(), none);
        }
    }

    /// Whether a NetworkPolicy that is gone still has to be enforced; then it is, until [`over`](Ending::over) says otherwise.
    pub(super) fn keep(&mut self, namespace: &str, name: &str, live: &Live) -> bool {
        let Some(kept) = self.namespaces.get_mut(namespace) else {
            return false;
        };
        let keeps = live.has_pods(namespace);
        if keeps {
            kept.insert(name.to_owned());
        }
        keeps
    }

    /// That a NetworkPolicy is there after all.
    pub(super) fn is_back(&mut self, namespace: &str, name: &str) {
        if let Some(kept) = self.namespaces.get_mut(namespace) {
            kept.remove(name);
        }
    }

    /// Something of a namespace is gone: the NetworkPolicies that need not be enforced any more if that was its last pod.
    pub(super) fn over(&mut self, namespace: &str, live: &Live) -> BTreeSet<String> {
        if !self.namespaces.contains_key(namespace) || live.has_pods(namespace) {
            return BTreeSet::new();
        }
        self.namespaces.remove(namespace).unwrap_or_default()
    }

    /// How many NetworkPolicies are enforced that are gone.
    pub(super) fn kept(&self) -> usize {
        self.namespaces.values().map(BTreeSet::len).sum()
    }
}
