//! What the runtimes told of their containers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use profcol_component::IntCounter;
use profcol_processes::parents_and_names;
use profcol_profile::Attributes;
use tokio::sync::watch;

use crate::shared::generations::Generations;
use crate::shared::locks::lock;

/// So many containers are known of each runtime, and so many that ended are still.
pub(super) const MAX_CONTAINERS: usize = 16_384;
const MAX_ENDED: usize = 2048;

/// Who told it; the first in the configuration is believed first.
pub(super) type Source = usize;

/// A container's name in the path of a cgroup: its id, or `namespace/id` where ids are chosen by people.
pub(super) type Key = String;

pub(super) struct Directory {
    known: Mutex<DirectoryState>,
    /// How many answers of runtimes there have been.
    news: watch::Sender<u64>,
    dropped: IntCounter,
}

struct DirectoryState {
    by_source: Vec<HashMap<Key, Arc<Attributes>>>,
    /// Profiles of a container come after its end, too.
    ended: Generations<Key, Arc<Attributes>>,
}

impl Directory {
    pub fn new(sources: usize, dropped: IntCounter) -> Self {
        Self {
            known: Mutex::new(DirectoryState {
                by_source: vec![HashMap::new(); sources],
                ended: Generations::new(MAX_ENDED),
            }),
            news: watch::Sender::new(0),
            dropped,
        }
    }

    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Of what is known.
    pub fn version(&self) -> u64 {
        *self.news.borrow()
    }

    /// Of the container with this id, or of the innermost one that the path names otherwise.
    pub fn find(&self, id: Option<&str>, cgroup: &str) -> Option<Arc<Attributes>> {
        let mut known = lock(&self.known);
        match id {
            Some(id) => known.find(id),
            None => parents_and_names(cgroup).find_map(|key| known.find(key)),
        }
    }

    /// All that a runtime has now; what it had before and has no more, ended.
    pub fn replace(&self, source: Source, containers: HashMap<Key, Arc<Attributes>>) {
        let mut known = lock(&self.known);
        let Some(place) = known.by_source.get_mut(source) else {
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
            known.ended.insert(key, attributes, 1);
        }
        drop(known);
        self.dropped.inc_by(surplus.len() as u64);
        self.news.send_modify(|answers| *answers += 1);
    }

    pub fn add(&self, source: Source, key: Key, attributes: Arc<Attributes>) {
        let mut known = lock(&self.known);
        let Some(place) = known.by_source.get_mut(source) else {
            return;
        };
        if place.len() < MAX_CONTAINERS || place.contains_key(&key) {
            place.insert(key, attributes);
        } else {
            self.dropped.inc();
        }
        drop(known);
        self.news.send_modify(|answers| *answers += 1);
    }

    pub fn end(&self, source: Source, key: &str) {
        let mut known = lock(&self.known);
        let ended = known
            .by_source
            .get_mut(source)
            .and_then(|it| it.remove_entry(key));
        if let Some((key, attributes)) = ended {
            known.ended.insert(key, attributes, 1);
        }
    }
}

impl DirectoryState {
    fn find(&mut self, key: &str) -> Option<Arc<Attributes>> {
        let running = self.by_source.iter().find_map(|known| known.get(key));
        running.cloned().or_else(|| self.ended.get(&key.to_owned()))
    }
}
