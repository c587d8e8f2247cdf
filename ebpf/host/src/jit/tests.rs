use std::fs::File;
use std::io::{Seek, Write};

use super::*;

fn found<'a>(names: &'a JitNames, addresses: &[u64]) -> Vec<Option<&'a str>> {
    addresses.iter().map(|&at| names.find(at)).collect()
}

fn file_with(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(content).expect("written");
    file
}

#[test]
fn later_code_takes_the_place_of_what_it_covers() {
    let mut names = JitNames::default();
    for (start, size, name) in [
        (0x100, 0x100, "a"),
        (0x200, 0x100, "b"),
        (0x300, 0x100, "c"),
        (0x280, 0x100, "new"),
        (0x900, 0, "empty"),
        (u64::MAX, 2, "beyond"),
    ] {
        assert!(names.insert(start, size, name));
    }
    assert_eq!(
        found(
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
fn reads_on_where_a_perf_map_grows_and_anew_where_it_shrinks() {
    let mut file = file_with(b"1000 20 first\nrubbish\n0x2000 0x10 name with spaces\n3000 1");
    let mut map = PerfMap::new(file.try_clone().expect("one more descriptor"));
    let mut names = JitNames::default();
    map.read_on(&mut names, &mut { ROUND }).expect("is read");
    let at = [0x1000, 0x1020, 0x200f, 0x3000];
    assert_eq!(
        found(&names, &at),
        [Some("first"), None, Some("name with spaces"), None]
    );

    file.write_all(b"0 third\n").expect("written");
    map.read_on(&mut names, &mut { ROUND }).expect("is read");
    assert_eq!(found(&names, &at[3..]), [Some("third")]);

    file.set_len(0).expect("cut");
    file.rewind().expect("at its beginning");
    file.write_all(b"3000 10 anew\n").expect("written");
    map.read_on(&mut names, &mut { ROUND }).expect("is read");
    assert_eq!(found(&names, &at), [None, None, None, Some("anew")]);
}

#[test]
fn names_of_one_process_are_bounded() {
    let mut names = JitNames::default();
    let long = "x".repeat(5000);
    let inserted = (1..100_000u64)
        .take_while(|&at| names.insert(at << 8, 16, &long))
        .count();
    assert!((10_000..20_000).contains(&inserted), "{inserted}");
}

fn dump_record(kind: u32, numbers: &[u64], rest: &[u8]) -> Vec<u8> {
    let length = 16 + 16 + numbers.len() * 8 + rest.len();
    let mut record = kind.to_le_bytes().to_vec();
    record.extend((length as u32).to_le_bytes());
    // Time, process and thread, and an address that nobody needs.
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
    let mut dump = Jitdump::open(file.try_clone().expect("one more descriptor")).expect("is one");
    let mut names = JitNames::default();
    dump.read_on(&mut names, &mut { ROUND }).expect("is read");
    let at = [0x5000, 0x50ff, 0x6000, 0x7000];
    assert_eq!(
        found(&names, &at),
        [Some("function"), Some("function"), None, None]
    );

    file.write_all(&second[20..]).expect("written");
    file.write_all(&dump_record(1, &[0x6000, 0x7000, 0x100, 2], b""))
        .expect("written");
    dump.read_on(&mut names, &mut { ROUND }).expect("is read");
    assert_eq!(
        found(&names, &at),
        [Some("function"), Some("function"), None, Some("moved")]
    );
}

#[test]
fn refuses_what_is_no_jitdump() {
    let opened = Jitdump::open(file_with(&[7; 100]));
    assert!(matches!(opened, Err(Unusable::Format)));
}

#[test]
fn finds_a_jitdump_among_the_mappings() {
    let check = |line: &str, expected: Option<&str>| {
        assert_eq!(jitdump_mapping(line).as_deref(), expected, "{line}");
    };
    let start = "0040a000-0040b000 r-xp 00000000 08:01 123 ";
    check(&format!("{start}/tmp/jit-12.dump"), Some("40a000-40b000"));
    check(&format!("{start}/tmp/jit-.dump"), None);
    check(&format!("{start}/tmp/jit-12.dump.old"), None);
    check(&format!("{start}/usr/bin/env"), None);
    check("0040a000-0040b000 r-xp 00000000 00:00 0", None);
}

#[test]
fn takes_files_of_the_process_and_of_root_alone() {
    let status = "Name:\tnode\nUid:\t7\t1000\t7\t7\nNSpid:\t4711\t12\n";
    let owner = Owner::parse(status).expect("has all of it");
    assert_eq!((owner.user, owner.pid), (1000, 12));
    let file = || tempfile::tempfile().expect("a temporary file");
    let own = file().metadata().expect("is there").uid();
    let of = |user| Owner { user, pid: 1 };
    assert!(of(own).check(file()).is_ok());
    assert_eq!(of(own + 1).check(file()).is_ok(), own == 0);
}
