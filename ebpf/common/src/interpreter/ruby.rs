//! Ruby (MRI): from a thread's execution context along its control frames.
//!
//! ```text
//! thread pointer ─► execution context ─► current control frame ─► its caller ─► ...
//! ```
//!
//! One native frame of `rb_vm_exec` runs the control frames up to the first one with the flag `FINISH`;
//! C functions between them have control frames too, and native frames of their own. A control frame is
//! pushed shortly before its native frame and popped before it. Two things show this: its instruction,
//! which is the first one until the loop runs it, and the tag that `rb_vm_exec` has on the
//! C stack.

use super::thread_variable::ThreadVariable;
use super::{BlockMemory, Detail, NativeFrame, Step, unreadable};
use crate::walk::Registers;

/// The layout of the file's version, and how to find a thread's execution context.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Layout {
    /// The variable with a thread's execution context.
    pub context: ThreadVariable,
    /// Size of a control frame.
    pub frame_bytes: u32,
    /// `vm_exec_core`, in file offsets.
    pub loop_start: u32,
    pub loop_end: u32,
}

/// `rb_execution_context_t`.
mod execution_context {
    pub const BYTES: u32 = 32;
    pub const STACK: u32 = 0;
    pub const STACK_WORDS: u32 = 1;
    pub const FRAME: u32 = 2;
    pub const TAG: u32 = 3;
}

/// `rb_control_frame_t`.
mod control_frame {
    pub const INSTRUCTION: u32 = 0;
    pub const SEQUENCE: u32 = 2;
    pub const ENVIRONMENT: u32 = 4;
}

/// Offsets relative to a frame's environment pointer.
mod environment {
    pub const BEFORE: u64 = 16;
    pub const BYTES: u32 = 24;
    pub const METHOD: u32 = 0;
    pub const OUTER: u32 = 1;
    pub const FLAGS: u32 = 2;
}

mod flag {
    pub const LOCAL: u64 = 0x2;
    pub const FINISH: u64 = 0x20;
    /// A C function.
    pub const C: u64 = 0x80;
}

/// `rb_iseq_t`, and its body.
const SEQUENCE_BODY: u64 = 16;
const BODY_BYTES: u32 = 16;
const BODY_INSTRUCTIONS: u32 = 1;

/// `rb_vm_tag`: the exception handler's jump buffer, and the previous tag.
mod tag {
    pub const REGISTERS: u64 = 16;
    pub const REGISTERS_BYTES: u32 = 24;
    pub const FRAME_POINTER: u32 = 0;
    pub const INSTRUCTION: u32 = 1;
    pub const STACK_POINTER: u32 = 2;
    pub const PREVIOUS: u64 = 56;
}

/// Maximum number of other tags; each `ensure` in C has one.
const MAX_TAGS: u32 = 32;

/// Maximum number of environments from a block to its method.
const MAX_LEVELS: u32 = 8;

/// Kinds of internal objects.
mod internal {
    pub const BYTES: u32 = 16;
    pub const VARIABLES: u64 = 2;
    pub const METHOD: u64 = 6;

    pub fn kind(flags: u64) -> u64 {
        flags >> 12 & 15
    }
}

/// The state of the walk.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Walk {
    /// The next control frame.
    pub frame: u64,
    /// The end of the control frames; 0 if they are unreadable.
    pub end: u64,
    /// The newest tag.
    pub tag: u64,
    /// One of [`above`]: the native frame above that of `rb_vm_exec`.
    pub above: u64,
}

/// The native code that is running when the walk reaches the innermost control frame.
pub mod above {
    /// That frame was found before, or belongs to generated code.
    pub const MET: u64 = 0;
    /// `rb_vm_exec` itself, or a callee other than the loop.
    pub const ENTRY: u64 = 1;
    /// The loop.
    pub const LOOP: u64 = 2;
    /// A function called by the loop or by generated code.
    pub const CALLED: u64 = 3;
}

/// A method and an instruction sequence, in the [`Detail`] of a frame. The frame's address is that of the
/// `rb_iseq_t`: its slot tells whether the sequence still exists, the memory of its body does not.
///
/// ```text
/// address of the method entry / 8 (32) │ fingerprint (16) │ position (16)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// The lower half of (address of its method entry / 8); 0 if there is none.
    pub method: u32,
    /// Distinguishes a sequence from earlier ones at its address.
    pub fingerprint: u32,
    /// Position of the instruction after the current one; at most [`Self::FAR`].
    pub position: u32,
}

impl Function {
    pub const FAR: u32 = 0xffff;

    #[inline(always)]
    pub fn detail(self) -> Detail {
        Detail::new(self.method, self.fingerprint << 16 | self.position)
    }

    pub fn from_detail(detail: Detail) -> Self {
        Self {
            method: detail.generation(),
            fingerprint: detail.position() >> 16,
            position: detail.position() & Self::FAR,
        }
    }
}

/// From the first two words of a body: type and size, and the address of its instructions.
#[inline(always)]
pub fn fingerprint(first: u64, instructions: u64) -> u32 {
    let size = (first >> 32) as u32;
    let address = (instructions >> 4) as u32;
    let mixed = (address ^ size.rotate_left(20)).wrapping_mul(0x9e37_79b1);
    mixed >> 16
}

/// The execution context of a thread.
#[inline(always)]
pub fn find_context(
    layout: &Layout,
    state: u64,
    thread_pointer: u64,
    memory: &mut impl BlockMemory,
) -> Option<u64> {
    let variable = layout.context.address(state, thread_pointer, memory)?;
    memory.word(variable)
}

impl Walk {
    /// The walk from the context's current frame; none if the context is invalid.
    #[inline(always)]
    pub fn begin(context: u64, above: u64, memory: &mut impl BlockMemory) -> Option<Self> {
        if context == 0 || !memory.load_block(context, execution_context::BYTES) {
            return None;
        }
        let stack = memory.block_word(execution_context::STACK);
        let words = memory.block_word(execution_context::STACK_WORDS);
        let frame = memory.block_word(execution_context::FRAME);
        let end = stack.wrapping_add(words << 3);
        (frame >= stack && frame < end).then_some(Self {
            frame,
            end,
            tag: memory.block_word(execution_context::TAG),
            above,
        })
    }

    /// The registers of the `rb_vm_exec` that called generated code: those at its exception handler. The
    /// code pushes no tag, so that of `rb_vm_exec` is the first one above the stack pointer.
    #[inline(always)]
    pub fn leave_generated(&self, sp: u64, memory: &mut impl BlockMemory) -> Option<Registers> {
        let mut tag = self.tag;
        for _ in 0..MAX_TAGS {
            if tag > sp {
                break;
            }
            tag = memory.word(tag.wrapping_add(tag::PREVIOUS))?;
        }
        if tag <= sp || !memory.load_block(tag.wrapping_add(tag::REGISTERS), tag::REGISTERS_BYTES) {
            return None;
        }
        let registers = Registers {
            ip: memory.block_word(tag::INSTRUCTION),
            sp: memory.block_word(tag::STACK_POINTER),
            fp: memory.block_word(tag::FRAME_POINTER),
            link: 0,
        };
        (registers.sp > sp).then_some(registers)
    }

    /// The next frame of the native frame of `rb_vm_exec`.
    #[inline(always)]
    pub fn step(
        &mut self,
        layout: &Layout,
        native: &NativeFrame,
        memory: &mut impl BlockMemory,
    ) -> Step {
        if self.end == 0 {
            return unreadable();
        }
        let frame = self.frame;
        let next = frame.wrapping_add(layout.frame_bytes.into());
        if next >= self.end {
            return Step::End;
        }
        if !memory.load_block(frame, layout.frame_bytes) {
            return self.lose();
        }
        let instruction = memory.block_word(control_frame::INSTRUCTION);
        let sequence = memory.block_word(control_frame::SEQUENCE);
        let local = memory.block_word(control_frame::ENVIRONMENT);
        let at = local.wrapping_sub(environment::BEFORE);
        if !memory.load_block(at, environment::BYTES) {
            return self.lose();
        }
        let flags = memory.block_word(environment::FLAGS);
        let above = self.above;
        self.above = above::MET;
        if flags & flag::C != 0 || instruction == 0 || sequence == 0 {
            // The loop itself does not run inside one: its frame is already gone.
            let is_left =
                above == above::LOOP || (above == above::ENTRY && !native.holds(self.tag));
            if is_left {
                return Step::End;
            }
            self.frame = next;
            return Step::Skip;
        }
        let method = self.method(memory);
        let Some(body) = memory.word(sequence.wrapping_add(SEQUENCE_BODY)) else {
            return self.lose();
        };
        if !memory.load_block(body, BODY_BYTES) {
            return self.lose();
        }
        let first = memory.block_word(0);
        let instructions = memory.block_word(BODY_INSTRUCTIONS);
        let is_last = flags & flag::FINISH != 0;
        let is_new = is_last && instruction == instructions;
        if above == above::ENTRY && !is_new && !native.holds(self.tag) {
            return Step::End;
        }
        self.frame = next;
        if above == above::CALLED && is_new {
            return Step::Skip;
        }
        let mut position = instruction.wrapping_sub(instructions) >> 3;
        if position > u64::from(Function::FAR) {
            position = u64::from(Function::FAR);
        }
        let function = Function {
            method: (method >> 3) as u32,
            fingerprint: fingerprint(first, instructions),
            position: position as u32,
        };
        if is_last {
            Step::Last(sequence, function.detail())
        } else {
            Step::Frame(sequence, function.detail())
        }
    }

    /// The entry of the method of the loaded environment, or of the enclosing one; 0 if there is none.
    #[inline(always)]
    fn method(&self, memory: &mut impl BlockMemory) -> u64 {
        for _ in 0..MAX_LEVELS {
            if memory.block_word(environment::FLAGS) & flag::LOCAL != 0 {
                break;
            }
            let outer = memory.block_word(environment::OUTER) & !3;
            let at = outer.wrapping_sub(environment::BEFORE);
            if !memory.load_block(at, environment::BYTES) {
                return 0;
            }
        }
        if memory.block_word(environment::FLAGS) & flag::LOCAL == 0 {
            return 0;
        }
        let mut method = memory.block_word(environment::METHOD);
        if method == 0 || !memory.load_block(method, internal::BYTES) {
            return 0;
        }
        if internal::kind(memory.block_word(0)) == internal::VARIABLES {
            method = memory.block_word(1);
            if !memory.load_block(method, internal::BYTES) {
                return 0;
            }
        }
        if internal::kind(memory.block_word(0)) == internal::METHOD {
            method
        } else {
            0
        }
    }

    #[inline(always)]
    fn lose(&mut self) -> Step {
        self.end = 0;
        unreadable()
    }
}

/// An unreadable frame.
#[inline(always)]
fn unreadable() -> Step {
    Step::Last(0, Detail::new(0, unreadable::MEMORY))
}

#[cfg(test)]
mod tests;
