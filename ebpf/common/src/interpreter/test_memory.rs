//! Handmade process memory.

use super::{BLOCK_WORDS, BlockMemory};
use crate::walk::UserMemory;
use std::collections::BTreeMap;

/// Words at addresses.
#[derive(Default)]
pub struct Memory {
    pub words: BTreeMap<u64, u64>,
    block: [u64; BLOCK_WORDS],
}

impl BlockMemory for Memory {
    fn load_block(&mut self, address: u64, bytes: u32) -> bool {
        if !self.words.contains_key(&address) {
            return false;
        }
        for (index, word) in self.block.iter_mut().enumerate() {
            let at = address.wrapping_add(index as u64 * 8);
            let is_inside = (index as u32) * 8 < bytes;
            *word = self
                .words
                .get(&at)
                .filter(|_| is_inside)
                .copied()
                .unwrap_or(0);
        }
        true
    }

    fn block_word(&self, index: u32) -> u64 {
        self.block[index as usize % BLOCK_WORDS]
    }

    fn word(&mut self, address: u64) -> Option<u64> {
        self.words.get(&address).copied()
    }
}

impl UserMemory for Memory {
    fn user_word(&mut self, address: u64) -> Option<u64> {
        self.word(address)
    }

    fn address_bits(&self) -> u64 {
        u64::MAX
    }
}
