//! Walks handmade control frames: every way in which those of a native frame begin and end, and corrupt memory.

use super::super::test_memory::Memory;
use super::super::thread_variable::place;
use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const LAYOUT: Layout = Layout {
    context: ThreadVariable {
        place: place::FIXED,
        offset: 0,
        table_shift: 4,
    },
    frame_bytes: 64,
    loop_start: 0,
    loop_end: 0,
};
const CONTEXT: u64 = 0x1000;
const STACK: u64 = 0x2000;
const HEAP: u64 = 0x10_0000;
const METHODS: u64 = 0x20_0000;
/// Frames of `rb_vm_exec`, innermost first, and the tag of the first.
const NATIVE: [NativeFrame; 2] = [native(0x7000, 0x7100), native(0x7200, 0x7300)];
const TAG: u64 = 0x7080;

const fn native(sp: u64, cfa: u64) -> NativeFrame {
    NativeFrame {
        sp,
        cfa,
        state: 0,
        file: 16,
        unused: 0,
    }
}

#[derive(Clone, Copy)]
enum Kind {
    C,
    Method,
    /// The last frame of a native frame.
    Entered,
    /// The same, before its first instruction.
    New,
}

/// Frames numbered from 1, innermost first, and one without a function.
fn memory(frames: &[Kind]) -> Memory {
    let mut memory = Memory::default();
    let size = u64::from(LAYOUT.frame_bytes);
    let words = (frames.len() as u64 + 1) * size / 8;
    put(&mut memory, CONTEXT, &[STACK, words, STACK, TAG]);
    for (number, kind) in (1..).zip(frames) {
        let sequence = HEAP + number * 0x100;
        let (body, environment) = (sequence + 0x40, sequence + 0x90);
        let instructions = sequence + 0xc0;
        let flags = match kind {
            C => flag::C | flag::LOCAL,
            Method => flag::LOCAL,
            Entered | New => flag::LOCAL | flag::FINISH,
        };
        let at = match kind {
            C => 0,
            New => instructions,
            Method | Entered => instructions + 24,
        };
        let frame = STACK + (number - 1) * size;
        put(
            &mut memory,
            frame,
            &[at, 0, sequence, 0, environment, 0, 0, 0],
        );
        let method = METHODS + number * 0x10;
        put(&mut memory, environment - 16, &[method, 0, flags]);
        put(&mut memory, method, &[internal::METHOD << 12, 0]);
        put(&mut memory, sequence + 16, &[body]);
        put(&mut memory, body, &[0, instructions]);
    }
    memory
}

fn put(memory: &mut Memory, address: u64, words: &[u64]) {
    let places = (address..).step_by(8);
    memory.words.extend(places.zip(words.iter().copied()));
}

/// The functions of a native frame, by number; 99 is an unreadable one.
fn functions(walk: &mut Walk, native: &NativeFrame, memory: &mut Memory) -> Vec<u64> {
    let mut found = Vec::new();
    for _ in 0..100 {
        let (function, detail, is_last) = match walk.step(&LAYOUT, native, memory) {
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
        let read = Function::from_detail(detail);
        assert!(read.position == 3 || read.position == 0);
        assert_eq!(u64::from(read.method) << 3, METHODS + number * 0x10);
        found.push(number);
        if is_last {
            return found;
        }
    }
    panic!("it does not end: {found:?}");
}

fn walk(above: u64, memory: &mut Memory) -> Vec<Vec<u64>> {
    let mut walk = Walk::begin(CONTEXT, above, memory).expect("the context is readable");
    let natives = NATIVE.iter();
    natives
        .map(|native| functions(&mut walk, native, memory))
        .collect()
}

use Kind::{C, Entered, Method, New};

#[test]
fn frames_end_where_they_were_entered() {
    let frames = [C, Method, Entered, C, C, Method, Method, Entered];
    let expected = [vec![2, 3], vec![6, 7, 8]];
    assert_eq!(walk(above::CALLED, &mut memory(&frames)), expected);
    assert_eq!(
        walk(above::LOOP, &mut memory(&frames[1..])),
        [vec![1, 2], vec![5, 6, 7]]
    );
}

#[test]
fn a_frame_whose_native_one_is_not_there_yet_is_left_out() {
    let frames = [New, C, Method, Entered, C, Entered];
    assert_eq!(
        walk(above::CALLED, &mut memory(&frames)),
        [vec![3, 4], vec![6]]
    );
    // Now with the native frame.
    let expected = [vec![1], vec![3, 4]];
    assert_eq!(walk(above::LOOP, &mut memory(&frames)), expected);
    assert_eq!(walk(above::ENTRY, &mut memory(&frames)), expected);
}

#[test]
fn a_native_frame_whose_frames_are_gone_has_none() {
    let frames = [C, Method, Entered];
    assert_eq!(
        walk(above::LOOP, &mut memory(&frames)),
        [vec![], vec![2, 3]]
    );
    let mut left = memory(&frames);
    put(&mut left, CONTEXT + 24, &[0x7280]);
    assert_eq!(walk(above::ENTRY, &mut left), [vec![], vec![2, 3]]);
    let mut left = memory(&frames[1..]);
    put(&mut left, CONTEXT + 24, &[0x7280]);
    assert_eq!(walk(above::ENTRY, &mut left), [vec![], vec![1, 2]]);
    // While an exception is handled.
    assert_eq!(
        walk(above::ENTRY, &mut memory(&frames[1..])),
        [vec![1, 2], vec![]]
    );
}

#[test]
fn what_cannot_be_read_is_one_frame_in_each_native_one() {
    let frames = [Method, Method, Entered, C, Entered];
    for missing in [STACK + 64, HEAP + 0x200 + 0x80, HEAP + 0x210, HEAP + 0x240] {
        let mut memory = memory(&frames);
        assert!(memory.words.remove(&missing).is_some());
        assert_eq!(
            walk(above::LOOP, &mut memory),
            [vec![1, 99], vec![99]],
            "{missing:x}"
        );
    }
}

#[test]
fn blocks_have_the_method_around_them() {
    let mut memory = memory(&[Entered]);
    let (block, outer) = (HEAP + 0x190, HEAP + 0x800);
    let variables = HEAP + 0x900;
    put(&mut memory, block - 16, &[0, outer | 1, flag::FINISH]);
    put(&mut memory, outer - 16, &[variables, 0, flag::LOCAL]);
    let method = METHODS + 0x10;
    put(&mut memory, variables, &[internal::VARIABLES << 12, method]);
    assert_eq!(walk(above::LOOP, &mut memory), [vec![1], vec![]]);
}

#[test]
fn a_context_that_is_none_is_refused() {
    for words in [
        [STACK, 8, STACK + 64, TAG],
        [STACK, 8, STACK - 8, TAG],
        [0; 4],
    ] {
        let mut memory = memory(&[Method]);
        put(&mut memory, CONTEXT, &words);
        assert_eq!(Walk::begin(CONTEXT, above::LOOP, &mut memory), None);
    }
}

#[test]
fn generated_code_is_left_by_the_tag_of_its_caller() {
    let mut memory = memory(&[Method]);
    // Of an `ensure` above the code, of the function that called it, and of one with an odd stack.
    put(&mut memory, TAG + 56, &[0x7280]);
    put(&mut memory, 0x7280 + 16, &[0x72f0, 0x40_0000, 0x7200]);
    put(&mut memory, 0x7280 + 56, &[0x7480]);
    put(&mut memory, 0x7480 + 16, &[0x74f0, 0x40_0000, 0x7100]);
    put(&mut memory, 0x7480 + 56, &[0]);
    let walk = Walk::begin(CONTEXT, above::MET, &mut memory).unwrap();
    let expected = Registers {
        ip: 0x40_0000,
        sp: 0x7200,
        fp: 0x72f0,
        link: 0,
    };
    assert_eq!(walk.leave_generated(0x7180, &mut memory), Some(expected));
    assert_eq!(walk.leave_generated(0x7300, &mut memory), None);
    assert_eq!(walk.leave_generated(0x7500, &mut memory), None);
}

#[test]
fn a_thread_has_its_context_in_each_way() {
    let pointer = 0x4000;
    for (kind, words, expected) in [
        (place::FIXED, &[(pointer - 8, 77)][..], Some(77)),
        (
            place::OFFSET,
            &[(0x100, 0x40), (pointer + 0x38, 77)],
            Some(77),
        ),
        (
            place::MODULE,
            &[
                (0x100, 2),
                (0x108, 0x20),
                (pointer + 8, 0x500),
                (0x520, 0x600),
                (0x618, 77),
            ],
            Some(77),
        ),
        (
            place::KEY,
            &[(0x100, 3), (pointer + 0x348, 0x700), (0x6f8, 77)],
            Some(77),
        ),
        (place::KEY, &[(0x100, 32)], None),
        (place::MODULE, &[(0x100, 2)], None),
    ] {
        let mut memory = Memory::default();
        memory.words.extend(words.iter().copied());
        let layout = Layout {
            context: ThreadVariable {
                place: kind,
                offset: -8i32 as u32,
                ..LAYOUT.context
            },
            ..LAYOUT
        };
        let found = find_context(&layout, 0x100, pointer, &mut memory);
        assert_eq!(found, expected, "{kind}");
    }
}

proptest! {
    /// Over arbitrary memory the walk may be endless, so the caller stops it.
    #[test]
    fn any_memory_is_walked(
        words in proptest::collection::vec(0u64..64, 64),
        above in 0u64..5,
        sp in 0u64..64,
    ) {
        let mut memory = Memory::default();
        memory.words.extend((0..).step_by(8).zip(words.iter().map(|word| word * 8)));
        let native = native(sp * 8, sp * 8 + 64);
        let mut walk = Walk::begin(8, above, &mut memory).unwrap_or_default();
        for _ in 0..100 {
            if !matches!(walk.step(&LAYOUT, &native, &mut memory), Step::Frame(..) | Step::Skip) {
                break;
            }
        }
    }
}
