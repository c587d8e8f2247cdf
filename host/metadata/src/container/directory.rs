//! The containers reported by the runtimes.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use profcol_component::IntCounter;
use profcol_processes::parents_and_names;
use profcol_profile::Attributes;
use tokio::sync::watch;

use crate::cache::BoundedCache;

/// Limit of containers per runtime.
pub const MAX_CONTAINERS: usize = 16_384;
/// Limit of ended containers.
const MAX_ENDED: usize = 2048;

/// Index of the reporting runtime; earlier ones in the configuration take precedence.
pub type Source = usize;

/// A container's name in a cgroup path: its id, or `namespace/id` if users choose the ids.
pub type Key = String;

pub struct Directory {
    state: Mutex<DirectoryState>,
    /// Number of runtime responses so far.
    news: watch::Sender<u64>,
    dropped: IntCounter,
}

struct DirectoryState {
    by_source: Vec<HashMap<Key, Arc<Attributes>>>,
    /// Profiles still arrive after a container has ended.
    ended: BoundedCache<Key, Arc<Attributes>>,
}

impl Directory {
    pub fn new(sources: usize, dropped: IntCounter) -> Self {
        Self {
            state: Mutex::new(DirectoryState {
                by_source: vec![HashMap::new(); sources],
                ended: BoundedCache::new(MAX_ENDED),
            }),
            news: watch::Sender::new(0),
            dropped,
        }
    }

    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Changes with every runtime response.
    pub fn version(&self) -> u64 {
        *self.news.borrow()
    }

    /// Finds the container with this id, or the innermost one that the path names in another way.
    pub fn find(&self, id: Option<&str>, cgroup: &str) -> Option<Arc<Attributes>> {
        let mut state = self.state.lock();
        match id {
            Some(id) => state.find(id),
            None => parents_and_names(cgroup).find_map(|key| state.find(key)),
        }
    }

    /// Replaces all containers of a runtime; those no longer listed have ended.
    pub fn replace(&self, source: Source, containers: HashMap<Key, Arc<Attributes>>) {
        let mut state = self.state.lock();
        let Some(place) = state.by_source.get_mut(source) else {
            return;
        };
        let before = std::mem::replace(place, containers);
        let ended: Vec<_> = before
            .into_iter()
            .filter(|(key, _)| !place.contains_key(key))
            .collect();
        let surplus: Vec<Key> = place.keys().skip(MAX_CONTAINERS).cloned().collect();
        for key in &surplus {
            place.remove(key);
        }
        for (key, attributes) in ended {
            state.ended.insert(key, attributes, 1);
        }
        drop(state);
        self.dropped.inc_by(surplus.len() as u64);
        self.news.send_modify(|answers| *answers += 1);
    }

    pub fn add(&self, source: Source, key: Key, attributes: Arc<Attributes>) {
        let mut state = self.state.lock();
        let Some(place) = state.by_source.get_mut(source) else {
            return;
        };
        if place.len() < MAX_CONTAINERS || place.contains_key(&key) {
            place.insert(key, attributes);
        } else {
            self.dropped.inc();
        }
        drop(state);
        self.news.send_modify(|answers| *answers += 1);
    }

    pub fn end(&self, source: Source, key: &str) {
        let mut state = self.state.lock();
        let ended = state
            .by_source
            .get_mut(source)
            .and_then(|it| it.remove_entry(key));
        if let Some((key, attributes)) = ended {
            state.ended.insert(key, attributes, 1);
        }
    }
}

impl DirectoryState {
    fn find(&mut self, key: &str) -> Option<Arc<Attributes>> {
        let running = self
            .by_source
            .iter()
            .find_map(|containers| containers.get(key));
        running.cloned().or_else(|| self.ended.get(&key.to_owned()))
    }
}
