//! Sections compressed while they are read.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use flate2::read::ZlibDecoder;
use object::elf::{
    CompressionHeader64, ELFCOMPRESS_ZLIB, SHF_COMPRESSED, SHT_PROGBITS, SHT_STRTAB, SHT_SYMTAB,
};
use object::{LittleEndian, pod};

use super::image::Image;
use super::program::{build, cpp, run};
use crate::{Dwarf, Extraction, Plan};
use profcol_elf::{Elf, LE, SectionHeader, Source};

const MAX_BYTES: u64 = u64::MAX;

/// Compressible text of the given length.
fn text(seed: u8, length: usize) -> Vec<u8> {
    let words = (0_u32..).flat_map(|number| (number * u32::from(seed) % 509).to_le_bytes());
    words.take(length).collect()
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

fn file() -> Vec<u8> {
    Image::new()
        .section(".text", SHT_PROGBITS, &[0x90; 5000])
        .section(".debug_info", SHT_PROGBITS, &text(3, 300_000))
        .section(".debug_str", SHT_PROGBITS, &noise(20_000))
        .section(".debug_loc", SHT_PROGBITS, &text(5, 100_000))
        .section(".debug_line", SHT_PROGBITS, &text(7, 5000))
        .section(".debug_abbrev", SHT_PROGBITS, &text(9, 100))
        .section(".symtab", SHT_SYMTAB, &text(11, 48_000))
        .section(".strtab", SHT_STRTAB, &text(13, 70_000))
        .bytes()
}

fn compressed(file: &[u8], dwarf: Dwarf) -> Plan {
    let plan = Plan::compressed(file, dwarf, MAX_BYTES, &|| true);
    plan.unwrap().expect("there is no limit")
}

fn extract(plan: Plan, file: &[u8]) -> Vec<u8> {
    let size = plan.size();
    let mut extracted = Vec::new();
    let mut extraction = Extraction::of(plan, file);
    extraction.read_to_end(&mut extracted).unwrap();
    assert_eq!(extracted.len() as u64, size, "matches the planned size");
    extracted
}

/// The decompressed section, and whether it is compressed.
fn content(file: &[u8], name: &str) -> Option<(Vec<u8>, bool)> {
    let elf = Elf::read(file).unwrap();
    let section = elf.find(name.as_bytes())?;
    let bytes = elf.content(file, "a section", section, MAX_BYTES).unwrap();
    if section.sh_flags.get(LE) & u64::from(SHF_COMPRESSED) == 0 {
        return Some((bytes, false));
    }
    assert_eq!(section.sh_addralign.get(LE), 8);
    assert_eq!(section.sh_offset.get(LE) % 8, 0);
    let (header, stream) = pod::from_bytes::<CompressionHeader64<LittleEndian>>(&bytes).unwrap();
    assert_eq!(header.ch_type.get(LE), ELFCOMPRESS_ZLIB);
    let mut plain = Vec::new();
    ZlibDecoder::new(stream).read_to_end(&mut plain).unwrap();
    assert_eq!(header.ch_size.get(LE), plain.len() as u64);
    Some((plain, true))
}

#[test]
fn dwarf_is_compressed_if_that_makes_it_smaller() {
    let file = file();
    let extracted = extract(compressed(&file, Dwarf::All), &file);
    assert!(extracted.len() < file.len() / 2, "{}", extracted.len());
    for (name, is_compressed) in [
        (".debug_info", true),
        (".debug_str", false),
        (".debug_loc", true),
        (".debug_line", true),
        (".debug_abbrev", false),
        (".symtab", false),
        (".strtab", false),
    ] {
        let expected = content(&file, name).unwrap().0;
        assert_eq!(
            content(&extracted, name),
            Some((expected, is_compressed)),
            "{name}"
        );
    }
    assert_eq!(content(&extracted, ".text"), None);
}

#[test]
fn dwarf_not_needed_for_lines_is_dropped_first() {
    let file = file();
    let plan = Plan::keeping(&file[..], Dwarf::Lines).unwrap();
    assert!(plan.contents().dwarf && plan.contents().all_symbols);
    let extracted = extract(plan, &file);
    assert_eq!(content(&extracted, ".debug_loc"), None);
    assert_eq!(
        content(&extracted, ".debug_info"),
        content(&file, ".debug_info")
    );
    let elf = Elf::read(&extracted[..]).unwrap();
    let dropped = elf
        .sections
        .iter()
        .find(|section| elf.name(section) == b".debug_loc");
    let dropped = dropped.unwrap();
    assert_eq!(dropped.sh_type.get(LE), SHT_PROGBITS);
    assert_eq!(dropped.sh_size.get(LE), 0);
}

#[test]
fn without_dwarf_symbols_remain_and_can_be_compressed() {
    let file = file();
    let plan = Plan::keeping(&file[..], Dwarf::None).unwrap();
    assert!(!plan.contents().dwarf && plan.contents().all_symbols);
    let plain = extract(plan, &file);
    assert_eq!(content(&plain, ".debug_info"), None);
    assert_eq!(content(&plain, ".symtab"), content(&file, ".symtab"));
    let smaller = extract(compressed(&file, Dwarf::None), &file);
    assert!(smaller.len() < plain.len() / 2);
    for name in [".symtab", ".strtab"] {
        let expected = content(&file, name).unwrap().0;
        assert_eq!(content(&smaller, name), Some((expected, true)), "{name}");
    }
}

#[test]
fn any_read_size_yields_the_same_bytes() {
    let file = file();
    let expected = extract(compressed(&file, Dwarf::All), &file);
    for step in [1, 7, 4096, 65_536, 100_000] {
        let mut extraction = Extraction::of(compressed(&file, Dwarf::All), &file[..]);
        let mut output = Vec::new();
        let mut buffer = vec![0; step];
        loop {
            match extraction.read(&mut buffer).unwrap() {
                0 => break,
                read => output.extend_from_slice(&buffer[..read]),
            }
        }
        assert!(output == expected, "{step} bytes at a time");
    }
}

#[test]
fn stops_when_the_limit_is_exceeded() {
    let file = file();
    let size = compressed(&file, Dwarf::All).size();
    let plan = |limit| Plan::compressed(&file[..], Dwarf::All, limit, &|| true).unwrap();
    assert!(plan(size).is_some());
    assert!(plan(size - 1).is_none());
    assert!(plan(1).is_none());
    let stopped = Plan::compressed(&file[..], Dwarf::All, MAX_BYTES, &|| false).unwrap();
    assert!(stopped.is_none());
}

#[test]
fn overlapping_sections_are_not_compressed() {
    let mut image = Image::new().section(".debug_info", SHT_PROGBITS, &text(3, 100_000));
    let first = *image.sections.last().unwrap();
    for _ in 0..100 {
        image = image
            .section(".debug_types", SHT_PROGBITS, &[])
            .with(|section| {
                section.sh_offset = first.sh_offset;
                section.sh_size = first.sh_size;
            });
    }
    let file = image.bytes();
    let plan = compressed(&file, Dwarf::All);
    assert!(plan.size() < 2 * file.len() as u64, "{}", plan.size());
    assert!(!content(&extract(plan, &file), ".debug_info").unwrap().1);
}

/// A source that returns other bytes after some reads.
struct Changing {
    before: Vec<u8>,
    after: Vec<u8>,
    is_changed: Cell<bool>,
}

impl Source for Changing {
    fn length(&self) -> io::Result<u64> {
        Ok(self.before.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let now = match self.is_changed.get() {
            false => &self.before,
            true => &self.after,
        };
        now.read_at(buffer, offset)
    }
}

#[test]
fn a_file_that_changes_in_between_is_an_error() {
    let before = file();
    let section: SectionHeader = {
        let elf = Elf::read(&before[..]).unwrap();
        *elf.find(b".debug_info").unwrap()
    };
    let start = section.sh_offset.get(LE) as usize;
    for other in [noise(300_000), vec![0; 300_000]] {
        let mut after = before.clone();
        after[start..start + other.len()].copy_from_slice(&other);
        let source = Changing {
            before: before.clone(),
            after,
            is_changed: Cell::new(false),
        };
        let plan = Plan::compressed(&source, Dwarf::All, MAX_BYTES, &|| true);
        let plan = plan.unwrap().unwrap();
        source.is_changed.set(true);
        let mut extraction = Extraction::of(plan, source);
        let read = extraction.read_to_end(&mut Vec::new());
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}

/// Reads the output with Go's library, as Parca's server does.
const GO: &str = r#"
package main

import (
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"os"
	"sort"
)

func main() {
	file, err := elf.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	var names []string
	symbols, err := file.Symbols()
	if err != nil {
		panic(err)
	}
	for _, symbol := range symbols {
		names = append(names, fmt.Sprintf("symbol %s %x", symbol.Name, symbol.Value))
	}
	sort.Strings(names)
	if data, err := file.DWARF(); err == nil {
		reader := data.Reader()
		for {
			entry, err := reader.Next()
			if err != nil {
				panic(err)
			}
			if entry == nil {
				break
			}
			if entry.Tag == dwarf.TagCompileUnit {
				lines, err := data.LineReader(entry)
				if err != nil {
					panic(err)
				}
				var line dwarf.LineEntry
				for lines != nil && lines.Next(&line) == nil {
					names = append(names, fmt.Sprintf("line %x %s %d", line.Address, line.File.Name, line.Line))
				}
			}
			ranges, err := data.Ranges(entry)
			if err != nil {
				panic(err)
			}
			names = append(names, fmt.Sprint(entry.Tag, entry.Val(dwarf.AttrName), ranges))
		}
	}
	for _, name := range names {
		fmt.Println(name)
	}
}
"#;

#[test]
fn go_library_of_parcas_server_reads_the_output() {
    let directory = tempfile::tempdir().unwrap();
    let Some(reader) = build(directory.path(), "main.go", GO, "go", &["build"]) else {
        return;
    };
    let reads = |file: &Path| run(reader.to_str().unwrap(), &[file.to_str().unwrap()]).unwrap();
    for options in [&["-g", "-gdwarf-4"][..], &["-g", "-gdwarf-5"]] {
        let directory = tempfile::tempdir().unwrap();
        let Some(program) = cpp(directory.path(), options) else {
            return;
        };
        let original = fs::read(&program).unwrap();
        let expected = reads(&program);
        assert!(expected.contains("line ") && expected.contains("innermost"));
        let symbols: Vec<_> = expected
            .lines()
            .filter(|it| it.starts_with("symbol "))
            .collect();
        for (dwarf, expected) in [
            (Dwarf::All, expected.clone()),
            (Dwarf::Lines, expected.clone()),
            (Dwarf::None, symbols.join("\n") + "\n"),
        ] {
            let smaller = directory.path().join("smaller");
            let file = File::open(&program).unwrap();
            let plan = Plan::compressed(&file, dwarf, MAX_BYTES, &|| true)
                .unwrap()
                .unwrap();
            let mut extraction = plan.extract(file).unwrap();
            io::copy(&mut extraction, &mut File::create(&smaller).unwrap()).unwrap();
            let length = fs::metadata(&smaller).unwrap().len();
            assert!(length < original.len() as u64, "{dwarf:?}: {length}");
            assert!(reads(&smaller) == expected, "{options:?} {dwarf:?}");
        }
    }
}
