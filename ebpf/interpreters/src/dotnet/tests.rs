//! Methods in handmade memory: ranges, headers, descriptors, assemblies, and damage.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::process::Command;

use profcol_ebpf_common::interpreter::dotnet::DotNetProcess;
use profcol_test_skip::skip;
use proptest::prelude::*;

use super::layout::module as at;
use super::*;
use crate::memory::{Memory, MemoryError};

const RANGES: u64 = 0x1_0000;
const FRAGMENT: u64 = 0x2_0000;
const SECTION: u64 = 0x2_1000;
const HEAP: u64 = 0x2_2000;
const NIBBLES: u64 = 0x2_3000;
const HEADER: u64 = 0x2_4000;
const CHUNK: u64 = 0x3_0000;
const METHOD_TABLE: u64 = 0x3_1000;
const MODULE: u64 = 0x3_2000;
const ASSEMBLY: u64 = 0x3_3000;
const IMAGE: u64 = 0x3_4000;
const CONTENTS: u64 = 0x3_5000;
const NAME: u64 = 0x3_6ff0;
const FILE: u64 = 0x10_0000;
const CODE: u64 = 0x7f00_1234_0000;
const CODE_BYTES: u64 = 0x1_0000;
/// Of the method in the code.
const START: u64 = CODE + 0x148;

/// Bytes at addresses; all others below [`Self::END`] are 0, and in the page after [`NAME`] there are none.
#[derive(Default)]
struct Process(RefCell<BTreeMap<u64, u8>>);

impl Process {
    const END: u64 = 0x20_0000;

    fn put(&self, address: u64, words: &[u64]) {
        for (at, word) in (address..).step_by(8).zip(words) {
            self.put_bytes(at, &word.to_le_bytes());
        }
    }

    fn put_bytes(&self, address: u64, bytes: &[u8]) {
        let mut known = self.0.borrow_mut();
        known.extend((address..).zip(bytes.iter().copied()));
    }

    /// A method in a code heap.
    fn new(layout: &Layout) -> Self {
        let process = Self::default();
        process.put_ranges(2, 0);
        process.put(HEAP, &[0, 0, CODE, CODE + CODE_BYTES, CODE, NIBBLES]);
        // In the second word of the map: its third nibble, at place 2.
        process.put_bytes(NIBBLES + 4, &0x0030_0000_u32.to_le_bytes());
        process.put(START - 8, &[HEADER]);
        process.put(HEADER, &[0, 0, 0, CHUNK + 24 + 8 * 5]);
        process.put_method(7, 0x3_002);
        process.put(METHOD_TABLE + at::OF_METHOD_TABLE, &[MODULE]);
        process.put(MODULE + layout.module_assembly, &[ASSEMBLY]);
        process.put(ASSEMBLY + at::IMAGE, &[IMAGE]);
        process.put(IMAGE + layout.flat_image, &[CONTENTS]);
        process
    }

    fn put_ranges(&self, flags: u64, module: u64) {
        for level in 0..5 {
            let table = RANGES + level * 0x800;
            let index = CODE >> (17 + (4 - level) * 8) & 0xff;
            let next = match level {
                4 => FRAGMENT,
                _ => table + 0x800,
            };
            self.put(table + index * 8, &[next]);
        }
        let end = CODE + CODE_BYTES;
        self.put(FRAGMENT, &[0, CODE, end, SECTION]);
        self.put(SECTION, &[CODE, end, flags, 0, module, HEAP]);
    }

    /// The sixth descriptor of a chunk, of this kind and for this row.
    fn put_method(&self, kind: u16, row: u32) {
        self.put(CHUNK, &[METHOD_TABLE, 0, 0]);
        let range = (row >> 12) as u16;
        self.put_bytes(CHUNK + 18, &(0x4000 | range).to_le_bytes());
        let descriptor = CHUNK + 24 + 8 * 5;
        let rest = 0xa000 | (row & 0xfff) as u16;
        self.put_bytes(descriptor, &rest.to_le_bytes());
        self.put_bytes(descriptor + 2, &[5, 0, 0, 0]);
        self.put_bytes(descriptor + 6, &kind.to_le_bytes());
    }

    fn reader<'a>(&'a self, layout: &'a Layout) -> CodeReader<'a, Self> {
        CodeReader {
            layout,
            process: DotNetProcess {
                ranges: RANGES,
                has_distances: u32::from(layout.has_distances),
                unused: 0,
            },
            memory: self,
        }
    }
}

impl Memory for Process {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
        assert!(buffer.len() <= 1 << 20);
        let bytes = self.0.borrow();
        for (place, at) in buffer.iter_mut().zip(address..) {
            let known = bytes.get(&at).copied();
            let is_hole = at >= Self::END || at >> 12 == (NAME >> 12) + 1;
            let Some(byte) = known.or((!is_hole).then_some(0)) else {
                let error = ErrorKind::InvalidInput.into();
                return Err(MemoryError { address, error });
            };
            *place = byte;
        }
        Ok(())
    }
}

#[test]
fn versions_are_those_of_releases() {
    for (version, expected) in [
        ("8.0.3026.36720", "8.0.30"),
        ("10.0.1126.37416", "10.0.11"),
        ("9.0.26.1", "9.0.0"),
        ("9.0.0-preview", "9.0.0-preview"),
        ("9.0.x.1", "9.0.x.1"),
    ] {
        assert_eq!(release(version), expected);
    }
    for (version, expected) in [
        ("7.0.20", Err("8 is the oldest supported version")),
        ("8.0.30", Ok(8)),
        ("10.0.11", Ok(10)),
        ("11.0.0", Err("10 is the newest supported version")),
        ("", Err("its version is unknown")),
    ] {
        let found = Layout::of_version(version).map(|layout| layout.major);
        assert_eq!(found, expected);
    }
}

#[test]
fn code_belongs_to_a_method_a_stub_or_an_image() {
    for layout in Layout::all() {
        let process = Process::new(layout);
        let at = |address| process.reader(layout).code_at(address).unwrap();
        for address in [START, START + 1, CODE + CODE_BYTES - 1] {
            let Some(CodeAt::Method(method)) = at(address) else {
                panic!("{address:#x}: {:?}", at(address));
            };
            assert_eq!((method.start, method.descriptor), (START, CHUNK + 64));
        }
        for address in [START - 1, CODE, CODE - 1, CODE + CODE_BYTES, 0] {
            assert_eq!(at(address), None);
        }
        process.put(START - 8, &[3]);
        assert_eq!(at(START), Some(CodeAt::Stub));
        process.put_ranges(4, 0);
        assert_eq!(at(START), Some(CodeAt::Stub));
        process.put_ranges(0, MODULE);
        assert_eq!(at(START), Some(CodeAt::Precompiled(MODULE)));
        process.put_ranges(0, 0);
        assert_eq!(at(START), None);
    }
}

#[test]
fn a_descriptor_has_a_row_or_a_name() {
    for layout in Layout::all() {
        let process = Process::new(layout);
        let reader = process.reader(layout);
        let descriptor = CHUNK + 64;
        process.put_method(0, 0x3_002);
        let row = Described::Row {
            module: MODULE,
            row: 0x3_002,
        };
        assert_eq!(reader.describe(descriptor).unwrap(), row);
        process.put_method(7, 0);
        process.put(descriptor + layout.dynamic_name, &[NAME]);
        let dynamic = Described::Dynamic { name: NAME };
        assert_eq!(reader.describe(descriptor).unwrap(), dynamic);
        reader.describe(descriptor + 4).unwrap_err();
        reader.describe(!7).unwrap_err();
    }
}

#[test]
fn a_module_has_its_loaded_contents_or_those_of_the_file() {
    for layout in Layout::all() {
        let process = Process::new(layout);
        let reader = process.reader(layout);
        process.put(CONTENTS + 8, &[FILE, 0x1234]);
        let image = |base, is_mapped| ImageAt {
            base,
            size: 0x1234,
            is_mapped,
        };
        assert_eq!(reader.image(MODULE).unwrap(), image(FILE, false));
        let loaded = CONTENTS + 0x100;
        process.put(IMAGE + layout.loaded_image, &[loaded]);
        process.put(loaded + 8, &[FILE + 0x1000, 1 << 32 | 0x1234]);
        assert_eq!(reader.image(MODULE).unwrap(), image(FILE + 0x1000, true));
    }
}

#[test]
fn dynamic_methods_have_their_own_names() {
    let long = "n".repeat(1000);
    for (name, expected) in [
        (
            "lambda_method17",
            Some(("DynamicClass.lambda_method17", false)),
        ),
        ("größe", Some(("DynamicClass.größe", false))),
        (
            "IL_STUB_PInvoke",
            Some(("DynamicClass.IL_STUB_PInvoke", true)),
        ),
        // Continues in a page that cannot be read.
        (&long[..16], None),
    ] {
        for layout in Layout::all() {
            let process = Process::new(layout);
            process.put(CHUNK + 64 + layout.dynamic_name, &[NAME]);
            let start = NAME + 15 - name.len().min(15) as u64;
            process.put(CHUNK + 64 + layout.dynamic_name, &[start]);
            process.put_bytes(start, name.as_bytes());
            let mut runtime = DotNetRuntime::new(*layout, RANGES, 0);
            let found = runtime.function(&process, START + 4).ok();
            let found = found
                .as_ref()
                .map(|function| (&*function.name, function.is_stub));
            assert_eq!(found, expected, "{name}");
        }
    }
    // A name without an end.
    let layout = &Layout::all()[0];
    let process = Process::new(layout);
    process.put(CHUNK + 64 + layout.dynamic_name, &[FILE]);
    process.put_bytes(FILE, long.as_bytes());
    let mut runtime = DotNetRuntime::new(*layout, RANGES, 0);
    let found = runtime.function(&process, START).unwrap();
    assert!(found.name.len() < 300, "{}", found.name.len());
}

#[test]
fn other_methods_have_the_names_in_their_assembly() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("sample.cs");
    let text = "namespace Shop { class Order { static int Total<T>(T item) { return 1; } static void Main() { Total(2); } } }";
    fs::write(&source, text).unwrap();
    match Command::new("mcs").arg(&source).status() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skip("no mcs: install mono-mcs");
            return;
        }
        compiled => assert!(compiled.unwrap().success()),
    }
    let file = fs::read(source.with_extension("exe")).unwrap();
    for layout in Layout::all() {
        let process = Process::new(layout);
        process.put_bytes(FILE, &file);
        process.put(CONTENTS + 8, &[FILE, file.len() as u64]);
        let mut names = Vec::new();
        for row in 1..5 {
            process.put_method(0, row);
            let mut runtime = DotNetRuntime::new(*layout, RANGES, 0);
            names.extend(runtime.function(&process, START).map(|found| found.name));
        }
        let expected = ["Shop.Order..ctor", "Shop.Order.Total[T]", "Shop.Order.Main"];
        names.sort_by_key(|name| expected.iter().position(|it| it == name));
        assert_eq!(names, expected);
        // It is not an assembly.
        process.put_bytes(FILE, &[0; 64]);
        let mut runtime = DotNetRuntime::new(*layout, RANGES, 0);
        runtime.function(&process, START).unwrap_err();
    }
}

/// The same bytes everywhere, with holes.
struct Repeated(Vec<u8>);

impl Memory for Repeated {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
        assert!(buffer.len() <= 1 << 20);
        if address >> 12 & 7 == 7 {
            let error = ErrorKind::InvalidInput.into();
            return Err(MemoryError { address, error });
        }
        for (place, at) in buffer.iter_mut().zip(0..) {
            let at = address.wrapping_add(at) % self.0.len() as u64;
            *place = self.0[at as usize];
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn any_memory_is_read_without_harm(
        bytes in prop::collection::vec(any::<u8>(), 1..512),
        ranges: u64,
        address: u64,
    ) {
        let memory = Repeated(bytes);
        for layout in Layout::all() {
            let mut runtime = DotNetRuntime::new(*layout, ranges, 0);
            let _ = runtime.function(&memory, address);
            let reader = CodeReader { layout, process: runtime.process, memory: &memory };
            let _ = reader.describe(address & !7);
            let _ = reader.image(address);
        }
    }

    /// Of a method's tables, one byte is another one.
    #[test]
    fn damaged_tables_are_read_without_harm(place in 0x1_0000..0x3_7000_u64, byte: u8, kind in 0..8_u16) {
        let layout = &Layout::all()[2];
        let process = Process::new(layout);
        process.put_method(kind, 1);
        process.put(CONTENTS + 8, &[FILE, 1 << 32 | 0x1000]);
        let known: Vec<u64> = process.0.borrow().keys().copied().collect();
        // Most places are empty.
        let place = known[place as usize % known.len()];
        process.put_bytes(place, &[byte]);
        let mut runtime = DotNetRuntime::new(*layout, RANGES, 0);
        let _ = runtime.function(&process, START);
    }
}
