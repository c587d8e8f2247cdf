//! The file of a function, and its line ends.

use memchr::memchr2_iter;

use super::heap::{Characters, Heap};
use super::tagged::{small_integer, untagged};
use crate::FunctionError;
use crate::memory::Memory;

const SOURCE: u64 = 8;
const NAME: u64 = 16;
const LINE_OFFSET: u64 = 24;
const LINE_ENDS: u64 = 56;

/// Maximum characters of a script's name, and of its source.
const MAX_NAME: u64 = 1024;
const MAX_SOURCE: u64 = 16 << 20;
/// Maximum number of lines of a script.
const MAX_LINES: usize = 1 << 18;

/// Identifies a script with its current source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScriptKey {
    pub script: u64,
    source: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    pub name: String,
    /// Positions of its line ends.
    line_ends: Vec<u32>,
    /// The offset of its first line in the containing file.
    line_offset: u32,
}

impl Script {
    pub fn key<M: Memory>(heap: Heap<'_, M>, script: u64) -> Result<ScriptKey, FunctionError> {
        heap.expect(script, heap.layout.types.script, "a script")?;
        let source = heap.word(script.wrapping_add(SOURCE))?;
        Ok(ScriptKey { script, source })
    }

    pub fn read<M: Memory>(heap: Heap<'_, M>, key: ScriptKey) -> Result<Self, FunctionError> {
        let mut name = text_at(heap, key.script.wrapping_add(NAME))?;
        if name.is_empty() {
            // Of code from `eval` and `new Function`, such as a template: the comment `//# sourceURL=` names its file.
            let source_url = heap.layout.script.source_url;
            name = text_at(heap, key.script.wrapping_add(source_url)).unwrap_or_default();
        }
        let line_offset = heap.word(key.script.wrapping_add(LINE_OFFSET))?;
        let line_offset = small_integer(line_offset).and_then(|offset| u32::try_from(offset).ok());
        Ok(Self {
            name: name.strip_prefix("file://").unwrap_or(&name).to_owned(),
            line_ends: line_ends(heap, key).unwrap_or_default(),
            line_offset: line_offset.unwrap_or(0),
        })
    }

    /// The line of a position, starting at 1; 0 if unknown.
    pub fn line(&self, offset: u32) -> u32 {
        if self.line_ends.is_empty() {
            return 0;
        }
        let before = self.line_ends.partition_point(|end| *end < offset);
        (before as u32)
            .saturating_add(1)
            .saturating_add(self.line_offset)
    }

    pub fn lines(&self) -> usize {
        self.line_ends.len()
    }
}

/// Empty if there is none, or the collector is moving it.
fn text_at<M: Memory>(heap: Heap<'_, M>, place: u64) -> Result<String, FunctionError> {
    let object = heap.pointer(place)?;
    match heap.instance_type(object)? < heap.layout.types.first_nonstring {
        true => heap.text(object, MAX_NAME),
        false => Ok(String::new()),
    }
}

/// V8 caches line ends once it has formatted an error.
fn line_ends<M: Memory>(heap: Heap<'_, M>, key: ScriptKey) -> Result<Vec<u32>, FunctionError> {
    let known = heap.pointer(key.script.wrapping_add(LINE_ENDS));
    if let Ok(known) = known.and_then(|known| known_line_ends(heap, known)) {
        return Ok(known);
    }
    let source = untagged(key.source).ok_or(FunctionError::Invalid("a source"))?;
    let mut ends = Ends::default();
    let length = heap.characters(source, MAX_SOURCE, &mut |offset, part| match part {
        Characters::Narrow(part) => {
            for at in memchr2_iter(b'\n', b'\r', part) {
                let unit = part.get(at).copied().unwrap_or_default();
                ends.add(offset as u32 + at as u32, unit.into());
            }
        }
        Characters::Wide(part) => {
            for (at, &unit) in part.iter().enumerate() {
                if matches!(unit, 0x0a | 0x0d | 0x2028 | 0x2029) {
                    ends.add(offset as u32 + at as u32, unit);
                }
            }
        }
    })?;
    let mut ends = ends.line_ends;
    ends.push(length as u32);
    Ok(ends)
}

#[derive(Default)]
struct Ends {
    line_ends: Vec<u32>,
    last: u16,
}

impl Ends {
    fn add(&mut self, offset: u32, unit: u16) {
        let before = std::mem::replace(&mut self.last, unit);
        // CR LF counts as one line end.
        if (before, unit) == (0x0d, 0x0a)
            && let Some(last) = self.line_ends.last_mut()
            && *last + 1 == offset
        {
            *last = offset;
        } else if self.line_ends.len() < MAX_LINES {
            self.line_ends.push(offset);
        }
    }
}

fn known_line_ends<M: Memory>(heap: Heap<'_, M>, array: u64) -> Result<Vec<u32>, FunctionError> {
    let invalid = FunctionError::Invalid("line ends");
    let length = small_integer(heap.word(array.wrapping_add(8))?);
    let length = length.and_then(|length| usize::try_from(length).ok());
    let length = length.filter(|length| (1..=MAX_LINES).contains(length));
    let Some(length) = length else {
        return Err(invalid);
    };
    let bytes = heap.memory.bytes(array.wrapping_add(16), length * 8)?;
    let mut ends = Vec::with_capacity(length);
    for word in bytes.chunks_exact(8) {
        let end = small_integer(u64::from_le_bytes(word.try_into().unwrap_or_default()));
        let end = end.and_then(|end| u32::try_from(end).ok());
        match end {
            Some(end) if ends.last().is_none_or(|last| *last < end) => ends.push(end),
            _ => return Err(invalid),
        }
    }
    Ok(ends)
}
