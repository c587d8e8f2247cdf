//! Reads the records of a segment in order, without taking them out of the log.

use std::io;
use std::sync::Arc;

use crate::disk::DiskFile;
use crate::format::{Counts, RECORD_HEADER, RecordHeader};
use crate::walk::{Step, Walk, read_payload};

/// The published records of a segment. It keeps the file open, so the segment may be removed meanwhile.
pub struct Browser {
    file: Arc<dyn DiskFile>,
    walk: Walk,
    salt: u64,
    end: u64,
}

/// A record whose body is not read yet.
#[derive(Clone, Debug)]
pub struct BrowsedRecord {
    /// Not yet verified.
    pub head: Vec<u8>,
    at: u64,
    header: RecordHeader,
}

impl Browser {
    pub(crate) fn new(file: Arc<dyn DiskFile>, salt: u64, end: u64) -> Self {
        Self {
            file,
            walk: Walk::new(salt),
            salt,
            end,
        }
    }

    /// The next record, or `Err` for damaged bytes, after which it may be called again; `None` at the end.
    pub fn next_record(&mut self) -> Option<io::Result<BrowsedRecord>> {
        match self.walk.step(&*self.file, self.end) {
            Ok(Step::Record { at, header }) => {
                let mut head = vec![0; header.head_len as usize];
                let read = self.file.read_at(at + RECORD_HEADER as u64, &mut head);
                Some(read.map(|()| BrowsedRecord { head, at, header }))
            }
            Ok(Step::Damage { .. } | Step::Tail { .. }) => Some(Err(damaged())),
            Ok(Step::End) => None,
            Err(error) => {
                // The rest is out of reach.
                self.end = self.walk.at();
                Some(Err(error))
            }
        }
    }

    /// The verified body.
    pub fn body(&self, record: &BrowsedRecord) -> io::Result<Vec<u8>> {
        if record.header.has_reference {
            // Only queues share bodies.
            return Err(damaged());
        }
        let payload = read_payload(&*self.file, self.salt, record.at, &record.header)?;
        payload.map(|(_, body)| body).ok_or_else(damaged)
    }
}

impl BrowsedRecord {
    /// The index in the segment.
    pub fn index(&self) -> u32 {
        self.header.index
    }

    pub fn counts(&self) -> Counts {
        self.header.counts
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "damaged bytes")
}
