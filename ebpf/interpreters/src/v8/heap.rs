//! Objects in the heap of a process.

use super::layout::HeapLayout;
use super::tagged::{small_integer, untagged};
use crate::FunctionError;
use crate::memory::Memory;

const MAP_INSTANCE_TYPE: u64 = 12;

/// String representations, in the lowest bits of the instance type.
mod string {
    pub const REPRESENTATION: u16 = 7;
    pub const SEQUENTIAL: u16 = 0;
    pub const CONS: u16 = 1;
    pub const EXTERNAL: u16 = 2;
    pub const SLICED: u16 = 3;
    pub const THIN: u16 = 5;
    pub const ONE_BYTE: u16 = 8;
    /// An external string without a cached pointer to its characters.
    pub const UNCACHED: u16 = 16;
}

/// Maximum nesting of strings.
const MAX_DEPTH: u32 = 32;
const CHUNK: u64 = 16 << 10;

/// Part of a string.
pub enum Characters<'a> {
    /// Latin-1.
    Narrow(&'a [u8]),
    Wide(&'a [u16]),
}

/// The heap of a process.
pub struct Heap<'a, M> {
    pub memory: &'a M,
    pub layout: &'a HeapLayout,
}

impl<M> Clone for Heap<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Heap<'_, M> {}

impl<M: Memory> Heap<'_, M> {
    pub fn word(&self, address: u64) -> Result<u64, FunctionError> {
        Ok(self.memory.word(address)?)
    }

    pub fn half(&self, address: u64) -> Result<u32, FunctionError> {
        let mut bytes = [0; 4];
        self.memory.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// A member that points to an object.
    pub fn pointer(&self, address: u64) -> Result<u64, FunctionError> {
        untagged(self.word(address)?).ok_or(FunctionError::Invalid("a pointer"))
    }

    pub fn instance_type(&self, object: u64) -> Result<u16, FunctionError> {
        let map = self.pointer(object)?;
        let mut bytes = [0; 2];
        self.memory
            .read(map.wrapping_add(MAP_INSTANCE_TYPE), &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    pub fn expect(
        &self,
        object: u64,
        expected: u16,
        what: &'static str,
    ) -> Result<(), FunctionError> {
        if self.instance_type(object)? == expected {
            Ok(())
        } else {
            Err(FunctionError::Invalid(what))
        }
    }

    pub fn is_string(&self, object: u64) -> bool {
        let found = self.instance_type(object);
        found.is_ok_and(|found| found < self.layout.types.first_nonstring)
    }

    /// A string, truncated to this many characters.
    pub fn text(&self, object: u64, most: u64) -> Result<String, FunctionError> {
        let mut units = Vec::new();
        self.characters(object, most, &mut |_, part| match part {
            Characters::Narrow(part) => units.extend(part.iter().copied().map(u16::from)),
            Characters::Wide(part) => units.extend_from_slice(part),
        })?;
        Ok(String::from_utf16_lossy(&units))
    }

    /// Passes the characters of a string in parts, each with its position.
    pub fn characters(
        &self,
        object: u64,
        most: u64,
        each: &mut impl FnMut(u64, Characters<'_>),
    ) -> Result<u64, FunctionError> {
        let mut parts = vec![(object, 0u64, u64::MAX)];
        let mut offset = 0u64;
        let mut steps = 0u32;
        while let Some((object, skipped, limit)) = parts.pop() {
            steps += 1;
            if steps > MAX_DEPTH * MAX_DEPTH || parts.len() > MAX_DEPTH as usize {
                return Err(FunctionError::Invalid("a string"));
            }
            let kind = self.instance_type(object)?;
            if kind >= self.layout.types.first_nonstring {
                return Err(FunctionError::Invalid("a string"));
            }
            let length = u64::from(self.half(object.wrapping_add(12))?);
            let length = length.saturating_sub(skipped).min(limit);
            let left = most.saturating_sub(offset);
            let length = length.min(left);
            if length == 0 {
                continue;
            }
            match kind & string::REPRESENTATION {
                string::SEQUENTIAL => {
                    let begin = object.wrapping_add(16);
                    self.flat(begin, kind, skipped, length, &mut offset, each)?;
                }
                string::EXTERNAL => {
                    let begin = if kind & string::UNCACHED == 0 {
                        self.word(object.wrapping_add(24))?
                    } else {
                        // The resource begins with its vtable.
                        let resource = self.word(object.wrapping_add(16))?;
                        self.word(resource.wrapping_add(8))?
                    };
                    self.flat(begin, kind, skipped, length, &mut offset, each)?;
                }
                string::THIN => {
                    let actual = self.pointer(object.wrapping_add(16))?;
                    parts.push((actual, skipped, length));
                }
                string::SLICED => {
                    let parent = self.pointer(object.wrapping_add(16))?;
                    let offset = small_integer(self.word(object.wrapping_add(24))?);
                    let offset = offset.and_then(|offset| u64::try_from(offset).ok());
                    let offset = offset.ok_or(FunctionError::Invalid("a string"))?;
                    parts.push((parent, skipped.saturating_add(offset), length));
                }
                string::CONS => {
                    let first = self.pointer(object.wrapping_add(16))?;
                    let second = self.pointer(object.wrapping_add(24))?;
                    let head = u64::from(self.half(first.wrapping_add(12))?);
                    let of_first = head.saturating_sub(skipped).min(length);
                    if length > of_first {
                        let skipped = skipped.saturating_sub(head);
                        parts.push((second, skipped, length - of_first));
                    }
                    if of_first > 0 {
                        parts.push((first, skipped, of_first));
                    }
                }
                _ => return Err(FunctionError::Invalid("a string")),
            }
        }
        Ok(offset)
    }

    fn flat(
        &self,
        begin: u64,
        kind: u16,
        skipped: u64,
        length: u64,
        offset: &mut u64,
        each: &mut impl FnMut(u64, Characters<'_>),
    ) -> Result<(), FunctionError> {
        let is_narrow = kind & string::ONE_BYTE != 0;
        let width = if is_narrow { 1 } else { 2 };
        let mut done = 0;
        while done < length {
            let count = (length - done).min(CHUNK);
            let at = begin.wrapping_add(skipped.wrapping_add(done).wrapping_mul(width));
            let bytes = self.memory.bytes(at, (count * width) as usize)?;
            if is_narrow {
                each(*offset, Characters::Narrow(&bytes));
            } else {
                let pairs = bytes.chunks_exact(2);
                let units =
                    pairs.map(|pair| u16::from_le_bytes(pair.try_into().unwrap_or_default()));
                each(*offset, Characters::Wide(&units.collect::<Vec<u16>>()));
            }
            *offset += count;
            done += count;
        }
        Ok(())
    }
}
