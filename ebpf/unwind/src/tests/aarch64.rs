//! Tests specific to aarch64.

use super::{build, check};
use crate::tests::image::{CODE, Frames, Image};
use object::elf::EM_AARCH64;
use profcol_ebpf_common::rule::{Cfa, ReturnAddress, Rule, SavedFp};

fn image(size: usize) -> Image {
    let mut image = Image::new(size);
    image.machine = EM_AARCH64;
    image
}

fn frame(size: i32) -> Rule {
    Rule::frame(
        Cfa::Sp(size),
        SavedFp::At(-size),
        ReturnAddress::At(8 - size),
    )
}

fn leaf() -> Rule {
    Rule::frame(Cfa::Sp(0), SavedFp::Same, ReturnAddress::LinkRegister)
}

#[test]
fn reads_functions_that_sign_their_return_address() {
    // The return address is signed; def_cfa_offset 32; x29 at cfa-32, x30 at cfa-24.
    let body = [0x42, 0x2d, 0x42, 0x0e, 32, 0x9d, 4, 0x9e, 3];
    // The other key, tags, both, and an unknown letter.
    for letters in [&b"zR"[..], b"zRB", b"zRG", b"zRBG", b"zRQ"] {
        let is_known = !letters.ends_with(b"Q");
        let frames = Frames::aarch64(letters).entry(0x10, 0x20, &body);
        let file = image(0x100).eh_frame(&frames);
        let [begin, signed, saved] = if is_known {
            [leaf(), leaf(), frame(32)]
        } else {
            [Rule::Gap; 3]
        };
        check(&file, &[(0x10, begin), (0x12, signed), (0x14, saved)]);
    }
}

#[test]
fn removes_keys_only_from_valid_entries() {
    let frames = Frames::aarch64(b"zRB").entry(0x10, 0x20, &[]);
    for length in 0..frames.0.len() {
        let cut = Frames(frames.0[..length].to_vec());
        // Rejected or without the function; it must not panic.
        if let Ok(table) = build(&image(0x100).eh_frame(&cut)) {
            assert_eq!(table.lookup(CODE + 0x10), Rule::Gap, "{length}");
        }
    }
}

/// A function begins at a call target, and ends at the next function.
#[test]
fn detects_leaf_functions_by_their_code() {
    let check_leaf = |instruction: u32, is_leaf: bool| {
        let mut file = image(0x100);
        file.code.fill(0);
        // bl 0x20; bl 0x40; and the called functions.
        let code = [
            (0, 0x9400_0008),
            (4, 0x9400_000f),
            (0x20, 0x8b01_0000),
            (0x24, instruction),
            (0x28, 0xd65f_03c0),
            (0x40, 0xa9bf_7bfd),
        ];
        for (at, word) in code {
            file.code[at..at + 4].copy_from_slice(&u32::to_le_bytes(word));
        }
        let rule = if is_leaf { leaf() } else { Rule::Gap };
        let table = build(&file).expect("the file is valid");
        let found = [0, 0x20, 0x28, 0x40].map(|at| table.lookup(CODE + at));
        assert_eq!(
            found,
            [Rule::Gap, rule, rule, Rule::Gap],
            "{instruction:#x}"
        );
    };
    for instruction in [
        0xf940_0020, // ldr x0, [x1]
        0xf940_e820, // ldr x0, [x1, #464]
        0x3dc0_003e, // ldr q30, [x1]
        0x4ee0_857e, // add v30.2d, v11.2d, v0.2d
        0xeb01_001f, // cmp x0, x1
        0xf100_0c1f, // cmp x0, #3
        0x7200_001f, // tst w0, #1
        0x5400_0060, // b.eq
        0x1400_001e, // b
        0xd503_233f, // paciasp
        0xd61f_0200, // br x16
    ] {
        check_leaf(instruction, true);
    }
    for instruction in [
        0xa9bf_7bfd, // stp x29, x30, [sp, #-16]!
        0xa940_7820, // ldp x0, x30, [x1]
        0xf81f_0ffe, // str x30, [sp, #-16]!
        0xf840_0ffe, // ldr x30, [sp], #0
        0xd100_83ff, // sub sp, sp, #32
        0x9100_03bf, // mov sp, x29
        0x927c_ec1f, // and sp, x0, #-16
        0xcb20_63ff, // sub sp, sp, x0
        0x9100_03fd, // mov x29, sp
        0xaa00_03fe, // mov x30, x0
        0x9400_0004, // bl
        0xd63f_0000, // blr x0
        0xd73f_0801, // blraa x0, x1
    ] {
        check_leaf(instruction, false);
    }
}

#[test]
fn a_coroutine_start_has_no_caller() {
    let start = |code: &[u32]| {
        let mut file = image(0x100);
        let code: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.code[0x40..0x40 + code.len()].copy_from_slice(&code);
        let frames = Frames::aarch64(b"zR").entry(0x40, code.len() as u64, &[]);
        file.eh_frame(&frames)
    };
    // mov x0, x19; cbnz x0, elsewhere; b elsewhere.
    let code = [0xaa13_03e0, 0xb5ff_f9c0, 0x17ff_f579];
    check(&start(&code), &[(0x3f, Rule::End), (0x40, leaf())]);
    for mark in [0xd503_245f, 0xd503_201f] {
        let marked = [mark, code[0], code[1], code[2]];
        check(&start(&marked), &[(0x3f, Rule::End), (0x40, leaf())]);
    }
    // With another register.
    let other = [code[0], 0xb5ff_f9c1, code[2]];
    check(&start(&other), &[(0x3f, Rule::Gap), (0x40, leaf())]);
}
