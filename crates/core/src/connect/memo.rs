//! What was worked out before, as long as there is room for it.

use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;

/// Values by key. When they take more room than they may, all are forgotten: destinations come in
/// an order in which equal parts are near each other, so that little is worked out twice.
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

    /// Keeps a value of a size.
    pub(super) fn keep(&mut self, key: K, value: V, size: usize) -> Arc<V> {
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
