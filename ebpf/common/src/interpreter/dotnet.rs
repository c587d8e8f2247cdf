//! .NET's CoreCLR: which method the code at an address belongs to, and the unwind rule there.
//!
//! Small methods have no frame pointer, so the caller is found by the unwind codes that the JIT compiler keeps for each method:
//! those of Windows, on all systems.
//!
//! ```text
//! address ─► map of ranges ─► section ─► code heap ─► nibble map ─► start of the method
//!                                                          │ the word before it
//!            unwind codes ◄─ functions of the method ◄─ header
//! ```
//!
//! Only x86-64.

use crate::barrier_var;

use super::{BLOCK_BYTES, BLOCK_WORDS, BlockMemory};
use crate::architecture::X86_64;
use crate::rule::{Cfa, EncodedRule, Rule, SavedFp};

/// The programs' data on a process that runs .NET.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct DotNetProcess {
    /// The first table of the map of ranges.
    pub ranges: u64,
    /// Whether nibble maps have the distances to the starts of long methods.
    pub has_distances: u32,
    pub unused: u32,
}

/// A range of code of one kind.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Section {
    /// Of the image with this code, if it is compiled ahead of time.
    pub module: u64,
    /// Of compiled code.
    pub heap: u64,
    pub flags: u32,
    pub unused: u32,
}

impl Section {
    const CODE_HEAP: u32 = 2;
    const STUBS: u32 = 4;

    pub fn is_stubs(&self) -> bool {
        self.flags & Self::STUBS != 0
    }

    pub fn is_code_heap(&self) -> bool {
        self.flags & (Self::CODE_HEAP | Self::STUBS) == Self::CODE_HEAP
    }
}

/// A search for the method at an address.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MethodSearch {
    base: u64,
    map: u64,
    /// The last word of the map to search, exclusively; that of `word` once it was found.
    next: u64,
    /// From the base to the address.
    distance: u64,
    /// The start of the method; 0 if it was not found yet.
    pub start: u64,
    /// The word of the map that says it.
    word: u32,
    unused: u32,
}

/// Unwind codes of a function, from the last instruction of its prologue to the first.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Codes {
    /// Address of the next one.
    next: u64,
    /// Slots of two bytes.
    left: u32,
    /// In the function. What the prologue does after it is ignored.
    offset: u32,
    fp_distance: u32,
    /// From the stack pointer, or the frame pointer, up to the return address, as far as read.
    distance: i32,
    /// The same to the caller's frame pointer.
    saved_fp: i32,
    is_from_fp: u32,
    /// Number of saved registers that an epilogue restores.
    pushed: u32,
    unused: u32,
}

/// Instructions that restore registers and return.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Epilogue {
    /// Address of the next one.
    next: u64,
    popped: i32,
    /// From the stack pointer to the caller's frame pointer.
    saved_fp: i32,
}

/// What precedes the code of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    Method(u64),
    Stub,
}

/// Tables of the map of ranges, each with 256 entries.
const LEVELS: u32 = 5;
const LEVEL_BITS: u32 = 8;
/// Bits of an address below the last table: 128 KiB.
const LAST_LEVEL_SHIFT: u32 = 17;
/// Marks in addresses code that may be unloaded.
const COLLECTIBLE: u64 = 1;
/// Maximum number of sections in 128 KiB: stubs are allocated by 64 KiB.
const MAX_FRAGMENTS: u32 = 8;

/// Words of a fragment: the next one, and its section.
const FRAGMENT_BYTES: u32 = 32;
const FRAGMENT_SECTION: u32 = 3;
/// Words of a section.
const SECTION_BYTES: u32 = 48;
const SECTION_FLAGS: u32 = 2;
const SECTION_MODULE: u32 = 4;
const SECTION_HEAP: u32 = 5;
/// Words of a code heap.
const HEAP_BYTES: u32 = 48;
const HEAP_END: u32 = 3;
const HEAP_MAP_BASE: u32 = 4;
const HEAP_NIBBLE_MAP: u32 = 5;

/// A nibble for each 32 bytes says where in them a method starts, if one does.
const WORD_CODE_SHIFT: u32 = 8;
const NIBBLE_CODE_SHIFT: u32 = 5;
/// Nibbles above this make their word a distance.
const LAST_PLACE: u32 = 8;
const WORDS_PER_BLOCK: u64 = BLOCK_BYTES as u64 / 4;

/// Smaller headers are kinds of stubs.
const FIRST_HEADER: u64 = 16;

/// In a header.
const FUNCTION_COUNT: u64 = 32;
/// After the count.
const FUNCTIONS_OFFSET: u32 = 4;
const FUNCTION_BYTES: u32 = 12;
/// A method has one function, and one for each exception handler. Others have no rule.
const MAX_FUNCTIONS: u32 = 10;

/// Before the codes of a function.
const HEAD_BYTES: u64 = 4;
/// The number of rbp.
const FP: u32 = 5;
const NOT_SAVED: i32 = i32::MIN;

/// `pop` of `rax` to `rdi`, masked, that of `rbp`, and the prefix for `r8` to `r15`.
const POP: u8 = 0x58;
const POP_MASK: u8 = 0xf8;
const POP_FP: u8 = 0x5d;
const POP_HIGH: u8 = 0x41;

mod code {
    pub const PUSH: u32 = 0;
    pub const ALLOCATE_LARGE: u32 = 1;
    pub const ALLOCATE_SMALL: u32 = 2;
    pub const SET_FP: u32 = 3;
    pub const SAVE: u32 = 4;
    pub const SAVE_FAR: u32 = 5;
    pub const EPILOGUE: u32 = 6;
    pub const SAVE_XMM: u32 = 8;
    pub const SAVE_XMM_FAR: u32 = 9;
    pub const SET_FP_LARGE: u32 = 11;
}

/// Stubs jump on, or have not moved the stack pointer.
pub fn stub_rule() -> EncodedRule {
    Rule::x86_64(Cfa::Sp(8), SavedFp::Same).encode()
}

impl DotNetProcess {
    /// The section with the code at an address.
    #[inline(always)]
    pub fn section(&self, address: u64, memory: &mut impl BlockMemory) -> Option<Section> {
        let mut table = self.ranges;
        let mut level = LEVELS;
        while level > 0 {
            level -= 1;
            let index = address >> (LAST_LEVEL_SHIFT + level * LEVEL_BITS) & 0xff;
            table = memory.word(table.wrapping_add(index << 3))? & !COLLECTIBLE;
            if table == 0 {
                return None;
            }
        }
        let mut fragment = table;
        for _ in 0..MAX_FRAGMENTS {
            if fragment == 0 || !memory.load_block(fragment, FRAGMENT_BYTES) {
                return None;
            }
            let next = memory.block_word(0) & !COLLECTIBLE;
            let section = memory.block_word(FRAGMENT_SECTION);
            if !memory.load_block(section, SECTION_BYTES) {
                return None;
            }
            if address >= memory.block_word(0) && address < memory.block_word(1) {
                return Some(Section {
                    module: memory.block_word(SECTION_MODULE),
                    heap: memory.block_word(SECTION_HEAP),
                    flags: memory.block_word(SECTION_FLAGS) as u32,
                    unused: 0,
                });
            }
            fragment = next;
        }
        None
    }

    /// Begins the search for the method at an address.
    #[inline(always)]
    pub fn search(
        &self,
        heap: u64,
        address: u64,
        memory: &mut impl BlockMemory,
    ) -> Option<MethodSearch> {
        if !memory.load_block(heap, HEAP_BYTES) {
            return None;
        }
        let end = memory.block_word(HEAP_END);
        let base = memory.block_word(HEAP_MAP_BASE);
        let map = memory.block_word(HEAP_NIBBLE_MAP);
        if address < base || address >= end {
            return None;
        }
        let distance = address - base;
        let last = distance >> WORD_CODE_SHIFT;
        let word = memory.word(map.wrapping_add(last << 2))? as u32;
        let mut start = 0;
        if let Some(found) = self.last_start(word, last, distance) {
            start = base.wrapping_add(found);
        }
        Some(MethodSearch {
            base,
            map,
            next: last,
            distance,
            start,
            word: 0,
            unused: 0,
        })
    }

    /// Searches the next block of the map, for 8 KiB of code, or reads the word that was found. False after the last step.
    #[inline(always)]
    pub fn search_step(&self, search: &mut MethodSearch, memory: &mut impl BlockMemory) -> bool {
        if search.start != 0 {
            return false;
        }
        if search.word != 0 {
            if let Some(found) = self.last_start(search.word, search.next, search.distance) {
                search.start = search.base.wrapping_add(found);
            }
            return false;
        }
        let next = search.next;
        let from = next.saturating_sub(WORDS_PER_BLOCK);
        let bytes = (next - from) << 2;
        if bytes == 0 || !memory.load_block(search.map.wrapping_add(from << 2), bytes as u32) {
            return false;
        }
        search.next = from;
        // Words in pairs, from the last one on.
        let pairs = (bytes + 7) >> 3;
        for step in 0..BLOCK_WORDS as u64 {
            // Otherwise the compiler counts `left` down instead, whose bounds the verifier of older kernels does not know.
            let step = barrier_var(step);
            if step >= pairs {
                break;
            }
            let left = pairs - 1 - step;
            let mut pair = memory.block_word(left as u32);
            if (left + 1) << 3 > bytes {
                // The block has its first word only.
                pair &= u64::from(u32::MAX);
            }
            if pair != 0 {
                let is_second = u64::from(pair >> 32 != 0);
                search.word = (pair >> (is_second << 5)) as u32;
                search.next = from + (left << 1) + is_second;
                break;
            }
        }
        true
    }

    /// The last method that starts in a word's code, or is at a distance from it; not after `distance`.
    #[inline(always)]
    fn last_start(&self, word: u32, index: u64, distance: u64) -> Option<u64> {
        if self.has_distances != 0 && word & 0xf > LAST_PLACE {
            let place = (word & 0xf) - LAST_PLACE - 1;
            return Some(u64::from(word & !0xf) + (u64::from(place) << 2));
        }
        let mut nibbles = word;
        if index == distance >> WORD_CODE_SHIFT {
            // The first nibble is in the highest bits.
            let own = (distance >> NIBBLE_CODE_SHIFT) as u32 & 7;
            nibbles &= u32::MAX << (28 - (own << 2));
        }
        let last = start_of_last(nibbles, index)?;
        if last <= distance {
            return Some(last);
        }
        // Another method starts later in the same 32 bytes.
        start_of_last(nibbles & !(0xf << last_shift(nibbles)), index)
    }
}

/// The start that the last nibble of a word says.
#[inline(always)]
fn start_of_last(nibbles: u32, index: u64) -> Option<u64> {
    if nibbles == 0 {
        return None;
    }
    let shift = last_shift(nibbles);
    let place = (nibbles >> shift & 0xf) - 1;
    let at = 7 - (shift >> 2);
    Some(
        (index << WORD_CODE_SHIFT) + (u64::from(at) << NIBBLE_CODE_SHIFT) + (u64::from(place) << 2),
    )
}

/// How far the last nibble that is not 0 is from the right.
#[inline(always)]
fn last_shift(nibbles: u32) -> u32 {
    nibbles.trailing_zeros() & 28
}

/// The header of a method.
#[inline(always)]
pub fn header(start: u64, memory: &mut impl BlockMemory) -> Option<Header> {
    let header = memory.word(start.wrapping_sub(8))?;
    Some(if header < FIRST_HEADER {
        Header::Stub
    } else {
        Header::Method(header)
    })
}

impl Codes {
    /// The codes of the function with the address, in a method.
    #[inline(always)]
    pub fn begin(
        header: u64,
        start: u64,
        address: u64,
        memory: &mut impl BlockMemory,
    ) -> Option<Self> {
        let functions = header.wrapping_add(FUNCTION_COUNT);
        let count = memory.word(functions)? as u32;
        let count = if count < MAX_FUNCTIONS {
            count
        } else {
            MAX_FUNCTIONS
        };
        let bytes = FUNCTIONS_OFFSET + count * FUNCTION_BYTES;
        if !memory.load_block(functions, bytes) {
            return None;
        }
        // Addresses in functions and to their codes are relative to this.
        let base = start.wrapping_sub(u64::from(half(memory, 1)));
        let relative = address.wrapping_sub(base);
        let mut index = 0;
        let mut begin = 0;
        let mut codes = 0;
        while index < MAX_FUNCTIONS {
            let at = FUNCTIONS_OFFSET / 4 + index * (FUNCTION_BYTES / 4);
            begin = u64::from(half(memory, at));
            if index < count && relative >= begin && relative < u64::from(half(memory, at + 1)) {
                codes = base.wrapping_add(half(memory, at + 2).into());
                break;
            }
            index += 1;
        }
        if codes == 0 {
            return None;
        }
        Self::at(codes, (relative - begin) as u32, memory)
    }

    /// The codes at an address, for an offset in their function.
    #[inline(always)]
    pub fn at(codes: u64, offset: u32, memory: &mut impl BlockMemory) -> Option<Self> {
        let head = memory.word(codes)? as u32;
        Some(Self {
            next: codes.wrapping_add(HEAD_BYTES),
            left: head >> 16 & 0xff,
            offset,
            fp_distance: (head >> 28) << 4,
            distance: 0,
            saved_fp: NOT_SAVED,
            is_from_fp: 0,
            pushed: 0,
            unused: 0,
        })
    }

    /// Reads the next code. False if there is none.
    #[inline(always)]
    pub fn read(&mut self, memory: &mut impl BlockMemory) -> Option<bool> {
        if self.left == 0 {
            return Some(false);
        }
        let word = memory.word(self.next)?;
        let operation = (word >> 8) as u32 & 0xf;
        let info = (word >> 12) as u32 & 0xf;
        let low = (word >> 16) as u32;
        let is_done = self.offset >= word as u32 & 0xff;
        let mut slots = 1;
        let mut allocated = 0;
        let mut is_push = false;
        match operation {
            code::PUSH => {
                is_push = true;
                allocated = 8;
            }
            code::ALLOCATE_SMALL => allocated = (info << 3) + 8,
            code::ALLOCATE_LARGE if info == 0 => {
                slots = 2;
                allocated = (low & 0xffff) << 3;
            }
            code::ALLOCATE_LARGE => {
                slots = 3;
                allocated = low;
            }
            code::SET_FP => {}
            code::SET_FP_LARGE => slots = 3,
            code::SAVE | code::SAVE_XMM | code::EPILOGUE => slots = 2,
            code::SAVE_FAR | code::SAVE_XMM_FAR => slots = 3,
            _ => return None,
        }
        self.next = self.next.wrapping_add(slots * 2);
        self.left = self.left.saturating_sub(slots as u32);
        if !is_done {
            return Some(true);
        }
        self.pushed = self.pushed.wrapping_add(u32::from(is_push));
        if is_push && info == FP {
            self.saved_fp = self.distance;
        }
        if operation == code::SET_FP || operation == code::SET_FP_LARGE {
            let below = if operation == code::SET_FP {
                self.fp_distance
            } else {
                low << 4
            };
            self.is_from_fp = 1;
            self.distance = (below as i32).wrapping_neg();
            self.saved_fp = NOT_SAVED;
        }
        self.distance = self.distance.wrapping_add(allocated as i32);
        Some(true)
    }

    pub fn pushed(&self) -> u32 {
        self.pushed
    }

    /// The rule, after the last code.
    pub fn rule(&self) -> EncodedRule {
        let cfa = self.distance.wrapping_add(8);
        let fp = match self.saved_fp {
            NOT_SAVED => SavedFp::Same,
            saved => SavedFp::At(saved.wrapping_sub(cfa)),
        };
        let cfa = match self.is_from_fp {
            0 => Cfa::Sp(cfa),
            _ => Cfa::Fp(cfa),
        };
        Rule::x86_64(cfa, fp).encode()
    }
}

impl Epilogue {
    pub fn at(address: u64) -> Self {
        Self {
            next: address,
            popped: 0,
            saved_fp: NOT_SAVED,
        }
    }

    /// Reads the next instruction. True if it returns; None if this is no epilogue.
    #[inline(always)]
    pub fn read(&mut self, memory: &mut impl BlockMemory) -> Option<bool> {
        let code = memory.word(self.next)?;
        if code as u8 == X86_64::RET[0] {
            return Some(true);
        }
        let is_high = code as u8 == POP_HIGH;
        let pop = if is_high {
            (code >> 8) as u8
        } else {
            code as u8
        };
        if pop & POP_MASK != POP {
            return None;
        }
        if !is_high && pop == POP_FP {
            self.saved_fp = self.popped;
        }
        self.popped = self.popped.wrapping_add(8);
        self.next = self.next.wrapping_add(1 + u64::from(is_high));
        Some(false)
    }

    /// The rule, before the instruction that returns.
    pub fn rule(&self) -> EncodedRule {
        let cfa = self.popped.wrapping_add(8);
        let fp = match self.saved_fp {
            NOT_SAVED => SavedFp::Same,
            saved => SavedFp::At(saved.wrapping_sub(cfa)),
        };
        Rule::x86_64(Cfa::Sp(cfa), fp).encode()
    }
}

/// A 32-bit word of the last loaded block.
#[inline(always)]
fn half(memory: &impl BlockMemory, at: u32) -> u32 {
    (memory.block_word(at >> 1) >> ((at & 1) << 5)) as u32
}

#[cfg(test)]
mod tests;
