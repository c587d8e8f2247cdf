//! PHP: from the frame that runs along its callers.
//!
//! One native frame of `execute_ex` runs the frames up to the first one that C called, which has a flag
//! that says so. Functions in C have frames too, and native frames of their own.

use super::{BlockMemory, Detail, Step, unreadable};
use crate::walk::Registers;

/// How code that opcache generated is left: it runs in the native frame of `execute_ex`. Offsets are those
/// of the file.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Layout {
    /// An instruction of `execute_ex` that has its whole frame; 0 if there is none.
    pub body: u32,
    /// Of that frame, with the return address.
    pub frame_bytes: u32,
    /// The code that may have called it.
    pub text_start: u32,
    pub text_end: u32,
}

/// What generated code has beside that frame, up to 8.3.
const PADDING: u64 = 16;

impl Layout {
    /// The registers with which `execute_ex` would go on; `state` is where the file begins.
    #[inline(always)]
    pub fn leave_generated(
        &self,
        registers: &Registers,
        state: u64,
        memory: &mut impl BlockMemory,
    ) -> Option<Registers> {
        if self.body == 0 {
            return None;
        }
        let mut sp = registers.sp;
        for _ in 0..2 {
            let at = sp.wrapping_add(self.frame_bytes.into()).wrapping_sub(8);
            let caller = memory.word(at)?.wrapping_sub(state);
            if caller >= u64::from(self.text_start) && caller < u64::from(self.text_end) {
                return Some(Registers {
                    ip: state.wrapping_add(self.body.into()),
                    sp,
                    fp: registers.fp,
                    link: 0,
                });
            }
            sp = sp.wrapping_add(PADDING);
        }
        None
    }
}

/// `execute_data`.
mod frame {
    pub const BYTES: u32 = 56;
    pub const INSTRUCTION: u32 = 0;
    pub const FUNCTION: u32 = 3;
    pub const FLAGS: u32 = 5;
    pub const PREVIOUS: u32 = 6;
    /// C called it.
    pub const TOP: u64 = 1 << 17;
}

/// `zend_function`.
mod function {
    pub const BYTES: u32 = 24;
    pub const KIND: u32 = 0;
    pub const NAME: u32 = 1;
    pub const SCOPE: u32 = 2;
    pub const KIND_MASK: u64 = 0xff;
    pub const INTERNAL: u64 = 1;
}

/// Of an instruction.
const LINE: u64 = 24;

/// Where the walk is.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Walk {
    /// The next frame; 0 behind the last one.
    pub frame: u64,
    /// What the loop has in registers, if nothing is above it, until the first frame was met: its frame
    /// and instruction.
    pub loop_frame: u64,
    pub loop_instruction: u64,
    /// Whether the loop is innermost.
    pub is_leaf: u64,
    pub is_lost: u64,
}

/// What tells a function from others that had its address, by where its name and its class are.
#[inline(always)]
pub fn generation(name: u64, scope: u64) -> u32 {
    let mixed = (name ^ scope.rotate_left(17)) >> 3;
    mixed as u32 ^ (mixed >> 32) as u32
}

impl Walk {
    /// The next frame of a native frame of `execute_ex`.
    #[inline(always)]
    pub fn step(&mut self, memory: &mut impl BlockMemory) -> Step {
        if self.is_lost != 0 {
            return unreadable();
        }
        let frame = self.frame;
        if frame == 0 {
            return Step::End;
        }
        if !memory.load_block(frame, frame::BYTES) {
            return self.lose();
        }
        let mut instruction = memory.block_word(frame::INSTRUCTION);
        let function = memory.block_word(frame::FUNCTION);
        let flags = memory.block_word(frame::FLAGS);
        let previous = memory.block_word(frame::PREVIOUS);
        let is_leaf = self.is_leaf != 0;
        self.is_leaf = 0;
        if is_leaf && frame != self.loop_frame && previous != self.loop_frame {
            // It is entered or left right now, and the frames are those of its callers.
            return Step::End;
        }
        if is_leaf && frame == self.loop_frame {
            // It is saved only where it is needed.
            instruction = self.loop_instruction;
        }
        self.frame = previous;
        if function == 0 {
            return Step::Skip;
        }
        if !memory.load_block(function, function::BYTES) {
            return self.lose();
        }
        let kind = memory.block_word(function::KIND) & function::KIND_MASK;
        let name = memory.block_word(function::NAME);
        let scope = memory.block_word(function::SCOPE);
        let generation = generation(name, scope);
        if kind == function::INTERNAL {
            return Step::Frame(function, Detail::new(generation, 0));
        }
        let is_read = memory.load_block(instruction.wrapping_add(LINE), 8);
        let line = memory.block_word(0) as u32 * u32::from(is_read);
        let detail = Detail::new(generation, line);
        if flags & frame::TOP == 0 {
            Step::Frame(function, detail)
        } else {
            Step::Last(function, detail)
        }
    }

    #[inline(always)]
    fn lose(&mut self) -> Step {
        self.is_lost = 1;
        unreadable()
    }
}

/// A frame that cannot be read.
#[inline(always)]
fn unreadable() -> Step {
    Step::Last(0, Detail::new(0, unreadable::MEMORY))
}

#[cfg(test)]
mod tests;
