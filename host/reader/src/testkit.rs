//! For tests: readers as threads of this process.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;

use prost::Message;

use crate::channel::{Channel, SendMode};
use crate::messages::{Event, EventKind, Start, WireExit};
use crate::readers::{Readers, StartReader};

/// A reader of a test.
pub type Serve = fn(OwnedFd) -> io::Result<()>;

/// Readers that serve as they should.
pub fn in_threads() -> Readers {
    Readers::of(Threads(vec![|socket| crate::serve(socket, String::new())]))
}

/// Starts one after the other of these; the last one again and again.
pub fn one_after_the_other(readers: Vec<Serve>) -> Readers {
    Readers::of(Turns {
        next: std::sync::atomic::AtomicUsize::new(0),
        threads: Threads(readers),
    })
}

struct Threads(Vec<Serve>);

struct Turns {
    next: std::sync::atomic::AtomicUsize,
    threads: Threads,
}

impl Threads {
    fn spawn(&self, number: usize, reader: OwnedFd, events: OwnedFd) -> io::Result<()> {
        let last = self.0.last().ok_or(io::ErrorKind::NotFound)?;
        let serve = *self.0.get(number).unwrap_or(last);
        thread::spawn(move || {
            let events = Channel::new(events);
            let notify = |kind: EventKind| {
                // Nobody may be interested any more.
                let content = Event::from(kind).encode_to_vec();
                let _ = events.send(&content, &[], SendMode::NonBlocking);
            };
            // No process has this PID.
            notify(EventKind::Started(0));
            let code = match serve(reader) {
                Ok(()) => 0,
                Err(_) => 1,
            };
            notify(EventKind::Ended(WireExit {
                code: Some(code),
                signal: None,
            }));
        });
        Ok(())
    }
}

impl StartReader for Threads {
    fn start(&self, _: &Start, reader: OwnedFd, events: OwnedFd) -> io::Result<()> {
        self.spawn(0, reader, events)
    }
}

impl StartReader for Turns {
    fn start(&self, _: &Start, reader: OwnedFd, events: OwnedFd) -> io::Result<()> {
        let number = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.threads.spawn(number, reader, events)
    }
}
