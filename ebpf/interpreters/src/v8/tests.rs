//! A handmade heap of Node.js 24: strings, names, lines and positions, also damaged ones, and refused versions of V8.

use std::collections::HashMap;
use std::io;

use profcol_ebpf_common::interpreter::runtime;
use profcol_ebpf_common::interpreter::v8::NO_POSITION;

use super::heap::Heap;
use super::layout::{self, BytecodeSizes, HeapLayout, Version};
use super::positions::{PositionFormat, Positions};
use super::process::{FrameFunctions, ProcessCache};
use super::script::Script;
use crate::memory::{Memory, MemoryError};
use crate::{FunctionError, SampledFunction};

/// A heap as words by address.
#[derive(Default)]
struct Words(HashMap<u64, u64>);

impl Words {
    /// The map of an object is at ten times its instance type.
    fn object(&mut self, address: u64, instance_type: u16, members: &[u64]) -> u64 {
        let map = 0x1_0000 + u64::from(instance_type) * 0x10;
        self.0.insert(map + 8, u64::from(instance_type) << 32);
        self.0.insert(address, map | 1);
        for (index, member) in (1..).zip(members) {
            self.0.insert(address + index * 8, *member);
        }
        address | 1
    }

    fn text(&mut self, address: u64, text: &str) -> u64 {
        let mut words = vec![(text.len() as u64) << 32];
        words.extend(text.as_bytes().chunks(8).map(|bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        }));
        self.object(address, ONE_BYTE, &words)
    }
}

impl Memory for Words {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
        for (place, at) in buffer.iter_mut().zip(address..) {
            let word = self.0.get(&(at & !7)).ok_or_else(|| MemoryError {
                address: at,
                error: io::ErrorKind::InvalidInput.into(),
            })?;
            *place = word.to_le_bytes()[(at & 7) as usize];
        }
        Ok(())
    }
}

const ONE_BYTE: u16 = 40;
const CONS: u16 = 41;
const THIN: u16 = 45;
const SLICED: u16 = 43;

fn small(number: u64) -> u64 {
    number << 32
}

/// The layout of Node.js 24.
fn layout() -> HeapLayout {
    layout::examples().pop().unwrap().1
}

#[test]
fn reads_positions_of_both_formats() {
    // From Node.js 20: an expression at 0 and one at 3, and a statement.
    let plain = [3, 20, 7, 4, 6, 0];
    let read = |bytes: &[u8], format| -> Vec<(u32, u32)> {
        let positions = Positions::read(bytes, format);
        let entries = positions.iter();
        entries
            .map(|(offset, position)| (offset, position.offset().unwrap()))
            .collect()
    };
    assert_eq!(
        read(&plain, PositionFormat::Plain),
        [(0, 4), (3, 5), (6, 5)]
    );
    // `const a = 1; if (a) ...` from Node.js 25.
    let flagged = [2, 144, 3, 7, 60, 15, 20, 11, 52, 14, 0];
    assert_eq!(
        read(&flagged, PositionFormat::Flagged),
        [(0, 99), (0, 114), (3, 119), (5, 132), (8, 132)]
    );
    let positions = Positions::read(&flagged, PositionFormat::Flagged);
    assert_eq!(positions.at(7).unwrap().offset(), Some(132));
    for length in 0..flagged.len() {
        read(&flagged[..length], PositionFormat::Flagged);
    }
    read(&[0xff; 32], PositionFormat::Plain);
}

#[test]
fn bytecode_sizes_depend_on_operand_width() {
    // Two bytecodes after the four prefixes.
    let table = [[0, 0, 0, 0, 2, 3], [0, 0, 0, 0, 3, 5], [0, 0, 0, 0, 5, 9]];
    let sizes = BytecodeSizes::new(table.concat()).unwrap();
    assert_eq!(sizes.of(&[4, 0]), Some(2));
    assert_eq!(sizes.of(&[0, 5]), Some(6));
    assert_eq!(sizes.of(&[1, 5]), Some(10));
    assert_eq!(sizes.of(&[9]), None);
    assert_eq!(sizes.of(&[0]), None);
    assert_eq!(BytecodeSizes::new(vec![1, 2]), None);
}

#[test]
fn finds_the_sizes_of_bytecodes_without_a_symbol() {
    let narrow = [1, 1, 1, 1, 1, 2, 3, 4, 5, 2, 1];
    let wide = [1, 1, 1, 1, 1, 3, 5, 7, 9, 3, 1];
    let extra_wide = [1, 1, 1, 1, 1, 5, 9, 13, 17, 5, 1];
    let table = [narrow, wide, extra_wide].concat();
    let sizes = BytecodeSizes::new(table.clone());
    assert!(sizes.is_some());
    // Something else begins alike.
    let constants = [&narrow[..], &[0; 300], &table, &[7; 10]].concat();
    assert_eq!(BytecodeSizes::find(&constants), sizes);
    let is_cut = BytecodeSizes::find(&constants[..constants.len() - 11]);
    assert_eq!(is_cut, None);
    let without_last = [narrow, wide, wide].concat();
    assert_eq!(BytecodeSizes::find(&without_last), None);
}

#[test]
fn reads_strings_in_parts_and_survives_cycles() {
    let layout = layout();
    let mut memory = Words::default();
    let first = memory.text(0x1000, "Hello, ");
    let second = memory.text(0x1100, "big world");
    let thin = memory.object(0x1200, THIN, &[small(9), second]);
    let cons = memory.object(0x1300, CONS, &[small(16), first, thin]);
    let sliced = memory.object(0x1400, SLICED, &[small(7), cons, small(7)]);
    memory.object(0x1500, CONS, &[small(8), 0x1501, 0x1501]);
    let heap = Heap {
        memory: &memory,
        layout: &layout,
    };
    assert_eq!(heap.text(cons & !1, 100).unwrap(), "Hello, big world");
    assert_eq!(heap.text(cons & !1, 9).unwrap(), "Hello, bi");
    assert_eq!(heap.text(sliced & !1, 100).unwrap(), "big wor");
    assert!(heap.text(0x1500, 100).is_err());
    assert!(heap.text(0x9000, 100).is_err());
}

/// A function `work` that begins in the second line of `app.js`.
fn function(memory: &mut Words) -> u64 {
    let layout = layout();
    let source = memory.text(0x2000, "let a;\nfunction work() {}\n");
    let name = memory.text(0x2100, "file:///app.js");
    let script = memory.object(0x2200, layout.types.script, &[source, name, 0, 0, 0, 0, 0]);
    let own = memory.text(0x2300, "work");
    // Flags, parameters, one local, positions; the local, and the name.
    let scope = memory.object(
        0x2400,
        layout.types.scope_info,
        &[
            0,
            0,
            small(1),
            15,
            25,
            first_local(),
            0,
            own,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ],
    );
    let shared = memory.object(
        0x2500,
        layout.types.shared,
        &[0, 0, scope, 0, script, 3, small(7), 99, 0],
    );
    memory.text(0x2600, "local");
    shared & !1
}

#[test]
fn a_script_without_a_name_has_that_of_its_source_url() {
    let layout = layout();
    let mut memory = Words::default();
    function(&mut memory);
    let undefined = memory.object(0x2700, layout.types.scope_info, &[]);
    let url = memory.text(0x2800, "page.ejs");
    let mut file = |name: u64, source_url: u64| {
        let script = 0x2200;
        memory.0.insert(script + 16, name);
        memory.0.insert(script + 112, source_url);
        let heap = Heap {
            memory: &memory,
            layout: &layout,
        };
        let key = Script::key(heap, script).unwrap();
        Script::read(heap, key).unwrap().name
    };
    assert_eq!(file(undefined, url), "page.ejs");
    assert_eq!(file(undefined, undefined), "");
    // Damaged.
    assert_eq!(file(undefined, 0x9001), "");
    assert_eq!(file(undefined, small(1)), "");
    assert_eq!(file(0x2101, url), "/app.js");
}

fn first_local() -> u64 {
    0x2601
}

#[test]
fn reads_the_name_after_the_locals_and_the_line() {
    let layout = layout();
    let mut memory = Words::default();
    let address = function(&mut memory);
    let generation = super::generation(&layout, &memory, address).unwrap();
    let mut cache = ProcessCache::default();
    let sampled = SampledFunction {
        runtime: runtime::V8,
        address,
        generation,
        code_address: 0,
    };
    let frames = cache.frames(&layout, &memory, &sampled).unwrap();
    assert!(matches!(frames, FrameFunctions::Bytecode(_)));
    let found = frames.at(0);
    let [frame] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!((&*frame.name, &*frame.file), ("work", "/app.js"));
    assert_eq!((frame.first_line, frame.line), (2, 0));
    // Missing code only costs the lines.
    let generated = SampledFunction {
        code_address: 0x7000_1234,
        ..sampled
    };
    let frames = cache.frames(&layout, &memory, &generated).unwrap();
    assert_eq!(frames.at(0)[0].name, "work");
    // It may be a copy of the interpreter.
    assert_eq!(frames.execution(NO_POSITION), None);
    // Another function now has its address.
    let replaced = SampledFunction {
        generation: generation ^ 1,
        ..sampled
    };
    let refused = cache.frames(&layout, &memory, &replaced);
    assert!(matches!(refused, Err(FunctionError::Replaced)));
}

#[test]
fn rejects_untested_versions() {
    let constants = HashMap::from([("SmiShiftSize".to_owned(), 31)]);
    let refusal = |major, minor| {
        let version = Version {
            major,
            minor,
            build: 0,
        };
        HeapLayout::new(version, &constants, None).unwrap_err()
    };
    assert!(refusal(8, 4).contains("before 9.4"));
    assert!(refusal(14, 7).contains("newer"));
    assert!(refusal(13, 6).contains("constants"));
    let compressed = HashMap::from([("SmiShiftSize".to_owned(), 0)]);
    let version = Version {
        major: 13,
        minor: 6,
        build: 0,
    };
    let refused = HeapLayout::new(version, &compressed, None);
    assert!(refused.unwrap_err().contains("pointer compression"));
}
