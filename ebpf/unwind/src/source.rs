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

/// Parts that are held: who goes along an index and the two kinds of entries that it leads to is at
/// three places in turn.
const WINDOWS: usize = 4;

/// The parts of the file that were read last.
pub(crate) struct Window<'s, S: ?Sized> {
    source: &'s S,
    length: u64,
    held: [Held; WINDOWS],
    /// The one that is given up next.
    next: usize,
}

#[derive(Default)]
struct Held {
    offset: u64,
    bytes: Vec<u8>,
}

impl Held {
    fn part(&self, offset: u64, size: u64) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(size as usize)?)
    }
}

impl<'s, S: Source + ?Sized> Window<'s, S> {
    pub fn new(source: &'s S) -> Self {
        Self {
            source,
            length: source.len().unwrap_or(0),
            held: Default::default(),
            next: 0,
        }
    }

    pub fn get(&mut self, offset: u64, size: u64) -> Option<&[u8]> {
        let end = offset.checked_add(size)?;
        if end > self.length {
            return None;
        }
        let is_held = |held: &Held| held.part(offset, size).is_some();
        let place = match self.held.iter().position(is_held) {
            Some(place) => place,
            None => {
                let place = self.next;
                self.next = (place + 1) % WINDOWS;
                let size = size.max(WINDOW).min(self.length - offset);
                let bytes = self.source.read_at(offset, size as usize).ok()?;
                *self.held.get_mut(place)? = Held { offset, bytes };
                place
            }
        };
        self.held.get(place)?.part(offset, size)
    }
}
