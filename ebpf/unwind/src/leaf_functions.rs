//! Leaf functions without a frame on aarch64, in code without unwind information.
//!
//! The vDSO and code compiled with only frame pointers have no unwind information. Leaf functions in such code have
//! no frame either: the frame pointer is the caller's, so unwinding by it would skip the caller. The return address
//! stays in the link register.

use profcol_elf::{Machine, Source};
use std::collections::BTreeMap;

use profcol_ebpf_common::rule::{Cfa, ReturnAddress, Rule, SavedFp};

use crate::ElfCode;
use crate::code::FunctionSymbol;
use crate::gaps::Gaps;
use crate::span::Spans;

/// Address ranges and rules of code in the gaps between `spans`. A function begins at a symbol or a call target, and
/// ends at the next one.
pub(crate) fn rules(
    elf: &ElfCode,
    source: &(impl Source + ?Sized),
    spans: &Spans,
) -> Vec<(u64, u64, Rule)> {
    if elf.machine != Machine::Aarch64 {
        return Vec::new();
    }
    let gaps = Gaps::read(elf, source, spans);
    let gaps = gaps.as_slice();
    if gaps.is_empty() {
        return Vec::new();
    }
    // Starts, with ends if known.
    let mut functions: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    for FunctionSymbol { start, size } in elf.functions(source) {
        let end = (size > 0).then(|| start.saturating_add(size));
        let known = functions.entry(start).or_default();
        *known = known.or(end);
    }
    for gap in gaps {
        for (address, instruction) in (gap.start..).step_by(4).zip(instructions(&gap.bytes)) {
            if let Some(called) = instruction.calls(address) {
                functions.entry(called).or_default();
            }
        }
    }
    let leaf = Rule::frame(Cfa::Sp(0), SavedFp::Same, ReturnAddress::LinkRegister);
    let mut rules = Vec::new();
    for gap in gaps {
        let gap_end = gap.end();
        let mut own = functions.range(gap.start..gap_end).peekable();
        while let Some((&start, known)) = own.next() {
            let next = own.peek().map_or(gap_end, |&(&next, _)| next);
            let end = known.map_or(next, |known| known.min(next));
            let offset = |address: u64| (address - gap.start) as usize;
            let code = gap.bytes.get(offset(start)..offset(end.max(start)));
            if start % 4 == 0
                && instructions(code.unwrap_or_default()).all(Instruction::keeps_caller)
            {
                rules.push((start, end, leaf));
            }
        }
    }
    rules
}

#[derive(Clone, Copy)]
struct Instruction(u32);

fn instructions(code: &[u8]) -> impl Iterator<Item = Instruction> {
    let (words, _) = code.as_chunks();
    words
        .iter()
        .map(|&word| Instruction(u32::from_le_bytes(word)))
}

const FP: u32 = 29;
const LINK: u32 = 30;
const SP: u32 = 31;

impl Instruction {
    fn calls(self, address: u64) -> Option<u64> {
        let distance = i64::from((self.0 << 6) as i32 >> 6) * 4;
        (self.0 >> 26 == 0x25).then(|| address.wrapping_add_signed(distance))
    }

    /// Whether it does not change the stack pointer, the frame pointer and the link register.
    fn keeps_caller(self) -> bool {
        let word = self.0;
        let is = |mask: u32, value: u32| word & mask == value;
        // The destination, or the register of a load or store; the base; the second register of a pair.
        let [first, base, second] = [word & 31, word >> 5 & 31, word >> 10 & 31];
        let is_callers = |register: u32| [FP, LINK].contains(&register);
        let is_jump = is(0xfc00_0000, 0x1400_0000);
        let is_call = is(0xfc00_0000, 0x9400_0000) || is(0xfee0_0000, 0xd620_0000);
        let is_load_or_store = is(0x0a00_0000, 0x0800_0000);
        let is_pair = is(0x3a00_0000, 0x2800_0000);
        // These use vector registers.
        let is_vector =
            is(0x0e00_0000, 0x0e00_0000) || is_load_or_store && is(0x0400_0000, 0x0400_0000);
        // Register 31 is the stack pointer in an addition of an immediate or extended register, and in a logical
        // operation with an immediate.
        let is_to_sp = first == SP
            && (is(0x3f00_0000, 0x1100_0000)
                || is(0x3fe0_0000, 0x0b20_0000)
                || is(0x1f80_0000, 0x1200_0000) && !is(0x6000_0000, 0x6000_0000));
        if is_jump {
            return true;
        }
        if is_load_or_store && base == SP || is_call || is_to_sp {
            return false;
        }
        is_vector || !(is_callers(first) || is_pair && is_callers(second))
    }
}
