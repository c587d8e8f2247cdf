//! A sequence of instructions: the name, file and lines of a method or a block.

use profcol_ebpf_common::interpreter::ruby::{Function, fingerprint};

use super::class;
use super::layout::SequenceLayout;
use super::lines::{self, Lines};
use super::object::{self, kind, word};
use crate::FunctionError;
use crate::memory::Memory;

/// Bytes of a body that have all members, in every version.
const BODY_BYTES: usize = 192;
const INSTRUCTIONS: usize = 8;
const PATH: usize = 64;
const BASE_LABEL: usize = 72;
const LABEL: usize = 80;
const FIRST_LINE: usize = 88;

/// Of a line's entries: how many there are, and where their positions are.
const LINE_COUNT: usize = 16;
const LINE_TABLE: usize = 24;

/// The body of a sequence.
const SEQUENCE_BODY: u64 = 16;

/// Of a method entry.
const METHOD_BYTES: usize = 40;
const METHOD_DEFINITION: usize = 16;
const METHOD_OWNER: usize = 32;
const INTERNAL_METHOD: u64 = 6;
const DEFINITION_BYTES: usize = 16;
const DEFINITION_TYPE: u64 = 0xf;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    pub name: String,
    pub file: String,
    pub first_line: u32,
    lines: Lines,
}

/// What tells the sequence at an address from others that were there before.
pub fn generation(memory: &impl Memory, address: u64) -> Result<u32, FunctionError> {
    let first = memory.word(address)?;
    let instructions = memory.word(address.wrapping_add(INSTRUCTIONS as u64))?;
    Ok(fingerprint(first, instructions))
}

impl Sequence {
    /// `method` is part of the address of a method entry, see [`Function::method`].
    pub fn read(
        layout: &SequenceLayout,
        memory: &impl Memory,
        address: u64,
        expected: u32,
        method: u32,
    ) -> Result<Self, FunctionError> {
        let body = memory.bytes(address, BODY_BYTES)?;
        let member = |at: usize| word(&body, at).unwrap_or(0);
        if fingerprint(member(0), member(INSTRUCTIONS)) != expected {
            return Err(FunctionError::Replaced);
        }
        let mut name = object::string(layout, memory, member(LABEL))?;
        let file = object::path(layout, memory, member(PATH))?;
        let base = object::string(layout, memory, member(BASE_LABEL))?;
        let local = member(layout.local_sequence as usize);
        let local = memory.word(local.wrapping_add(SEQUENCE_BODY)).unwrap_or(0);
        // Without it the function is still named.
        if let Some(prefix) = prefix(layout, memory, method, member(LABEL), local)
            && let Some(before) = name.strip_suffix(&*base)
        {
            name = format!("{before}{prefix}{base}");
        }
        let first_line = match layout.first_line_is_object {
            true => (member(FIRST_LINE) >> 1) as u32,
            false => member(FIRST_LINE) as u32,
        };
        let lines = lines(layout, memory, &body);
        // What it pointed to may have been freed before it was read.
        if memory.bytes(address, LINE_END)? != body.get(..LINE_END).unwrap_or_default() {
            return Err(FunctionError::Replaced);
        }
        Ok(Self {
            name,
            file,
            first_line,
            lines: lines.unwrap_or_default(),
        })
    }

    /// 0 where it is not known.
    pub fn line(&self, position: u32) -> u32 {
        match position {
            Function::FAR => 0,
            // It is that of the instruction behind the one that runs.
            position => self.lines.find(position.saturating_sub(1)),
        }
    }

    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.file.len() + self.lines.bytes()
    }
}

/// The part of a body that does not change while it is used.
const LINE_END: usize = 112;

fn lines(
    layout: &SequenceLayout,
    memory: &impl Memory,
    body: &[u8],
) -> Result<Lines, FunctionError> {
    let at = layout.line_entries as usize;
    let member = |at: usize| word(body, at).unwrap_or(0);
    let positions = (member(0) >> 32).min(Function::FAR.into()) as usize;
    let count = (member(at + LINE_COUNT) as u32 as usize).min(positions);
    let size = layout.line_entry_bytes as usize;
    let entries = memory.bytes(member(at), count * size)?;
    let entries = entries.chunks_exact(size).map(|entry| {
        let line = entry.first_chunk().copied().unwrap_or_default();
        u32::from_le_bytes(line)
    });
    let entries: Vec<u32> = entries.collect();
    match &*entries {
        [] => Ok(Lines::default()),
        &[line] => Ok(Lines::single(line)),
        entries => {
            let table = member(at + LINE_TABLE);
            let table = memory.bytes(table, lines::table_bytes(positions))?;
            Ok(Lines::parse(positions, &table, entries))
        }
    }
}

/// What stands in front of the name of a method, if its entry is that of the sequence with this body.
///
/// The upper half of the entry's address is that of another object: no heap is larger than what the
/// lower half tells apart.
fn prefix(
    layout: &SequenceLayout,
    memory: &impl Memory,
    method: u32,
    object: u64,
    body: u64,
) -> Option<String> {
    const RANGE: u64 = 1 << 35;
    if method == 0 {
        return None;
    }
    let same = object & !(RANGE - 1) | u64::from(method) << 3;
    [same, same.wrapping_sub(RANGE), same.wrapping_add(RANGE)]
        .into_iter()
        .find_map(|entry| {
            let owner = owner(memory, entry, body).ok()??;
            class::prefix(layout, memory, owner).ok()?
        })
}

/// The class that has the method.
fn owner(memory: &impl Memory, entry: u64, body: u64) -> Result<Option<u64>, FunctionError> {
    let entry = memory.bytes(entry, METHOD_BYTES)?;
    let member = |at: usize| word(&entry, at).unwrap_or(0);
    let flags = member(0);
    if kind(flags) != kind::INTERNAL || flags >> 12 & 15 != INTERNAL_METHOD {
        return Ok(None);
    }
    let definition = memory.bytes(member(METHOD_DEFINITION), DEFINITION_BYTES)?;
    let kind = word(&definition, 0).unwrap_or(0) & DEFINITION_TYPE;
    let sequence = word(&definition, 8).unwrap_or(0);
    if kind != 0 || memory.word(sequence.wrapping_add(SEQUENCE_BODY))? != body {
        return Ok(None);
    }
    Ok(Some(member(METHOD_OWNER)))
}
