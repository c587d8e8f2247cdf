//! Copies of a function's instructions: each thread of a free-threaded interpreter specializes its own, since 3.14.

use super::layout::{CodeLayout, CopyMembers};
use crate::FunctionError;
use crate::memory::Memory;

/// More than threads are found.
const MAX_COPIES: u64 = 4096;

/// The known copies of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copies {
    /// Positions of their first instructions, sorted: their distance from those in the code object, modulo 2³².
    starts: Vec<u32>,
    /// Instructions of each.
    instructions: u32,
}

impl Copies {
    /// Reads those of a code object.
    pub fn read(
        layout: &CodeLayout,
        members: &CopyMembers,
        memory: &impl Memory,
        address: u64,
    ) -> Result<Self, FunctionError> {
        // Code objects begin like `bytes`, with the number of instructions as their size.
        let instructions = memory.word(address.wrapping_add(layout.bytes_size.into()))?;
        let array = memory.word(address.wrapping_add(members.array.into()))?;
        let count = memory.word(array)?.min(MAX_COPIES) as usize;
        let pointers = memory.bytes(array.wrapping_add(8), count * 8)?;
        let first = address.wrapping_add(members.instructions.into());
        let (pointers, _) = pointers.as_chunks();
        let pointers = pointers.iter().map(|bytes| u64::from_le_bytes(*bytes));
        // Threads that have not run the function have none.
        let pointers = pointers.filter(|&pointer| pointer != 0);
        let mut starts: Vec<u32> = pointers
            .map(|pointer| (pointer.wrapping_sub(first) as i64 >> 1) as u32)
            .collect();
        starts.sort_unstable();
        starts.dedup();
        starts.shrink_to_fit();
        Ok(Self {
            starts,
            instructions: instructions.try_into().unwrap_or(u32::MAX),
        })
    }

    /// The index of the instruction at a position; none if it is in no known copy.
    pub fn index(&self, position: u32) -> Option<u32> {
        let after = self.starts.partition_point(|&start| start <= position);
        // The last one may extend beyond the largest position.
        let start = match after.checked_sub(1) {
            Some(at) => self.starts.get(at),
            None => self.starts.last(),
        };
        let index = position.wrapping_sub(*start?);
        (index < self.instructions).then_some(index)
    }

    pub fn bytes(&self) -> usize {
        size_of_val(self.starts.as_slice())
    }
}
