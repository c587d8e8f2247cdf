//! A code object: the name, file and lines of a function.

use profcol_ebpf_common::interpreter::python::{Identity, text as text_members};

use super::copies::Copies;
use super::layout::{CodeLayout, References};
use super::lines::Lines;
use super::text;
use crate::FunctionError;
use crate::memory::Memory;

/// Maximum size of a line table.
const MAX_LINE_TABLE: usize = 64 << 10;

/// Larger than the reference count of immortal objects.
const MAX_REFERENCES: u64 = 1 << 34;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    pub name: String,
    pub file: String,
    pub first_line: u32,
    pub lines: Lines,
    /// None in versions whose threads share the instructions.
    pub copies: Option<Copies>,
}

impl Code {
    pub fn generation(
        layout: &CodeLayout,
        memory: &impl Memory,
        address: u64,
    ) -> Result<u32, FunctionError> {
        let bytes = memory.bytes(address, bytes_read(layout))?;
        identity(layout, memory, &bytes).map(|identity| identity.generation())
    }

    pub fn read(
        layout: &CodeLayout,
        memory: &impl Memory,
        address: u64,
        expected: u32,
    ) -> Result<Self, FunctionError> {
        let members = &layout.code;
        let size = bytes_read(layout);
        let object = memory.bytes(address, size)?;
        if !layout.references.is_alive(&object) {
            return Err(FunctionError::Replaced);
        }
        let bytes = |at: u32| object.get(at as usize..);
        let word = |at: u32| {
            let found = bytes(at).and_then(<[u8]>::first_chunk);
            found.map(|bytes| u64::from_le_bytes(*bytes))
        };
        let half = |at: u32| {
            let found = bytes(at).and_then(<[u8]>::first_chunk);
            found.map(|bytes| u32::from_le_bytes(*bytes))
        };
        let pointer = |at: u32| word(at).ok_or(FunctionError::Invalid("a code object"));
        if identity(layout, memory, &object)?.generation() != expected {
            return Err(FunctionError::Replaced);
        }
        let name = members.qualified_name.unwrap_or(members.name);
        let name = text::read(&layout.text, memory, pointer(name)?)?;
        let file = text::read(&layout.text, memory, pointer(members.filename)?)?;
        let first_line = half(members.first_line).unwrap_or(0);
        let lines = line_table(layout, memory, pointer(members.line_table)?);
        let lines = lines.map(|table| Lines::parse(layout.lines, first_line, &table));
        // Its data may have been freed before the read.
        let again = memory.bytes(address, size)?;
        let members_at = layout.references.end();
        if !layout.references.is_alive(&again)
            || again.get(members_at..) != object.get(members_at..)
        {
            return Err(FunctionError::Replaced);
        }
        let copies = members.copies.as_ref();
        let copies = copies.map(|members| Copies::read(layout, members, memory, address));
        Ok(Self {
            name,
            file,
            first_line,
            // Lines are optional.
            lines: lines.unwrap_or_default(),
            copies: copies.transpose()?,
        })
    }

    /// 0 if unknown.
    pub fn line(&self, position: u32) -> u32 {
        match &self.copies {
            Some(copies) => {
                let index = copies.index(position);
                index.map_or(0, |index| self.lines.find(index))
            }
            None => match position as i32 {
                // -1 means before the first instruction.
                ..0 => self.first_line,
                _ => self.lines.find(position),
            },
        }
    }

    /// Whether the instruction is in a copy that a thread made since this was read.
    pub fn is_in_new_copy(&self, position: u32) -> bool {
        let copies = self.copies.as_ref();
        copies.is_some_and(|copies| copies.index(position).is_none())
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        let copies = self.copies.as_ref().map_or(0, Copies::bytes);
        size_of::<Self>() + self.name.len() + self.file.len() + self.lines.bytes() + copies
    }
}

/// Bytes of an object with all members that are read.
fn bytes_read(layout: &CodeLayout) -> usize {
    layout.code.size.max(layout.identity.second + 8) as usize
}

fn identity(
    layout: &CodeLayout,
    memory: &impl Memory,
    object: &[u8],
) -> Result<Identity, FunctionError> {
    let bytes = |at: u32| object.get(at as usize..);
    let half = |at: u32| {
        let found = bytes(at).and_then(<[u8]>::first_chunk);
        let bytes = found.ok_or(FunctionError::Invalid("a code object"))?;
        Ok::<u32, FunctionError>(u32::from_le_bytes(*bytes))
    };
    let mut identity = Identity {
        first: half(layout.identity.first)?,
        second: half(layout.identity.second)?,
        ..Identity::default()
    };
    if layout.identity.has_texts {
        let word = |at: u32| {
            let found = bytes(at).and_then(<[u8]>::first_chunk);
            found.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let file = word(layout.code.filename);
        identity.name = text_identity(memory, word(layout.code.name));
        identity.file = text_identity(memory, file);
        if let [length, text_members::NO_HASH] = identity.file {
            let tail = text_members::tail(file, layout.text.ascii_data, length);
            identity.file_tail = memory.word(tail).unwrap_or(0);
        }
    }
    Ok(identity)
}

/// The length and the hash of a string; 0 if it cannot be read.
fn text_identity(memory: &impl Memory, address: u64) -> [u64; 2] {
    let start = address.wrapping_add(text_members::START);
    let read = |member: u32| memory.word(start.wrapping_add(u64::from(member) * 8));
    match (read(text_members::LENGTH), read(text_members::HASH)) {
        (Ok(length), Ok(hash)) => [length, hash],
        _ => [0; 2],
    }
}

impl References {
    /// The bytes of an object that change with its references.
    fn end(self) -> usize {
        match self {
            Self::One => 8,
            Self::Two => 32,
        }
    }

    /// Whether an object is in use: freed memory has no references.
    fn is_alive(self, object: &[u8]) -> bool {
        match self {
            // Freed memory has a pointer or zero there.
            Self::One => {
                let count = object.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
                count.is_some_and(|count| (1..MAX_REFERENCES).contains(&count))
            }
            Self::Two => {
                let own = object.get(12..).and_then(<[u8]>::first_chunk);
                let shared = object.get(16..).and_then(<[u8]>::first_chunk);
                let own = own.map_or(0, |bytes| u32::from_le_bytes(*bytes));
                // The lowest two bits are flags.
                own > 0 || shared.is_some_and(|bytes| i64::from_le_bytes(*bytes) >> 2 > 0)
            }
        }
    }
}

fn line_table(
    layout: &CodeLayout,
    memory: &impl Memory,
    address: u64,
) -> Result<Vec<u8>, FunctionError> {
    let size = memory.word(address.wrapping_add(layout.bytes_size.into()))?;
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size > MAX_LINE_TABLE {
        return Err(FunctionError::Invalid("a line table"));
    }
    let data = address.wrapping_add(layout.bytes_data.into());
    Ok(memory.bytes(data, size)?)
}
