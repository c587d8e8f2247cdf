//! Mappings from the kernel's events, for kernels whose VMA tree cannot be read.
//!
//! ```text
//! a ring per CPU ─► events ─► processes ─► publisher ─► ranges of areas, which programs read
//! /proc, at start and after lost events ──────────┘
//! ```
//!
//! Events arrive slightly after the change they describe. A program that finds no mapping reports that, and this
//! module decides whether there was one. A mapping that it does find may be stale: the stack of a sample
//! taken between a change and its publication is discarded.

mod error;
mod lease;
mod origins;
mod processes;
mod publisher;
mod records;
mod rings;
mod scan;
mod tracker;

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, Builder as Thread, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use profcol_ebpf_common::file::FileId;
use profcol_ebpf_common::reason::{EndReason, REASONS};
use profcol_ebpf_common::record::Sample;

pub use self::error::SideBandError;
pub use self::publisher::Publisher;
use self::rings::{MAX_EVENT_DELAY, Rings};
pub use self::tracker::MappingCounts;
use self::tracker::Tracker;
use crate::events;
use crate::sys;

/// Events within this time are processed together.
const GATHER_DELAY: Duration = Duration::from_millis(3);

/// Tracks the mappings of all processes until dropped.
pub struct SideBand {
    tracker: Arc<Mutex<Tracker>>,
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl SideBand {
    /// Starts listening to events, then scans the running processes.
    pub fn start(publisher: Publisher) -> Result<Self, SideBandError> {
        let rings = Rings::open(&events::online()?)?;
        let tracker = Arc::new(Mutex::new(Tracker::new(rings, publisher)));
        let (stopped, stop) = io::pipe().map_err(SideBandError::Thread)?;
        let followed = Arc::clone(&tracker);
        let thread = Thread::new()
            .name("profcol-maps".into())
            .spawn(move || follow(&followed, &stopped))
            .map_err(SideBandError::Thread)?;
        Ok(Self {
            tracker,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Processes all events up to now.
    pub fn catch_up(&self) {
        let now = sys::since_boot();
        thread::sleep(MAX_EVENT_DELAY);
        self.tracker.lock().advance(now);
    }

    /// The reason to discard a sample's stack, if any. All events up to the sample must have been processed.
    pub fn correct_reason(&self, sample: &Sample) -> Option<EndReason> {
        self.tracker.lock().correct_reason(sample)
    }

    /// Per end reason, the difference to the programs' count of samples.
    pub fn corrections(&self) -> [i64; REASONS] {
        self.tracker.lock().corrections()
    }

    /// Rescans the processes that [`Self::correct_reason`] asked for.
    pub fn rescan_requested(&self) {
        self.tracker.lock().rescan_requested();
    }

    pub fn path(&self, id: &FileId) -> PathBuf {
        let tracker = self.tracker.lock();
        tracker.path(id).map(Into::into).unwrap_or_default()
    }

    pub fn counts(&self) -> MappingCounts {
        self.tracker.lock().counts()
    }
}

fn follow(tracker: &Mutex<Tracker>, stopped: &PipeReader) {
    loop {
        let (mut files, timeout) = {
            let mut tracker = tracker.lock();
            tracker.follow();
            tracker.waits_for()
        };
        files.push(stopped.as_raw_fd());
        if sys::wait_for_any(&files, timeout).contains(&stopped.as_raw_fd()) {
            break;
        }
        thread::sleep(GATHER_DELAY);
    }
}

impl Drop for SideBand {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("The mapping tracker thread panicked.");
        }
    }
}

/// The identity of an open file, as reported by events.
pub fn identify(file: &File) -> io::Result<Option<FileId>> {
    let written = origins::written(&file.metadata()?);
    let origin = rings::origin(file)?;
    Ok(origin.map(|origin| origin.written(written)))
}
