//! Reads kernel memory, without locks; faults are errors.

use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use profcol_ebpf_common::mappings::KernelMemory;

/// A copy of a maple tree node.
pub type Node = [u64; 32];

pub struct Kernel<'a> {
    pub node: &'a mut Node,
}

#[inline(always)]
pub fn read<T>(address: u64, into: *mut T) -> bool {
    // SAFETY: the helper checks the source address; the destination is valid.
    unsafe { bpf_probe_read_kernel(into.cast(), size_of::<T>() as u32, address as *const _) == 0 }
}

#[inline(always)]
pub fn word(address: u64) -> Option<u64> {
    let mut word = 0u64;
    read(address, &raw mut word).then_some(word)
}

impl KernelMemory for Kernel<'_> {
    /// Kernels with arenas have maple trees.
    const SUPPORTS_RED_BLACK_TREE: bool = cfg!(feature = "blocks");

    #[inline(always)]
    fn load_node(&mut self, address: u64) -> bool {
        read(address, &raw mut *self.node)
    }

    #[inline(always)]
    fn node_word(&self, index: u64) -> u64 {
        // SAFETY: a node has 32 words.
        unsafe { *self.node.as_ptr().add(index as usize & 31) }
    }

    #[inline(always)]
    fn word(&mut self, address: u64) -> Option<u64> {
        word(address)
    }
}
