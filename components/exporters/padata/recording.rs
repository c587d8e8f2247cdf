//! The file being written.
//!
//! The batch count in the header is raised only after a batch is on disk: a reader that trusts the count sees
//! complete batches, even after a power failure.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use profcol_component::files;
use profcol_parca::ipc::NotEncoded;
use profcol_parca::padata::{COUNT_AT, MAX_BATCHES, TooLong, header, push_frame};
use profcol_parca::v1::{encode_samples, encode_stacks};
use profcol_parca::{Frames, LabelRules, StackId, StackIds, Table, v2};
use profcol_profile::{Model, StackIdx};

use super::config::Schema;
use super::directory::UNFINISHED;

/// Maximum number of stacks remembered as written to the file. Beyond it all are forgotten and written
/// again: that costs bytes, not samples.
const MAX_STACKS: usize = 1 << 17;

pub struct Recording {
    file: File,
    path: PathBuf,
    begun: Instant,
    batches: u16,
    samples: u64,
    bytes: u64,
    stacks: HashSet<StackId>,
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    Encode(#[from] NotEncoded),
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error("failed to {action} {}: {error}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        error: io::Error,
    },
}

impl WriteError {
    pub fn is_of_full_disk(&self) -> bool {
        let is_full = |error: &io::Error| {
            matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            )
        };
        matches!(self, Self::Io { error, .. } if is_full(error))
    }
}

/// An encoded batch.
pub struct Encoded {
    bytes: Vec<u8>,
    samples: u64,
    stacks: Vec<StackId>,
}

impl Encoded {
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
}

impl Recording {
    /// Creates a file in `directory`. It is locked while it is written, so that no process takes it
    /// for a leftover.
    pub fn begin(directory: &Path) -> Result<Self, WriteError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_secs());
        let name = free_name(directory, now).map_err(|error| failed("list", directory, error))?;
        let path = directory.join(name);
        let file = create(&path).map_err(|error| failed("create", &path, error))?;
        Ok(Self {
            file,
            path,
            begun: Instant::now(),
            batches: 0,
            samples: 0,
            bytes: header().len() as u64,
            stacks: HashSet::new(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn len(&self) -> u64 {
        self.bytes
    }

    pub fn batches(&self) -> u16 {
        self.batches
    }

    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// False if the file or its directory was removed or moved.
    pub fn is_there(&self) -> bool {
        let (Ok(file), Ok(found)) = (self.file.metadata(), self.path.metadata()) else {
            return false;
        };
        (file.dev(), file.ino()) == (found.dev(), found.ino())
    }

    pub fn is_complete(&self, interval: Duration, max_bytes: u64) -> bool {
        self.begun.elapsed() >= interval || self.bytes >= max_bytes || self.batches == MAX_BATCHES
    }

    /// `None` if there is nothing to write.
    pub fn encode(
        &self,
        model: &Model,
        rules: &LabelRules,
        schema: Schema,
    ) -> Result<Option<Encoded>, WriteError> {
        let table = Table::new(model, rules);
        if table.rows() == 0 {
            return Ok(None);
        }
        let frames = Frames::new(model);
        let mut ids = StackIds::new(&frames);
        let mut bytes = Vec::new();
        let mut added: Vec<(StackId, Option<StackIdx>)> = Vec::new();
        match schema {
            Schema::V1 => {
                let samples = encode_samples(&table, &mut ids)?;
                push_frame(&mut bytes, &samples)?;
                let mut seen = HashSet::new();
                for &stack in &table.stacks {
                    let id = ids.id(stack);
                    if !self.stacks.contains(&id) && seen.insert(id) {
                        added.push((id, Some(stack)));
                    }
                }
                let stacks = encode_stacks(&frames, &added)?;
                push_frame(&mut bytes, &stacks)?;
            }
            Schema::V2 => {
                let record = v2::encode(&table, &frames, &mut ids)?;
                push_frame(&mut bytes, &record)?;
            }
        }
        Ok(Some(Encoded {
            bytes,
            samples: model.sample_count() as u64,
            stacks: added.into_iter().map(|(id, _)| id).collect(),
        }))
    }

    /// Truncates the remains of a failed write.
    pub fn cut(&self) -> io::Result<()> {
        self.file.set_len(self.bytes)
    }

    /// Writes a batch and syncs it. On failure the batch is not in the file.
    pub fn write(&mut self, batch: Encoded) -> Result<(), WriteError> {
        let batches = self.batches + 1;
        let failed = |action| {
            let path = self.path.clone();
            move |error| WriteError::Io {
                action,
                path,
                error,
            }
        };
        self.file
            .write_all_at(&batch.bytes, self.bytes)
            .and_then(|()| self.file.sync_data())
            .map_err(failed("write"))?;
        self.file
            .write_all_at(&batches.to_be_bytes(), COUNT_AT)
            .and_then(|()| self.file.sync_data())
            .map_err(failed("write"))?;
        self.batches = batches;
        self.samples += batch.samples;
        self.bytes += batch.len();
        if self.stacks.len() + batch.stacks.len() > MAX_STACKS {
            self.stacks.clear();
        }
        self.stacks.extend(batch.stacks);
        Ok(())
    }
}

/// Creates a locked file without batches. It gets its name last, so that uploaders never see it unlocked.
fn create(path: &Path) -> io::Result<File> {
    let unfinished = path.with_extension(UNFINISHED);
    let created = (|| {
        let file = files::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&unfinished)?;
        file.lock()?;
        file.write_all_at(&header(), 0)?;
        fs::rename(&unfinished, path)?;
        File::open(path.parent().unwrap_or(path))?.sync_all()?;
        Ok(file)
    })();
    if created.is_err() {
        // A leftover.
        let _ = fs::remove_file(&unfinished);
    }
    created
}

/// A name without any related file in the directory: no other recording, whether compressed, damaged or
/// refused, and no progress file. The clock may go back, and two files may be created in the same
/// second.
pub fn free_name(directory: &Path, now: u64) -> io::Result<String> {
    let process = std::process::id();
    let mut taken = HashSet::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let stem = name.trim_start_matches('.').split('.').next();
        taken.extend(stem.map(str::to_owned));
    }
    let mut stems = (now..).map(|second| format!("{second}-{process}"));
    let free = stems.find(|stem| !taken.contains(stem));
    let stem = free.ok_or_else(|| io::Error::other("no unused file name left"))?;
    Ok(format!("{stem}.padata"))
}

fn failed(action: &'static str, path: &Path, error: io::Error) -> WriteError {
    WriteError::Io {
        action,
        path: path.to_owned(),
        error,
    }
}
