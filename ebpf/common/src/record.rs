//! The records that the programs send through the ring buffer.

use crate::file::FileId;
use crate::sample_counts::{SampleKey, StackHash};

/// Maximum number of kernel frames; `bpf_get_stack` returns no more.
pub const MAX_KERNEL_FRAMES: usize = 127;
/// The largest `max_frames`.
pub const MAX_USER_FRAMES: usize = 1024;
/// Maximum number of words of their frames: scratch memory, which a per-CPU map limits to 32 KiB, has
/// room for no more. A stack of interpreted frames alone is truncated at 960.
pub const MAX_USER_WORDS: usize = 1920;

/// The first word of each record.
pub mod kind {
    pub const SAMPLE: u32 = 1;
    pub const PROCESS: u32 = 2;
    pub const FILE: u32 = 3;
}

/// One process image: PIDs are reused, and exec replaces the image.
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

/// One thread of a process image.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct ThreadKey {
    pub process: ProcessKey,
    pub thread: u32,
    /// The file of the interpreter that knows the thread.
    pub file: u32,
}

/// Values of the `processes` map: one of these, and [the number of the executable](process_state::executable).
pub mod process_state {
    /// The process was announced to the loader.
    pub const ANNOUNCED: u32 = 1;
    /// The process is not sampled.
    pub const EXCLUDED: u32 = 2;
    /// Its threads may have contexts. The programs derive it; it is not in the map.
    pub const HAS_CONTEXTS: u32 = 4;

    const EXECUTABLE_SHIFT: u32 = 16;

    #[inline(always)]
    pub fn announced(executable: u32) -> u32 {
        ANNOUNCED | executable << EXECUTABLE_SHIFT
    }

    #[inline(always)]
    pub fn executable(state: u32) -> u32 {
        state >> EXECUTABLE_SHIFT
    }
}

/// A sample, followed by its frames of eight bytes: the kernel addresses, then the user
/// [`Frame`](crate::frame::Frame)s, innermost first; those of interpreters are followed by their
/// [`Detail`](crate::interpreter::Detail). A [`Context`](crate::context::Context) with its labels may follow.
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
    /// In words: frames of interpreters have two.
    pub user_words: u32,
    pub thread_name: [u8; 16],
    /// Hash of the frames and the context, set if equal samples are counted.
    pub stack: StackHash,
    /// One of [`count_buffer`](crate::sample_counts::count_buffer).
    pub count_buffer: u32,
    /// 0 without a context.
    pub context_words: u32,
}

impl Sample {
    /// The key under which equal samples are counted.
    #[inline(always)]
    pub fn sample_key(&self) -> SampleKey {
        SampleKey {
            process: self.process,
            thread: self.thread,
            end: self.end,
            stack: self.stack,
        }
    }
}

/// A process at its first sample; it may have exited when this is read. Followed by the path components
/// of its cgroup, in the hierarchy in which the cgroup is deepest.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Process {
    pub kind: u32,
    pub parent: u32,
    pub process: ProcessKey,
    pub user: u32,
    /// The [`file_number`](crate::file::file_number) of the executable.
    pub executable: u32,
    pub name: [u8; 16],
    /// Its PID in its own PID namespace, and the inode of that namespace.
    pub own_pid: u32,
    pub pid_namespace: u32,
    /// 0 if it already left its namespaces.
    pub mount_namespace: u32,
    pub names_bytes: u16,
    /// The arguments follow the names, NUL-terminated, if they are requested.
    pub arguments_bytes: u16,
}

/// A file at the first sample in it, and a mapping to open it by. Followed by its path components in
/// the mount namespace.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct File {
    pub kind: u32,
    pub number: u32,
    pub id: FileId,
    pub pid: u32,
    pub parent: u32,
    /// Both 0 if it was found as the process's executable and not by a mapping.
    pub start: u64,
    pub end: u64,
    /// Nanoseconds since boot.
    pub time: u64,
    pub mount_namespace: u32,
    pub names_bytes: u32,
}

/// Path components up to the root, innermost first, NUL-terminated. The root's name is empty, so
/// reversed and joined by slashes they are an absolute path; a truncated one is relative.
pub const MAX_NAMES_BYTES: usize = 2048;
/// Maximum length of a component, with its NUL.
pub const MAX_NAME_BYTES: usize = 256;
/// Longer arguments are truncated.
pub const MAX_ARGUMENTS_BYTES: usize = 4096;

const _: () = assert!(size_of::<Process>() == size_of::<File>());
