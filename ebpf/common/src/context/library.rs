//! Thread-local variables of the libraries of a process.
//!
//! The dynamic linker gives a library that is loaded at start a place at a fixed distance from the thread pointer. Libraries that
//! are opened later have a block per thread, allocated at its first use, and a number, by which a table of the thread
//! (the DTV) leads to that block:
//!
//! ```text
//! thread pointer ─► table ─► block of the module ─► variable
//! ```

use super::{ContextMemory, Loss};

/// Maximum number of variables of a process.
pub const MAX_VARIABLES: usize = 4;

/// Where the libraries of a process keep the contexts of its threads.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessContexts {
    pub table: BlockTable,
    /// Those behind the last one have no [`kind`].
    pub variables: [LibraryVariable; MAX_VARIABLES],
}

/// The layout of a thread's table of TLS blocks, in the C library of the process.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BlockTable {
    /// Offset of the pointer to it from the thread pointer.
    pub pointer: u64,
    /// Offset of the number of the last module for which it has room.
    pub last: u64,
    /// log2 of the size of an entry.
    pub shift: u64,
}

/// A thread-local pointer.
#[cfg_attr(feature = "host", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LibraryVariable {
    /// One of [`kind`].
    pub kind: u32,
    /// The module in whose block it is; 0 if it has a fixed distance from the thread pointer.
    pub module: u32,
    /// From the start of the block, or from the thread pointer.
    pub offset: u64,
    /// Address of a word that the dynamic linker wrote into the library, and the word. They differ once the library is closed, and
    /// another one may have its place among the modules.
    pub witness: u64,
    pub witnessed: u64,
    /// The least generation of a table that knows the module: glibc's begin with it. In older ones another module may have its place. 0
    /// if unknown.
    pub generation: u64,
}

/// What a variable points to.
pub mod kind {
    pub const NONE: u32 = 0;
    /// See [`otel`](crate::context::otel).
    pub const OTEL: u32 = 1;
    /// See [`custom_labels`](crate::context::custom_labels).
    pub const CUSTOM_LABELS: u32 = 2;
}

impl BlockTable {
    /// The block of a module, if the thread has one.
    #[inline(always)]
    fn block(
        &self,
        variable: &LibraryVariable,
        thread_pointer: u64,
        memory: &mut impl ContextMemory,
    ) -> Result<Option<u64>, Loss> {
        let table = read(thread_pointer.wrapping_add(self.pointer), memory)?;
        let module = u64::from(variable.module);
        if read(table.wrapping_add(self.last), memory)? < module
            || read(table, memory)? < variable.generation
        {
            return Ok(None);
        }
        let block = read(table.wrapping_add(module << (self.shift & 7)), memory)?;
        // It has none before the first use.
        Ok((block != 0 && block != u64::MAX).then_some(block))
    }
}

impl LibraryVariable {
    /// The value in a thread, if it is set.
    #[inline(always)]
    pub fn value(
        &self,
        table: &BlockTable,
        thread_pointer: u64,
        memory: &mut impl ContextMemory,
    ) -> Result<Option<u64>, Loss> {
        // The library is closed, or another one is there.
        if memory.word(self.witness) != Some(self.witnessed) {
            return Ok(None);
        }
        let mut base = thread_pointer;
        if self.module != 0 {
            match table.block(self, thread_pointer, memory)? {
                Some(block) => base = block,
                None => return Ok(None),
            }
        }
        let value = read(base.wrapping_add(self.offset), memory)?;
        Ok((value != 0).then_some(value))
    }
}

#[inline(always)]
fn read(address: u64, memory: &mut impl ContextMemory) -> Result<u64, Loss> {
    memory.word(address).ok_or(Loss::Unreadable)
}
