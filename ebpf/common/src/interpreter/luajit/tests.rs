//! The walk along handmade stacks: all the ways in which frames are linked, native frames, and damage.

use super::super::test_memory::Memory;
use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const LAYOUT: Layout = Layout {
    current: 0x170,
    body: 0x40,
};
const GLOBAL: u64 = 0x1000;
const STATE: u64 = 0x2000;
/// The start of the stack; its frames grow up.
const STACK: u64 = 0x10_0000;
const FUNCTIONS: u64 = 0x20_0000;
/// The stack pointers of native frames, innermost first.
const NATIVES: [u64; 2] = [0x7f00, 0x7f80];
/// The instruction in each prototype after which it is, and the register of its call.
const POSITION: u64 = 5;
const REGISTER: u64 = 3;

#[derive(Clone, Copy, Debug)]
enum Link {
    Lua,
    Called,
    Protected,
    Continued,
    Callback,
    Variadic,
}

use Link::{Callback, Called, Continued, Lua, Protected, Variadic};

fn put(memory: &mut Memory, address: u64, words: &[u64]) {
    let places = (address..).step_by(8);
    memory.words.extend(places.zip(words.iter().copied()));
}

fn prototype_of(number: u64) -> u64 {
    FUNCTIONS + number * 0x1000 + 0x100
}

/// The instruction after the current one of a function.
fn instruction_of(number: u64) -> u64 {
    prototype_of(number) + prototype::BYTES + (POSITION + 1) * 4
}

fn put_function(memory: &mut Memory, number: u64, is_c: bool) -> u64 {
    let function = FUNCTIONS + number * 0x1000;
    let prototype = prototype_of(number);
    let code = prototype + prototype::BYTES;
    let header = function::KIND << 8 | u64::from(is_c) << 16;
    put(memory, function + 8, &[header, 0, 0, code]);
    let mut words = vec![0; 13];
    words[prototype::HEADER as usize] = 10 << 32 | prototype::KIND << 8;
    words[prototype::LINES as usize] = 2 << 32 | number;
    put(memory, prototype, &words);
    // The call: its register is the second byte.
    put(memory, instruction_of(number) - 4, &[REGISTER << 8]);
    FUNCTION_TAG << 47 | function
}

/// A stack of functions, outermost first, each with the way in which the one above it was entered. Returns the
/// memory and the base of the innermost one.
fn memory(frames: &[(u64, Link)]) -> (Memory, u64) {
    let mut memory = Memory::default();
    let mut base = STACK + frame::BOTTOM;
    let mut previous = 0;
    for &(number, link) in frames {
        let distance = match link {
            Lua => (2 + REGISTER) * 8,
            _ => 0x40,
        };
        base += distance;
        let word = match link {
            Lua => instruction_of(previous),
            Called => distance | frame::C,
            Protected => distance | frame::PROTECTED_C,
            Continued | Callback => distance | frame::CONTINUES,
            Variadic => distance | frame::VARIADIC,
        };
        let continuation = match link {
            Continued => 0x5000,
            Callback => frame::CALLBACK,
            _ => 0,
        };
        let function = put_function(&mut memory, number, number >= 100);
        put(
            &mut memory,
            base - u64::from(frame::BYTES),
            &[continuation, instruction_of(previous), function, word],
        );
        previous = number;
    }
    put(&mut memory, GLOBAL + 0x170, &[STATE, 0]);
    let mut state = vec![0; 9];
    state[state::GLOBAL as usize] = GLOBAL;
    state[state::BASE as usize] = base;
    state[state::STACK_END as usize] = STACK + 0x1_0000;
    state[state::STACK as usize] = STACK;
    state[state::NATIVE as usize] = NATIVES[0] | 1;
    put(&mut memory, STATE + state::START, &state);
    put(
        &mut memory,
        NATIVES[0],
        &[0, 0, STATE, instruction_of(previous), NATIVES[1]],
    );
    put(&mut memory, NATIVES[1], &[0, 0, STATE, 0, 0]);
    (memory, base)
}

/// The numbers of the functions that belong to a native frame, innermost first, and whether an instruction called
/// them.
fn functions(
    walk: &mut Walk,
    native: u64,
    machine: &Machine,
    memory: &mut Memory,
) -> Vec<(u64, bool)> {
    let mut found = Vec::new();
    if !walk.enter(&LAYOUT, native, machine, memory) {
        return found;
    }
    for _ in 0..100 {
        let step = walk.step(memory);
        if let Step::Frame(address, detail) | Step::Last(address, detail) = step {
            let is_called = detail.position() & position::CALLED != 0;
            found.push((address.wrapping_sub(0x100 + FUNCTIONS) / 0x1000, is_called));
        }
        if !matches!(step, Step::Frame(..) | Step::Skip) {
            return found;
        }
    }
    panic!("the walk does not end");
}

#[test]
fn each_native_frame_has_the_functions_up_to_the_call_from_c() {
    let frames = [
        (1, Protected),
        (2, Lua),
        (100, Lua),
        (3, Called),
        (4, Continued),
        (4, Variadic),
        (5, Lua),
    ];
    let (mut memory, _) = memory(&frames);
    let mut walk = Walk::default();
    let machine = Machine::default();
    let inner = functions(&mut walk, NATIVES[0], &machine, &mut memory);
    assert_eq!(inner, [(5, true), (4, true), (3, false)]);
    let outer = functions(&mut walk, NATIVES[1], &machine, &mut memory);
    assert_eq!(outer, [(2, true), (1, false)]);
}

#[test]
fn a_callback_from_c_ends_the_functions_of_a_native_frame() {
    let (mut memory, _) = memory(&[(1, Protected), (2, Callback), (3, Lua)]);
    let mut walk = Walk::default();
    let machine = Machine::default();
    let inner = functions(&mut walk, NATIVES[0], &machine, &mut memory);
    assert_eq!(inner, [(3, true), (2, false)]);
    let outer = functions(&mut walk, NATIVES[1], &machine, &mut memory);
    assert_eq!(outer, [(1, false)]);
}

#[test]
fn a_native_frame_that_is_not_linked_has_no_functions() {
    let (mut memory, _) = memory(&[(1, Protected)]);
    let mut walk = Walk::default();
    put(&mut memory, 0x7e00, &[0, 0, STATE, 0, 0]);
    let machine = Machine::default();
    assert_eq!(functions(&mut walk, 0x7e00, &machine, &mut memory), []);
    let found = functions(&mut walk, NATIVES[0], &machine, &mut memory);
    assert_eq!(found, [(1, false)]);
}

#[test]
fn a_native_frame_that_runs_c_has_no_functions_below_its_start() {
    let (mut memory, base) = memory(&[(1, Protected), (2, Lua)]);
    let mut walk = Walk::default();
    let start = (base - STACK) as u32;
    let negative = u64::from(start.wrapping_neg());
    put(&mut memory, NATIVES[0] + 8, &[negative]);
    let machine = Machine::default();
    assert_eq!(functions(&mut walk, NATIVES[0], &machine, &mut memory), []);
    let outer = functions(&mut walk, NATIVES[1], &machine, &mut memory);
    assert_eq!(outer, [(2, true), (1, false)]);
}

#[test]
fn registers_tell_the_innermost_frame() {
    let (mut memory, base) = memory(&[(1, Protected), (2, Lua), (3, Lua)]);
    put(&mut memory, 0x9000, &[0]);
    // The state has a frame that was left since.
    put(&mut memory, STATE + state::START + 16, &[STACK + 0x800]);
    let machine = Machine {
        is_leaf: true,
        ip: 0x9000,
        base,
        instruction: instruction_of(3),
        fp: 0,
    };
    let found = functions(&mut Walk::default(), NATIVES[0], &machine, &mut memory);
    assert_eq!(found, [(3, true), (2, true), (1, false)]);
    // It returns: its code is not run anymore.
    let left = Machine {
        instruction: instruction_of(2),
        ..machine
    };
    let found = functions(&mut Walk::default(), NATIVES[0], &left, &mut memory);
    assert_eq!(found, [(2, true), (1, false)]);
    // It is called: the return address is not stored yet.
    put(&mut memory, 0x9000, &[STORES_RETURN.into()]);
    put(&mut memory, base - 8, &[0x1234_5678]);
    let found = functions(&mut Walk::default(), NATIVES[0], &left, &mut memory);
    assert_eq!(found, [(2, true), (1, false)]);
}

#[test]
fn c_functions_of_the_machine_keep_the_base_in_the_frame_pointer() {
    let (mut memory, base) = memory(&[(1, Protected), (2, Lua), (100, Lua)]);
    put(&mut memory, STATE + state::START + 16, &[STACK + 0x800]);
    let machine = Machine {
        fp: base,
        ..Machine::default()
    };
    let found = functions(&mut Walk::default(), NATIVES[0], &machine, &mut memory);
    assert_eq!(found, [(2, true), (1, false)]);
}

#[test]
fn a_trace_has_the_function_that_entered_it_without_a_position() {
    let (mut memory, base) = memory(&[(1, Protected), (2, Lua)]);
    put(&mut memory, GLOBAL + 0x170, &[STATE, base]);
    put(&mut memory, STATE + state::START + 16, &[STACK + 0x800]);
    let mut walk = Walk::default();
    assert!(walk.enter(&LAYOUT, NATIVES[0], &Machine::default(), &mut memory));
    let Step::Frame(_, detail) = walk.step(&mut memory) else {
        panic!("is a frame");
    };
    assert_eq!(detail.position(), position::CALLED | position::UNKNOWN);
}

#[test]
fn the_native_frame_of_a_trace_is_found_above_its_stack() {
    let (mut memory, _) = memory(&[(1, Protected)]);
    for at in (NATIVES[0] - 0x400..NATIVES[0]).step_by(8) {
        memory.words.insert(at, 0x7777);
    }
    let find = |sp: u64, memory: &mut Memory| {
        let mut search = Search::begin(sp, true);
        let mut found = None;
        while search.left > 0 && found.is_none() {
            found = search.step(memory);
        }
        found
    };
    for distance in [0, 8, 16, 0x70, 0x80, 0x3f0] {
        let sp = NATIVES[0] - distance;
        assert_eq!(find(sp, &mut memory), Some(NATIVES[0]), "{distance:#x}");
    }
    assert_eq!(find(NATIVES[0] + 8, &mut memory), None);
    assert_eq!(find(0, &mut memory), None);
    assert!(is_native(NATIVES[0], &mut memory));
    assert!(!is_native(NATIVES[1], &mut memory));
}

fn any_link() -> impl Strategy<Value = Link> {
    prop_oneof![
        Just(Lua),
        Just(Called),
        Just(Protected),
        Just(Continued),
        Just(Callback),
        Just(Variadic),
    ]
}

proptest! {
    #[test]
    fn damaged_memory_ends_the_walk(
        links in prop::collection::vec((1u64..120, any_link()), 1..20),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), any::<bool>()), 0..8),
        base in any::<u64>(),
        instruction in any::<u64>(),
        is_leaf in any::<bool>(),
    ) {
        let (mut memory, innermost) = memory(&links);
        let places: Vec<u64> = memory.words.keys().copied().collect();
        for (place, word, is_removed) in damage {
            let at = *place.get(&places);
            if is_removed {
                memory.words.remove(&at);
            } else {
                memory.words.insert(at, [word, innermost, STATE, STACK][word as usize % 4]);
            }
        }
        let machine = Machine { is_leaf, ip: 0, base, instruction, fp: innermost };
        let mut walk = Walk::default();
        for native in NATIVES {
            if !walk.enter(&LAYOUT, native, &machine, &mut memory) {
                continue;
            }
            // Each step goes down the stack.
            for _ in 0..1000 {
                let before = walk.base;
                let step = walk.step(&mut memory);
                if !matches!(step, Step::Frame(..) | Step::Skip) {
                    break;
                }
                prop_assert!(walk.base < before);
            }
        }
        let mut search = Search::begin(NATIVES[0], true);
        for _ in 0..100 {
            if search.left == 0 {
                break;
            }
            search.step(&mut memory);
        }
        prop_assert_eq!(search.left, 0);
    }
}
