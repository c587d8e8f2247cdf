//! The directory of a storage: its lock, and the directory of each log.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use percent_encoding::utf8_percent_encode;
use profcol_component::files;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checkpoint::Checkpoint;
use crate::log::{Log, Recovered};
use crate::place::{ESCAPED, Place, Purpose};
use crate::recover::OpenError;
use crate::segment::Limits;
use crate::shared::{FOLDER, SharedBodies};
#[cfg(any(test, feature = "testkit"))]
use crate::simulated::SimulatedDisk;

/// Locked by the process that uses the directory; holds its PID.
const LOCK: &str = "lock";

/// Minimum number of segments per log, as only whole segments can be removed.
const SEGMENTS: u64 = 16;
const MAX_SEGMENT: u64 = 64 << 20;

#[derive(Clone, Debug)]
pub struct StorageOptions {
    pub directory: PathBuf,
    pub create_directory: bool,
    pub fsync: FsyncPolicy,
    /// Maximum size of each queue.
    pub max_bytes: u64,
    /// How to handle a full queue.
    pub when_full: WhenFull,
}

/// When to fsync written records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsyncPolicy {
    /// Before a batch is accepted.
    Always,
    /// At most this long after writing.
    Interval(Duration),
    /// Leave it to the kernel.
    Never,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    Block,
    DropOldest,
    DropNewest,
}

/// The storage of exporters' queues and of receivers' states.
pub struct Storage {
    options: StorageOptions,
    lock: Mutex<Option<File>>,
    place: Place,
    /// Opened with the first queue.
    bodies: Mutex<Option<Arc<SharedBodies>>>,
}

#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error("directory {0} does not exist: create it, or set `create_directory: true`")]
    Missing(PathBuf),
    #[error(
        "directory {directory} is in use by process {owner}: stop that process, or use another directory"
    )]
    InUse { directory: PathBuf, owner: String },
    #[error("directory {directory}: {error}")]
    Directory {
        directory: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("log in {directory}: {error}")]
    Log {
        directory: PathBuf,
        #[source]
        error: OpenError,
    },
}

impl Storage {
    /// Does not open anything yet.
    pub fn new(options: StorageOptions) -> Self {
        Self {
            place: Place::of(&options.directory),
            options,
            lock: Mutex::new(None),
            bodies: Mutex::new(None),
        }
    }

    /// On a simulated disk, in place of a locked directory.
    #[cfg(any(test, feature = "testkit"))]
    pub fn simulated(options: StorageOptions, disk: SimulatedDisk) -> Self {
        let mut storage = Self::new(options);
        storage.place.simulated = Some(disk);
        storage
    }

    #[cfg(feature = "testkit")]
    pub fn is_simulated(&self) -> bool {
        self.place.simulated.is_some()
    }

    pub fn options(&self) -> &StorageOptions {
        &self.options
    }

    /// Locks the directory for this process.
    pub fn lock(&self) -> Result<(), StorageError> {
        let directory = &self.options.directory;
        let failed = |error| StorageError::Directory {
            directory: directory.clone(),
            error,
        };
        if self.options.create_directory {
            files::create_directories(directory).map_err(failed)?;
        } else if !directory.is_dir() {
            return Err(StorageError::Missing(directory.clone()));
        }
        let mut file = files::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join(LOCK))
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) => {
                return Err(StorageError::InUse {
                    directory: directory.clone(),
                    owner: owner_in(file),
                });
            }
        }
        let write = file.set_len(0).and_then(|()| file.rewind());
        let write = write.and_then(|()| writeln!(file, "{}", std::process::id()));
        write.map_err(failed)?;
        *self.lock.lock() = Some(file);
        Ok(())
    }

    /// The process that has locked the directory. Creates nothing.
    pub fn owner(&self) -> Option<String> {
        owner_of(&self.options.directory)
    }

    /// Unlocks the directory; call after closing the queues.
    pub fn unlock(&self) {
        // Another process may change them.
        self.bodies.lock().take();
        self.lock.lock().take();
    }

    /// Opens an exporter's log and recovers the records of earlier runs. Blocking.
    pub fn open(&self, purpose: Purpose, exporter: &str) -> Result<(Log, Recovered), StorageError> {
        let folder = purpose.folder_of(exporter);
        let directory = self.place.path(&folder);
        let disk = self
            .place
            .create(&folder)
            .map_err(|error| StorageError::Directory {
                directory: directory.clone(),
                error,
            })?;
        let sharing = match purpose {
            Purpose::Queue => Some(self.bodies()?.join(folder)),
            Purpose::History => None,
        };
        Log::open_sharing(disk, self.limits(), sharing)
            .map_err(|error| StorageError::Log { directory, error })
    }

    /// The directory of the bodies that the queues share.
    pub fn shared_folder(&self) -> PathBuf {
        self.place.path(FOLDER)
    }

    /// The bodies that the queues share.
    fn bodies(&self) -> Result<Arc<SharedBodies>, StorageError> {
        let mut bodies = self.bodies.lock();
        if let Some(bodies) = &*bodies {
            return Ok(Arc::clone(bodies));
        }
        let opened = SharedBodies::open(self.place.clone(), self.limits());
        let opened = opened.map_err(|error| StorageError::Log {
            directory: self.shared_folder(),
            error,
        })?;
        Ok(Arc::clone(bodies.insert(Arc::new(opened))))
    }

    fn limits(&self) -> Limits {
        let max_bytes = self.options.max_bytes;
        Limits {
            max_bytes,
            segment_bytes: segment_bytes(max_bytes),
        }
    }

    /// The state of a receiver. Does not open anything yet.
    pub fn checkpoint(&self, receiver: &str) -> Checkpoint {
        let name = format!("receiver_{}", utf8_percent_encode(receiver, ESCAPED));
        Checkpoint::new(&self.options.directory, &name)
    }
}

fn segment_bytes(max_bytes: u64) -> u64 {
    (max_bytes / SEGMENTS).clamp(1, MAX_SEGMENT)
}

/// The process that holds the lock, if known.
pub fn owner_of(directory: &Path) -> Option<String> {
    let file = File::open(directory.join(LOCK)).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(owner_in(file)),
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

fn owner_in(file: File) -> String {
    let mut text = String::new();
    // A PID and a line break.
    let read = file.take(32).read_to_string(&mut text);
    match text.trim().parse::<u32>() {
        Ok(pid) if read.is_ok() => pid.to_string(),
        _ => "(unknown)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(directory: &Path, create_directory: bool) -> Storage {
        Storage::new(StorageOptions {
            directory: directory.to_owned(),
            create_directory,
            fsync: FsyncPolicy::Never,
            max_bytes: 1 << 20,
            when_full: WhenFull::Block,
        })
    }

    #[test]
    fn a_locked_directory_is_refused_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let first = storage(folder.path(), false);
        first.lock().unwrap();
        let refused = storage(folder.path(), false).lock().unwrap_err();
        let pid = std::process::id().to_string();
        assert!(
            refused.to_string().contains(&format!("by process {pid}:")),
            "{refused}"
        );
        assert_eq!(owner_of(folder.path()), Some(pid.clone()));
        assert_eq!(first.owner(), Some(pid));
        // It was killed before it wrote its number, or something else writes to the file.
        for text in ["", "a process\n", "-1\n"] {
            std::fs::write(folder.path().join(LOCK), text).unwrap();
            assert_eq!(first.owner().as_deref(), Some("(unknown)"), "{text:?}");
        }
        first.unlock();
        assert_eq!(first.owner(), None);
        assert_eq!(owner_of(folder.path()), None);
        storage(folder.path(), false).lock().unwrap();
    }

    #[test]
    fn a_missing_directory_is_created_only_if_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let refused = storage(&path, false).lock().unwrap_err();
        assert!(
            refused.to_string().contains("create_directory: true"),
            "{refused}"
        );
        storage(&path, true).lock().unwrap();
    }

    #[test]
    fn a_log_has_segments_to_remove_one_by_one() {
        assert_eq!(segment_bytes(1 << 20), 64 << 10);
        assert_eq!(segment_bytes(1 << 40), 64 << 20);
        assert_eq!(segment_bytes(3), 1);
    }
}
