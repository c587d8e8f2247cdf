//! Ruby objects: strings, and the first element of a two-element array.

use super::layout::{SequenceLayout, USER_1};
use crate::FunctionError;
use crate::memory::Memory;

/// Maximum length of a name or a path; longer ones are truncated.
const MAX_BYTES: usize = 1024;

/// The header of every object, and the members of strings and arrays after it.
const OBJECT_BYTES: usize = 40;
const LENGTH: usize = 16;
const STRING_DATA: usize = 24;
const ARRAY_DATA: usize = 32;
const SHORT_ARRAY: usize = 16;
const SHORT_LENGTH_SHIFT: u32 = 14;
const SHORT_LENGTH_MASK: u64 = 0x1f;

pub mod kind {
    pub const CLASS: u64 = 2;
    pub const MODULE: u64 = 3;
    pub const STRING: u64 = 5;
    pub const ARRAY: u64 = 7;
    pub const INTERNAL: u64 = 0x1a;
}

/// The type of an object, by its flags.
pub fn kind(flags: u64) -> u64 {
    flags & 0x1f
}

/// Whether a value is an object rather than a number, a symbol or the like.
pub fn is_object(value: u64) -> bool {
    value & 7 == 0 && value > 0x20
}

pub fn string(
    layout: &SequenceLayout,
    memory: &impl Memory,
    address: u64,
) -> Result<String, FunctionError> {
    let object = memory.bytes(address, OBJECT_BYTES)?;
    let invalid = FunctionError::Invalid("a string");
    let (Some(flags), Some(length)) = (word(&object, 0), word(&object, LENGTH)) else {
        return Err(invalid);
    };
    if kind(flags) != kind::STRING {
        return Err(invalid);
    }
    let is_short = flags & USER_1 == 0;
    let length = match is_short && layout.length_in_flags {
        true => flags >> SHORT_LENGTH_SHIFT & SHORT_LENGTH_MASK,
        false => length,
    };
    let data = match is_short {
        true => address.wrapping_add(layout.short_string.into()),
        false => word(&object, STRING_DATA).ok_or(invalid)?,
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(MAX_BYTES);
    let bytes = memory.bytes(data, length)?;
    // Drops a truncated character at the end.
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.chars().take(MAX_BYTES).collect())
}

/// A path, or the first element of an array of path and real path.
pub fn path(
    layout: &SequenceLayout,
    memory: &impl Memory,
    address: u64,
) -> Result<String, FunctionError> {
    let object = memory.bytes(address, OBJECT_BYTES)?;
    let flags = word(&object, 0).unwrap_or(0);
    if kind(flags) != kind::ARRAY {
        return string(layout, memory, address);
    }
    let first = match flags & USER_1 != 0 {
        true => word(&object, SHORT_ARRAY),
        false => Some(memory.word(word(&object, ARRAY_DATA).unwrap_or(0))?),
    };
    string(layout, memory, first.unwrap_or(0))
}

pub fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}
