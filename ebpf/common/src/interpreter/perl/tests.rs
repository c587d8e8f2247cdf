//! The walk along handmade contexts: all the ways in which those of a native frame begin and end, and damage.

use super::super::test_memory::Memory;
use super::super::thread_variable::place as variable;
use super::*;
use proptest::prelude::*;
use std::slice;
use std::vec;
use std::vec::Vec;

const LAYOUT: Layout = Layout {
    interpreter: ThreadVariable {
        place: variable::FIXED,
        offset: 0,
        table_shift: 4,
    },
    place: place::VARIABLE,
    operation: 0x8,
    statement: 0xd0,
    stack_info: 0xe0,
    context_bytes: 0x68,
    context_function: 9,
    file_is_glob: 1,
    enter_start: 0x100,
    enter_end: 0x200,
    catch_start: 0x300,
    catch_end: 0x400,
};
const INTERPRETER: u64 = 0x1000;
const STACKS: u64 = 0x2000;
const CONTEXTS: u64 = 0x10_0000;
const HEAP: u64 = 0x20_0000;
const FILE: u64 = 0x30_0000;
/// An operation outside of the C stack.
const OPERATION: u64 = 0x40_0000;
const NATIVE: NativeFrame = NativeFrame {
    sp: 0x7100,
    cfa: 0x7120,
    state: 0,
    file: 0,
    unused: 0,
};

#[derive(Clone, Copy)]
enum Context {
    /// By number; 0 is being left.
    Sub(u64),
    /// Called from C.
    Called(u64),
    /// Called from C, repeatedly.
    Multicall(u64),
    /// Code in a regular expression, in the current function.
    Pattern,
    /// The comparison of a sort.
    Sort,
    String,
    Block,
    Loop,
}

use Context::{Block, Called, Loop, Multicall, Pattern, Sort, String, Sub};

fn put(memory: &mut Memory, address: u64, words: &[u64]) {
    let places = (address..).step_by(8);
    memory.words.extend(places.zip(words.iter().copied()));
}

fn put_statement(memory: &mut Memory, number: u64) -> u64 {
    let statement = HEAP + number * 0x1000;
    let words = [number << 32, 0, FILE, number << 32];
    put(memory, statement + statement::START, &words);
    statement
}

fn put_function(memory: &mut Memory, number: u64) -> u64 {
    let at = HEAP + number * 0x1000;
    let (function, body) = (at + 0x100, at + 0x200);
    let (glob, glob_body, name) = (at + 0x300, at + 0x400, at + 0x500);
    let is_named = number % 2 == 1;
    let owner = if is_named { name } else { glob };
    let flags = if is_named { function::NAMED } else { 0 };
    put(memory, function, &[body]);
    put(memory, body + function::BODY, &[owner, 0, 0, 0, flags]);
    put(memory, glob, &[glob_body]);
    put(memory, glob_body + GLOB_NAME, &[name]);
    put(memory, name, &[number]);
    function
}

/// Stacks of contexts, innermost first. The statement before each context has the number of its place.
fn memory(operation: u64, stacks: &[&[Context]]) -> Memory {
    let mut memory = Memory::default();
    let mut statement = put_statement(&mut memory, 100);
    let mut number = 101;
    put(&mut memory, INTERPRETER + 0x8, &[operation]);
    put(&mut memory, INTERPRETER + 0xd0, &[statement, 0, STACKS]);
    put(&mut memory, FILE, &[FILE + 0x100]);
    put(&mut memory, FILE + 0x100 + GLOB_NAME, &[FILE + 0x200]);
    put(&mut memory, FILE + 0x200, &[77]);
    for (place, contexts) in (0..).zip(stacks) {
        let (info, base) = (STACKS + place * 0x100, CONTEXTS + place * 0x1_0000);
        let previous = match stacks.len() as u64 == place + 1 {
            true => 0,
            false => info + 0x100,
        };
        let last = (contexts.len() as u64).wrapping_sub(1) & 0xffff_ffff;
        put(&mut memory, info, &[0, base, previous, 0, last]);
        for (index, context) in (0..contexts.len() as u64).rev().zip(contexts.iter()) {
            statement = put_statement(&mut memory, number);
            number += 1;
            let (flags, is_returning, function) = match *context {
                Sub(function) => (context::FUNCTION, true, function),
                Called(function) => (context::FUNCTION, false, function),
                Multicall(function) => (context::FUNCTION | context::MULTICALL, false, function),
                Pattern => {
                    let flags = context::MULTICALL | context::PATTERN | context::FAKE;
                    (context::FUNCTION | flags, false, 50)
                }
                Sort => (context::NULL, false, 0),
                String => (context::EVAL | context::STRING, true, 0),
                Block => (context::EVAL | 0x40, false, 0),
                Loop => (7, false, 0),
            };
            let function = match function {
                0 => 0,
                function => put_function(&mut memory, function),
            };
            let mut words = [0; 10];
            words[context::KIND as usize] = flags;
            words[context::STATEMENT as usize] = statement;
            words[context::RETURN as usize] = u64::from(is_returning);
            words[LAYOUT.context_function as usize] = function;
            put(&mut memory, base + index * 0x68, &words);
        }
    }
    memory
}

/// The frames of each native frame, as (function, number of the statement). The main program is 1000, an eval 1001, and an
/// unreadable frame 99.
fn walk(memory: &mut Memory, natives: &[Around]) -> Vec<Vec<(u64, u64)>> {
    let mut walk = Walk::begin(&LAYOUT, INTERPRETER, memory).unwrap();
    let natives = natives.iter();
    natives
        .map(
            |around| match walk.enter(&LAYOUT, &NATIVE, around, memory) {
                true => functions(&mut walk, memory),
                false => vec![],
            },
        )
        .collect()
}

fn functions(walk: &mut Walk, memory: &mut Memory) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for _ in 0..100 {
        let (address, detail, is_last) = match walk.step(&LAYOUT, memory) {
            Step::Frame(address, detail) => (address, detail, false),
            Step::Last(address, detail) => (address, detail, true),
            Step::Skip => continue,
            Step::End | Step::NotEntered => return found,
        };
        let statement = address.wrapping_sub(HEAP) / 0x1000;
        if address == 0 {
            assert_eq!(detail.position(), unreadable::MEMORY);
            found.push((99, 0));
        } else if Function::is_in(address) {
            let function = Function::from_detail(detail);
            let number = (function.address - HEAP) / 0x1000;
            let expected = fingerprint(number as u32, statement as u32, statement as u32);
            assert_eq!(function.fingerprint, expected);
            let owner = if number % 2 == 1 { 0x100 } else { 0x300 };
            assert_eq!(function.address, HEAP + number * 0x1000 + owner);
            found.push((number, statement));
        } else {
            assert_eq!(
                (detail.generation(), detail.position()),
                (77, statement as u32)
            );
            let kind = match address & kind::MASK {
                kind::MAIN => 1000,
                kind::EVAL => 1001,
                kind => panic!("kind {kind}"),
            };
            found.push((kind, statement));
        }
        if is_last {
            return found;
        }
    }
    panic!("it does not end: {found:?}");
}

const LEAF: Around = Around {
    is_leaf: true,
    leaf: 0x50,
    leaf_sp: 0x7000,
    caller: 0x50,
};
const CALLER: Around = Around {
    is_leaf: false,
    ..LEAF
};

#[test]
fn functions_have_the_statement_before_the_context_above() {
    let contexts: &[Context] = &[Loop, Sub(1), Block, Sub(2), String, Sub(3)];
    let expected = vec![(1, 100), (2, 102), (1001, 104), (3, 105), (1000, 106)];
    let mut memory = memory(OPERATION, &[contexts]);
    assert_eq!(walk(&mut memory, &[LEAF]), slice::from_ref(&expected));
    assert_eq!(walk(&mut memory, &[CALLER, CALLER]), [expected, vec![]]);
}

#[test]
fn frames_end_where_c_called_them() {
    let stacks: &[&[Context]] = &[&[Sub(1), Called(2), Block, Sub(3)], &[Sub(4)]];
    assert_eq!(
        walk(&mut memory(OPERATION, stacks), &[CALLER, CALLER]),
        [
            vec![(1, 100), (2, 101)],
            vec![(3, 102), (4, 104), (1000, 105)]
        ]
    );
}

#[test]
fn a_block_that_c_runs_belongs_to_its_function() {
    for block in [Sort, Pattern] {
        let stacks: &[&[Context]] = &[&[Sub(1), block], &[Sub(2)]];
        let expected = [vec![(1, 100)], vec![(2, 101), (1000, 103)]];
        assert_eq!(
            walk(&mut memory(OPERATION, stacks), &[LEAF, CALLER]),
            expected
        );
        // Its last operation calls a function, which returns to nothing.
        let stacks: &[&[Context]] = &[&[Called(1), block], &[Sub(2)]];
        assert_eq!(
            walk(&mut memory(OPERATION, stacks), &[LEAF, CALLER]),
            expected
        );
    }
}

#[test]
fn a_comparison_does_not_run_between_two_calls() {
    for comparison in [Sort, Multicall(1)] {
        let stacks: &[&[Context]] = &[&[comparison], &[Sub(2)]];
        let outer = vec![(2, 100), (1000, 102)];
        assert_eq!(
            walk(&mut memory(0, stacks), &[CALLER]),
            slice::from_ref(&outer)
        );
        // The loop has just ended.
        assert_eq!(
            walk(&mut memory(0, stacks), &[LEAF, CALLER]),
            [vec![], outer]
        );
    }
}

#[test]
fn a_function_that_c_begins_to_call_does_not_run_yet() {
    let entering = Around {
        leaf: 0x150,
        ..CALLER
    };
    let stacks: &[&[Context]] = &[&[Called(1), Sub(2)]];
    let outer = vec![(2, 101), (1000, 102)];
    let inner = vec![(1, 100)];
    assert_eq!(
        walk(&mut memory(0x7080, stacks), &[entering]),
        slice::from_ref(&outer)
    );
    // The operation is on the C stack, but another function runs; and the opposite.
    let expected = [inner, outer];
    assert_eq!(
        walk(&mut memory(0x7080, stacks), &[CALLER, CALLER]),
        expected
    );
    assert_eq!(
        walk(&mut memory(OPERATION, stacks), &[entering, CALLER]),
        expected
    );
}

#[test]
fn a_continued_function_is_in_its_last_loop() {
    let continued = Around {
        caller: 0x350,
        ..CALLER
    };
    let stacks: &[&[Context]] = &[&[Block, Called(1), Sub(2)]];
    assert_eq!(
        walk(&mut memory(OPERATION, stacks), &[continued, CALLER, CALLER]),
        [vec![(1, 100)], vec![], vec![(2, 102), (1000, 103)]]
    );
}

#[test]
fn a_function_that_is_left_is_not_shown() {
    let stacks: &[&[Context]] = &[&[Sub(0), Sub(2)]];
    let expected = [vec![(2, 101), (1000, 102)]];
    assert_eq!(walk(&mut memory(OPERATION, stacks), &[LEAF]), expected);
}

#[test]
fn what_cannot_be_read_is_one_frame() {
    let stacks: &[&[Context]] = &[&[Sub(1), Sub(2)]];
    // A function: the others are still known.
    let mut memory = memory(OPERATION, stacks);
    memory.words.remove(&(HEAP + 0x1100));
    let expected = [vec![(99, 0), (2, 101), (1000, 102)]];
    assert_eq!(walk(&mut memory, &[LEAF]), expected);
    // A context: nothing below it is.
    memory.words.remove(&CONTEXTS);
    let expected = [vec![(99, 0), (99, 0)], vec![(99, 0)]];
    assert_eq!(walk(&mut memory, &[LEAF, CALLER]), expected);
    memory.words.remove(&STACKS);
    assert_eq!(walk(&mut memory, &[LEAF]), [vec![(99, 0)]]);
    memory.words.remove(&(INTERPRETER + 0xd0));
    assert_eq!(Walk::begin(&LAYOUT, INTERPRETER, &mut memory), None);
    assert_eq!(Walk::begin(&LAYOUT, 0, &mut memory), None);
}

#[test]
fn an_interpreter_is_found_in_each_way() {
    let mut memory = Memory::default();
    put(&mut memory, 0x4000, &[77]);
    for (place, expected) in [
        (place::VARIABLE, 77),
        (place::VALUE, 0x4000),
        (place::GLOBAL, 0x100),
    ] {
        let layout = Layout { place, ..LAYOUT };
        let found = find_interpreter(&layout, 0x100, 0x4000, &mut memory);
        assert_eq!(found, Some(expected));
    }
}

#[test]
fn only_the_text_before_its_end_counts() {
    let of = |text: &[u8]| {
        let mut bytes = [0xaa; TEXT_BYTES as usize];
        bytes[..text.len()].copy_from_slice(text);
        let (words, _) = bytes.as_chunks();
        text_fingerprint(|index| u64::from_le_bytes(words[index as usize]))
    };
    for length in 0..TEXT_BYTES as usize {
        let mut text = vec![b'a'; length];
        text.push(0);
        let ended = of(&text);
        text.extend(&b"bcdefghi"[..8.min(TEXT_BYTES as usize - 1 - length)]);
        assert_eq!(of(&text), ended, "{length}");
        if length > 0 {
            text[length - 1] = b'b';
            assert_ne!(of(&text), ended, "{length}");
        }
    }
}

proptest! {
    #[test]
    fn a_detail_holds_its_function(address in 0u64..1 << 44, fingerprint in 0u32..1 << 20) {
        let function = Function { address: address << 3, fingerprint };
        prop_assert_eq!(Function::from_detail(function.detail()), function);
    }

    /// Over arbitrary memory the walk may be endless, so the caller stops it.
    #[test]
    fn any_memory_is_walked(
        words in proptest::collection::vec(0u64..64, 64),
        operation in 0u64..3,
        is_leaf: bool,
    ) {
        let mut memory = Memory::default();
        memory.words.extend((0..).step_by(8).zip(words.iter().map(|word| word * 8 + 9)));
        let mut walk = Walk { previous: 8, statement: 16, operation, ..Walk::default() };
        let around = Around { is_leaf, ..LEAF };
        if walk.enter(&LAYOUT, &NATIVE, &around, &mut memory) {
            for _ in 0..100 {
                if !matches!(walk.step(&LAYOUT, &mut memory), Step::Frame(..) | Step::Skip) {
                    break;
                }
            }
        }
    }
}
