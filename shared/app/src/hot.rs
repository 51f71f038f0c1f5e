//! Values that are read most, in memory for a moment: a hot value is one hot key in Redis.

use std::{
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use moka::sync::Cache;

/// The maximum number of values in memory, and of keys whose requests are counted.
const KEPT: u64 = 10_000;

/// The time that a value stays in memory, and over which requests are counted.
const LIFETIME: Duration = Duration::from_secs(1);

/// A key is hot after this many requests within `LIFETIME`. Other values are read from Redis at every request.
const HOT: u32 = 20;

/// The values of hot keys. Their number is bounded. Clones share them.
#[derive(Clone)]
pub struct Hot<K, V> {
    values: Cache<K, V>,
    requests: Cache<K, Arc<AtomicU32>>,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static, V: Clone + Send + Sync + 'static> Default for Hot<K, V> {
    fn default() -> Self {
        Self {
            values: Cache::builder().max_capacity(KEPT).time_to_live(LIFETIME).build(),
            requests: Cache::builder().max_capacity(KEPT).time_to_live(LIFETIME).build(),
        }
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static, V: Clone + Send + Sync + 'static> Hot<K, V> {
    /// Counts one request. Returns whether the key is hot.
    pub(crate) fn is_hot(&self, key: &K) -> bool {
        let requests = self.requests.get_with_by_ref(key, Arc::default);
        requests.fetch_add(1, Ordering::Relaxed) >= HOT
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.values.get(key)
    }

    pub(crate) fn put(&self, key: K, value: V) {
        self.values.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hot_only_if_it_is_read_often() {
        let hot = Hot::<_, ()>::default();
        assert!((0..HOT).all(|_| !hot.is_hot(&20)));
        assert!(hot.is_hot(&20));
        assert!(!hot.is_hot(&21));
    }
}
