//! Handmade files, valid and damaged.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use object::BigEndian;
use object::elf::{FileHeader32, PF_X, SHF_COMPRESSED, SHT_NOTE, SHT_PROGBITS};
use object::read::elf::FileHeader;

use crate::*;

const CODE: u64 = 0x40_0000;

/// A file of either class and byte order: one loaded segment that covers the whole file, and sections.
struct Image {
    is_64: bool,
    is_little: bool,
    sections: Vec<(&'static str, u32, u64, Vec<u8>)>,
}

impl Image {
    fn new(is_64: bool, is_little: bool) -> Self {
        Self {
            is_64,
            is_little,
            sections: Vec::new(),
        }
    }

    fn section(mut self, name: &'static str, kind: u32, flags: u32, content: &[u8]) -> Self {
        let section = (name, kind, flags.into(), content.to_vec());
        self.sections.push(section);
        self
    }

    /// A number of `size` bytes; addresses and offsets take 8 or 4 bytes.
    fn number(&self, bytes: &mut Vec<u8>, number: u64, size: usize) {
        match self.is_little {
            true => bytes.extend(&number.to_le_bytes()[..size]),
            false => bytes.extend(&number.to_be_bytes()[8 - size..]),
        }
    }

    fn bytes(mut self) -> Vec<u8> {
        let (header, program, word) = if self.is_64 { (64, 56, 8) } else { (52, 32, 4) };
        let names = |sections: &[(&'static str, u32, u64, Vec<u8>)]| {
            let names = sections
                .iter()
                .flat_map(|(name, ..)| [name.as_bytes(), b"\0"]);
            [b"\0.names\0", &names.collect::<Vec<_>>().concat()[..]].concat()
        };
        let names = names(&self.sections);
        self.sections.insert(0, (".names", 3, 0, names));
        let mut contents = Vec::new();
        let mut tables = vec![0; if self.is_64 { 64 } else { 40 }];
        let mut name_at = 1;
        for (name, kind, flags, content) in &self.sections {
            contents.resize(contents.len() / 8 * 8 + 8, 0);
            let offset = (header + program + contents.len()) as u64;
            let size = content.len() as u64;
            self.number(&mut tables, name_at, 4);
            self.number(&mut tables, (*kind).into(), 4);
            for number in [*flags, CODE + offset, offset, size] {
                self.number(&mut tables, number, word);
            }
            self.number(&mut tables, 0, 4);
            self.number(&mut tables, 0, 4);
            self.number(&mut tables, 4, word);
            self.number(&mut tables, 0, word);
            name_at += name.len() as u64 + 1;
            contents.extend(content);
        }
        let sections_at = (header + program + contents.len()) as u64;
        let end = sections_at + tables.len() as u64;
        let class = 1 + u8::from(self.is_64);
        let order = 2 - u8::from(self.is_little);
        let mut file = [&b"\x7fELF"[..], &[class, order, 1], &[0; 9]].concat();
        for (number, size) in [(3, 2), (62, 2), (1, 4), (CODE, word), (header as u64, word)] {
            self.number(&mut file, number, size);
        }
        self.number(&mut file, sections_at, word);
        self.number(&mut file, 0, 4);
        let count = self.sections.len() as u64 + 1;
        let section = if self.is_64 { 64 } else { 40 };
        for half in [header as u64, program as u64, 1, section, count, 1] {
            self.number(&mut file, half, 2);
        }
        self.number(&mut file, 1, 4);
        let flags = u64::from(PF_X);
        if self.is_64 {
            self.number(&mut file, flags, 4);
        }
        for number in [0, CODE, CODE, end, end] {
            self.number(&mut file, number, word);
        }
        if !self.is_64 {
            self.number(&mut file, flags, 4);
        }
        self.number(&mut file, 8, word);
        file.extend(contents);
        file.extend(tables);
        file
    }
}

fn note(is_little: bool, name: &[u8; 4], kind: u32, id: &[u8]) -> Vec<u8> {
    let number = |number: u32| match is_little {
        true => number.to_le_bytes(),
        false => number.to_be_bytes(),
    };
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(3) as u32 + 1;
    let mut note = [length, id.len() as u32, kind].map(number).concat();
    note.extend(name);
    note.extend(id);
    note.resize(note.len().next_multiple_of(4), 0);
    note
}

fn describe<H: FileHeader>(file: &[u8]) -> (Vec<String>, Vec<Segment>, BuildIds) {
    let elf = Elf::<H>::read_lenient(file).expect("valid");
    let names = elf
        .sections
        .iter()
        .map(|section| elf.name(section).to_vec());
    let names = names.map(|name| String::from_utf8(name).expect("valid UTF-8"));
    (
        names.collect(),
        elf.loaded(PF_X).collect(),
        elf.build_ids(file),
    )
}

#[test]
fn reads_all_classes_and_byte_orders() {
    for (is_64, is_little) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut notes = note(is_little, b"Go\0\0", 4, b"a/b");
        notes.extend(note(is_little, b"GNU\0", 3, b""));
        notes.extend(note(is_little, b"GNU\0", 3, b"\x01\xfe"));
        notes.extend(note(is_little, b"GNU\0", 3, b"\x02"));
        let file = Image::new(is_64, is_little)
            .section(".text", SHT_PROGBITS, 0, &[0x90; 33])
            .section(".note", SHT_NOTE, 0, &notes)
            .bytes();
        let (names, loaded, ids) = match (is_64, is_little) {
            (true, true) => describe::<Header>(&file),
            (true, false) => describe::<object::elf::FileHeader64<object::Endianness>>(&file),
            (false, true) => describe::<FileHeader32<object::LittleEndian>>(&file),
            (false, false) => describe::<FileHeader32<BigEndian>>(&file),
        };
        assert_eq!(names, ["", ".names", ".text", ".note"]);
        let whole = Segment {
            file_offset: 0,
            file_size: file.len() as u64,
            memory_size: file.len() as u64,
            address: CODE,
        };
        assert_eq!(loaded, [whole]);
        assert_eq!(ids.gnu.as_deref(), Some(&b"\x01\xfe"[..]));
        assert_eq!(ids.go.as_deref(), Some("a/b"));
        let is_default = is_64 && is_little;
        assert_eq!(Elf::read(&file[..]).is_ok(), is_default);
    }
}

#[test]
fn lenient_reading_ignores_damaged_sections() {
    let sound = Image::new(true, true).section(".text", SHT_PROGBITS, 0, b"code");
    let sound = sound.bytes();
    let check = |at: usize, byte: u8, expected: &str| {
        let mut file = sound.clone();
        file[at] = byte;
        let refused = Elf::read(&file[..]).expect_err("damaged");
        assert!(refused.to_string().contains(expected), "{refused}");
        let elf = <Elf>::read_lenient(&file[..]).expect("valid segments");
        assert!(elf.sections.is_empty() && elf.loaded(0).count() == 1);
        assert!(elf.find(b".text").is_none());
    };
    check(58, 63, "unexpected section header size");
    check(45, 1, "the section headers at");
    check(61, 1, "extends beyond the end of the file");
    check(62, 2, "no section names");
    check(62, 9, "no section names");
    let mut file = sound.clone();
    file[40..48].fill(0);
    assert!(
        Elf::read(&file[..])
            .expect("no sections")
            .sections
            .is_empty()
    );
}

#[test]
fn rejects_unsupported_files() {
    let sound = Image::new(true, true).bytes();
    let check = |at: usize, byte: u8, expected: &str| {
        let mut file = sound.clone();
        file[at] = byte;
        let refused = Elf::read(&file[..]).expect_err("unsupported");
        assert!(refused.to_string().ends_with(expected), "{refused}");
    };
    check(0, 0, "missing magic number");
    check(4, 1, "class is not 64-bit");
    check(5, 2, "not little-endian");
    check(5, 3, "unknown byte order");
    check(18, 3, "machine is neither x86-64 nor aarch64");
    check(54, 55, "unexpected program header size");
    let length = sound.len();
    check(
        57,
        2,
        &format!("extends beyond the end of the file at {length}"),
    );
    check(57, 200, "more than the limit of 65536");
    for (file, expected) in [
        (&b""[..], "missing magic number"),
        (b"#!/bin/sh\n", "missing magic number"),
        (&sound[..63], "shorter than an ELF header"),
    ] {
        let refused = Elf::read(file).expect_err("too short");
        assert!(refused.to_string().ends_with(expected), "{refused}");
    }
}

#[test]
fn unpacks_both_kinds_of_compressed_sections() {
    let content = b"ten bytes.".repeat(100);
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&content).expect("memory can be written");
    let zlib = encoder.finish().expect("memory can be written");
    let zstd = zstd::encode_all(&content[..], 1).expect("memory can be read");
    let header = |kind: u64, size: u64| [kind, size, 1].map(u64::to_le_bytes).concat();
    let gnu = |size: u64| [&b"ZLIB"[..], &size.to_be_bytes()].concat();
    let check = |name, flags, header: &[u8], packed: &[u8], expected: Result<&[u8], &str>| {
        let section = [header, packed].concat();
        let file = Image::new(true, true).section(name, SHT_PROGBITS, flags, &section);
        let file = file.bytes();
        let elf = Elf::read(&file[..]).expect("valid");
        let section = elf.find_debug("line").expect("present");
        let actual = elf
            .compressed(&file[..], section, 1 << 10)
            .and_then(|compressed| {
                let Some(compressed) = compressed else {
                    return elf.content(&file[..], "it", section, 1 << 10);
                };
                let extent = elf.extent("it", section);
                compressed
                    .read(&file[..])
                    .map_err(|error| extent.unreadable(error))
            });
        match (actual, expected) {
            (Ok(actual), Ok(expected)) => assert_eq!(actual, expected),
            (Err(refused), Err(expected)) => {
                assert!(refused.to_string().contains(expected), "{refused}");
            }
            (actual, expected) => panic!("{actual:?} {expected:?}"),
        }
    };
    let (now, then) = (".debug_line", ".zdebug_line");
    check(now, 0, b"", &content[..9], Ok(b"ten bytes"));
    check(now, SHF_COMPRESSED, &header(1, 1000), &zlib, Ok(&content));
    check(now, SHF_COMPRESSED, &header(2, 1000), &zstd, Ok(&content));
    check(then, 0, &gnu(1000), &zlib, Ok(&content));
    // No more than the stated size, and no less if the stated size is too large.
    check(now, SHF_COMPRESSED, &header(1, 9), &zlib, Ok(b"ten bytes"));
    check(
        now,
        SHF_COMPRESSED,
        &header(1, u64::MAX),
        &zlib,
        Ok(&content),
    );
    for (name, flags, header, packed, expected) in [
        (
            now,
            SHF_COMPRESSED,
            &header(3, 1000)[..],
            &zlib[..],
            "unknown section compression",
        ),
        (
            now,
            SHF_COMPRESSED,
            &header(1, 1000)[..23],
            b"",
            "truncated header",
        ),
        (then, 0, &gnu(1000)[..11], b"", "truncated header"),
        (then, 0, b"LZMA", &zlib, "unknown section compression"),
        (
            now,
            SHF_COMPRESSED,
            &header(1, 1000),
            &zlib[..9],
            "failed to read",
        ),
        (
            now,
            SHF_COMPRESSED,
            &header(1, 1000),
            &[0; 1024],
            "more than the limit of 1024",
        ),
    ] {
        check(name, flags, header, packed, Err(expected));
    }
}

#[test]
fn parses_go_table_headers_of_all_versions() {
    let table = |magic: u32, pointer: u8| {
        let mut table = magic.to_le_bytes().to_vec();
        table.extend([0, 0, 4, pointer]);
        table.extend((1..=8u64).flat_map(u64::to_le_bytes));
        table
    };
    for (magic, version, text, names) in [
        (0xffff_fffa, PclntabVersion::Go1_16, 0, 3),
        (0xffff_fff0, PclntabVersion::Go1_18, 3, 4),
        (0xffff_fff1, PclntabVersion::Go1_20, 3, 4),
    ] {
        let expected = Pclntab {
            version,
            quantum: 4,
            functions: 1,
            text,
            funcnametab: names,
            cutab: names + 1,
            filetab: names + 2,
            pctab: names + 3,
            functab: names + 4,
        };
        let table = table(magic, 8);
        assert_eq!(table.len(), Pclntab::HEADER);
        assert_eq!(Pclntab::parse(&table), Some(expected));
        let words = if names == 3 { 7 } else { 8 };
        assert_eq!(Pclntab::parse(&table[..7 + 8 * words]), None);
    }
    assert_eq!(Pclntab::parse(&table(0xffff_fff1, 4)), None);
    assert_eq!(Pclntab::parse(&table(0xffff_fffb, 8)), None);
}

#[test]
fn reads_stay_within_the_file() {
    let bytes = vec![1, 2, 3];
    let read = |offset, length| {
        let mut buffer = vec![0; length];
        bytes.read_at(&mut buffer, offset).map(|()| buffer)
    };
    assert_eq!(read(1, 2).expect("present"), [2, 3]);
    assert!(read(1, 3).is_err());
    assert!(read(u64::MAX, 2).is_err());
    let extent = |offset, size| Extent {
        what: "it",
        offset,
        size,
    };
    assert_eq!(extent(1, 2).read(&bytes, 2).expect("present"), [2, 3]);
    for (offset, size, expected) in [
        (
            1,
            3,
            "it at 0x1 with 3 bytes extends beyond the end of the file at 3",
        ),
        (0, 9, "it at 0x0 has 9 bytes, more than the limit of 8"),
        (
            u64::MAX,
            2,
            "it at 0xffffffffffffffff with 2 bytes extends beyond the end of the file at 3",
        ),
    ] {
        let refused = extent(offset, size).read(&bytes, 8).expect_err("too much");
        assert_eq!(refused.to_string(), expected);
    }
}
