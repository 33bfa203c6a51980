//! The receiver of the objects of a source: the agent, or any other program that follows objects.
//!
//! A source turns its events into changes of single objects ([`ObjectChange`]). It keeps no
//! objects. What it must know of them, to find out which ones are gone, it asks the receiver.

use palisade_core::incremental::{IncrementalPlanner, ObjectKey, ObjectKind};
use palisade_core::model::Cluster;

/// A change of one object.
#[derive(Clone, Copy, Debug)]
pub enum ObjectChange<'c> {
    /// An object is new, or may be different.
    Set {
        /// Its key.
        key: ObjectKey<'c>,
        /// The cluster that it alone describes.
        lowered: &'c Cluster<'c>,
    },
    /// An object is gone.
    Remove {
        /// Its key.
        key: ObjectKey<'c>,
    },
}

/// Receives the changes of objects, and knows which objects there are.
// A trait and no list of changes: what an object describes borrows from its text, which lives as
// long as one change. And the caller queries between two changes whether a namespace has pods left.
pub trait ObjectStore {
    /// Applies a change. Returns whether policies can see a difference.
    fn apply(&mut self, change: ObjectChange<'_>) -> bool;

    /// Passes on the keys of all objects of a kind, without pods that have no address or have
    /// terminated.
    fn each(&self, kind: ObjectKind, take: &mut dyn FnMut(ObjectKey<'_>));

    /// Returns whether a namespace has pods with an address.
    fn has_pods(&self, namespace: &str) -> bool;
}

impl ObjectStore for IncrementalPlanner {
    fn apply(&mut self, change: ObjectChange<'_>) -> bool {
        match change {
            ObjectChange::Set { key, lowered } => self.set(key, lowered),
            ObjectChange::Remove { key } => self.remove(key),
        }
    }

    fn each(&self, kind: ObjectKind, take: &mut dyn FnMut(ObjectKey<'_>)) {
        IncrementalPlanner::each(self, kind, take);
    }

    fn has_pods(&self, namespace: &str) -> bool {
        IncrementalPlanner::has_pods(self, namespace)
    }
}
