//! Working memory of the programs in a per-CPU map: the BPF stack has only 512 bytes.

use profcol_ebpf_common::context::{Context, LabelText, MAX_LABEL_BYTES, otel, padded};
use profcol_ebpf_common::frame::Frame;
use profcol_ebpf_common::interpreter::dotnet::{self, DotNetProcess};
use profcol_ebpf_common::interpreter::hotspot::{self, AddressRange};
use profcol_ebpf_common::interpreter::{
    BLOCK_WORDS, NativeFrame, RuntimeProcess, beam, luajit, perl, php, python, ruby,
};
use profcol_ebpf_common::mappings::Mapping;
use profcol_ebpf_common::record::{
    File, MAX_ARGUMENTS_BYTES, MAX_KERNEL_FRAMES, MAX_NAME_BYTES, MAX_NAMES_BYTES, MAX_USER_WORDS,
    Process, Sample,
};
use profcol_ebpf_common::rule::EncodedRule;
use profcol_ebpf_common::sample_counts::StackHash;
use profcol_ebpf_common::walk::{CodeMapping, Walk};

use crate::kernel::Node;

/// A power of two that holds all frames, so that a mask bounds the index.
pub const FRAME_CAPACITY: usize = 2048;
const _: () = assert!(MAX_KERNEL_FRAMES + MAX_USER_WORDS <= FRAME_CAPACITY);

/// The largest context, and room for the attributes of one more record, which are larger than a label.
pub const CONTEXT_WORDS: usize =
    (size_of::<Context>() + MAX_LABEL_BYTES + padded(0, otel::MAX_ATTRIBUTE_BYTES as u64) as usize)
        / 8;

/// Code mappings of this stack; most stacks have few.
pub const RECENT_CODE: usize = 8;

/// Minimum and maximum size of the stack window, in words.
pub const MIN_WINDOW: usize = 64;
pub const MAX_WINDOW: usize = 512;

/// The record of a process or a file.
#[repr(C)]
pub union Announcement {
    pub process: Process,
    pub file: File,
}

#[repr(C)]
pub struct Scratch {
    pub sample: Sample,
    /// Directly after the sample: both are sent together.
    pub frames: [u64; FRAME_CAPACITY],
    /// Room for the context after the last frame.
    pub context: [u64; CONTEXT_WORDS],
    /// The label to add, and the end of those added.
    pub label: LabelText,
    pub labels_end: u64,
    pub labels_added: u64,
    pub thread_context: Context,
    pub node: Node,
    pub walk: Walk,
    /// The number of user frames.
    pub depth: u32,
    /// Whether the name of one of them is in the memory of the process.
    pub needs_names: u32,
    /// See [`crate::interpreter::stage`].
    pub interpreter_stage: u32,
    /// The file of the interpreter whose thread was searched; 0 is none.
    pub python_file: u32,
    /// The native frame whose interpreted frames are added.
    pub native: NativeFrame,
    pub python: python::Walk,
    /// The walk before the first frame of the native frame.
    pub entered: python::Walk,
    pub entered_stack: StackHash,
    pub entered_words: u32,
    pub entered_depth: u32,
    /// The thread at which the search continues, and its interpreter.
    pub thread: u64,
    pub thread_owner: u64,
    pub thread_calls: u32,
    /// Whether any interpreter has a state for the thread.
    pub has_thread: u32,
    /// The file with Ruby, after its first frame; 0 is none.
    pub ruby_file: u32,
    /// Whether the thread's execution context was found.
    pub ruby_found: u32,
    /// The runtime of the sampled process, after a look-up.
    pub runtime_process: RuntimeProcess,
    pub runtime_looked_up: u32,
    pub ruby: ruby::Walk,
    /// The start of the stack of the frame that called Ruby's loop.
    pub ruby_loop: u64,
    /// Whether the loop is innermost.
    pub ruby_loop_is_leaf: u32,
    /// The file with PHP, after its first frame; 0 is none.
    pub php_file: u32,
    pub php: php::Walk,
    pub perl: perl::Walk,
    /// The file with Perl, after its first frame; 0 is none.
    pub perl_file: u32,
    /// The file with LuaJIT, after its first frame; 0 is none.
    pub luajit_file: u32,
    pub luajit: luajit::Walk,
    pub luajit_search: luajit::Search,
    /// The registers of the innermost frame in which interpreters keep the instruction, and the frame that
    /// runs it.
    pub loop_registers: [u64; 4],
    /// The process's file with V8, if known; 0 is none.
    pub v8_file: u32,
    /// Whether it was looked up.
    pub v8_looked_up: u32,
    /// Whether generated code was unwound before the file was known.
    pub v8_skipped: u32,
    /// The frame pointer of the frame whose function is searched.
    pub v8_frame: u64,
    /// The process's Java code, after a look-up; empty if it has none.
    pub java_code: AddressRange,
    pub java_looked_up: u32,
    /// The registers of the innermost frame in which HotSpot keeps its state.
    pub java_registers: [u64; 3],
    pub java_place: hotspot::BlobPosition,
    /// The process's code of BEAM, after a look-up; empty if it has none.
    pub beam_code: AddressRange,
    pub beam_looked_up: u32,
    pub beam: beam::Walk,
    /// The process's .NET, after a look-up; empty if it has none.
    pub dotnet: DotNetProcess,
    pub dotnet_looked_up: u32,
    /// The address whose rule was found last, and the rule.
    pub dotnet_address: u64,
    pub dotnet_rule: EncodedRule,
    /// Of the current frame, if it is in .NET.
    pub dotnet_search: dotnet::MethodSearch,
    pub dotnet_epilogue: dotnet::Epilogue,
    pub dotnet_codes: dotnet::Codes,
    /// The executable, if the walk may continue on the stack of a goroutine; 0 otherwise.
    pub may_switch_to: u32,
    /// The start of the stack.
    pub first: Walk,
    pub first_stack: StackHash,
    /// Part of an interpreter object, and a word of another one.
    pub block: [u64; BLOCK_WORDS],
    pub interpreter_word: u64,
    /// The current frame, and its rule.
    pub frame: Frame,
    pub rule: EncodedRule,
    /// The page index entry of the frame.
    pub page: u64,
    /// The mapping found last.
    pub mapping: Mapping,
    /// The address to look up next, and whether it is below or above an anonymous mapping.
    pub lookup_address: u64,
    pub lookup_target: u32,
    /// The code mapping found last.
    pub code: CodeMapping,
    /// An anonymous code mapping, and the neighbour whose file it replaced; no file means none.
    pub anonymous: Mapping,
    pub neighbour: Mapping,
    /// The address space of the process.
    pub mm: u64,
    /// See [`crate::frame_cache::epoch`].
    pub epoch: u64,
    /// See [`Settings`](profcol_ebpf_common::settings::Settings).
    pub address_bits: u64,
    pub recent_code: [CodeMapping; RECENT_CODE],
    pub recent_next: u64,
    pub window: [u64; MAX_WINDOW],
    pub window_at: u64,
    /// Number of bytes in the window.
    pub window_bytes: u64,
    /// The word read last.
    pub word: u64,
    pub announcement: Announcement,
    /// Directly after the announcement. There is room for the longest name at the last possible offset,
    /// and for the arguments after the longest names.
    pub names: [u8; MAX_NAMES_BYTES + MAX_NAME_BYTES + MAX_ARGUMENTS_BYTES],
    pub names_bytes: u64,
}

/// Passes the scratch memory to global functions. Since Linux 5.12 they may take a pointer; before,
/// only numbers, so they look it up.
#[cfg(not(feature = "blocks"))]
mod handle {
    use super::Scratch;

    pub type ScratchHandle = *mut Scratch;

    impl Scratch {
        #[inline(always)]
        pub fn handle(&mut self) -> ScratchHandle {
            self
        }

        /// The verifier assumes that pointer arguments may be null.
        #[inline(always)]
        pub fn from_handle<'a>(handle: ScratchHandle) -> Option<&'a mut Self> {
            // SAFETY: the caller has the only reference, and does not use it during the call.
            unsafe { handle.as_mut() }
        }
    }
}

#[cfg(feature = "blocks")]
mod handle {
    use core::arch::asm;

    use super::Scratch;
    use crate::maps;

    pub type ScratchHandle = u32;

    impl Scratch {
        #[inline(always)]
        pub fn handle(&mut self) -> ScratchHandle {
            // SAFETY: the template is empty. The reference escapes, so the compiler assumes that the
            // function changes the scratch memory.
            unsafe { asm!("", in("r5") self, options(nostack)) };
            0
        }

        #[inline(always)]
        pub fn from_handle<'a>(handle: ScratchHandle) -> Option<&'a mut Self> {
            // The compiler drops unused arguments, which the verifier rejects.
            profcol_ebpf_common::barrier_var_u32(handle);
            maps::scratch()
        }
    }
}

pub use handle::ScratchHandle;
