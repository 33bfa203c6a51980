//! Namespaces that are being deleted.
//!
//! An API server deletes the objects of a namespace in any order, so that its NetworkPolicies may be gone minutes before
//! its pods are (CVE-2024-7598). They stay in force until no pod of the namespace is left (D145). A namespace says that it
//! is being deleted at least five seconds before its first object is: the namespace controller waits that long.

use std::collections::{BTreeMap, BTreeSet};

use palisade_core::live::Live;

/// The namespaces that are being deleted, and their NetworkPolicies that are gone and still enforced.
#[derive(Debug, Default)]
pub(super) struct Ending {
    namespaces: BTreeMap<String, Namespace>,
}

#[derive(Debug, Default)]
struct Namespace {
    /// The names of its NetworkPolicies that are gone and still enforced.
    kept: BTreeSet<String>,
    /// Whether it is gone, so that nothing is left to be done when its pods are.
    is_gone: bool,
}

impl Ending {
    /// What a namespace says of itself.
    pub(super) fn note(&mut self, namespace: &str, is_ending: bool) {
        match is_ending {
            true => {
                let found = self.namespaces.entry(namespace.to_owned());
                found.or_default().is_gone = false;
            }
            // Nobody takes a deletion back: this is another namespace of that name.
            false => self.gone(namespace),
        }
    }

    /// That a namespace is gone. Its pods may be heard of later.
    pub(super) fn gone(&mut self, namespace: &str) {
        if let Some(found) = self.namespaces.get_mut(namespace) {
            found.is_gone = true;
            if found.kept.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
    }

    /// Whether a NetworkPolicy that is gone still has to be enforced; then it is, until [`over`](Ending::over) says otherwise.
    pub(super) fn keep(&mut self, namespace: &str, name: &str, live: &Live) -> bool {
        let Some(found) = self.namespaces.get_mut(namespace) else {
            return false;
        };
        let keeps = live.has_pods(namespace);
        if keeps {
            found.kept.insert(name.to_owned());
        }
        keeps
    }

    /// That a NetworkPolicy is there after all.
    pub(super) fn is_back(&mut self, namespace: &str, name: &str) {
        if let Some(found) = self.namespaces.get_mut(namespace) {
            found.kept.remove(name);
        }
    }

    /// Something of a namespace is gone: the NetworkPolicies that need not be enforced any more if that was its last pod.
    /// It is being deleted until it is gone: a pod that has no address yet is not seen here.
    pub(super) fn over(&mut self, namespace: &str, live: &Live) -> BTreeSet<String> {
        let Some(found) = self.namespaces.get_mut(namespace) else {
            return BTreeSet::new();
        };
        if live.has_pods(namespace) {
            return BTreeSet::new();
        }
        let kept = std::mem::take(&mut found.kept);
        if found.is_gone {
            self.namespaces.remove(namespace);
        }
        kept
    }

    /// How many NetworkPolicies are enforced that are gone.
    pub(super) fn kept(&self) -> usize {
        self.namespaces.values().map(|it| it.kept.len()).sum()
    }
}
