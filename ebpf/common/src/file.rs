//! Executable files as the kernel sees them.

/// Identifies a file on the host, independent of path and mount.
///
/// On overlayfs it is the file of the lower layer, so containers of one image share their tables;
/// `stat` reports other numbers there and is never compared with it.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct FileId {
    pub inode: u64,
    pub device: u32,
    /// Changes when the inode is reused or its content is overwritten.
    pub version: u32,
}

impl FileId {
    /// `generation` distinguishes uses of an inode, `written` is its mtime.
    #[inline(always)]
    pub fn new(inode: u64, device: u32, generation: u32, written: u64) -> Self {
        /// Mixes the differing bits into the upper half.
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        Self {
            inode,
            device,
            version: generation ^ (written.wrapping_mul(FACTOR) >> 32) as u32,
        }
    }
}

/// The value of the `files` map.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FileEntry {
    /// The file's number in frames.
    pub number: u32,
    pub table: TableRef,
    /// When a sample last used the file, in nanoseconds since boot; the least recently used is evicted first.
    pub used: u64,
}

/// Location of a file's unwind table.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TableRef {
    /// The first word of the page index.
    pub pages: u32,
    /// The first page of the file in the index.
    pub first_page: u32,
    pub page_count: u32,
}

impl TableRef {
    /// The file was not processed yet.
    pub const PENDING: Self = Self {
        pages: 0,
        first_page: 0,
        page_count: 0,
    };
    /// The file has no table: it is not an executable, it is damaged, or memory is full.
    pub const REFUSED: Self = Self {
        pages: 0,
        first_page: 1,
        page_count: 0,
    };
    /// The file could not be opened: the next sample in it announces it again, since that process may
    /// still be alive.
    pub const UNOPENED: Self = Self {
        pages: 0,
        first_page: 2,
        page_count: 0,
    };
    /// Memory behind a file descriptor with JIT-compiled code: handled like anonymous memory.
    pub const GENERATED: Self = Self {
        pages: 0,
        first_page: 3,
        page_count: 0,
    };

    pub fn is_generated_code(&self) -> bool {
        self.page_count == 0 && self.first_page == Self::GENERATED.first_page
    }
}

/// Reserved file numbers. Those of files start at [`file_number::FIRST_FILE`].
pub mod file_number {
    /// The address is not mapped.
    pub const UNMAPPED: u32 = 0;
    /// Executable memory without a file, or with a memory-backed one: JIT-compiled code.
    pub const ANONYMOUS: u32 = 1;
    /// The vDSO.
    pub const VDSO: u32 = 2;
    /// The map of files is full.
    pub const MAP_FULL: u32 = 3;
    /// The process is inside execve: it is announced again.
    pub const IN_EXEC: u32 = 4;
    /// Frames of interpreters have the numbers from here on, see [`crate::interpreter::runtime`].
    pub const FIRST_RUNTIME: u32 = 8;
    pub const FIRST_FILE: u32 = 32;
    /// Frames hold the number in sixteen bits.
    pub const LIMIT: u32 = 1 << 16;
}

/// The vDSO has no file; its table is stored under this ID.
pub const VDSO: FileId = FileId {
    inode: 0,
    device: 0,
    version: 0,
};
