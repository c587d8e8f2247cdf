//! Mappings by the kernel's events, for kernels whose own tree of them cannot be read.
//!
//! ```text
//! a ring per CPU ─► events ─► processes ─► publisher ─► stretches of areas, which programs read
//! /proc, at start and where something was missed ─┘
//! ```
//!
//! Events come a little after what they tell of. A program that finds nothing says so, and it is
//! told apart here whether there was nothing. What it finds may not be there any more: a sample that
//! was taken between a change and its publication is doubted, and its stack is not believed.

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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder as Thread, JoinHandle};
use std::time::Duration;

use profcol_ebpf_common::file::FileId;
use profcol_ebpf_common::reason::{EndReason, REASONS};
use profcol_ebpf_common::record::Sample;

pub use self::publisher::Publisher;
use self::rings::Rings;
use self::tracker::Tracker;
use crate::events::{self, EventsError};
use crate::sys;

/// An event is in its ring this long after its time at the latest.
const MAX_EVENT_DELAY: Duration = Duration::from_millis(1);
/// What comes at once is taken in together.
const GATHER_DELAY: Duration = Duration::from_millis(3);

#[derive(Debug, thiserror::Error)]
pub enum SideBandError {
    #[error("failed to open perf events for mappings: {0}")]
    Events(#[from] EventsError),
    #[error(
        "failed to allocate perf ring buffers for mappings ({0}): \
         raise `kernel.perf_event_mlock_kb` or the limit of locked memory"
    )]
    Memory(io::Error),
    #[error("failed to start the mapping tracker thread: {0}")]
    Thread(io::Error),
}

/// What happened while mappings were followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingCounts {
    /// Events that found no room in their ring; after some all processes are looked at again.
    pub lost_events: u64,
    /// Changes that found no room to be published.
    pub no_room: u64,
}

/// Follows all processes until it is dropped.
pub struct SideBand {
    tracker: Arc<Mutex<Tracker>>,
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

fn lock(tracker: &Mutex<Tracker>) -> MutexGuard<'_, Tracker> {
    tracker.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SideBand {
    /// Listens, and then looks at the processes that are there.
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

    /// Makes sure that all is known that happened until now.
    pub fn catch_up(&self) {
        let now = sys::since_boot();
        thread::sleep(MAX_EVENT_DELAY);
        lock(&self.tracker).advance(now);
    }

    /// The reason why a sample's stack is not to be believed, if there is one. All that happened
    /// until it was taken is known.
    pub fn correct_reason(&self, sample: &Sample) -> Option<EndReason> {
        lock(&self.tracker).correct_reason(sample)
    }

    /// How many samples more have each reason than the programs counted.
    pub fn corrections(&self) -> [i64; REASONS] {
        lock(&self.tracker).corrections()
    }

    /// Acts on what the samples told that were judged.
    pub fn settle(&self) {
        lock(&self.tracker).settle();
    }

    pub fn path(&self, id: &FileId) -> PathBuf {
        let tracker = lock(&self.tracker);
        tracker.path(id).map(Into::into).unwrap_or_default()
    }

    pub fn counts(&self) -> MappingCounts {
        lock(&self.tracker).counts()
    }
}

fn follow(tracker: &Mutex<Tracker>, stopped: &PipeReader) {
    loop {
        let (mut files, patience) = {
            let mut tracker = lock(tracker);
            tracker.follow();
            tracker.waits_for()
        };
        files.push(stopped.as_raw_fd());
        if sys::wait_for_any(&files, patience).contains(&stopped.as_raw_fd()) {
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
            tracing::error!("the mapping tracker thread panicked");
        }
    }
}

/// The identity of a file that is open here, as events tell it.
pub fn identify(file: &File) -> io::Result<Option<FileId>> {
    let written = origins::written(&file.metadata()?);
    let origin = rings::origin(file)?;
    Ok(origin.map(|origin| origin.written(written)))
}
