//! Little-endian values at the front of bytes, and at positions of a source.

use profcol_elf::{Extent, Source};

use crate::DotNetError;

/// The bytes that are left to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'b>(pub &'b [u8]);

impl<'b> Bytes<'b> {
    pub fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// An unsigned integer as in blobs and signatures (ECMA-335 II.23.2): one, two or four bytes, the first bits say
    /// which.
    pub fn compressed(&mut self) -> Option<u32> {
        let first = self.u8()?;
        let low = u32::from(first);
        match first.leading_ones() {
            0 => Some(low),
            1 => Some((low & 0x3f) << 8 | u32::from(self.u8()?)),
            2 => {
                let [b, c, d] = self.array()?;
                Some(u32::from_be_bytes([first & 0x1f, b, c, d]))
            }
            _ => None,
        }
    }

    /// A signed integer as in blobs: the sign is in the lowest bit, the value is rotated.
    pub fn compressed_signed(&mut self) -> Option<i32> {
        let before = self.0.len();
        let rotated = self.compressed()?;
        let bits = match before - self.0.len() {
            1 => 7,
            2 => 14,
            _ => 29,
        };
        let value = (rotated >> 1).cast_signed();
        Some(match rotated & 1 {
            0 => value,
            _ => value - (1 << (bits - 1)),
        })
    }
}

/// A range of a source.
#[derive(Debug)]
pub(crate) struct Window<'s, S: ?Sized> {
    pub source: &'s S,
    pub extent: Extent,
}

impl<S: Source + ?Sized> Window<'_, S> {
    /// Up to `N` bytes at a position of the window, less only at its end.
    pub fn peek<const N: usize>(&self, at: u64) -> Result<([u8; N], usize), DotNetError> {
        let left = self.extent.size.saturating_sub(at);
        let count = (N as u64).min(left) as usize;
        let mut bytes = [0; N];
        if let Some(bytes) = bytes.get_mut(..count) {
            read_at(self.source, self.extent.what, self.extent.offset, at, bytes)?;
        }
        Ok((bytes, count))
    }

    /// Exactly `N` bytes, if the window has them.
    pub fn array<const N: usize>(&self, at: u64) -> Result<Option<[u8; N]>, DotNetError> {
        let (bytes, count) = self.peek(at)?;
        Ok((count == N).then_some(bytes))
    }
}

/// Fills the buffer from `base + at`.
pub(crate) fn read_at(
    source: &(impl Source + ?Sized),
    what: &'static str,
    base: u64,
    at: u64,
    buffer: &mut [u8],
) -> Result<(), DotNetError> {
    let extent = Extent {
        what,
        offset: base.saturating_add(at),
        size: buffer.len() as u64,
    };
    let read = source.read_at(buffer, extent.offset);
    Ok(read.map_err(|error| extent.unreadable(error))?)
}
