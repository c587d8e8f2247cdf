//! Executables found by receivers that sample this host, for exporters that upload debuginfo.
//!
//! A process may exit, and its file be deleted, before the file is needed. So the receiver passes
//! it to subscribers as an open file with the first sample. Without subscribers nothing is kept
//! open; subscribers decide how long to keep it.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

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
    subscriptions: Arc<Mutex<Vec<Weak<SubscriptionQueue>>>>,
}

/// The queue of one component. It ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Subscription(Arc<SubscriptionQueue>);

#[derive(Debug)]
struct SubscriptionQueue {
    waiting: Mutex<VecDeque<Executable>>,
    capacity: usize,
    /// Executables dropped because the queue was full.
    dropped: IntCounter,
}

impl Executables {
    /// For exporters, at build time. `capacity` is that of the queue.
    pub fn subscribe(&self, capacity: usize, dropped: IntCounter) -> Subscription {
        let queue = Arc::new(SubscriptionQueue {
            waiting: Mutex::default(),
            capacity,
            dropped,
        });
        self.subscriptions.lock().push(Arc::downgrade(&queue));
        Subscription(queue)
    }

    /// Whether there are subscribers; a reload may add and remove some.
    pub fn has_subscribers(&self) -> bool {
        let subscriptions = self.subscriptions.lock();
        subscriptions.iter().any(|it| it.strong_count() > 0)
    }

    /// Subscribers with a full queue miss it.
    pub fn offer(&self, executable: &Executable) {
        self.subscriptions.lock().retain(|subscription| {
            let Some(queue) = subscription.upgrade() else {
                return false;
            };
            let mut waiting = queue.waiting.lock();
            if waiting.len() < queue.capacity {
                waiting.push_back(executable.clone());
            } else {
                queue.dropped.inc();
            }
            true
        });
    }
}

impl Subscription {
    /// Executables offered since the last call.
    pub fn take(&self) -> VecDeque<Executable> {
        std::mem::take(&mut *self.0.waiting.lock())
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
        drop((first, second));
        assert!(!board.has_subscribers());
    }
}
