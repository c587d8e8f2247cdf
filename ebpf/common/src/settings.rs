//! Settings of the programs, written by the loader.

use crate::layout::Layout;

#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Settings {
    pub layout: Layout,
    /// Where the loader mapped the table memory, and the offset of the rules in it.
    pub arena: u64,
    pub rules_offset: u64,
    /// Maximum number of user frames.
    pub max_frames: u32,
    /// Whether to announce processes with their arguments; 0 is no.
    pub with_arguments: u32,
    /// The PID namespace to sample, by its file in /proc; 0 samples all.
    pub namespace_inode: u64,
    pub namespace_device: u64,
    /// Mask of valid user addresses.
    pub address_bits: u64,
    /// `PAGE_SHIFT` of the kernel.
    pub page_shift: u64,
    /// One of [`count_buffer`](crate::sample_counts::count_buffer): where equal samples are counted.
    pub count_buffer: u32,
    /// One of [`mappings`]: where to look up mappings.
    pub mappings: u32,
    /// A set of [`part`](crate::context::part)s: what to read of the contexts of threads.
    pub context_parts: u32,
    pub unused: u32,
    /// Offset of the user's `pt_regs` in the kernel stack; 0 if unknown.
    pub user_regs_offset: u64,
}

pub mod mappings {
    /// The kernel's VMA tree.
    pub const TREE: u32 = 0;
    /// The mappings published by the loader.
    pub const PUBLISHED: u32 = 1;
}

/// Entries of the frame cache per CPU, as a power of two.
pub const FRAME_CACHE_SHIFT: u32 = 11;

/// Lifetime of frame cache entries, in nanoseconds as a power of two: nine seconds. File numbers and
/// table memory are not reused for longer than that.
pub const FRAME_CACHE_TTL_SHIFT: u32 = 33;
