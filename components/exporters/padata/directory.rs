//! The complete files: compressed, counted, and dropped at the limit.
//!
//! A directory has one recorder at a time; an uploader may take files out of it meanwhile. Each of them locks the file
//! it works on, so that none is compressed and delivered at the same time.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use profcol_component::files;
use profcol_parca::ipc;
use profcol_parca::padata::{BadFile, Delivered, Reader, created_seconds, progress_file};

const PLAIN: &str = "padata";
const COMPRESSED: &str = "padata.zst";
/// Suffix of temporary files.
pub const UNFINISHED: &str = "padata.unfinished";

/// Locked by the process that records into the directory.
const LOCK: &str = ".recorder.lock";

/// Only headers are read here.
const MAX_HEADER_RECORD: u32 = 0;
/// Maximum size of a record in a file whose samples are counted.
const MAX_RECORD: u32 = 256 << 20;

pub struct RecordingDirectory {
    path: PathBuf,
    level: i32,
    lock: File,
    /// Oldest first.
    complete: Vec<CompleteFile>,
}

struct CompleteFile {
    path: PathBuf,
    bytes: u64,
    /// `None` if another process wrote it.
    samples: Option<u64>,
}

/// The result of dropping the oldest file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropOutcome {
    File {
        /// Samples that were not delivered.
        samples: u64,
    },
    /// Uploaders are using all files.
    InUse,
    Nothing,
}

impl RecordingDirectory {
    /// Creates the directory if it is missing, and completes the files left by earlier runs.
    pub fn open(path: &Path, level: i32) -> io::Result<Self> {
        files::create_directories(path)?;
        let lock = files::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::Error::other(
                "the directory is locked by another recorder: use a separate directory for each",
            ),
        })?;
        let mut directory = Self {
            path: path.to_owned(),
            level,
            lock,
            complete: Vec::new(),
        };
        let mut leftovers = Vec::new();
        for entry in fs::read_dir(path)? {
            let path = entry?.path();
            match kind(&path) {
                Some(UNFINISHED) => fs::remove_file(&path)?,
                Some(COMPRESSED) => {
                    let bytes = fs::metadata(&path)?.len();
                    directory.complete.push(CompleteFile {
                        path,
                        bytes,
                        samples: None,
                    });
                }
                Some(PLAIN) => leftovers.push(path),
                _ => {}
            }
        }
        leftovers.sort_by_key(|path| (created_seconds(path), path.clone()));
        for path in leftovers {
            directory.add(&path, None);
        }
        let files = &mut directory.complete;
        files.sort_by_key(|file| (created_seconds(&file.path), file.path.clone()));
        Ok(directory)
    }

    /// False if the directory or its lock file was removed or replaced: another process may record there.
    pub fn is_lock_held(&self) -> bool {
        let (Ok(lock), Ok(found)) = (self.lock.metadata(), self.path.join(LOCK).metadata()) else {
            return false;
        };
        (lock.dev(), lock.ino()) == (found.dev(), found.ino())
    }

    pub fn bytes(&self) -> u64 {
        self.complete.iter().map(|file| file.bytes).sum()
    }

    /// Compresses a complete file, or keeps it uncompressed if that fails. The file always exists under
    /// one of its two names.
    pub fn add(&mut self, plain: &Path, samples: Option<u64>) {
        let path = match self.compress(plain) {
            Ok(Some(compressed)) => compressed,
            Ok(None) => return,
            Err(error) => {
                // A leftover of the failed compression.
                let _ = fs::remove_file(plain.with_extension(UNFINISHED));
                tracing::warn!(path = %plain.display(), %error, "Failed to compress a complete file; retrying at the next start.");
                plain.to_owned()
            }
        };
        let bytes = path.metadata().map_or(0, |file| file.len());
        self.complete.retain(|known| known.path != path);
        self.complete.push(CompleteFile {
            path,
            bytes,
            samples,
        });
    }

    /// `None` if there is nothing to keep, or another process has the file.
    fn compress(&self, plain: &Path) -> io::Result<Option<PathBuf>> {
        let mut source = match File::open(plain) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        // An uploader has it; it removes the file when done.
        if source.try_lock().is_err() {
            return Ok(None);
        }
        if has_no_batch(plain) {
            fs::remove_file(plain)?;
            return Ok(None);
        }
        let compressed = plain.with_extension(COMPRESSED);
        let unfinished = plain.with_extension(UNFINISHED);
        let mut options = files::options();
        let target = options
            .write(true)
            .create(true)
            .truncate(true)
            .open(&unfinished)?;
        let mut encoder = zstd::Encoder::new(&target, self.level)?;
        encoder.include_checksum(true)?;
        io::copy(&mut source, &mut encoder)?;
        encoder.finish()?;
        target.sync_all()?;
        fs::rename(&unfinished, &compressed)?;
        File::open(&self.path)?.sync_all()?;
        fs::remove_file(plain)?;
        Ok(Some(compressed))
    }

    /// Drops the oldest file that is not in use: removing an open file frees no space.
    pub fn drop_oldest(&mut self) -> io::Result<DropOutcome> {
        let mut index = 0;
        while let Some(oldest) = self.complete.get(index) {
            let path = &oldest.path;
            let file = match File::open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.complete.remove(index);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if file.try_lock().is_err() {
                index += 1;
                continue;
            }
            let samples = oldest.undelivered(&file);
            ignore_not_found(fs::remove_file(path))?;
            tracing::warn!(path = %path.display(), samples, "Dropped the oldest file to make room.");
            self.complete.remove(index);
            return Ok(DropOutcome::File { samples });
        }
        Ok(match self.complete.is_empty() {
            true => DropOutcome::Nothing,
            false => DropOutcome::InUse,
        })
    }

    /// Removes entries of files that other processes removed.
    pub fn forget_removed(&mut self) {
        self.complete.retain(|file| file.path.exists());
    }
}

impl CompleteFile {
    /// Number of samples in it that were not delivered; `file` stays locked meanwhile.
    fn undelivered(&self, file: &File) -> u64 {
        let note = fs::read_to_string(progress_file(&self.path)).unwrap_or_default();
        let settled = match (Delivered::parse(&note), self.samples) {
            (Delivered::Everything, _) => return 0,
            (Delivered::Batches { settled: 0, .. }, Some(samples)) => return samples,
            (Delivered::Batches { settled, .. }, _) => settled,
        };
        let mut samples = 0;
        if let Err(error) = self.count_rows(file, settled, &mut samples) {
            tracing::warn!(path = %self.path.display(), samples, %error, "Failed to count all samples of a file.");
        }
        samples
    }

    /// Adds up the rows of all batches but the first `settled`, without decoding them.
    fn count_rows(&self, file: &File, settled: u16, rows: &mut u64) -> Result<(), BadFile> {
        let file = file
            .try_clone()
            .map_err(|error| BadFile::Io { at: 0, error })?;
        let mut reader = Reader::of_file(&self.path, file, MAX_RECORD)?;
        let mut number = 0;
        while let Some(batch) = reader.next_batch()? {
            if number >= settled {
                let stated = ipc::stated_rows(&batch.samples, MAX_RECORD as usize);
                *rows += stated.map_err(|error| BadFile::Record {
                    at: batch.at,
                    error,
                })?;
            }
            number += 1;
        }
        Ok(())
    }
}

fn ignore_not_found(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn kind(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    let (_, ending) = name.split_once('.')?;
    [PLAIN, COMPRESSED, UNFINISHED]
        .into_iter()
        .find(|known| *known == ending)
}

fn has_no_batch(path: &Path) -> bool {
    let file = File::open(path).map(|file| file.take(8));
    file.is_ok_and(|file| Reader::new(file, MAX_HEADER_RECORD).is_ok_and(|file| file.count() == 0))
}
