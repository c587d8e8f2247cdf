//! Executables that were met on this host: what a receiver that samples processes tells exporters
//! that upload debuginfo.
//!
//! A program may end before anybody asks for its file, and the file may go with it. So it is handed
//! on open, as soon as a sample met it, to those who subscribed; where nobody did, nothing is kept
//! open. Whoever receives it decides for how long.

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
    /// As its process sees it.
    pub path: PathBuf,
    /// A process that has it, or had.
    pub pid: u32,
    pub file: Arc<File>,
}

/// By what samples name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildId {
    Gnu(String),
    /// There is no other: the hash of the file.
    Hash(String),
}

/// Where executables are offered and asked for.
#[derive(Clone, Debug, Default)]
pub struct Executables {
    subscriptions: Arc<Mutex<Vec<Subscription>>>,
}

/// What one exporter is offered.
#[derive(Clone, Debug)]
pub struct Subscription {
    waiting: Arc<Mutex<VecDeque<Executable>>>,
    most: usize,
    /// Those that found no room.
    dropped: IntCounter,
}

impl Executables {
    /// For exporters, when they are built. No more than `most` wait until they are taken.
    pub fn subscribe(&self, most: usize, dropped: IntCounter) -> Subscription {
        let subscription = Subscription {
            waiting: Arc::default(),
            most,
            dropped,
        };
        lock(&self.subscriptions).push(subscription.clone());
        subscription
    }

    /// Whether there is anybody to whom to offer, once everything is built.
    pub fn has_subscribers(&self) -> bool {
        !lock(&self.subscriptions).is_empty()
    }

    /// Who has no room gets nothing.
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
    /// What was offered since the last time.
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
