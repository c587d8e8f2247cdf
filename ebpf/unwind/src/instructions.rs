//! What the instructions themselves say of code that nothing else describes.
//!
//! The C library of Alpine, programs whose panics abort, assembly, and code that keeps frame pointers
//! instead have no unwind information. Functions in such code are followed from their starts along
//! every branch, and what each instruction does to the stack and frame pointers is added up.
//!
//! A start is what a symbol says, what is called, or what has its address taken. What is not reached
//! keeps no rule. A function that returns with the stack elsewhere than where it was called was not
//! understood, and keeps none either.

use std::collections::BTreeMap;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use profcol_ebpf_common::rule::{Cfa, Rule, Saved};

use crate::elf::{Function, Machine};
use crate::source::Part;
use crate::span::Spans;
use crate::{Executable, Source};

/// How much code without unwind information is looked at: a C library and a program.
const MAX_CODE: u64 = 4 << 20;

/// Instructions that are followed, over all functions: as many as so much code has.
const MAX_INSTRUCTIONS: usize = 1 << 20;

/// Between functions lie up to fifteen bytes that are never executed.
const PADDING: u64 = 16;

/// Bytes of the return address.
const CALLED: i32 = 8;

/// Addresses and their rules, for code in the gaps between `spans`.
pub(crate) fn rules(
    executable: &Executable,
    source: &(impl Source + ?Sized),
    spans: &Spans,
) -> Vec<(u64, u64, Rule)> {
    if executable.machine != Machine::X86_64 {
        return Vec::new();
    }
    let mut reader = Reader {
        gaps: gaps(executable, source, spans),
        functions: BTreeMap::new(),
        wanted: Vec::new(),
        found: BTreeMap::new(),
        left: MAX_INSTRUCTIONS,
        info: InstructionInfoFactory::new(),
    };
    if reader.gaps.is_empty() {
        return Vec::new();
    }
    for Function { start, size } in executable.functions(source) {
        reader.want(start, size);
    }
    reader.start_of_program(executable.entry, source, executable);
    while let Some(start) = reader.wanted.pop() {
        let state = if start == executable.entry {
            State::OUTERMOST
        } else {
            State::CALLED
        };
        reader.function(start, state);
    }
    reader.rows()
}

/// Code between two spans.
pub(crate) struct Gap {
    pub start: u64,
    pub bytes: Vec<u8>,
}

pub(crate) fn gaps(
    executable: &Executable,
    source: &(impl Source + ?Sized),
    spans: &Spans,
) -> Vec<Gap> {
    let mut left = MAX_CODE;
    let mut gaps = Vec::new();
    // A segment may hold data too, which looks like any code.
    let text = executable.section(".text");
    let text = text.map_or(0..u64::MAX, |text| {
        text.address..text.address.saturating_add(text.part.size)
    });
    for segment in &executable.segments {
        let (start, end) = (segment.address.max(text.start), segment.end().min(text.end));
        for (start, end) in spans.gaps(start, end) {
            let size = end - start;
            if size < PADDING || size > left {
                continue;
            }
            left -= size;
            let part = Part {
                what: "the code",
                offset: segment.file_offset + (start - segment.address),
                size,
            };
            if let Ok(bytes) = part.read(source, MAX_CODE) {
                gaps.push(Gap { start, bytes });
            }
        }
    }
    gaps.sort_unstable_by_key(|gap| gap.start);
    gaps
}

/// Where the caller's registers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// The stack pointer and this is the CFA.
    sp: Option<i32>,
    /// The frame pointer and this is the CFA.
    fp: Option<i32>,
    saved: Kept,
    /// There is no caller.
    outermost: bool,
    /// The kernel was called, and may have returned in a new thread.
    after_system_call: bool,
}

/// The caller's frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    InRegister,
    /// On the stack, this far from the CFA.
    At(i32),
    Lost,
}

impl State {
    const CALLED: Self = Self {
        sp: Some(CALLED),
        fp: None,
        saved: Kept::InRegister,
        outermost: false,
        after_system_call: false,
    };
    const OUTERMOST: Self = Self {
        outermost: true,
        ..Self::CALLED
    };
    const UNKNOWN: Self = Self {
        sp: None,
        fp: None,
        saved: Kept::Lost,
        outermost: false,
        after_system_call: false,
    };

    fn rule(self) -> Rule {
        if self.outermost {
            return Rule::End;
        }
        let saved = match self.saved {
            Kept::InRegister => Some(Saved::Same),
            Kept::At(offset) => Some(Saved::At(offset)),
            Kept::Lost => None,
        };
        let cfa = self.sp.map(Cfa::Sp).or(self.fp.map(Cfa::Fp));
        match (cfa, saved) {
            (Some(cfa), Some(saved)) => Rule::x86_64(cfa, saved),
            _ => Rule::Unsupported,
        }
    }

    /// What holds behind the instruction.
    fn after(mut self, instruction: &Instruction, info: &mut InstructionInfoFactory) -> Self {
        let to = instruction.op0_kind() == OpKind::Register;
        let to = if to {
            instruction.op0_register()
        } else {
            Register::None
        };
        let from = instruction.op1_kind() == OpKind::Register;
        let from = if from {
            instruction.op1_register()
        } else {
            Register::None
        };
        let immediate = match instruction.op1_kind() {
            OpKind::Immediate8to64 | OpKind::Immediate32to64 => {
                i32::try_from(instruction.immediate(1) as i64).ok()
            }
            _ => None,
        };
        match (instruction.mnemonic(), to, from) {
            (Mnemonic::Push, Register::RBP, _) => {
                self.move_stack(CALLED);
                if let (Kept::InRegister, Some(sp)) = (self.saved, self.sp) {
                    self.saved = Kept::At(-sp);
                }
            }
            (Mnemonic::Pop, Register::RBP, _) => self.pop_frame_pointer(),
            (Mnemonic::Leave, ..) => {
                self.sp = self.fp;
                self.pop_frame_pointer();
            }
            (Mnemonic::Sub, Register::RSP, _) if let Some(bytes) = immediate => {
                self.move_stack(bytes)
            }
            (Mnemonic::Add, Register::RSP, _) if let Some(bytes) = immediate => {
                self.move_stack(bytes.wrapping_neg());
            }
            (Mnemonic::Mov, Register::RSP, Register::RBP) => self.sp = self.fp,
            (Mnemonic::Mov, Register::RBP, Register::RSP) => {
                self.lose_frame_pointer();
                self.fp = self.sp;
            }
            (Mnemonic::Lea, Register::RSP, _) => self.sp = self.points_to(instruction),
            (Mnemonic::Lea, Register::RBP, _) => {
                let points_to = self.points_to(instruction);
                self.lose_frame_pointer();
                self.fp = points_to;
            }
            // A thread's first frame, in the words of the ABI.
            (Mnemonic::Xor, Register::EBP | Register::RBP, from)
                if from == to && self.after_system_call && self.saved == Kept::InRegister =>
            {
                self.outermost = true;
            }
            (Mnemonic::Syscall, ..) => self.after_system_call = true,
            (Mnemonic::Mov, Register::RBP, _) if instruction.op1_kind() == OpKind::Memory => {
                match self.points_to(instruction) {
                    Some(place) if self.saved == Kept::At(-place) => {
                        self.saved = Kept::InRegister;
                        self.fp = None;
                    }
                    _ => self.lose_frame_pointer(),
                }
            }
            (Mnemonic::Mov, Register::None, Register::RBP) => {
                if let (Kept::InRegister, Some(place)) = (self.saved, self.points_to(instruction)) {
                    self.saved = Kept::At(-place);
                }
            }
            _ => self.after_any(instruction, info),
        }
        self
    }

    fn after_any(&mut self, instruction: &Instruction, info: &mut InstructionInfoFactory) {
        // A call leaves the stack as it was once it has returned.
        if matches!(
            instruction.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        ) {
            return;
        }
        let moved = instruction.stack_pointer_increment();
        if moved != 0 {
            self.move_stack(moved.wrapping_neg());
        }
        for used in info.info(instruction).used_registers() {
            if matches!(
                used.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::None
            ) {
                continue;
            }
            match used.register().full_register() {
                Register::RBP => self.lose_frame_pointer(),
                Register::RSP if moved == 0 => self.sp = None,
                _ => {}
            }
        }
    }

    fn move_stack(&mut self, bytes: i32) {
        self.sp = self.sp.and_then(|sp| sp.checked_add(bytes));
    }

    fn lose_frame_pointer(&mut self) {
        self.fp = None;
        if self.saved == Kept::InRegister {
            self.saved = Kept::Lost;
        }
    }

    fn pop_frame_pointer(&mut self) {
        self.lose_frame_pointer();
        if let (Kept::At(offset), Some(sp)) = (self.saved, self.sp)
            && offset == -sp
        {
            self.saved = Kept::InRegister;
        }
        self.move_stack(-CALLED);
    }

    /// How far below the CFA the memory operand is.
    fn points_to(&self, instruction: &Instruction) -> Option<i32> {
        let base = match instruction.memory_base() {
            Register::RSP => self.sp?,
            Register::RBP => self.fp?,
            _ => return None,
        };
        let displacement = i32::try_from(instruction.memory_displacement64() as i64).ok()?;
        let plain = instruction.memory_index() == Register::None;
        plain.then(|| base.checked_sub(displacement))?
    }
}

struct Reader {
    gaps: Vec<Gap>,
    /// Functions in the gaps: start and end, if that is known.
    functions: BTreeMap<u64, Option<u64>>,
    wanted: Vec<u64>,
    /// By the start of each instruction: its end, and the rule while it is not executed yet.
    found: BTreeMap<u64, (u64, Rule)>,
    left: usize,
    info: InstructionInfoFactory,
}

/// A function as far as it was followed.
struct Followed {
    end: u64,
    states: BTreeMap<u64, (u64, State)>,
    pending: Vec<(u64, State)>,
    /// Behind a jump to an address from a table, and what holds there.
    dispatched: Option<(u64, State)>,
}

/// What stands behind a call that may never return: the first such one where a function could begin.
struct Doubted {
    is_aligned: bool,
    read: Vec<u64>,
    /// Branches that were open before.
    pending: usize,
}

impl Reader {
    fn want(&mut self, start: u64, size: u64) {
        if self.bytes(start).is_empty() {
            return;
        }
        let end = (size > 0).then(|| start.saturating_add(size));
        let known = self.functions.entry(start).or_insert_with(|| {
            self.wanted.push(start);
            None
        });
        *known = known.or(end);
    }

    /// A function whose address is taken, unless that is a place within one.
    fn want_pointed_to(&mut self, instruction: &Instruction) {
        let address = instruction.ip_rel_memory_address();
        let before = self.functions.range(..address).next_back();
        let is_within = before.is_some_and(|(_, end)| end.is_some_and(|end| address < end));
        if !is_within {
            self.want(address, 0);
        }
    }

    /// The code from this address on to the end of its gap.
    fn bytes(&self, address: u64) -> &[u8] {
        let behind = self.gaps.partition_point(|gap| gap.start <= address);
        let gap = behind.checked_sub(1).and_then(|index| self.gaps.get(index));
        gap.and_then(|gap| gap.bytes.get(usize::try_from(address - gap.start).ok()?..))
            .unwrap_or_default()
    }

    /// The next instruction that does something.
    fn behind_padding(&self, address: u64) -> u64 {
        let bytes = self.bytes(address);
        Decoder::with_ip(64, bytes, address, DecoderOptions::NONE)
            .into_iter()
            .take(PADDING as usize)
            .find(|instruction| instruction.mnemonic() != Mnemonic::Nop)
            .map_or(address, |instruction| instruction.ip())
    }

    /// The code at the entry gives the C library the address of `main`.
    fn start_of_program(
        &mut self,
        entry: u64,
        source: &(impl Source + ?Sized),
        executable: &Executable,
    ) {
        const LENGTH: u64 = 64;
        self.want(entry, 0);
        let Some(segment) = executable.segment_at(entry) else {
            return;
        };
        let part = Part {
            what: "the code",
            offset: segment.file_offset + (entry - segment.address),
            size: LENGTH.min(segment.end() - entry),
        };
        let Ok(bytes) = part.read(source, LENGTH) else {
            return;
        };
        for instruction in &mut Decoder::with_ip(64, &bytes, entry, DecoderOptions::NONE) {
            match instruction.mnemonic() {
                Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => {
                    self.want_pointed_to(&instruction);
                }
                Mnemonic::Mov if instruction.op1_kind() == OpKind::Immediate32to64 => {
                    self.want(instruction.immediate(1), 0);
                }
                Mnemonic::Call if instruction.op0_kind() == OpKind::NearBranch64 => {
                    self.want(instruction.near_branch_target(), 0);
                }
                Mnemonic::Hlt | Mnemonic::INVALID => break,
                _ => {}
            }
        }
    }

    fn function(&mut self, start: u64, state: State) {
        let known = self.functions.get(&start).copied().flatten();
        let next = || self.functions.range(start + 1..).next();
        let end = known
            .or_else(|| next().map(|(&next, _)| next))
            .unwrap_or(u64::MAX);
        let mut followed = Followed {
            end,
            states: BTreeMap::new(),
            pending: vec![(start, state)],
            dispatched: None,
        };
        loop {
            while let Some((at, state)) = followed.pending.pop() {
                if self
                    .follow(at, state, known.is_some(), &mut followed)
                    .is_none()
                {
                    return;
                }
            }
            // The cases of a choice stand behind it, and all begin as it ends.
            let Some((from, state)) = followed.dispatched.filter(|_| known.is_some()) else {
                break;
            };
            let mut at = from;
            while let Some(&(behind, _)) = followed.states.get(&at) {
                at = behind;
            }
            if at >= end {
                break;
            }
            followed.dispatched = Some((at, state));
            followed.pending.push((at, state));
        }
        for (at, (behind, state)) in followed.states {
            let rule = state.rule();
            let (_, found) = self.found.entry(at).or_insert((behind, rule));
            if *found != rule {
                *found = Rule::Unsupported;
            }
        }
    }

    /// Follows the instructions from `at` on to where they lead elsewhere. None where the function
    /// cannot be understood.
    fn follow(
        &mut self,
        mut at: u64,
        mut state: State,
        knows_end: bool,
        followed: &mut Followed,
    ) -> Option<()> {
        let mut doubted: Option<Doubted> = None;
        while at < followed.end {
            if let Some((_, known)) = followed.states.get_mut(&at) {
                if known.rule() != state.rule() {
                    *known = State::UNKNOWN;
                }
                return Some(());
            }
            self.left = self.left.checked_sub(1)?;
            let instruction =
                Decoder::with_ip(64, self.bytes(at), at, DecoderOptions::NONE).decode();
            if instruction.is_invalid() {
                return None;
            }
            let next = instruction.next_ip();
            followed.states.insert(at, (next, state));
            if let Some(doubted) = &mut doubted {
                doubted.read.push(at);
            }
            if instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand() {
                self.want_pointed_to(&instruction);
            }
            match instruction.flow_control() {
                FlowControl::Return => {
                    if state.sp == Some(CALLED) || state.outermost {
                        return Some(());
                    }
                    // It is another function's.
                    let doubted = doubted.filter(|_| !knows_end)?;
                    for at in doubted.read {
                        followed.states.remove(&at);
                    }
                    followed.pending.truncate(doubted.pending);
                    return Some(());
                }
                FlowControl::UnconditionalBranch => {
                    self.branch(instruction.near_branch_target(), state, followed);
                    return Some(());
                }
                FlowControl::ConditionalBranch => {
                    self.branch(instruction.near_branch_target(), state, followed);
                }
                FlowControl::IndirectBranch => {
                    if followed.dispatched.is_none_or(|(from, _)| from < next) {
                        followed.dispatched = Some((next, state));
                    }
                    return Some(());
                }
                FlowControl::Call if instruction.op0_kind() == OpKind::NearBranch64 => {
                    self.want(instruction.near_branch_target(), 0);
                    let is_aligned = self.behind_padding(next).is_multiple_of(PADDING);
                    if doubted
                        .as_ref()
                        .is_none_or(|doubted| is_aligned && !doubted.is_aligned)
                    {
                        doubted = Some(Doubted {
                            is_aligned,
                            read: Vec::new(),
                            pending: followed.pending.len(),
                        });
                    }
                }
                FlowControl::Exception | FlowControl::Interrupt => return Some(()),
                _ if instruction.mnemonic() == Mnemonic::Hlt => return Some(()),
                _ => {}
            }
            state = state.after(&instruction, &mut self.info);
            at = next;
        }
        Some(())
    }

    fn branch(&mut self, target: u64, state: State, followed: &mut Followed) {
        let first = followed.states.first_key_value().map_or(0, |(&at, _)| at);
        if (first..followed.end).contains(&target) {
            followed.pending.push((target, state));
        } else if state == State::CALLED {
            // As good as a call.
            self.want(target, 0);
        } else if !self.functions.contains_key(&target) && !self.bytes(target).is_empty() {
            // A part of the function that was moved away.
            followed.pending.push((target, state));
        }
    }

    fn rows(self) -> Vec<(u64, u64, Rule)> {
        let mut rows: Vec<(u64, u64, Rule)> = Vec::new();
        for (at, (end, rule)) in self.found {
            match rows.last_mut() {
                Some(last) if last.1 == at && last.2 == rule => last.1 = end,
                // Two functions read the same bytes otherwise.
                Some(last) if last.1 > at => {
                    last.1 = last.1.max(end);
                    last.2 = Rule::Unsupported;
                }
                _ => rows.push((at, end, rule)),
            }
        }
        rows
    }
}
