//! Code of a free-threaded interpreter in handmade memory: names, lines in the copies of threads, references.

use std::cell::RefCell;
use std::io::ErrorKind;

use super::code::Code;
use super::examples::{Build, offset_table};
use super::layout::{CodeLayout, OFFSETS_3_13, OFFSETS_3_14, TextFlags, Version, layouts};
use crate::FunctionError;
use crate::memory::{Memory, MemoryError};

const START: u64 = 0x7f00_0000_0000;
const CODE: u64 = START + 0x100;
const INSTRUCTIONS: u64 = CODE + 232;
const COUNT: u64 = 4;
const NAME: u64 = START + 0x400;
const FILE: u64 = START + 0x500;
const LINES: u64 = START + 0x600;
const COPIES: u64 = START + 0x700;
/// Before the code object, and more than four GiB behind it.
const COPY: u64 = START + 0x40;
const FAR_COPY: u64 = START + 0x5_0000_0000;

/// Bytes from [`START`] on.
struct Image(RefCell<Vec<u8>>);

impl Image {
    fn put(&self, address: u64, bytes: &[u8]) {
        let at = (address - START) as usize;
        self.0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn word(&self, address: u64, word: u64) {
        self.put(address, &word.to_le_bytes());
    }

    fn half(&self, address: u64, half: u32) {
        self.put(address, &half.to_le_bytes());
    }

    /// A string with one byte for each character, and everything set in the byte before its flags.
    fn text(&self, address: u64, is_ascii: bool, characters: &[u8]) {
        self.word(address + 32, characters.len() as u64);
        self.half(
            address + 48,
            0xff | 1 << 8 | 1 << 11 | u32::from(is_ascii) << 12,
        );
        self.put(address + if is_ascii { 56 } else { 72 }, characters);
    }

    /// `größe` with its first two instructions on line 10, one without a line, and one on line 11.
    fn new() -> Self {
        let image = Self(RefCell::new(vec![0; 0x800]));
        image.word(CODE, 0x7fff_1234);
        image.half(CODE + 12, 1);
        image.word(CODE + 32, COUNT);
        image.half(CODE + 84, 10);
        image.half(CODE + 108, 77);
        image.word(CODE + 128, FILE);
        image.word(CODE + 144, NAME);
        image.word(CODE + 152, LINES);
        image.word(CODE + 224, COPIES);
        image.text(NAME, false, b"gr\xf6\xdfe");
        image.text(FILE, true, b"a.py");
        let lines = [0x80 | 1, 0, 0x80 | 15 << 3, 0x80 | 11 << 3, 0, 0];
        image.word(LINES + 32, lines.len() as u64);
        image.put(LINES + 48, &lines);
        image.word(COPIES, 2);
        image.word(COPIES + 8, INSTRUCTIONS);
        image
    }

    fn read(&self) -> Result<Code, FunctionError> {
        let layout = layout();
        let generation = Code::generation(&layout, self, CODE)?;
        Code::read(&layout, self, CODE, generation)
    }
}

impl Memory for Image {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
        let bytes = self.0.borrow();
        let at = address.wrapping_sub(START) as usize;
        let found = bytes.get(at..).and_then(|rest| rest.get(..buffer.len()));
        let Some(found) = found else {
            let error = ErrorKind::InvalidInput.into();
            return Err(MemoryError { address, error });
        };
        buffer.copy_from_slice(found);
        Ok(())
    }
}

fn layout() -> CodeLayout {
    let version = Version {
        minor: 14,
        micro: None,
    };
    let table = offset_table(&OFFSETS_3_14, Build::FreeThreaded);
    layouts(version, Some(&table)).unwrap().1
}

/// What the programs say of an instruction.
fn position(instruction: u64) -> u32 {
    (instruction.wrapping_sub(INSTRUCTIONS) as i64 >> 1) as u32
}

#[test]
fn free_threaded_builds_have_copies_since_3_14() {
    let version = |minor| Version { minor, micro: None };
    let table = offset_table(&OFFSETS_3_13, Build::FreeThreaded);
    let (_, code) = layouts(version(13), Some(&table)).unwrap();
    assert_eq!(
        (code.code.copies, code.text.flags),
        (None, TextFlags::AfterBits)
    );
    let table = offset_table(&OFFSETS_3_14, Build::Default);
    let (_, code) = layouts(version(14), Some(&table)).unwrap();
    assert_eq!(
        (code.code.copies, code.text.flags),
        (None, TextFlags::AfterBits)
    );
    assert_eq!(layout().text.flags, TextFlags::AfterByte);
}

#[test]
fn lines_are_those_of_the_instruction_in_any_copy() {
    let image = Image::new();
    let code = image.read().unwrap();
    assert_eq!((&*code.name, &*code.file), ("größe", "a.py"));
    let lines = |code: &Code, start: u64| {
        let positions = (0..COUNT).map(|at| position(start + at * 2));
        let known = positions.map(|it| (!code.is_in_new_copy(it)).then(|| code.line(it)));
        known.collect::<Option<Vec<u32>>>()
    };
    let expected = Some(vec![10, 10, 0, 11]);
    assert_eq!(lines(&code, INSTRUCTIONS), expected);
    assert_eq!(lines(&code, COPY), None);
    assert_eq!(code.line(position(COPY)), 0);
    image.word(COPIES + 16, COPY);
    let code = image.read().unwrap();
    assert_eq!(lines(&code, INSTRUCTIONS), expected);
    assert_eq!(lines(&code, COPY), expected);
    image.word(COPIES + 16, FAR_COPY);
    assert_eq!(lines(&image.read().unwrap(), FAR_COPY), expected);
    // They end with the function.
    assert!(code.is_in_new_copy(position(INSTRUCTIONS + COUNT * 2)));
    assert!(code.is_in_new_copy(position(COPY - 2)));
}

#[test]
fn code_without_references_is_not_read() {
    let references = |own, shared| {
        let image = Image::new();
        image.half(CODE + 12, own);
        image.word(CODE + 16, shared);
        image.read().map(|code| code.first_line)
    };
    // Only the flag that both counts were merged.
    assert!(matches!(references(0, 3), Err(FunctionError::Replaced)));
    assert!(matches!(references(1, 0), Ok(10)));
    assert!(matches!(references(0, 1 << 2 | 3), Ok(10)));
    // Its thread gave more away than it took.
    assert!(matches!(references(2, u64::MAX << 2), Ok(10)));
    // Immortal.
    assert!(matches!(references(u32::MAX, 0), Ok(10)));
}

#[test]
fn a_damaged_array_of_copies_is_an_error() {
    for (address, word) in [
        (CODE + 224, 0),
        (CODE + 224, u64::MAX),
        (COPIES, u64::MAX),
        (COPIES, 1 << 20),
    ] {
        let image = Image::new();
        image.word(address, word);
        assert!(
            matches!(image.read(), Err(FunctionError::Memory(_))),
            "{word}"
        );
    }
    let image = Image::new();
    image.word(CODE + 32, u64::MAX);
    image.word(COPIES + 16, u64::MAX);
    let code = image.read().unwrap();
    for position in [0, 1, u32::MAX / 2, u32::MAX] {
        code.line(position);
    }
}
