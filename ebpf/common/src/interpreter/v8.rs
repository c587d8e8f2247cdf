//! The function of a JavaScript frame.
//!
//! Every function has a frame with a frame pointer. Below it are the context and the function, or a
//! marker if the frame has no function. Functions move often, so samples have the data that closures
//! share, `SharedFunctionInfo`, which hardly moves.

use super::{BlockMemory, HASH_MULTIPLIER};

/// Distinguishes functions that successively had the same address. It contains no pointers.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Layout {
    /// `shared_function_info` in a `JSFunction`.
    pub function_shared: u16,
    /// Whether `unique_id` follows the other numbers.
    pub has_unique_id: u16,
    /// `length` in a `SharedFunctionInfo`, the first of its numbers.
    pub shared_numbers: u32,
}

/// Slots of a frame, below its frame pointer.
pub mod slot {
    pub const CONTEXT: u64 = 8;
    pub const FUNCTION: u64 = 16;
    pub const BYTECODE_OFFSET: u64 = 40;
}

/// The position of a frame without a bytecode offset.
pub const NO_POSITION: u32 = u32::MAX;

/// Object pointers have the lowest bit set and the next one clear.
const OBJECT: u64 = 1;
const TAG: u64 = 3;

#[inline(always)]
pub fn is_object(word: u64) -> bool {
    word & TAG == OBJECT
}

/// The type of a frame without a function, from its context slot.
#[inline(always)]
pub fn frame_type(slot: u64) -> Option<u32> {
    let is_marker = slot & 1 == 0 && slot >> 1 <= MAX_FRAME_TYPE;
    is_marker.then_some((slot >> 1) as u32)
}

/// Versions have about thirty.
const MAX_FRAME_TYPE: u64 = 0xff;

/// The bytecode offset in a slot. In other frames the slot has arbitrary content.
#[inline(always)]
pub fn position(slot: u64) -> u32 {
    let is_number = slot as u32 == 0;
    if is_number {
        (slot >> 32) as u32
    } else {
        NO_POSITION
    }
}

/// A function: a `SharedFunctionInfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Without the tag.
    pub address: u64,
    pub generation: u32,
}

impl Layout {
    /// The function of a closure.
    #[inline(always)]
    pub fn function(&self, memory: &mut impl BlockMemory, closure: u64) -> Option<Function> {
        let shared = self.shared(memory, closure & !TAG)?;
        let shared = if is_object(shared) {
            shared
        } else {
            // The collector is moving the closure: its first word has the new address.
            let moved = memory.block_word(0);
            if moved & TAG != 0 {
                return None;
            }
            self.shared(memory, moved)?
        };
        if !is_object(shared) {
            return None;
        }
        let address = shared & !TAG;
        Some(Function {
            address,
            generation: self.generation(memory, address)?,
        })
    }

    /// Not an object if the closure is invalid or moved.
    #[inline(always)]
    fn shared(&self, memory: &mut impl BlockMemory, closure: u64) -> Option<u64> {
        let at = u32::from(self.function_shared);
        if !memory.load_block(closure, at + 8) {
            return None;
        }
        if !is_object(memory.block_word(0)) {
            return Some(0);
        }
        Some(memory.block_word(at / 8))
    }

    #[inline(always)]
    fn generation(&self, memory: &mut impl BlockMemory, shared: u64) -> Option<u32> {
        let numbers = shared.wrapping_add(self.shared_numbers.into());
        if !memory.load_block(numbers, NUMBERS_BYTES) {
            return None;
        }
        let words = [
            memory.block_word(0),
            memory.block_word(1),
            memory.block_word(2),
        ];
        Some(self.generation_of(words))
    }

    /// A hash of the numbers that stay constant during the function's lifetime.
    #[inline(always)]
    pub fn generation_of(&self, numbers: [u64; 3]) -> u32 {
        // Without the expected number of properties and the flags, which change.
        let lengths = numbers[0] & 0xffff_ffff_ffff;
        let literal = numbers[1] >> 32;
        let unique = if self.has_unique_id != 0 {
            numbers[2] & 0xffff_ffff
        } else {
            0
        };
        let mixed = (lengths ^ literal << 48 ^ literal >> 16).wrapping_mul(HASH_MULTIPLIER);
        ((mixed ^ unique).wrapping_mul(HASH_MULTIPLIER) >> 32) as u32
    }
}

/// From [`Layout::shared_numbers`] on.
pub const NUMBERS_BYTES: u32 = 24;

#[cfg(test)]
mod tests;
