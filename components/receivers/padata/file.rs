//! One file, read batch by batch.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use profcol_parca::ipc::{self, BadRecord};
use profcol_parca::padata::{BadFile, Batch, Reader};
use profcol_parca::v1::Stacks;
use profcol_parca::{RecordBatch, Refused, read_samples, to_model};
use profcol_profile::Profiles;

/// Where a compressed file may refer back to, as a power of two.
const WINDOW_LOG: u32 = 27;

pub struct Contents {
    reader: Reader<Box<dyn Read + Send>>,
    /// All stacks of the file so far.
    stacks: Stacks,
    read: u16,
    limit: usize,
}

/// What became of reading a batch.
pub enum Next {
    Batch {
        number: u16,
        profiles: Profiles,
    },
    /// It cannot be read, but the next one can.
    Bad {
        number: u16,
        at: u64,
        reason: Refused,
    },
    End,
}

impl Contents {
    pub fn open(path: &Path, file: File, longest_mib: u32) -> Result<Self, BadFile> {
        let is_compressed = path.extension().is_some_and(|ending| ending == "zst");
        let source: Box<dyn Read + Send> = if is_compressed {
            let bad = |error| BadFile::Io { at: 0, error };
            let mut decoder = zstd::Decoder::new(file).map_err(bad)?;
            decoder.window_log_max(WINDOW_LOG).map_err(bad)?;
            Box::new(decoder)
        } else {
            Box::new(BufReader::new(file))
        };
        Ok(Self {
            reader: Reader::new(source, longest_mib << 20)?,
            stacks: Stacks::default(),
            read: 0,
            limit: (longest_mib as usize) << 20,
        })
    }

    pub fn next(&mut self) -> Result<Next, BadFile> {
        let Some(batch) = self.reader.next_batch()? else {
            return Ok(Next::End);
        };
        let number = self.read;
        self.read += 1;
        let at = batch.at;
        Ok(match self.decode(&batch) {
            Ok(profiles) => Next::Batch { number, profiles },
            Err(reason) => Next::Bad { number, at, reason },
        })
    }

    fn decode(&mut self, batch: &Batch) -> Result<Profiles, Refused> {
        if let Some(stacks) = &batch.stacks {
            self.stacks.add(&self.rows(stacks)?)?;
        }
        let samples = read_samples(&self.rows(&batch.samples)?)?;
        Ok(Profiles::from_model(to_model(&samples, &self.stacks)?))
    }

    fn rows(&self, record: &[u8]) -> Result<RecordBatch, Refused> {
        let rows: Result<_, BadRecord> = ipc::read(record, self.limit);
        rows?.ok_or(Refused::NoBatch)
    }
}
