//! The history on disk: records of finished slices, in a log that is bounded by removing its oldest segment.
//!
//! ```text
//! [ segment 7 ][ segment 8 ][ segment 9, active ]
//!  └ removed at the limit ┘     ▲ boundary: later records are also in memory
//! ```
//!
//! In memory it has one entry per segment; a query reads the records of the segments of its time range.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use profcol_flamegraph::SampleType;
use profcol_storage::{
    AppendError, FsyncPolicy, FullCause, Log, Purpose, Storage, StorageError, StorageOptions,
    WhenFull,
};

use crate::Limits;
use crate::chunk::{Chunk, RecordId};
use crate::piece::{Coverage, Piece, restore};

/// Where a history is kept on disk.
#[derive(Clone, Debug)]
pub struct ArchiveOptions {
    pub directory: PathBuf,
    pub max_bytes: u64,
    /// At most this much time is lost when the process is killed.
    pub flush_interval: Duration,
}

pub(super) struct Archive {
    /// Holds the lock of the directory.
    storage: Storage,
    content: Mutex<Content>,
}

struct Content {
    log: Log,
    segments: BTreeMap<u64, Summary>,
    removed_samples: u64,
    failed_writes: u64,
}

/// The content of a segment.
#[derive(Clone, Debug, Default)]
struct Summary {
    /// `None` if it is empty.
    coverage: Option<Coverage>,
    samples: u64,
    is_damaged: bool,
}

/// The history on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskExtent {
    pub directory: PathBuf,
    pub bytes: u64,
    pub max_bytes: u64,
    /// Unix time in milliseconds.
    pub oldest: Option<u64>,
    pub newest: Option<u64>,
    pub samples: u64,
    pub removed_samples: u64,
    pub failed_writes: u64,
    pub damaged_segments: u64,
    #[doc(hidden)]
    pub types: Vec<SampleType>,
}

impl Archive {
    /// Locks the directory, and reads what it contains.
    pub fn open(options: &ArchiveOptions, exporter: &str) -> Result<Self, StorageError> {
        let storage = Storage::new(StorageOptions {
            directory: options.directory.clone(),
            create_directory: true,
            fsync: FsyncPolicy::Interval(options.flush_interval),
            max_bytes: options.max_bytes,
            when_full: WhenFull::DropOldest,
        });
        storage.lock()?;
        let (log, recovered) = storage.open(Purpose::History, exporter)?;
        let mut content = Content {
            log,
            segments: BTreeMap::new(),
            removed_samples: 0,
            failed_writes: 0,
        };
        content
            .summarize(&options.directory)
            .map_err(|error| StorageError::Directory {
                directory: options.directory.clone(),
                error,
            })?;
        if recovered.unreadable_segments > 0 {
            tracing::warn!(
                directory = %options.directory.display(),
                segments = recovered.unreadable_segments,
                "Removed unreadable segments of the history."
            );
        }
        let archive = Self {
            storage,
            content: Mutex::new(content),
        };
        let extent = archive.extent();
        tracing::info!(
            directory = %options.directory.display(),
            bytes = extent.bytes,
            samples = extent.samples,
            oldest_unix_ms = extent.oldest.unwrap_or(0),
            torn_bytes = recovered.torn_bytes,
            "Opened the history on disk."
        );
        Ok(archive)
    }

    /// Behind the last record.
    pub fn end(&self) -> RecordId {
        let content = self.content.lock();
        content
            .segments
            .keys()
            .last()
            .map_or((0, 0), |&it| (it, u32::MAX))
    }

    /// Writes a record and makes it durable. At the limit, the oldest segment makes room; a full disk is an error,
    /// since room would not last there.
    pub fn write(&self, piece: &Piece) -> Result<RecordId, AppendError> {
        let mut content = self.content.lock();
        let written = content.write(piece);
        if written.is_err() {
            content.failed_writes += 1;
        }
        let unsynced = content.log.unsynced();
        drop(content);
        let record = written?;
        if let Err(error) = unsynced.sync() {
            self.content.lock().failed_writes += 1;
            tracing::warn!(
                directory = %self.storage.options().directory.display(), %error,
                "Failed to sync the history; a power failure may cost its last records."
            );
        }
        Ok(record)
    }

    /// Calls `each` for the records of this time and these places, oldest first. Damaged ones are left out.
    pub fn read(
        &self,
        (from, until): (u64, u64),
        records: &Range<RecordId>,
        limits: &Limits,
        each: &mut dyn FnMut(&Chunk),
    ) {
        let segments = self.content.lock().segments_of(from, until, records);
        for segment in segments {
            let browser = self.content.lock().log.browse(segment);
            let mut browser = match browser {
                Ok(Some(browser)) => browser,
                // Removed meanwhile.
                Ok(None) => continue,
                Err(error) => {
                    self.note_damage(segment, &error);
                    continue;
                }
            };
            while let Some(record) = browser.next_record() {
                let record = match record {
                    Ok(record) => record,
                    Err(error) => {
                        self.note_damage(segment, &error);
                        continue;
                    }
                };
                let is_wanted = records.contains(&(segment, record.index()))
                    && Coverage::of_record(&record).is_none_or(|it| it.overlaps(from, until));
                if !is_wanted {
                    continue;
                }
                let chunk = browser.body(&record).and_then(|body| {
                    let chunk = restore(&record, &body, limits.resolution, &limits.sample_labels);
                    chunk.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
                });
                match chunk {
                    Ok(chunk) => each(&chunk),
                    Err(error) => self.note_damage(segment, &error),
                }
            }
        }
    }

    pub fn extent(&self) -> DiskExtent {
        let content = self.content.lock();
        let mut extent = DiskExtent {
            directory: self.storage.options().directory.clone(),
            bytes: content.log.bytes(),
            max_bytes: self.storage.options().max_bytes,
            removed_samples: content.removed_samples,
            failed_writes: content.failed_writes,
            ..DiskExtent::default()
        };
        let mut all: Option<Coverage> = None;
        for summary in content.segments.values() {
            extent.samples += summary.samples;
            extent.damaged_segments += u64::from(summary.is_damaged);
            extend(&mut all, summary.coverage.as_ref());
        }
        if let Some(all) = all {
            (extent.oldest, extent.newest, extent.types) =
                (Some(all.from), Some(all.until), all.types);
        }
        extent
    }

    /// The sample types that may occur in this time range.
    pub fn types(&self, from: u64, until: u64) -> Vec<SampleType> {
        let content = self.content.lock();
        let mut all: Option<Coverage> = None;
        for summary in content.segments.values() {
            let coverage = summary.coverage.as_ref();
            extend(&mut all, coverage.filter(|it| it.overlaps(from, until)));
        }
        all.map_or_else(Vec::new, |all| all.types)
    }

    fn note_damage(&self, segment: u64, error: &io::Error) {
        let mut content = self.content.lock();
        let Some(summary) = content.segments.get_mut(&segment) else {
            return;
        };
        summary.note_damage(&self.storage.options().directory, segment, error);
    }
}

fn extend(all: &mut Option<Coverage>, more: Option<&Coverage>) {
    match (all, more) {
        (Some(all), Some(more)) => all.add(more),
        (all @ None, Some(more)) => *all = Some(more.clone()),
        (_, None) => {}
    }
}

// === impl Summary ===

impl Summary {
    /// Logs the first damage of the segment.
    fn note_damage(&mut self, directory: &Path, segment: u64, error: &io::Error) {
        if !std::mem::replace(&mut self.is_damaged, true) {
            tracing::warn!(
                directory = %directory.display(), segment, %error,
                "A segment of the history is damaged; its other records are shown."
            );
        }
    }
}

// === impl Content ===

impl Content {
    fn summarize(&mut self, directory: &Path) -> io::Result<()> {
        let segments: Vec<u64> = self.log.segments().collect();
        for segment in segments {
            let mut summary = Summary::default();
            if let Some(mut browser) = self.log.browse(segment)? {
                while let Some(record) = browser.next_record() {
                    let record = match record {
                        Ok(record) => record,
                        Err(error) => {
                            summary.note_damage(directory, segment, &error);
                            continue;
                        }
                    };
                    summary.samples += record.counts().source_samples;
                    extend(&mut summary.coverage, Coverage::of_record(&record).as_ref());
                }
            }
            self.segments.insert(segment, summary);
        }
        Ok(())
    }

    fn write(&mut self, piece: &Piece) -> Result<RecordId, AppendError> {
        let record = loop {
            match self.log.append(piece.counts, &piece.head, &piece.body) {
                Err(AppendError::Full(FullCause::MaxBytes)) => self.remove_oldest()?,
                written => break written?,
            }
        };
        self.log.publish();
        let summary = self.segments.entry(record.segment).or_default();
        summary.samples += piece.counts.source_samples;
        extend(&mut summary.coverage, Some(&piece.coverage));
        Ok((record.segment, record.index))
    }

    fn remove_oldest(&mut self) -> Result<(), AppendError> {
        let removed = match self.log.remove_oldest()? {
            None => {
                // Only the segment being written is left.
                self.log.seal();
                self.log.remove_oldest()?
            }
            removed => removed,
        };
        let removed = removed.ok_or(AppendError::Full(FullCause::MaxBytes))?;
        let summary = self.segments.remove(&removed).unwrap_or_default();
        self.removed_samples += summary.samples;
        Ok(())
    }

    fn segments_of(&self, from: u64, until: u64, records: &Range<RecordId>) -> Vec<u64> {
        let of_time = self.segments.iter().filter(|(number, summary)| {
            let coverage = summary.coverage.as_ref();
            (records.start.0..=records.end.0).contains(number)
                && coverage.is_some_and(|it| it.overlaps(from, until))
        });
        of_time.map(|(&number, _)| number).collect()
    }
}
