//! A prototype: its file, the lines of its instructions, and the names by which it calls others.

use profcol_ebpf_common::interpreter::luajit::{self, position, prototype, string};

use super::calls::Calls;
use super::prototype_bytes::PrototypeBytes;
use super::text::{self, MAX_BYTES};
use crate::FunctionError;
use crate::memory::Memory;

/// Length of a colon and a line number.
const LINE_BYTES: usize = 11;

/// The name of the function that is a whole file, as in Lua's stack traces.
const MAIN: &str = "main chunk";

/// A function of the program's source code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prototype {
    /// Where it is defined (`file:line`), since it has no name.
    pub name: String,
    pub file: String,
    pub first_line: u32,
    /// The line of each instruction but the first, relative to the first line.
    lines: Vec<u8>,
    /// Bytes per line number.
    line_bytes: usize,
    calls: Calls,
}

/// The value that distinguishes the prototype at an address from earlier ones.
pub fn generation(memory: &impl Memory, address: u64) -> Result<u32, FunctionError> {
    let member = |index: u32| memory.word(address.wrapping_add(u64::from(index) * 8));
    let mut identity = luajit::Identity {
        header: member(prototype::HEADER)?,
        file: member(prototype::FILE)?,
        lines: member(prototype::LINES)?,
        ..luajit::Identity::default()
    };
    let start = identity.file.wrapping_add(string::START);
    let member = |index: u32| memory.word(start.wrapping_add(u64::from(index) * 8));
    if let (Ok(name), Ok(length)) = (member(string::HEADER), member(string::LENGTH)) {
        identity.name = name;
        let tail = string::tail(identity.file, length);
        identity.name_tail = memory.word(tail).unwrap_or(0);
    }
    Ok(identity.generation())
}

impl Prototype {
    pub fn read(memory: &impl Memory, address: u64, expected: u32) -> Result<Self, FunctionError> {
        if generation(memory, address)? != expected {
            return Err(FunctionError::Replaced);
        }
        let bytes = PrototypeBytes::read(memory, address)?;
        let lines = bytes.word(prototype::LINES as usize * 8);
        let (first_line, line_count) = (lines as u32, (lines >> 32) as u32);
        let file = text::read(memory, bytes.word(prototype::FILE as usize * 8))?;
        let file = chunk_name(&file);
        let line_bytes = match line_count {
            0..256 => 1,
            256..65_536 => 2,
            _ => 4,
        };
        let table = bytes.line_table();
        let count = bytes.instructions().len().saturating_sub(1);
        let found = Self {
            name: name(&file, first_line),
            file,
            first_line,
            lines: table.get(..count * line_bytes).unwrap_or_default().to_vec(),
            line_bytes,
            calls: Calls::read(memory, &bytes),
        };
        // Its data may have been freed before the read.
        if generation(memory, address)? != expected {
            return Err(FunctionError::Replaced);
        }
        Ok(found)
    }

    /// The line of an instruction; 0 if unknown.
    pub fn line(&self, position: u32) -> u32 {
        let position = position & position::INSTRUCTION;
        let Some(index) = (position as usize).checked_sub(1) else {
            return self.first_line;
        };
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

    /// The name of the function that an instruction calls.
    pub fn called(&self, position: u32) -> Option<&str> {
        self.calls.name(position & position::INSTRUCTION)
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.name.len()
            + self.file.len()
            + self.lines.len()
            + self.calls.bytes()
    }
}

fn name(file: &str, first_line: u32) -> String {
    if first_line == 0 {
        return MAIN.to_owned();
    }
    let name = file.rsplit('/').next().unwrap_or(file);
    let name: String = name.chars().take(MAX_BYTES - LINE_BYTES).collect();
    format!("{name}:{first_line}")
}

/// The source of a function: `@` and a path, `=` and a name, or the text of the source itself.
fn chunk_name(source: &str) -> String {
    if let Some(name) = source.strip_prefix(['@', '=']) {
        return name.to_owned();
    }
    let line = source.lines().next().unwrap_or_default();
    format!("[string \"{line}\"]")
        .chars()
        .take(MAX_BYTES)
        .collect()
}
