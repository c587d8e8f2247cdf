//! Each kind of frame, outside prologues and epilogues.

use super::*;
use crate::interpreter::runtime;

#[test]
fn blobs_are_found_from_anywhere_in_them() {
    let mut memory = Memory::default();
    let small = memory.nmethod(0x2_0000);
    let large = memory.blob(&Made {
        at: 0x3_0000,
        bytes: 0x2_0000,
        name: "native nmethod",
        frame_words: 4,
        frame_complete: 0,
    });
    memory.set_bytes(MAP + 0x2_0800 / SEGMENT, &[0xff]);
    for (pc, expected) in [
        (small, Ok(HEAP + 0x2_0010)),
        (small + 0x600, Ok(HEAP + 0x2_0010)),
        (HEAP + 0x2_0800, Err(HotspotError::NoBlob)),
        (large, Ok(HEAP + 0x3_0010)),
        (HEAP + 0x3_0000 + 254 * SEGMENT, Ok(HEAP + 0x3_0010)),
        (HEAP + 0x3_0000 + 255 * SEGMENT, Ok(HEAP + 0x3_0010)),
        (HEAP + 0x4_ffff, Ok(HEAP + 0x3_0010)),
        (HEAP - 1, Err(HotspotError::NoBlob)),
    ] {
        let found = Blob::find(&layout(), &cache(), pc, &mut memory);
        assert_eq!(found.map(|blob| blob.address), expected, "{pc:x}");
    }
}

#[test]
fn offsets_of_code_are_relative_to_the_blob() {
    let layout = Layout {
        blob_name: 8,
        blob_code_begin: 36,
        blob_code_end: 40,
        blob_frame_size: 44,
        blob_frame_complete: 54,
        frame_complete_shift: 16,
        code_address: code_address::OFFSET,
        heap_block_bytes: 8,
        ..layout()
    };
    let mut memory = Memory::default();
    memory.set(NAMES, &[u64::from_le_bytes(*b"nmethod\0")]);
    memory.set(MAP, &[0]);
    let blob = HEAP + 8;
    memory.set(blob + 8, &[NAMES]);
    memory.set_number(blob + 36, 0x100);
    memory.set_number(blob + 40, 0x180);
    memory.set_number(blob + 44, 6);
    memory.set_bytes(blob + 52, &[0xff, 0xff, 13, 0, 0xff, 0xff, 0xff, 0xff]);
    let found = Blob::find(&layout, &cache(), HEAP + 0x40, &mut memory).expect("it is readable");
    assert_eq!(
        (found.code_begin, found.code_end, found.frame_complete),
        (blob + 0x100, blob + 0x180, 13)
    );
    // -1 is not a size.
    memory.set_number(blob + 44, u32::MAX);
    memory.set_bytes(blob + 54, &[0xff, 0xff]);
    let found = Blob::find(&layout, &cache(), HEAP + 0x40, &mut memory).expect("it is readable");
    assert_eq!((found.frame_bytes, found.frame_complete), (0, 0));
}

#[test]
fn compiled_frames_have_a_size() {
    let mut memory = Memory::default();
    let code = memory.nmethod(0x2_0000);
    memory.set(STACK + FRAME_BYTES - 16, &[0x1234, HEAP + 0x9_9999]);
    let mut walk = caller(code + 0x40);
    let found = step(&mut walk, &mut memory).expect("it is readable");
    assert_eq!(found.runtime, runtime::HOTSPOT_COMPILED);
    assert_eq!(found.function, HEAP + 0x2_0010);
    let detail = found.detail;
    assert_eq!((detail.generation(), detail.position()), (COMPILE_ID, 0x40));
    let expected = (HEAP + 0x9_9999, STACK + FRAME_BYTES, 0x1234);
    assert_eq!(registers(&walk), expected);
    assert_eq!(walk.exact, 0);
}

#[test]
fn what_an_intrinsic_pushed_is_passed_over() {
    for pushed in 0..8 {
        let mut memory = Memory::default();
        let code = memory.nmethod(0x2_0000);
        // The frame's own words are followed by pushed registers, the caller's frame pointer and the return address.
        let mut words = std::vec![0x5555; (FRAME_BYTES / 8) as usize - 2 + pushed];
        words.extend([0x1234, HEAP + 0x9_9999]);
        words.extend([0x5555; 8]);
        memory.set(STACK, &words);
        // No instruction that changes the frame.
        memory.set_bytes(code + 0x20, &[0x90; 64]);
        let mut walk = top(code + 0x40);
        let found = step(&mut walk, &mut memory);
        if pushed > 6 {
            assert_eq!(found, Err(HotspotError::Frame));
            continue;
        }
        assert_eq!(
            found.map(|found| found.runtime),
            Ok(runtime::HOTSPOT_COMPILED)
        );
        let sp = STACK + FRAME_BYTES + pushed as u64 * 8;
        assert_eq!(registers(&walk), (HEAP + 0x9_9999, sp, 0x1234));
    }
}

#[test]
fn a_deoptimized_frame_keeps_where_it_was() {
    for handler in [DEOPT_HANDLER, DEOPT_HANDLER + 8] {
        let mut memory = Memory::default();
        let code = memory.nmethod(0x2_0000);
        memory.set(STACK, &[0, code + 0x44, 0, 0, 0x1234, HEAP]);
        let mut walk = caller(code + handler);
        let found = step(&mut walk, &mut memory).expect("it is readable");
        assert_eq!(found.detail.position(), 0x44);
        // The saved address is outside its code.
        memory.set(STACK + 8, &[code - 1]);
        let mut walk = caller(code + handler);
        assert_eq!(step(&mut walk, &mut memory), Err(HotspotError::Frame));
    }
}

/// An interpreted frame with its frame pointer at `fp`, in the fifth bytecode of a method.
fn interpreted(memory: &mut Memory, fp: u64, method: u64, sender_sp: u64) {
    let bytecodes = method + 0x100 + 48;
    memory.set(fp - 64, &[bytecodes + 4, 0, 0, 0, 0, method, 0, sender_sp]);
    memory.set(fp, &[0x1234, HEAP + 0x9_9999]);
}

#[test]
fn interpreted_frames_are_found_by_the_frame_pointer() {
    let mut memory = Memory::default();
    let (fp, method) = (STACK + 0x800, memory.method(1));
    interpreted(&mut memory, fp, method, fp + 0x30);
    let mut walk = caller(HEAP + 0x400);
    let found = step(&mut walk, &mut memory).expect("it is readable");
    let const_method = method + 0x100;
    assert_eq!(found.runtime, runtime::HOTSPOT_INTERPRETED);
    assert_eq!(found.function, method);
    assert_eq!(found.detail.generation(), (const_method >> 3) as u32);
    assert_eq!(found.detail.position(), 4);
    assert_eq!(registers(&walk), (HEAP + 0x9_9999, fp + 0x30, 0x1234));

    // The innermost one has its position in r13, if that is in its bytecodes.
    for (bcp, position) in [
        (const_method + 48 + 9, 9),
        (const_method + 48 + 99, 99),
        (const_method + 48 + 100, 4),
        (0, 4),
    ] {
        let mut walk = Walk {
            bcp,
            ..top(HEAP + 0x400)
        };
        let found = step(&mut walk, &mut memory).expect("it is readable");
        assert_eq!(found.detail.position(), position, "{bcp:x}");
    }

    // A native method has no position.
    memory.set(fp - 64, &[0]);
    let found = step(&mut caller(HEAP + 0x400), &mut memory).expect("it is readable");
    assert_eq!(found.detail.position(), NO_BCI);
}

#[test]
fn a_frame_that_is_being_interpreted_soon_is_found() {
    let mut memory = Memory::default();
    let (fp, method) = (STACK + 0x800, memory.method(1));
    let callee = memory.method(2);
    interpreted(&mut memory, fp, method, fp + 0x30);
    let return_address = HEAP + 0x500;
    let entering = |sp: u64, fp: u64| Walk {
        sp,
        fp,
        bcp: STACK + 0x100,
        method: callee,
        result: return_address,
        ..top(HEAP + 0x400)
    };
    let check = |memory: &mut Memory, mut walk: Walk, what: &str| {
        let found = step(&mut walk, memory).expect(what);
        assert_eq!((found.function, found.detail.position()), (callee, 0));
        assert_eq!(
            registers(&walk),
            (return_address, STACK + 0x100, fp),
            "{what}"
        );
    };
    memory.set(STACK, &[return_address]);
    check(&mut memory, entering(STACK, fp), "called");
    memory.set(STACK, &[fp, return_address]);
    check(&mut memory, entering(STACK, fp), "fp pushed");
    memory.set(STACK, &[0, 0]);
    check(&mut memory, entering(STACK, fp), "return address in rax");
    memory.set(STACK, &[0, STACK + 0x100, fp, return_address]);
    check(&mut memory, entering(STACK, STACK + 16), "frame begun");
}

#[test]
fn a_frame_that_was_interpreted_is_left_by_what_remains() {
    let mut memory = Memory::default();
    memory.blob(&Made {
        at: 0,
        bytes: 0x1_0000,
        name: "Interpreter",
        frame_words: 0,
        frame_complete: 0,
    });
    // The caller is compiled, and has an arbitrary number in its frame pointer.
    let returning = Walk {
        fp: 3,
        ..top(HEAP + 0x400)
    };
    memory.set(STACK, &[HEAP + 0x9_9999]);
    let mut walk = returning;
    let found = step(&mut walk, &mut memory).expect("it is readable");
    assert_eq!(found.runtime, runtime::HOTSPOT_STUB);
    assert_eq!(registers(&walk), (HEAP + 0x9_9999, STACK + 8, 3));
    memory.set(STACK, &[0]);
    let mut walk = Walk {
        bcp: HEAP + 0x9_9999,
        method: STACK + 0x40,
        ..returning
    };
    step(&mut walk, &mut memory).expect("it is readable");
    assert_eq!(registers(&walk), (HEAP + 0x9_9999, STACK + 0x40, 3));
    assert_eq!(
        step(&mut { returning }, &mut memory),
        Err(HotspotError::Frame)
    );
}

#[test]
fn virtual_threads_end() {
    let mut memory = Memory::default();
    let barrier = memory.blob(&Made {
        at: 0x1_f000,
        bytes: 0x800,
        name: "StubRoutines (continuation stubs)",
        frame_words: 0,
        frame_complete: 0,
    });
    let enter_special = memory.blob(&Made {
        at: 0x2_0000,
        bytes: 0x800,
        name: "native nmethod",
        frame_words: 2,
        frame_complete: 0,
    });
    for ip in [barrier + 8, enter_special + 0x40] {
        let mut walk = caller(ip);
        step(&mut walk, &mut memory).expect("it is readable");
        assert_eq!(walk.ip, 0);
    }
}
