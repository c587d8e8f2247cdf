//! Images built by hand: native code, debug directories, programs of a single file.

use std::collections::BTreeMap;

use super::build::{
    Cell::{Four, Two},
    Image, Metadata, native, native_array, native_hashtable, nibbles, program,
};
use crate::{
    Assembly, Bundle, BundleFile, BundleFileKind, DotNetError, ImageLayout, MethodToken, ReadyToRun,
};

pub const X86_64: u16 = 0x8664 ^ 0x7b79;
const AARCH64: u16 = 0xaa64 ^ 0x7b79;

/// Types `Space.First` with two methods, `Space.Second.Nested` with a third.
pub fn metadata() -> Metadata {
    let mut metadata = Metadata::new();
    metadata.type_def("", "<Module>", 1);
    metadata.type_def("Space", "First", 1);
    metadata.type_def("Space", "Second", 3);
    metadata.type_def("", "Nested", 3);
    metadata.row(0x29, &[Two(4), Two(3)]);
    for name in ["One", "Two", "Three"] {
        metadata.method_def(name);
    }
    let name = metadata.string("Built");
    let none = Two(0);
    let version = [Four(0), none, none, none, none, Four(0), none];
    metadata.row(0x20, &[&version[..], &[name, none]].concat());
    metadata
}

/// Runtime functions: start and end, one byte of padding apart.
const FUNCTIONS: [(u32, u32); 7] = [
    (0x5000, 0x504f),
    // A handler of the first.
    (0x5050, 0x507f),
    (0x5080, 0x50ff),
    (0x5100, 0x51ff),
    // Far behind.
    (0x6000, 0x60ff),
    // Cold.
    (0x8000, 0x801f),
    (0x8020, 0x803f),
];

/// The address of the first thing in an image after its metadata.
fn unwind_data(image: &mut Image) -> u32 {
    image.put(&(0x20_u32 / 4).to_le_bytes()).0
}

fn functions(machine: u16) -> Vec<u8> {
    let unwind = unwind_data(&mut Image::new(machine, &metadata()));
    let functions = FUNCTIONS.iter().flat_map(|&(start, end)| match machine {
        X86_64 => vec![start, end, unwind],
        _ => vec![start, unwind],
    });
    functions.flat_map(u32::to_le_bytes).collect()
}

/// The element of a method: its first function, with a list of fixups or without.
fn entry(function: u32, has_fixups: bool) -> Vec<u8> {
    match has_fixups {
        true => [&native(function << 2 | 1)[..], &[0x12, 0x34]].concat(),
        false => native(function << 1).to_vec(),
    }
}

/// Methods 1 and 3 at functions 0 and 4; at 2 an instance of `MemberRef` 5, at 3 one of another module.
pub fn sections(machine: u16) -> Vec<(u32, Vec<u8>)> {
    let methods = BTreeMap::from([(0, entry(0, true)), (2, entry(4, false))]);
    let instances = [
        // MemberRef 5 of an instance of a generic class, for `int` and an array of that class.
        [
            &[0x50, 0x15, 0x12, 0x05, 0x02, 0x08, 0x1d, 0x12, 0x05, 5][..],
            &entry(2, true),
        ]
        .concat(),
        // MethodDef 9 of a class of another module, for a method type argument.
        [
            &[0x44, 0x3f, 0x02, 0x12, 0x08, 9, 0x01, 0x0e][..],
            &entry(3, false),
        ]
        .concat(),
    ];
    vec![
        (102, functions(machine)),
        (103, native_array(&methods)),
        (109, native_hashtable(&instances)),
    ]
}

fn read(
    machine: u16,
    major: u16,
    flags: u32,
    sections: &[(u32, Vec<u8>)],
) -> Result<Option<ReadyToRun>, DotNetError> {
    let mut image = Image::new(machine, &metadata());
    unwind_data(&mut image);
    image.set_ready_to_run(major, flags, sections);
    let (file, loaded) = (image.file(), image.loaded());
    let from_file = Assembly::read(&file, ImageLayout::File).unwrap();
    let from_memory = Assembly::read(&loaded, ImageLayout::Loaded).unwrap();
    let code = from_file.ready_to_run(&file);
    let same = from_memory.ready_to_run(&loaded);
    if let (Ok(Some(code)), Ok(Some(same))) = (&code, &same) {
        assert!(code.methods().eq(same.methods()));
    }
    code
}

fn ranges(code: &ReadyToRun) -> Vec<(Option<MethodToken>, u32, u32)> {
    let methods = code.methods();
    methods.map(|it| (it.token, it.start, it.end)).collect()
}

#[test]
fn code_belongs_to_the_method_before() {
    use MethodToken::{MemberRef, MethodDef};
    let code = read(X86_64, 9, 0, &sections(X86_64)).unwrap().unwrap();
    let methods = [
        (Some(MethodDef(1)), 0x5000, 0x5080),
        (Some(MemberRef(5)), 0x5080, 0x5100),
        (None, 0x5100, 0x51ff),
        (Some(MethodDef(3)), 0x6000, 0x803f),
    ];
    assert_eq!(ranges(&code), methods);
    for (rva, start) in [
        (0x4fff, None),
        (0x5000, Some(0x5000)),
        (0x507f, Some(0x5000)),
        (0x5080, Some(0x5080)),
        (0x51fe, Some(0x5100)),
        // The gap.
        (0x5500, None),
        (0x8030, Some(0x6000)),
        (0x803f, None),
        (u32::MAX, None),
    ] {
        let method = code.method_at(rva);
        assert_eq!(method.map(|it| it.start), start, "{rva:#x}");
    }
    // Functions without an end.
    let code = read(AARCH64, 9, 0, &sections(AARCH64)).unwrap().unwrap();
    let starts: Vec<_> = code.methods().map(|it| (it.start, it.end)).collect();
    let expected = [
        (0x5000, 0x5080),
        (0x5080, 0x5100),
        (0x5100, 0x6000),
        (0x6000, 0x8040),
    ];
    assert_eq!(starts, expected);
}

#[test]
fn cold_code_belongs_to_its_hot_method() {
    let mut sections = sections(X86_64);
    // Pairs of a cold and a hot function.
    let map = [5_u32, 0, 6, 4].into_iter().flat_map(u32::to_le_bytes);
    sections.push((120, map.collect()));
    sections.push((105, debug_info()));
    let code = read(X86_64, 9, 0, &sections).unwrap().unwrap();
    let at = |rva| code.method_at(rva).and_then(|it| it.token);
    assert_eq!(at(0x6010), Some(MethodToken::MethodDef(3)));
    assert_eq!(at(0x7000), None);
    assert_eq!(at(0x8000), Some(MethodToken::MethodDef(1)));
    assert_eq!(at(0x8020), Some(MethodToken::MethodDef(3)));
}

/// IL offsets of function 0, and the same for function 4.
pub fn debug_info() -> Vec<u8> {
    // Two bounds: the prolog, and IL offset 7 from byte 16 on.
    let bounds = nibbles(&[2, 0, 1, 0, 16, 10, 0]);
    let info = [&nibbles(&[bounds.len() as u32, 0])[..], &bounds].concat();
    let first = [&native(0)[..], &info].concat();
    let distance = |array: &[u8]| {
        let find = |bytes: &[u8]| array.windows(bytes.len()).position(|it| it == bytes);
        find(&native(1)).unwrap() - find(&info).unwrap()
    };
    // First with a mark at the second element, then with the way back from there.
    let array = |back| {
        let second = native(back).to_vec();
        native_array(&BTreeMap::from([(0, first.clone()), (4, second)]))
    };
    array(distance(&array(1)) as u32)
}

#[test]
fn native_offsets_have_il_offsets() {
    let mut sections = sections(X86_64);
    sections.push((105, debug_info()));
    let mut image = Image::new(X86_64, &metadata());
    image.set_ready_to_run(9, 0, &sections);
    let file = image.file();
    let assembly = Assembly::read(&file, ImageLayout::File).unwrap();
    let code = assembly.ready_to_run(&file).unwrap().unwrap();
    for (rva, expected) in [
        (0x5000, Some([Some(0), Some(7), Some(7)])),
        (0x6000, Some([Some(0), Some(7), Some(7)])),
        (0x5080, None),
    ] {
        let method = code.method_at(rva).unwrap();
        let map = code.il_map(&file, &method).unwrap();
        let offsets = map.map(|map| [15, 16, 99].map(|native| map.il_offset(native)));
        assert_eq!(offsets, expected, "{rva:#x}");
    }
}

#[test]
fn code_elsewhere_is_not_guessed() {
    // That of a component is in its composite image.
    assert!(read(X86_64, 9, 0x20, &sections(X86_64)).unwrap().is_none());
    let mut composite = sections(X86_64);
    composite.push((115, vec![0; 16]));
    for (machine, major, sections, message) in [
        (X86_64, 9, composite, "composite"),
        (X86_64, 99, sections(X86_64), "version"),
        (0x14c, 9, sections(X86_64), "machine"),
    ] {
        let error = read(machine, major, 0, &sections).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
    let mut unsorted = sections(X86_64);
    unsorted[0].1[..4].copy_from_slice(&0x7000_u32.to_le_bytes());
    read(X86_64, 9, 0, &unsorted).unwrap_err();
}

#[test]
fn names_come_from_tables() {
    let image = Image::new(X86_64, &metadata());
    let file = image.file();
    let assembly = Assembly::read(&file, ImageLayout::File).unwrap();
    assert_eq!(assembly.name(&file).unwrap(), "Built");
    let names: Vec<_> = (1..=3)
        .map(|row| assembly.method(&file, row).unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "Space.First.One",
            "Space.First.Two",
            "Space.Second.Nested.Three"
        ]
    );
}

#[test]
fn hostile_metadata_is_refused() {
    let refuse = |metadata: &Metadata, message: &str| {
        let file = Image::new(X86_64, metadata).file();
        let assembly = Assembly::read(&file, ImageLayout::File).unwrap();
        let error = assembly.method(&file, 1).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    };
    // A type within itself.
    let mut cyclic = Metadata::new();
    cyclic.type_def("", "<Module>", 1);
    cyclic.type_def("", "Nested", 1);
    cyclic.row(0x29, &[Two(2), Two(2)]);
    cyclic.method_def("Method");
    refuse(&cyclic, "nested too deeply");
    let mut long = Metadata::new();
    long.type_def("", "<Module>", 1);
    long.method_def(&"x".repeat(2000));
    refuse(&long, "name without end");
    // More rows than the stream has.
    let mut many = Metadata::new();
    many.type_def("", "<Module>", 1);
    let mut file = Image::new(X86_64, &many).file();
    let at = file.windows(4).position(|it| it == b"BSJB").unwrap();
    let rows = at + 24 + 3 * 8 + 4 + 12 + 8 + 24;
    assert_eq!(file[rows], 1);
    file[rows + 3] = 0x7f;
    Assembly::read(&file, ImageLayout::File).unwrap_err();
}

fn manifest(version: u32, files: &[(u64, u64, u64, u8, &str)]) -> Vec<u8> {
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend(0_u32.to_le_bytes());
    bytes.extend((files.len() as u32).to_le_bytes());
    bytes.extend(b"\x02id");
    bytes.extend([0; 40]);
    for (offset, size, compressed, kind, path) in files {
        bytes.extend(offset.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        if version == 6 {
            bytes.extend(compressed.to_le_bytes());
        }
        bytes.push(*kind);
        bytes.push(path.len() as u8);
        bytes.extend(path.bytes());
    }
    bytes
}

/// A program with so many bytes before the address of its manifest.
pub fn bundle(before: usize, version: u32) -> Vec<u8> {
    let files = [
        (64, 32, 0, 3, "app.json"),
        (0, 64, 0, 1, "app.dll"),
        (96, 8, 4, 1, "small.dll"),
    ];
    let files = match version {
        2 => &files[..2],
        _ => &files[..],
    };
    let mut content = vec![0; before];
    let address = (120 + content.len() + 40 + 104) as u64;
    content.extend(address.to_le_bytes());
    content.extend(crate::bundle::SIGNATURE);
    content.extend([0; 104]);
    content.extend(manifest(version, files));
    program(&content)
}

#[test]
fn bundles_list_what_can_be_mapped() {
    // The signature may begin in one piece and end in the next.
    for before in [0, 3, (64 << 10) - 140, (64 << 10) - 121, 200_000] {
        for version in [2, 6] {
            let file = bundle(before, version);
            let bundle = Bundle::read(&file).unwrap().unwrap();
            let library = BundleFile {
                offset: 0,
                size: 64,
                kind: BundleFileKind::Assembly,
                path: "app.dll".into(),
            };
            let paths: Vec<_> = bundle.files().iter().map(|file| &*file.path).collect();
            assert_eq!(paths, ["app.dll", "app.json"]);
            assert_eq!(bundle.file_at(63), Some(&library));
            assert_eq!(bundle.file_at(64).unwrap().kind, BundleFileKind::Other);
            assert_eq!(bundle.file_at(96), None);
        }
    }
    let file = bundle(0, 3);
    Bundle::read(&file).unwrap_err();
}

#[test]
fn other_programs_are_no_bundles() {
    assert!(Bundle::read(&program(b"nothing")).unwrap().is_none());
    // A host of programs in several files.
    let content = [&[0; 8][..], &crate::bundle::SIGNATURE].concat();
    assert!(Bundle::read(&program(&content)).unwrap().is_none());
    // A manifest beyond the end.
    let content = [&[0xff; 8][..], &crate::bundle::SIGNATURE].concat();
    Bundle::read(&program(&content)).unwrap_err();
    Bundle::read(&b"#!/bin/sh\n".to_vec()).unwrap_err();
}
