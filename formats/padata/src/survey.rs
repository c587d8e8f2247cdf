//! The content of a directory of recordings, without delivering it.

use std::io;
use std::path::{Path, PathBuf};

use profcol_parca::ipc;
use profcol_parca::padata::{BadFile, created_seconds};
use profcol_parca::read_samples;

use crate::DEFAULT_MAX_RECORD_MIB;
use crate::directory::{Delivered, Progress, files};
use crate::file::Owned;

/// A recording file.
#[derive(Debug)]
pub struct Recording {
    pub path: PathBuf,
    pub bytes: u64,
    /// Seconds since 1970; 0 if its name has no time.
    pub begun: u64,
    pub state: State,
}

#[derive(Debug)]
pub enum State {
    Waiting {
        batches: u16,
        /// Number of batches with a known outcome.
        settled: u16,
        /// Number of batches that a destination refused.
        refused: usize,
    },
    /// Delivered and kept.
    Delivered,
    /// Being recorded or delivered.
    InUse,
    Unreadable(BadFile),
}

/// The content of a file.
#[derive(Debug, Default)]
pub struct Extent {
    /// Each is a stack with its labels; its value may stand for many samples.
    pub rows: u64,
    /// Times of the first and the last row, in nanoseconds since 1970.
    pub times: Option<(i64, i64)>,
    /// Why part of the file is unreadable.
    pub damage: Option<String>,
}

/// The files of a directory, oldest first.
pub fn survey(directory: &Path) -> io::Result<Vec<Recording>> {
    let files = files(directory)?.into_iter();
    let recordings = files.map(|path| Recording {
        bytes: path.metadata().map_or(0, |file| file.len()),
        begun: created_seconds(&path),
        state: state(&path).unwrap_or_else(State::Unreadable),
        path,
    });
    Ok(recordings.collect())
}

fn state(path: &Path) -> Result<State, BadFile> {
    let (settled, refused) = match Progress::of(path).read() {
        Delivered::Everything => return Ok(State::Delivered),
        Delivered::Batches { settled, refused } => (settled, refused.len()),
    };
    let owned = Owned::take(path).map_err(|error| BadFile::Io { at: 0, error })?;
    let Some(file) = owned else {
        return Ok(State::InUse);
    };
    Ok(State::Waiting {
        batches: file.reader(DEFAULT_MAX_RECORD_MIB)?.count(),
        settled,
        refused,
    })
}

impl Recording {
    /// Reads the whole file.
    pub fn extent(&self) -> Extent {
        let mut extent = Extent::default();
        if let Err(error) = self.read(&mut extent) {
            extent.damage = Some(error.to_string());
        }
        extent
    }

    fn read(&self, extent: &mut Extent) -> Result<(), BadFile> {
        let bad = |error| BadFile::Io { at: 0, error };
        let Some(file) = Owned::take(&self.path).map_err(bad)? else {
            return Ok(());
        };
        let mut reader = file.reader(DEFAULT_MAX_RECORD_MIB)?;
        let limit = (DEFAULT_MAX_RECORD_MIB as usize) << 20;
        while let Some(batch) = reader.next_batch()? {
            let read = ipc::read(&batch.samples, limit).map_err(profcol_parca::RecordError::from);
            let samples = read.and_then(|rows| rows.map(|rows| read_samples(&rows)).transpose());
            match samples {
                Ok(samples) => {
                    let times = samples.iter().flat_map(|samples| &samples.timestamp);
                    for &time in times {
                        extent.rows += 1;
                        let (first, last) = extent.times.unwrap_or((time, time));
                        extent.times = Some((first.min(time), last.max(time)));
                    }
                }
                Err(error) => {
                    extent.damage = Some(format!("the batch at byte {}: {error}", batch.at));
                }
            }
        }
        Ok(())
    }
}
