//! Reads closures and their shared functions from handmade memory: moved, replaced and invalid ones.

use super::super::BLOCK_WORDS;
use super::*;
use std::collections::BTreeMap;

const LAYOUT: Layout = Layout {
    function_shared: 32,
    has_unique_id: 1,
    shared_numbers: 48,
};
const CLOSURE: u64 = 0x1000;
const MOVED: u64 = 0x2000;
const SHARED: u64 = 0x3000;
const MAP: u64 = 0x4001;

/// Words at addresses; a page is mapped if it has at least one word.
#[derive(Default)]
struct Memory {
    words: BTreeMap<u64, u64>,
    block: [u64; BLOCK_WORDS],
}

impl BlockMemory for Memory {
    fn load_block(&mut self, address: u64, bytes: u32) -> bool {
        let mut pages = self.words.keys().map(|at| at >> 12);
        if !pages.any(|page| page == address >> 12) {
            return false;
        }
        for (index, word) in (0u64..).zip(&mut self.block) {
            let at = address + index * 8;
            if index * 8 < u64::from(bytes) {
                *word = self.words.get(&at).copied().unwrap_or(0);
            }
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

fn memory(words: &[(u64, u64)]) -> Memory {
    let shared = [
        (SHARED, MAP),
        (SHARED + 48, 7 << 32 | 2),
        (SHARED + 56, 5 << 32 | 0xf1a6),
        (SHARED + 64, 0xdcf),
    ];
    Memory {
        words: shared.iter().chain(words).copied().collect(),
        ..Memory::default()
    }
}

#[test]
fn finds_the_shared_function_info_of_a_closure() {
    let mut plain = memory(&[(CLOSURE, MAP), (CLOSURE + 32, SHARED | 1)]);
    let found = LAYOUT.function(&mut plain, CLOSURE | 1).unwrap();
    assert_eq!(found.address, SHARED);
    // The collector replaces the map with an untagged address.
    let mut moving = memory(&[(CLOSURE, MOVED), (MOVED, MAP), (MOVED + 32, SHARED | 1)]);
    assert_eq!(LAYOUT.function(&mut moving, CLOSURE | 1), Some(found));
}

#[test]
fn rejects_other_objects() {
    for words in [
        // No memory.
        &[][..],
        // No pointer to a `SharedFunctionInfo`.
        &[(CLOSURE, MAP), (CLOSURE + 32, 8)],
        // A pointer to unmapped memory.
        &[(CLOSURE, MAP), (CLOSURE + 32, 0x9001)],
        // Moved to itself, to unmapped memory, and to an invalid address.
        &[(CLOSURE, CLOSURE)],
        &[(CLOSURE, 0x9000)],
        &[(CLOSURE, 2)],
    ] {
        assert_eq!(LAYOUT.function(&mut memory(words), CLOSURE | 1), None);
    }
}

#[test]
fn distinguishes_functions_at_a_reused_address() {
    let numbers = [7 << 32 | 2, 5 << 32 | 0xf1a6, 0xdcf];
    let generation = LAYOUT.generation_of(numbers);
    // Flags, the expected number of properties and the bits after the id change.
    let changed = [numbers[0] | 9 << 48, 5 << 32, 0xdcf | 1 << 40];
    assert_eq!(LAYOUT.generation_of(changed), generation);
    for (word, bit) in [(0, 0), (0, 32), (1, 32), (1, 63), (2, 0)] {
        let mut other = numbers;
        other[word] ^= 1 << bit;
        assert_ne!(LAYOUT.generation_of(other), generation, "{word} {bit}");
    }
    let without = Layout {
        has_unique_id: 0,
        ..LAYOUT
    };
    let other = [numbers[0], numbers[1], 0];
    assert_eq!(without.generation_of(numbers), without.generation_of(other));
}

#[test]
fn a_position_is_a_small_integer() {
    assert_eq!(position(317 << 32), 317);
    assert_eq!(position(0x7f00_1234_5679), NO_POSITION);
}
