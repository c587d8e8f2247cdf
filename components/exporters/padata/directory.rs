//! The files that are complete: compressed, counted, and dropped where there are too many.
//!
//! One recorder at a time has a folder; an uploader may take files out of it meanwhile. Whoever works
//! on a file holds its lock, so that none is compressed and delivered at once.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use profcol_component::files;
use profcol_parca::ipc;
use profcol_parca::padata::{BadFile, Delivered, Reader, begun, note_of};

const PLAIN: &str = "padata";
const COMPRESSED: &str = "padata.zst";
/// A file that is not yet what it is going to be called.
pub const UNFINISHED: &str = "padata.unfinished";

/// Locked by the process that records into the directory.
const LOCK: &str = ".recorder.lock";

/// A header is all that is read here.
const MAX_HEADER_RECORD: u32 = 0;
/// The longest record of a file whose samples are counted.
const MAX_RECORD: u32 = 256 << 20;

pub struct RecordingDirectory {
    path: PathBuf,
    level: i32,
    lock: File,
    /// The oldest first.
    complete: Vec<CompleteFile>,
}

struct CompleteFile {
    path: PathBuf,
    bytes: u64,
    /// None where another process has written it.
    samples: Option<u64>,
}

/// What dropping the oldest file has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropOutcome {
    File {
        /// Those that were not delivered.
        samples: u64,
    },
    /// Uploaders have all there are.
    InUse,
    Nothing,
}

impl RecordingDirectory {
    /// Makes the folder where there is none, and completes what was left behind in it.
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
        let mut left = Vec::new();
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
                Some(PLAIN) => left.push(path),
                _ => {}
            }
        }
        left.sort_by_key(|path| (begun(path), path.clone()));
        for path in left {
            directory.add(&path, None);
        }
        let files = &mut directory.complete;
        files.sort_by_key(|file| (begun(&file.path), file.path.clone()));
        Ok(directory)
    }

    /// False where the folder, or the lock in it, was removed or replaced: somebody else may record there.
    pub fn is_lock_held(&self) -> bool {
        let (Ok(lock), Ok(found)) = (self.lock.metadata(), self.path.join(LOCK).metadata()) else {
            return false;
        };
        (lock.dev(), lock.ino()) == (found.dev(), found.ino())
    }

    pub fn bytes(&self) -> u64 {
        self.complete.iter().map(|file| file.bytes).sum()
    }

    /// Compresses a complete file, or keeps it as it is where that is not possible. It is there under
    /// one of its two names at any moment.
    pub fn add(&mut self, plain: &Path, samples: Option<u64>) {
        let path = match self.compress(plain) {
            Ok(Some(compressed)) => compressed,
            Ok(None) => return,
            Err(error) => {
                // It is only in the way.
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

    /// None where nothing is left to keep, or somebody else has the file.
    fn compress(&self, plain: &Path) -> io::Result<Option<PathBuf>> {
        let mut source = match File::open(plain) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        // An uploader; it removes the file when it is done.
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

    /// Drops the oldest file that nobody delivers: removing one that is open makes no room.
    pub fn drop_oldest(&mut self) -> io::Result<DropOutcome> {
        let mut place = 0;
        while let Some(oldest) = self.complete.get(place) {
            let path = &oldest.path;
            let file = match File::open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.complete.remove(place);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if file.try_lock().is_err() {
                place += 1;
                continue;
            }
            let samples = oldest.undelivered(&file);
            ignore_not_found(fs::remove_file(path))?;
            tracing::warn!(path = %path.display(), samples, "Dropped the oldest file to make room.");
            self.complete.remove(place);
            return Ok(DropOutcome::File { samples });
        }
        Ok(match self.complete.is_empty() {
            true => DropOutcome::Nothing,
            false => DropOutcome::InUse,
        })
    }

    /// Forgets files that others removed.
    pub fn forget_removed(&mut self) {
        self.complete.retain(|file| file.path.exists());
    }
}

impl CompleteFile {
    /// How many of its samples nobody has delivered; `file` stays locked meanwhile.
    fn undelivered(&self, file: &File) -> u64 {
        let note = fs::read_to_string(note_of(&self.path)).unwrap_or_default();
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

    /// Adds up the rows of all batches but the first `settled`; none of them is decoded.
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
