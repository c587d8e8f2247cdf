//! Process memory, with the interface of the BPF programs.

use profcol_ebpf_common::interpreter::{BLOCK_WORDS, BlockMemory};
use profcol_ebpf_common::walk::UserMemory;
use profcol_ebpf_interpreters::{Memory, ProcessMemory};

/// Counts reads.
pub struct Target<'a> {
    pub memory: &'a ProcessMemory,
    block: [u64; BLOCK_WORDS],
    pub reads: usize,
}

impl<'a> Target<'a> {
    pub fn new(memory: &'a ProcessMemory) -> Self {
        Self {
            memory,
            block: [0; BLOCK_WORDS],
            reads: 0,
        }
    }
}

impl BlockMemory for Target<'_> {
    fn load_block(&mut self, address: u64, bytes: u32) -> bool {
        self.reads += 1;
        let Ok(bytes) = self.memory.bytes(address, bytes as usize) else {
            return false;
        };
        let (words, _) = bytes.as_chunks();
        for (word, bytes) in self.block.iter_mut().zip(words) {
            *word = u64::from_le_bytes(*bytes);
        }
        true
    }

    fn block_word(&self, index: u32) -> u64 {
        self.block[index as usize % BLOCK_WORDS]
    }

    fn word(&mut self, address: u64) -> Option<u64> {
        self.reads += 1;
        Memory::word(self.memory, address).ok()
    }
}

impl UserMemory for Target<'_> {
    fn user_word(&mut self, address: u64) -> Option<u64> {
        Memory::word(self.memory, address).ok()
    }

    fn address_bits(&self) -> u64 {
        (1 << 47) - 1
    }
}
