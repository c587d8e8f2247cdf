//! One file of records.
//!
//! A record is in it completely or not at all: the remains of a failed write are cut off before
//! the next write. The file is opened for appending and its length is read before
//! each write, so other programs may truncate it (`copytruncate`) at any time.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use profcol_component::files;

use super::backups::Backups;
use super::record::{PREFIX, RecordFormat};

const MEGABYTE: u64 = 1 << 20;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) struct RecordFile {
    path: PathBuf,
    file: Arc<File>,
    /// Whether something was written since the last sync.
    unsynced: bool,
    /// Start of a failed write that could not be cut off.
    torn_at: Option<u64>,
    began: SystemTime,
}

/// Shared by all files of an exporter.
#[derive(Clone, Debug)]
pub(super) struct FileRules {
    pub(super) format: RecordFormat,
    pub(super) rotation: Option<RotationRules>,
    /// The earlier files; also names files that were set aside.
    pub(super) backups: Backups,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RotationRules {
    pub(super) max_bytes: u64,
    pub(super) max_age: Option<Duration>,
}

impl RotationRules {
    pub(super) fn new(max_megabytes: u64, max_days: u32) -> Self {
        let megabytes = if max_megabytes == 0 {
            100
        } else {
            max_megabytes
        };
        Self {
            max_bytes: megabytes.saturating_mul(MEGABYTE),
            max_age: (max_days > 0).then(|| DAY * max_days),
        }
    }
}

impl RecordFile {
    /// Creates the file, or truncates an existing one.
    pub(super) fn create(path: PathBuf) -> io::Result<Self> {
        let file = open(&path)?;
        file.set_len(0)?;
        Ok(Self::new(path, file, SystemTime::now()))
    }

    /// Opens a file for appending. A record truncated by a crash, say, must not corrupt those
    /// that follow: a line is terminated, and a file of other records is renamed.
    pub(super) fn append_to(path: PathBuf, rules: &FileRules) -> io::Result<Self> {
        let mut file = open(&path)?;
        let metadata = file.metadata()?;
        if rules.format.is_lines() {
            if !ends_with_newline(&file, metadata.len())? {
                file.write_all(b"\n")?;
                tracing::warn!(path = %path.display(), "Found a truncated record at the end of the file; appending after it.");
            }
        } else if !ends_with_record(&file, metadata.len())? {
            let aside = rules.backups.set_aside(&path)?;
            file = open(&path)?;
            tracing::warn!(path = %path.display(), aside = %aside.display(), "Found a truncated record at the end of the file; renaming the file.");
        }
        let began = metadata.created().or_else(|_| metadata.modified());
        Ok(Self::new(
            path,
            file,
            began.unwrap_or_else(|_| SystemTime::now()),
        ))
    }

    /// False if the file was moved or removed: no reader would find a record there.
    pub(super) fn is_at_its_path(&self) -> bool {
        match (fs::metadata(&self.path), self.file.metadata()) {
            (Ok(found), Ok(file)) => (found.dev(), found.ino()) == (file.dev(), file.ino()),
            (Err(error), _) => !matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ),
            (Ok(_), Err(_)) => true,
        }
    }

    /// Leaves only complete, synced records.
    pub(super) fn close(mut self) -> io::Result<()> {
        self.cut_torn_record()?;
        match self.take_unsynced() {
            Some(file) => file.sync_data(),
            None => Ok(()),
        }
    }

    /// Appends a record; returns its start.
    pub(super) fn append(&mut self, record: &[u8], rules: &FileRules) -> io::Result<u64> {
        self.cut_torn_record()?;
        let mut start = self.file.metadata()?.len();
        if self.is_full(start, record.len() as u64, rules) {
            self.rotate(rules)?;
            start = 0;
        }
        self.unsynced = true;
        if let Err(error) = (&*self.file).write_all(record) {
            // If this fails too, it is retried before the next record.
            let _ = self.cut(start);
            return Err(error);
        }
        Ok(start)
    }

    /// Removes everything from `start` on.
    pub(super) fn cut(&mut self, start: u64) -> io::Result<()> {
        self.torn_at = Some(start);
        self.cut_torn_record()
    }

    /// The file, if something in it is not synced.
    pub(super) fn take_unsynced(&mut self) -> Option<Arc<File>> {
        std::mem::take(&mut self.unsynced).then(|| Arc::clone(&self.file))
    }

    fn new(path: PathBuf, file: File, began: SystemTime) -> Self {
        Self {
            path,
            file: Arc::new(file),
            unsynced: false,
            torn_at: None,
            began,
        }
    }

    fn cut_torn_record(&mut self) -> io::Result<()> {
        if let Some(start) = self.torn_at {
            // Setting a length beyond the end would append zeros.
            if self.file.metadata()?.len() > start {
                self.file.set_len(start)?;
            }
            self.torn_at = None;
        }
        Ok(())
    }

    /// A record larger than the maximum gets a file of its own.
    fn is_full(&self, length: u64, record: u64, rules: &FileRules) -> bool {
        let Some(rotation) = rules.rotation else {
            return false;
        };
        let age = self.began.elapsed().unwrap_or_default();
        let too_old = rotation.max_age.is_some_and(|max| age >= max);
        length > 0 && (too_old || length.saturating_add(record) > rotation.max_bytes)
    }

    fn rotate(&mut self, rules: &FileRules) -> io::Result<()> {
        let backup = rules.backups.set_aside(&self.path)?;
        let file = match open(&self.path) {
            Ok(file) => file,
            Err(error) => {
                // Undo the rename, or the next attempt would find no file to rename.
                let _ = fs::rename(&backup, &self.path);
                return Err(error);
            }
        };
        if self.unsynced {
            self.file.sync_data()?;
        }
        *self = Self::new(std::mem::take(&mut self.path), file, SystemTime::now());
        rules.backups.prune(&self.path);
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    files::options()
        .create(true)
        .append(true)
        .read(true)
        .open(path)
}

fn ends_with_newline(file: &File, length: u64) -> io::Result<bool> {
    let Some(last) = length.checked_sub(1) else {
        return Ok(true);
    };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte == *b"\n")
}

/// Skips from record to record by their lengths.
fn ends_with_record(file: &File, length: u64) -> io::Result<bool> {
    let mut position = 0;
    while position + (PREFIX as u64) <= length {
        let mut prefix = [0; PREFIX];
        file.read_exact_at(&mut prefix, position)?;
        position += PREFIX as u64 + u64::from(u32::from_be_bytes(prefix));
    }
    Ok(position == length)
}
