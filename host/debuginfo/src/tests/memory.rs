//! A file of two gigabytes, most of which is kept.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::Command;

use object::elf::{SHT_PROGBITS, SHT_SYMTAB};
use object::pod::bytes_of;

use super::image::Image;
use crate::Plan;
use profcol_elf::{Header, LE, SectionHeader};

const PATH: &str = "PROFCOL_TEST_LARGE_FILE";
const LARGE: u64 = 2 << 30;
const MAX_BYTES: u64 = 16 << 20;

/// In a separate process, so that the memory of other tests does not count.
#[test]
#[ignore = "two_gigabytes_need_less_than_sixteen_megabytes runs it"]
fn child() {
    let path = std::env::var_os(PATH).expect("the parent sets it");
    let file = File::open(path).unwrap();
    let before = peak();
    let mut extraction = Plan::strip(&file).unwrap().extract(file).unwrap();
    let mut chunk = vec![0; 1 << 20];
    let mut read = 0;
    loop {
        match extraction.read(&mut chunk).unwrap() {
            0 => break,
            length => read += length as u64,
        }
    }
    assert_eq!(read, extraction.size());
    assert!(read > LARGE);
    let taken = peak() - before;
    assert!(taken < MAX_BYTES, "{taken} bytes more than before");
}

fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn two_gigabytes_need_less_than_sixteen_megabytes() {
    let image = Image::new()
        .section(".symtab", SHT_SYMTAB, &[0; 48])
        .section(".debug_info", SHT_PROGBITS, &[0; 8])
        .with(|section| section.sh_size.set(LE, LARGE));
    let small = image.bytes();
    // The tables follow the zeros, which are a hole in the file.
    let (header, _) = object::pod::from_bytes::<Header>(&small).unwrap();
    let sections_at = header.e_shoff.get(LE) as usize;
    let mut sections: Vec<SectionHeader> = {
        let (_, tables) = small.split_at(sections_at);
        object::pod::slice_from_all_bytes(tables).unwrap().to_vec()
    };
    let names = *sections.last().unwrap();
    let names_at = names.sh_offset.get(LE) as usize;
    let names_content = &small[names_at..names_at + names.sh_size.get(LE) as usize];
    sections.last_mut().unwrap().sh_offset.set(LE, LARGE + 4096);
    let mut header = *header;
    header.e_shoff.set(LE, LARGE + 8192);

    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&small[..names_at]).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(bytes_of(&header)).unwrap();
    file.seek(SeekFrom::Start(LARGE + 4096)).unwrap();
    file.write_all(names_content).unwrap();
    file.seek(SeekFrom::Start(LARGE + 8192)).unwrap();
    for section in &sections {
        file.write_all(bytes_of(section)).unwrap();
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "tests::memory::child"])
        .env(PATH, file.path())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && output.contains("1 passed"),
        "{output}"
    );
}
