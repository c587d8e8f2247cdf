//! The "native format" of ReadyToRun images: integers of variable length, a sparse array and a hash table made of them.
//! All positions are relative to a window.

use profcol_elf::Source;

use crate::DotNetError;
use crate::bytes::{Bytes, Window};
use crate::error::damaged;

/// Elements of an array share a tree of this many.
const BLOCK: u32 = 16;
/// More than methods can have tokens.
const MAX_ELEMENTS: u32 = 1 << 24;
const MAX_BUCKETS_SHIFT: u8 = 20;

/// An integer and the position after it.
pub(crate) fn unsigned<S: Source + ?Sized>(
    window: &Window<'_, S>,
    at: u64,
) -> Result<(u32, u64), DotNetError> {
    let (bytes, count) = window.peek::<5>(at)?;
    let bytes = bytes.get(..count).unwrap_or_default();
    let (value, _, size) = integer(bytes).ok_or_else(|| damaged("an integer of native code"))?;
    Ok((value, at + size))
}

fn signed<S: Source + ?Sized>(window: &Window<'_, S>, at: u64) -> Result<(i32, u64), DotNetError> {
    let (bytes, count) = window.peek::<5>(at)?;
    let bytes = bytes.get(..count).unwrap_or_default();
    let (value, bits, size) = integer(bytes).ok_or_else(|| damaged("an integer of native code"))?;
    let unused = 32 - bits;
    Ok(((value << unused).cast_signed() >> unused, at + size))
}

/// The value, its number of bits, and the number of bytes, which the lowest bits of the first byte tell.
fn integer(bytes: &[u8]) -> Option<(u32, u32, u64)> {
    let mut bytes = Bytes(bytes);
    let first = bytes.u8()?;
    Some(match first.trailing_ones() {
        0 => (u32::from(first) >> 1, 7, 1),
        1 => (u32::from_le_bytes([first, bytes.u8()?, 0, 0]) >> 2, 14, 2),
        2 => {
            let [b, c] = bytes.array()?;
            (u32::from_le_bytes([first, b, c, 0]) >> 3, 21, 3)
        }
        3 => {
            let [b, c, d] = bytes.array()?;
            (u32::from_le_bytes([first, b, c, d]) >> 4, 28, 4)
        }
        4 => (bytes.u32()?, 32, 5),
        _ => return None,
    })
}

/// A sparse array: an index of blocks, each a binary tree over the lowest four bits of the element's number.
#[derive(Debug)]
pub(crate) struct NativeArray<'w, 's, S: ?Sized> {
    window: &'w Window<'s, S>,
    base: u64,
    pub count: u32,
    index_shift: u32,
}

impl<'w, 's, S: Source + ?Sized> NativeArray<'w, 's, S> {
    pub fn read(window: &'w Window<'s, S>) -> Result<Self, DotNetError> {
        let (header, base) = unsigned(window, 0)?;
        let (count, index_shift) = (header >> 2, header & 3);
        if index_shift > 2 || count > MAX_ELEMENTS {
            return Err(damaged("an array of native code"));
        }
        Ok(Self {
            window,
            base,
            count,
            index_shift,
        })
    }

    /// Where an element is.
    pub fn get(&self, element: u32) -> Result<Option<u64>, DotNetError> {
        if element >= self.count {
            return Ok(None);
        }
        let at = self.base + (u64::from(element / BLOCK) << self.index_shift);
        let offset = entry(self.window, at, self.index_shift)?;
        let mut at = self.base + u64::from(offset);
        for bit in [8, 4, 2, 1] {
            let (node, next) = unsigned(self.window, at)?;
            let is_right = element & bit != 0;
            at = match is_right {
                true if node & 2 != 0 => at + u64::from(node >> 2),
                false if node & 1 != 0 => next,
                // Without children: a leaf for the one element of its part of the block.
                _ if node & 3 == 0 && node >> 2 == element % BLOCK => return Ok(Some(next)),
                _ => return Ok(None),
            };
        }
        Ok(Some(at))
    }
}

/// An unsigned integer of 1, 2 or 4 bytes.
fn entry<S: Source + ?Sized>(
    window: &Window<'_, S>,
    at: u64,
    shift: u32,
) -> Result<u32, DotNetError> {
    let (bytes, count) = window.peek::<4>(at)?;
    let mut bytes = Bytes(bytes.get(..count).unwrap_or_default());
    let value = match shift {
        0 => bytes.u8().map(u32::from),
        1 => bytes.u16().map(u32::from),
        _ => bytes.u32(),
    };
    value.ok_or_else(|| damaged("an index of native code"))
}

/// The positions of all entries of a hash table. Its buckets have a byte of the hash and a relative position for each
/// entry.
pub(crate) fn hashtable_entries<S: Source + ?Sized>(
    window: &Window<'_, S>,
    limit: usize,
) -> Result<Vec<u64>, DotNetError> {
    let damage = || damaged("a hash table of native code");
    let Some([header]) = window.array(0)? else {
        return Err(damage());
    };
    let (shift, index_shift) = (header >> 2, u32::from(header & 3));
    if shift > MAX_BUCKETS_SHIFT || index_shift > 2 {
        return Err(damage());
    }
    let base = 1;
    let mut entries = Vec::new();
    for bucket in 0..1_u64 << shift {
        let at = base + (bucket << index_shift);
        let start = entry(window, at, index_shift)?;
        let end = entry(window, at + (1 << index_shift), index_shift)?;
        let (mut at, end) = (base + u64::from(start), base + u64::from(end));
        while at < end {
            let (relative, next) = signed(window, at + 1)?;
            let entry = (at + 1).checked_add_signed(relative.into());
            entries.push(entry.ok_or_else(damage)?);
            if entries.len() > limit {
                return Err(damaged("too many entries in a hash table of native code"));
            }
            at = next;
        }
    }
    Ok(entries)
}
