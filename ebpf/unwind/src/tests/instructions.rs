//! Compares rules derived from instructions with the compiler's unwind information.

use super::image::{ADDRESS, Image};
use super::{build, check, sp};
use crate::{ElfCode, Table, instructions, span::Spans};
use profcol_ebpf_common::rule::{Cfa, Rule, SavedFp};
use proptest::prelude::*;
use std::fs::File;
use std::path::{Path, PathBuf};

#[derive(Debug, Default)]
struct Compared {
    equal: usize,
    not_understood: usize,
    /// Address, derived rule, and the compiler's rule.
    different: Vec<(u64, Rule, Rule)>,
}

/// Derives rules for all code of a file, ignoring its unwind information.
fn compare(path: &Path, symbols: bool) -> Compared {
    let source = File::open(path).unwrap();
    let mut elf = ElfCode::read(&source).unwrap();
    let table = Table::build(&elf, &source).unwrap();
    if !symbols {
        elf.sections.retain(|s| !s.extent.what.contains("sym"));
        elf.symbols = false;
    }
    let mut compared = Compared::default();
    for (start, _, rule) in instructions::rules(&elf, &source, &Spans::default()) {
        let segment = elf.segment_at(start).unwrap();
        let expected = table.lookup(start - segment.address + segment.file_offset);
        match (rule, expected) {
            (_, Rule::Gap | Rule::Unsupported | Rule::SignalFrame) => {}
            (_, Rule::End) if rule != Rule::End && start > elf.entry && start < elf.entry + 64 => {}
            (Rule::Unsupported, _) => compared.not_understood += 1,
            _ if is_same(rule, expected) => compared.equal += 1,
            _ => compared.different.push((start, rule, expected)),
        }
    }
    compared
}

/// Whether two rules lead to the same caller. The CFA may be relative to either register.
fn is_same(rule: Rule, expected: Rule) -> bool {
    let (
        Rule::Frame { cfa, fp, .. },
        Rule::Frame {
            cfa: expected_cfa,
            fp: expected_fp,
            ..
        },
    ) = (rule, expected)
    else {
        return rule == expected;
    };
    let same_cfa = match (cfa, expected_cfa) {
        (Cfa::Sp(a), Cfa::Sp(b)) | (Cfa::Fp(a), Cfa::Fp(b)) => a == b,
        _ => true,
    };
    // Before the register changes, and after it is restored, it equals its slot.
    same_cfa && (fp == expected_fp || [fp, expected_fp].contains(&SavedFp::Same))
}

#[expect(clippy::print_stdout, reason = "prints statistics")]
fn check_compiled(path: &Path, symbols: bool) {
    let compared = compare(path, symbols);
    println!(
        "{} equal, {} not understood, {} different",
        compared.equal,
        compared.not_understood,
        compared.different.len()
    );
    for (at, rule, expected) in compared.different.iter().take(40) {
        println!("{at:x}: {rule:?}, not {expected:?}");
    }
    assert!(compared.equal > 1000);
    assert!(compared.not_understood * 20 < compared.equal);
    assert!(compared.different.len() * 1000 < compared.equal);
}

fn compiled() -> PathBuf {
    std::env::var("ELF").map_or_else(|_| std::env::current_exe().unwrap(), Into::into)
}

#[test]
fn matches_the_compiler() {
    check_compiled(&compiled(), true);
}

#[test]
fn matches_the_compiler_without_symbols() {
    check_compiled(&compiled(), false);
}

/// push rbp; sub rsp, 32; call to itself; add rsp, 32; pop rbp; ret
const FUNCTION: [u8; 16] = [
    0x55, 0x48, 0x83, 0xec, 0x20, 0xe8, 0xf6, 0xff, 0xff, 0xff, 0x48, 0x83, 0xc4, 0x20, 0x5d, 0xc3,
];

/// Code that no compiler generates, with `parts` at their offsets.
fn image(size: usize, parts: &[(usize, &[u8])]) -> Image {
    let mut image = Image::new(size);
    image.code.fill(0x06);
    for (at, part) in parts {
        image.code[*at..at + part.len()].copy_from_slice(part);
    }
    image
}

#[test]
fn finds_functions_by_pointers_in_relocations() {
    let words = [ADDRESS + 0x900, 8, ADDRESS + 0x40];
    let relocation: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let saved = SavedFp::At(-16);
    let expected = [
        (0x40, sp(8)),
        (0x41, Rule::x86_64(Cfa::Sp(16), saved)),
        (0x45, Rule::x86_64(Cfa::Sp(48), saved)),
        (0x4e, Rule::x86_64(Cfa::Sp(16), saved)),
        (0x4f, sp(8)),
        (0x50, Rule::Gap),
    ];
    let image = image(0x1000, &[(0x40, &FUNCTION), (0x800, &relocation)]);
    check(&image.section(".text", ADDRESS, vec![0; 0x800]), &expected);
}

/// A program whose entry code calls a function at `FUNCTION_AT`.
fn program(size: usize, function: &[u8]) -> Image {
    // call; hlt
    let entry = [0xe8, 0x5b, 0, 0, 0, 0xf4];
    let mut image = image(size, &[(0x20, &entry), (FUNCTION_AT, function)]);
    image.entry = ADDRESS + 0x20;
    image
}

const FUNCTION_AT: usize = 0x80;

#[test]
fn gives_up_on_a_function_with_too_many_cases() {
    const CASES: u32 = 4096;
    for (jumps, expected) in [(10, sp(8)), (1000, Rule::Gap)] {
        let table = FUNCTION_AT + 16 * jumps;
        // cmp edi, last; ja to the next switch; jmp *table(,rdi,8)
        let mut code = Vec::new();
        for _ in 0..jumps {
            code.extend([0x81, 0xff]);
            code.extend((CASES - 1).to_le_bytes());
            code.extend([0x77, 7, 0xff, 0x24, 0xfd]);
            code.extend((ADDRESS as u32 + table as u32).to_le_bytes());
        }
        code.push(0xc3);
        let targets = (ADDRESS + FUNCTION_AT as u64).to_le_bytes();
        let targets = targets.repeat(CASES as usize);
        let mut image = program(table + targets.len(), &code);
        image.code[table..].copy_from_slice(&targets);
        check(&image, &[(0x80, expected), (0x86, expected)]);
    }
}

/// Each of many jumps makes the code after it unsupported.
#[test]
fn processes_overlapping_ranges_once() {
    const JUMPS: usize = 20_000;
    // push rax; then: jump over the next, jmp *rax; in the end pop rax; ret
    let mut code = vec![0x50];
    code.extend([0x74, 0x02, 0xff, 0xe0].repeat(JUMPS));
    code.extend([0x58, 0xc3]);
    let end = (FUNCTION_AT + code.len()) as u64;
    let expected = [
        (0x80, sp(8)),
        (0x81, sp(16)),
        (end - 1, sp(8)),
        (end, Rule::Unsupported),
        (1 << 20, Rule::Unsupported),
    ];
    check(&program(16 << 20, &code), &expected);
}

proptest! {
    #[test]
    fn survives_any_code(
        code in proptest::collection::vec(any::<u8>(), 0..2000),
        pointers in proptest::collection::vec(0u64..4096, 0..20),
    ) {
        let words = pointers.iter().flat_map(|&pointer| [8, ADDRESS + pointer]);
        let data: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let mut image = image(4096, &[(16, &code), (3000, &data)]);
        image.entry = ADDRESS + 16;
        let table = build(&image).expect("the file is valid");
        prop_assert!(table.rows.len() <= 3 * 4096);
    }
}
