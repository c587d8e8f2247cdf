//! The containers reported by the runtimes.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use profcol_component::IntCounter;
use profcol_processes::parents_and_names;
use profcol_profile::Attributes;
use tokio::sync::watch;

use super::api::{Key, MAX_CONTAINERS};
use super::runtime::{Protocol, Socket};
use crate::cache::BoundedCache;

/// Limit of ended containers.
const MAX_ENDED: usize = 2048;

/// Index of the reporting runtime; earlier ones in the configuration take precedence.
pub type Source = usize;

pub struct Directory {
    state: Mutex<DirectoryState>,
    /// Number of runtime responses so far.
    news: watch::Sender<u64>,
    dropped: IntCounter,
}

struct DirectoryState {
    by_source: Vec<SourceState>,
    /// Profiles still arrive after a container has ended.
    ended: BoundedCache<Key, Arc<Attributes>>,
}

struct SourceState {
    containers: HashMap<Key, Arc<Attributes>>,
    /// The Kubernetes interface of the same containerd, which knows more about the containers of pods, such as the
    /// image's ID.
    cri: Option<Source>,
    is_failing: bool,
}

impl Directory {
    /// The containers of these sockets.
    pub fn new(sockets: &[Socket], dropped: IntCounter) -> Self {
        let source = |socket: &Socket| SourceState {
            containers: HashMap::new(),
            cri: cri_of(socket, sockets),
            is_failing: false,
        };
        Self {
            state: Mutex::new(DirectoryState {
                by_source: sockets.iter().map(source).collect(),
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

    /// Whether the runtimes have reported all that they know about this container.
    pub fn is_known(&self, id: Option<&str>, cgroup: &str) -> bool {
        let mut state = self.state.lock();
        match id {
            Some(id) => state.is_known(id),
            None => parents_and_names(cgroup).any(|key| state.is_known(key)),
        }
    }

    /// The runtime does not answer: nobody should wait for it.
    pub fn fail(&self, source: Source) {
        let mut state = self.state.lock();
        let Some(failing) = state.by_source.get_mut(source) else {
            return;
        };
        let is_news = !std::mem::replace(&mut failing.is_failing, true);
        drop(state);
        if is_news {
            self.news.send_modify(|answers| *answers += 1);
        }
    }

    /// Replaces all containers of a runtime; those no longer listed have ended.
    pub fn replace(&self, source: Source, containers: HashMap<Key, Arc<Attributes>>) {
        let mut state = self.state.lock();
        let Some(source) = state.by_source.get_mut(source) else {
            return;
        };
        source.is_failing = false;
        let place = &mut source.containers;
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
        let Some(source) = state.by_source.get_mut(source) else {
            return;
        };
        let place = &mut source.containers;
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
            .and_then(|it| it.containers.remove_entry(key));
        if let Some((key, attributes)) = ended {
            state.ended.insert(key, attributes, 1);
        }
    }
}

impl DirectoryState {
    fn find(&mut self, key: &str) -> Option<Arc<Attributes>> {
        let running = self
            .running(key)
            .map(|(_, attributes)| Arc::clone(attributes));
        running.or_else(|| self.ended.get(&key.to_owned()))
    }

    /// A container that runs, from the first source that has it.
    fn running(&self, key: &str) -> Option<(&SourceState, &Arc<Attributes>)> {
        let mut sources = self.by_source.iter();
        sources.find_map(|source| Some((source, source.containers.get(key)?)))
    }

    fn is_known(&mut self, key: &str) -> bool {
        let Some((source, attributes)) = self.running(key) else {
            return self.ended.get(&key.to_owned()).is_some();
        };
        let cri = source.cri.and_then(|cri| self.by_source.get(cri));
        let is_in_pod = || attributes.iter().any(|it| &*it.key == "k8s.container.name");
        !(cri.is_some_and(|cri| !cri.is_failing) && is_in_pod())
    }
}

fn cri_of(socket: &Socket, sockets: &[Socket]) -> Option<Source> {
    let is_cri = |other: &Socket| other.protocol == Protocol::Cri && other.path == socket.path;
    let found = (socket.protocol == Protocol::Containerd).then(|| sockets.iter().position(is_cri));
    found.flatten()
}

#[cfg(test)]
mod tests {
    use profcol_component::Meter;
    use profcol_profile::KeyValue;

    use super::*;

    fn socket(protocol: Protocol, path: &str) -> Socket {
        Socket {
            protocol,
            path: path.to_owned(),
        }
    }

    fn directory(sockets: &[Socket]) -> Directory {
        Directory::new(sockets, Meter::default().counter("dropped", "x", &[]))
    }

    fn named(name: &str) -> Arc<Attributes> {
        Arc::new(vec![KeyValue::new(name, "x")])
    }

    #[test]
    fn a_container_of_a_pod_is_known_once_the_cri_reported_it_or_failed() {
        const CRI: Source = 0;
        const CONTAINERD: Source = 1;
        let containers = directory(&[
            socket(Protocol::Cri, "containerd.sock"),
            socket(Protocol::Containerd, "containerd.sock"),
        ]);
        let is_known = |id| containers.is_known(Some(id), "");
        containers.add(CONTAINERD, "alone".into(), named("container.name"));
        containers.add(CONTAINERD, "in pod".into(), named("k8s.container.name"));
        assert!(is_known("alone") && !is_known("in pod"));
        let version = containers.version();
        containers.fail(CRI);
        assert!(is_known("in pod"), "with what containerd knows");
        assert_ne!(containers.version(), version, "those who wait are told");
        let version = containers.version();
        containers.fail(CRI);
        assert_eq!(containers.version(), version, "it is no news");
        containers.replace(CRI, HashMap::new());
        assert!(!is_known("in pod"), "its event is on the way");
        containers.add(CRI, "in pod".into(), named("k8s.container.name"));
        assert!(is_known("in pod"));
    }

    #[test]
    fn without_the_cri_of_the_same_runtime_its_own_report_is_complete() {
        let containers = directory(&[
            socket(Protocol::Cri, "other.sock"),
            socket(Protocol::Containerd, "containerd.sock"),
        ]);
        containers.add(1, "in pod".into(), named("k8s.container.name"));
        assert!(containers.is_known(Some("in pod"), ""));
    }
}
