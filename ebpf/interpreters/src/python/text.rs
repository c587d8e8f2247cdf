//! Strings: `PyUnicodeObject`, in the kinds that the compiler uses for names.

use super::layout::{TextFlags, TextLayout};
use crate::FunctionError;
use crate::memory::Memory;

/// Maximum characters of a name or a path; longer ones are truncated.
const MAX_CHARACTERS: usize = 1024;

/// Bytes that include all members of the object.
const OBJECT_BYTES: usize = 64;

/// The number of bytes of a character.
const KIND: u32 = 7;
const COMPACT: u32 = 1 << 3;
const ASCII: u32 = 1 << 4;

pub fn read(
    layout: &TextLayout,
    memory: &impl Memory,
    address: u64,
) -> Result<String, FunctionError> {
    let object = memory.padded(address, OBJECT_BYTES)?;
    let word = |at: u32| {
        let bytes = object.get(at as usize..).and_then(<[u8]>::first_chunk);
        bytes.map(|bytes| u64::from_le_bytes(*bytes))
    };
    let (Some(length), Some(state)) = (word(layout.length), word(layout.state)) else {
        return Err(FunctionError::Invalid("a string"));
    };
    let flags = match layout.flags {
        TextFlags::AfterBits => state as u32 >> 2,
        TextFlags::AfterByte => state as u32 >> 8,
    };
    if flags & COMPACT == 0 {
        return Err(FunctionError::Invalid("a string"));
    }
    let count = usize::try_from(length)
        .unwrap_or(usize::MAX)
        .min(MAX_CHARACTERS);
    let kind = (flags & KIND) as usize;
    let (data, width) = match (flags & ASCII != 0, kind) {
        (true, _) => (layout.ascii_data, 1),
        (false, 1 | 2 | 4) => (layout.other_data, kind),
        _ => return Err(FunctionError::Invalid("a string")),
    };
    let bytes = memory.bytes(address.wrapping_add(data.into()), count * width)?;
    let characters = bytes.chunks_exact(width).map(|character| {
        let mut number = [0; 4];
        for (to, from) in number.iter_mut().zip(character) {
            *to = *from;
        }
        char::from_u32(u32::from_le_bytes(number)).unwrap_or(char::REPLACEMENT_CHARACTER)
    });
    Ok(characters.collect())
}
