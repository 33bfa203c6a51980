//! The expected objects, computed by the sender of the responses.

use std::collections::{BTreeMap, BTreeSet};

/// The readable objects of a kind.
#[derive(Debug, Default)]
pub(super) struct ExpectedObjects {
    /// The last readable version of each.
    versions: BTreeMap<usize, usize>,
    /// The objects whose last version is unreadable.
    unreadable: BTreeSet<usize>,
    /// The objects in the current list, if a list is in progress.
    listed: Option<BTreeSet<usize>>,
    /// Whether an object without a readable name was sent since the last list began.
    has_unnamed: bool,
}

impl ExpectedObjects {
    pub(super) fn objects(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.versions.iter().map(|(key, version)| (*key, *version))
    }

    pub(super) fn has_unreadable(&self) -> bool {
        !self.unreadable.is_empty()
    }

    pub(super) fn begin_list(&mut self) {
        self.listed = Some(BTreeSet::new());
        self.has_unnamed = false;
    }

    pub(super) fn set(&mut self, key: usize, version: usize) {
        self.mark_listed(key);
        self.unreadable.remove(&key);
        self.versions.insert(key, version);
    }

    /// Records an object with a readable name only.
    pub(super) fn set_unreadable(&mut self, key: usize) {
        self.mark_listed(key);
        self.unreadable.insert(key);
    }

    pub(super) fn set_unnamed(&mut self) {
        self.has_unnamed = true;
    }

    pub(super) fn remove(&mut self, key: usize) {
        self.versions.remove(&key);
        self.unreadable.remove(&key);
    }

    /// Records the regular end of a list.
    pub(super) fn end_list(&mut self) {
        let listed = self.listed.take().unwrap_or_default();
        if !self.has_unnamed {
            self.versions.retain(|key, _| listed.contains(key));
            self.unreadable.retain(|key| listed.contains(key));
        }
    }

    fn mark_listed(&mut self, key: usize) {
        if let Some(listed) = &mut self.listed {
            listed.insert(key);
        }
    }
}
