//! What a folder of recordings has, without delivering any of it.

use std::io;
use std::path::{Path, PathBuf};

use profcol_parca::ipc;
use profcol_parca::padata::{BadFile, begun};
use profcol_parca::read_samples;

use super::config::PadataConfig;
use super::file::Owned;
use super::folder::{Delivered, Progress, files};

/// A file.
#[derive(Debug)]
pub struct Recording {
    pub path: PathBuf,
    pub bytes: u64,
    /// Seconds since 1970; 0 where its name does not say.
    pub begun: u64,
    pub state: State,
}

#[derive(Debug)]
pub enum State {
    Waiting {
        batches: u16,
        /// Of those, the ones of which it is known what became of them.
        settled: u16,
        /// Of those, the ones that a destination refused.
        refused: usize,
    },
    /// It was delivered, and is kept.
    Delivered,
    /// Somebody records to it or delivers it.
    InUse,
    Unreadable(BadFile),
}

/// What a file says.
#[derive(Debug, Default)]
pub struct Extent {
    /// Each a stack with its labels; its value may stand for many samples.
    pub rows: u64,
    /// The first and the last row's time, in nanoseconds since 1970.
    pub times: Option<(i64, i64)>,
    /// Why not everything could be read.
    pub damage: Option<String>,
}

/// The files of a folder, the oldest first.
pub fn survey(folder: &Path) -> io::Result<Vec<Recording>> {
    let files = files(folder)?.into_iter();
    let recordings = files.map(|path| Recording {
        bytes: path.metadata().map_or(0, |file| file.len()),
        begun: begun(&path),
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
        batches: file.reader(longest_mib())?.count(),
        settled,
        refused,
    })
}

fn longest_mib() -> u32 {
    PadataConfig::default().max_record_mib
}

impl Recording {
    /// Reads all of it.
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
        let mut reader = file.reader(longest_mib())?;
        let limit = (longest_mib() as usize) << 20;
        while let Some(batch) = reader.next_batch()? {
            let read = ipc::read(&batch.samples, limit).map_err(profcol_parca::Refused::from);
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
