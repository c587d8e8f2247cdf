//! What is known of the code while its functions are followed.

use foldhash::fast::RandomState;
use hashbrown::HashSet;
use iced_x86::InstructionInfoFactory;

use super::decoded::DecodedBytes;
use crate::gaps::Gaps;

/// Compilers align functions to it.
pub const ALIGNMENT: u64 = 16;

pub struct Code<'a> {
    pub gaps: Gaps,
    pub decoded: DecodedBytes,
    pub memory: &'a dyn Fn(u64, u64) -> Option<Vec<u8>>,
    /// Functions that return, and such that do not.
    pub return_: HashSet<u64, RandomState>,
    pub never_return: HashSet<u64, RandomState>,
    /// Instructions that may still be read.
    pub left: usize,
    pub info: InstructionInfoFactory,
}

impl Code<'_> {
    /// Whether it was seen to return.
    pub fn returns(&self, function: u64) -> bool {
        self.return_.contains(&function)
    }

    pub fn never_returns(&self, function: u64) -> bool {
        self.never_return.contains(&function)
    }

    pub fn memory(&self, address: u64, size: u64) -> Option<Vec<u8>> {
        (self.memory)(address, size)
    }

    /// Bytes that no instruction was found in, and that are no padding.
    pub fn unread(&self) -> usize {
        self.decoded.unread(&self.gaps)
    }
}
