//! Strings of a program.

use crate::FunctionError;
use crate::memory::Memory;

/// Maximum length of a name or a path; longer ones are truncated.
pub const MAX_BYTES: usize = 1024;

/// Members of `GCstr`.
const KIND: u64 = 9;
const STRING: u8 = 4;
const LENGTH: u64 = 20;
const TEXT: u64 = 24;

/// A `GCstr`.
pub fn read(memory: &impl Memory, address: u64) -> Result<String, FunctionError> {
    let mut kind = [0];
    memory.read(address.wrapping_add(KIND), &mut kind)?;
    if kind != [STRING] {
        return Err(FunctionError::Invalid("a string"));
    }
    let mut length = [0; 4];
    memory.read(address.wrapping_add(LENGTH), &mut length)?;
    let length = (u32::from_le_bytes(length) as usize).min(MAX_BYTES);
    let bytes = memory.bytes(address.wrapping_add(TEXT), length)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.chars().take(MAX_BYTES).collect())
}
