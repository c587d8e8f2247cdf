//! The profiles of the last hour in memory, and older ones on disk.
//!
//! ```text
//! batch ─► newest chunk ─► slice ─► rows (series, node, value)
//!          string, frame, node and series tables, shared by its slices
//!                           └─ after some seconds ─► record on disk
//! ```
//!
//! Tables only grow, so they are evicted as a whole with the oldest chunk. Each chunk has a fixed share of the memory
//! limit and of the retention time. With an [archive](History::open_archive), finished slices are also written to disk;
//! a query reads the older ones from there.

mod archive;
mod chunk;
mod functions;
mod language;
mod memory;
mod page_address;
mod piece;
mod query;
mod recent;
mod selector;
mod series;
mod service_name;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use profcol_component::DeferredSymbols;
use profcol_flamegraph::SampleType;
use profcol_profile::Model;
use profcol_storage::{AppendError, StorageError};

use self::archive::Archive;
pub use self::archive::{ArchiveOptions, DiskExtent};
use self::chunk::Chunk;
pub use self::language::LANGUAGE;
use self::memory::Memory;
pub use self::page_address::PageAddress;
pub use self::piece::Coverage;
use self::piece::Piece;
pub use self::query::{Query, QueryResult};
pub use self::recent::{Group, ProcessGroup, Recent, Snapshot};
pub use self::selector::{Selector, SelectorError};
pub use self::series::{Points, Steps};
pub use self::service_name::SERVICE_NAME;

/// A slice is written to disk this long after its end: symbols come late.
const SETTLING_TIME: Duration = Duration::from_secs(10);

pub struct History {
    limits: Limits,
    memory: RwLock<Memory>,
    archive: OnceLock<Archive>,
    /// Held while slices are written to disk.
    flushing: Mutex<()>,
}

#[derive(Clone, Debug)]
pub struct Limits {
    pub max_age: Duration,
    pub max_bytes: usize,
    pub resolution: Duration,
    pub sample_labels: Vec<String>,
}

/// The content of the history.
#[derive(Clone, Debug, Default)]
pub struct Extent {
    /// Unix time in milliseconds.
    pub oldest: Option<u64>,
    pub newest: Option<u64>,
    pub types: Vec<SampleType>,
    pub samples: u64,
    pub evicted_samples: u64,
    /// In memory.
    pub bytes: usize,
    pub disk: Option<DiskExtent>,
}

/// Which slices [`History::flush`] writes to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Profiles that ended some seconds ago.
    Settled,
    /// All; at the end.
    All,
}

impl History {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            memory: RwLock::default(),
            archive: OnceLock::new(),
            flushing: Mutex::new(()),
        }
    }

    /// Also keeps the history on disk from now on, and shows the profiles already there. Blocking.
    pub fn open_archive(
        &self,
        options: &ArchiveOptions,
        exporter: &str,
    ) -> Result<(), StorageError> {
        let archive = Archive::open(options, exporter)?;
        self.memory.write().boundary = archive.end();
        // Opened once, by the start of the exporter.
        let _ = self.archive.set(archive);
        Ok(())
    }

    pub fn add(&self, model: &Model, symbols: &DeferredSymbols) {
        let has_archive = self.archive.get().is_some();
        let has_room = {
            let mut memory = self.memory.write();
            memory.add(model, symbols, &self.limits);
            memory.evict(&self.limits, has_archive, false)
        };
        if !has_room {
            // Profiles arrive faster than they are written. The next regular flush reports an error.
            let _ = self.flush(Flush::Settled);
            self.memory.write().evict(&self.limits, has_archive, true);
        }
    }

    /// Writes slices to disk. Returns whether some are left; without an archive there are none. Blocking.
    pub fn flush(&self, which: Flush) -> Result<bool, AppendError> {
        let Some(archive) = self.archive.get() else {
            return Ok(false);
        };
        let _flushing = self.flushing.lock();
        let until = match which {
            Flush::Settled => {
                recent::unix_millis().saturating_sub(SETTLING_TIME.as_millis() as u64)
            }
            Flush::All => u64::MAX,
        };
        self.memory.write().seal_until(until);
        loop {
            let next = self.memory.read().next_piece(until);
            let Some(next) = next else {
                break;
            };
            let (model, coverage, samples) = next.piece;
            let record = archive.write(&Piece::new(model, coverage, samples))?;
            self.memory
                .write()
                .set_archived(next.chunk, next.slices, record);
        }
        let mut memory = self.memory.write();
        memory.evict(&self.limits, true, false);
        Ok(!memory.is_archived())
    }

    /// Resolves deferred symbols that have become available.
    pub fn resolve_symbols(&self) {
        self.memory.write().resolve_symbols();
    }

    pub fn extent(&self) -> Extent {
        let memory = self.memory.read();
        let mut extent = memory.extent();
        if let Some(archive) = self.archive.get() {
            let unarchived = memory.unarchived_samples();
            drop(memory);
            let disk = archive.extent();
            extent.oldest = [disk.oldest, extent.oldest].into_iter().flatten().min();
            extent.newest = [disk.newest, extent.newest].into_iter().flatten().max();
            add_types(&mut extent.types, &disk.types);
            // Recent samples are in memory and on disk.
            extent.samples = disk.samples + unarchived;
            extent.evicted_samples += disk.removed_samples;
            extent.disk = Some(disk);
        }
        extent
    }

    /// The sample types that may occur in this time range.
    pub fn types(&self, from: u64, until: u64) -> Vec<SampleType> {
        let mut types = self.memory.read().types(from, until);
        if let Some(archive) = self.archive.get() {
            add_types(&mut types, &archive.types(from, until));
        }
        types
    }

    /// The start of the slice of this time.
    pub fn slice_start(&self, time: u64) -> u64 {
        let resolution = (self.limits.resolution.as_millis() as u64).max(1);
        time / resolution * resolution
    }

    /// Calls `each` for all chunks of this time, oldest first.
    fn each_chunk(&self, from: u64, until: u64, mut each: impl FnMut(&Chunk)) {
        let mut done = (0, 0);
        loop {
            let memory = self.memory.read();
            let boundary = memory.boundary();
            let archive = self.archive.get().filter(|_| done < boundary);
            let Some(archive) = archive else {
                memory.chunks().for_each(each);
                return;
            };
            // Reading takes long, and what leaves the memory meanwhile is read in the next round.
            drop(memory);
            archive.read((from, until), &(done..boundary), &self.limits, &mut each);
            done = boundary;
        }
    }
}

fn add_types(types: &mut Vec<SampleType>, more: &[SampleType]) {
    for kind in more {
        if !types.contains(kind) {
            types.push(kind.clone());
        }
    }
}
