//! An instruction sequence: the name, file and lines of a method or a block.

use profcol_ebpf_common::interpreter::ruby::{Function, fingerprint};

use super::class;
use super::layout::SequenceLayout;
use super::lines::{self, Lines};
use super::object::{self, kind, word};
use crate::FunctionError;
use crate::memory::Memory;

/// Bytes that include all members of a body, in every version.
const BODY_BYTES: usize = 192;
const INSTRUCTIONS: usize = 8;
const PATH: usize = 64;
const BASE_LABEL: usize = 72;
const LABEL: usize = 80;
const FIRST_LINE: usize = 88;

/// Offsets after the line entries: their number, and their positions.
const LINE_COUNT: usize = 16;
const LINE_TABLE: usize = 24;

/// An `rb_iseq_t`, up to its body.
const OBJECT_BYTES: usize = 24;
const SEQUENCE_BODY: u64 = 16;
const INTERNAL_SEQUENCE: u64 = 7;

/// Bytes of a method entry.
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

/// The value that distinguishes the sequence at an address from earlier ones.
pub fn generation(memory: &impl Memory, address: u64) -> Result<u32, FunctionError> {
    body_fingerprint(memory, body_address(memory, address)?)
}

fn body_fingerprint(memory: &impl Memory, body: u64) -> Result<u32, FunctionError> {
    let first = memory.word(body)?;
    let instructions = memory.word(body.wrapping_add(INSTRUCTIONS as u64))?;
    Ok(fingerprint(first, instructions))
}

/// Fails if the sequence was freed, which empties its slot at once. Its body keeps its content for a while.
fn body_address(memory: &impl Memory, address: u64) -> Result<u64, FunctionError> {
    let object = memory.bytes(address, OBJECT_BYTES)?;
    let flags = word(&object, 0).unwrap_or(0);
    if !is_internal(flags, INTERNAL_SEQUENCE) {
        return Err(FunctionError::Replaced);
    }
    Ok(word(&object, SEQUENCE_BODY as usize).unwrap_or(0))
}

fn is_internal(flags: u64, internal: u64) -> bool {
    kind(flags) == kind::INTERNAL && flags >> 12 & 15 == internal
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
        let body_address = body_address(memory, address)?;
        let body = memory.bytes(body_address, BODY_BYTES)?;
        let member = |at: usize| word(&body, at).unwrap_or(0);
        if fingerprint(member(0), member(INSTRUCTIONS)) != expected {
            return Err(FunctionError::Replaced);
        }
        let label = object::string(layout, memory, member(LABEL))?;
        let mut name = label.clone();
        let file = object::path(layout, memory, member(PATH))?;
        let base = object::string(layout, memory, member(BASE_LABEL))?;
        let local = member(layout.local_sequence as usize);
        let local = memory.word(local.wrapping_add(SEQUENCE_BODY)).unwrap_or(0);
        // The prefix is optional.
        if let Some(prefix) = prefix(layout, memory, method, member(LABEL), local)
            && let Some(before) = name.strip_suffix(&*base)
        {
            name = format!("{before}{prefix}{base}");
        }
        let first_line = match layout.first_line_is_object {
            true => (member(FIRST_LINE) >> 1) as u32,
            false => member(FIRST_LINE) as u32,
        };
        let lines = lines(layout, memory, &body).unwrap_or_default();
        // It may have been freed during the reads.
        if body_fingerprint(memory, body_address)? != expected
            || self::body_address(memory, address)? != body_address
        {
            return Err(FunctionError::Replaced);
        }
        Ok(Self {
            name,
            file,
            first_line,
            lines,
        })
    }

    /// 0 if unknown.
    pub fn line(&self, position: u32) -> u32 {
        match position {
            Function::FAR => 0,
            // The position is that of the instruction after the current one.
            position => self.lines.find(position.saturating_sub(1)),
        }
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.file.len() + self.lines.bytes()
    }
}

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

/// The prefix of a method name, if its entry refers to the sequence with this body.
///
/// The upper half of the entry's address comes from another object: heaps are smaller than the range of
/// the lower half.
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

/// The class that owns the method.
fn owner(memory: &impl Memory, entry: u64, body: u64) -> Result<Option<u64>, FunctionError> {
    let entry = memory.bytes(entry, METHOD_BYTES)?;
    let member = |at: usize| word(&entry, at).unwrap_or(0);
    let flags = member(0);
    if !is_internal(flags, INTERNAL_METHOD) {
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
