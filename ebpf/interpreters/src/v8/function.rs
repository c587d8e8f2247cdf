//! The data shared by all closures of a function: its name, its file, and the lines of its bytecode.

use std::sync::Arc;

use profcol_ebpf_common::interpreter::v8::NUMBERS_BYTES;

use super::heap::Heap;
use super::positions::Positions;
use super::script::Script;
use super::scripts::Scripts;
use super::tagged::{small_integer, untagged};
use crate::memory::Memory;
use crate::{FunctionError, SourceFrame};

const MAX_NAME: u64 = 512;
/// Maximum size of a source position table.
pub const MAX_POSITIONS: usize = 1 << 20;
/// Maximum number of context locals in the object itself; the names of more are in a separate table.
const MAX_INLINED_LOCALS: u64 = 75;
const MAX_LOCALS: u64 = 1 << 16;
/// Words of a `ScopeInfo` after its locals to search for a name.
const NAME_WORDS: usize = 8;

/// V8's display name of functions without a name.
const ANONYMOUS: &str = "(anonymous)";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Empty if unknown.
    pub name: String,
    pub file: String,
    pub first_line: u32,
    /// Lines by their first bytecode offset.
    lines: Vec<(u32, u32)>,
}

impl Function {
    /// Code without a function.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    pub fn generation<M: Memory>(heap: Heap<'_, M>, shared: u64) -> Result<u32, FunctionError> {
        let numbers = shared.wrapping_add(heap.layout.shared.numbers);
        let bytes = heap.memory.bytes(numbers, NUMBERS_BYTES as usize)?;
        let mut words = [0; 3];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        }
        Ok(heap.layout.walk.generation_of(words))
    }

    pub fn read<M: Memory>(
        heap: Heap<'_, M>,
        scripts: &mut Scripts,
        shared: u64,
    ) -> Result<Self, FunctionError> {
        heap.expect(shared, heap.layout.types.shared, "a function")?;
        let script = Self::script(heap, scripts, shared)?;
        // While the collector moves the script, only builtins have none.
        if script.is_none() && bytecode(heap, shared).is_ok() {
            return Err(FunctionError::Invalid("the script of a function"));
        }
        let (name, start) = name_and_start(heap, shared)?;
        let line = |offset: u32| script.as_ref().map_or(0, |script| script.line(offset));
        // A builtin without a name takes that of its code.
        let is_known = name.is_some() || script.is_some();
        let name = name.unwrap_or_else(|| ANONYMOUS.to_owned());
        Ok(Self {
            name: if is_known { name } else { String::new() },
            file: script
                .as_ref()
                .map_or_else(String::new, |script| script.name.clone()),
            first_line: start.map_or(0, line),
            lines: bytecode_lines(heap, shared, line).unwrap_or_default(),
        })
    }

    /// None for builtins.
    pub fn script<M: Memory>(
        heap: Heap<'_, M>,
        scripts: &mut Scripts,
        shared: u64,
    ) -> Result<Option<Arc<Script>>, FunctionError> {
        let script = heap.word(shared.wrapping_add(heap.layout.shared.script))?;
        let Some(script) = untagged(script) else {
            return Ok(None);
        };
        if heap.instance_type(script)? != heap.layout.types.script {
            return Ok(None);
        }
        scripts.get(heap, Script::key(heap, script)?).map(Some)
    }

    /// The line of an instruction, by its offset in the bytecode object; 0 if unknown.
    pub fn line(&self, offset: u32) -> u32 {
        let behind = self.lines.partition_point(|(begin, _)| *begin <= offset);
        let before = behind.checked_sub(1).and_then(|at| self.lines.get(at));
        before.map_or(0, |(_, line)| *line)
    }

    /// Whether the positions of its instructions are known: builtins have none.
    pub fn has_bytecode(&self) -> bool {
        !self.lines.is_empty()
    }

    pub fn frame(&self, line: u32) -> SourceFrame<'_> {
        SourceFrame {
            name: (&*self.name).into(),
            file: (&*self.file).into(),
            first_line: self.first_line,
            line,
        }
    }

    pub fn bytes(&self) -> usize {
        self.name.len() + self.file.len() + size_of_val(self.lines.as_slice())
    }
}

/// The name, if any, and the start position in the script.
fn name_and_start<M: Memory>(
    heap: Heap<'_, M>,
    shared: u64,
) -> Result<(Option<String>, Option<u32>), FunctionError> {
    let layout = &heap.layout.scope_info;
    let at = shared.wrapping_add(heap.layout.shared.name_or_scope_info);
    let Ok(holder) = heap.pointer(at) else {
        return Ok((None, None));
    };
    if heap.is_string(holder) {
        return Ok((named(heap.text(holder, MAX_NAME)?), None));
    }
    heap.expect(holder, heap.layout.types.scope_info, "a scope")?;
    let word_at = |index: u64| holder.wrapping_add(8).wrapping_add(index.wrapping_mul(8));
    let count = small_integer(heap.word(word_at(layout.local_count))?);
    let count = count.and_then(|count| u64::try_from(count).ok());
    let Some(count) = count.filter(|count| *count <= MAX_LOCALS) else {
        return Err(FunctionError::Invalid("a scope"));
    };
    let names = if count < MAX_INLINED_LOCALS { count } else { 1 };
    let behind = layout.first_local + names + count;
    let bytes = heap.memory.padded(word_at(behind), NAME_WORDS * 8)?;
    let words = bytes.chunks_exact(8);
    let words = words.map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
    let words: Vec<u64> = words.collect();
    let strings = words.iter().filter_map(|word| untagged(*word));
    let name = strings
        .filter(|object| heap.is_string(*object))
        .find_map(|object| named(heap.text(object, MAX_NAME).ok()?));
    let start = match layout.positions {
        Some(index) => Some(heap.half(word_at(index))?).filter(|start| *start < 1 << 30),
        None => words.windows(2).find_map(|pair| {
            let (start, end) = (small_integer(pair[0])?, small_integer(pair[1])?);
            (start >= 0 && start < end).then_some(start as u32)
        }),
    };
    Ok((name, start))
}

fn named(name: String) -> Option<String> {
    (!name.is_empty()).then_some(name)
}

/// Lines by the offset of their first instruction, in the form used by samples.
fn bytecode_lines<M: Memory>(
    heap: Heap<'_, M>,
    shared: u64,
    line: impl Fn(u32) -> u32,
) -> Result<Vec<(u32, u32)>, FunctionError> {
    let layout = &heap.layout.bytecode;
    let bytecode = bytecode(heap, shared)?;
    let positions = heap.pointer(bytecode.wrapping_add(layout.positions))?;
    let positions = Positions::read(&byte_array(heap, positions)?, heap.layout.positions);
    let mut lines: Vec<(u32, u32)> = Vec::new();
    for (offset, position) in positions.iter() {
        let Some(source) = position.offset() else {
            continue;
        };
        let line = line(source);
        if lines.last().is_none_or(|(_, last)| *last != line) {
            // Offsets in samples are relative to the tagged address of the object.
            lines.push((offset.saturating_add(layout.data - 1), line));
        }
    }
    lines.shrink_to_fit();
    Ok(lines)
}

/// The bytecode of a function, through its generated code if it has any.
pub fn bytecode<M: Memory>(heap: Heap<'_, M>, shared: u64) -> Result<u64, FunctionError> {
    bytecode_of(
        heap,
        heap.pointer(shared.wrapping_add(heap.layout.shared.data))?,
    )
}

/// The bytecode object itself, or the one that this object leads to.
pub fn bytecode_of<M: Memory>(heap: Heap<'_, M>, mut object: u64) -> Result<u64, FunctionError> {
    let types = &heap.layout.types;
    for _ in 0..3 {
        let found = heap.instance_type(object)?;
        if found == types.bytecode_array {
            return Ok(object);
        }
        let next = match () {
            _ if found == types.code => heap.layout.code.data,
            _ if found == types.interpreter_data => 8,
            // 9.4 has another object in between.
            _ => 16,
        };
        object = heap.pointer(object.wrapping_add(next))?;
    }
    Err(FunctionError::Invalid("bytecode"))
}

pub fn byte_array<M: Memory>(heap: Heap<'_, M>, array: u64) -> Result<Vec<u8>, FunctionError> {
    let length = small_integer(heap.word(array.wrapping_add(8))?);
    let length = length.and_then(|length| usize::try_from(length).ok());
    match length.filter(|length| *length <= MAX_POSITIONS) {
        Some(length) => Ok(heap.memory.bytes(array.wrapping_add(16), length)?),
        None => Err(FunctionError::Invalid("a table of positions")),
    }
}
