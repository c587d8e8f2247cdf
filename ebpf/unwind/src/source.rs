//! Where the bytes of an executable come from.
//!
//! Files are read, not mapped: a file that is truncated under a mapping kills the reader, and mapped
//! pages count as its memory.

use crate::Refused;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

#[allow(
    clippy::len_without_is_empty,
    reason = "the length can fail, and nobody asks whether it is zero"
)]
pub trait Source {
    fn len(&self) -> io::Result<u64>;

    /// Exactly `length` bytes, or an error.
    fn read_at(&self, offset: u64, length: usize) -> io::Result<Vec<u8>>;
}

impl Source for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

impl Source for [u8] {
    fn len(&self) -> io::Result<u64> {
        Ok(<[u8]>::len(self) as u64)
    }

    fn read_at(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..start.checked_add(length)?))
            .map(<[u8]>::to_vec)
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Source for Vec<u8> {
    fn len(&self) -> io::Result<u64> {
        Source::len(self.as_slice())
    }

    fn read_at(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        self.as_slice().read_at(offset, length)
    }
}

/// Part of a file that has a name in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub what: &'static str,
    pub offset: u64,
    pub size: u64,
}

impl Part {
    /// Nothing is allocated for what is over the limit or outside of the file.
    pub fn read(self, source: &(impl Source + ?Sized), limit: u64) -> Result<Vec<u8>, Refused> {
        let Self { what, offset, size } = self;
        if size > limit {
            return Err(Refused::TooLarge { what, size, limit });
        }
        let unreadable = |error| Refused::Unreadable { what, error };
        let length = source.len().map_err(unreadable)?;
        if offset.checked_add(size).is_none_or(|end| end > length) {
            return Err(Refused::Broken { what });
        }
        source.read_at(offset, size as usize).map_err(unreadable)
    }
}

/// What is read at once: what belongs to neighbours mostly stands together.
const WINDOW: u64 = 16 << 10;

/// The part of the file that was read last.
pub(crate) struct Window<'s, S: ?Sized> {
    source: &'s S,
    length: u64,
    offset: u64,
    bytes: Vec<u8>,
}

impl<'s, S: Source + ?Sized> Window<'s, S> {
    pub fn new(source: &'s S) -> Self {
        Self {
            source,
            length: source.len().unwrap_or(0),
            offset: 0,
            bytes: Vec::new(),
        }
    }

    pub fn get(&mut self, offset: u64, size: u64) -> Option<&[u8]> {
        let end = offset.checked_add(size)?;
        if end > self.length {
            return None;
        }
        let held = self.offset..self.offset + self.bytes.len() as u64;
        if offset < held.start || end > held.end {
            let size = size.max(WINDOW).min(self.length - offset);
            self.bytes = self.source.read_at(offset, size as usize).ok()?;
            self.offset = offset;
        }
        let start = (offset - self.offset) as usize;
        self.bytes.get(start..start + size as usize)
    }
}
