//! Perl: from an interpreter's current statement along its context stacks.
//!
//! ```text
//! thread ─► interpreter ─► stack info ─► stack info of the code that C interrupted ─► ...
//!                              └─► contexts: functions, evals, loops, blocks
//! ```
//!
//! `Perl_runops_standard` is the loop; the operations that it calls are native functions. One native frame of
//! it runs the contexts up to the first one without an operation to return to: C called that function. A
//! context has the statement that was current before it, so the line of a function is known from the
//! context above it.

use super::thread_variable::ThreadVariable;
use super::{BlockMemory, Detail, NativeFrame, Step, unreadable};

/// The layout of the file's version and build.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Layout {
    /// The variable with a thread's interpreter, if there is one.
    pub interpreter: ThreadVariable,
    /// One of [`place`].
    pub place: u32,
    /// Members of the interpreter: the current operation, statement, and stack info.
    pub operation: u32,
    pub statement: u32,
    pub stack_info: u32,
    /// Size of a context.
    pub context_bytes: u32,
    /// Index of the word with the function in a context.
    pub context_function: u32,
    /// Whether a statement has the glob of its file, or the file's name.
    pub file_is_glob: u32,
    /// `pp_entersub`, which pushes the context of a function; in file offsets, as the next ones.
    pub enter_start: u32,
    pub enter_end: u32,
    /// `docatch`, which continues the function that called it in a loop of its own.
    pub catch_start: u32,
    pub catch_end: u32,
}

/// How to find a thread's interpreter.
pub mod place {
    /// A variable of the thread points to it.
    pub const VARIABLE: u32 = 0;
    /// The value of the thread's key is its address.
    pub const VALUE: u32 = 1;
    /// There is only one, whose members are global variables.
    pub const GLOBAL: u32 = 2;
}

/// `PERL_SI`.
mod stack_info {
    pub const BYTES: u32 = 40;
    pub const CONTEXTS: u32 = 1;
    pub const PREVIOUS: u32 = 2;
    /// In the lower half.
    pub const LAST: u32 = 4;
}

/// `PERL_CONTEXT`.
mod context {
    pub const BYTES: u32 = 80;
    pub const KIND: u32 = 0;
    pub const STATEMENT: u32 = 2;
    pub const RETURN: u32 = 6;

    pub const KIND_MASK: u64 = 0xf;
    /// The comparison of a sort; it has no function.
    pub const NULL: u64 = 0;
    pub const FUNCTION: u64 = 9;
    pub const FORMAT: u64 = 10;
    pub const EVAL: u64 = 11;
    pub const DEFER: u64 = 13;

    /// A function that C calls repeatedly without leaving it.
    pub const MULTICALL: u64 = 0x10;
    /// Code in a regular expression.
    pub const PATTERN: u64 = 0x40;
    /// Code in a regular expression that is part of the current function.
    pub const FAKE: u64 = 0x80;
    /// An eval of a string.
    pub const STRING: u64 = 0x20;
    /// An eval or try of a block, as part of the current function.
    pub const BLOCK: u64 = 0xc0;
}

/// `COP`.
mod statement {
    pub const START: u64 = 32;
    pub const BYTES: u32 = 32;
    /// In the upper half.
    pub const LINE: u32 = 0;
    pub const FILE: u32 = 2;
    /// In the upper half.
    pub const SEQUENCE: u32 = 3;
}

/// `CV` and its body.
mod function {
    pub const BODY: u64 = 56;
    pub const BODY_BYTES: u32 = 40;
    pub const GLOB: u32 = 0;
    /// In the upper half.
    pub const FLAGS: u32 = 4;
    /// It has a name instead of a glob.
    pub const NAMED: u64 = 0x8000 << 32;
}

/// Offset of a glob's name in its body.
const GLOB_NAME: u64 = 32;

/// The state of the walk.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Walk {
    /// The contexts of the current stack, and how many of them are left.
    pub contexts: u64,
    pub left: u64,
    /// The next stack info.
    pub previous: u64,
    /// The current statement of the next function; 0 after the main program.
    pub statement: u64,
    /// The current operation.
    pub operation: u64,
    pub is_entered: u32,
    /// The functions of the next native frame were continued by `docatch`, and were found.
    pub is_continued: u32,
    pub is_lost: u32,
    pub unused: u32,
}

/// The native code around a frame of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// Whether the loop is innermost.
    pub is_leaf: bool,
    /// The innermost frame: file offset of its instruction, if that is in Perl's file, and stack pointer.
    pub leaf: u64,
    pub leaf_sp: u64,
    /// File offset of the caller's instruction.
    pub caller: u64,
}

/// What a frame is, in the lower bits of its address, which is that of a statement.
pub mod kind {
    pub const MASK: u64 = 7;
    /// A function named by its glob.
    pub const GLOB: u64 = 1;
    /// A function named by itself.
    pub const FUNCTION: u64 = 2;
    /// Code outside of functions: its detail has the fingerprint of the file's name, and the line.
    pub const MAIN: u64 = 3;
    pub const EVAL: u64 = 4;
    pub const FILE: u64 = 5;
}

/// A function and its statement, in the [`Detail`] of a frame. Closures of the same code share their glob.
///
/// ```text
/// address of the glob or function / 8 (44) │ fingerprint (20)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Function {
    pub address: u64,
    /// Distinguishes statement and function from earlier ones at their addresses.
    pub fingerprint: u32,
}

impl Function {
    const FINGERPRINT_BITS: u32 = 20;

    #[inline(always)]
    pub fn detail(self) -> Detail {
        Detail(self.address >> 3 << Self::FINGERPRINT_BITS | u64::from(self.fingerprint))
    }

    pub fn from_detail(detail: Detail) -> Self {
        Self {
            address: detail.0 >> Self::FINGERPRINT_BITS << 3,
            fingerprint: detail.0 as u32 & ((1 << Self::FINGERPRINT_BITS) - 1),
        }
    }

    /// Whether the frame is in a function.
    pub fn is_in(statement: u64) -> bool {
        matches!(statement & kind::MASK, kind::GLOB | kind::FUNCTION)
    }
}

#[inline(always)]
fn mix(sum: u64, word: u64) -> u64 {
    (sum ^ word)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
}

/// From the hash of the function's name, and the statement's number in the program and its line.
#[inline(always)]
pub fn fingerprint(name: u32, sequence: u32, line: u32) -> u32 {
    let place = u64::from(sequence) << 32 | u64::from(line);
    let mixed = mix(mix(0, name.into()), place);
    mixed as u32 >> (32 - Function::FINGERPRINT_BITS)
}

/// Bytes of a file's name that distinguish it.
pub const TEXT_BYTES: u32 = 128;

/// Of a text up to its NUL, by words.
#[inline(always)]
pub fn text_fingerprint(word: impl Fn(u32) -> u64) -> u32 {
    let (low, high) = (0x0101_0101_0101_0101, 0x8080_8080_8080_8080);
    let mut sum = 0;
    let mut inside = u64::MAX;
    for index in 0..TEXT_BYTES / 8 {
        let word = word(index);
        // The first NUL has a bit, others may.
        let ends = word.wrapping_sub(low) & !word & high;
        let first = ends & ends.wrapping_neg();
        let before = (first >> 7).wrapping_sub(1);
        let has_end = 0u64.wrapping_sub((ends | ends.wrapping_neg()) >> 63);
        sum = mix(sum, word & before & inside);
        inside &= !has_end;
    }
    sum as u32
}

/// The address of a thread's interpreter, or of the globals; `state` is that of the runtime's state.
#[inline(always)]
pub fn find_interpreter(
    layout: &Layout,
    state: u64,
    thread_pointer: u64,
    memory: &mut impl BlockMemory,
) -> Option<u64> {
    if layout.place == place::GLOBAL {
        return Some(state);
    }
    let address = layout.interpreter.address(state, thread_pointer, memory)?;
    if layout.place == place::VALUE {
        Some(address)
    } else {
        memory.word(address)
    }
}

impl Walk {
    /// The walk from the current statement; none without an interpreter.
    #[inline(always)]
    pub fn begin(layout: &Layout, interpreter: u64, memory: &mut impl BlockMemory) -> Option<Self> {
        if interpreter == 0 {
            return None;
        }
        let mut member = |at: u32| memory.word(interpreter.wrapping_add(at.into()));
        let mut walk = Self {
            operation: member(layout.operation)?,
            statement: member(layout.statement)?,
            previous: member(layout.stack_info)?,
            ..Self::default()
        };
        walk.next_stack(memory);
        Some(walk)
    }

    #[inline(always)]
    fn next_stack(&mut self, memory: &mut impl BlockMemory) {
        if !memory.load_block(self.previous, stack_info::BYTES) {
            self.is_lost = 1;
            return;
        }
        self.contexts = memory.block_word(stack_info::CONTEXTS);
        self.previous = memory.block_word(stack_info::PREVIOUS);
        // -1 if there are none.
        let last = memory.block_word(stack_info::LAST) as u32;
        self.left = u64::from(last.wrapping_add(1));
    }

    #[inline(always)]
    fn load_context(&self, layout: &Layout, memory: &mut impl BlockMemory) -> bool {
        let index = self.left.wrapping_sub(1);
        let at = index.wrapping_mul(layout.context_bytes.into());
        memory.load_block(self.contexts.wrapping_add(at), context::BYTES)
    }

    /// Begins with a native frame; false if it runs no contexts.
    #[inline(always)]
    pub fn enter(
        &mut self,
        layout: &Layout,
        native: &NativeFrame,
        around: &Around,
        memory: &mut impl BlockMemory,
    ) -> bool {
        let is_continued = self.is_continued != 0;
        self.is_continued = u32::from(is_within(
            around.caller,
            layout.catch_start,
            layout.catch_end,
        ));
        if is_continued {
            return self.is_lost != 0;
        }
        if self.is_entered != 0 || self.is_lost != 0 {
            return true;
        }
        self.is_entered = 1;
        let is_loaded = self.left != 0 && self.load_context(layout, memory);
        let flags = memory.block_word(context::KIND);
        let kind = flags & context::KIND_MASK;
        let is_function = kind == context::FUNCTION;
        if self.operation == 0 {
            // A loop has ended. If C calls it repeatedly, its context stays.
            let stays = kind == context::NULL || is_function && flags & context::MULTICALL != 0;
            if is_loaded && stays {
                self.left -= 1;
            }
            return !around.is_leaf;
        }
        // C has an operation on its stack to call a function.
        let is_call = self.operation >= around.leaf_sp && self.operation < native.sp;
        let is_entering = is_call && is_within(around.leaf, layout.enter_start, layout.enter_end);
        let is_called_by_c = is_function && memory.block_word(context::RETURN) == 0;
        if is_loaded && is_entering && is_called_by_c {
            self.statement = memory.block_word(context::STATEMENT);
            self.left -= 1;
        }
        true
    }

    /// The next frame of a native frame of the loop.
    #[inline(always)]
    pub fn step(&mut self, layout: &Layout, memory: &mut impl BlockMemory) -> Step {
        if self.is_lost != 0 {
            return unreadable();
        }
        if self.left == 0 {
            if self.previous == 0 {
                return self.main(layout, memory);
            }
            self.next_stack(memory);
            return Step::Skip;
        }
        if !self.load_context(layout, memory) {
            self.is_lost = 1;
            return unreadable();
        }
        self.left -= 1;
        let flags = memory.block_word(context::KIND);
        let caller = memory.block_word(context::STATEMENT);
        let mut is_last = memory.block_word(context::RETURN) == 0;
        let function = memory.block_word(layout.context_function);
        let kind = flags & context::KIND_MASK;
        if kind == context::NULL || kind == context::DEFER {
            return Step::End;
        }
        let is_function = kind == context::FUNCTION || kind == context::FORMAT;
        let is_own = if is_function {
            flags & context::FAKE == 0
        } else if kind == context::EVAL {
            flags & context::BLOCK == 0
        } else {
            return Step::Skip;
        };
        if is_last && self.left != 0 && is_own {
            is_last = !self.is_tail_call(layout, memory);
        }
        if !is_own {
            return if is_function && is_last {
                Step::End
            } else {
                Step::Skip
            };
        }
        let statement = self.statement;
        self.statement = caller;
        if is_function && function == 0 {
            // It is being left.
            return if is_last { Step::End } else { Step::Skip };
        }
        let found = if is_function {
            self.function(statement, function, memory)
        } else if flags & context::STRING != 0 {
            code(layout, statement, kind::EVAL, memory)
        } else {
            code(layout, statement, kind::FILE, memory)
        };
        let (address, detail) = found.unwrap_or((0, Detail::new(0, unreadable::MEMORY)));
        if is_last {
            Step::Last(address, detail)
        } else {
            Step::Frame(address, detail)
        }
    }

    /// Whether the function is the last operation of a block that C runs, which has no operation to return to
    /// either.
    #[inline(always)]
    fn is_tail_call(&self, layout: &Layout, memory: &mut impl BlockMemory) -> bool {
        if !self.load_context(layout, memory) {
            return false;
        }
        let flags = memory.block_word(context::KIND);
        let kind = flags & context::KIND_MASK;
        kind == context::NULL
            || kind == context::DEFER
            || kind == context::FUNCTION && flags & context::PATTERN != 0
    }

    #[inline(always)]
    fn function(
        &self,
        statement: u64,
        function: u64,
        memory: &mut impl BlockMemory,
    ) -> Option<(u64, Detail)> {
        if !memory.load_block(statement.wrapping_add(statement::START), statement::BYTES) {
            return None;
        }
        let line = (memory.block_word(statement::LINE) >> 32) as u32;
        let sequence = (memory.block_word(statement::SEQUENCE) >> 32) as u32;
        let body = memory.word(function)?;
        if !memory.load_block(body.wrapping_add(function::BODY), function::BODY_BYTES) {
            return None;
        }
        let mut name = memory.block_word(function::GLOB);
        let mut address = function;
        let mut kind = kind::FUNCTION;
        if name != 0 && memory.block_word(function::FLAGS) & function::NAMED == 0 {
            address = name;
            kind = kind::GLOB;
            let body = memory.word(name)?;
            name = memory.word(body.wrapping_add(GLOB_NAME))?;
        }
        let hash = if name == 0 { 0 } else { memory.word(name)? };
        let function = Function {
            address,
            fingerprint: fingerprint(hash as u32, sequence, line),
        };
        Some((statement | kind, function.detail()))
    }

    #[inline(always)]
    fn main(&mut self, layout: &Layout, memory: &mut impl BlockMemory) -> Step {
        let statement = self.statement;
        if statement == 0 {
            return Step::End;
        }
        self.statement = 0;
        match code(layout, statement, kind::MAIN, memory) {
            Some((address, detail)) => Step::Last(address, detail),
            None => unreadable(),
        }
    }
}

/// A frame outside of functions.
#[inline(always)]
fn code(
    layout: &Layout,
    statement: u64,
    kind: u64,
    memory: &mut impl BlockMemory,
) -> Option<(u64, Detail)> {
    if !memory.load_block(statement.wrapping_add(statement::START), statement::BYTES) {
        return None;
    }
    let line = (memory.block_word(statement::LINE) >> 32) as u32;
    let file = memory.block_word(statement::FILE);
    let generation = file_fingerprint(layout, file, memory).unwrap_or(0);
    Some((statement | kind, Detail::new(generation, line)))
}

#[inline(always)]
fn file_fingerprint(layout: &Layout, file: u64, memory: &mut impl BlockMemory) -> Option<u32> {
    if layout.file_is_glob != 0 {
        let body = memory.word(file)?;
        let name = memory.word(body.wrapping_add(GLOB_NAME))?;
        return Some(memory.word(name)? as u32);
    }
    if !memory.load_block(file, TEXT_BYTES) {
        return None;
    }
    Some(text_fingerprint(|index| memory.block_word(index)))
}

#[inline(always)]
fn is_within(offset: u64, start: u32, end: u32) -> bool {
    offset >= u64::from(start) && offset < u64::from(end)
}

/// An unreadable frame.
#[inline(always)]
fn unreadable() -> Step {
    Step::Last(0, Detail::new(0, unreadable::MEMORY))
}

#[cfg(test)]
mod tests;
