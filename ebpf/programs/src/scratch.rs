//! What a program works with: a program's own stack has 512 bytes, so this is in a map, one per CPU.

use profcol_ebpf_common::frame::Frame;
use profcol_ebpf_common::mappings::Mapping;
use profcol_ebpf_common::record::{
    File, MAX_ARGUMENTS_BYTES, MAX_KERNEL_FRAMES, MAX_NAME_BYTES, MAX_NAMES_BYTES, MAX_USER_FRAMES,
    Process, Sample,
};
use profcol_ebpf_common::rule::Encoded;
use profcol_ebpf_common::walk::{Code, Walk};

use crate::kernel::Node;

/// A power of two that holds all frames, so that an index is bounded by a mask.
pub const FRAME_PLACES: usize = 2048;
const _: () = assert!(MAX_KERNEL_FRAMES + MAX_USER_FRAMES <= FRAME_PLACES);

/// Stretches of code that this stack went through already; most stacks go to and fro between few.
pub const KNOWN_CODES: usize = 8;

/// Words of the stack that are read at once, at first and at most.
pub const SMALL_WINDOW: usize = 64;
pub const WINDOW: usize = 512;

/// What is told of a process or a file.
#[repr(C)]
pub union Told {
    pub process: Process,
    pub file: File,
}

#[repr(C)]
pub struct Scratch {
    pub sample: Sample,
    /// Right behind the sample: this is what is sent.
    pub frames: [u64; FRAME_PLACES],
    pub node: Node,
    pub walk: Walk,
    /// The frame that the walk stands in, and the way on from it.
    pub frame: Frame,
    pub rule: Encoded,
    /// What the table has for the page of the frame.
    pub page: u64,
    /// The mapping that was found last.
    pub mapping: Mapping,
    /// The code that was found last.
    pub code: Code,
    /// Code without a file, and the mapping whose file it is of, or none: see
    /// [`crate::unwind::look_around`].
    pub gap: Mapping,
    pub beside: Mapping,
    /// The address space of the process.
    pub mm: u64,
    /// See [`crate::remembered::epoch`].
    pub epoch: u64,
    pub known: [Code; KNOWN_CODES],
    pub known_next: u64,
    pub window: [u64; WINDOW],
    pub window_at: u64,
    /// Bytes that are in the window.
    pub window_bytes: u64,
    /// The word that was read last.
    pub word: u64,
    pub told: Told,
    /// Right behind what is told. Behind the last place at which a name may
    /// begin there is room for the longest one, and behind the longest names for the arguments.
    pub names: [u8; MAX_NAMES_BYTES + MAX_NAME_BYTES + MAX_ARGUMENTS_BYTES],
    pub names_bytes: u64,
}

/// How a function that the verifier reads on its own gets at the scratch. From Linux 5.12 on it may
/// take a pointer; before, only numbers, so it finds it by itself.
#[cfg(not(feature = "blocks"))]
mod lent {
    use super::Scratch;

    pub type Lent = *mut Scratch;

    impl Scratch {
        #[inline(always)]
        pub fn lend(&mut self) -> Lent {
            self
        }

        /// Such a function takes its pointers as unknown, so this may be none.
        #[inline(always)]
        pub fn borrow<'a>(lent: Lent) -> Option<&'a mut Self> {
            // SAFETY: the caller has the only reference, and lends it for the time of the call.
            unsafe { lent.as_mut() }
        }
    }
}

#[cfg(feature = "blocks")]
mod lent {
    use core::arch::asm;

    use super::Scratch;
    use crate::maps;

    pub type Lent = u32;

    impl Scratch {
        #[inline(always)]
        pub fn lend(&mut self) -> Lent {
            // SAFETY: the template is empty. It takes the reference out of the compiler's sight,
            // which could otherwise believe that the function leaves the scratch alone.
            unsafe { asm!("", in("r5") self, options(nostack)) };
            0
        }

        #[inline(always)]
        pub fn borrow<'a>(lent: Lent) -> Option<&'a mut Self> {
            // What nobody looks at is not passed, and the verifier misses it.
            profcol_ebpf_common::hide_u32(lent);
            maps::scratch()
        }
    }
}

pub use lent::Lent;
