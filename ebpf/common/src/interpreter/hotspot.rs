//! HotSpot: the frames of Java code in its code cache.
//!
//! Compiled code has no frame pointer and no unwind information, so each frame is unwound by the
//! CodeBlob that contains its address: the code cache has up to four heaps, whose segment maps lead to
//! the start of a blob.
//!
//! ```text
//! pc ─► heap ─► segment map ─► CodeBlob ─► size of the frame ─► the caller's registers
//! ```
//!
//! Only x86-64. For each frame the caller checks [`CodeCache::holds`]: if true it uses [`Walk::step`],
//! else it unwinds natively.

mod blob;
mod interpreted;
mod leaf;
mod step;
mod stub;

pub use self::blob::Blob;
pub use self::leaf::Leaf;
pub use self::step::{BlobPosition, CodeFrame, EDGE, Walk};

/// Offsets of members, in bytes, for the version of the file.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Layout {
    /// Size of the `HeapBlock` before each blob.
    pub heap_block_bytes: u16,
    pub blob_name: u16,
    pub blob_code_begin: u16,
    pub blob_code_end: u16,
    /// In words, including the return address.
    pub blob_frame_size: u16,
    pub blob_frame_complete: u16,
    /// Shift that leaves the bits of [`blob_frame_complete`](Self::blob_frame_complete) of 32.
    pub frame_complete_shift: u16,
    /// One of [`code_address`].
    pub code_address: u16,
    pub nmethod_compile_id: u16,
    pub nmethod_orig_pc_offset: u16,
    pub nmethod_deopt_handler: u16,
    /// The handler for method handle calls; 0 if there is none.
    pub nmethod_deopt_mh_handler: u16,
    pub method_const_method: u16,
    pub const_method_code_size: u16,
    /// The bytecodes follow it.
    pub const_method_bytes: u16,
    /// From the frame pointer of an interpreted frame down to its bytecode pointer.
    pub frame_bcp: u16,
}

/// How a blob stores the addresses of its code.
pub mod code_address {
    pub const POINTER: u16 = 0;
    /// 32 bits, relative to the blob.
    pub const OFFSET: u16 = 1;
}

/// `CodeCache` has three heaps, or one; some builds have a fourth.
pub const MAX_HEAPS: usize = 4;

/// The code cache of a process; it does not change after startup.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CodeCache {
    /// All heaps, which are one reservation.
    pub range: AddressRange,
    pub heaps: [CodeHeap; MAX_HEAPS],
    /// The template interpreter.
    pub interpreter: AddressRange,
    /// The stubs to which the bottom frame of a virtual thread returns.
    pub continuation: AddressRange,
}

/// The programs' data on a process that runs HotSpot.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct JavaProcess {
    pub layout: Layout,
    pub cache: CodeCache,
}

/// A heap of the code cache.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CodeHeap {
    pub range: AddressRange,
    /// The segment map: one byte per segment.
    pub segment_map: u64,
    /// log2 of the segment size.
    pub segment_shift: u32,
    pub unused: u32,
}

#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct AddressRange {
    pub start: u64,
    pub end: u64,
}

/// Why a frame could not be unwound; the position of a frame without a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum HotspotError {
    /// A member of the runtime could not be read.
    Memory = 1,
    /// No blob is at the address, or its heap's segment map does not lead to it.
    NoBlob = 3,
    /// The stack could not be read.
    Stack = 4,
    /// The caller's stack pointer would not be above this frame's.
    NotAdvancing = 5,
    /// The frame has an unknown form.
    Frame = 6,
}

/// The bytecode index of a frame without one: of a native method, or before it stored its first bytecode
/// pointer.
pub const NO_BCI: u32 = 0xffff;

impl AddressRange {
    #[inline(always)]
    pub fn holds(&self, address: u64) -> bool {
        address >= self.start && address < self.end
    }
}

impl CodeCache {
    /// Whether the address is in code that [`Walk::step`] unwinds.
    #[inline(always)]
    pub fn holds(&self, address: u64) -> bool {
        self.range.holds(address)
    }

    #[inline(always)]
    fn heap(&self, address: u64) -> Option<&CodeHeap> {
        let [first, second, third, fourth] = &self.heaps;
        if first.range.holds(address) {
            Some(first)
        } else if second.range.holds(address) {
            Some(second)
        } else if third.range.holds(address) {
            Some(third)
        } else if fourth.range.holds(address) {
            Some(fourth)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests;
