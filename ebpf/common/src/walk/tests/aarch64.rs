//! The same step on aarch64, where calls leave the return address in a register, perhaps signed.

use super::*;
use crate::architecture::Mode;

/// The signature is in the bits above the address, as on a machine with 48-bit addresses.
const SIGNATURE: u64 = 0x002d << 48;

const LEAF: Rule = Rule::Frame {
    cfa: Cfa::Sp(0),
    fp: SavedFp::Same,
    ra: ReturnAddress::LinkRegister,
};

/// A function that saves the frame pointer and its return address at the bottom of its frame.
fn framed(size: i32) -> Rule {
    Rule::frame(
        Cfa::Sp(size),
        SavedFp::At(-size),
        ReturnAddress::At(8 - size),
    )
}

fn at(ip: u64, link: u64) -> Registers {
    Registers {
        ip,
        sp: STACK,
        fp: STACK + 0x100,
        link,
    }
}

#[track_caller]
fn check(
    rows: &[(u64, Rule)],
    memory: &[(u64, u64)],
    from: Registers,
    expected: (&[u64], EndReason),
) {
    check_on::<Aarch64>(rows, memory, from, expected);
}

#[test]
fn returns_by_the_register_from_a_leaf_and_by_the_stack_from_others() {
    let rows = [
        (0, LEAF),
        (0x10, framed(32)),
        (0x20, framed(16)),
        (0x30, Rule::End),
    ];
    for signature in [0, SIGNATURE] {
        let memory = [
            (STACK, STACK + 0x100),
            (STACK + 8, TEXT + 0x24 + signature),
            (STACK + 32, 0),
            (STACK + 40, TEXT + 0x34 + signature),
        ];
        check(
            &rows,
            &memory,
            at(TEXT + 4, TEXT + 0x14 + signature),
            (
                &[TEXT + 4, TEXT + 0x13, TEXT + 0x23, TEXT + 0x33],
                EndReason::Complete,
            ),
        );
    }
}

#[test]
fn finds_the_return_address_where_the_rule_says() {
    // Go keeps it at the bottom of a frame, with the frame pointer below.
    let gos = Rule::frame(Cfa::Sp(48), SavedFp::At(-56), ReturnAddress::At(-48));
    // A C compiler puts variables below it, with the frame pointer set.
    let by_fp = Rule::frame(Cfa::Fp(16), SavedFp::At(-16), ReturnAddress::At(-8));
    let fp = STACK + 0x100;
    for (rule, memory) in [
        (
            gos,
            [(STACK, TEXT + 0x14), (STACK - 8, fp), (STACK + 48, 0)],
        ),
        (by_fp, [(fp + 8, TEXT + 0x14), (fp, 0), (fp + 16, 0)]),
    ] {
        check(
            &[(0, rule), (0x10, Rule::End)],
            &memory,
            at(TEXT + 4, 0),
            (&[TEXT + 4, TEXT + 0x13], EndReason::Complete),
        );
    }
}

#[test]
fn the_register_of_a_caller_is_lost() {
    check(
        &[(0, LEAF)],
        &[],
        at(TEXT + 4, TEXT + 0x14),
        (&[TEXT + 4, TEXT + 0x13], EndReason::Unsupported),
    );
}

#[test]
fn a_signal_keeps_the_register_of_what_it_interrupted() {
    let lower = STACK - 0x8000;
    let rows = [(0, LEAF), (0x10, Rule::SignalFrame), (0x30, Rule::End)];
    // After a `siginfo` of 128 bytes, 176 bytes of a `ucontext` and the fault address: x29, x30,
    // sp and pc.
    let registers = STACK + 128 + 176 + 8;
    let memory = [
        (registers + 29 * 8, 0),
        (registers + 30 * 8, TEXT + 0x34 + SIGNATURE),
        (registers + 31 * 8, lower),
        (registers + 32 * 8, TEXT + 8),
    ];
    check(
        &rows,
        &memory,
        at(TEXT + 4, TEXT + 0x11),
        (
            &[TEXT + 4, TEXT + 0x10, TEXT + 8, TEXT + 0x33],
            EndReason::Complete,
        ),
    );
}

#[test]
fn does_not_lose_the_caller_of_unknown_code_that_just_begins_or_ends() {
    let fp = STACK + 0x100;
    let (caller, callers_caller) = (TEXT + 0x20, TEXT + 0x40);
    let whole = &[TEXT + 4, caller - 1, callers_caller - 1][..];
    // An instruction, and its assembly.
    for (instruction, name) in [
        (0xd503_245f, "bti c"),
        (0xd503_233f, "paciasp"),
        (0xa9be_7bfd, "stp x29, x30, [sp, #-32]!"),
        (0xa905_7bfd, "stp x29, x30, [sp, #80]"),
        (0x9100_03fd, "mov x29, sp"),
        (0xd503_23bf, "autiasp"),
        (0xd65f_03c0, "ret"),
        (0xd65f_0bff, "retaa"),
    ] {
        let memory = [
            (TEXT + 4, 0xd503_201f << 32 | instruction),
            (STACK, fp),
            (STACK + 8, caller + SIGNATURE),
            (fp, 0),
            (fp + 8, callers_caller + SIGNATURE),
        ];
        let link = if name == "mov x29, sp" {
            0
        } else {
            caller + SIGNATURE
        };
        let (addresses, reason) = Process::new(&[], &memory).walk::<Aarch64>(at(TEXT + 4, link));
        let expected = (whole, EndReason::FramePointerEnd);
        assert_eq!((&*addresses, reason), expected, "{name}");
    }
    // After the prologue the frame pointer is its own, and the register is meaningless.
    for (instruction, name) in [
        (0xa8c2_7bfd, "ldp x29, x30, [sp], #32"),
        (0xa940_7bfd, "ldp x29, x30, [sp]"),
        (0xa902_53f3, "stp x19, x20, [sp, #32]"),
        (0xd503_201f, "nop"),
    ] {
        let memory = [
            (TEXT + 4, instruction),
            (fp, 0),
            (fp + 8, callers_caller + SIGNATURE),
        ];
        let (addresses, reason) = Process::new(&[], &memory).walk::<Aarch64>(at(TEXT + 4, caller));
        let expected = (
            &[TEXT + 4, callers_caller - 1][..],
            EndReason::FramePointerEnd,
        );
        assert_eq!((&*addresses, reason), expected, "{name}");
    }
}

/// A frame pointer leads to a pair in the middle of a frame: the end of the frame is unknown, and so is
/// the caller's stack pointer.
#[test]
fn finds_the_frames_behind_unknown_code_by_the_frame_pointer() {
    let (first, second) = (STACK + 0x100, STACK + 0x180);
    let memory = [
        (first, second),
        (first + 8, TEXT + 0x14),
        (second, 0),
        (second + 8, TEXT + 0x24),
        // The frame that the second one's stack pointer would lead to.
        (first + 16, 0),
        (first + 24, TEXT + 0x34),
    ];
    let frameless = Rule::frame(Cfa::Sp(16), SavedFp::Same, ReturnAddress::At(-8));
    let end = EndReason::FramePointerEnd;
    for (rule, expected) in [
        (
            framed(32),
            (
                &[TEXT + 4, TEXT + 0x13, TEXT + 0x23][..],
                EndReason::Complete,
            ),
        ),
        (
            Rule::frame(Cfa::Fp(16), SavedFp::At(-16), ReturnAddress::At(-8)),
            (&[TEXT + 4, TEXT + 0x13, TEXT + 0x23], EndReason::Complete),
        ),
        (frameless, (&[TEXT + 4, TEXT + 0x13], end)),
        (Rule::SignalFrame, (&[TEXT + 4, TEXT + 0x13], end)),
    ] {
        let rows = [(0, Rule::Gap), (0x10, rule), (0x20, Rule::End)];
        check(&rows, &memory, at(TEXT + 4, 0), expected);
    }
    // A frame pointer of another frame.
    for fp in [first + 8, first + 16 + MAX_GUESSED_FRAME + 8] {
        let mut memory = memory;
        memory[0].1 = fp;
        let rows = [(0, Rule::Gap), (0x10, framed(32)), (0x20, Rule::End)];
        let expected = (&[TEXT + 4, TEXT + 0x13][..], end);
        check(&rows, &memory, at(TEXT + 4, 0), expected);
    }
}

#[test]
fn knows_who_was_interrupted() {
    // Negative, zero and carry in user code; EL1 and EL2 with their own stacks; a 32-bit program.
    for (state, expected) in [
        (0x8000_0000, Mode::User),
        (0x6000_1000, Mode::User),
        (0x6040_0005, Mode::Kernel),
        (0x2040_0009, Mode::Kernel),
        (0x6000_0010, Mode::User32),
    ] {
        assert_eq!(Aarch64::mode(state), expected, "{state:#x}");
    }
    for (segment, expected) in [
        (0x33, Mode::User),
        (0x23, Mode::User32),
        (0x10, Mode::Kernel),
    ] {
        assert_eq!(X86_64::mode(segment), expected, "{segment:#x}");
    }
}

#[test]
fn knows_system_calls() {
    let mut registers = [0; Aarch64::PT_REGS_WORDS];
    for (number, before, expected) in [
        (64, 0xd503_201f, true),
        (0, 0xd503_201f, true),
        (0xffff_ffff, 0xd503_201f, false),
        // Not recorded yet.
        (0xffff_ffff, 0xd400_0001, true),
    ] {
        // The upper half is the interrupt mask.
        registers[35] = 0xe0 << 32 | number;
        let is_in = Aarch64::is_in_syscall(&registers, || before);
        assert_eq!(is_in, expected, "{number:#x} {before:#x}");
    }
}
