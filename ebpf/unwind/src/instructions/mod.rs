//! Derives rules from the instructions of code without unwind information.
//!
//! Such code includes musl on Alpine, Pascal programs, programs with aborting panics, assembly, and code that
//! keeps frame pointers instead. The analysis follows functions from their starts along every branch and
//! adds up the effect of each instruction on the stack and frame pointers.
//!
//! Function starts come from symbols and call targets. An address taken in code or in data may also be inside a
//! function: it counts as a start only if the stack is balanced at the return, or if nothing else is possible.
//! Unreached code gets no rule; if paths through a function disagree about the stack, its rule is unsupported.

mod code;
mod decoded;
mod effect;
mod function;
mod graph;
mod jump_table;
mod levels;
mod pointers;
mod state;

use std::collections::BTreeSet;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic, OpKind};
use profcol_ebpf_common::rule::Rule;

use crate::ElfCode;
use crate::code::FunctionSymbol;
use crate::gaps::Gaps;
use crate::span::Spans;
use profcol_elf::{Extent, Machine, Source};

use code::{ALIGNMENT, Code};
use decoded::DecodedBytes;
use effect::{Effect, Flow};
use function::{Function, Functions, follow};
use state::State;

/// Maximum number of analyzed instructions per file, enough for the maximum code size.
const MAX_INSTRUCTIONS: usize = 8 << 20;

/// Up to this much undecoded code is the startup and exit code that the C compiler adds to each program.
const LITTLE: usize = 512;

/// Address ranges and rules of code in the gaps between `spans`.
pub(crate) fn rules(
    elf: &ElfCode,
    source: &(impl Source + ?Sized),
    spans: &Spans,
) -> Vec<(u64, u64, Rule)> {
    if elf.machine != Machine::X86_64 {
        return Vec::new();
    }
    let gaps = Gaps::read(elf, source, spans);
    if gaps.as_slice().is_empty() {
        return Vec::new();
    }
    let memory = |address: u64, size: u64| memory(elf, source, address, size);
    let code = Code {
        decoded: DecodedBytes::new(&gaps),
        gaps,
        memory: &memory,
        return_: HashSet::default(),
        never_return: HashSet::default(),
        left: MAX_INSTRUCTIONS,
        info: InstructionInfoFactory::new(),
    };
    let mut reader = Reader {
        code,
        functions: Functions::new(),
        pending: Vec::new(),
        candidates: BTreeSet::new(),
        unlikely: BTreeSet::new(),
        call_outcomes: HashMap::default(),
        entry: elf.entry,
    };
    for FunctionSymbol { start, size } in elf.functions(source) {
        reader.add_function(start, size);
    }
    reader.start_of_program(elf);
    reader.find_called();
    if !elf.symbols && reader.code.unread() > LITTLE {
        let pointers = pointers::to_code(elf, source, &reader.code.gaps);
        reader.candidates.extend(pointers);
        reader.find_called();
    }
    reader.accept_unlikely();
    reader.rows()
}

/// The bytes of the file loaded at an address.
fn memory(
    elf: &ElfCode,
    source: &(impl Source + ?Sized),
    address: u64,
    size: u64,
) -> Option<Vec<u8>> {
    let mut loaded = elf.loaded.iter();
    let segment = loaded.find(|segment| segment.holds(address))?;
    if size > segment.end() - address {
        return None;
    }
    let part = Extent {
        what: "the data",
        offset: segment.file_offset + (address - segment.address),
        size,
    };
    part.read(source, size).ok()
}

struct Reader<'a> {
    code: Code<'a>,
    functions: Functions,
    pending: Vec<u64>,
    /// Taken addresses that are not analyzed yet.
    candidates: BTreeSet<u64>,
    /// Analyzed candidates without a return.
    unlikely: BTreeSet<u64>,
    /// By called function.
    call_outcomes: HashMap<u64, CallOutcomes, RandomState>,
    entry: u64,
}

/// The number of calls that returned, and of calls that cannot have returned.
#[derive(Clone, Copy, Default)]
struct CallOutcomes {
    returned: u32,
    did_not_return: u32,
}

impl Reader<'_> {
    fn add_function(&mut self, start: u64, size: u64) {
        if !self.code.gaps.holds(start) {
            return;
        }
        let end = (size > 0).then(|| start.saturating_add(size));
        let known = self.functions.entry(start).or_insert_with(|| {
            self.pending.push(start);
            None
        });
        *known = known.or(end);
    }

    /// Finds `main`, whose address the entry code passes to the C library.
    fn start_of_program(&mut self, elf: &ElfCode) {
        const LENGTH: u64 = 64;
        self.add_function(elf.entry, 0);
        let Some(segment) = elf.segment_at(elf.entry) else {
            return;
        };
        let length = LENGTH.min(segment.end() - elf.entry);
        let Some(bytes) = self.code.memory(elf.entry, length) else {
            return;
        };
        for instruction in &mut Decoder::with_ip(64, &bytes, self.entry, DecoderOptions::NONE) {
            match (instruction.mnemonic(), Flow::of(&instruction)) {
                (Mnemonic::Lea, _) if instruction.is_ip_rel_memory_operand() => {
                    self.add_function(instruction.ip_rel_memory_address(), 0);
                }
                (Mnemonic::Mov, _) if instruction.op1_kind() == OpKind::Immediate32to64 => {
                    self.add_function(instruction.immediate(1), 0);
                }
                (_, Flow::Call(Some(target))) => self.add_function(target, 0),
                (Mnemonic::INVALID, _) | (_, Flow::Stop | Flow::Return | Flow::Jump(_)) => break,
                _ => {}
            }
        }
    }

    fn follow(&mut self, start: u64) -> Option<Function> {
        let state = if start == self.entry {
            State::OUTERMOST
        } else {
            State::CALLED
        };
        follow(&mut self.code, &self.functions, start, state)
    }

    /// Finds all functions reachable by calls from known ones.
    fn find_called(&mut self) {
        loop {
            if let Some(start) = self.pending.pop() {
                if let Some(function) = self.follow(start) {
                    self.take(start, &function);
                }
            } else if let Some(start) = self.candidates.pop_first() {
                // Inside a function it is a case of a switch.
                if self.is_known(start) || self.is_within_symbol(start) || !self.may_begin_at(start)
                {
                    continue;
                }
                match self.follow(start) {
                    Some(function) if function.is_confirmed => {
                        self.functions.insert(start, None);
                        self.take(start, &function);
                    }
                    Some(_) => {
                        self.unlikely.insert(start);
                    }
                    None => {}
                }
            } else {
                return;
            }
        }
    }

    /// Accepts candidates without a return if they begin with a prologue.
    fn accept_unlikely(&mut self) {
        while let Some(start) = self.unlikely.pop_first() {
            if !self.is_known(start) && self.begins_like_function(start) {
                self.add_function(start, 0);
                self.find_called();
            }
        }
    }

    fn is_within_symbol(&self, address: u64) -> bool {
        let before = self.functions.range(..address).next_back();
        before.is_some_and(|(_, end)| end.is_some_and(|end| address < end))
    }

    fn is_known(&self, address: u64) -> bool {
        self.functions.contains_key(&address) || self.code.decoded.holds(&self.code.gaps, address)
    }

    /// Whether compilers would place a function there: at an aligned address, or right after another function.
    fn may_begin_at(&self, address: u64) -> bool {
        const ENDS: [u8; 4] = [0x00, 0x90, 0xc3, 0xcc];
        let before = self.code.gaps.bytes(address.saturating_sub(1)).first();
        address.is_multiple_of(ALIGNMENT) || before.is_some_and(|byte| ENDS.contains(byte))
    }

    fn begins_like_function(&self, start: u64) -> bool {
        let bytes = self.code.gaps.bytes(start);
        let mut info = InstructionInfoFactory::new();
        let first = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE)
            .into_iter()
            .find(|instruction| instruction.mnemonic() != Mnemonic::Endbr64);
        let grows = first
            .and_then(|first| Effect::of(&first, &mut info).growth())
            .is_some_and(|bytes| bytes > 0);
        start.is_multiple_of(ALIGNMENT) && grows
    }

    fn take(&mut self, start: u64, function: &Function) {
        for &called in &function.calls {
            self.add_function(called, 0);
        }
        self.candidates.extend(
            function
                .points_to
                .iter()
                .filter(|&&address| self.code.gaps.holds(address)),
        );
        if function.is_confirmed {
            self.code.return_.insert(start);
        }
        if !function.returns {
            self.code.never_return.insert(start);
        }
        for &called in &function.returning_calls {
            self.call_outcomes.entry(called).or_default().returned += 1;
        }
        for &called in &function.nonreturning_calls {
            self.call_outcomes.entry(called).or_default().did_not_return += 1;
        }
        self.add_rows(function);
    }

    fn add_rows(&mut self, function: &Function) {
        let Code { decoded, gaps, .. } = &mut self.code;
        for &(at, length, rule) in &function.rows {
            decoded.add(gaps, at, length, rule);
        }
    }

    /// Analyzes each function again, now that all function starts are known.
    fn rows(mut self) -> Vec<(u64, u64, Rule)> {
        self.code.decoded.clear();
        self.code.left = MAX_INSTRUCTIONS;
        for (&called, outcomes) in &self.call_outcomes {
            if outcomes.did_not_return > outcomes.returned {
                self.code.never_return.insert(called);
            } else if outcomes.did_not_return == 0 {
                self.code.return_.insert(called);
            }
        }
        self.pending = self.functions.keys().copied().collect();
        let mut unsupported = Vec::new();
        while let Some(start) = self.pending.pop() {
            let Some(function) = self.follow(start) else {
                continue;
            };
            for &called in &function.calls {
                self.add_function(called, 0);
            }
            self.add_rows(&function);
            let next = self.functions.range(start.saturating_add(1)..).next();
            let end = next.map_or(u64::MAX, |(&next, _)| next);
            unsupported.extend(function.unresolved.iter().map(|&behind| (behind, end)));
        }
        let Code { decoded, gaps, .. } = &mut self.code;
        decoded.mark_unsupported(gaps, unsupported);
        decoded.rows(gaps)
    }
}
