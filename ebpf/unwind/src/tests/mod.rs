//! Tables of handmade ELF files: call frame information, linkage tables, entry points, pages, and broken files.

mod aarch64;
mod dotnet;
mod golang;
mod image;
mod instructions;
mod lookup;

use crate::{ElfCode, Table, UnwindTableError, htlhash};
use image::{ADDRESS, CODE, Frames, Image};
use profcol_ebpf_common::rule::{Cfa, ReturnAddress, Rule, SavedFp};
use profcol_ebpf_common::table::Page;
use std::io::Write;

fn build(image: &Image) -> Result<Table, UnwindTableError> {
    let bytes = image.bytes();
    Table::build(&ElfCode::read(&bytes)?, &bytes)
}

/// Checks the rules at code offsets.
#[track_caller]
fn check(image: &Image, expected: &[(u64, Rule)]) {
    let table = build(image).expect("the file is valid");
    for &(offset, rule) in expected {
        assert_eq!(table.lookup(CODE + offset), rule, "at {offset:#x}");
    }
}

/// Checks the rule of the last byte of an entry with these instructions.
#[track_caller]
fn check_entry(instructions: &[u8], expected: Rule) {
    let frames = Frames::x86_64().entry(0x10, 0x10, instructions);
    check(&Image::new(0x100).eh_frame(&frames), &[(0x1f, expected)]);
}

fn sp(offset: i32) -> Rule {
    Rule::x86_64(Cfa::Sp(offset), SavedFp::Same)
}

#[test]
fn converts_call_frame_information() {
    let fp = SavedFp::At(-16);
    let slot = |cfa| Rule::x86_64(cfa, SavedFp::Same);
    for (instructions, expected) in [
        (&[][..], sp(8)),
        // def_cfa_offset 16; rbp at cfa-16
        (&[0x0e, 16, 0x86, 2], Rule::x86_64(Cfa::Sp(16), fp)),
        // def_cfa rbp+16; rbp at cfa-16
        (&[0x0c, 6, 16, 0x86, 2], Rule::x86_64(Cfa::Fp(16), fp)),
        // def_cfa_offset 0; ra in rdi: vfork
        (
            &[0x0e, 0, 0x09, 16, 5],
            Rule::frame(Cfa::Sp(0), SavedFp::Same, ReturnAddress::LinkRegister),
        ),
        // ra in rsi
        (&[0x09, 16, 4], Rule::Unsupported),
        // def_cfa r10+0
        (&[0x0c, 10, 0], Rule::Unsupported),
        // cfa = *(rbp-8); rbp at *(rbp+0)
        (
            &[0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0],
            Rule::x86_64(Cfa::FpSlot { slot: -8, plus: 0 }, SavedFp::AtFp(0)),
        ),
        // cfa = *(rsp+8) + 16, in two spellings
        (
            &[0x0f, 5, 0x77, 8, 0x06, 0x23, 16],
            slot(Cfa::SpSlot { slot: 8, plus: 16 }),
        ),
        (
            &[0x0f, 5, 0x77, 8, 0x06, 0x40, 0x22],
            slot(Cfa::SpSlot { slot: 8, plus: 16 }),
        ),
        // cfa = *(rsp+8) * 16
        (&[0x0f, 5, 0x77, 8, 0x06, 0x40, 0x1e], Rule::Unsupported),
        // the entry of a linkage table
        (
            &[
                0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22,
            ],
            Rule::Plt { pushed: 11 },
        ),
        // return address undefined, which takes precedence
        (&[0x07, 16, 0x0c, 10, 0], Rule::End),
        // return address at cfa-16
        (&[0x90, 2], Rule::Unsupported),
        // rbp undefined, in another register, its value computed
        (&[0x07, 6], Rule::Unsupported),
        (&[0x09, 6, 3], Rule::Unsupported),
        (&[0x14, 6, 2], Rule::Unsupported),
        // rsp at cfa-16
        (&[0x87, 2], Rule::Unsupported),
        // an instruction that does not exist
        (&[0x3f], Rule::Unsupported),
        // an offset of 2^23
        (&[0x0e, 0x80, 0x80, 0x80, 0x04], Rule::Unsupported),
    ] {
        check_entry(instructions, expected);
    }
}

#[test]
fn keeps_the_rows_before_an_unknown_instruction() {
    let frames = Frames::x86_64().entry(0, 0x10, &[0x44, 0x0e, 16, 0x44, 0x3f]);
    check(
        &Image::new(0x100).eh_frame(&frames),
        &[
            (3, sp(8)),
            (4, sp(16)),
            (8, Rule::Unsupported),
            (15, Rule::Unsupported),
            (16, Rule::Gap),
        ],
    );
}

#[test]
fn recognizes_a_signal_return_by_its_expressions() {
    let instructions = |rip: u8| {
        [
            &[0x0f, 4, 0x77, 0xa0, 0x01, 0x06][..],
            &[0x10, 6, 3, 0x77, 0xf8, 0x00],
            &[0x10, 16, 3, 0x77, rip, 0x01],
        ]
        .concat()
    };
    for (augmentation, rip, expected) in [
        (&b"zRS"[..], 0xa8, Rule::SignalFrame),
        (b"zRS", 0xa9, Rule::Unsupported),
        (b"zR", 0xa8, Rule::Unsupported),
    ] {
        let frames = Frames::common(augmentation, &[]).entry(0, 0x10, &instructions(rip));
        check(&Image::new(0x100).eh_frame(&frames), &[(0, expected)]);
    }
}

#[test]
fn writes_gaps_and_merges_equal_neighbours() {
    let frames = Frames::x86_64()
        .entry(0x30, 0x10, &[])
        .entry(0x00, 0x10, &[])
        .entry(0x10, 0x10, &[]);
    let table = build(&Image::new(0x100).eh_frame(&frames)).expect("the file is valid");
    let rows: Vec<_> = table
        .rows
        .iter()
        .map(|row| (row.offset(), table.rules[row.rule() as usize].decode()))
        .collect();
    assert_eq!(
        rows,
        [
            (0, sp(8)),
            (0x20, Rule::Gap),
            (0x30, sp(8)),
            (0x40, Rule::Gap)
        ]
    );
}

#[test]
fn the_later_entry_wins_and_the_earlier_one_resumes_after_it() {
    let push = |length: u8| [0x0e, length];
    let frames = Frames::x86_64()
        .entry(0x00, 0x40, &[0x44, 0x0e, 16, 0x70, 0x0e, 24])
        .entry(0x08, 0x08, &push(80))
        .entry(0x28, 0x30, &push(88))
        .entry(0x70, 0x10, &push(96))
        .entry(0x70, 0x20, &push(104));
    check(
        &Image::new(0x100).eh_frame(&frames),
        &[
            (0x00, sp(8)),
            (0x04, sp(16)),
            (0x08, sp(80)),
            (0x0f, sp(80)),
            (0x10, sp(16)),
            (0x28, sp(88)),
            (0x34, sp(88)),
            (0x57, sp(88)),
            (0x58, Rule::Gap),
            (0x70, sp(96)),
            (0x80, sp(104)),
            (0x90, Rule::Gap),
        ],
    );
}

#[test]
fn each_page_repeats_the_rule_at_its_start() {
    let frames = Frames::x86_64()
        .entry(0x800, 0x1900, &[])
        .entry(0x5000, 0x10, &[]);
    let image = Image::new(0x6000).eh_frame(&frames);
    let table = build(&image).expect("the file is valid");
    assert_eq!(table.first_page, 1);
    let counts: Vec<u32> = table.pages.iter().map(|page| page.count).collect();
    assert_eq!(counts, [1, 1, 2, 0, 0, 2][..].to_vec());
    assert_eq!(table.pages[3], Page::EMPTY);
    check(
        &image,
        &[
            (0x7ff, Rule::Gap),
            (0x800, sp(8)),
            (0x1000, sp(8)),
            (0x20ff, sp(8)),
            (0x2100, Rule::Gap),
        ],
    );
}

#[test]
fn debug_frame_fills_gaps_of_eh_frame() {
    // The same entries, except for the CIE id and the CIE pointer.
    let debug = |start: u64| {
        let mut bytes = [14u32.to_le_bytes(), [0xff; 4]].concat();
        bytes.extend([1, 0, 1, 0x78, 16, 0x0c, 7, 24, 0x90, 1]);
        bytes.extend([20u32.to_le_bytes(), 0u32.to_le_bytes()].concat());
        bytes.extend((ADDRESS + start).to_le_bytes());
        bytes.extend(0x20u64.to_le_bytes());
        bytes
    };
    let frames = Frames::x86_64().entry(0x10, 0x10, &[]);
    let image = || Image::new(0x100).eh_frame(&frames);
    let expected = [
        (0x08, sp(24)),
        (0x10, sp(8)),
        (0x20, sp(24)),
        (0x28, Rule::Gap),
    ];
    check(&image().section(".debug_frame", 0, debug(8)), &expected);

    let mut packed = [1u32.to_le_bytes(), [0; 4]].concat();
    packed.extend((debug(8).len() as u64).to_le_bytes());
    packed.extend(1u64.to_le_bytes());
    let mut encoder = flate2::write::ZlibEncoder::new(packed, flate2::Compression::fast());
    encoder.write_all(&debug(8)).expect("memory does not fail");
    let packed = encoder.finish().expect("memory does not fail");
    check(
        &image().compressed(".debug_frame", packed.clone()),
        &expected,
    );

    let mut lying = packed;
    lying[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    check(
        &image().compressed(".debug_frame", lying.clone()),
        &[(0x08, Rule::Gap), (0x10, sp(8)), (0x20, Rule::Gap)],
    );
    let refused = build(&Image::new(0x100).compressed(".debug_frame", lying));
    assert_eq!(refused.expect_err("too large").reason(), "too_large");
}

#[test]
fn recognizes_plts_by_their_code() {
    let lazy = [
        0xff, 0x35, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0, 0x0f, 0x1f, 0x40, 0, //
        0xff, 0x25, 0, 0, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0,
    ];
    check(
        &Image::new(0x100).plt(".plt", 0x20, &lazy),
        &[
            (0x1f, Rule::Gap),
            (0x20, sp(16)),
            (0x25, sp(16)),
            (0x26, sp(24)),
            (0x30, Rule::Plt { pushed: 11 }),
            (0x3f, Rule::Plt { pushed: 11 }),
            (0x40, Rule::Gap),
        ],
    );
    let marked = [
        0xf3, 0x0f, 0x1e, 0xfa, 0x68, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0, 0x66, 0x90,
    ];
    let expected = Rule::Plt { pushed: 9 };
    check(&Image::new(0x100).plt(".plt", 0, &marked), &[(0, expected)]);
    let direct = [0xff, 0x25, 0, 0, 0, 0, 0x66, 0x90];
    check(
        &Image::new(0x100).plt(".plt.got", 0, &direct),
        &[(6, sp(8))],
    );
    let unknown = [0xcc; 16];
    check(
        &Image::new(0x100).plt(".plt", 0, &unknown),
        &[(0, Rule::Unsupported)],
    );
    let described = Frames::x86_64().entry(0x20, 0x20, &[0x0e, 32]);
    check(
        &Image::new(0x100)
            .plt(".plt", 0x20, &lazy)
            .eh_frame(&described),
        &[(0x20, sp(32)), (0x30, sp(32))],
    );
}

#[test]
fn recognizes_entry_and_signal_return_without_unwind_information() {
    let frames = Frames::x86_64().entry(0x30, 0x10, &[]);
    let mut image = Image::new(0x100).eh_frame(&frames);
    image.entry = ADDRESS + 0x10;
    image.code[0x80..0x89].copy_from_slice(&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05]);
    check(
        &image,
        &[
            (0x0f, Rule::Gap),
            (0x10, Rule::End),
            (0x2f, Rule::End),
            (0x30, sp(8)),
            (0x40, Rule::End),
            (0x50, Rule::Gap),
            (0x7e, Rule::Gap),
            (0x7f, Rule::SignalFrame),
            (0x88, Rule::SignalFrame),
            (0x89, Rule::Gap),
        ],
    );
}

#[test]
fn code_may_begin_and_end_anywhere_in_memory() {
    let mut image = Image::new(0x100);
    image.code[..9].copy_from_slice(&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05]);
    for address in [0, u64::MAX - 0x100] {
        image.address = address;
        image.entry = address + 0xf0;
        check(
            &image,
            &[
                (0, Rule::SignalFrame),
                (9, Rule::Gap),
                (0xf0, Rule::End),
                (0xff, Rule::End),
                (0x100, Rule::Gap),
            ],
        );
    }
}

#[test]
fn reads_the_build_id() {
    let mut image = Image::new(0x100);
    for (name, kind, id) in [
        (b"GNU\0", 3u32, b"\x01\x02\x03\x04"),
        (b"Go\0\0", 4, b"a/b\0"),
    ] {
        let id = id.strip_suffix(b"\0").unwrap_or(id);
        image.notes.extend(4u32.to_le_bytes());
        image.notes.extend((id.len() as u32).to_le_bytes());
        image.notes.extend(kind.to_le_bytes());
        image.notes.extend(name);
        image.notes.extend(id);
        image.notes.resize(image.notes.len().next_multiple_of(4), 0);
    }
    let elf = ElfCode::read(&image.bytes()).expect("the file is valid");
    assert_eq!(elf.build_id.as_deref(), Some(&[1, 2, 3, 4][..]));
    assert_eq!(elf.go_build_id.as_deref(), Some("a/b"));
    assert!(elf.is_go() && elf.position_independent && !elf.dynamic);
    assert_eq!(elf.file_range(), CODE..CODE + 0x100);
}

#[test]
fn rejects_unsupported_files() {
    let sound = Image::new(0x100).bytes();
    let with = |at: usize, byte: u8| {
        let mut bytes = sound.clone();
        bytes[at] = byte;
        bytes
    };
    for (bytes, expected) in [
        (Vec::new(), "not_elf"),
        (b"\x7fEL".to_vec(), "not_elf"),
        (b"#!/bin/sh\n".to_vec(), "not_elf"),
        (b"\x7fELF".to_vec(), "unsupported"),
        // 32 bit; big-endian; a relocatable file; another machine
        (with(4, 1), "unsupported"),
        (with(5, 2), "unsupported"),
        (with(16, 1), "unsupported"),
        (with(18, 3), "unsupported"),
        // no executable segment
        (with(68, 4), "unsupported"),
        // program headers outside the file
        (with(38, 1), "broken"),
    ] {
        let refused = ElfCode::read(&bytes).expect_err("it is not valid");
        assert_eq!(refused.reason(), expected, "{refused}");
    }
    let mut frames = Frames::x86_64();
    frames.0.extend(1000u32.to_le_bytes());
    let refused = build(&Image::new(0x100).eh_frame(&frames)).expect_err("the chain breaks");
    assert_eq!(refused.to_string(), ".eh_frame is broken");
}

#[test]
fn hashes_both_ends_and_the_length() {
    let hex = |bytes: &[u8]| -> String {
        let hash = htlhash(bytes).expect("memory can be read");
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    // $ f() { (head -c 4096 $1; tail -c 4096 $1; printf %016x $(stat -c %s $1) | xxd -r -p) | sha256sum | cut -c-32; }
    assert_eq!(hex(b"hello"), "b2c90e0c61910efa8c079b70039694de");
    let long: Vec<u8> = (0..10_000u32).map(|n| (n % 251) as u8).collect();
    assert_eq!(hex(&long), "29e3194e821b97b5565d43a5156ad97a");
}
