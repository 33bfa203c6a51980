//! Results of earlier folds, in bounded memory.

use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;

/// Shared values by key. When a value does not fit, all values are dropped.
#[derive(Debug)]
pub(super) struct Memo<K, V> {
    values: FxHashMap<K, Arc<V>>,
    room: usize,
    taken: usize,
}

impl<K: Eq + Hash, V> Memo<K, V> {
    pub(super) fn new(room: usize) -> Memo<K, V> {
        Memo {
            values: FxHashMap::default(),
            room,
            taken: 0,
        }
    }

    pub(super) fn get(&self, key: &K) -> Option<Arc<V>> {
        self.values.get(key).cloned()
    }

    /// Inserts a value of a size in bytes.
    pub(super) fn keep(&mut self, key: K, value: V, size: usize) -> Arc<V> {
        // Dropping all needs no order of use. Destinations come sorted by their rules, so a value
        // that is dropped is rarely needed again.
        if self.taken + size > self.room {
            self.values.clear();
            self.taken = 0;
        }
        self.taken += size;
        let value = Arc::new(value);
        self.values.insert(key, Arc::clone(&value));
        value
    }
}
