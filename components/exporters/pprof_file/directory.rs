//! The output directory: it has complete files only.
//!
//! A file is written under a hidden name, synced and then renamed, so that readers
//! only see complete files, also after a power failure. Leftovers of a crash are removed at
//! startup. The directory is locked, because removing leftovers and old files is only safe with
//! a single writer. It is recreated if it was removed or moved.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use profcol_component::files;

use super::buffer::EncodedFile;
use super::config::Retention;
use super::name::{Template, temporary};

pub(super) struct Directory {
    path: PathBuf,
    template: Template,
    retention: Option<Rules>,
    /// The sequence number of the next file.
    sequence: u64,
    /// The directory, locked if its file system supports that. `None` before it is opened.
    opened: Option<File>,
}

#[derive(Clone, Copy, Debug)]
struct Rules {
    max_files: Option<usize>,
    max_age: Option<Duration>,
    max_bytes: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum DirectoryError {
    #[error("failed to {action} {}: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} is locked by another pprof_file exporter: use a separate directory for each", .0.display())]
    InUse(PathBuf),
    #[error("no unused file name left in {}: add {{time}} to file_name", .0.display())]
    NoFreeName(PathBuf),
}

/// A file written by this exporter.
struct Kept {
    sequence: u64,
    path: PathBuf,
    bytes: u64,
    modified: SystemTime,
}

/// Number of attempts to find an unused number.
const MAX_TRIES: u64 = 1000;

impl Directory {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn new(path: &Path, template: Template, retention: Option<&Retention>) -> Self {
        Self {
            path: path.to_owned(),
            template,
            retention: retention.map(Rules::new),
            sequence: 1,
            opened: None,
        }
    }

    /// Creates and locks the directory, removes leftovers of a crash, and continues the sequence
    /// of the existing files.
    pub(super) fn open(&mut self) -> Result<(), DirectoryError> {
        files::create_directories(&self.path).map_err(|error| self.failed("create", error))?;
        let opened = self.try_lock()?;
        let read = |error| self.failed("read", error);
        let mut last = 0;
        for entry in fs::read_dir(&self.path).map_err(read)? {
            let entry = entry.map_err(read)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if self.template.is_temporary(name) {
                let path = entry.path();
                fs::remove_file(&path).map_err(|error| failed("remove", &path, error))?;
                tracing::info!(path = %path.display(), "Removed an incomplete file.");
            } else if let Some(sequence) = self.template.sequence_in(name) {
                last = last.max(sequence);
            }
        }
        self.sequence = self.sequence.max(last + 1);
        self.probe()?;
        self.opened = Some(opened);
        Ok(())
    }

    /// Releases the lock.
    pub(super) fn close(&mut self) {
        self.opened = None;
    }

    /// Writes a file atomically. Its name is durable after the next [`sync`](Self::sync).
    pub(super) fn write(&mut self, file: &EncodedFile) -> Result<PathBuf, DirectoryError> {
        if !self.is_there() {
            self.open()?;
            tracing::warn!(path = %self.path.display(), "The directory was removed or moved; created it again.");
        }
        let (path, temporary) = self.free_name(file)?;
        let written = write_and_sync(&temporary, &file.bytes)
            .map_err(|error| failed("write", &temporary, error))
            .and_then(|()| {
                fs::rename(&temporary, &path).map_err(|error| failed("rename", &temporary, error))
            });
        if let Err(error) = written {
            remove_if_there(&temporary);
            return Err(error);
        }
        self.sequence += 1;
        Ok(path)
    }

    /// Syncs the names of the files.
    pub(super) fn sync(&self) -> Result<(), DirectoryError> {
        let synced = File::open(&self.path).and_then(|directory| directory.sync_all());
        synced.map_err(|error| self.failed("sync the directory", error))
    }

    /// Removes files that are too old or too many, also counting the next file; returns how many
    /// were removed. Errors are only logged.
    pub(super) fn prune(&self, next: Option<&EncodedFile>) -> u64 {
        let Some(rules) = self.retention else {
            return 0;
        };
        match self.kept() {
            Ok(kept) => rules.prune(&kept, next),
            Err(error) => {
                tracing::warn!(%error, "Failed to list old files.");
                0
            }
        }
    }

    /// False if the path no longer refers to the opened directory.
    fn is_there(&self) -> bool {
        let Some(opened) = &self.opened else {
            return false;
        };
        match (fs::metadata(&self.path), opened.metadata()) {
            (Ok(found), Ok(opened)) => (found.dev(), found.ino()) == (opened.dev(), opened.ino()),
            (Err(error), _) => !matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ),
            (Ok(_), Err(_)) => true,
        }
    }

    fn try_lock(&self) -> Result<File, DirectoryError> {
        let directory = File::open(&self.path).map_err(|error| self.failed("open", error))?;
        match directory.try_lock() {
            Ok(()) => Ok(directory),
            Err(TryLockError::WouldBlock) => Err(DirectoryError::InUse(self.path.clone())),
            Err(TryLockError::Error(error)) => {
                // Some network file systems have no locks.
                tracing::warn!(path = %self.path.display(), %error, "Failed to lock the directory. Make sure that no other process writes to it.");
                Ok(directory)
            }
        }
    }

    /// Checks whether files can be written at all. A full disk is no error, since space may be freed.
    fn probe(&self) -> Result<(), DirectoryError> {
        let path = self.path.join(temporary("probe"));
        let probed = create(&path);
        remove_if_there(&path);
        match probed {
            Err(error) if !is_full(&error) => Err(failed("write", &path, error)),
            _ => Ok(()),
        }
    }

    fn free_name(&mut self, file: &EncodedFile) -> Result<(PathBuf, PathBuf), DirectoryError> {
        for _ in 0..MAX_TRIES {
            let name = self.template.name(&file.parts, self.sequence);
            let path = self.path.join(&name);
            let exists = path.try_exists();
            if !exists.map_err(|error| failed("look for", &path, error))? {
                return Ok((path, self.path.join(temporary(&name))));
            }
            self.sequence += 1;
        }
        Err(DirectoryError::NoFreeName(self.path.clone()))
    }

    /// The files of this exporter, oldest first.
    fn kept(&self) -> io::Result<Vec<Kept>> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let sequence = name
                .to_str()
                .and_then(|name| self.template.sequence_in(name));
            // Other programs may move files at any time.
            let (Some(sequence), Ok(metadata)) = (sequence, entry.metadata()) else {
                continue;
            };
            if metadata.is_file() {
                kept.push(Kept {
                    sequence,
                    path: entry.path(),
                    bytes: metadata.len(),
                    modified: metadata.modified()?,
                });
            }
        }
        kept.sort_by_key(|file| file.sequence);
        Ok(kept)
    }

    fn failed(&self, action: &'static str, source: io::Error) -> DirectoryError {
        failed(action, &self.path, source)
    }
}

impl Rules {
    fn new(retention: &Retention) -> Self {
        Self {
            max_files: (retention.max_files > 0).then_some(retention.max_files),
            max_age: (!retention.max_age.is_zero()).then(|| retention.max_age.to_std()),
            max_bytes: (retention.max_total_mib > 0)
                .then(|| retention.max_total_mib.saturating_mul(1 << 20)),
        }
    }

    fn prune(self, kept: &[Kept], next: Option<&EncodedFile>) -> u64 {
        let mut files = kept.len() + usize::from(next.is_some());
        let mut bytes: u64 = kept.iter().map(|file| file.bytes).sum();
        bytes += next.map_or(0, |next| next.bytes.len() as u64);
        let mut removed = 0;
        let Some((_newest, older)) = kept.split_last() else {
            return 0;
        };
        for file in older {
            let age = file.modified.elapsed().unwrap_or_default();
            let too_old = self.max_age.is_some_and(|max| age > max);
            let too_many = self.max_files.is_some_and(|max| files > max);
            let too_much = self.max_bytes.is_some_and(|max| bytes > max);
            if !(too_old || too_many || too_much) {
                continue;
            }
            match fs::remove_file(&file.path) {
                Ok(()) => removed += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(path = %file.path.display(), %error, "Failed to remove an old file.");
                    continue;
                }
            }
            files -= 1;
            bytes -= file.bytes;
        }
        removed
    }
}

impl DirectoryError {
    pub(super) fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }
}

pub(super) fn remove_if_there(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "Failed to remove a file.");
    }
}

fn write_and_sync(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Does not follow symlinks.
fn create(path: &Path) -> io::Result<File> {
    remove_if_there(path);
    files::options().write(true).create_new(true).open(path)
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> DirectoryError {
    DirectoryError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}
