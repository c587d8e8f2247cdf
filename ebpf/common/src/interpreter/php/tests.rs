//! The walk along handmade frames: all the ways in which those of a native frame begin and end, and damage.

use super::super::test_memory::Memory;
use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const STACK: u64 = 0x1000;
const HEAP: u64 = 0x10_0000;
/// The name of the file, and those of functions.
const NAMES: u64 = 0x20_0000;
const FILE: u64 = 0x20;

#[derive(Clone, Copy)]
enum Kind {
    Internal,
    User,
    /// Called from C.
    Top,
    Placeholder,
}

use Kind::{Internal, Placeholder, Top, User};

fn frame_at(number: u64) -> u64 {
    STACK + number * 0x100
}

fn put(memory: &mut Memory, address: u64, words: &[u64]) {
    let places = (address..).step_by(8);
    memory.words.extend(places.zip(words.iter().copied()));
}

/// Frames numbered from 1, innermost first; the line of each is its number.
fn memory(frames: &[Kind]) -> Memory {
    let mut memory = Memory::default();
    put(&mut memory, NAMES + 8, &[77, 8]);
    for (number, kind) in (1..).zip(frames) {
        let (function, instruction) = (HEAP + number * 0x100, HEAP + number * 0x100 + 0x40);
        let previous = match frames.len() as u64 == number {
            true => 0,
            false => frame_at(number + 1),
        };
        let flags = match kind {
            Top => frame::TOP,
            Internal | User | Placeholder => 0,
        };
        let called = match kind {
            Placeholder => 0,
            Internal | User | Top => function,
        };
        put(
            &mut memory,
            frame_at(number),
            &[instruction, 0, 0, called, 0, flags, previous],
        );
        let kind = match kind {
            Internal => function::INTERNAL,
            User | Top | Placeholder => 2,
        };
        put(&mut memory, function, &[kind, NAMES + number * 0x20, 0]);
        put(&mut memory, function + FILE, &[NAMES, number]);
        put(&mut memory, NAMES + number * 0x20 + 8, &[number, 1]);
        put(&mut memory, instruction + LINE, &[number]);
    }
    memory
}

fn walk(loop_frame: Option<u64>, memory: &mut Memory) -> Vec<Vec<u64>> {
    let mut walk = Walk {
        frame: frame_at(1),
        loop_frame: loop_frame.unwrap_or(0),
        loop_instruction: HEAP + 0x140,
        is_leaf: u64::from(loop_frame.is_some()),
        is_lost: 0,
        function_file: FILE,
    };
    (0..2).map(|_| functions(&mut walk, memory)).collect()
}

/// The functions of one native frame, by number; 99 is an unreadable one.
fn functions(walk: &mut Walk, memory: &mut Memory) -> Vec<u64> {
    let mut found = Vec::new();
    for _ in 0..100 {
        let (function, detail, is_last) = match walk.step(memory) {
            Step::Frame(function, detail) => (function, detail, false),
            Step::Last(function, detail) => (function, detail, true),
            Step::Skip => continue,
            Step::End | Step::NotEntered => return found,
        };
        if function == 0 {
            assert_eq!(detail.position(), unreadable::MEMORY);
            found.push(99);
            return found;
        }
        let number = (function - HEAP) >> 8;
        let mut identity = Identity {
            name: NAMES + number * 0x20,
            ..Identity::default()
        };
        if memory.words[&function] != function::INTERNAL {
            identity = Identity {
                name_text: [number, 1],
                file_text: [77, 8],
                lines: number,
                ..identity
            };
        }
        assert_eq!(detail.generation(), identity.generation());
        assert!([0, number].contains(&detail.position().into()));
        found.push(number);
        if is_last {
            return found;
        }
    }
    panic!("it does not end: {found:?}");
}

#[test]
fn frames_end_where_c_called_them() {
    let frames = [Internal, User, Placeholder, Top, Internal, User, Top];
    let expected = [vec![1, 2, 4], vec![5, 6, 7]];
    assert_eq!(walk(None, &mut memory(&frames)), expected);
    // The loop calls a C function, or runs the first frame itself.
    assert_eq!(walk(Some(frame_at(2)), &mut memory(&frames)), expected);
    assert_eq!(
        walk(Some(frame_at(1)), &mut memory(&[User, Top])),
        [vec![1, 2], vec![]]
    );
}

#[test]
fn a_loop_whose_frames_are_gone_has_none() {
    let frames = [Internal, User, Top];
    assert_eq!(
        walk(Some(0x77), &mut memory(&frames)),
        [vec![], vec![1, 2, 3]]
    );
}

#[test]
fn what_cannot_be_read_is_one_frame_in_each_native_one() {
    for missing in [frame_at(2), HEAP + 0x200] {
        let mut memory = memory(&[User, User, Top]);
        assert!(memory.words.remove(&missing).is_some());
        assert_eq!(walk(None, &mut memory), [vec![1, 99], vec![99]]);
    }
}

#[test]
fn generated_code_is_left_with_and_without_padding() {
    let layout = Layout {
        body: 0x25,
        frame_bytes: 0xa0,
        text_start: 0x10,
        text_end: 0x100,
        function_file: 0,
    };
    let before = Registers {
        ip: 1,
        sp: 0x7000,
        fp: 7,
        link: 0,
    };
    for (return_address, expected) in [
        (0x7098, Some(0x7000)),
        (0x70a8, Some(0x7010)),
        (0x70b8, None),
    ] {
        let mut memory = Memory::default();
        put(&mut memory, 0x7098, &[0x55_0000, 0, 0x66_0000]);
        put(&mut memory, return_address, &[0x40_0000 + 0x50]);
        let left = layout.leave_generated(&before, 0x40_0000, &mut memory);
        let expected = expected.map(|sp| Registers {
            ip: 0x40_0025,
            sp,
            ..before
        });
        assert_eq!(left, expected);
        assert_eq!(
            Layout::default().leave_generated(&before, 0x40_0000, &mut memory),
            None
        );
    }
}

#[test]
fn generated_code_is_left_by_the_frame_pointer_of_the_loop() {
    let layout = Layout {
        body: 0x25,
        text_start: 0x10,
        text_end: 0x100,
        ..Layout::default()
    };
    let before = Registers {
        ip: 1,
        sp: 0x7000,
        fp: 0x7040,
        link: 0,
    };
    for (caller, is_known) in [(0x40_0050, true), (0x50_0050, false)] {
        let mut memory = Memory::default();
        put(&mut memory, 0x7040, &[0x7100, caller]);
        let left = layout.leave_generated(&before, 0x40_0000, &mut memory);
        let expected = Registers {
            ip: 0x40_0025,
            ..before
        };
        assert_eq!(left, is_known.then_some(expected));
    }
}

proptest! {
    /// Over arbitrary memory the walk may be endless, so the caller stops it.
    #[test]
    fn any_memory_is_walked(words in proptest::collection::vec(0u64..64, 64), is_leaf in 0u64..2) {
        let mut memory = Memory::default();
        memory.words.extend((0..).step_by(8).zip(words.iter().map(|word| word * 8)));
        let mut walk = Walk {
            frame: 8,
            loop_frame: 16,
            loop_instruction: 24,
            is_leaf,
            is_lost: 0,
            function_file: 16,
        };
        for _ in 0..100 {
            if !matches!(walk.step(&mut memory), Step::Frame(..) | Step::Skip) {
                break;
            }
        }
    }
}
