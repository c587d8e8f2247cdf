//! One file, read batch by batch.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use profcol_parca::ipc::{self, BadRecord};
use profcol_parca::padata::{BadFile, Batch, Reader, writer};
use profcol_parca::v1::Stacks;
use profcol_parca::{RecordBatch, RecordError, read_samples, to_model};
use profcol_profile::Profiles;

/// A locked file: no other process writes or reads it.
#[derive(Debug)]
pub struct Owned {
    path: PathBuf,
    file: File,
}

impl Owned {
    /// `None` if another process has it, or if it is gone.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if file.try_lock().is_err() || is_written(path) {
            return Ok(None);
        }
        let owned = Self {
            path: path.to_owned(),
            file,
        };
        // The previous owner may have compressed or removed it before the lock was taken.
        Ok(owned.is_still_there()?.then_some(owned))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file from its beginning, with this limit per record.
    pub fn read(&self, max_record_mib: u32) -> Result<Contents, BadFile> {
        Ok(Contents {
            reader: self.reader(max_record_mib)?,
            stacks: Stacks::default(),
            read: 0,
            limit: (max_record_mib as usize) << 20,
        })
    }

    pub fn reader(&self, max_record_mib: u32) -> Result<Reader<Box<dyn Read + Send>>, BadFile> {
        let again = (&self.file).rewind().and_then(|()| self.file.try_clone());
        let file = again.map_err(|error| BadFile::Io { at: 0, error })?;
        Reader::of_file(&self.path, file, max_record_mib << 20)
    }

    fn is_still_there(&self) -> io::Result<bool> {
        let file = self.file.metadata()?;
        let found = std::fs::metadata(&self.path);
        Ok(found.is_ok_and(|found| (found.dev(), found.ino()) == (file.dev(), file.ino())))
    }
}

/// Whether the process in the file's name has it open. Parca Agent locks no files.
fn is_written(path: &Path) -> bool {
    let (Some(process), Ok(path)) = (writer(path), path.canonicalize()) else {
        return false;
    };
    if process == std::process::id() {
        return false;
    }
    let open = std::fs::read_dir(format!("/proc/{process}/fd"));
    let mut open = open.into_iter().flatten().flatten();
    open.any(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == path))
}

pub struct Contents {
    reader: Reader<Box<dyn Read + Send>>,
    /// All stacks of the file so far.
    stacks: Stacks,
    read: u16,
    limit: usize,
}

/// The result of reading a batch.
pub enum Next {
    Batch {
        number: u16,
        profiles: Profiles,
    },
    /// The batch is unreadable, but the next one may be readable.
    Bad {
        number: u16,
        at: u64,
        /// From the record, if readable.
        samples: u64,
        reason: RecordError,
    },
    End,
}

impl Contents {
    pub fn next_batch(&mut self) -> Result<Next, BadFile> {
        let Some(batch) = self.reader.next_batch()? else {
            return Ok(Next::End);
        };
        let number = self.read;
        self.read += 1;
        let at = batch.at;
        Ok(match self.decode(&batch) {
            Ok(profiles) => Next::Batch { number, profiles },
            Err(reason) => Next::Bad {
                number,
                at,
                samples: ipc::stated_rows(&batch.samples, self.limit).unwrap_or(0),
                reason,
            },
        })
    }

    /// Number of batches after those that were read, as the file says; at least the unread one.
    pub fn unread(&self) -> u64 {
        u64::from(self.reader.count().saturating_sub(self.read)).max(1)
    }

    fn decode(&mut self, batch: &Batch) -> Result<Profiles, RecordError> {
        if let Some(stacks) = &batch.stacks {
            self.stacks.add(&self.rows(stacks)?)?;
        }
        let samples = read_samples(&self.rows(&batch.samples)?)?;
        Ok(Profiles::from_model(to_model(&samples, &self.stacks)?))
    }

    fn rows(&self, record: &[u8]) -> Result<RecordBatch, RecordError> {
        let rows: Result<_, BadRecord> = ipc::read(record, self.limit);
        rows?.ok_or(RecordError::Empty)
    }
}
