//! Arbitrary memory of other processes.

use super::*;
use proptest::prelude::*;
use std::vec::Vec;

#[test]
fn what_cannot_be_read_is_told() {
    let mut memory = Memory::default();
    let code = memory.nmethod(0x2_0000);
    assert_eq!(
        step(&mut caller(code + 0x40), &mut memory),
        Err(HotspotError::Stack)
    );
    assert_eq!(
        step(&mut caller(HEAP + 0x8_0000), &mut Memory::default()),
        Err(HotspotError::Memory)
    );
    assert_eq!(
        step(&mut caller(HEAP + 0x400), &mut memory),
        Err(HotspotError::Stack)
    );
}

#[test]
fn a_segment_map_that_does_not_lead_to_a_blob_is_left() {
    let mut memory = Memory::default();
    // Each hop goes back by one.
    for segment in 0..0x2000 {
        memory.set_bytes(MAP + segment, &[1]);
    }
    let result = step(&mut caller(HEAP + 0xf_0000), &mut memory);
    assert_eq!(result, Err(HotspotError::NoBlob));
    // It leads outside the heap.
    memory.set_bytes(MAP + 0x400, &[0xfe]);
    memory.set_bytes(MAP + 0x400 - 0xfe, &[0xfe]);
    for hop in 2..8 {
        memory.set_bytes(MAP + 0x400 - 0xfe * hop, &[0xfe]);
    }
    let result = step(&mut caller(HEAP + 0x400 * SEGMENT), &mut memory);
    assert_eq!(result, Err(HotspotError::NoBlob));
}

#[test]
fn frames_only_go_up() {
    let mut memory = Memory::default();
    let code = memory.blob(&Made {
        at: 0x2_0000,
        bytes: 0x800,
        name: "nmethod",
        frame_words: 0,
        frame_complete: 0,
    });
    memory.set(STACK - 16, &[0, HEAP]);
    assert_eq!(
        step(&mut caller(code + 0x40), &mut memory),
        Err(HotspotError::NotAdvancing)
    );
    let huge = memory.blob(&Made {
        at: 0x3_0000,
        bytes: 0x800,
        name: "nmethod",
        frame_words: i32::MAX as u32,
        frame_complete: 0,
    });
    assert_eq!(
        step(&mut caller(huge + 0x40), &mut memory),
        Err(HotspotError::Frame)
    );
}

const NAMES_OF_BLOBS: [&str; 6] = [
    "nmethod",
    "native nmethod",
    "I2C/C2I adapters",
    "vtable chunks",
    "StubRoutines (1)",
    "_new_array_Java",
];

proptest! {
    /// For any content of code, stack and registers, each step ends, and goes up the stack.
    #[test]
    fn any_memory_is_walked(
        blobs in proptest::collection::vec((0usize..6, 0u32..40, 0u32..64), 8),
        code in proptest::collection::vec(any::<u8>(), 0x400),
        stack in proptest::collection::vec((0u64..3, 0u64..0x1_0000), 128),
        ip in 0u64..0x1_4000,
        registers in proptest::collection::vec((0u64..3, 0u64..0x400), 4),
        exact in 0u32..2,
    ) {
        let mut memory = Memory::default();
        for (number, (name, frame_words, frame_complete)) in (0..).zip(&blobs) {
            let begin = memory.blob(&Made {
                at: 0x1_0000 + number * 0x800,
                bytes: 0x800,
                name: NAMES_OF_BLOBS[*name],
                frame_words: *frame_words,
                frame_complete: *frame_complete,
            });
            memory.set_bytes(begin, &code[..0x300]);
        }
        memory.method(1);
        let word = |(kind, offset): &(u64, u64)| match kind {
            0 => HEAP + offset,
            1 => STACK + (offset & 0x3f8),
            _ => METASPACE + 0x1000 + (offset & 0xf8),
        };
        let words: Vec<u64> = stack.iter().map(word).collect();
        memory.set(STACK, &words);
        let mut walk = Walk {
            ip: HEAP + ip,
            sp: STACK,
            fp: word(&registers[0]),
            bcp: word(&registers[1]),
            method: word(&registers[2]),
            result: word(&registers[3]),
            exact,
            unused: 0,
        };
        for _ in 0..1000 {
            let before = walk;
            if !cache().holds(walk.ip) || step(&mut walk, &mut memory).is_err() {
                return Ok(());
            }
            prop_assert!(walk.sp > before.sp || before.exact != 0 || walk.ip == 0);
        }
        prop_assert!(false, "it does not end");
    }
}
