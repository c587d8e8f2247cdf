//! Walks the records of a segment, skipping damage.

use std::io;

use memchr::memmem;

use crate::disk::DiskFile;
use crate::format::{RECORD_HEADER, RECORD_MAGIC, RecordHeader, SEGMENT_HEADER, payload_check};

/// The position of a walk.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    salt: u64,
    at: u64,
    /// Records with a lower index are not accepted again.
    next_index: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Record {
        at: u64,
        header: RecordHeader,
    },
    /// Damaged bytes followed by a record.
    Damage {
        bytes: u64,
    },
    /// Damaged bytes at the end.
    Tail {
        bytes: u64,
    },
    End,
}

/// Chunk size of the search for the next record.
pub const CHUNK: usize = 64 << 10;

// === impl Walk ===

impl Walk {
    pub fn new(salt: u64) -> Self {
        Self {
            salt,
            at: SEGMENT_HEADER as u64,
            next_index: 0,
        }
    }

    /// The offset of the next step.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Skips a known record.
    pub fn pass(&mut self, index: u32, end: u64) {
        self.skip_to(index.saturating_add(1), end);
    }

    /// Continues at record `index` at offset `at`.
    pub fn skip_to(&mut self, index: u32, at: u64) {
        self.at = at;
        self.next_index = self.next_index.max(index);
    }

    /// Lower bound of the next record's index.
    pub fn next_index(&self) -> u32 {
        self.next_index
    }

    /// Steps to the next record before `end`.
    pub fn step(&mut self, file: &dyn DiskFile, end: u64) -> io::Result<Step> {
        let from = self.at;
        if from >= end {
            return Ok(Step::End);
        }
        if let Some(header) = self.record_at(file, from, end)? {
            self.pass(header.index, from + header.record_len());
            return Ok(Step::Record { at: from, header });
        }
        let found = self.search(file, from + 1, end)?;
        self.at = found.unwrap_or(end);
        let bytes = self.at - from;
        Ok(match found {
            Some(_) => Step::Damage { bytes },
            None => Step::Tail { bytes },
        })
    }

    fn record_at(
        &self,
        file: &dyn DiskFile,
        at: u64,
        end: u64,
    ) -> io::Result<Option<RecordHeader>> {
        if at + RECORD_HEADER as u64 > end {
            return Ok(None);
        }
        let mut bytes = [0; RECORD_HEADER];
        file.read_at(at, &mut bytes)?;
        let header = RecordHeader::decode(&bytes, self.salt);
        Ok(header
            .filter(|header| header.index >= self.next_index && at + header.record_len() <= end))
    }

    fn search(&self, file: &dyn DiskFile, mut from: u64, end: u64) -> io::Result<Option<u64>> {
        let magic = memmem::Finder::new(&RECORD_MAGIC);
        let mut chunk = vec![0; CHUNK];
        while from + RECORD_HEADER as u64 <= end {
            let len = CHUNK.min(usize::try_from(end - from).unwrap_or(CHUNK));
            let Some(chunk) = chunk.get_mut(..len) else {
                break;
            };
            file.read_at(from, chunk)?;
            for place in magic.find_iter(chunk) {
                let at = from + place as u64;
                if self.record_at(file, at, end)?.is_some() {
                    return Ok(Some(at));
                }
            }
            // The magic may span two chunks.
            from += (len - RECORD_MAGIC.len().min(len - 1) + 1) as u64;
        }
        Ok(None)
    }
}

/// Reads head and body of a record, or the reference in place of its body; `None` on a checksum mismatch.
pub fn read_payload(
    file: &dyn DiskFile,
    salt: u64,
    at: u64,
    header: &RecordHeader,
) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    // Bounded by the file size: the walk found the record within it.
    let mut head = vec![0; header.head_len as usize];
    let mut body = vec![0; header.stored_body_len()];
    file.read_at(at + RECORD_HEADER as u64, &mut head)?;
    file.read_at(at + RECORD_HEADER as u64 + head.len() as u64, &mut body)?;
    let is_intact = payload_check(salt, &head, &body) == header.payload_check;
    Ok(is_intact.then_some((head, body)))
}
