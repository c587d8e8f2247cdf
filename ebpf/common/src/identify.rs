//! The answer to the question which file is behind an address of the loader's own.

use crate::file::FileId;

#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Answer {
    pub start: u64,
    pub end: u64,
    pub to_offset: u64,
    pub id: FileId,
    /// One of [`found`].
    pub found: u64,
}

pub mod found {
    /// The question was not asked yet.
    pub const NO_ANSWER: u64 = 0;
    pub const MAPPING: u64 = 1;
    /// No mapping with code.
    pub const NOTHING: u64 = 2;
    pub const CHANGING: u64 = 3;
    pub const UNREADABLE: u64 = 4;
    /// They may be there; `start` is the system call that the thread is in, if they are.
    pub const REGISTERS: u64 = 5;
}
