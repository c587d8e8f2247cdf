//! Finds a runtime's variable of the current thread.

use super::BlockMemory;

/// Where a thread has the variable.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ThreadVariable {
    /// One of [`place`].
    pub place: u32,
    /// Added to the address that [`Self::place`] leads to; signed.
    pub offset: u32,
    /// log2 of the entry size in a thread's table of TLS blocks.
    pub table_shift: u32,
}

/// How to find a variable.
pub mod place {
    /// The state is the module and the offset of a thread-local variable.
    pub const MODULE: u32 = 0;
    /// The state is the offset of a thread-local variable from the thread pointer.
    pub const OFFSET: u32 = 1;
    /// The code contains the variable's distance from the thread pointer.
    pub const FIXED: u32 = 2;
    /// The state is a `pthread` key, whose value is the address.
    pub const KEY: u32 = 3;
}

/// Offset from the thread pointer to the DTV, in glibc and musl.
const THREAD_BLOCKS: u64 = 8;
/// Offset of glibc's values of the first keys.
const THREAD_VALUES: u64 = 0x318;
const VALUE_SHIFT: u32 = 4;
const MAX_KEY: u64 = 32;

impl ThreadVariable {
    /// The variable's address; `state` is that of the runtime's state.
    #[inline(always)]
    pub fn address(
        &self,
        state: u64,
        thread_pointer: u64,
        memory: &mut impl BlockMemory,
    ) -> Option<u64> {
        let offset = i64::from(self.offset as i32) as u64;
        let mut at = thread_pointer;
        if self.place == place::MODULE {
            let module = memory.word(state)?;
            let variable = memory.word(state.wrapping_add(8))?;
            let blocks = memory.word(thread_pointer.wrapping_add(THREAD_BLOCKS))?;
            let entry = blocks.wrapping_add(module << (self.table_shift & 7));
            at = memory.word(entry)?.wrapping_add(variable);
        } else if self.place == place::OFFSET {
            at = at.wrapping_add(memory.word(state)?);
        } else if self.place == place::KEY {
            let key = memory.word(state)? & u64::from(u32::MAX);
            if key >= MAX_KEY {
                return None;
            }
            let value = thread_pointer.wrapping_add(THREAD_VALUES + (key << VALUE_SHIFT));
            at = memory.word(value)?;
        }
        Some(at.wrapping_add(offset))
    }
}
