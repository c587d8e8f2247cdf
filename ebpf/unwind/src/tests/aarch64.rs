//! What aarch64 has that x86-64 has not.

use super::{build, check};
use crate::tests::image::{CODE, Frames, Image};
use object::elf::EM_AARCH64;
use profcol_ebpf_common::rule::{Cfa, ReturnAddress, Rule, Saved};

fn image(size: usize) -> Image {
    let mut image = Image::new(size);
    image.machine = EM_AARCH64;
    image
}

fn frame(size: i32) -> Rule {
    Rule::frame(Cfa::Sp(size), Saved::At(-size), ReturnAddress::At(8 - size))
}

fn leaf() -> Rule {
    Rule::frame(Cfa::Sp(0), Saved::Same, ReturnAddress::LinkRegister)
}

#[test]
fn functions_that_sign_their_return_address_are_described_like_others() {
    // The return address is signed; def_cfa_offset 32; x29 at cfa-32, x30 at cfa-24.
    let body = [0x42, 0x2d, 0x42, 0x0e, 32, 0x9d, 4, 0x9e, 3];
    // The other key, tags, both, and what nobody knows.
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
fn keys_are_forgotten_in_sound_entries_only() {
    let frames = Frames::aarch64(b"zRB").entry(0x10, 0x20, &[]);
    for length in 0..frames.0.len() {
        let cut = Frames(frames.0[..length].to_vec());
        // Either refused or without the function; what matters is that it is read at all.
        if let Ok(table) = build(&image(0x100).eh_frame(&cut)) {
            assert_eq!(table.lookup(CODE + 0x10), Rule::Gap, "{length}");
        }
    }
}

#[test]
fn nothing_comes_before_a_coroutine() {
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
    // It jumps by another register.
    let other = [code[0], 0xb5ff_f9c1, code[2]];
    check(&start(&other), &[(0x3f, Rule::Gap), (0x40, leaf())]);
}
