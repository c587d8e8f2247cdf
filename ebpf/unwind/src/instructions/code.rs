//! The state of the code analysis.

use foldhash::fast::RandomState;
use hashbrown::HashSet;
use iced_x86::InstructionInfoFactory;

use super::decoded::DecodedBytes;
use crate::gaps::Gaps;

/// The alignment of functions.
pub const ALIGNMENT: u64 = 16;

pub struct Code<'a> {
    pub gaps: Gaps,
    pub decoded: DecodedBytes,
    pub memory: &'a dyn Fn(u64, u64) -> Option<Vec<u8>>,
    /// Functions that return, and functions that do not.
    pub return_: HashSet<u64, RandomState>,
    pub never_return: HashSet<u64, RandomState>,
    /// The number of instructions that may still be decoded.
    pub left: usize,
    pub info: InstructionInfoFactory,
}

impl Code<'_> {
    /// Whether the function is known to return.
    pub fn returns(&self, function: u64) -> bool {
        self.return_.contains(&function)
    }

    pub fn never_returns(&self, function: u64) -> bool {
        self.never_return.contains(&function)
    }

    pub fn memory(&self, address: u64, size: u64) -> Option<Vec<u8>> {
        (self.memory)(address, size)
    }

    /// Bytes that are neither decoded nor padding.
    pub fn unread(&self) -> usize {
        self.decoded.unread(&self.gaps)
    }
}
