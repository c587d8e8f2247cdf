//! Executable files as the kernel sees them.

/// What tells one file of the host from every other one, whatever path or mount it is reached by.
///
/// On an overlay it is the file of the layer below, so containers of one image share their tables;
/// `stat` shows other numbers there and is never compared with it.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct FileId {
    pub inode: u64,
    pub device: u32,
    /// Another one when the inode is used again, and when its content is written over.
    pub version: u32,
}

impl FileId {
    /// `generation` tells uses of an inode apart, `written` is when its content changed last.
    #[inline(always)]
    pub fn new(inode: u64, device: u32, generation: u32, written: u64) -> Self {
        /// Spreads what differs over the upper half.
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        Self {
            inode,
            device,
            version: generation ^ (written.wrapping_mul(FACTOR) >> 32) as u32,
        }
    }
}

/// What the programs know of a file: the value of the map of files.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FileEntry {
    /// Stands for the file in frames.
    pub number: u32,
    pub table: TableRef,
    /// When a sample last met the file, in nanoseconds since boot, so that what nobody uses goes first.
    pub used: u64,
}

/// Where a file's table stands.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TableRef {
    /// The word at which the page index begins.
    pub pages: u32,
    /// The file's page that the index begins with.
    pub first_page: u32,
    pub page_count: u32,
}

impl TableRef {
    /// Nobody has looked at the file yet.
    pub const PENDING: Self = Self {
        pages: 0,
        first_page: 0,
        page_count: 0,
    };
    /// The file was looked at and has no table: it is no executable, it is damaged, or memory is full.
    pub const REFUSED: Self = Self {
        pages: 0,
        first_page: 1,
        page_count: 0,
    };
    /// The file could not be opened: the next sample that meets it announces it again, since its
    /// process may still live.
    pub const UNOPENED: Self = Self {
        pages: 0,
        first_page: 2,
        page_count: 0,
    };
    /// Memory in the shape of a file, with code that a runtime wrote there: what is said of anonymous
    /// memory holds for it too.
    pub const GENERATED: Self = Self {
        pages: 0,
        first_page: 3,
        page_count: 0,
    };

    pub fn is_generated(&self) -> bool {
        self.page_count == 0 && self.first_page == Self::GENERATED.first_page
    }
}

/// Numbers of files that are none. Those of files begin with [`number::FIRST_FILE`].
pub mod number {
    /// An address that lies in no mapping.
    pub const NOWHERE: u32 = 0;
    /// Executable memory without a file, or with one that is memory itself: generated code.
    pub const ANONYMOUS: u32 = 1;
    /// The kernel's own page of code in each process.
    pub const VDSO: u32 = 2;
    /// A file that found no place in the full map of files.
    pub const UNNUMBERED: u32 = 3;
    /// The executable of a process between two images: it will be told again.
    pub const REPLACED: u32 = 4;
    pub const FIRST_FILE: u32 = 16;
    /// Frames have sixteen bits for the number.
    pub const LIMIT: u32 = 1 << 16;
}

/// The vDSO has no file; its table stands under this identity.
pub const VDSO: FileId = FileId {
    inode: 0,
    device: 0,
    version: 0,
};
