//! The walk along handmade stacks: from generated code and from C functions, in each form of frame, and damage.

use super::super::test_memory::Memory;
use super::super::thread_variable::place;
use super::*;
use proptest::prelude::*;
use std::vec::Vec;

const CODE: u64 = 0x10_0000;
const SHARED: u64 = CODE + 0x100;
const FIRST_RETURN: u64 = CODE + 0x80;
const MAIN_RETURN: u64 = 0x5_5550;
const TABLE: u64 = 0x6000;
const KEY: u64 = 0x6100;
const PROCESS: u64 = 0x8000;
const SCHEDULER: u64 = 0x8800;
const THREAD: u64 = 0x9000;
/// Of the process, and of the thread.
const STACK: u64 = 0x2_0000;
const REGISTERS: u64 = 0x3_0000;
const BIAS: u32 = 0x80;
const STOP: u64 = 0x58;

const PROCESS_DATA: BeamProcess = BeamProcess {
    code: AddressRange {
        start: CODE,
        end: CODE + 0x1_0000,
    },
    shared: AddressRange {
        start: CODE,
        end: CODE + 0x180,
    },
    main: AddressRange {
        start: CODE,
        end: CODE + 0x80,
    },
    main_return: MAIN_RETURN,
    first_return: FIRST_RETURN,
    modules: TABLE,
    scheduler_key: KEY,
    scheduler: ThreadVariable {
        place: place::KEY,
        offset: 0,
        table_shift: 0,
    },
    main_frame_bytes: 0x110,
    registers_bias: BIAS,
    scheduler_process: 0xa8,
};

fn put(memory: &mut Memory, address: u64, words: &[u64]) {
    let places = (address..).step_by(8);
    memory.words.extend(places.zip(words.iter().copied()));
}

/// A stack of the process with these words, and what the walk reads besides.
fn memory(stack: &[u64]) -> Memory {
    let mut memory = Memory::default();
    put(&mut memory, TABLE, &[0; 13]);
    put(&mut memory, KEY, &[3]);
    put(&mut memory, THREAD + 0x318 + 3 * 16, &[SCHEDULER]);
    put(&mut memory, SCHEDULER + 0xa8, &[PROCESS]);
    put(&mut memory, PROCESS + STOP, &[STACK]);
    put(&mut memory, STACK, stack);
    put(
        &mut memory,
        REGISTERS + 0x110,
        &[1, 2, 3, MAIN_RETURN, 5, 6, 7, 8],
    );
    memory
}

/// The instructions at an address.
fn put_code(memory: &mut Memory, address: u64, code: &[u8]) {
    let mut bytes = code.to_vec();
    bytes.resize(RESTORE_BYTES as usize, 0x90);
    let words = bytes.chunks(8);
    let words = words.map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap()));
    put(memory, address, &words.collect::<Vec<_>>());
}

fn registers(ip: u64, sp: u64, fp: u64) -> Registers {
    Registers {
        ip,
        sp,
        fp,
        link: 0,
    }
}

const RESERVED: ReservedRegisters = ReservedRegisters {
    process: PROCESS,
    scheduler_registers: REGISTERS + BIAS as u64,
};

fn begin(registers: Registers, is_exact: bool, memory: &mut Memory) -> Result<Walk, BeamError> {
    let reserved = match is_exact {
        true => RESERVED,
        false => ReservedRegisters::default(),
    };
    PROCESS_DATA.begin(&registers, is_exact, reserved, THREAD, memory)
}

/// The return addresses of the functions, and where the thread continues.
fn callers(mut walk: Walk, memory: &mut Memory) -> (Vec<u64>, Result<Registers, BeamError>) {
    let mut found = Vec::new();
    for _ in 0..1000 {
        match walk.caller(&PROCESS_DATA, memory) {
            Ok(StackScan::Caller(address)) => found.push(address),
            Ok(StackScan::More) => {}
            Ok(StackScan::First) => return (found, PROCESS_DATA.leave(&walk, memory)),
            Err(failure) => return (found, Err(failure)),
        }
    }
    panic!("it does not end: {found:x?}");
}

/// A small integer, an atom, a pointer to a list.
const TERMS: [u64; 3] = [0x1f, 0x4b, CODE + 0x201];
const FIRST: u64 = CODE + 0x400;
const SECOND: u64 = CODE + 0x800;

const MAIN_CALLER: Result<Registers, BeamError> = Ok(Registers {
    ip: MAIN_RETURN,
    sp: REGISTERS + 0x110 + 32,
    fp: 0,
    link: 0,
});

#[test]
fn return_addresses_are_told_from_terms() {
    let stack = [
        TERMS[0],
        FIRST,
        TERMS[1],
        TERMS[2],
        SECOND,
        FIRST_RETURN,
        FIRST,
    ];
    let mut memory = memory(&stack);
    let walk = begin(registers(CODE + 0x200, STACK, 7), true, &mut memory).unwrap();
    assert_eq!(
        callers(walk, &mut memory),
        ([FIRST, SECOND].to_vec(), MAIN_CALLER)
    );
}

#[test]
fn saved_frame_pointers_are_passed_over() {
    // Code on both sides of the stack.
    let code = AddressRange {
        start: 0,
        end: CODE + 0x1_0000,
    };
    let process = BeamProcess {
        code,
        ..PROCESS_DATA
    };
    let mut memory = memory(&[STACK + 16, FIRST, STACK + 0x60, SECOND]);
    let mut walk = begin(registers(CODE + 0x200, STACK, 7), true, &mut memory).unwrap();
    for expected in [FIRST, SECOND] {
        assert_eq!(
            walk.caller(&process, &mut memory),
            Ok(StackScan::Caller(expected))
        );
    }
}

#[test]
fn innermost_shared_code_returns_anywhere() {
    // call SHARED, before an odd address.
    let odd = FIRST + 0x21;
    let distance = (SHARED as i64 - odd as i64) as u32;
    for (opcode, expected) in [(CALL, [odd, SECOND].to_vec()), (0x90, [SECOND].to_vec())] {
        let mut memory = memory(&[odd, TERMS[0], SECOND, FIRST_RETURN]);
        let code = u64::from(distance) << 32 | opcode << 24;
        put(&mut memory, odd - 8, &[code]);
        let walk = begin(registers(SHARED, STACK, 7), true, &mut memory).unwrap();
        assert_eq!(callers(walk, &mut memory), (expected, MAIN_CALLER));
        // Elsewhere such a word is what an earlier call left in a variable without a value.
        let other = [odd, FIRST, odd, SECOND];
        for (ip, stack) in [(SHARED, &other[1..]), (CODE + 0x200, &other)] {
            put(&mut memory, STACK, &[0; 4]);
            put(&mut memory, STACK, stack);
            put(&mut memory, STACK + 32, &[FIRST_RETURN]);
            let walk = begin(registers(ip, STACK, 7), true, &mut memory).unwrap();
            let found = callers(walk, &mut memory);
            assert_eq!(found, ([FIRST, SECOND].to_vec(), MAIN_CALLER));
        }
    }
}

const MOV_FP: &[u8] = &[0x48, 0x89, 0xec];
const MOV_PROCESS: &[u8] = &[0x49, 0x8b, 0x65, STOP as u8];
const MOV_PROCESS_FAR: &[u8] = &[0x49, 0x8b, 0xa5, STOP as u8, 0, 0, 0];
/// mov r14, rax
const MOV_RESULT: &[u8] = &[0x49, 0x89, 0xc6];

#[test]
fn c_functions_return_to_the_stack_of_the_process() {
    for (code, fp) in [
        (MOV_FP.to_vec(), STACK),
        (MOV_PROCESS.to_vec(), 7),
        (MOV_PROCESS_FAR.to_vec(), 7),
        ([MOV_RESULT, MOV_FP].concat(), STACK),
        ([MOV_RESULT, MOV_PROCESS].concat(), 7),
        ([&[0x90; 6], MOV_PROCESS].concat(), 7),
    ] {
        for is_exact in [false, true] {
            let mut memory = memory(&[FIRST, FIRST_RETURN]);
            put_code(&mut memory, CODE + 0x200, &code);
            let at = registers(CODE + 0x200, REGISTERS, fp);
            let walk = begin(at, is_exact, &mut memory).unwrap();
            let found = callers(walk, &mut memory);
            assert_eq!(found, ([FIRST].to_vec(), MAIN_CALLER), "{code:x?}");
        }
    }
}

#[test]
fn without_a_process_the_thread_continues() {
    let mut memory = memory(&[FIRST, FIRST_RETURN]);
    put_code(&mut memory, CODE + 0x200, &[0x90]);
    put_code(&mut memory, CODE + 0x40, MOV_PROCESS);
    for ip in [CODE + 0x200, CODE + 0x40] {
        for is_exact in [false, true] {
            let walk = begin(registers(ip, REGISTERS, 7), is_exact, &mut memory).unwrap();
            assert_eq!(callers(walk, &mut memory), (Vec::new(), MAIN_CALLER));
        }
    }
}

#[test]
fn what_cannot_be_read_ends_the_stack() {
    let at = registers(CODE + 0x200, REGISTERS, 7);
    for missing in [TABLE, KEY, SCHEDULER + 0xa8, PROCESS + STOP, CODE + 0x200] {
        let mut memory = memory(&[FIRST]);
        put_code(&mut memory, CODE + 0x200, MOV_PROCESS);
        assert!(memory.words.remove(&missing).is_some());
        assert_eq!(
            begin(at, false, &mut memory),
            Err(BeamError::Memory),
            "{missing:x}"
        );
    }
    let mut memory = memory(&[FIRST]);
    let walk = begin(registers(CODE + 0x200, STACK, 7), true, &mut memory).unwrap();
    let (found, end) = callers(walk, &mut memory);
    assert_eq!((found, end), ([FIRST].to_vec(), Err(BeamError::Stack)));
}

#[test]
fn a_stack_without_return_addresses_has_an_end() {
    let mut memory = memory(&[TERMS[0]; 3000]);
    let walk = begin(registers(CODE + 0x200, STACK, 7), true, &mut memory).unwrap();
    assert_eq!(
        callers(walk, &mut memory),
        (Vec::new(), Err(BeamError::Frame))
    );
}

#[test]
fn a_thread_without_the_caller_of_its_main_function_ends() {
    let mut memory = memory(&[FIRST_RETURN]);
    put(
        &mut memory,
        REGISTERS + 0x110,
        &[MAIN_RETURN, 2, 3, 4, 5, 6, 7, 8],
    );
    let walk = begin(registers(CODE + 0x200, STACK, 7), true, &mut memory).unwrap();
    assert_eq!(
        callers(walk, &mut memory),
        (Vec::new(), Err(BeamError::Frame))
    );
}

#[test]
fn the_generation_changes_with_the_modules() {
    let table = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13];
    let of = |table: [u64; 13]| generation(|index| table[index as usize]);
    for changed in 0..13 {
        let mut other = table;
        other[changed] += 1;
        // Neither the size of an array nor its last result count.
        let is_same = changed < 12 && changed % 4 >= 2;
        assert_eq!(of(other) == of(table), is_same, "{changed}");
    }
}

proptest! {
    #[test]
    fn any_memory_is_walked(
        words in proptest::collection::vec(0u64..0x400, 128),
        is_exact: bool,
        ip in 0u64..0x400,
        sp in 0u64..0x400,
    ) {
        let mut memory = Memory::default();
        memory.words.extend((0..).step_by(8).zip(words.iter().map(|word| word * 4)));
        let process = BeamProcess {
            code: AddressRange { start: 0x100, end: 0x300 },
            shared: AddressRange { start: 0x100, end: 0x200 },
            modules: 0x80,
            main_frame_bytes: 0x20,
            scheduler_process: 8,
            ..PROCESS_DATA
        };
        let at = registers(ip, sp & !7, 8);
        let Ok(mut walk) = process.begin(&at, is_exact, RESERVED, 0, &mut memory) else {
            return Ok(());
        };
        for _ in 0..200 {
            match walk.caller(&process, &mut memory) {
                Ok(StackScan::First) => {
                    let _ = process.leave(&walk, &mut memory);
                    break;
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
}
