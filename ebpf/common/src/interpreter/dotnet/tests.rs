//! Handmade tables of the runtime, methods, unwind codes and epilogues, and damage.

use std::collections::BTreeMap;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// Bytes by address. Others cannot be read.
#[derive(Default)]
struct Memory {
    bytes: BTreeMap<u64, u8>,
    block: [u64; BLOCK_WORDS],
}

impl Memory {
    fn put(&mut self, address: u64, bytes: &[u8]) {
        self.bytes.extend((address..).zip(bytes.iter().copied()));
    }

    fn put_words(&mut self, address: u64, words: &[u64]) {
        for (at, word) in (address..).step_by(8).zip(words) {
            self.put(at, &word.to_le_bytes());
        }
    }

    fn put_halves(&mut self, address: u64, halves: &[u32]) {
        for (at, half) in (address..).step_by(4).zip(halves) {
            self.put(at, &half.to_le_bytes());
        }
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        buffer.iter_mut().zip(0..).all(|(byte, at)| {
            let known = self.bytes.get(&address.wrapping_add(at));
            *byte = known.copied().unwrap_or_default();
            known.is_some()
        })
    }
}

impl BlockMemory for Memory {
    fn load_block(&mut self, address: u64, bytes: u32) -> bool {
        let mut block = [0; BLOCK_BYTES as usize];
        if !self.read(address, &mut block[..bytes as usize]) {
            return false;
        }
        let (words, _) = block.as_chunks();
        // Like the programs', a block keeps the rest of what was there.
        let count = (bytes as usize).div_ceil(8);
        for (to, from) in self.block.iter_mut().zip(words).take(count) {
            *to = u64::from_le_bytes(*from);
        }
        true
    }

    fn block_word(&self, index: u32) -> u64 {
        self.block[index as usize % BLOCK_WORDS]
    }

    fn word(&mut self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.read(address, &mut word)
            .then(|| u64::from_le_bytes(word))
    }
}

const TABLES: u64 = 0x10_0000;
const TABLE_BYTES: u64 = 256 * 8;
const FRAGMENTS: u64 = 0x20_0000;
const SECTIONS: u64 = 0x30_0000;
const HEAP: u64 = 0x40_0000;
const MAP: u64 = 0x50_0000;
const CODE: u64 = 0x7f12_3456_0000;
const HEADER: u64 = 0x60_0000;
const MODULE: u64 = 0x70_0000;

const fn process(has_distances: bool) -> DotNetProcess {
    DotNetProcess {
        ranges: TABLES,
        has_distances: has_distances as u32,
        unused: 0,
    }
}

struct Range {
    start: u64,
    end: u64,
    flags: u64,
}

/// The map of ranges with these in the last table's entry for the first one, marked as collectible.
fn with_ranges(ranges: &[Range]) -> Memory {
    let mut memory = Memory::default();
    for level in 0..5 {
        let table = TABLES + u64::from(level) * TABLE_BYTES;
        memory.put(table, &[0; TABLE_BYTES as usize]);
        let shift = LAST_LEVEL_SHIFT + (LEVELS - 1 - level) * LEVEL_BITS;
        let index = ranges[0].start >> shift & 0xff;
        let next = match level {
            4 => FRAGMENTS | COLLECTIBLE,
            _ => table + TABLE_BYTES,
        };
        memory.put_words(table + index * 8, &[next]);
    }
    for (at, range) in (0..).zip(ranges) {
        let (fragment, section) = (FRAGMENTS + at * 64, SECTIONS + at * 64);
        let next = match at as usize + 1 == ranges.len() {
            true => 0,
            false => (fragment + 64) | COLLECTIBLE,
        };
        memory.put_words(fragment, &[next, range.start, range.end, section]);
        let words = [range.start, range.end, range.flags, 0, MODULE, HEAP];
        memory.put_words(section, &words);
    }
    memory
}

#[test]
fn a_section_is_found_in_the_map_of_ranges() {
    let range = |start, end, flags| Range { start, end, flags };
    let mut memory = with_ranges(&[
        range(CODE, CODE + 0x1000, 2),
        range(CODE + 0x1000, CODE + 0x2000, 4),
        range(CODE + 0x8000, CODE + 0x9000, 0),
    ]);
    let mut kind = |address| {
        let section = process(false).section(address, &mut memory)?;
        assert_eq!((section.heap, section.module), (HEAP, MODULE));
        Some((section.is_code_heap(), section.is_stubs()))
    };
    assert_eq!(kind(CODE), Some((true, false)));
    assert_eq!(kind(CODE + 0xfff), Some((true, false)));
    assert_eq!(kind(CODE + 0x1000), Some((false, true)));
    assert_eq!(kind(CODE + 0x8fff), Some((false, false)));
    for absent in [CODE - 1, CODE + 0x2000, CODE + 0x9000, 0, u64::MAX] {
        assert_eq!(kind(absent), None, "{absent:#x}");
    }
}

#[test]
fn fragments_that_form_a_circle_end() {
    let mut memory = with_ranges(&[Range {
        start: CODE,
        end: CODE + 16,
        flags: 2,
    }]);
    memory.put_words(FRAGMENTS, &[FRAGMENTS]);
    assert_eq!(process(false).section(CODE + 0x100, &mut memory), None);
}

/// A code heap with methods at these distances from its start. Before version 10, each is a nibble. From then on, words
/// that contain no start but follow one have its distance.
fn with_methods(starts: &[u64], length: u64, has_distances: bool) -> Memory {
    let mut memory = Memory::default();
    memory.put_words(HEAP, &[0, 0, CODE, CODE + length, CODE, MAP]);
    let words = length.div_ceil(256) + 1;
    memory.put(MAP, &[0].repeat(words as usize * 4 + 8));
    let mut map = [0].repeat(words as usize);
    for (at, &start) in starts.iter().enumerate() {
        let shift = 28 - (start >> 5 & 7) * 4;
        map[(start >> 8) as usize] |= ((start >> 2 & 7) as u32 + 1) << shift;
        let end = starts.get(at + 1).copied().unwrap_or(length);
        if has_distances {
            // For words that lie in the method as a whole.
            for word in (start >> 8) + 1..end >> 8 {
                map[word as usize] = (start as u32 & !31) | ((start >> 2 & 7) as u32 + 9);
            }
        }
    }
    memory.put_halves(MAP, &map);
    memory
}

fn start_of(address: u64, has_distances: bool, memory: &mut Memory) -> Option<u64> {
    let process = process(has_distances);
    let mut search = process.search(HEAP, address, memory)?;
    while process.search_step(&mut search, memory) {}
    (search.start != 0).then_some(search.start)
}

#[test]
fn a_method_is_found_by_the_nibble_map() {
    // In neighboring and distant nibbles, words and blocks.
    let starts = [
        0x20,
        0x60,
        0x9c,
        0xe4,
        0x200,
        0x204 + 32,
        0x4a8,
        0x1_2340,
        0x2_0008,
    ];
    let length = 0x3_0000;
    for has_distances in [false, true] {
        let mut memory = with_methods(&starts, length, has_distances);
        for (at, &start) in starts.iter().enumerate() {
            let end = starts.get(at + 1).copied().unwrap_or(length);
            for distance in [start, start + 1, start + 4, (start + end) / 2, end - 1] {
                let found = start_of(CODE + distance, has_distances, &mut memory);
                assert_eq!(found, Some(CODE + start), "{distance:#x} {has_distances}");
            }
        }
        for absent in [CODE, CODE + 0x1f, CODE - 1, CODE + length, 0, u64::MAX] {
            assert_eq!(start_of(absent, has_distances, &mut memory), None);
        }
    }
}

/// A method at `CODE` with these functions: begin, end, unwind codes, relative to `CODE - base`.
fn with_functions(functions: &[[u32; 3]]) -> Memory {
    let mut memory = Memory::default();
    memory.put_words(CODE - 8, &[HEADER]);
    let mut halves = [functions.len() as u32].to_vec();
    halves.extend(functions.iter().flatten());
    // The word with the count is read as a whole.
    halves.resize(halves.len().max(2), 0);
    memory.put_halves(HEADER + 32, &halves);
    memory
}

/// Version 1, without an exception handler; sizes and registers as given.
fn unwind_info(fp_distance: u8, slots: &[u16]) -> Vec<u8> {
    let mut bytes = [1, 0x20, slots.len() as u8, fp_distance << 4 | 5].to_vec();
    bytes.extend(slots.iter().flat_map(|slot| slot.to_le_bytes()));
    // The last code may be read beyond its end.
    bytes.extend([0; 16]);
    bytes
}

const INFO: u32 = 0x800;

fn slot(offset: u8, operation: u16, info: u16) -> u16 {
    u16::from(offset) | operation << 8 | info << 12
}

/// The rule at an offset in a function with these codes.
fn rule(fp_distance: u8, slots: &[u16], offset: u64) -> Option<Rule> {
    let mut memory = with_functions(&[[0x40, 0x440, INFO]]);
    memory.put(
        CODE - 0x40 + u64::from(INFO),
        &unwind_info(fp_distance, slots),
    );
    rule_at(CODE + offset, &mut memory)
}

fn rule_at(address: u64, memory: &mut Memory) -> Option<Rule> {
    let Some(Header::Method(header)) = header(CODE, memory) else {
        panic!("no header");
    };
    let mut codes = Codes::begin(header, CODE, address, memory)?;
    while codes.read(memory)? {}
    Some(codes.rule().decode())
}

fn sp(bytes: i32, fp: SavedFp) -> Option<Rule> {
    Some(Rule::x86_64(Cfa::Sp(bytes), fp))
}

fn fp(bytes: i32) -> Option<Rule> {
    Some(Rule::x86_64(Cfa::Fp(bytes), SavedFp::At(-16)))
}

#[test]
fn a_function_without_codes_has_only_its_return_address() {
    assert_eq!(rule(0, &[], 0), sp(8, SavedFp::Same));
    assert_eq!(rule(0, &[], 0x3ff), sp(8, SavedFp::Same));
    // Outside of it.
    assert_eq!(rule(0, &[], 0x400), None);
}

/// `push rax`, as small methods align their stack; `sub rsp, 40`.
#[test]
fn small_frames_are_those_of_the_stack_pointer() {
    let push = [slot(1, 0, 0)];
    assert_eq!(rule(0, &push, 0), sp(8, SavedFp::Same));
    assert_eq!(rule(0, &push, 1), sp(16, SavedFp::Same));
    let allocate = [slot(4, 2, 4)];
    assert_eq!(rule(0, &allocate, 3), sp(8, SavedFp::Same));
    assert_eq!(rule(0, &allocate, 4), sp(48, SavedFp::Same));
}

/// `push rbp; push r15; push rbx; sub rsp, 0x28; lea rbp, [rsp + 0x30]`, at each instruction.
#[test]
fn each_instruction_of_a_prologue_has_its_rule() {
    let slots = [
        slot(13, 11, 0),
        // SET_FPREG_LARGE: in units of 16 bytes below the frame pointer, as the next two slots say.
        3,
        0,
        slot(8, 2, 4),
        slot(4, 0, 3),
        slot(3, 0, 15),
        slot(1, 0, 5),
    ];
    assert_eq!(rule(0, &slots, 0), sp(8, SavedFp::Same));
    assert_eq!(rule(0, &slots, 1), sp(16, SavedFp::At(-16)));
    assert_eq!(rule(0, &slots, 3), sp(24, SavedFp::At(-16)));
    assert_eq!(rule(0, &slots, 4), sp(32, SavedFp::At(-16)));
    assert_eq!(rule(0, &slots, 8), sp(72, SavedFp::At(-16)));
    // rbp = rsp + 48.
    assert_eq!(rule(0, &slots, 13), fp(72 - 48));
    assert_eq!(rule(0, &slots, 0x100), fp(72 - 48));
}

/// `push rbp; sub rsp, N; lea rbp, [rsp + 0x20]`
#[test]
fn frame_pointers_and_large_frames_have_two_forms() {
    let small = [slot(9, 3, 0), slot(5, 2, 5), slot(1, 0, 5)];
    assert_eq!(rule(2, &small, 9), fp(64 - 32));
    let large = [slot(12, 3, 0), slot(8, 1, 0), 0x200, slot(1, 0, 5)];
    assert_eq!(rule(2, &large, 8), sp(16 + 0x1000, SavedFp::At(-16)));
    assert_eq!(rule(2, &large, 12), fp(16 + 0x1000 - 32));
    let huge = [slot(8, 1, 1), 0x1230, 0x12, slot(1, 0, 5)];
    assert_eq!(rule(0, &huge, 8), sp(16 + 0x12_1230, SavedFp::At(-16)));
}

/// Those move no registers that the walk needs: stores, those of xmm registers, epilogues.
#[test]
fn other_codes_are_skipped_with_their_operands() {
    for skipped in [
        &[slot(9, 4, 3), 0xffff][..],
        &[slot(9, 5, 3), 0xffff, 0xffff],
        &[slot(9, 6, 3), 0xffff],
        &[slot(9, 8, 3), 0xffff],
        &[slot(9, 9, 3), 0xffff, 0xffff],
    ] {
        let slots = [skipped, &[slot(5, 2, 1), slot(1, 0, 5)]].concat();
        assert_eq!(rule(0, &slots, 9), sp(32, SavedFp::At(-16)), "{slots:x?}");
    }
    for unknown in [7, 10, 12, 15] {
        assert_eq!(rule(0, &[slot(1, unknown, 0)], 1), None);
    }
}

/// The frame of a method whose loop was replaced while it ran lies on the frame of the slow code: two saved frame pointers.
#[test]
fn the_outermost_saved_frame_pointer_is_the_callers() {
    let slots = [slot(6, 2, 3), slot(2, 0, 5), slot(0, 2, 8), slot(0, 0, 5)];
    assert_eq!(rule(0, &slots, 6), sp(16 + 72 + 8 + 32, SavedFp::At(-16)));
}

#[test]
fn an_address_belongs_to_the_function_around_it() {
    let infos = [INFO, INFO + 0x40, INFO + 0x80];
    let mut memory = with_functions(&[
        [0x40, 0x100, infos[0]],
        [0x100, 0x140, infos[1]],
        [0x140, 0x150, infos[2]],
    ]);
    let base = CODE - 0x40;
    for (at, &info) in (0..).zip(&infos) {
        let allocate = [slot(4, 2, at)];
        memory.put(base + u64::from(info), &unwind_info(0, &allocate));
    }
    // After the prologue of each; in that of the second.
    for (relative, bytes) in [(0x44, 16), (0xff, 16), (0x104, 24), (0x102, 8), (0x14f, 32)] {
        let found = rule_at(base + relative, &mut memory);
        assert_eq!(found, sp(bytes, SavedFp::Same), "{relative:#x}");
    }
    assert_eq!(rule_at(base + 0x150, &mut memory), None);
    assert_eq!(rule_at(base, &mut memory), None);
}

#[test]
fn only_so_many_functions_of_a_method_are_read() {
    let functions: Vec<_> = (0..30).map(|at| [at * 16, at * 16 + 16, INFO]).collect();
    let mut memory = with_functions(&functions);
    memory.put(CODE + u64::from(INFO), &unwind_info(0, &[]));
    assert_eq!(rule_at(CODE + 9 * 16, &mut memory), sp(8, SavedFp::Same));
    assert_eq!(rule_at(CODE + 10 * 16, &mut memory), None);
}

#[test]
fn small_numbers_before_code_are_kinds_of_stubs() {
    let mut memory = Memory::default();
    for (word, expected) in [
        (0, Header::Stub),
        (9, Header::Stub),
        (HEADER, Header::Method(HEADER)),
    ] {
        memory.put_words(CODE - 8, &[word]);
        assert_eq!(header(CODE, &mut memory), Some(expected));
    }
    assert_eq!(header(CODE + 0x100, &mut memory), None);
}

/// The rule at the first of these instructions, and how many of them were read.
fn epilogue(code: &[u8]) -> Option<Rule> {
    let mut memory = Memory::default();
    memory.put(CODE, code);
    memory.put(CODE + code.len() as u64, &[0x90; 8]);
    let mut epilogue = Epilogue::at(CODE);
    while !epilogue.read(&mut memory)? {}
    Some(epilogue.rule().decode())
}

#[test]
fn in_an_epilogue_the_rest_of_it_has_the_rule() {
    for (code, expected) in [
        // ret
        (&[0xc3][..], sp(8, SavedFp::Same)),
        // pop rbp; ret
        (&[0x5d, 0xc3], sp(16, SavedFp::At(-16))),
        // pop rbx; pop r15; pop rbp; ret
        (&[0x5b, 0x41, 0x5f, 0x5d, 0xc3], sp(32, SavedFp::At(-16))),
        // pop r13, which is not pop rbp
        (&[0x41, 0x5d, 0xc3], sp(16, SavedFp::Same)),
        // add rsp, 40; ret
        (&[0x48, 0x83, 0xc4, 0x28, 0xc3], None),
        // call
        (&[0xe8, 0, 0, 0, 0], None),
    ] {
        assert_eq!(epilogue(code), expected, "{code:x?}");
    }
}

proptest! {
    /// Whatever is in memory, each step ends.
    #[test]
    fn damaged_memory_does_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 1..512),
        words in prop::collection::vec(any::<u64>(), 3),
        has_distances: bool,
    ) {
        let mut memory = Repeated { bytes, block: [0; BLOCK_WORDS] };
        let process = DotNetProcess { ranges: words[0], has_distances: has_distances.into(), unused: 0 };
        let address = words[1];
        let heap = process.section(address, &mut memory).map_or(words[2], |it| it.heap);
        if let Some(mut search) = process.search(heap, address, &mut memory) {
            for _ in 0..100 {
                if !process.search_step(&mut search, &mut memory) {
                    break;
                }
            }
        }
        let _ = header(address, &mut memory);
        if let Some(mut codes) = Codes::begin(heap, words[2], address, &mut memory) {
            for _ in 0..=255 {
                if codes.read(&mut memory) != Some(true) {
                    break;
                }
            }
            // No more than 255 slots.
            prop_assert_ne!(codes.read(&mut memory), Some(true));
            let _ = codes.rule().decode();
        }
        let mut epilogue = Epilogue::at(address);
        for _ in 0..100 {
            if epilogue.read(&mut memory) != Some(false) {
                break;
            }
        }
        let _ = epilogue.rule().decode();
    }
}

/// The same bytes everywhere.
struct Repeated {
    bytes: Vec<u8>,
    block: [u64; BLOCK_WORDS],
}

impl BlockMemory for Repeated {
    fn load_block(&mut self, address: u64, bytes: u32) -> bool {
        assert!(bytes <= BLOCK_BYTES);
        for at in 0..u64::from(bytes.div_ceil(8)) {
            let Some(word) = self.word(address.wrapping_add(at * 8)) else {
                return false;
            };
            self.block[at as usize] = word;
        }
        true
    }

    fn block_word(&self, index: u32) -> u64 {
        self.block[index as usize % BLOCK_WORDS]
    }

    fn word(&mut self, address: u64) -> Option<u64> {
        let bytes = (0..8).map(|at| {
            let place = address.wrapping_add(at) % self.bytes.len() as u64;
            self.bytes[place as usize]
        });
        let bytes: Vec<u8> = bytes.collect();
        // Holes.
        (address >> 12 & 7 != 7).then(|| u64::from_le_bytes(bytes.try_into().unwrap()))
    }
}
