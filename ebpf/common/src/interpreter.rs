//! Frames of interpreted code, found from the native frames of the interpreter's loop.
//!
//! The native walk stays in control. At a frame in an interpreter's loop, whose rules are marked
//! ([`EncodedRule::is_interpreter`](crate::rule::EncodedRule::is_interpreter)), it adds the interpreted
//! frames that this native frame runs, and continues. Stack addresses decide which frames belong to it,
//! where the runtime keeps a marker on the C stack.
//!
//! An interpreted frame is two words: a [`Frame`] with the runtime and the address of
//! its function, and the [`Detail`].

pub mod beam;
pub mod dotnet;
pub mod hotspot;
pub mod luajit;
pub mod perl;
pub mod php;
pub mod python;
pub mod ruby;
#[cfg(test)]
mod test_memory;
pub mod thread_variable;
pub mod v8;

use crate::file::file_number;
use crate::frame::Frame;

/// In frames, runtimes have reserved file numbers.
pub mod runtime {
    pub const PYTHON: u32 = 0;
    /// V8's bytecode functions and builtins.
    pub const V8: u32 = 1;
    /// V8's functions in generated code. Their position is the number of V8's file, since the native
    /// frame before them has no file. Without a function, the generation is the type of the frame;
    /// it is 0 before the start and after the end of the frame.
    pub const V8_GENERATED: u32 = 2;
    /// A `zend_function`. Its position is the line.
    pub const PHP: u32 = 3;
    /// A `Method` interpreted by HotSpot.
    pub const HOTSPOT_INTERPRETED: u32 = 4;
    /// An nmethod: code compiled by HotSpot, with inlined methods.
    pub const HOTSPOT_COMPILED: u32 = 5;
    /// Any other CodeBlob of HotSpot.
    pub const HOTSPOT_STUB: u32 = 6;
    /// A Ruby instruction sequence, with the [`Function`](super::ruby::Function) in its detail.
    pub const RUBY: u32 = 7;
    /// A Perl statement and the function that it is in, see [`Function`](super::perl::Function).
    pub const PERL: u32 = 8;
    /// A prototype of LuaJIT, with the [position](super::luajit::position) in it.
    pub const LUAJIT: u32 = 9;
    /// An address in code that BEAM's JIT compiler generated.
    pub const BEAM: u32 = 10;
    /// An address in code of .NET. The programs do not add it: they see native code.
    pub const DOTNET: u32 = 11;
    pub const COUNT: u32 = 12;
}

/// The loader's data on a file with an interpreter, shared by all processes that map it.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Interpreter {
    /// Address of the runtime's state = address of the loop - its file offset + this.
    pub state: u64,
    /// One of [`runtime`].
    pub runtime: u32,
    pub v8: v8::Layout,
    pub python: python::Layout,
    pub ruby: ruby::Layout,
    pub php: php::Layout,
    pub perl: perl::Layout,
    pub luajit: luajit::Layout,
}

/// A process with a runtime, used to unwind its generated code.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RuntimeProcess {
    /// See [`NativeFrame::state`].
    pub state: u64,
    /// The file with the runtime; 0 is none.
    pub file: u32,
    pub unused: u32,
}

/// Memory of the sampled process, in blocks: a helper call costs as much as the copy.
pub trait BlockMemory {
    /// Loads up to [`BLOCK_BYTES`] bytes; false if they cannot be read.
    fn load_block(&mut self, address: u64, bytes: u32) -> bool;
    /// A word of the last loaded block, modulo its size.
    fn block_word(&self, index: u32) -> u64;
    fn word(&mut self, address: u64) -> Option<u64>;
}

pub const BLOCK_WORDS: usize = 16;
pub const BLOCK_BYTES: u32 = BLOCK_WORDS as u32 * 8;

/// The native frame whose interpreted frames are searched.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NativeFrame {
    /// Its own stack extends from here up to [`cfa`](Self::cfa).
    pub sp: u64,
    pub cfa: u64,
    /// Address of the runtime's state, see [`Interpreter::state`].
    pub state: u64,
    pub file: u32,
    pub unused: u32,
}

impl NativeFrame {
    pub fn holds(&self, address: u64) -> bool {
        address >= self.sp && address < self.cfa
    }
}

/// One step from an interpreted frame to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A frame; there may be more.
    Frame(u64, Detail),
    /// The last frame that belongs to the native frame.
    Last(u64, Detail),
    /// No frame, but there may be more.
    Skip,
    /// No more frames belong to the native frame.
    End,
    /// All frames from here on belong to callers: the native frame is being entered or left.
    NotEntered,
}

/// The second word of an interpreted frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Detail(pub u64);

/// The position of a frame without a function.
pub mod unreadable {
    /// Its memory could not be read.
    pub const MEMORY: u32 = 1;
    /// The interpreter has no state for the thread.
    pub const NO_THREAD: u32 = 2;
}

impl Detail {
    /// `generation` distinguishes functions that successively had the same address; `position`
    /// is that of the instruction.
    #[inline(always)]
    pub fn new(generation: u32, position: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(position))
    }

    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub fn position(self) -> u32 {
        self.0 as u32
    }
}

const HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The generation of a function that these words distinguish from earlier ones at its address.
#[inline(always)]
fn generation<const N: usize>(first: u64, others: [u64; N]) -> u32 {
    let mut hash = first;
    for word in others {
        hash = hash.wrapping_mul(HASH_MULTIPLIER) ^ word;
    }
    (hash.wrapping_mul(HASH_MULTIPLIER) >> 32) as u32
}

impl Frame {
    /// A frame of an interpreter; its [`Detail`] follows.
    #[inline(always)]
    pub fn interpreted(runtime: u32, function: u64) -> Self {
        Self::new(file_number::FIRST_RUNTIME.wrapping_add(runtime), function)
    }

    /// One of [`runtime`], if it is a frame of an interpreter.
    pub fn runtime(self) -> Option<u32> {
        let runtime = self.file().checked_sub(file_number::FIRST_RUNTIME)?;
        (runtime < runtime::COUNT).then_some(runtime)
    }
}
