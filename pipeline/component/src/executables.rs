//! Executables found by receivers that sample this host, for exporters that upload debuginfo.
//!
//! A process may exit, and its file be deleted, before the file is needed. So the receiver passes
//! it to subscribers as an open file with the first sample. Without subscribers nothing is kept
//! open; subscribers decide how long to keep it.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::IntCounter;

/// A file whose code was sampled.
#[derive(Clone, Debug)]
pub struct Executable {
    pub build_id: BuildId,
    /// A hash of the file, as profilers agreed on it: `process.executable.build_id.htlhash`.
    pub hash: String,
    /// The path in the mount namespace of the process.
    pub path: PathBuf,
    /// A process that executes or executed it.
    pub pid: u32,
    pub file: Arc<File>,
}

/// The id used by samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildId {
    Gnu(String),
    /// Hash of a file without build id.
    Hash(String),
}

/// Distributes executables to subscribers.
#[derive(Clone, Debug, Default)]
pub struct Executables {
    subscriptions: Arc<Mutex<Vec<Subscription>>>,
}

/// The queue of one exporter.
#[derive(Clone, Debug)]
pub struct Subscription {
    waiting: Arc<Mutex<VecDeque<Executable>>>,
    most: usize,
    /// Executables dropped because the queue was full.
    dropped: IntCounter,
}

impl Executables {
    /// For exporters, at build time. `most` is the capacity of the queue.
    pub fn subscribe(&self, most: usize, dropped: IntCounter) -> Subscription {
        let subscription = Subscription {
            waiting: Arc::default(),
            most,
            dropped,
        };
        lock(&self.subscriptions).push(subscription.clone());
        subscription
    }

    /// Whether there are subscribers, once everything is built.
    pub fn has_subscribers(&self) -> bool {
        !lock(&self.subscriptions).is_empty()
    }

    /// Subscribers with a full queue miss it.
    pub fn offer(&self, executable: &Executable) {
        for subscription in &*lock(&self.subscriptions) {
            let mut waiting = lock(&subscription.waiting);
            if waiting.len() < subscription.most {
                waiting.push_back(executable.clone());
            } else {
                subscription.dropped.inc();
            }
        }
    }
}

impl Subscription {
    /// Executables offered since the last call.
    pub fn take(&self) -> VecDeque<Executable> {
        std::mem::take(&mut *lock(&self.waiting))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BuildId {
    pub fn text(&self) -> &str {
        match self {
            Self::Gnu(id) | Self::Hash(id) => id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Meter;

    #[test]
    fn each_subscriber_gets_what_it_has_room_for() {
        let board = Executables::default();
        assert!(!board.has_subscribers());
        let meter = Meter::default();
        let dropped =
            ["first", "second"].map(|name| meter.counter("dropped", "Dropped.", &[("of", name)]));
        let [first, second] =
            [&dropped[0], &dropped[1]].map(|dropped| board.subscribe(2, dropped.clone()));
        assert!(board.has_subscribers());
        let file = Arc::new(File::open("/dev/null").unwrap());
        let ids = |taken: VecDeque<Executable>| -> Vec<String> {
            let ids = taken.iter().map(|taken| taken.build_id.text().to_owned());
            ids.collect()
        };
        for id in ["a", "b", "c"] {
            board.offer(&Executable {
                build_id: BuildId::Gnu(id.to_owned()),
                hash: String::new(),
                path: "/bin/true".into(),
                pid: 1,
                file: Arc::clone(&file),
            });
            assert_eq!(ids(first.take()), [id]);
        }
        assert_eq!(ids(second.take()), ["a", "b"]);
        assert_eq!(ids(second.take()), [""; 0]);
        assert_eq!(dropped.map(|counter| counter.get()), [0, 1]);
        assert_eq!(Arc::strong_count(&file), 1, "nothing is kept open");
    }
}
