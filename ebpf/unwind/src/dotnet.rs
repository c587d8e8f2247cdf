//! Rules of .NET code that was compiled ahead of time.

use std::collections::HashMap;

use memchr::memchr_iter;
use profcol_dotnet::{Assembly, Bundle, DotNetError, ImageLayout, Part, UnwindFunction};
use profcol_ebpf_common::interpreter::BlockMemory;
use profcol_ebpf_common::interpreter::dotnet::{Codes, Epilogue};
use profcol_ebpf_common::rule::{EncodedRule, Rule};
use profcol_ebpf_common::table::{Page, Row};
use profcol_elf::Source;

use crate::UnwindTableError;
use crate::table::Table;
use crate::writer::Writer;

/// Larger ones have no rules. The framework's largest has 14 MB.
const MAX_ASSEMBLY_BYTES: u64 = 256 << 20;
const MAX_FUNCTION_BYTES: u32 = 1 << 20;
/// Between functions.
const MAX_PADDING_BYTES: u64 = 15;
const RET: u8 = 0xc3;
/// Instructions before a return that restore registers.
const MAX_EPILOGUE_BYTES: usize = 16;

impl Table {
    /// The rules of an assembly that is a file of its own. None without native code.
    pub fn of_assembly(source: &(impl Source + ?Sized)) -> Result<Option<Self>, UnwindTableError> {
        let size = source.length().unwrap_or_default();
        let part = Part {
            source,
            offset: 0,
            size,
        };
        Self::of_parts([part])
    }

    /// The rules of the assemblies in a single-file program. None without native code.
    pub fn of_bundle(
        bundle: &Bundle,
        source: &(impl Source + ?Sized),
    ) -> Result<Option<Self>, UnwindTableError> {
        Self::of_parts(bundle.files().iter().map(|file| Part {
            source,
            offset: file.offset,
            size: file.size,
        }))
    }

    fn of_parts<S: Source>(
        parts: impl IntoIterator<Item = Part<S>>,
    ) -> Result<Option<Self>, UnwindTableError> {
        let mut writer: Option<Writer> = None;
        let mut end = 0;
        for part in parts {
            let Ok(Some(code)) = NativeCode::read(&part) else {
                // Not an assembly, or one without native code.
                continue;
            };
            let writer = writer.get_or_insert_with(|| Writer::new(part.offset));
            end = code.write(part.offset, end, writer)?;
        }
        writer.map(|writer| writer.finish(end)).transpose()
    }

    /// Appends the rules of later code of the same file.
    pub fn append(&mut self, later: Self) -> Result<(), UnwindTableError> {
        let rows = self.rows.len() as u32;
        let rules = self.rules.len() as u32;
        let end = self.first_page + self.pages.len() as u64;
        let Some(gap) = later.first_page.checked_sub(end) else {
            return Err(UnwindTableError::Broken {
                what: "the order of code",
            });
        };
        let empty = std::iter::repeat_n(Page::EMPTY, gap as usize);
        self.pages.extend(empty);
        self.pages
            .extend(later.pages.iter().map(|page| match page.count {
                0 => *page,
                _ => Page {
                    rows: page.rows + rows,
                    ..*page
                },
            }));
        let renumbered = later
            .rows
            .iter()
            .map(|row| Row::new(row.offset().into(), row.rule() + rules));
        self.rows.extend(renumbered);
        self.rules.extend(later.rules);
        Ok(())
    }
}

struct NativeCode {
    assembly: Assembly,
    bytes: Vec<u8>,
    functions: Vec<UnwindFunction>,
}

/// What the unwind information of a function says.
struct Prologue {
    /// A rule from an offset in the function on.
    steps: Vec<(u32, EncodedRule)>,
    /// Number of registers that an epilogue restores.
    pushed: usize,
}

/// Words of code, by a function that finds the bytes from an address on. They are enough for unwind codes and epilogues.
struct CodeWords<F>(F);

impl<'a, F: Fn(u64) -> Option<&'a [u8]>> BlockMemory for CodeWords<F> {
    fn load_block(&mut self, _: u64, _: u32) -> bool {
        false
    }

    fn block_word(&self, _: u32) -> u64 {
        0
    }

    /// Bytes after the end are 0.
    fn word(&mut self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip((self.0)(address)?) {
            *to = *from;
        }
        Some(u64::from_le_bytes(word))
    }
}

impl NativeCode {
    fn read<S: Source>(part: &Part<S>) -> Result<Option<Self>, DotNetError> {
        if part.size > MAX_ASSEMBLY_BYTES {
            return Ok(None);
        }
        let assembly = Assembly::read(part, ImageLayout::File)?;
        let mut functions = assembly.unwind_functions(part)?;
        functions.sort_unstable_by_key(|function| function.start);
        if functions.is_empty() {
            return Ok(None);
        }
        let mut bytes = vec![0; part.size as usize];
        Ok(match part.read_at(&mut bytes, 0) {
            Ok(()) => Some(Self {
                assembly,
                bytes,
                functions,
            }),
            // It became shorter.
            Err(_) => None,
        })
    }

    /// The file from an address of the image on.
    fn rest(&self, rva: u32) -> Option<&[u8]> {
        let offset = self.assembly.offset_of_rva(rva)?;
        self.bytes.get(usize::try_from(offset).ok()?..)
    }

    /// Writes the rules of all functions from the offset `written` on. Returns the end of the last one, where the rule is
    /// still that of its last instruction.
    fn write(
        &self,
        offset: u64,
        mut written: u64,
        writer: &mut Writer,
    ) -> Result<u64, UnwindTableError> {
        let mut prologues = HashMap::new();
        for function in &self.functions {
            let size = function.end.saturating_sub(function.start);
            let start = self.assembly.offset_of_rva(function.start);
            let Some(start) = start.and_then(|start| offset.checked_add(start)) else {
                continue;
            };
            let code = self.rest(function.start);
            let code = code.and_then(|code| code.get(..size as usize));
            let (Some(code), 1..MAX_FUNCTION_BYTES) = (code, size) else {
                continue;
            };
            if start < written {
                continue;
            }
            // A function begins as the one before ends: with the return address on top of the stack.
            if start - written > MAX_PADDING_BYTES {
                writer.set(written, Rule::Gap.encode())?;
            }
            let prologue = prologues
                .entry(function.info)
                .or_insert_with(|| self.prologue(function.info));
            let rules = match prologue {
                Some(prologue) => prologue.rules(code),
                // Not the rule of the function before it.
                None => vec![(0, Rule::Gap.encode())],
            };
            for (at, rule) in rules {
                writer.set(start + u64::from(at), rule)?;
            }
            written = start + u64::from(size);
        }
        Ok(written)
    }

    fn prologue(&self, info: u32) -> Option<Prologue> {
        let head = self.rest(info)?;
        let [_, size, count, _] = *head.first_chunk::<4>()?;
        let slots = head.get(4..4 + 2 * usize::from(count))?;
        let (slots, _) = slots.as_chunks::<2>();
        // Slots that belong to the code before them only add steps without a change.
        let mut offsets: Vec<u8> = slots.iter().map(|[offset, _]| *offset).collect();
        offsets.push(0);
        offsets.retain(|offset| *offset <= size);
        offsets.sort_unstable();
        offsets.dedup();
        let mut memory = CodeWords(|address| self.rest(u32::try_from(address).ok()?));
        let mut steps = Vec::new();
        let mut pushed = 0;
        for offset in offsets {
            let mut codes = Codes::at(info.into(), offset.into(), &mut memory)?;
            while codes.read(&mut memory)? {}
            pushed = codes.pushed() as usize;
            steps.push((u32::from(offset), codes.rule()));
        }
        Some(Prologue { steps, pushed })
    }
}

impl Prologue {
    /// The rules of a function with this code, by offset.
    fn rules(&self, code: &[u8]) -> Vec<(u32, EncodedRule)> {
        let mut rules = self.steps.clone();
        let Some(&(body, rule)) = self.steps.last() else {
            return rules;
        };
        for end in memchr_iter(RET, code) {
            let Some(epilogue) = self.epilogue(code, end, body as usize) else {
                continue;
            };
            rules.extend(epilogue);
            if end + 1 < code.len() {
                rules.push((end as u32 + 1, rule));
            }
        }
        rules
    }

    /// The rules of the instructions that restore registers before a return. None if this byte is not the end of an
    /// epilogue.
    fn epilogue(&self, code: &[u8], end: usize, body: usize) -> Option<Vec<(u32, EncodedRule)>> {
        let first = end.saturating_sub(MAX_EPILOGUE_BYTES).max(body);
        (first..=end).find_map(|start| {
            let mut at = start;
            let mut starts = Vec::new();
            while at < end {
                starts.push(at);
                at += pop_bytes(code.get(at..end)?)?;
            }
            starts.push(end);
            let is_whole = at == end && starts.len() == self.pushed + 1;
            let frees = is_whole && (self.pushed > 0 || frees_frame(code.get(..start)?));
            frees.then_some(())?;
            let rules = starts.iter().map(|&at| {
                let mut memory = CodeWords(|at| code.get(usize::try_from(at).ok()?..));
                let mut epilogue = Epilogue::at(at as u64);
                while !epilogue.read(&mut memory)? {}
                Some((at as u32, epilogue.rule()))
            });
            rules.collect()
        })
    }
}

/// The size of an instruction that pops a register.
fn pop_bytes(code: &[u8]) -> Option<usize> {
    match code {
        [0x58..=0x5f, ..] => Some(1),
        [0x41, 0x58..=0x5f, ..] => Some(2),
        _ => None,
    }
}

/// Whether the code ends with an instruction that frees the frame: `add rsp, imm8` or `add rsp, imm32`.
fn frees_frame(code: &[u8]) -> bool {
    matches!(
        code,
        [.., 0x48, 0x83, 0xc4, _] | [.., 0x48, 0x81, 0xc4, _, _, _, _]
    )
}
