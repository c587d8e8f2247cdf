//! Executables that were met on this host: what a receiver that samples processes tells exporters
//! that upload debuginfo.
//!
//! A program may end before anybody asks for its file, and the file may go with it. So it is handed
//! on open, as soon as a sample met it, to those who subscribed; where nobody did, nothing is kept
//! open. Whoever receives it decides for how long.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::IntCounter;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// How many may wait until a subscriber takes them, each of them open.
const WAITING: usize = 256;

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
    subscribers: Arc<Mutex<Vec<Subscriber>>>,
}

#[derive(Debug)]
struct Subscriber {
    sender: Sender<Executable>,
    /// Those that found no room.
    dropped: IntCounter,
}

impl Executables {
    /// For exporters, when they are built.
    pub fn subscribe(&self, dropped: IntCounter) -> Receiver<Executable> {
        let (sender, receiver) = channel(WAITING);
        self.lock().push(Subscriber { sender, dropped });
        receiver
    }

    /// Whether there is anybody to whom to offer, once everything is built.
    pub fn are_wanted(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Never waits: who has no room gets nothing.
    pub fn offer(&self, executable: &Executable) {
        for subscriber in &*self.lock() {
            if subscriber.sender.try_send(executable.clone()).is_err() {
                subscriber.dropped.inc();
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Subscriber>> {
        self.subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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
    fn each_subscriber_gets_what_it_has_room_for() {
        let board = Executables::default();
        assert!(!board.are_wanted());
        let meter = Meter::default();
        let dropped =
            ["first", "second"].map(|name| meter.counter("dropped", "Dropped.", &[("of", name)]));
        let mut first = board.subscribe(dropped[0].clone());
        let mut second = board.subscribe(dropped[1].clone());
        assert!(board.are_wanted());
        let file = Arc::new(File::open("/dev/null").unwrap());
        for number in 0..=WAITING {
            board.offer(&Executable {
                build_id: BuildId::Gnu(number.to_string()),
                hash: String::new(),
                path: "/bin/true".into(),
                pid: 1,
                file: Arc::clone(&file),
            });
            let taken = first.try_recv().expect("there is room");
            assert_eq!(taken.build_id.text(), number.to_string());
        }
        let mut taken = 0;
        while second.try_recv().is_ok() {
            taken += 1;
        }
        assert_eq!(taken, WAITING);
        assert_eq!(dropped.map(|counter| counter.get()), [0, 1]);
        assert_eq!(Arc::strong_count(&file), 1, "nothing is kept open");
    }
}
