//! Files to be written, including those that could not be written before.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::buffer::EncodedFile;
use super::directory::{Directory, DirectoryError, remove_if_there};
use super::telemetry::Telemetry;

pub(super) struct WriteQueue {
    pub(super) directory: Directory,
    /// Oldest first.
    pending: VecDeque<EncodedFile>,
    telemetry: Telemetry,
    pruned: Option<Instant>,
}

/// Listing old files takes time, so many small batches must not do it each time.
const PRUNE_INTERVAL: Duration = Duration::from_secs(1);

impl WriteQueue {
    pub(super) fn new(directory: Directory, telemetry: Telemetry) -> Self {
        Self {
            directory,
            pending: VecDeque::new(),
            telemetry,
            pruned: None,
        }
    }

    /// Writes pending files and then `files`; files that cannot be written stay pending. Old files
    /// are pruned first: they may be what fills the disk.
    pub(super) fn write(
        &mut self,
        files: impl Iterator<Item = EncodedFile>,
    ) -> Result<(), DirectoryError> {
        self.prune();
        let mut written = self.write_pending();
        for file in files {
            self.pending.push_back(file);
            if written.is_ok() {
                written = self.write_pending();
            }
        }
        let synced = self.directory.sync();
        self.prune();
        written.and(synced)
    }

    /// Writes all of `files` or none.
    pub(super) fn write_all(
        &mut self,
        files: impl Iterator<Item = EncodedFile>,
    ) -> Result<(), DirectoryError> {
        self.prune_if_due();
        let mut written = Vec::new();
        if let Err(error) = self.write_files(files, &mut written) {
            // The whole batch is sent again.
            written.iter().for_each(|(path, _)| remove_if_there(path));
            return Err(error);
        }
        for (_, bytes) in written {
            self.telemetry.wrote(bytes);
        }
        self.prune_if_due();
        Ok(())
    }

    fn write_files(
        &mut self,
        files: impl Iterator<Item = EncodedFile>,
        written: &mut Vec<(PathBuf, usize)>,
    ) -> Result<(), DirectoryError> {
        for file in files {
            let path = self.write_file(&file)?;
            written.push((path, file.bytes.len()));
        }
        self.directory.sync()
    }

    pub(super) fn prune(&mut self) {
        self.prune_before(None);
    }

    fn prune_if_due(&mut self) {
        let pruned = self.pruned;
        if pruned.is_none_or(|pruned| pruned.elapsed() >= PRUNE_INTERVAL) {
            self.prune();
        }
    }

    /// Returns the number of removed files.
    fn prune_before(&mut self, next: Option<&EncodedFile>) -> u64 {
        let removed = self.directory.prune(next);
        self.telemetry.removed_files.inc_by(removed);
        self.pruned = Some(Instant::now());
        removed
    }

    /// On a full disk, retention makes room for the file first.
    fn write_file(&mut self, file: &EncodedFile) -> Result<PathBuf, DirectoryError> {
        let error = match self.directory.write(file) {
            Ok(path) => return Ok(path),
            Err(error) => error,
        };
        self.telemetry.failed_writes.inc();
        if !error.is_disk_full() || self.prune_before(Some(file)) == 0 {
            return Err(error);
        }
        let written = self.directory.write(file);
        if written.is_err() {
            self.telemetry.failed_writes.inc();
        }
        written
    }

    pub(super) fn pending_bytes(&self) -> usize {
        let files = self.pending.iter();
        files
            .map(|file| file.bytes.len() + size_of::<EncodedFile>())
            .sum()
    }

    pub(super) fn pending_samples(&self) -> u64 {
        self.pending.iter().map(|file| file.samples).sum()
    }

    fn write_pending(&mut self) -> Result<(), DirectoryError> {
        while let Some(file) = self.pending.pop_front() {
            if let Err(error) = self.write_file(&file) {
                self.pending.push_front(file);
                return Err(error);
            }
            self.telemetry.wrote(file.bytes.len());
        }
        Ok(())
    }
}
