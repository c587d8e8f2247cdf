//! What the programs send through the ring buffer.

use crate::file::FileId;

/// Frames of the kernel's stack, as many as it gives.
pub const MAX_KERNEL_FRAMES: usize = 127;
/// The largest `max_frames`.
pub const MAX_USER_FRAMES: usize = 1024;

/// The first word of each record.
pub mod kind {
    pub const SAMPLE: u32 = 1;
    pub const PROCESS: u32 = 2;
    pub const FILE: u32 = 3;
}

/// One image of one process: a process id may be used again, and exec makes another image of it.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct ProcessKey {
    pub pid: u32,
    /// Counts the execs of the thread group.
    pub exec: u32,
    /// Nanoseconds since boot.
    pub started: u64,
}

/// What the map of processes says of one.
pub mod known {
    /// The loader was told of it.
    pub const ANNOUNCED: u32 = 1;
    /// The loader does not want its samples.
    pub const EXCLUDED: u32 = 2;
}

/// A sample. Behind it stand its frames of eight bytes: the kernel's addresses, then the user's
/// [`Frame`](crate::frame::Frame)s, innermost first.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Sample {
    pub kind: u32,
    pub cpu: u32,
    /// Nanoseconds since boot.
    pub time: u64,
    pub process: ProcessKey,
    pub thread: u32,
    /// An [`EndReason`](crate::reason::EndReason).
    pub end: u32,
    pub kernel_frames: u32,
    pub user_frames: u32,
    pub thread_name: [u8; 16],
}

/// A process at its first sample; it may be gone by the time that this is read.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Process {
    pub kind: u32,
    pub parent: u32,
    pub process: ProcessKey,
    pub user: u32,
    /// The number of the executable's file; 0 where it could not be told.
    pub executable: u32,
    pub name: [u8; 16],
}

/// A file at the first sample that meets it, and a mapping through which it can be opened.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct File {
    pub kind: u32,
    pub number: u32,
    pub id: FileId,
    pub pid: u32,
    pub unused: u32,
    pub start: u64,
    pub end: u64,
}
