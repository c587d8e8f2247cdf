//! Go: how far each instruction has moved the stack stands in `.gopclntab`, also in stripped files.
//!
//! ```text
//! header     magic, quantum, number of functions, address of the code, offsets of the parts
//! functab    start and record of each function, in the order of the code
//! record     offsets of its name and of its stack deltas, flags
//! pctab      streams of (delta of the value, delta of the address)
//! ```
//!
//! Functions that have a frame save the frame pointer directly below the return address. The few
//! that change to another stack keep it as the link between the two stacks.

use crate::elf::{Machine, Segment};
use crate::known;
use crate::source::Part;
use crate::span::{Origin, Span};
use crate::writer::Step;
use crate::{Executable, Refused, Source};
use memchr::memmem;
use profcol_ebpf_common::rule::{Cfa, PUSHED, ReturnAddress, Rule, Saved};

/// The largest seen, of a cluster's node agent, has 60 MB.
const MAX_TABLE: u64 = 128 << 20;

/// How much code is searched for a known function, where the address of the code is not written.
const MAX_SEARCHED: u64 = 64 << 20;

/// The first bytes of a function: its prologue is among them.
const PROLOGUE: u64 = 8;

const MAGIC_1_16: u32 = 0xffff_fffa;
const MAGIC_1_18: u32 = 0xffff_fff0;
const MAGIC_1_20: u32 = 0xffff_fff1;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Go1_16,
    Go1_18,
    Go1_20,
}

/// The outermost function of a stack.
const TOP_FRAME: u8 = 1;
/// It sets the stack pointer to something else.
const WRITES_SP: u8 = 2;
const ASSEMBLY: u8 = 4;

pub(crate) struct Functions {
    machine: Machine,
    table: Vec<u8>,
    version: Version,
    quantum: u64,
    count: usize,
    /// Offsets of the parts in the table.
    names: usize,
    deltas: usize,
    records: usize,
    /// Address of the code that offsets count from.
    text: u64,
    /// Assembly whose frame pointer is not saved where others save it.
    frameless: Vec<u32>,
}

struct Record {
    name: usize,
    deltas: usize,
    flags: u8,
}

impl Functions {
    pub fn read(
        executable: &Executable,
        source: &(impl Source + ?Sized),
    ) -> Result<Option<Self>, Refused> {
        let Some(part) = executable.section(".gopclntab").map(|section| section.part) else {
            return Ok(None);
        };
        let table = part.read(source, MAX_TABLE)?;
        let Some(mut functions) = Self::parse(executable.machine, table) else {
            return Err(Refused::Broken { what: part.what });
        };
        functions.text = functions
            .find_text(executable, source)
            .ok_or(Refused::Broken { what: part.what })?;
        functions.find_frameless(executable, source);
        Ok(Some(functions))
    }

    fn parse(machine: Machine, table: Vec<u8>) -> Option<Self> {
        let header = Reader(&table);
        let version = match header.u32(0)? {
            MAGIC_1_16 => Version::Go1_16,
            MAGIC_1_18 => Version::Go1_18,
            MAGIC_1_20 => Version::Go1_20,
            _ => return None,
        };
        let &[_, _, quantum @ (1 | 4), 8] = table.get(4..8)?.first_chunk::<4>()? else {
            return None;
        };
        let word = |index: usize| usize::try_from(header.u64(8 + 8 * index)?).ok();
        // The address of the code was added before the offsets.
        let (text, names) = match version {
            Version::Go1_16 => (0, 2),
            Version::Go1_18 | Version::Go1_20 => (word(2)? as u64, 3),
        };
        let functions = Self {
            machine,
            version,
            quantum: u64::from(quantum),
            count: word(0)?,
            names: word(names)?,
            deltas: word(names + 3)?,
            records: word(names + 4)?,
            text,
            frameless: Vec::new(),
            table,
        };
        // The end of the last function stands behind it.
        let size = functions
            .count
            .checked_add(1)?
            .checked_mul(functions.entry_size())?;
        (size <= functions.table.len()).then_some(functions)
    }

    fn entry_size(&self) -> usize {
        match self.version {
            Version::Go1_16 => 16,
            Version::Go1_18 | Version::Go1_20 => 8,
        }
    }

    fn reader(&self) -> Reader<'_> {
        Reader(&self.table)
    }

    /// Start of the function, counted from the code, and offset of its record.
    fn entry(&self, index: usize) -> Option<(u64, usize)> {
        let at = self
            .records
            .checked_add(index.checked_mul(self.entry_size())?)?;
        let reader = self.reader();
        let (start, record) = match self.version {
            // Behind the last one, only its end.
            Version::Go1_16 => (reader.u64(at)?, reader.u64(at + 8).unwrap_or(0)),
            Version::Go1_18 | Version::Go1_20 => (
                u64::from(reader.u32(at)?),
                u64::from(reader.u32(at + 4).unwrap_or(0)),
            ),
        };
        Some((
            start,
            self.records.checked_add(usize::try_from(record).ok()?)?,
        ))
    }

    fn record(&self, at: usize) -> Option<Record> {
        let reader = self.reader();
        let (start, flags) = match self.version {
            Version::Go1_16 => (8, 41),
            Version::Go1_18 => (4, 37),
            Version::Go1_20 => (4, 41),
        };
        Some(Record {
            name: reader.u32(at.checked_add(start)?)? as usize,
            deltas: reader.u32(at.checked_add(start + 12)?)? as usize,
            flags: *self.table.get(at.checked_add(flags)?)?,
        })
    }

    fn name(&self, record: &Record) -> &[u8] {
        let start = self.names.saturating_add(record.name);
        let name = self.table.get(start..).unwrap_or_default();
        let name = &name[..name.len().min(64)];
        name.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// Where the code begins. The header says it, unless it is a newer Go's or is written by the
    /// dynamic linker; the code of a known function proves it.
    fn find_text(&self, executable: &Executable, source: &(impl Source + ?Sized)) -> Option<u64> {
        if self.version == Version::Go1_16 {
            return Some(0);
        }
        let landmark = landmark(self.machine);
        let offset = (0..self.count).find_map(|index| {
            let (offset, record) = self.entry(index)?;
            is_landmark(self.machine, self.name(&self.record(record)?)).then_some(offset)
        })?;
        let proves = |text: &u64| {
            let address = text.checked_add(offset)?;
            let bytes = code(executable, source, address, landmark.len() as u64)?;
            Some(bytes == landmark)
        };
        let section = executable.section(".text");
        [Some(self.text), section.map(|section| section.address)]
            .into_iter()
            .flatten()
            .find(|text| proves(text) == Some(true))
            .or_else(|| {
                // Behind C code of the same program.
                let section = section?;
                let bytes = section.part.read(source, MAX_SEARCHED).ok()?;
                let mut found = memmem::find_iter(&bytes, landmark);
                found.find_map(|at| {
                    let address = section.address.checked_add(at as u64)?;
                    let text = address.checked_sub(offset)?;
                    // A C library has the same code, but elsewhere than at the start of a line.
                    (address % 16 == 0 && text >= section.address).then_some(text)
                })
            })
    }

    /// Compiled functions all save the frame pointer; hand-written ones only if their code does.
    fn find_frameless(&mut self, executable: &Executable, source: &(impl Source + ?Sized)) {
        if self.machine != Machine::X86_64 {
            return;
        }
        for index in 0..self.count {
            let Some((start, record)) = self.entry(index) else {
                continue;
            };
            let Some(record) = self.record(record).filter(|r| r.flags & ASSEMBLY != 0) else {
                continue;
            };
            let moved = self.deltas(&record).find(|&(_, delta)| delta != 0);
            let Some((at, delta)) = moved else {
                continue;
            };
            let address = self.text.saturating_add(start).saturating_add(at);
            let bytes = code(executable, source, address.saturating_sub(1), PROLOGUE);
            let saves = match bytes.as_deref() {
                Some([0x55, ..]) => delta == 8,
                // Before Go 1.21 the stack was moved first.
                Some([_, 0x48, 0x89, 0x6c | 0xac, 0x24, ..]) => true,
                _ => false,
            };
            if !saves {
                self.frameless.push(index as u32);
            }
        }
    }

    pub fn spans(&self) -> Vec<Span> {
        (0..self.count)
            .filter_map(|index| {
                let number = u32::try_from(index).ok()?;
                let (start, record) = self.entry(index)?;
                let (end, _) = self.entry(index + 1)?;
                // Who looks for a call before the address to which it returns finds it there.
                let early = u64::from(returns_from_signal(self.name(&self.record(record)?)));
                Some(Span {
                    start: self.text.checked_add(start)?.saturating_sub(early),
                    end: self.text.checked_add(end)?,
                    origin: Origin::Go(number),
                })
            })
            .collect()
    }

    pub fn steps(&self, number: u32, start: u64, end: u64, steps: &mut Vec<Step>) {
        let mut push = |at: u64, rule: Rule| {
            let step = Step {
                at: at.max(start),
                rule: rule.encode(),
            };
            if steps.last().is_none_or(|last| last.rule != step.rule) {
                steps.push(step);
            }
        };
        let index = number as usize;
        let function = self
            .entry(index)
            .and_then(|(entry, record)| Some((entry, self.record(record)?)));
        let Some((entry, record)) = function else {
            push(start, Rule::Unsupported);
            return;
        };
        let name = self.name(&record);
        if let Some(rule) = whole(name, record.flags) {
            push(start, rule);
            return;
        }
        let shape = Shape {
            machine: self.machine,
            saves: self.frameless.binary_search(&number).is_err(),
            switches: (record.flags & WRITES_SP != 0).then(|| {
                // On aarch64 all others change the frame pointer with the stack.
                self.deltas(&record).any(|(_, delta)| delta > 0)
                    && (self.machine == Machine::X86_64 || name == b"runtime.systemstack")
            }),
        };
        let entry = self.text.saturating_add(entry);
        let mut deltas = self.deltas(&record).peekable();
        if deltas.peek().is_none() {
            push(start, Rule::Unsupported);
        }
        for (at, delta) in deltas {
            let at = entry.saturating_add(at);
            if at >= end {
                break;
            }
            push(at, shape.rule(delta));
        }
    }

    fn deltas(&self, record: &Record) -> Deltas<'_> {
        let start = self.deltas.saturating_add(record.deltas);
        let none = record.deltas == 0;
        Deltas {
            bytes: self
                .table
                .get(start..)
                .filter(|_| !none)
                .unwrap_or_default(),
            quantum: self.quantum,
            at: 0,
            value: -1,
        }
    }
}

/// Functions whose stack is known by what they are.
fn whole(name: &[u8], flags: u8) -> Option<Rule> {
    match name {
        _ if returns_from_signal(name) => Some(Rule::SignalFrame),
        // Below it lies what the signal interrupted.
        b"runtime.sigtramp" | b"runtime.cgoSigtramp" | b"runtime.sigprofNonGoWrapper" => None,
        b"_rt0_amd64" | b"_rt0_amd64_linux" | b"_rt0_arm64_linux" | b"runtime.goexit"
        | b"runtime.mstart" | b"runtime.rt0_go" => Some(Rule::End),
        // It calls what never returns, on a stack that begins there.
        b"runtime.mcall" => Some(Rule::End),
        _ if flags & TOP_FRAME != 0 => Some(Rule::End),
        _ => None,
    }
}

/// A function that every program has and whose code never changed.
fn is_landmark(machine: Machine, name: &[u8]) -> bool {
    match machine {
        Machine::X86_64 => returns_from_signal(name),
        Machine::Aarch64 => name == b"runtime.goexit",
    }
}

/// How its code begins.
fn landmark(machine: Machine) -> &'static [u8] {
    match machine {
        Machine::X86_64 => known::signal_return(machine),
        // mov x0, x0: it does nothing, and compilers emit none.
        Machine::Aarch64 => &[0xe0, 0x03, 0x00, 0xaa],
    }
}

fn returns_from_signal(name: &[u8]) -> bool {
    matches!(name, b"runtime.sigreturn__sigaction" | b"runtime.sigreturn")
}

/// How a function uses its frame.
struct Shape {
    machine: Machine,
    /// It saves the frame pointer below the return address.
    saves: bool,
    /// It changes to another stack; whether its own is then found by the frame pointer.
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

    fn x86_64(&self, delta: i32) -> Option<Rule> {
        let saved = match (delta, self.saves) {
            (0, _) | (_, false) => Saved::Same,
            _ => Saved::At(-16),
        };
        let cfa = match (self.switches, saved) {
            (Some(_), Saved::At(_)) => Cfa::Fp(16),
            (Some(_), _) if delta > 0 => return None,
            _ => Cfa::Sp(delta.checked_add(8)?),
        };
        Some(Rule::frame(cfa, saved, PUSHED))
    }

    /// The return address stands at the bottom of the frame, the frame pointer below it.
    fn aarch64(&self, delta: i32) -> Option<Rule> {
        if delta == 0 {
            return Some(Rule::frame(
                Cfa::Sp(0),
                Saved::Same,
                ReturnAddress::LinkRegister,
            ));
        }
        let bottom = i16::try_from(-delta).ok()?;
        let cfa = match self.switches {
            Some(_) => Cfa::Fp(delta.checked_add(8)?),
            None => Cfa::Sp(delta),
        };
        let saved = Saved::At(bottom.checked_sub(8)?);
        Some(Rule::frame(cfa, saved, ReturnAddress::At(bottom)))
    }
}

/// Offsets in a function, and how far the stack is moved from there on.
struct Deltas<'a> {
    bytes: &'a [u8],
    quantum: u64,
    at: u64,
    value: i32,
}

impl Deltas<'_> {
    fn number(&mut self) -> Option<u32> {
        let mut number = 0u32;
        for shift in (0..32).step_by(7) {
            let (&byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            number |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

impl Iterator for Deltas<'_> {
    type Item = (u64, i32);

    fn next(&mut self) -> Option<Self::Item> {
        let change = self.number()?;
        if change == 0 && self.at > 0 {
            self.bytes = &[];
            return None;
        }
        let change = (change >> 1) as i32 ^ -((change & 1) as i32);
        self.value = self.value.wrapping_add(change);
        let start = self.at;
        // Each holds for something, or the stream is broken and would have no end.
        let length = u64::from(self.number().filter(|&length| length > 0)?);
        self.at += length * self.quantum;
        Some((start, self.value))
    }
}

/// Code at an address, if all of it is in one segment of the file.
fn code(
    executable: &Executable,
    source: &(impl Source + ?Sized),
    address: u64,
    size: u64,
) -> Option<Vec<u8>> {
    let segment: &Segment = executable.segment_at(address)?;
    let part = Part {
        what: "the code",
        offset: segment.file_offset + (address - segment.address),
        size: size.min(segment.end() - address),
    };
    part.read(source, size).ok()
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn u32(&self, at: usize) -> Option<u32> {
        let bytes = self.0.get(at..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    }

    fn u64(&self, at: usize) -> Option<u64> {
        let bytes = self.0.get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }
}
