//! Walks handmade frames: every way in which the interpreted frames of a native frame end, and corrupt memory.

use super::super::test_memory::Memory;
use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// `previous` at 0, the code at 8, the instruction at 16, the owner at 26.
fn layout(boundary: u32) -> Layout {
    Layout {
        boundary,
        thread_frame: 0,
        cframe_frame: match boundary {
            boundary::CFRAME => 0,
            _ => NO_CFRAME,
        },
        cframe_previous: 8,
        frame_bytes: 32,
        frame_previous: 0,
        frame_code: 8,
        frame_instruction: 16,
        frame_owner: 26,
        shim_owner: 3,
        identity_first: 0,
        identity_second: 4,
        identity_name: 16,
        identity_file: 24,
        text_data: match boundary {
            boundary::SHIM => 0,
            _ => TEXT_DATA,
        },
        code_instructions: 64,
        position_shift: 1,
        ..Layout::default()
    }
}

const SHIM: u64 = 3;
const THREAD: u64 = 0x10;
const HEAP: u64 = 0x10_0000;
/// The name of the file.
const FILE: u64 = 0x20_0000;
const FILE_HASH: u64 = text::NO_HASH;
const FILE_TAIL: u64 = 0x7970_2e65_6c69_6621;
const TEXT_DATA: u32 = 48;
/// Native frames, innermost first.
const STACK: [NativeFrame; 2] = [native(0x7000, 0x7100), native(0x7200, 0x7300)];

const fn native(sp: u64, cfa: u64) -> NativeFrame {
    NativeFrame {
        sp,
        cfa,
        state: 0,
        file: 16,
        unused: 0,
    }
}

fn code(number: u64) -> u64 {
    HEAP + number * 0x100
}

/// That of [`Memory::frame`]. Versions with shims have numbers that suffice.
fn identity(layout: &Layout, number: u64) -> Identity {
    let identity = Identity {
        first: number as u32,
        ..Identity::default()
    };
    if layout.text_data == 0 {
        return identity;
    }
    Identity {
        name: [8, number],
        file: [16, FILE_HASH],
        file_tail: FILE_TAIL,
        ..identity
    }
}

impl Memory {
    /// A frame at its third instruction.
    fn frame(&mut self, at: u64, previous: u64, number: u64, owner: u64) {
        let words = [previous, code(number), code(number) + 64 + 4, owner << 16];
        for (address, word) in (at..).step_by(8).zip(words) {
            self.words.insert(address, word);
        }
        let name = code(number) + 0x80;
        let members = [number, 0, name, FILE];
        for (address, word) in (code(number)..).step_by(8).zip(members) {
            self.words.insert(address, word);
        }
        // The length and the hash; and the end of the text, after 8 bytes.
        for (address, word) in [
            (name + 16, 8),
            (name + 24, number),
            (FILE + 16, 16),
            (FILE + 24, FILE_HASH),
            (FILE + u64::from(TEXT_DATA) + 8, FILE_TAIL),
        ] {
            self.words.insert(address, word);
        }
    }
}

/// The functions of one native frame, by number; 99 is an unreadable one.
fn functions(
    walk: &mut Walk,
    layout: &Layout,
    native: &NativeFrame,
    memory: &mut Memory,
) -> Vec<u64> {
    let mut found = Vec::new();
    let mut add = |function: u64, detail: Detail| {
        if function == 0 {
            assert_eq!(detail.position(), unreadable::MEMORY);
            found.push(99);
            return;
        }
        let number = (function - HEAP) / 0x100;
        let identity = identity(layout, number);
        assert_eq!(
            (detail.generation(), detail.position()),
            (identity.generation(), 2)
        );
        found.push(number);
    };
    let entered = *walk;
    if let Err(step) = walk.enter(layout, native, memory) {
        if let Step::Last(function, detail) = step {
            add(function, detail);
        }
        return found;
    }
    for _ in 0..100 {
        match walk.step(layout, native, memory) {
            Step::Frame(function, detail) => add(function, detail),
            Step::Last(function, detail) => {
                add(function, detail);
                return found;
            }
            Step::Skip => {}
            Step::End => return found,
            Step::NotEntered => {
                *walk = entered;
                return Vec::new();
            }
        }
    }
    panic!("it does not end: {found:?}");
}

fn walk(boundary: u32, memory: &mut Memory) -> Vec<Vec<u64>> {
    let layout = layout(boundary);
    let mut walk = Walk::begin(&layout, THREAD, memory).expect("the thread is readable");
    STACK
        .iter()
        .map(|native| functions(&mut walk, &layout, native, memory))
        .collect()
}

/// Two functions in each native frame, which end at these shims.
fn with_shims(inner: u64, outer: u64) -> Memory {
    let mut memory = Memory::default();
    memory.words.insert(THREAD, 0x100);
    memory.frame(0x100, 0x200, 1, 0);
    memory.frame(0x200, inner, 2, 1);
    memory.frame(inner, 0x300, 50, SHIM);
    memory.frame(0x300, 0x400, 3, 0);
    memory.frame(0x400, outer, 4, 0);
    memory.frame(outer, 0, 51, SHIM);
    memory
}

#[test]
fn frames_end_where_a_shim_is_in_the_native_frame() {
    for (inner, outer, expected) in [
        (0x7080, 0x7280, [vec![1, 2], vec![3, 4]]),
        // The first native frame has not entered its own frames yet, so all belong to the second.
        (0x7280, 0x7380, [vec![], vec![1, 2]]),
        // The walk missed a native frame: its frames go to the next one.
        (0x6f80, 0x7080, [vec![1, 2, 3, 4], vec![]]),
        (0x6f80, 0x7280, [vec![], vec![1, 2, 3, 4]]),
    ] {
        let found = walk(boundary::SHIM, &mut with_shims(inner, outer));
        assert_eq!(found, expected, "{inner:x} {outer:x}");
    }
}

#[test]
fn frames_end_at_the_entry_of_a_cframe() {
    let check = |inner: u64, outer: u64, expected: [Vec<u64>; 2]| {
        let mut memory = Memory::default();
        let outermost = 0x18;
        memory.words.insert(THREAD, inner);
        memory.words.extend([(inner, 0x100), (inner + 8, outer)]);
        memory
            .words
            .extend([(outer, 0x300), (outer + 8, outermost)]);
        memory.words.extend([(outermost, 0), (outermost + 8, 0)]);
        memory.frame(0x100, 0x200, 1, 0);
        memory.frame(0x200, 0x300, 2, 1);
        memory.frame(0x300, 0x400, 3, 0);
        memory.frame(0x400, 0, 4, 1);
        let found = walk(boundary::CFRAME, &mut memory);
        assert_eq!(found, expected, "{inner:x} {outer:x}");
    };
    check(0x7080, 0x7280, [vec![1, 2], vec![3, 4]]);
    check(0x7280, 0x7380, [vec![], vec![1, 2]]);
    check(0x6f80, 0x7080, [vec![1, 2, 3, 4], vec![]]);
}

#[test]
fn a_native_frame_runs_one_where_there_are_no_marks() {
    let mut memory = with_shims(0x500, 0x600);
    memory.frame(0x200, 0, 2, 0);
    assert_eq!(walk(boundary::SINGLE, &mut memory), [vec![1], vec![2]]);
}

#[test]
fn what_cannot_be_read_is_one_frame_in_each_native_one() {
    for missing in [0x200, 0x7080, code(2)] {
        let mut memory = with_shims(0x7080, 0x7280);
        memory.words.remove(&missing);
        let found = walk(boundary::SHIM, &mut memory);
        let first = if missing == 0x7080 {
            vec![1, 2, 99]
        } else {
            vec![1, 99]
        };
        assert_eq!(found, [first, vec![99]], "{missing:x}");
    }
}

proptest! {
    /// Over arbitrary memory the walk may be endless, so the caller stops it.
    #[test]
    fn any_memory_is_walked(
        words in proptest::collection::vec(0u64..64, 64),
        boundary in 0u32..3,
        sp in 0u64..64,
    ) {
        let mut memory = Memory::default();
        memory.words.extend((0..).step_by(8).zip(words.iter().map(|word| word * 8)));
        let layout = layout(boundary);
        let native = native(sp * 8, sp * 8 + 64);
        let mut walk = Walk::begin(&layout, 0, &mut memory).unwrap_or_default();
        if walk.enter(&layout, &native, &mut memory).is_ok() {
            for _ in 0..100 {
                if !matches!(walk.step(&layout, &native, &mut memory), Step::Frame(..) | Step::Skip) {
                    break;
                }
            }
        }
    }
}
