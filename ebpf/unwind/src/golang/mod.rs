//! Go: `.gopclntab` has the stack delta of each instruction, also in stripped files.
//!
//! Functions with a frame save the frame pointer directly below the return address. The few
//! that switch to another stack keep it as the link between the two stacks.

mod pclntab;

use std::ops::Range;

use crate::span::{Origin, Span};
use crate::writer::Step;
use crate::{ElfCode, UnwindTableError};
use memchr::memmem;
use pclntab::Table;
use profcol_ebpf_common::rule::{Cfa, PUSHED, ReturnAddress, Rule, SavedFp};
use profcol_elf::{Extent, Machine, PclntabVersion, Segment, Source};

/// Maximum amount of code to search for a known function if the address of the code is not recorded.
const MAX_SEARCHED: u64 = 64 << 20;

/// The first bytes of a function, which contain its prologue.
const PROLOGUE: u64 = 8;

/// Bytes of `mov rbp, rsp`.
const MOVE_FP: u64 = 3;

/// `FuncFlag_TOPFRAME`: the outermost function of a stack.
const TOP_FRAME: u8 = 1;
/// `FuncFlag_SPWRITE`: it sets the stack pointer to an arbitrary value.
const WRITES_SP: u8 = 2;
const ASSEMBLY: u8 = 4;

pub(crate) struct Functions<'s, S: ?Sized> {
    machine: Machine,
    table: Table<'s, S>,
    /// The code address that offsets are relative to.
    text: u64,
    /// Assembly functions that do not save the frame pointer in the usual place.
    frameless: Vec<u32>,
}

impl ElfCode {
    /// The addresses of a Go function, also in stripped files; only for names of at most 31 bytes.
    pub fn go_function(&self, source: &(impl Source + ?Sized), name: &str) -> Option<Range<u64>> {
        Functions::find(self, source, name.as_bytes())
    }
}

impl<'s, S: Source + ?Sized> Functions<'s, S> {
    pub fn read(elf: &ElfCode, source: &'s S) -> Result<Option<Self>, UnwindTableError> {
        let mut functions = Self::open(elf, source)?;
        if let Some(functions) = &mut functions {
            functions.find_frameless(elf, source);
        }
        Ok(functions)
    }

    fn open(elf: &ElfCode, source: &'s S) -> Result<Option<Self>, UnwindTableError> {
        let Some(extent) = elf.go_functions().map(|section| section.extent) else {
            return Ok(None);
        };
        let broken = UnwindTableError::Broken { what: extent.what };
        let mut functions = Self {
            machine: elf.machine,
            table: Table::open(source, extent)?,
            text: 0,
            frameless: Vec::new(),
        };
        let Some(text) = functions.find_text(elf, source) else {
            return Err(broken);
        };
        functions.text = text;
        Ok(Some(functions))
    }

    /// The addresses of the function with this name of at most [`pclntab::MAX_NAME`] bytes.
    fn find(elf: &ElfCode, source: &'s S, name: &[u8]) -> Option<Range<u64>> {
        let mut functions = Self::open(elf, source).ok()??;
        (0..functions.table.header.functions).find_map(|index| {
            let (start, record) = functions.table.function(index)?;
            let (end, _) = functions.table.entry(index + 1)?;
            let address = |offset| functions.text.checked_add(offset);
            (record.name.get() == name).then_some(address(start)?..address(end)?)
        })
    }

    /// The start of the code. It is in the header, except with newer versions of Go or if the dynamic linker
    /// fills it in; the code of a known function confirms it.
    fn find_text(&mut self, elf: &ElfCode, source: &S) -> Option<u64> {
        if self.table.header.version == PclntabVersion::Go1_16 {
            return Some(0);
        }
        let landmark = landmark(self.machine);
        let offset = (0..self.table.header.functions).find_map(|index| {
            let (offset, record) = self.table.entry(index)?;
            let record = self.table.record(record)?;
            is_landmark(self.machine, record.name.get()).then_some(offset)
        })?;
        let proves = |text: &u64| {
            let address = text.checked_add(offset)?;
            let bytes = code(elf, source, address, landmark.len() as u64)?;
            Some(bytes == landmark)
        };
        let section = elf.section(".text");
        [
            Some(self.table.header.text),
            section.map(|section| section.address),
        ]
        .into_iter()
        .flatten()
        .find(|text| proves(text) == Some(true))
        .or_else(|| {
            // The Go code follows C code of the same program.
            let section = section?;
            let bytes = section.extent.read(source, MAX_SEARCHED).ok()?;
            let mut found = memmem::find_iter(&bytes, landmark);
            found.find_map(|at| {
                let address = section.address.checked_add(at as u64)?;
                let text = address.checked_sub(offset)?;
                (address % 16 == 0 && text >= section.address).then_some(text)
            })
        })
    }

    /// All compiled functions save the frame pointer; handwritten ones only if their code does.
    fn find_frameless(&mut self, elf: &ElfCode, source: &S) {
        if self.machine != Machine::X86_64 {
            return;
        }
        for index in 0..self.table.header.functions {
            let Some((start, record)) = self.table.entry(index) else {
                continue;
            };
            let Some(record) = self
                .table
                .record(record)
                .filter(|r| r.flags & ASSEMBLY != 0)
            else {
                continue;
            };
            let moved = self.table.deltas(&record).find(|&(_, delta)| delta != 0);
            let Some((at, delta)) = moved else {
                continue;
            };
            let address = self.text.saturating_add(start).saturating_add(at);
            let bytes = code(elf, source, address.saturating_sub(1), PROLOGUE);
            let saves = match bytes.as_deref() {
                Some([0x55, ..]) => delta == 8,
                // Before Go 1.21 the prologue moved the stack pointer first.
                Some([_, 0x48, 0x89, 0x6c | 0xac, 0x24, ..]) => true,
                _ => false,
            };
            if !saves {
                self.frameless.push(index as u32);
            }
        }
    }

    pub fn spans(&mut self) -> Vec<Span> {
        let text = self.text;
        (0..self.table.header.functions)
            .filter_map(|index| {
                let (start, record) = self.table.entry(index)?;
                let (end, _) = self.table.entry(index + 1)?;
                // Also covers the byte before, because the look-up of a return address subtracts one.
                let early = u64::from(returns_from_signal(self.table.record(record)?.name.get()));
                Some(Span {
                    start: text.checked_add(start)?.saturating_sub(early),
                    end: text.checked_add(end)?,
                    origin: Origin::Go(index as u32),
                })
            })
            .collect()
    }

    pub fn steps(&mut self, number: u32, start: u64, end: u64, steps: &mut Vec<Step>) {
        let mut push = |at: u64, rule: Rule| {
            let step = Step {
                at: at.max(start),
                rule: rule.encode(),
            };
            if steps.last().is_none_or(|last| last.rule != step.rule) {
                steps.push(step);
            }
        };
        let Some((entry, record)) = self.table.function(u64::from(number)) else {
            push(start, Rule::Unsupported);
            return;
        };
        if let Some(rule) = whole(record.name.get(), record.flags) {
            push(start, rule);
            return;
        }
        let shape = Shape {
            machine: self.machine,
            saves: self.frameless.binary_search(&number).is_err(),
            switches: (record.flags & WRITES_SP != 0).then(|| {
                // On aarch64 all others change the frame pointer together with the stack pointer.
                self.table.deltas(&record).any(|(_, delta)| delta > 0)
                    && (self.machine == Machine::X86_64
                        || record.name.get() == b"runtime.systemstack")
            }),
        };
        let entry = self.text.saturating_add(entry);
        let mut deltas = self.table.deltas(&record).peekable();
        if deltas.peek().is_none() {
            push(start, Rule::Unsupported);
        }
        let mut has_begun = false;
        for (at, delta) in deltas {
            let at = entry.saturating_add(at);
            if at >= end {
                break;
            }
            if let Some(rule) = shape.until_moved(delta).filter(|_| !has_begun) {
                push(at, rule);
                push(at.saturating_add(MOVE_FP), shape.rule(delta));
            } else {
                push(at, shape.rule(delta));
            }
            has_begun |= delta != 0;
        }
    }
}

/// Functions with a special rule.
fn whole(name: &[u8], flags: u8) -> Option<Rule> {
    match name {
        _ if returns_from_signal(name) => Some(Rule::SignalFrame),
        // The frame below it is the one that the signal interrupted.
        b"runtime.sigtramp" | b"runtime.cgoSigtramp" | b"runtime.sigprofNonGoWrapper" => None,
        b"_rt0_amd64" | b"_rt0_amd64_linux" | b"_rt0_arm64_linux" | b"runtime.goexit"
        | b"runtime.mstart" | b"runtime.rt0_go" => Some(Rule::End),
        // It calls a function that never returns, on a stack that begins there.
        b"runtime.mcall" => Some(Rule::End),
        _ if flags & TOP_FRAME != 0 => Some(Rule::End),
        _ => None,
    }
}

/// A function that is in every program and whose code never changed.
fn is_landmark(machine: Machine, name: &[u8]) -> bool {
    match machine {
        Machine::X86_64 => returns_from_signal(name),
        Machine::Aarch64 => name == b"runtime.goexit",
    }
}

/// The first bytes of its code.
fn landmark(machine: Machine) -> &'static [u8] {
    match machine {
        // The system call, and the trap after it, which C libraries do not have.
        Machine::X86_64 => &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05, 0xcd, 3],
        // mov x0, x0: a no-op that compilers do not emit.
        Machine::Aarch64 => &[0xe0, 0x03, 0x00, 0xaa],
    }
}

fn returns_from_signal(name: &[u8]) -> bool {
    matches!(name, b"runtime.sigreturn__sigaction" | b"runtime.sigreturn")
}

/// How a function uses its frame.
struct Shape {
    machine: Machine,
    /// Whether it saves the frame pointer below the return address.
    saves: bool,
    /// Set if it switches stacks: whether the frame pointer then leads to its own stack.
    switches: Option<bool>,
}

impl Shape {
    fn rule(&self, delta: i32) -> Rule {
        if delta < 0 || self.switches == Some(false) {
            return Rule::Unsupported;
        }
        match self.machine {
            Machine::X86_64 => self.x86_64(delta),
            Machine::Aarch64 => self.aarch64(delta),
        }
        .unwrap_or(Rule::Unsupported)
    }

    /// The rule right after pushing the frame pointer, before the stack switch: the register still holds the
    /// caller's frame pointer.
    fn until_moved(&self, delta: i32) -> Option<Rule> {
        let is_push = delta == 8 && self.saves && self.machine == Machine::X86_64;
        let changes = self.switches == Some(true);
        (is_push && changes).then(|| Rule::frame(Cfa::Sp(16), SavedFp::At(-16), PUSHED))
    }

    fn x86_64(&self, delta: i32) -> Option<Rule> {
        let saved = match (delta, self.saves) {
            (0, _) | (_, false) => SavedFp::Same,
            _ => SavedFp::At(-16),
        };
        let cfa = match (self.switches, saved) {
            (Some(_), SavedFp::At(_)) => return Some(Rule::OtherStack),
            (Some(_), _) if delta > 0 => return None,
            _ => Cfa::Sp(delta.checked_add(8)?),
        };
        Some(Rule::frame(cfa, saved, PUSHED))
    }

    /// The return address is at the bottom of the frame, the frame pointer below it.
    fn aarch64(&self, delta: i32) -> Option<Rule> {
        if delta == 0 {
            return Some(Rule::frame(
                Cfa::Sp(0),
                SavedFp::Same,
                ReturnAddress::LinkRegister,
            ));
        }
        let bottom = delta.checked_neg()?;
        let cfa = match self.switches {
            Some(_) => Cfa::Fp(delta.checked_add(8)?),
            None => Cfa::Sp(delta),
        };
        let saved = SavedFp::At(bottom.checked_sub(8)?);
        Some(Rule::frame(cfa, saved, ReturnAddress::At(bottom)))
    }
}

/// The code at an address, if it is in a single segment of the file.
fn code(
    elf: &ElfCode,
    source: &(impl Source + ?Sized),
    address: u64,
    size: u64,
) -> Option<Vec<u8>> {
    let segment: &Segment = elf.segment_at(address)?;
    let extent = Extent {
        what: "the code",
        offset: segment.file_offset + (address - segment.address),
        size: size.min(segment.end() - address),
    };
    extent.read(source, size).ok()
}
