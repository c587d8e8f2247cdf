//! Hostile files: each lookup ends soon, with bounded memory, and without a panic.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use profcol_test_skip::skip;

use profcol_debuginfo::CommonLink;
use profcol_elf::Source;

use crate::{Companions, Frame, Symbols};

const CODE: u64 = 0x1000;

/// An ELF file with a symbol `code` at [`CODE`] and these sections.
fn elf(sections: &[(&str, u64, Vec<u8>)]) -> Vec<u8> {
    let symbol = [
        1u32.to_le_bytes().as_slice(),
        &[2, 0],
        &1u16.to_le_bytes(),
        &CODE.to_le_bytes(),
        &0x1000u64.to_le_bytes(),
    ]
    .concat();
    // Kind, flags, link, entry size.
    let mut all: Vec<(&str, [u64; 4], Vec<u8>)> = vec![
        ("", [0; 4], vec![]),
        (".text", [1, 6, 0, 0], vec![0xc3; 16]),
        (".symtab", [2, 0, 3, 24], [vec![0; 24], symbol].concat()),
        (".strtab", [3, 0, 0, 0], b"\0code\0".to_vec()),
    ];
    all.extend(
        sections
            .iter()
            .map(|(name, flags, it)| (*name, [1, *flags, 0, 0], it.clone())),
    );
    let names: String = all.iter().map(|(name, ..)| format!("{name}\0")).collect();
    all.push((
        ".shstrtab",
        [3, 0, 0, 0],
        format!("{names}.shstrtab\0").into_bytes(),
    ));

    let mut bytes = vec![0; 64];
    let mut headers = Vec::new();
    let mut name_at = 0u32;
    for (name, [kind, flags, link, entry], content) in &all {
        headers.extend(name_at.to_le_bytes());
        headers.extend((*kind as u32).to_le_bytes());
        let address = if *name == ".text" { CODE } else { 0 };
        for word in [*flags, address, bytes.len() as u64, content.len() as u64] {
            headers.extend(word.to_le_bytes());
        }
        headers.extend((*link as u32).to_le_bytes());
        headers.extend([0; 12]);
        headers.extend(entry.to_le_bytes());
        bytes.extend(content);
        name_at += name.len() as u32 + 1;
    }
    let sections_at = bytes.len() as u64;
    bytes.extend(headers);
    let head = [
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".as_slice(),
        &[3, 0, 62, 0, 1, 0, 0, 0],
        &[0; 16],
        &sections_at.to_le_bytes(),
        &[0, 0, 0, 0, 64, 0, 56, 0, 0, 0, 64, 0],
        &(all.len() as u16).to_le_bytes(),
        &(all.len() as u16 - 1).to_le_bytes(),
    ]
    .concat();
    bytes[..64].copy_from_slice(&head);
    bytes
}

/// A DWARF 4 unit whose root covers the code at [`CODE`], with these entries.
fn info(entries: &[u8]) -> Vec<u8> {
    let root = [
        &[1][..],
        &CODE.to_le_bytes(),
        &0x1000u32.to_le_bytes(),
        &0u32.to_le_bytes(),
    ]
    .concat();
    let rest = [
        &4u16.to_le_bytes()[..],
        &0u32.to_le_bytes(),
        &[8],
        &root,
        entries,
    ]
    .concat();
    [&(rest.len() as u32).to_le_bytes()[..], &rest].concat()
}

/// The offset of the first entry of [`info`].
const ENTRIES: u32 = 11 + 17;

fn abbreviations() -> Vec<u8> {
    const LOW: [u8; 4] = [0x11, 0x01, 0x12, 0x06];
    const END: [u8; 2] = [0, 0];
    [
        // Root: low_pc, high_pc, stmt_list.
        &[1, 0x11, 1][..],
        &LOW,
        &[0x10, 0x17],
        &END,
        // Function: low_pc, high_pc, abstract_origin.
        &[2, 0x2e, 1],
        &LOW,
        &[0x31, 0x13],
        &END,
        // Inlined: low_pc, high_pc, abstract_origin.
        &[3, 0x1d, 1],
        &LOW,
        &[0x31, 0x13],
        &END,
        &[0],
    ]
    .concat()
}

fn entry(abbreviation: u8, origin: u32) -> Vec<u8> {
    [
        &[abbreviation][..],
        &CODE.to_le_bytes(),
        &0x1000u32.to_le_bytes(),
        &origin.to_le_bytes(),
    ]
    .concat()
}

fn dwarf(entries: &[u8], line: Vec<u8>) -> Vec<u8> {
    elf(&[
        (".debug_info", 0, info(entries)),
        (".debug_abbrev", 0, abbreviations()),
        (".debug_line", 0, line),
    ])
}

fn find(file: Vec<u8>) -> Vec<Frame> {
    let mut symbols = Symbols::read(Rc::new(file), Rc::new(()), 1 << 20).unwrap();
    let frames = symbols.find(CODE + 4).unwrap();
    let most = 256 << 20;
    assert!(symbols.weight() < most);
    symbols.shrink(1 << 20);
    assert!(symbols.weight() < 160 << 20, "{}", symbols.weight());
    frames
}

/// A line program that starts at [`CODE`], with these instructions.
fn lines(instructions: &[u8]) -> Vec<u8> {
    let tables = b"\0a.c\0\0\0\0\0";
    let header = [
        &[1, 1, 1, 0xfb, 14, 10, 0, 1, 1, 1, 1, 0, 0, 0, 1][..],
        tables,
    ]
    .concat();
    let start = [&[0, 9, 2][..], &CODE.to_le_bytes()].concat();
    let end = [2, 0x80, 0x20, 0, 1, 1];
    let after = [
        &(header.len() as u32).to_le_bytes()[..],
        &header,
        &start,
        instructions,
        &end,
    ]
    .concat();
    let unit = [&4u16.to_le_bytes()[..], &after].concat();
    [&(unit.len() as u32).to_le_bytes()[..], &unit].concat()
}

#[test]
fn valid_files_are_read() {
    let function = entry(2, ENTRIES);
    let frames = find(dwarf(
        &[function, entry(3, ENTRIES), vec![0; 3]].concat(),
        lines(&[1]),
    ));
    assert_eq!(frames.len(), 2);
    assert_eq!((frames[1].name.as_ref(), &*frames[0].file), ("code", "a.c"));
}

#[test]
fn deep_nesting_uses_no_stack() {
    let mut entries = entry(2, ENTRIES);
    for _ in 0..200_000 {
        entries.extend(entry(3, ENTRIES));
    }
    assert_eq!(find(dwarf(&entries, lines(&[1]))).len(), 256);
}

#[test]
fn cyclic_origins_terminate() {
    let size = entry(2, 0).len() as u32;
    let round = [entry(2, ENTRIES + size), entry(3, ENTRIES)].concat();
    let frames = find(dwarf(&round, lines(&[1])));
    assert_eq!(frames.len(), 2);
    assert_eq!(
        (frames[0].name.as_ref(), frames[1].name.as_ref()),
        ("", "code")
    );
}

#[test]
fn long_line_programs_are_truncated() {
    // Each special opcode adds a row at another address.
    let frames = find(dwarf(&entry(2, ENTRIES), lines(&vec![0xff; 16 << 20])));
    assert_eq!(&*frames[0].name, "code");
}

#[test]
fn many_abbreviations_are_truncated() {
    let mut many = Vec::new();
    for number in 0..2_000_000u32 {
        let [a, b, c, _] = (number + 1).to_le_bytes();
        many.extend([a & 0x7f | 0x80, b & 0x7f | 0x80, c | 0x80, 1, 0x11, 0, 0, 0]);
    }
    let file = elf(&[(".debug_info", 0, info(&[])), (".debug_abbrev", 0, many)]);
    assert_eq!(&*find(file)[0].name, "code");
}

#[test]
fn decompression_bombs_are_rejected() {
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![0; 1 << 20];
    for _ in 0..64 {
        packer.write_all(&zeros).unwrap();
    }
    let packed = packer.finish().unwrap();
    for claimed in [64u64 << 20, 1 << 50, u64::MAX, 100] {
        let header = [1u32.to_le_bytes(), [0; 4]].concat();
        let section = [
            header,
            claimed.to_le_bytes().into(),
            1u64.to_le_bytes().into(),
            packed.clone(),
        ];
        let file = elf(&[
            (".debug_info", 0x800, section.concat()),
            (".debug_abbrev", 0, abbreviations()),
        ]);
        assert_eq!(&*find(file)[0].name, "code", "{claimed}");
    }
}

/// A file that is also its own `.dwo` file, package and common file.
struct Itself(Rc<Vec<u8>>);

impl Companions for Itself {
    fn separate(&self, _: &dyn Source) -> Option<Rc<dyn Source>> {
        None
    }

    fn common(&self, _: &CommonLink) -> Option<Rc<dyn Source>> {
        Some(self.0.clone())
    }

    fn package(&self) -> Option<Rc<dyn Source>> {
        Some(self.0.clone())
    }

    fn split(&self, _: &Path, _: &Path) -> Option<Rc<dyn Source>> {
        Some(self.0.clone())
    }
}

/// The fuzzing seeds, which the fuzzer mutates.
#[test]
fn seeds_are_read_and_damage_is_harmless() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/symbols");
    for (seed, inlined) in [
        ("split-4.so", "deep"),
        ("split-5.so", "deep"),
        ("package-5.so", "deep"),
        ("go.so", "main.inner"),
    ] {
        let whole = std::fs::read(seeds.join(seed)).unwrap();
        let find = |file: Vec<u8>| {
            let file = Rc::new(file);
            let companions = Rc::new(Itself(Rc::clone(&file)));
            let mut symbols = Symbols::read(file, companions, 1 << 20).ok()?;
            let addresses = (0x1000..0x3000).step_by(97);
            let frames: Vec<_> = addresses.filter_map(|it| symbols.find(it).ok()).collect();
            assert!(frames.iter().all(|it| it.len() <= 256), "{seed}");
            Some(frames)
        };
        let frames = find(whole.clone()).unwrap();
        let has_it =
            |frames: &Vec<Frame>| matches!(&frames[..], [inner, _] if *inner.name == *inlined);
        assert!(frames.iter().any(has_it), "{seed}: {frames:?}");
        for at in (0..whole.len()).step_by(whole.len() / 200) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            // Any result is valid.
            let _any = find(damaged);
        }
    }
}

/// A real program with DWARF; `None` without g++.
fn program(directory: &tempfile::TempDir) -> Option<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/shapes.cc");
    let program = directory.path().join("shapes");
    let mut compiler = Command::new("g++");
    compiler.args(["-O2", "-g", source, "-o"]).arg(&program);
    match compiler.status() {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            skip(&format!("no g++: {error}"));
            return None;
        }
    }
    Some(program)
}

fn use_it(file: Vec<u8>, addresses: impl Iterator<Item = u64>) {
    let Ok(mut symbols) = Symbols::read(Rc::new(file), Rc::new(()), 1 << 20) else {
        return;
    };
    for address in addresses {
        // Any result is valid: the file is damaged.
        let _any = symbols.find(address);
    }
}

#[test]
fn damage_anywhere_is_harmless() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = program(&directory) else {
        return;
    };
    let whole = std::fs::read(program).unwrap();
    let addresses = || (0x1000..0x4000).step_by(97);
    for cut in (0..whole.len()).step_by(whole.len() / 40) {
        use_it(whole[..cut].to_vec(), addresses());
    }
    // Deterministic pseudorandom numbers.
    let mut state = 1u64;
    let mut next = |below: usize| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    for _ in 0..60 {
        let mut damaged = whole.clone();
        for _ in 0..1 + next(200) {
            let at = next(damaged.len());
            damaged[at] = next(256) as u8;
        }
        use_it(damaged, addresses());
    }
}

#[test]
fn a_file_truncated_while_reading_does_not_crash_the_reader() {
    let directory = tempfile::tempdir().unwrap();
    let Some(path) = program(&directory) else {
        return;
    };
    let mut symbols =
        Symbols::read(Rc::new(File::open(&path).unwrap()), Rc::new(()), 1 << 20).unwrap();
    let addresses = (0x1000..0x4000).step_by(16);
    let named = addresses
        .clone()
        .filter(|&it| symbols.find(it).is_ok())
        .count();
    assert!(named > 100, "{named}");
    symbols.shrink(0);
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(0).unwrap();
    let named = addresses.filter(|&it| symbols.find(it).is_ok()).count();
    assert_eq!(named, 0);
}
