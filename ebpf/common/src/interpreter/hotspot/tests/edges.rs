//! The innermost frame in prologues and epilogues, recognized by the code around.

use super::*;
use std::vec;
use std::vec::Vec;

const RETURN: u64 = HEAP + 0x9_9999;
const CALLER_FP: u64 = STACK + 0x800;

const BANG: &[u8] = &[0x89, 0x84, 0x24, 0, 0xc0, 0xfe, 0xff];
const PUSH: &[u8] = &[0x55];
const MOVE: &[u8] = &[0x48, 0x8b, 0xec];
const SUB: &[u8] = &[0x48, 0x83, 0xec, 0x20];
const LONG_SUB: &[u8] = &[0x48, 0x81, 0xec, 0x28, 0, 0, 0];
const SAVE: &[u8] = &[0x48, 0x89, 0x6c, 0x24, 0x20];
const ADD: &[u8] = &[0x48, 0x83, 0xc4, 0x20];
const POP: &[u8] = &[0x5d];
const COMPARE: &[u8] = &[0x49, 0x3b, 0xa7, 0x40, 3, 0, 0];
const JUMP: &[u8] = &[0x0f, 0x87, 1, 2, 3, 0];
const LOAD_POLL: &[u8] = &[0x4d, 0x8b, 0x97, 8, 1, 0, 0];
const TEST_POLL: &[u8] = &[0x41, 0x85, 0x02];
const OLD_POLL: &[u8] = &[0x85, 0x05, 1, 2, 3, 0];
const RET: &[u8] = &[0xc3];
const BODY: &[u8] = &[0x48, 0x8b, 0xd8];

/// How much of the frame is on the stack, and whether the caller's frame pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    None,
    Pushed,
    Unsaved,
    All,
}

/// Code with the expected state at each instruction; it is after the prologue if
/// `frame_complete` is 0.
fn check(frame_complete: u32, code: &[(&[u8], State)]) {
    let mut memory = Memory::default();
    let begin = memory.blob(&Made {
        at: 0x2_0000,
        bytes: 0x800,
        name: "nmethod",
        frame_words: 6,
        frame_complete,
    });
    let bytes: Vec<u8> = code.iter().flat_map(|(bytes, _)| *bytes).copied().collect();
    memory.set_bytes(begin, &bytes);
    let mut pc = begin;
    for (instruction, state) in code {
        let (cfa, stack) = match state {
            State::None => (8, vec![RETURN]),
            State::Pushed => (16, vec![CALLER_FP, RETURN]),
            State::Unsaved => (FRAME_BYTES, vec![0, 0, 0, 0, 0, RETURN]),
            State::All => (FRAME_BYTES, vec![0, 0, 0, 0, CALLER_FP, RETURN]),
        };
        memory.set(STACK, &stack);
        let fp = match state {
            State::None | State::Unsaved => CALLER_FP,
            State::Pushed | State::All => STACK + 0x400,
        };
        let mut walk = Walk { fp, ..top(pc) };
        step(&mut walk, &mut memory).expect("it is readable");
        let expected = (RETURN, STACK + cfa, CALLER_FP);
        assert_eq!(registers(&walk), expected, "{instruction:x?} {state:?}");
        pc += instruction.len() as u64;
    }
}

#[test]
fn prologues_of_each_form() {
    let none = State::None;
    let (pushed, all) = (State::Pushed, State::All);
    check(
        13,
        &[(BANG, none), (PUSH, none), (SUB, pushed), (BODY, all)],
    );
    check(
        16,
        &[
            (BANG, none),
            (PUSH, none),
            (LONG_SUB, pushed),
            (COMPARE, all),
            (BODY, all),
        ],
    );
    check(12, &[(LONG_SUB, none), (SAVE, State::Unsaved), (BODY, all)]);
    check(
        15,
        &[
            (BANG, none),
            (PUSH, none),
            (MOVE, pushed),
            (SUB, pushed),
            (BODY, all),
        ],
    );
}

#[test]
fn epilogues_of_each_release() {
    let none = State::None;
    let (pushed, all) = (State::Pushed, State::All);
    check(0, &[(BODY, all), (ADD, all), (POP, pushed), (RET, none)]);
    check(
        0,
        &[(ADD, all), (POP, pushed), (OLD_POLL, none), (RET, none)],
    );
    check(
        0,
        &[
            (ADD, all),
            (POP, pushed),
            (LOAD_POLL, none),
            (TEST_POLL, none),
            (RET, none),
        ],
    );
    check(
        0,
        &[
            (ADD, all),
            (POP, pushed),
            (COMPARE, none),
            (JUMP, none),
            (RET, none),
        ],
    );
    // The same instructions elsewhere are not an epilogue.
    check(0, &[(COMPARE, all), (JUMP, all), (BODY, all), (BODY, all)]);
}

#[test]
fn an_edge_is_of_no_inlined_function() {
    let mut memory = Memory::default();
    let code = memory.nmethod(0x2_0000);
    memory.set_bytes(code + 0x40, &[ADD, POP, RET].concat());
    memory.set(STACK, &[RETURN; 6]);
    for (offset, position) in [(0, EDGE), (0x30, 0x30), (0x40, EDGE), (0x44, EDGE)] {
        let found = step(&mut top(code + offset), &mut memory).expect("it is readable");
        assert_eq!(found.detail.position(), position, "{offset:x}");
    }
}

/// A stub that is the innermost frame.
fn stub(name: &str, frame_words: u32, code: &[u8]) -> (Memory, Walk) {
    let mut memory = Memory::default();
    let begin = memory.blob(&Made {
        at: 0x2_0000,
        bytes: 0x800,
        name,
        frame_words,
        frame_complete: 0,
    });
    memory.set_bytes(begin + 0x100, code);
    (memory, top(begin + 0x100))
}

#[test]
fn stubs_are_left_by_what_they_keep() {
    // By the return address on top, by a frame pointer pair, by a frame size.
    let (mut memory, mut walk) = stub("vtable chunks", 0, BODY);
    walk.bcp = STACK + 0x40;
    memory.set(STACK, &[RETURN]);
    step(&mut walk, &mut memory).expect("it is readable");
    assert_eq!(registers(&walk), (RETURN, STACK + 8, CALLER_FP));

    let (mut memory, mut walk) = stub("StubRoutines (1)", 0, BODY);
    walk.fp = STACK + 16;
    memory.set(STACK, &[HEAP + 1, 0, CALLER_FP, RETURN]);
    step(&mut walk, &mut memory).expect("it is readable");
    assert_eq!(registers(&walk), (RETURN, STACK + 32, CALLER_FP));

    let (mut memory, mut walk) = stub("_new_array_Java", 4, BODY);
    memory.set(STACK, &[0, 0, CALLER_FP, RETURN]);
    step(&mut walk, &mut memory).expect("it is readable");
    assert_eq!(registers(&walk), (RETURN, STACK + 32, CALLER_FP));

    let (mut memory, mut walk) = stub("StubRoutines (1)", 0, &[PUSH, MOVE].concat());
    memory.set(STACK, &[RETURN]);
    step(&mut walk, &mut memory).expect("it is readable");
    assert_eq!(registers(&walk), (RETURN, STACK + 8, CALLER_FP));
}

#[test]
fn stubs_that_the_runtime_calls_return_to_it() {
    for code in [
        &[0x8b, 0x37, 0x48, 0x8b, 0xc6, 0xc3][..],
        &[0x48, 0x8b, 0x37, 0x48, 0x8b, 0xc6, 0xc3],
        &[0x48, 0x8b, 0xc6, 0xc3],
    ] {
        let (mut memory, mut walk) = stub("StubRoutines (1)", 0, code);
        let native = 0x7f00_0000_1234;
        memory.set(STACK, &[native]);
        step(&mut walk, &mut memory).expect("it is readable");
        assert_eq!(registers(&walk), (native, STACK + 8, CALLER_FP));
    }
}

#[test]
fn adapters_move_what_is_above_the_return_address() {
    let (mut memory, walk) = stub("I2C/C2I adapters", 0, BODY);
    memory.set(STACK, &[RETURN]);
    // A compiled caller has an arbitrary value in r13.
    let mut called = Walk {
        bcp: STACK + 0x58,
        ..walk
    };
    step(&mut called, &mut memory).expect("it is readable");
    assert_eq!(registers(&called), (RETURN, STACK + 8, CALLER_FP));
    memory.set(STACK, &[0]);
    let mut moving = Walk {
        bcp: STACK + 0x40,
        result: RETURN,
        ..walk
    };
    step(&mut moving, &mut memory).expect("it is readable");
    assert_eq!(registers(&moving), (RETURN, STACK + 0x40, CALLER_FP));
    memory.set(STACK, &[RETURN]);
    let mut moved = Walk {
        bcp: STACK + 0x40,
        result: RETURN,
        ..walk
    };
    step(&mut moved, &mut memory).expect("it is readable");
    assert_eq!(registers(&moved), (RETURN, STACK + 0x40, CALLER_FP));
}

#[test]
fn a_stub_may_have_a_return_address_on_top_of_its_frame() {
    let (mut memory, mut walk) = stub("_rethrow_Java", 4, BODY);
    memory.set(STACK, &[RETURN, 0, CALLER_FP, RETURN]);
    walk.fp = 3;
    step(&mut walk, &mut memory).expect("it is readable");
    assert_eq!(registers(&walk), (RETURN, STACK + 32, CALLER_FP));
}
