//! A bounded cache that evicts entries not used recently.
//!
//! It has two maps: new and recently used entries are in the young one. Once that reaches half of the limit, it
//! replaces the old one, and entries of the old one are evicted. Unlike an LRU list, this costs nothing per lookup.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::RandomState;

#[derive(Debug)]
pub struct BoundedCache<K, V> {
    young: HashMap<K, (V, usize), RandomState>,
    old: HashMap<K, (V, usize), RandomState>,
    /// Weight of the young entries.
    weight: usize,
    limit: usize,
}

impl<K: Eq + Hash, V: Clone> BoundedCache<K, V> {
    /// Holds entries of a total weight of `limit`.
    pub fn new(limit: usize) -> Self {
        Self {
            young: HashMap::default(),
            old: HashMap::default(),
            weight: 0,
            limit: limit / 2,
        }
    }

    pub fn get(&mut self, key: &K) -> Option<V> {
        if let Some((value, _)) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, (value, weight)) = self.old.remove_entry(key)?;
        self.insert(key, value.clone(), weight);
        Some(value)
    }

    /// Entries heavier than half of the limit are not stored. Returns the number of evicted entries.
    pub fn insert(&mut self, key: K, value: V, weight: usize) -> usize {
        if weight > self.limit {
            return 1;
        }
        let mut forgotten = 0;
        if self.weight + weight > self.limit {
            forgotten = self.old.len();
            self.old = std::mem::take(&mut self.young);
            self.weight = 0;
        }
        self.weight += weight;
        if let Some((_, replaced)) = self.young.insert(key, (value, weight)) {
            self.weight -= replaced;
        }
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_used_entries_and_evicts_the_rest() {
        let mut cache = BoundedCache::new(8);
        for key in 0..100 {
            cache.insert(key, key, 1);
            assert_eq!(cache.get(&0), Some(0), "after {key}");
            assert!(cache.young.len() + cache.old.len() <= 8, "after {key}");
        }
        assert_eq!(cache.get(&50), None);
        assert_eq!(cache.get(&99), Some(99));
    }

    #[test]
    fn limits_the_total_weight() {
        let mut cache = BoundedCache::new(8);
        cache.insert("heavy", (), 5);
        assert_eq!(cache.get(&"heavy"), None);
        cache.insert("a", (), 3);
        cache.insert("a", (), 4);
        assert_eq!(cache.weight, 4);
    }
}
