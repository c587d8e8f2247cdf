//! What the loader tells the programs.

use crate::layout::Layout;

#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Settings {
    pub layout: Layout,
    /// Where the loader mapped the table memory, and how far in it the rules begin.
    pub arena: u64,
    pub rules_at: u64,
    /// Frames of a user stack at most.
    pub max_frames: u32,
    /// Whether processes are told with their arguments; 0 is no.
    pub with_arguments: u32,
    /// The only PID namespace that is sampled, by its file in /proc; zero is every one.
    pub namespace_inode: u64,
    pub namespace_device: u64,
    /// The bits that a user's address may have.
    pub address_bits: u64,
    /// How large the kernel's pages are, as a power of two.
    pub page_shift: u64,
    /// One of [`turn`](crate::repeat::turn): how equal samples are counted.
    pub turn: u32,
    /// One of [`mappings`]: where the mappings of a process are found.
    pub mappings: u32,
    /// How far above the lowest address of a thread's stack in the kernel its user's registers are;
    /// 0 where that is not known.
    pub registers_at: u64,
}

pub mod mappings {
    /// In the kernel's own tree.
    pub const TREE: u32 = 0;
    /// Among those that the loader published.
    pub const PUBLISHED: u32 = 1;
}

/// Places for what samples remember on each CPU, as a power of two.
pub const REMEMBERED_SHIFT: u32 = 11;

/// How long samples remember something at most, in nanoseconds as a power of two: nine seconds. The
/// number of a file, and the memory of a table, rest for longer before they are used again.
pub const REMEMBERED_FOR_SHIFT: u32 = 33;
