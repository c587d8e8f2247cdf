//! A cache with a bound that forgets what was not asked for lately.
//!
//! Two maps: what is new or asked for goes into the young one. Once that is half of the bound, it
//! becomes the old one, and what was old and never asked for again is gone. That costs nothing per
//! look, as a list in order of use would.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::RandomState;

#[derive(Debug)]
pub(crate) struct Generations<K, V> {
    young: HashMap<K, (V, usize), RandomState>,
    old: HashMap<K, (V, usize), RandomState>,
    /// Of the young ones.
    weight: usize,
    limit: usize,
}

impl<K: Eq + Hash, V: Clone> Generations<K, V> {
    /// Holds things that weigh at most `limit`.
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

    /// What weighs more than half of the limit is not kept. Says how many were forgotten.
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
    fn keeps_what_is_asked_for_and_forgets_the_rest() {
        let mut cache = Generations::new(8);
        for key in 0..100 {
            cache.insert(key, key, 1);
            assert_eq!(cache.get(&0), Some(0), "after {key}");
            assert!(cache.young.len() + cache.old.len() <= 8, "after {key}");
        }
        assert_eq!(cache.get(&50), None);
        assert_eq!(cache.get(&99), Some(99));
    }

    #[test]
    fn weighs_what_it_holds() {
        let mut cache = Generations::new(8);
        cache.insert("heavy", (), 5);
        assert_eq!(cache.get(&"heavy"), None);
        cache.insert("a", (), 3);
        cache.insert("a", (), 4);
        assert_eq!(cache.weight, 4);
    }
}
