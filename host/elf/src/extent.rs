//! Ranges of a file.

use std::io::{self, Read};
use std::ops::Range;

use crate::{ElfError, Source};

/// A range of a file, with a name for error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub what: &'static str,
    pub offset: u64,
    pub size: u64,
}

impl Extent {
    /// Reads all of it. Allocates nothing if it exceeds the limit or the file.
    pub fn read(self, source: &(impl Source + ?Sized), limit: u64) -> Result<Vec<u8>, ElfError> {
        self.check_size(limit)?;
        let length = source.length().map_err(|error| self.unreadable(error))?;
        self.inside(length)?;
        let mut bytes = vec![0; self.size as usize];
        let read = source.read_at(&mut bytes, self.offset);
        read.map_err(|error| self.unreadable(error))?;
        Ok(bytes)
    }

    /// The range, if a file of this length contains it.
    pub fn inside(self, length: u64) -> Result<Range<u64>, ElfError> {
        let Self { what, offset, size } = self;
        match offset.checked_add(size) {
            Some(end) if end <= length => Ok(offset..end),
            _ => Err(ElfError::Outside {
                what,
                offset,
                size,
                length,
            }),
        }
    }

    pub fn check_size(self, limit: u64) -> Result<(), ElfError> {
        let Self { what, offset, size } = self;
        if size > limit {
            return Err(ElfError::TooLarge {
                what,
                offset,
                size,
                limit,
            });
        }
        Ok(())
    }

    pub fn unreadable(self, error: io::Error) -> ElfError {
        let Self { what, offset, .. } = self;
        ElfError::Unreadable {
            what,
            offset,
            error,
        }
    }

    /// Reads it piece by piece.
    pub fn reader<S: Source + ?Sized>(self, source: &S) -> ExtentReader<'_, S> {
        ExtentReader {
            source,
            at: self.offset,
            end: self.offset.saturating_add(self.size),
        }
    }
}

/// A sequential reader of an extent; fails if the file ends before.
#[derive(Debug)]
pub struct ExtentReader<'s, S: ?Sized> {
    source: &'s S,
    at: u64,
    end: u64,
}

impl<S: ?Sized> ExtentReader<'_, S> {
    pub fn skip(&mut self, count: u64) {
        self.at = self.at.saturating_add(count);
    }
}

impl<S: Source + ?Sized> Read for ExtentReader<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let most = buffer.len().min(left);
        let buffer = buffer.get_mut(..most).unwrap_or_default();
        self.source.read_at(buffer, self.at)?;
        self.at = self.at.saturating_add(most as u64);
        Ok(most)
    }
}
