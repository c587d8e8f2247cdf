//! What the programs send through the ring buffer.

use crate::file::FileId;
use crate::repeat::{Repeat, StackHash};

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
    /// Stands for the frames, where equal samples are counted.
    pub stack: StackHash,
    /// One of [`turn`](crate::repeat::turn).
    pub turn: u32,
    pub unused: u32,
}

impl Sample {
    /// What it has in common with samples that are equal.
    #[inline(always)]
    pub fn repeat(&self) -> Repeat {
        Repeat {
            process: self.process,
            thread: self.thread,
            end: self.end,
            stack: self.stack,
        }
    }
}

/// A process at its first sample; it may be gone by the time that this is read. Behind it stand the
/// names on the way to its cgroup: in the unified hierarchy, or where it is at the root of that, in
/// that of the first controller where it is not.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Process {
    pub kind: u32,
    pub parent: u32,
    pub process: ProcessKey,
    pub user: u32,
    /// The number of the executable's file, or why it has none.
    pub executable: u32,
    pub name: [u8; 16],
    /// Its number in its own namespace, and which one that is.
    pub own_pid: u32,
    pub pid_namespace: u32,
    /// 0 where it has none any more.
    pub mount_namespace: u32,
    pub names_bytes: u16,
    /// Behind the names stand its arguments, each ended by a zero byte, where they are asked for.
    pub arguments_bytes: u16,
}

/// A file at the first sample that meets it, and a mapping through which it can be opened. Behind it
/// stand the names on its path in the mount namespace.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct File {
    pub kind: u32,
    pub number: u32,
    pub id: FileId,
    pub pid: u32,
    pub parent: u32,
    /// Both 0 where it was met as the process's executable and not by a mapping.
    pub start: u64,
    pub end: u64,
    /// Nanoseconds since boot.
    pub time: u64,
    pub mount_namespace: u32,
    pub names_bytes: u32,
}

/// Names on the way up to a root, innermost first, each ended by a zero byte. The root's own name is
/// empty, so joined by slashes in reverse they are an absolute path; where the way is longer than can
/// be told they are a relative one.
pub const MAX_NAMES_BYTES: usize = 2048;
/// Of one name, with its end.
pub const MAX_NAME_BYTES: usize = 256;
/// Arguments that are longer are cut off.
pub const MAX_ARGUMENTS_BYTES: usize = 4096;

const _: () = assert!(size_of::<Process>() == size_of::<File>());
