//! The result of the `identify` program: the mapping at an address of the loader.

use crate::file::FileId;

#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Identified {
    pub start: u64,
    pub end: u64,
    pub offset_delta: u64,
    pub id: FileId,
    /// One of [`status`].
    pub status: u64,
}

pub mod status {
    /// The program did not run.
    pub const NOT_RUN: u64 = 0;
    pub const MAPPING: u64 = 1;
    /// No mapping with code.
    pub const NO_MAPPING: u64 = 2;
    pub const CHANGING: u64 = 3;
    pub const UNREADABLE: u64 = 4;
    /// The registers may be at this offset; `start` is the system call number found there.
    pub const REGISTERS: u64 = 5;
}
