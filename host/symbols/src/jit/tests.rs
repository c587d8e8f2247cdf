//! Handmade perf maps and jitdumps that grow, shrink and have damage: names and lines by address, within bounds.

use std::fs::File;
use std::io::{Seek, Write};

use profcol_elf::Mappings;

use super::names::Lines;
use super::*;

fn names_at<'a>(names: &'a JitNames, addresses: &[u64]) -> Vec<Option<&'a str>> {
    let name = |&at| names.find(at).map(|code| code.name);
    addresses.iter().map(name).collect()
}

fn file_with(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(content).expect("written");
    file
}

#[test]
fn new_code_replaces_overlapped_code() {
    let mut names = JitNames::new(usize::MAX);
    for (start, size, name) in [
        (0x100, 0x100, "a"),
        (0x200, 0x100, "b"),
        (0x300, 0x100, "c"),
        (0x280, 0x100, "new"),
        (0x900, 0, "empty"),
        (u64::MAX, 2, "beyond"),
    ] {
        assert!(names.insert(start, size, name, Lines::default()));
    }
    assert_eq!(
        names_at(
            &names,
            &[0xff, 0x100, 0x1ff, 0x200, 0x280, 0x37f, 0x380, 0x900]
        ),
        [
            None,
            Some("a"),
            Some("a"),
            None,
            Some("new"),
            Some("new"),
            None,
            None
        ]
    );
}

#[test]
fn continues_when_a_perf_map_grows_and_restarts_when_it_shrinks() {
    let mut file = file_with(b"1000 20 first\nrubbish\n0x2000 0x10 name with spaces\n3000 1");
    let mut map = PerfMap::new(file.try_clone().expect("one more descriptor"));
    let mut names = JitNames::new(usize::MAX);
    map.read_on(&mut names, &mut { ROUND }).expect("readable");
    let at = [0x1000, 0x1020, 0x200f, 0x3000];
    assert_eq!(
        names_at(&names, &at),
        [Some("first"), None, Some("name with spaces"), None]
    );

    file.write_all(b"0 third\n").expect("written");
    map.read_on(&mut names, &mut { ROUND }).expect("readable");
    assert_eq!(names_at(&names, &at[3..]), [Some("third")]);

    file.set_len(0).expect("cut");
    file.rewind().expect("rewound");
    file.write_all(b"3000 10 anew\n").expect("written");
    map.read_on(&mut names, &mut { ROUND }).expect("readable");
    assert_eq!(names_at(&names, &at), [None, None, None, Some("anew")]);
}

#[test]
fn names_of_a_process_are_bounded() {
    let mut names = JitNames::new(usize::MAX);
    let long = "x".repeat(5000);
    let inserted = (1..100_000u64)
        .take_while(|&at| names.insert(at << 8, 16, &long, Lines::default()))
        .count();
    assert!((10_000..20_000).contains(&inserted), "{inserted}");
}

#[test]
fn evicts_the_least_recently_sampled_processes() {
    let max_bytes = 1 << 16;
    let mut processes = JitProcesses::new(max_bytes);
    let start = Instant::now();
    for pid in 0..8u32 {
        let lines = (0..200).map(|line| format!("{:x} 10 name of {pid}\n", (line + 1) * 0x10));
        let map = file_with(lines.collect::<String>().as_bytes());
        let process = JitProcess {
            pid,
            sources: vec![Source::PerfMap(PerfMap::new(map))],
            names: JitNames::new(max_bytes / 2),
            used: start + Duration::from_secs(pid.into()),
            next_check: start,
            wait: FIRST_WAIT,
        };
        processes.processes.insert(pid, process);
    }
    processes.refresh();
    let held: usize = processes
        .processes
        .values()
        .map(|it| it.names.bytes())
        .sum();
    assert!(held <= max_bytes, "{held}");
    assert!(processes.names(&0).is_none());
    let last = processes.names(&7).expect("kept");
    assert_eq!(names_at(last, &[0x10]), [Some("name of 7")]);
}

fn dump_record(kind: u32, numbers: &[u64], rest: &[u8]) -> Vec<u8> {
    let length = 16 + 16 + numbers.len() * 8 + rest.len();
    let mut record = kind.to_le_bytes().to_vec();
    record.extend((length as u32).to_le_bytes());
    // Time, process and thread, and an unused address.
    record.extend([0; 8 + 16]);
    record.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    record.extend(rest);
    record
}

#[test]
fn reads_a_jitdump_as_it_grows() {
    let mut header = 0x4a69_5444u32.to_le_bytes().to_vec();
    header.extend([1, 0, 0, 0, 40, 0, 0, 0]);
    header.resize(40, 0);
    let mut code = b"function\0".to_vec();
    code.resize(3000, 0x90);
    header.extend(dump_record(0, &[0x5000, 0x100, 1], &code));
    let second = dump_record(0, &[0x6000, 0x100, 2], b"moved\0");
    header.extend(&second[..20]);
    let mut file = file_with(&header);
    let mut dump = Jitdump::open(file.try_clone().expect("one more descriptor")).expect("valid");
    let mut names = JitNames::new(usize::MAX);
    dump.read_on(&mut names, &mut { ROUND }).expect("readable");
    let at = [0x5000, 0x50ff, 0x6000, 0x7000];
    assert_eq!(
        names_at(&names, &at),
        [Some("function"), Some("function"), None, None]
    );

    file.write_all(&second[20..]).expect("written");
    file.write_all(&dump_record(1, &[0x6000, 0x7000, 0x100, 2], b""))
        .expect("written");
    dump.read_on(&mut names, &mut { ROUND }).expect("readable");
    assert_eq!(
        names_at(&names, &at),
        [Some("function"), Some("function"), None, Some("moved")]
    );
}

fn line_record(code: u64, lines: &[(u64, u32, &[u8])]) -> Vec<u8> {
    let mut content = [code, lines.len() as u64].map(u64::to_le_bytes).concat();
    for (address, line, file) in lines {
        content.extend(address.to_le_bytes());
        content.extend(line.to_le_bytes());
        content.extend([0; 4]);
        content.extend(*file);
        content.push(0);
    }
    let mut record = 2u32.to_le_bytes().to_vec();
    record.extend((16 + content.len() as u32).to_le_bytes());
    record.extend([0; 8]);
    record.extend(content);
    record
}

#[test]
fn reads_the_lines_of_a_jitdump() {
    let mut content = 0x4a69_5444u32.to_le_bytes().to_vec();
    content.extend([1, 0, 0, 0, 12, 0, 0, 0]);
    let many = vec![(0x7000, 1, &b"long"[..]); 1000];
    let rows: &[(u64, u32, &[u8])] = &[
        (0x5010, 7, b"a.js"),
        (0x5020, 8, &[0xff]),
        (0x4000, 9, b"before.js"),
        (0x5020, 10, b"b.js"),
        (0x5018, 11, b"back.js"),
    ];
    for record in [
        line_record(0x5000, rows),
        dump_record(0, &[0x5000, 0x100, 1], b"first\0"),
        // Lines of other code than the next record.
        line_record(0x9999, rows),
        dump_record(0, &[0x6000, 0x100, 2], b"second\0"),
        line_record(0x7000, &many),
        dump_record(0, &[0x7000, 0x100, 3], b"third\0"),
        dump_record(1, &[0x5000, 0x8000, 0x100, 1], b""),
    ] {
        content.extend(record);
    }
    let mut dump = Jitdump::open(file_with(&content)).expect("valid");
    let mut names = JitNames::new(usize::MAX);
    dump.read_on(&mut names, &mut { ROUND }).expect("readable");
    let check = |address, name, file, line| {
        let expected = GeneratedCode { name, file, line };
        assert_eq!(names.find(address), Some(expected), "{address:x}");
    };
    check(0x800f, "first", "", 0);
    check(0x8010, "first", "a.js", 7);
    check(0x801f, "first", "a.js", 7);
    check(0x8020, "first", "b.js", 10);
    check(0x80ff, "first", "b.js", 10);
    check(0x6000, "second", "", 0);
    check(0x7000, "third", "long", 1);
    assert_eq!(names.find(0x5000), None);
}

#[test]
fn damaged_lines_are_ignored() {
    let whole = line_record(0x5000, &[(0x5000, 1, b"a"), (0x5008, 2, b"b")]);
    for length in 16..whole.len() {
        let mut content = 0x4a69_5444u32.to_le_bytes().to_vec();
        content.extend([1, 0, 0, 0, 12, 0, 0, 0]);
        let mut cut = whole[..length].to_vec();
        cut[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        content.extend(cut);
        content.extend(dump_record(0, &[0x5000, 0x100, 1], b"code\0"));
        let mut dump = Jitdump::open(file_with(&content)).expect("valid");
        let mut names = JitNames::new(usize::MAX);
        dump.read_on(&mut names, &mut { ROUND }).expect("readable");
        assert_eq!(names_at(&names, &[0x5000]), [Some("code")], "{length}");
    }
}

#[test]
fn rejects_other_files_as_jitdump() {
    let opened = Jitdump::open(file_with(&[7; 100]));
    assert!(matches!(opened, Err(Unusable::Format)));
}

#[test]
fn a_jitdump_is_found_by_its_name() {
    for (path, expected) in [
        ("/tmp/jit-12.dump", true),
        ("/home/some user/jit-12.dump", true),
        ("/tmp/jit-12.dump (deleted)", true),
        ("/tmp/jit-.dump", false),
        ("/tmp/jit-12.dump.old", false),
        ("/usr/bin/env", false),
        ("", false),
    ] {
        let maps = format!("0040a000-0040b000 r-xp 00000000 08:01 123 {path}\n");
        let mapping = Mappings::new(maps.as_bytes()).next().unwrap().unwrap();
        assert_eq!(is_mapped_jitdump(&mapping), expected, "{path}");
    }
}

#[test]
fn accepts_only_files_of_the_process_and_of_root() {
    let status = "Name:\tnode\nUid:\t7\t1000\t7\t7\nNSpid:\t4711\t12\n";
    let owner = Owner::parse(status).expect("complete");
    assert_eq!((owner.user, owner.pid), (1000, 12));
    let file = || tempfile::tempfile().expect("a temporary file");
    let own = file().metadata().expect("present").uid();
    let of = |user| Owner { user, pid: 1 };
    assert!(of(own).check(file()).is_ok());
    assert_eq!(of(own + 1).check(file()).is_ok(), own == 0);
}
