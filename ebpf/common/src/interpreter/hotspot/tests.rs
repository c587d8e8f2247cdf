//! The walk along handmade code and stacks: each kind of frame, each prologue and epilogue, and damage.

mod damage;
mod edges;
mod frames;

use super::blob::Blob;
use super::*;
use crate::interpreter::{BLOCK_WORDS, BlockMemory};
use crate::walk::UserMemory;
use std::collections::BTreeMap;

/// Words at addresses; missing words are 0 in pages that have a word, and unreadable elsewhere.
#[derive(Default)]
struct Memory {
    words: BTreeMap<u64, u64>,
    block: [u64; BLOCK_WORDS],
}

const PAGE: u64 = 4096;

impl Memory {
    fn set(&mut self, address: u64, words: &[u64]) {
        for (at, word) in (address..).step_by(8).zip(words) {
            self.words.insert(at, *word);
        }
    }

    fn set_bytes(&mut self, address: u64, bytes: &[u8]) {
        for (at, byte) in (address..).zip(bytes) {
            let shift = (at & 7) * 8;
            let word = self.words.entry(at & !7).or_default();
            *word = *word & !(0xff << shift) | u64::from(*byte) << shift;
        }
    }

    fn set_number(&mut self, address: u64, number: u32) {
        self.set_bytes(address, &number.to_le_bytes());
    }

    fn aligned(&self, address: u64) -> Option<u64> {
        let page = address & !(PAGE - 1);
        self.words
            .range(page..page.checked_add(PAGE)?)
            .next()
            .map(|_| self.words.get(&address).copied().unwrap_or(0))
    }

    fn read(&self, address: u64) -> Option<u64> {
        let shift = (address & 7) * 8;
        let low = self.aligned(address & !7)?;
        if shift == 0 {
            return Some(low);
        }
        let high = self.aligned((address & !7).checked_add(8)?)?;
        Some(low >> shift | high << (64 - shift))
    }
}

impl BlockMemory for Memory {
    fn load_block(&mut self, address: u64, bytes: u32) -> bool {
        for index in 0..bytes as usize / 8 {
            let Some(word) = self.read(address.wrapping_add(index as u64 * 8)) else {
                return false;
            };
            self.block[index] = word;
        }
        true
    }

    fn block_word(&self, index: u32) -> u64 {
        self.block[index as usize % BLOCK_WORDS]
    }

    fn word(&mut self, address: u64) -> Option<u64> {
        self.read(address)
    }
}

impl UserMemory for Memory {
    fn user_word(&mut self, address: u64) -> Option<u64> {
        self.read(address)
    }

    fn address_bits(&self) -> u64 {
        (1 << 47) - 1
    }
}

const HEAP: u64 = 0x10_0000;
const MAP: u64 = 0x30_0000;
const NAMES: u64 = 0x40_0000;
const STACK: u64 = 0x7000_0000;
const METASPACE: u64 = 0x50_0000;
const SEGMENT: u64 = 128;

/// The layout of JDK 17.
fn layout() -> Layout {
    Layout {
        heap_block_bytes: 16,
        blob_name: 96,
        blob_code_begin: 32,
        blob_code_end: 40,
        blob_frame_size: 28,
        blob_frame_complete: 20,
        frame_complete_shift: 0,
        code_address: code_address::POINTER,
        nmethod_compile_id: 304,
        nmethod_orig_pc_offset: 300,
        nmethod_deopt_handler: 128,
        nmethod_deopt_mh_handler: 136,
        method_const_method: 8,
        const_method_code_size: 32,
        const_method_bytes: 48,
        frame_bcp: 64,
    }
}

/// Its heap starts with an interpreter of 64 KiB, followed by blobs.
fn cache() -> CodeCache {
    let mut cache = CodeCache {
        interpreter: AddressRange {
            start: HEAP + 0x200,
            end: HEAP + 0x1_0000,
        },
        continuation: AddressRange {
            start: HEAP + 0x1_f000,
            end: HEAP + 0x1_f800,
        },
        ..CodeCache::default()
    };
    cache.range = AddressRange {
        start: HEAP,
        end: HEAP + 0x10_0000,
    };
    cache.heaps[1] = CodeHeap {
        range: cache.range,
        segment_map: MAP,
        segment_shift: 7,
        unused: 0,
    };
    cache
}

/// The parameters of a blob.
struct Made<'a> {
    /// Offset in the heap.
    at: u64,
    bytes: u64,
    name: &'a str,
    frame_words: u32,
    frame_complete: u32,
}

impl Memory {
    /// Returns the start of the code.
    fn blob(&mut self, made: &Made<'_>) -> u64 {
        let segments = made.bytes / SEGMENT;
        for number in 0..segments {
            let entry = if number == 0 {
                0
            } else {
                (number - 1) % 254 + 1
            };
            self.set_bytes(MAP + made.at / SEGMENT + number, &[entry as u8]);
        }
        let name = NAMES + made.at;
        self.set_bytes(name, made.name.as_bytes());
        let blob = HEAP + made.at + 16;
        let code = blob + 352;
        self.set(blob + 96, &[name]);
        self.set(blob + 32, &[code, HEAP + made.at + made.bytes]);
        self.set_number(blob + 28, made.frame_words);
        self.set_number(blob + 20, made.frame_complete);
        self.set_number(blob + 304, COMPILE_ID);
        self.set_number(blob + 300, 8);
        self.set(
            blob + 128,
            &[code + DEOPT_HANDLER, code + DEOPT_HANDLER + 8],
        );
        code
    }

    /// Returns the code of an nmethod whose frame has 6 words and is complete after 16 bytes.
    fn nmethod(&mut self, at: u64) -> u64 {
        self.blob(&Made {
            at,
            bytes: 0x800,
            name: "nmethod",
            frame_words: 6,
            frame_complete: 16,
        })
    }

    /// Returns a method of 100 bytes.
    fn method(&mut self, number: u64) -> u64 {
        let method = METASPACE + number * 0x1000;
        self.set(method + 8, &[method + 0x100]);
        self.set(method + 0x100 + 32, &[0xffff_0000_0000_0064]);
        method
    }
}

const COMPILE_ID: u32 = 77;
const DEOPT_HANDLER: u64 = 0x300;
const FRAME_BYTES: u64 = 48;

fn step(walk: &mut Walk, memory: &mut Memory) -> Result<CodeFrame, HotspotError> {
    walk.step(&layout(), &cache(), memory)
}

/// The innermost frame's registers.
fn top(ip: u64) -> Walk {
    Walk {
        ip,
        sp: STACK,
        fp: STACK + 0x800,
        exact: 1,
        ..Walk::default()
    }
}

fn caller(ip: u64) -> Walk {
    Walk {
        exact: 0,
        ..top(ip)
    }
}

fn registers(walk: &Walk) -> (u64, u64, u64) {
    (walk.ip, walk.sp, walk.fp)
}
