//! Executables found by receivers that sample this host, for exporters that upload debuginfo.
//!
//! A process may exit, and its file be deleted, before the file is needed. So the receiver passes
//! it to subscribers as an open file with the first sample. Without subscribers nothing is kept
//! open; subscribers decide how long to keep it.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::IntCounter;

/// A file whose code was sampled.
#[derive(Clone, Debug)]
pub struct Executable {
    pub build_id: BuildId,
    /// Hash of the file as in OpenTelemetry's `process.executable.build_id.htlhash`.
    pub hash: String,
    /// Path in the process's mount namespace.
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
    capacity: usize,
    /// Executables dropped because the queue was full.
    dropped: IntCounter,
}

impl Executables {
    /// For exporters, at build time. `capacity` is that of the queue.
    pub fn subscribe(&self, capacity: usize, dropped: IntCounter) -> Subscription {
        let subscription = Subscription {
            waiting: Arc::default(),
            capacity,
            dropped,
        };
        self.subscriptions.lock().push(subscription.clone());
        subscription
    }

    /// Whether there are subscribers, once everything is built.
    pub fn has_subscribers(&self) -> bool {
        !self.subscriptions.lock().is_empty()
    }

    /// Subscribers with a full queue miss it.
    pub fn offer(&self, executable: &Executable) {
        for subscription in &*self.subscriptions.lock() {
            let mut waiting = subscription.waiting.lock();
            if waiting.len() < subscription.capacity {
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
        std::mem::take(&mut *self.waiting.lock())
    }
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
    fn each_subscriber_gets_as_many_as_fit_its_queue() {
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
        assert_eq!(Arc::strong_count(&file), 1, "no descriptor is kept open");
    }
}
