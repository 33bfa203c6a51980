//! What has to be in force, as who answers knows it.

use std::collections::{BTreeMap, BTreeSet};

/// The objects of a kind that were said in a way that can be read.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The last such version of each.
    versions: BTreeMap<usize, usize>,
    /// Those whose last version cannot be read.
    unread: BTreeSet<usize>,
    /// Those that the list under way has mentioned; `None`: there is none.
    mentioned: Option<BTreeSet<usize>>,
    /// Whether something was said since the last list began that does not say of whom.
    has_unnamed: bool,
}

impl Known {
    pub(super) fn objects(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.versions.iter().map(|(key, version)| (*key, *version))
    }

    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    pub(super) fn list_begins(&mut self) {
        self.mentioned = Some(BTreeSet::new());
        self.has_unnamed = false;
    }

    pub(super) fn said(&mut self, key: usize, version: usize) {
        self.mention(key);
        self.unread.remove(&key);
        self.versions.insert(key, version);
    }

    /// An object that says who it is, and nothing else that can be read.
    pub(super) fn said_unreadably(&mut self, key: usize) {
        self.mention(key);
        self.unread.insert(key);
    }

    pub(super) fn said_of_nobody(&mut self) {
        self.has_unnamed = true;
    }

    pub(super) fn gone(&mut self, key: usize) {
        self.versions.remove(&key);
        self.unread.remove(&key);
    }

    /// The list has ended in order.
    pub(super) fn list_ends(&mut self) {
        let mentioned = self.mentioned.take().unwrap_or_default();
        if !self.has_unnamed {
            self.versions.retain(|key, _| mentioned.contains(key));
            self.unread.retain(|key| mentioned.contains(key));
        }
    }

    fn mention(&mut self, key: usize) {
        if let Some(mentioned) = &mut self.mentioned {
            mentioned.insert(key);
        }
    }
}
