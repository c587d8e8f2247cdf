//! What is kept of valid files, and how damaged ones are rejected.

use object::elf::*;

use super::image::{Image, program};
use super::strip;
use crate::{Contents, Plan};
use profcol_elf::{Elf, LE, SectionHeader, Source, build_id, has_data};

/// Section names, and contents if kept.
fn sections(file: &[u8]) -> Vec<(String, Option<Vec<u8>>)> {
    let elf = Elf::read(file).unwrap();
    let read = |section: &SectionHeader| {
        let name = String::from_utf8(elf.name(section).to_vec()).unwrap();
        let content = has_data(section).then(|| elf.content(file, "it", section, 1 << 20).unwrap());
        (name, content)
    };
    elf.sections.iter().skip(1).map(read).collect()
}

#[test]
fn keeps_symbol_information_and_the_size_of_dropped_sections() {
    let file = Image::valid()
        .section(".debug_info", SHT_PROGBITS, b"dwarf")
        .section(".debug_line", SHT_PROGBITS, b"packed")
        .with(|section| section.sh_flags.set(LE, SHF_COMPRESSED.into()))
        .section(".eh_frame", SHT_PROGBITS, &[1; 99])
        .section(".bss", SHT_NOBITS, &[])
        .with(|section| section.sh_size.set(LE, 1 << 40))
        .bytes();
    let stripped = strip(&file).unwrap();
    let dropped = [".text", ".eh_frame", ".bss"];
    let expected: Vec<_> = sections(&file)
        .into_iter()
        .map(|(name, content)| (name.clone(), content.filter(|_| !dropped.contains(&&*name))))
        .collect();
    assert_eq!(sections(&stripped), expected);
    let (before, after) = (
        Elf::read(&file[..]).unwrap(),
        Elf::read(&stripped[..]).unwrap(),
    );
    for (before, after) in before.sections.iter().zip(&after.sections) {
        let facts = |section: &SectionHeader| {
            (
                section.sh_addr,
                section.sh_size,
                section.sh_flags,
                section.sh_link,
                section.sh_info,
            )
        };
        assert_eq!(facts(before), facts(after));
        assert_eq!(after.sh_offset.get(LE) % 8, 0);
    }
}

#[test]
fn segments_keep_their_addresses_and_notes_their_bytes() {
    let stripped = strip(&Image::valid().bytes()).unwrap();
    let elf = Elf::read(&stripped[..]).unwrap();
    let [load, note] = &elf.programs[..] else {
        panic!("{:?}", elf.programs);
    };
    assert_eq!(load.p_offset.get(LE), 0);
    assert_eq!(
        (load.p_filesz.get(LE), load.p_vaddr.get(LE)),
        (0, 0x40_0000)
    );
    assert!(load.p_memsz.get(LE) > 500);
    let at = note.p_offset.get(LE) as usize;
    let notes = &stripped[at..at + note.p_filesz.get(LE) as usize];
    assert_eq!(build_id(notes).as_deref(), Some(&b"abcd"[..]));
}

#[test]
fn reports_the_contents_of_a_file() {
    let check = |name: &str, kind, expected: Option<Contents>| {
        let file = Image::new()
            .section(".text", SHT_PROGBITS, &[0x90; 500])
            .section(name, kind, &[1; 10])
            .bytes();
        let plan = Plan::strip(&file[..]);
        let reason = plan.as_ref().err().map(|refused| refused.reason());
        assert_eq!(reason, expected.is_none().then_some("no_names"), "{name}");
        assert_eq!(plan.ok().map(|plan| plan.contents()), expected, "{name}");
    };
    let none = Contents::default();
    let dwarf = Some(Contents {
        dwarf: true,
        ..none
    });
    let symbols = Some(Contents {
        symbols: true,
        ..none
    });
    let all_symbols = Some(Contents {
        symbols: true,
        all_symbols: true,
        ..none
    });
    let go_functions = Some(Contents {
        go_functions: true,
        ..none
    });
    check(".debug_info", SHT_PROGBITS, dwarf);
    check(".zdebug_info", SHT_PROGBITS, dwarf);
    check(".symtab", SHT_SYMTAB, all_symbols);
    check(".dynsym", SHT_DYNSYM, symbols);
    check(".gopclntab", SHT_PROGBITS, go_functions);
    check(".data.rel.ro.gopclntab", SHT_PROGBITS, go_functions);
    check(".debug_info", SHT_NOBITS, None);
    check(".debug_frame", SHT_PROGBITS, None);
    check(".data", SHT_PROGBITS, None);
}

#[test]
fn section_counts_may_be_in_the_first_section_header() {
    let mut image = Image::valid();
    let count = image.sections.len() as u64 + 1;
    image.sections[0].sh_size.set(LE, count);
    image.sections[0].sh_link.set(LE, count as u32 - 1);
    let mut file = image.bytes();
    // e_shnum and e_shstrndx.
    file[60..64].copy_from_slice(&[0, 0, 0xff, 0xff]);
    let stripped = strip(&file).unwrap();
    assert_eq!(sections(&stripped).len() as u64, count - 1);
    assert!(sections(&stripped)[0].0 == ".text");
}

#[track_caller]
fn refused(file: &[u8], reason: &str, says: &str) {
    let refused = strip(file).expect_err(says);
    let text = refused.to_string();
    assert_eq!(refused.reason(), reason, "{text}");
    assert!(text.contains(says), "{text}");
}

#[test]
fn reports_why_a_file_is_rejected() {
    let valid = || Image::valid().bytes();
    let changed = |at: usize, bytes: &[u8]| {
        let mut file = valid();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    let far = &u64::MAX.to_le_bytes()[..];
    refused(&[], "unsupported", "magic");
    refused(b"#!/bin/sh", "unsupported", "magic");
    refused(&[b'#'; 100], "unsupported", "magic");
    refused(&changed(4, &[1]), "unsupported", "64-bit");
    refused(&changed(5, &[2]), "unsupported", "little-endian");
    refused(&changed(18, &[8]), "unsupported", "x86-64");
    refused(&changed(54, &[32]), "unsupported", "program header");
    refused(&changed(58, &[40]), "unsupported", "section header");
    refused(&changed(32, far), "broken", "the program headers at 0xffff");
    refused(&changed(40, far), "broken", "the section headers at 0xffff");
    refused(&changed(40, &[0; 8]), "no_names", "no DWARF");
    refused(&changed(62, &[200]), "unsupported", "no section names");
    refused(&changed(60, &[255, 255]), "broken", "extends beyond");
    refused(&valid()[..700], "broken", "the section headers at");
    let beyond = Image::valid().with(|section| section.sh_offset.set(LE, 1 << 40));
    refused(&beyond.bytes(), "broken", "a section at 0x10000000000");
    let long = Image::valid().with(|section| section.sh_size.set(LE, u64::MAX));
    refused(&long.bytes(), "broken", "a section at");
}

/// A file that claims to have this many zero bytes after its actual ones.
struct Padded(Vec<u8>, u64);

impl Source for Padded {
    fn length(&self) -> std::io::Result<u64> {
        Ok(self.1)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        let start = self.0.len().min(offset as usize);
        let actual = &self.0[start..];
        let actual = &actual[..actual.len().min(buffer.len())];
        let (begin, rest) = buffer.split_at_mut(actual.len());
        begin.copy_from_slice(actual);
        rest.fill(0);
        Ok(())
    }
}

#[test]
fn large_tables_take_bounded_memory() {
    let mut image = Image::valid();
    image.sections[0].sh_size.set(LE, 1 << 30);
    let mut file = image.bytes();
    file[60..62].fill(0);
    let refused = Plan::strip(&Padded(file, 1 << 40)).expect_err("a billion sections");
    assert!(refused.to_string().contains("more than the"), "{refused}");
}

#[test]
fn overlapping_sections_are_kept_once() {
    let mut image = Image::valid().section(".debug_info", SHT_PROGBITS, &[5; 5000]);
    let section = *image.sections.last().unwrap();
    for number in 0..60_000_u64 {
        let mut next = section;
        next.sh_offset
            .set(LE, section.sh_offset.get(LE) + number % 4000);
        next.sh_size.set(LE, 1000);
        image.sections.push(next);
    }
    let file = image.bytes();
    let stripped = strip(&file).unwrap();
    assert!(stripped.len() < file.len());
    assert_eq!(sections(&stripped)[9].1, Some(vec![5; 1000]));
}

#[test]
fn a_note_segment_outside_of_the_file_is_ignored() {
    let mut image = Image::valid();
    image.programs.push(program(PT_NOTE, u64::MAX, u64::MAX));
    let elf = strip(&image.bytes()).unwrap();
    let elf = Elf::read(&elf[..]).unwrap();
    assert_eq!(elf.programs[2].p_filesz.get(LE), 0);
}
