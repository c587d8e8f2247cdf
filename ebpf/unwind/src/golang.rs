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
use crate::source::{Part, Window};
use crate::span::{Origin, Span};
use crate::writer::Step;
use crate::{Executable, Refused, Source};
use memchr::memmem;
use profcol_ebpf_common::rule::{Cfa, PUSHED, ReturnAddress, Rule, Saved};

/// It is read in small pieces: the largest seen has 186 MB, a third of it are stack deltas.
const MAX_TABLE: u64 = 1 << 30;

/// Functions of code of 2 GiB, were they all as small as one line of it.
const MAX_FUNCTIONS: u64 = 1 << 26;

/// Longer names are of no function that is known here.
const MAX_NAME: u64 = 32;

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

pub(crate) struct Functions<'s, S: ?Sized> {
    machine: Machine,
    version: Version,
    quantum: u64,
    count: u64,
    functab: Area<'s, S>,
    records: Area<'s, S>,
    names: Area<'s, S>,
    deltas: Area<'s, S>,
    /// Address of the code that offsets count from.
    text: u64,
    /// Assembly whose frame pointer is not saved where others save it.
    frameless: Vec<u32>,
}

/// Part of the table, up to the table's end.
struct Area<'s, S: ?Sized> {
    window: Window<'s, S>,
    start: u64,
    end: u64,
}

impl<'s, S: Source + ?Sized> Area<'s, S> {
    fn new(source: &'s S, table: Part, offset: u64) -> Option<Self> {
        let end = table.offset.checked_add(table.size)?;
        let start = table.offset.checked_add(offset)?;
        (start <= end).then(|| Self {
            window: Window::new(source),
            start,
            end,
        })
    }

    fn get(&mut self, at: u64, size: u64) -> Option<&[u8]> {
        let at = self.start.checked_add(at)?;
        if at.checked_add(size)? > self.end {
            return None;
        }
        self.window.get(at, size)
    }

    fn u32(&mut self, at: u64) -> Option<u32> {
        Some(u32::from_le_bytes(*self.get(at, 4)?.first_chunk()?))
    }

    fn u64(&mut self, at: u64) -> Option<u64> {
        Some(u64::from_le_bytes(*self.get(at, 8)?.first_chunk()?))
    }
}

struct Record {
    deltas: u64,
    flags: u8,
    /// None of those that are long.
    name: Name,
}

/// The first bytes of a function's name.
struct Name([u8; MAX_NAME as usize]);

impl Name {
    fn get(&self) -> &[u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}

impl<'s, S: Source + ?Sized> Functions<'s, S> {
    pub fn read(executable: &Executable, source: &'s S) -> Result<Option<Self>, Refused> {
        let Some(part) = executable.go_functions().map(|section| section.part) else {
            return Ok(None);
        };
        if part.size > MAX_TABLE {
            return Err(Refused::TooLarge {
                what: part.what,
                size: part.size,
                limit: MAX_TABLE,
            });
        }
        let broken = Refused::Broken { what: part.what };
        let Some(mut functions) = Self::parse(executable.machine, source, part) else {
            return Err(broken);
        };
        let Some(text) = functions.find_text(executable, source) else {
            return Err(broken);
        };
        functions.text = text;
        functions.find_frameless(executable, source);
        Ok(Some(functions))
    }

    fn parse(machine: Machine, source: &'s S, part: Part) -> Option<Self> {
        let mut header = Area::new(source, part, 0)?;
        let version = match header.u32(0)? {
            MAGIC_1_16 => Version::Go1_16,
            MAGIC_1_18 => Version::Go1_18,
            MAGIC_1_20 => Version::Go1_20,
            _ => return None,
        };
        let &[_, _, quantum @ (1 | 4), 8] = header.get(4, 4)? else {
            return None;
        };
        let mut word = |index: u64| header.u64(8 + 8 * index);
        // The address of the code was added before the offsets.
        let (text, names) = match version {
            Version::Go1_16 => (0, 2),
            Version::Go1_18 | Version::Go1_20 => (word(2)?, 3),
        };
        let count = word(0).filter(|&count| count < MAX_FUNCTIONS)?;
        let records = word(names + 4)?;
        Some(Self {
            machine,
            version,
            quantum: u64::from(quantum),
            count,
            functab: Area::new(source, part, records)?,
            records: Area::new(source, part, records)?,
            names: Area::new(source, part, word(names)?)?,
            deltas: Area::new(source, part, word(names + 3)?)?,
            text,
            frameless: Vec::new(),
        })
    }

    /// Start of the function, counted from the code, and offset of its record. Behind the last
    /// function stands only its end.
    fn entry(&mut self, index: u64) -> Option<(u64, u64)> {
        let table = &mut self.functab;
        Some(match self.version {
            Version::Go1_16 => {
                let at = 16 * index;
                (table.u64(at)?, table.u64(at + 8).unwrap_or(0))
            }
            Version::Go1_18 | Version::Go1_20 => {
                let at = 8 * index;
                (table.u32(at)?.into(), table.u32(at + 4).unwrap_or(0).into())
            }
        })
    }

    fn record(&mut self, at: u64) -> Option<Record> {
        let (start, flags) = match self.version {
            Version::Go1_16 => (8, 41),
            Version::Go1_18 => (4, 37),
            Version::Go1_20 => (4, 41),
        };
        let record = self.records.get(at, flags + 1)?;
        let flags = *record.last()?;
        let number = |at: usize| {
            let bytes = record.get(at..)?.first_chunk()?;
            Some(u64::from(u32::from_le_bytes(*bytes)))
        };
        let (name, deltas) = (number(start)?, number(start + 12)?);
        Some(Record {
            deltas,
            flags,
            name: self.name(name),
        })
    }

    fn name(&mut self, at: u64) -> Name {
        let mut name = [0; MAX_NAME as usize];
        if let Some(bytes) = self.names.get(at, MAX_NAME) {
            name.copy_from_slice(bytes);
        }
        Name(name)
    }

    /// Where the code begins. The header says it, unless it is a newer Go's or is written by the
    /// dynamic linker; the code of a known function proves it.
    fn find_text(&mut self, executable: &Executable, source: &S) -> Option<u64> {
        if self.version == Version::Go1_16 {
            return Some(0);
        }
        let landmark = landmark(self.machine);
        let offset = (0..self.count).find_map(|index| {
            let (offset, record) = self.entry(index)?;
            let record = self.record(record)?;
            is_landmark(self.machine, record.name.get()).then_some(offset)
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
    fn find_frameless(&mut self, executable: &Executable, source: &S) {
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

    pub fn spans(&mut self) -> Vec<Span> {
        let text = self.text;
        (0..self.count)
            .filter_map(|index| {
                let (start, record) = self.entry(index)?;
                let (end, _) = self.entry(index + 1)?;
                // Who looks for a call before the address to which it returns finds it there.
                let early = u64::from(returns_from_signal(self.record(record)?.name.get()));
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
        let Some((entry, record)) = self.function(u64::from(number)) else {
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
                // On aarch64 all others change the frame pointer with the stack.
                self.deltas(&record).any(|(_, delta)| delta > 0)
                    && (self.machine == Machine::X86_64
                        || record.name.get() == b"runtime.systemstack")
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

    fn function(&mut self, index: u64) -> Option<(u64, Record)> {
        let (entry, record) = self.entry(index)?;
        Some((entry, self.record(record)?))
    }

    fn deltas(&mut self, record: &Record) -> Deltas<'_, 's, S> {
        Deltas {
            // At the start of the part stands a zero, for functions that have none.
            next: (record.deltas > 0).then_some(record.deltas),
            area: &mut self.deltas,
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
struct Deltas<'a, 's, S: ?Sized> {
    area: &'a mut Area<'s, S>,
    /// Where the next number stands; none once the stream has ended.
    next: Option<u64>,
    quantum: u64,
    at: u64,
    value: i32,
}

impl<S: Source + ?Sized> Deltas<'_, '_, S> {
    fn number(&mut self) -> Option<u32> {
        let mut number = 0u32;
        let mut at = self.next.take()?;
        for shift in (0..32).step_by(7) {
            let &[byte] = self.area.get(at, 1)? else {
                return None;
            };
            at += 1;
            number |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                self.next = Some(at);
                return Some(number);
            }
        }
        None
    }
}

impl<S: Source + ?Sized> Iterator for Deltas<'_, '_, S> {
    type Item = (u64, i32);

    fn next(&mut self) -> Option<Self::Item> {
        let change = self.number()?;
        if change == 0 && self.at > 0 {
            self.next = None;
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
