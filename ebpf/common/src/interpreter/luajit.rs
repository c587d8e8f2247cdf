//! LuaJIT: from the native frame of the virtual machine along the frames on a coroutine's own stack.
//!
//! ```text
//! native frame ─► lua_State ─► its innermost native frame ─► the native frame that this one interrupted ─► ...
//!                     └─► frames on its stack: (function, how to return), (function, how to return), ...
//! ```
//!
//! A `lua_State` lists the native frames that run it, by their stack pointers, in the same order as the frames on
//! its stack have marks of calls from C. So addresses tell which frames belong to a native frame. Compiled traces
//! run in the native frame of the virtual machine, below its stack pointer.

use super::{BlockMemory, Detail, Step, unreadable};
use crate::walk::Registers;

/// The layout of a file's build.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Layout {
    /// Offset of the current `lua_State` in `global_State`; the frame at which a trace was entered follows it.
    pub current: u32,
    /// File offset of an instruction of the virtual machine with a complete frame.
    pub body: u32,
}

/// The native frame of the virtual machine: words from its stack pointer.
mod native {
    /// In the upper half.
    pub const RESULTS: u32 = 1;
    pub const STATE: u32 = 2;
    pub const INSTRUCTION: u32 = 3;
    pub const PREVIOUS: u32 = 4;
    pub const BYTES: u32 = 40;
    /// Of the saved registers and the return address.
    pub const SAVED_FP: u64 = 64;
    pub const RETURN: u64 = 72;
    pub const SIZE: u64 = 80;
    /// Flags in the pointers to it.
    pub const FLAGS: u64 = 3;
}

/// `lua_State`, from its third word on.
mod state {
    pub const START: u64 = 16;
    pub const BYTES: u32 = 72;
    pub const GLOBAL: u32 = 0;
    pub const BASE: u32 = 2;
    pub const STACK_END: u32 = 4;
    pub const STACK: u32 = 5;
    pub const NATIVE: u32 = 8;
    pub const NATIVE_OFFSET: u64 = 80;
}

/// A frame on the stack: words before its base.
mod frame {
    pub const BYTES: u32 = 32;
    /// What continues after a function that the virtual machine called by itself: the kind, and the instruction.
    pub const CONTINUATION: u32 = 0;
    pub const CONTINUED_AT: u32 = 1;
    pub const FUNCTION: u32 = 2;
    /// The instruction to return to, or a kind and the distance to the caller.
    pub const RETURN: u32 = 3;
    /// The base of the bottom frame, from the start of the stack.
    pub const BOTTOM: u64 = 16;

    pub const KIND: u64 = 7;
    /// Called from C.
    pub const C: u64 = 1;
    pub const CONTINUES: u64 = 2;
    /// A copy, for a variable number of arguments.
    pub const VARIADIC: u64 = 3;
    /// Called from C, which handles errors.
    pub const PROTECTED_C: u64 = 5;
    /// In kinds that are return addresses.
    pub const NOT_LUA: u64 = 3;

    /// A continuation that is a callback from C.
    pub const CALLBACK: u64 = 1;
}

/// `GCfunc`, from its second word on.
mod function {
    pub const START: u64 = 8;
    pub const BYTES: u32 = 32;
    pub const HEADER: u32 = 0;
    pub const CODE: u32 = 3;
    pub const KIND: u64 = 8;
}

/// `GCproto`, which its code follows.
pub mod prototype {
    pub const BYTES: u64 = 104;
    /// The kind of object, and the number of instructions in the upper half.
    pub const HEADER: u32 = 1;
    pub const FILE: u32 = 8;
    /// The first line, and the number of lines in the upper half.
    pub const LINES: u32 = 9;
    pub const KIND: u64 = 7;
}

/// Pointers in values of Lua have a tag above.
const POINTER_BITS: u64 = (1 << 47) - 1;
const FUNCTION_TAG: u64 = 0x1_fff7;

/// An instruction that stores the return address in a new frame: `mov [rdx-8], rbx`.
const STORES_RETURN: u32 = 0xf85a_8948;

/// What the position of a frame contains: the number of its instruction, and whether an instruction of the next
/// frame called it.
pub mod position {
    pub const CALLED: u32 = 1 << 31;
    pub const INSTRUCTION: u32 = CALLED - 1;
    /// Its instruction is unknown, as in a trace.
    pub const UNKNOWN: u32 = INSTRUCTION;
}

/// The state of the walk.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Walk {
    /// The `lua_State`; 0 before the first one.
    pub state: u64,
    /// The stack pointer of its next native frame.
    pub native: u64,
    /// The base of the next frame, and that of the bottom one.
    pub base: u64,
    pub bottom: u64,
    /// The instruction after the current one of the next frame; 0 if unknown.
    pub instruction: u64,
    /// The next frame is innermost, in the virtual machine.
    pub is_leaf: u32,
    /// The innermost frame has no return address yet.
    pub is_entering: u32,
    pub is_lost: u32,
    pub unused: u32,
}

/// Where the virtual machine keeps its state in the innermost frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Whether the virtual machine is innermost.
    pub is_leaf: bool,
    pub ip: u64,
    pub base: u64,
    pub instruction: u64,
    /// The frame pointer, which may be the base while C code runs.
    pub fp: u64,
}

/// `GCstr`, from its second word on.
pub mod string {
    pub const START: u64 = 8;
    pub const BYTES: u32 = 16;
    /// The mark, which changes, and the kind of object; the string's number, which no other string gets, in the upper
    /// half.
    pub const HEADER: u32 = 0;
    /// The hash, and the length in the upper half.
    pub const LENGTH: u32 = 1;

    /// The address of the last word of a string's text.
    #[inline(always)]
    pub fn tail(address: u64, length: u64) -> u64 {
        address.wrapping_add(16).wrapping_add(length >> 32)
    }
}

/// What distinguishes a prototype from earlier ones at its address. The collector frees a file's name before the
/// prototypes, whose words stay as they were while the allocator or another name overwrites its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub header: u64,
    pub file: u64,
    pub lines: u64,
    /// The header and the last word of the string at `file`.
    pub name: u64,
    pub name_tail: u64,
}

impl Identity {
    #[inline(always)]
    pub fn generation(&self) -> u32 {
        super::generation(
            self.header >> 32,
            [self.lines, self.file, self.name >> 32, self.name_tail],
        )
    }
}

/// The search for the native frame that a trace or a helper of the virtual machine runs in.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Search {
    pub at: u64,
    /// Blocks of the stack to search; 0 at the end.
    pub left: u32,
    /// Whether a trace runs.
    pub is_trace: u32,
    /// Why the stack ends if nothing is found; 0 if it continues.
    pub end: u32,
    pub unused: u32,
}

impl Search {
    /// Traces need up to 1 KiB, and the code that leaves them 400 bytes.
    const BLOCKS: u32 = 12;

    #[inline(always)]
    pub fn begin(sp: u64, is_trace: bool) -> Self {
        Self {
            at: sp.wrapping_add(15) & !15,
            left: Self::BLOCKS,
            is_trace: u32::from(is_trace),
            ..Self::default()
        }
    }

    /// Searches the next block; returns the stack pointer of the native frame.
    #[inline(always)]
    pub fn step(&mut self, memory: &mut impl BlockMemory) -> Option<u64> {
        let start = self.at;
        self.at = start.wrapping_add(super::BLOCK_BYTES.into());
        self.left = self.left.wrapping_sub(1);
        let member = u64::from(native::STATE) * 8;
        if !memory.load_block(start.wrapping_add(member), super::BLOCK_BYTES) {
            self.left = 0;
            return None;
        }
        for index in 0..super::BLOCK_WORDS as u32 / 2 {
            let state = memory.block_word(index * 2);
            let sp = start.wrapping_add(u64::from(index) * 16);
            if runs(state, sp, memory) {
                return Some(sp);
            }
        }
        None
    }
}

/// Whether the innermost native frame of a `lua_State` is at this stack pointer.
#[inline(always)]
pub fn is_native(sp: u64, memory: &mut impl BlockMemory) -> bool {
    let state = memory.word(sp.wrapping_add(u64::from(native::STATE) * 8));
    runs(state.unwrap_or(0), sp, memory)
}

/// Whether this is a `lua_State` whose innermost native frame is at this stack pointer.
#[inline(always)]
fn runs(state: u64, sp: u64, memory: &mut impl BlockMemory) -> bool {
    if state == 0 || state & 7 != 0 || state > POINTER_BITS {
        return false;
    }
    let native = memory.word(state.wrapping_add(state::NATIVE_OFFSET));
    native.is_some_and(|native| native & !native::FLAGS == sp)
}

/// The registers with which the virtual machine would continue after a trace; `file` is the start address of its
/// file.
#[inline(always)]
pub fn after_trace(layout: &Layout, file: u64, sp: u64, fp: u64) -> Registers {
    Registers {
        ip: file.wrapping_add(layout.body.into()),
        sp,
        fp,
        link: 0,
    }
}

/// The registers of the caller of a native frame.
#[inline(always)]
pub fn leave_native(sp: u64, memory: &mut impl BlockMemory) -> Option<Registers> {
    Some(Registers {
        ip: memory.word(sp.wrapping_add(native::RETURN))?,
        sp: sp.wrapping_add(native::SIZE),
        fp: memory.word(sp.wrapping_add(native::SAVED_FP))?,
        link: 0,
    })
}

impl Walk {
    /// Begins with the native frame at `sp`; false if it runs no frames.
    #[inline(always)]
    pub fn enter(
        &mut self,
        layout: &Layout,
        sp: u64,
        machine: &Machine,
        memory: &mut impl BlockMemory,
    ) -> bool {
        if !memory.load_block(sp, native::BYTES) {
            return false;
        }
        let results = memory.block_word(native::RESULTS) as i32;
        let state = memory.block_word(native::STATE);
        let instruction = memory.block_word(native::INSTRUCTION);
        let previous = memory.block_word(native::PREVIOUS);
        if state != self.state && !self.begin(layout, state, instruction, machine, memory) {
            self.state = 0;
            return false;
        }
        if self.native != sp {
            return false;
        }
        self.native = previous & !native::FLAGS;
        if results < 0 {
            // C code runs in it, and the frames below this place belong to its callers.
            let start = self.bottom.wrapping_sub(frame::BOTTOM);
            let top = start.wrapping_add(u64::from(results.unsigned_abs()));
            if self.base.wrapping_sub(8) < top {
                return false;
            }
        }
        true
    }

    #[inline(always)]
    fn begin(
        &mut self,
        layout: &Layout,
        state: u64,
        instruction: u64,
        machine: &Machine,
        memory: &mut impl BlockMemory,
    ) -> bool {
        if !memory.load_block(state.wrapping_add(state::START), state::BYTES) {
            return false;
        }
        let global = memory.block_word(state::GLOBAL);
        let saved_base = memory.block_word(state::BASE);
        let end = memory.block_word(state::STACK_END);
        let stack = memory.block_word(state::STACK);
        *self = Self {
            state,
            native: memory.block_word(state::NATIVE) & !native::FLAGS,
            base: saved_base,
            bottom: stack.wrapping_add(frame::BOTTOM),
            instruction,
            is_lost: self.is_lost,
            ..Self::default()
        };
        let is_on_stack = |base: u64| base > stack && base <= end && base & 7 == 0;
        if !memory.load_block(global.wrapping_add(layout.current.into()), 16) {
            return false;
        }
        let trace_base = memory.block_word(1);
        if memory.block_word(0) == state && is_on_stack(trace_base) {
            self.base = trace_base;
            self.instruction = 0;
            return true;
        }
        let is_function = |base: u64, memory: &mut _| is_function(base, memory);
        if machine.is_leaf && is_on_stack(machine.base) && is_function(machine.base, memory) {
            self.base = machine.base;
            self.instruction = machine.instruction;
            self.is_leaf = 1;
            let code = memory.word(machine.ip).unwrap_or(0) as u32;
            self.is_entering = u32::from(code == STORES_RETURN);
            return true;
        }
        if machine.fp != state && is_on_stack(machine.fp) && is_function(machine.fp, memory) {
            self.base = machine.fp;
        }
        true
    }

    /// The next frame of a native frame.
    #[inline(always)]
    pub fn step(&mut self, memory: &mut impl BlockMemory) -> Step {
        if self.is_lost != 0 {
            return unreadable();
        }
        if self.base <= self.bottom {
            return Step::End;
        }
        let base = self.base;
        let instruction = self.instruction;
        let is_leaf = self.is_leaf != 0;
        let is_entering = self.is_entering != 0;
        self.is_leaf = 0;
        self.is_entering = 0;
        if !memory.load_block(base.wrapping_sub(frame::BYTES.into()), frame::BYTES) {
            return self.lose();
        }
        let function = memory.block_word(frame::FUNCTION);
        let mut caller = memory.block_word(frame::RETURN);
        if is_entering {
            caller = instruction;
        }
        let kind = caller & frame::KIND;
        let continuation = memory.block_word(frame::CONTINUATION);
        let continued_at = memory.block_word(frame::CONTINUED_AT);
        let mut is_last = kind == frame::C || kind == frame::PROTECTED_C;
        self.instruction = 0;
        let mut distance = caller & !frame::KIND;
        let mut called = 0;
        if caller & frame::NOT_LUA == 0 {
            let Some(call) = memory.word(caller.wrapping_sub(4)) else {
                return self.lose();
            };
            distance = (2 + (call >> 8 & 0xff)) * 8;
            self.instruction = caller;
            called = position::CALLED;
        } else if kind == frame::CONTINUES {
            self.instruction = continued_at;
            if continuation == frame::CALLBACK {
                is_last = true;
            } else {
                called = position::CALLED;
            }
        } else if kind == frame::VARIADIC {
            self.instruction = instruction;
            self.is_leaf = u32::from(is_leaf);
        }
        self.base = base.wrapping_sub(distance);
        if self.base >= base {
            return self.lose();
        }
        if kind == frame::VARIADIC {
            return Step::Skip;
        }
        let none = if is_last { Step::End } else { Step::Skip };
        if is_entering {
            return none;
        }
        if function >> 47 != FUNCTION_TAG {
            return self.lose();
        }
        let found = prototype(function & POINTER_BITS, instruction, memory);
        let Some((address, detail)) = found else {
            return self.lose();
        };
        // It is being left if the machine no longer runs its code.
        if address == 0 || is_leaf && detail.position() == position::UNKNOWN {
            return none;
        }
        let detail = Detail(detail.0 | u64::from(called));
        if is_last {
            Step::Last(address, detail)
        } else {
            Step::Frame(address, detail)
        }
    }

    #[inline(always)]
    fn lose(&mut self) -> Step {
        self.is_lost = 1;
        unreadable()
    }
}

/// Whether a frame with this base has a function.
#[inline(always)]
fn is_function(base: u64, memory: &mut impl BlockMemory) -> bool {
    let function = memory.word(base.wrapping_sub(16));
    function.is_some_and(|function| function >> 47 == FUNCTION_TAG)
}

/// The prototype of a function, and the position in it; 0 for functions in C.
#[inline(always)]
fn prototype(
    function: u64,
    instruction: u64,
    memory: &mut impl BlockMemory,
) -> Option<(u64, Detail)> {
    if !memory.load_block(function.wrapping_add(function::START), function::BYTES) {
        return None;
    }
    let header = memory.block_word(function::HEADER);
    let code = memory.block_word(function::CODE);
    if header >> 8 & 0xff != function::KIND {
        return None;
    }
    if header >> 16 & 0xff != 0 {
        return Some((0, Detail::default()));
    }
    let address = code.wrapping_sub(prototype::BYTES);
    if !memory.load_block(address, prototype::BYTES as u32) {
        return None;
    }
    let header = memory.block_word(prototype::HEADER);
    if header >> 8 & 0xff != prototype::KIND {
        return None;
    }
    let mut identity = Identity {
        header,
        file: memory.block_word(prototype::FILE),
        lines: memory.block_word(prototype::LINES),
        ..Identity::default()
    };
    let name = identity.file.wrapping_add(string::START);
    if memory.load_block(name, string::BYTES) {
        identity.name = memory.block_word(string::HEADER);
        let tail = string::tail(identity.file, memory.block_word(string::LENGTH));
        identity.name_tail = memory.word(tail).unwrap_or(0);
    }
    let count = header >> 32;
    // The machine has read the instruction already.
    let behind = instruction.wrapping_sub(code) >> 2;
    let position = if behind > 0 && behind <= count {
        (behind as u32 - 1) & position::INSTRUCTION
    } else {
        position::UNKNOWN
    };
    Some((address, Detail::new(identity.generation(), position)))
}

/// An unreadable frame.
#[inline(always)]
fn unreadable() -> Step {
    Step::Last(0, Detail::new(0, unreadable::MEMORY))
}

#[cfg(test)]
mod tests;
