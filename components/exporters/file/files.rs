//! The open files.

use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::record_file::{FileRules, RecordFile};

pub(super) struct Files {
    rules: FileRules,
    /// Truncate the first file instead of appending to it.
    truncate: bool,
    /// The permissions of directories to create; `None` creates none.
    create_directories: Option<u32>,
    max_open: usize,
    open: HashMap<PathBuf, Open>,
    /// Counts uses, to find the least recently used file.
    clock: u64,
}

struct Open {
    file: RecordFile,
    last_use: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("failed to write to {}: {source}", path.display())]
pub(super) struct WriteError {
    pub(super) path: PathBuf,
    pub(super) source: io::Error,
}

impl WriteError {
    /// Whether the path itself is invalid, so that a retry cannot help.
    pub(super) fn is_bad_path(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename
        )
    }
}

impl Files {
    pub(super) fn new(
        rules: FileRules,
        truncate: bool,
        create_directories: Option<u32>,
        max_open: usize,
    ) -> Self {
        Self {
            rules,
            truncate,
            create_directories,
            max_open,
            open: HashMap::new(),
            clock: 0,
        }
    }

    /// Appends a record to the file at `path`; returns its start.
    pub(super) fn append(&mut self, path: &Path, record: &[u8]) -> Result<u64, WriteError> {
        self.close_if_moved(path);
        let rules = self.rules.clone();
        self.with(path, |file| file.append(record, &rules))
    }

    /// Removes a record that [`append`](Self::append) wrote at `start`.
    pub(super) fn take_back(&mut self, path: &Path, start: u64) -> Result<(), WriteError> {
        self.with(path, |file| file.cut(start))
    }

    /// Opens the file early, so that errors are reported at startup.
    pub(super) fn open(&mut self, path: &Path) -> Result<(), WriteError> {
        self.with(path, |_| Ok(()))
    }

    pub(super) fn creates_directories(&self) -> bool {
        self.create_directories.is_some()
    }

    /// Creates the directory of a file that is written later.
    pub(super) fn prepare(&self, path: &Path) -> Result<(), WriteError> {
        self.create_directory_of(path).map_err(|source| WriteError {
            path: path.to_owned(),
            source,
        })
    }

    /// The files with data that is not synced.
    pub(super) fn take_unsynced(&mut self) -> Vec<(PathBuf, Arc<File>)> {
        let unsynced = self.open.iter_mut().filter_map(|(path, open)| {
            let file = open.file.take_unsynced()?;
            Some((path.clone(), file))
        });
        unsynced.collect()
    }

    fn with<R>(
        &mut self,
        path: &Path,
        act: impl FnOnce(&mut RecordFile) -> io::Result<R>,
    ) -> Result<R, WriteError> {
        self.clock += 1;
        let clock = self.clock;
        let result = match self.open.get_mut(path) {
            Some(open) => {
                open.last_use = clock;
                act(&mut open.file)
            }
            None => self.open_new(path).and_then(|mut file| {
                let result = act(&mut file);
                let last_use = clock;
                self.open.insert(path.to_owned(), Open { file, last_use });
                result
            }),
        };
        result.map_err(|source| WriteError {
            path: path.to_owned(),
            source,
        })
    }

    fn open_new(&mut self, path: &Path) -> io::Result<RecordFile> {
        while self.open.len() >= self.max_open {
            self.close_longest_unused();
        }
        self.create_directory_of(path)?;
        if self.truncate {
            let file = RecordFile::create(path.to_owned())?;
            self.truncate = false;
            return Ok(file);
        }
        RecordFile::append_to(path.to_owned(), &self.rules)
    }

    /// Other programs, such as `logrotate`, may move or remove a file at any time.
    fn close_if_moved(&mut self, path: &Path) {
        let open = self.open.get(path);
        if open.is_none_or(|open| open.file.is_at_its_path()) {
            return;
        }
        let Some(moved) = self.open.remove(path) else {
            return;
        };
        tracing::info!(path = %path.display(), "The file was moved or removed; creating a new one.");
        if let Err(error) = moved.file.close() {
            tracing::error!(path = %path.display(), %error, "Failed to sync; accepted records may be lost.");
        }
    }

    fn close_longest_unused(&mut self) {
        let longest = self.open.iter().min_by_key(|(_, open)| open.last_use);
        if let Some(path) = longest.map(|(path, _)| path.clone()) {
            self.open.remove(&path);
        }
    }

    fn create_directory_of(&self, path: &Path) -> io::Result<()> {
        match (self.create_directories, path.parent()) {
            (Some(mode), Some(directory)) if !directory.as_os_str().is_empty() => DirBuilder::new()
                .recursive(true)
                .mode(mode)
                .create(directory),
            _ => Ok(()),
        }
    }
}
