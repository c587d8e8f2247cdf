//! Why unwinding stopped. Every sample carries its reason.

macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $name:ident = $code:literal, $text:literal;)*) => {
        /// Why unwinding a user stack stopped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum EndReason {
            $($(#[doc = $doc])* $name = $code,)*
        }

        impl EndReason {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The value of the attribute `profcol.stack.end_reason` and of the metrics' label.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// None for a number that this version's programs do not write.
            pub fn from_code(code: u32) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

reasons! {
    /// The thread's first frame was reached.
    Complete = 1, "complete";
    /// A thread of the kernel: there is no user stack.
    KernelThread = 2, "kernel_thread";
    /// The stack is deeper than `max_frames`.
    Truncated = 3, "truncated";
    /// The chain of frame pointers ended, in code without unwind information.
    FramePointerEnd = 4, "frame_pointer_end";
    /// No unwind information and no plausible frame pointer.
    NoUnwindInfo = 5, "no_unwind_info";
    /// The code's unwind information is not supported.
    Unsupported = 6, "unsupported";
    /// The file's table is not built yet.
    TablePending = 7, "table_pending";
    /// The file has no table.
    TableRefused = 8, "table_refused";
    /// A return address leads to no executable mapping.
    NoMapping = 9, "no_mapping";
    /// A page of the stack is not in memory.
    StackUnreadable = 10, "stack_unreadable";
    /// The caller's stack pointer is not above this frame's.
    NotAdvancing = 11, "not_advancing";
    /// The mappings were changed by another thread while they were read.
    MappingsChanging = 12, "mappings_changing";
    /// The process is inside execve: its old image is gone.
    Exec = 13, "exec";
    /// The process is exiting: its image is gone.
    Exit = 14, "exit";
    /// The user's registers could not be found.
    NoRegisters = 15, "no_registers";
    /// A 32-bit program.
    Bits32 = 16, "32_bit";
    /// The map of files is full.
    TooManyFiles = 17, "too_many_files";
    /// The process's mappings are not published yet, and the kernel's VMA tree is unreadable.
    MappingsPending = 18, "mappings_pending";
}

/// Counters reserved for end reasons.
pub const REASONS: usize = 32;

impl EndReason {
    /// Whether the user stack is complete.
    pub fn is_whole(self) -> bool {
        matches!(self, Self::Complete | Self::KernelThread)
    }
}
