//! Reads one file from a position on and splits it into records.
//!
//! Records are lines, or preceded by their length (four bytes, big-endian). The first byte
//! distinguishes them: JSON begins with `{`, which as a length would be 2 GB.
//!
//! An incomplete record is left in the file until the file grows.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use memchr::{memchr, memrchr};

use super::config::Format;
use super::positions::{FileId, Fingerprint, Position, Span};
use super::record::RecordError;

const BLOCK: usize = 64 << 10;
const LENGTH: usize = 4;

pub(super) struct Tail {
    pub(super) path: PathBuf,
    pub(super) id: FileId,
    /// `None` if the file was read to its end and closed, to limit the number of open files.
    file: Option<File>,
    /// How often it was truncated.
    generation: u64,
    /// Where to continue after a restart: after the last record, or before a line that is being skipped.
    position: Position,
    /// Beginning of the buffer.
    offset: u64,
    /// End of the file at the last scan: beyond `offset` if a record is
    /// incomplete.
    seen: u64,
    /// Bytes read from `offset` on; empty between scans.
    buffer: BytesMut,
    framing: Option<Framing>,
    /// Inside a line that is too long.
    skipping: bool,
    /// Whether it was logged that the rest of the file has to wait.
    logged_waiting: bool,
    pub(super) grew: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Lines,
    Lengths,
}

/// A record's position and bytes.
pub(super) struct RawRecord {
    pub(super) offset: u64,
    pub(super) record: Result<Bytes, RecordError>,
}

pub(super) struct FoundRecord {
    pub(super) raw: RawRecord,
    pub(super) span: Span,
}

/// Whether a truncated record may still be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Open,
    Final,
}

impl Tail {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Self {
            path: path.to_owned(),
            id: FileId::of(&file.metadata()?),
            file: Some(file),
            generation: 0,
            position: Position::default(),
            offset: 0,
            seen: 0,
            buffer: BytesMut::new(),
            framing: None,
            skipping: false,
            logged_waiting: false,
            grew: Instant::now(),
        })
    }

    pub(super) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    pub(super) fn close(&mut self) {
        self.file = None;
        self.buffer = BytesMut::new();
    }

    /// Skips all complete records; an incomplete one is read once it is complete.
    pub(super) fn skip_to_end(&mut self, format: Format) -> io::Result<()> {
        let length = self.length()?;
        self.offset = match self.framing(format)? {
            None => 0,
            Some(Framing::Lines) => self.last_line_end(length)?,
            Some(Framing::Lengths) => self.last_record_end(length)?,
        };
        self.buffer.clear();
        self.seen = self.offset;
        self.note_position()
    }

    pub(super) fn position(&self) -> Position {
        self.position
    }

    /// Continues at a position, or at the beginning if the file is another one or was truncated.
    pub(super) fn resume(&mut self, generation: u64, position: Position) -> io::Result<()> {
        self.generation = generation;
        self.position = position;
        self.offset = position.offset;
        self.notice_truncation()
    }

    /// Whether a file of this length has new data.
    pub(super) fn differs_from(&self, length: u64) -> bool {
        self.seen != length
    }

    /// The next record, or `None` if there is none yet.
    pub(super) fn next(
        &mut self,
        format: Format,
        limit: usize,
        end: End,
    ) -> io::Result<Option<FoundRecord>> {
        self.notice_truncation()?;
        let from = self.position;
        let found = match self.framing(format)? {
            None => None,
            Some(Framing::Lines) => self.next_line(limit, end)?,
            Some(Framing::Lengths) => self.next_length(limit, end)?,
        };
        let Some(raw) = found else {
            self.seen = self.offset + self.buffer.len() as u64;
            self.buffer = BytesMut::new();
            return Ok(None);
        };
        self.grew = Instant::now();
        match &raw.record {
            // The rest of the line is skipped first.
            Err(_) if self.skipping => {}
            Ok(bytes) if !bytes.is_empty() => {
                self.position = Position {
                    offset: self.offset,
                    fingerprint: Fingerprint::of(bytes),
                }
            }
            Ok(_) | Err(_) => {
                // If the file cannot be read, the position stays before this record.
                let _ = self.note_position();
            }
        }
        Ok(Some(FoundRecord {
            span: Span {
                file: self.id,
                generation: self.generation,
                from,
                to: self.position,
            },
            raw,
        }))
    }

    /// A file that is shorter than what was read of it, or has other bytes before its position, was truncated and
    /// starts again.
    fn notice_truncation(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            return Ok(());
        }
        let Position {
            offset,
            fingerprint,
        } = self.position;
        let is_same = self.length()? >= self.offset
            && self.fingerprint(offset, fingerprint.length())? == fingerprint;
        if !is_same {
            tracing::info!(path = %self.path.display(), "File truncated or replaced; reading it from the beginning.");
            self.generation += 1;
            self.position = Position::default();
            self.offset = 0;
            self.framing = None;
            self.skipping = false;
        }
        Ok(())
    }

    /// The position is the offset.
    fn note_position(&mut self) -> io::Result<()> {
        self.position = Position {
            offset: self.offset,
            fingerprint: self.fingerprint(self.offset, Fingerprint::MAX)?,
        };
        Ok(())
    }

    /// The fingerprint of up to `length` bytes before an offset.
    fn fingerprint(&mut self, offset: u64, length: u16) -> io::Result<Fingerprint> {
        let length = u64::from(length).min(offset);
        let mut bytes = vec![0; length as usize];
        self.file()?.read_exact_at(&mut bytes, offset - length)?;
        Ok(Fingerprint::of(&bytes))
    }

    fn framing(&mut self, format: Format) -> io::Result<Option<Framing>> {
        if self.framing.is_none() {
            let mut first = [0];
            let read = self.file()?.read_at(&mut first, 0)?;
            self.framing = match first {
                _ if read == 0 => None,
                _ if format == Format::Proto => Some(Framing::Lengths),
                [b'{' | b' ' | b'\t' | b'\r' | b'\n'] => Some(Framing::Lines),
                _ => Some(Framing::Lengths),
            };
        }
        Ok(self.framing)
    }

    fn next_line(&mut self, limit: usize, end: End) -> io::Result<Option<RawRecord>> {
        let mut searched = 0;
        loop {
            let rest = self.buffer.get(searched..).unwrap_or_default();
            if let Some(position) = memchr(b'\n', rest) {
                let line = self.take(searched + position + 1);
                searched = 0;
                let ended_long_line = std::mem::take(&mut self.skipping);
                if !ended_long_line && !line.is_blank() {
                    return Ok(Some(line.bounded(limit)));
                }
                continue;
            }
            searched = self.buffer.len();
            if searched > limit || (self.skipping && searched > 0) {
                let part = self.take(searched);
                searched = 0;
                if !std::mem::replace(&mut self.skipping, true) {
                    let record = Err(RecordError::TooLong(limit));
                    return Ok(Some(RawRecord { record, ..part }));
                }
            }
            if self.fill(BLOCK)? == 0 {
                let last = (end == End::Final).then(|| self.take(searched));
                return Ok(last.filter(|line| !line.is_blank()));
            }
        }
    }

    fn next_length(&mut self, limit: usize, end: End) -> io::Result<Option<RawRecord>> {
        if !self.fill_to(LENGTH)? {
            return self.torn(end);
        }
        let Some(prefix) = self.buffer.first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*prefix) as usize;
        if length > limit {
            return self.too_long(length, limit, end);
        }
        if !self.fill_to(LENGTH + length)? {
            return self.torn(end);
        }
        let mut found = self.take(LENGTH + length);
        found.record = found.record.map(|mut bytes| bytes.split_off(LENGTH));
        Ok(Some(found))
    }

    /// Skips a record that is too long once all of it is there. Until then the length may also be
    /// garbage, so the start of the next record is unknown.
    fn too_long(&mut self, length: usize, limit: usize, end: End) -> io::Result<Option<RawRecord>> {
        let next = self.offset + (LENGTH + length) as u64;
        if self.length()? < next {
            if !std::mem::replace(&mut self.logged_waiting, true) {
                tracing::warn!(
                    path = %self.path.display(),
                    offset = self.offset,
                    length,
                    max_record_size = limit,
                    "The record is too long and incomplete, or the file is damaged; waiting for its end."
                );
            }
            return self.torn(end);
        }
        let found = RawRecord {
            offset: self.offset,
            record: Err(RecordError::TooLong(limit)),
        };
        self.offset = next;
        self.buffer.clear();
        Ok(Some(found))
    }

    /// Handles the rest at the end of a file.
    fn torn(&mut self, end: End) -> io::Result<Option<RawRecord>> {
        if end == End::Open || self.buffer.is_empty() {
            return Ok(None);
        }
        let found = RawRecord {
            offset: self.offset,
            record: Err(RecordError::Torn),
        };
        // Also discards what was not read: nothing after it can be decoded.
        self.offset = self.length()?;
        self.buffer.clear();
        Ok(Some(found))
    }

    fn take(&mut self, bytes: usize) -> RawRecord {
        let found = RawRecord {
            offset: self.offset,
            record: Ok(self.buffer.split_to(bytes).freeze()),
        };
        self.offset += bytes as u64;
        found
    }

    /// Reads until the buffer holds this many bytes; `false` if the file ends before.
    fn fill_to(&mut self, bytes: usize) -> io::Result<bool> {
        while let Some(missing) = bytes.checked_sub(self.buffer.len())
            && missing > 0
        {
            // Bounded, so that a corrupt length does not reserve memory beyond the file's size.
            if self.fill(missing.clamp(BLOCK, 16 * BLOCK))? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn fill(&mut self, bytes: usize) -> io::Result<usize> {
        let old = self.buffer.len();
        self.buffer.resize(old + bytes, 0);
        let position = self.offset + old as u64;
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = match buffer.get_mut(old..) {
            Some(room) => self.file().and_then(|file| file.read_at(room, position)),
            None => Ok(0),
        };
        buffer.truncate(old + *read.as_ref().unwrap_or(&0));
        self.buffer = buffer;
        read
    }

    fn last_line_end(&mut self, length: u64) -> io::Result<u64> {
        let mut block = vec![0; BLOCK];
        let mut end = length;
        while end > 0 {
            let start = end.saturating_sub(BLOCK as u64);
            let part = &mut block[..(end - start) as usize];
            self.file()?.read_exact_at(part, start)?;
            if let Some(position) = memrchr(b'\n', part) {
                return Ok(start + position as u64 + 1);
            }
            end = start;
        }
        Ok(0)
    }

    fn last_record_end(&mut self, length: u64) -> io::Result<u64> {
        let mut position = 0;
        while position + LENGTH as u64 <= length {
            let mut prefix = [0; LENGTH];
            self.file()?.read_exact_at(&mut prefix, position)?;
            let next = position + (LENGTH as u64) + u64::from(u32::from_be_bytes(prefix));
            if next > length {
                break;
            }
            position = next;
        }
        Ok(position)
    }

    fn length(&mut self) -> io::Result<u64> {
        Ok(self.file()?.metadata()?.len())
    }

    /// The file, reopened if it was closed.
    fn file(&mut self) -> io::Result<&File> {
        match &mut self.file {
            Some(file) => Ok(file),
            closed => {
                let file = File::open(&self.path)?;
                if FileId::of(&file.metadata()?) != self.id {
                    let message = "the file was replaced";
                    return Err(io::Error::new(io::ErrorKind::NotFound, message));
                }
                Ok(closed.insert(file))
            }
        }
    }
}

impl RawRecord {
    /// The record, or an error if it is longer than `limit`.
    fn bounded(self, limit: usize) -> Self {
        let bounded = |line: Bytes| {
            let content = line.len() - usize::from(line.ends_with(b"\n"));
            if content > limit {
                return Err(RecordError::TooLong(limit));
            }
            Ok(line)
        };
        Self {
            record: self.record.and_then(bounded),
            ..self
        }
    }

    fn is_blank(&self) -> bool {
        self.record
            .as_ref()
            .is_ok_and(|line| super::record::first_word(line).is_none())
    }
}
