//! A user frame in eight bytes: file number and offset in the file.

use crate::file::file_number;

const NUMBER_SHIFT: u32 = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Frame(pub u64);

impl Frame {
    /// `offset` is the offset in the file, or the address if there is no file.
    #[inline(always)]
    pub fn new(file: u32, offset: u64) -> Self {
        Self(u64::from(file) << NUMBER_SHIFT | offset & ((1 << NUMBER_SHIFT) - 1))
    }

    pub fn file(self) -> u32 {
        (self.0 >> NUMBER_SHIFT) as u32
    }

    pub fn offset(self) -> u64 {
        self.0 & ((1 << NUMBER_SHIFT) - 1)
    }

    /// Whether the frame is in a numbered file.
    pub fn has_file(self) -> bool {
        self.file() >= file_number::FIRST_FILE
    }
}
