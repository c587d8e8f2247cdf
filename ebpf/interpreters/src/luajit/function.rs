//! A prototype: its file, and the lines of its instructions.

use profcol_ebpf_common::interpreter::luajit::{self, NO_POSITION, prototype};

use crate::FunctionError;
use crate::memory::Memory;

/// Maximum length of a path; longer ones are truncated.
const MAX_BYTES: usize = 1024;
/// LuaJIT has at most 2^26 instructions in a function; functions of a hundred thousand are generated ones.
const MAX_INSTRUCTIONS: usize = 1 << 18;

/// `GCproto`.
const LINE_TABLE: u64 = 80;

/// `GCstr`.
const KIND: u64 = 9;
const STRING: u8 = 4;
const LENGTH: u64 = 20;
const TEXT: u64 = 24;

/// The name of the function that is a whole file.
const MAIN: &str = "main chunk";

/// A function of the program's source code; it has no name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prototype {
    pub name: String,
    pub file: String,
    pub first_line: u32,
    /// Of each instruction, from the first line on.
    lines: Vec<u8>,
    /// The size of one of them.
    line_bytes: usize,
}

/// The value that distinguishes the prototype at an address from earlier ones.
pub fn generation(memory: &impl Memory, address: u64) -> Result<u32, FunctionError> {
    let member = |index: u32| memory.word(address.wrapping_add(u64::from(index) * 8));
    Ok(luajit::generation(
        member(prototype::HEADER)?,
        member(prototype::FILE)?,
        member(prototype::LINES)?,
    ))
}

impl Prototype {
    pub fn read(memory: &impl Memory, address: u64, expected: u32) -> Result<Self, FunctionError> {
        if generation(memory, address)? != expected {
            return Err(FunctionError::Replaced);
        }
        let member = |index: u32| memory.word(address.wrapping_add(u64::from(index) * 8));
        let instructions = (member(prototype::HEADER)? >> 32) as usize;
        let lines = member(prototype::LINES)?;
        let (first_line, line_count) = (lines as u32, (lines >> 32) as u32);
        let file = chunk_name(&string(memory, member(prototype::FILE)?)?);
        let line_bytes = match line_count {
            0..256 => 1,
            256..65_536 => 2,
            _ => 4,
        };
        let table = memory.word(address.wrapping_add(LINE_TABLE))?;
        let mut found = Self {
            name: name(&file, first_line),
            file,
            first_line,
            lines: Vec::new(),
            line_bytes,
        };
        // Code without debug information has none. The first instruction has no entry.
        if table != 0 && instructions <= MAX_INSTRUCTIONS {
            let count = instructions.saturating_sub(1);
            found.lines = memory.bytes(table, count * line_bytes)?;
        }
        // Its data may have been freed before the read.
        if generation(memory, address)? != expected {
            return Err(FunctionError::Replaced);
        }
        Ok(found)
    }

    /// The line of an instruction; 0 if unknown.
    pub fn line(&self, position: u32) -> u32 {
        let Some(index) = (position as usize).checked_sub(1) else {
            return self.first_line;
        };
        if position == NO_POSITION {
            return 0;
        }
        let start = index * self.line_bytes;
        let Some(bytes) = self.lines.get(start..start + self.line_bytes) else {
            return 0;
        };
        let mut number = [0; 4];
        for (place, byte) in number.iter_mut().zip(bytes) {
            *place = *byte;
        }
        self.first_line.saturating_add(u32::from_le_bytes(number))
    }

    /// Its memory size.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.file.len() + self.lines.len()
    }
}

/// As in Lua's stack traces.
fn name(file: &str, first_line: u32) -> String {
    if first_line == 0 {
        return MAIN.to_owned();
    }
    let name = file.rsplit('/').next().unwrap_or(file);
    format!("{name}:{first_line}")
}

/// The source of a function: `@` and a path, `=` and a name, or the text of the source itself.
fn chunk_name(source: &str) -> String {
    if let Some(name) = source.strip_prefix(['@', '=']) {
        return name.to_owned();
    }
    let line = source.lines().next().unwrap_or_default();
    format!("[string \"{line}\"]")
}

fn string(memory: &impl Memory, address: u64) -> Result<String, FunctionError> {
    let mut kind = [0];
    memory.read(address.wrapping_add(KIND), &mut kind)?;
    if kind != [STRING] {
        return Err(FunctionError::Invalid("the name of a file"));
    }
    let mut length = [0; 4];
    memory.read(address.wrapping_add(LENGTH), &mut length)?;
    let length = (u32::from_le_bytes(length) as usize).min(MAX_BYTES);
    let bytes = memory.bytes(address.wrapping_add(TEXT), length)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.chars().take(MAX_BYTES).collect())
}
