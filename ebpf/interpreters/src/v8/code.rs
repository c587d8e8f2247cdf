//! Generated code: the functions at an instruction, and their lines.

use super::function::{self, Function};
use super::functions::{FunctionLine, Functions};
use super::heap::Heap;
use super::layout::{CodeOffsets, Instructions};
use super::positions::{Position, Positions, unsigned};
use super::tagged::{small_integer, untagged};
use crate::FunctionError;
use crate::memory::Memory;

/// Alignment of the object around the instructions, which has a pointer to their `Code`.
const STREAM_ALIGNMENT: u64 = 16;
const STREAM_CODE: u64 = 8;
/// Maximum distance from the start of that object to the first instruction.
const MAX_HEADER: u64 = 256;
/// Bytes to search for the object before an instruction.
const MAX_SEARCHED: u64 = 1 << 20;
const CHUNK: u64 = 4096;
/// Maximum number of candidates to check.
const MAX_CANDIDATES: u32 = 64;

/// Offset of the first element of an array.
const ARRAY_WORDS: u64 = 16;
const MAX_INLINED: usize = 1 << 12;
/// Maximum depth of inlining.
const MAX_INLINING_DEPTH: usize = 64;

/// The generated code of one function and of those inlined in it.
#[derive(Clone, Debug)]
pub struct Code {
    pub start: u64,
    pub size: u64,
    /// The object around the instructions.
    stream: u64,
    object: u64,
    /// The function.
    shared: u64,
    lines: Lines,
}

#[derive(Clone, Debug)]
enum Lines {
    Optimized {
        positions: Positions,
        inlined: Vec<Inlined>,
        /// The array of inlined functions.
        literals: u64,
    },
    /// Lengths of the instructions of each bytecode.
    Baseline(Vec<u8>),
    Unknown,
}

/// The position of an inlined function.
#[derive(Clone, Copy, Debug)]
struct Inlined {
    caller: Position,
    /// The index in the literals; None for the function itself.
    function: Option<u64>,
}

impl Code {
    /// Reads the code that contains this address.
    pub fn find<M: Memory>(heap: Heap<'_, M>, address: u64) -> Result<Self, FunctionError> {
        let offsets = &heap.layout.code;
        let lowest = address.saturating_sub(MAX_SEARCHED);
        let mut end = (address & !(STREAM_ALIGNMENT - 1)) + STREAM_ALIGNMENT;
        let mut candidates = 0;
        while end > lowest && candidates < MAX_CANDIDATES {
            let begin = end.saturating_sub(1) & !(CHUNK - 1);
            let bytes = heap.memory.bytes(begin, (end - begin) as usize)?;
            for (index, words) in bytes
                .chunks_exact(STREAM_ALIGNMENT as usize)
                .enumerate()
                .rev()
            {
                let stream = begin + index as u64 * STREAM_ALIGNMENT;
                let Some(words) = first_words(words) else {
                    continue;
                };
                let [Some(_), Some(second)] = words.map(untagged) else {
                    continue;
                };
                candidates += 1;
                let object = match offsets.instructions {
                    Instructions::Inside(_) => stream,
                    Instructions::Apart(_) => second,
                };
                let Ok(code) = Self::range(heap, offsets, stream, object) else {
                    continue;
                };
                if code.holds(address) {
                    return code.with_lines(heap, offsets);
                }
                // There is other code in between, so the address is not V8's.
                return Err(FunctionError::Invalid("generated code"));
            }
            end = begin;
        }
        Err(FunctionError::Invalid("generated code"))
    }

    /// The function of the code; unknown for baseline code.
    pub fn function(&self) -> Result<u64, FunctionError> {
        match &self.lines {
            Lines::Optimized { .. } => Ok(self.shared),
            _ => Err(FunctionError::Invalid("the function of baseline code")),
        }
    }

    pub fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.size
    }

    /// Whether the code still exists.
    pub fn is_valid<M: Memory>(&self, heap: Heap<'_, M>) -> bool {
        let found = Self::range(heap, &heap.layout.code, self.stream, self.object);
        let is_code = match heap.layout.code.instructions {
            Instructions::Inside(_) => true,
            Instructions::Apart(_) => heap
                .pointer(self.stream.wrapping_add(STREAM_CODE))
                .is_ok_and(|object| object == self.object),
        };
        is_code && found.is_ok_and(|found| (found.start, found.size) == (self.start, self.size))
    }

    fn range<M: Memory>(
        heap: Heap<'_, M>,
        offsets: &CodeOffsets,
        stream: u64,
        object: u64,
    ) -> Result<Self, FunctionError> {
        heap.expect(object, heap.layout.types.code, "generated code")?;
        let start = match offsets.instructions {
            Instructions::Inside(offset) => object.wrapping_add(offset),
            Instructions::Apart(offset) => heap.word(object.wrapping_add(offset))?,
        };
        if start.wrapping_sub(stream) > MAX_HEADER {
            return Err(FunctionError::Invalid("generated code"));
        }
        let size = heap.half(object.wrapping_add(offsets.instruction_size))?;
        Ok(Self {
            start,
            size: size.into(),
            stream,
            object,
            shared: 0,
            lines: Lines::Unknown,
        })
    }

    fn with_lines<M: Memory>(
        mut self,
        heap: Heap<'_, M>,
        offsets: &CodeOffsets,
    ) -> Result<Self, FunctionError> {
        let flags = heap.half(self.object.wrapping_add(offsets.flags))?;
        let table = heap.pointer(self.object.wrapping_add(offsets.positions))?;
        if flags & offsets.kind_mask == offsets.baseline_kind {
            self.lines = Lines::Baseline(function::byte_array(heap, table)?);
            return Ok(self);
        }
        let data = heap.pointer(self.object.wrapping_add(offsets.data))?;
        let element = |index: u64| data.wrapping_add(ARRAY_WORDS + index * 8);
        let mut shared = heap.pointer(element(offsets.shared))?;
        if offsets.is_shared_wrapped {
            shared = heap.pointer(shared.wrapping_add(8))?;
        }
        heap.expect(shared, heap.layout.types.shared, "a function")?;
        self.shared = shared;
        let inlined = heap.pointer(element(offsets.inlining_positions));
        let inlined = inlined.and_then(|array| function::byte_array(heap, array));
        self.lines = Lines::Optimized {
            positions: Positions::read(&function::byte_array(heap, table)?, heap.layout.positions),
            inlined: inlining_positions(&inlined.unwrap_or_default()),
            literals: heap.pointer(element(offsets.literals))?,
        };
        Ok(self)
    }

    /// The functions of an instruction, innermost first. The last one is that of the frame.
    pub fn frames<M: Memory>(
        &self,
        heap: Heap<'_, M>,
        functions: &mut Functions,
        function: &(u64, std::sync::Arc<Function>),
        address: u64,
    ) -> Result<Vec<FunctionLine>, FunctionError> {
        let (shared, function) = function;
        let offset = address.wrapping_sub(self.start) as u32;
        match &self.lines {
            Lines::Unknown => Ok(vec![(function.clone(), 0)]),
            Lines::Baseline(lengths) => {
                let bytecode = bytecode_offset(heap, *shared, lengths, offset)?;
                let position = bytecode.saturating_add(heap.layout.bytecode.data - 1);
                Ok(vec![(function.clone(), function.line(position))])
            }
            Lines::Optimized { .. } if self.shared != *shared => {
                Err(FunctionError::Invalid("code of this function"))
            }
            Lines::Optimized {
                positions,
                inlined,
                literals,
            } => {
                let mut frames = Vec::new();
                let mut position = positions.at(offset);
                let mut before = usize::MAX;
                while let Some(id) = position.and_then(Position::inlined) {
                    // Deeper inlined functions have higher numbers.
                    let Some(entry) = inlined.get(id).filter(|_| id < before) else {
                        break;
                    };
                    before = id;
                    if frames.len() >= MAX_INLINING_DEPTH {
                        break;
                    }
                    let callee = match entry.function {
                        Some(index) => literal(heap, *literals, index)?,
                        None => *shared,
                    };
                    frames.push(functions.at(heap, callee, position)?);
                    position = Some(entry.caller);
                }
                frames.push(functions.at(heap, *shared, position)?);
                Ok(frames)
            }
        }
    }
}

fn first_words(bytes: &[u8]) -> Option<[u64; 2]> {
    let (first, rest) = bytes.split_first_chunk()?;
    let second = rest.first_chunk()?;
    Some([u64::from_le_bytes(*first), u64::from_le_bytes(*second)])
}

fn inlining_positions(bytes: &[u8]) -> Vec<Inlined> {
    let entries = bytes.chunks_exact(16).take(MAX_INLINED);
    let entries = entries.filter_map(|entry| {
        let [caller, function] = first_words(entry)?;
        Some(Inlined {
            caller: Position(caller),
            function: u64::try_from(function as i32).ok(),
        })
    });
    entries.collect()
}

fn literal<M: Memory>(heap: Heap<'_, M>, array: u64, index: u64) -> Result<u64, FunctionError> {
    let length = small_integer(heap.word(array.wrapping_add(8))?);
    if length.is_none_or(|length| i64::from(length) <= index as i64) {
        return Err(FunctionError::Invalid("an inlined function"));
    }
    // It may be a weak reference.
    let word = heap.word(array.wrapping_add(ARRAY_WORDS + index * 8))?;
    let shared = word & !3;
    heap.expect(shared, heap.layout.types.shared, "an inlined function")?;
    Ok(shared)
}

/// The bytecode offset of an instruction in baseline code.
fn bytecode_offset<M: Memory>(
    heap: Heap<'_, M>,
    shared: u64,
    lengths: &[u8],
    instruction: u32,
) -> Result<u32, FunctionError> {
    let sizes = heap.layout.bytecode.sizes.as_ref();
    let sizes = sizes.ok_or(FunctionError::Invalid("a stripped table of bytecodes"))?;
    let bytecode = function::bytecode(heap, shared)?;
    let length = small_integer(heap.word(bytecode.wrapping_add(8))?);
    let length = length.and_then(|length| usize::try_from(length).ok());
    let length = length.filter(|length| *length <= function::MAX_POSITIONS);
    let length = length.ok_or(FunctionError::Invalid("bytecode"))?;
    let begin = bytecode.wrapping_add(heap.layout.bytecode.data.into());
    let bytes = heap.memory.bytes(begin, length)?;
    let mut lengths = lengths.iter();
    // The function prologue comes first.
    let mut end = unsigned(&mut lengths).unwrap_or(0);
    let mut offset = 0;
    if u64::from(instruction) < end {
        return Ok(0);
    }
    while let Some(length) = unsigned(&mut lengths) {
        end = end.saturating_add(length);
        if u64::from(instruction) < end {
            return Ok(offset as u32);
        }
        match bytes.get(offset..).and_then(|rest| sizes.of(rest)) {
            Some(size) => offset += size,
            None => break,
        }
    }
    Err(FunctionError::Invalid("lengths of instructions"))
}
