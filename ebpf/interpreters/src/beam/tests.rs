//! Modules in handmade memory: names, lines, code that comes and goes, and damage.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;

use profcol_ebpf_common::interpreter::beam::generation;
use profcol_ebpf_common::interpreter::hotspot::AddressRange;
use profcol_test_skip::skip;
use proptest::prelude::*;

use super::*;
use crate::FunctionError;
use crate::memory::{Memory, MemoryError};

const TABLE: u64 = 0x1000;
const ATOMS: u64 = 0x2000;
const RANGES: u64 = 0x3000;
const TEXTS: u64 = 0x8000;
const CODE: u64 = 0x10_0000;
const MODULE_BYTES: u64 = 0x1000;

/// Words at addresses; everything else below [`Self::END`] is 0.
#[derive(Default)]
struct Image(RefCell<BTreeMap<u64, u64>>);

impl Image {
    const END: u64 = 0x20_0000;

    fn put(&self, address: u64, words: &[u64]) {
        let places = (address..).step_by(8);
        self.0
            .borrow_mut()
            .extend(places.zip(words.iter().copied()));
    }

    fn atom(&self, number: u64, text: &str) -> u64 {
        let entry = TEXTS + number * 0x100;
        self.put(ATOMS + 120, &[ATOMS + 0x100]);
        self.put(ATOMS + 0x100, &[ATOMS + 0x200]);
        self.put(ATOMS + 0x200 + number * 8, &[entry]);
        self.put(entry + 24, &[text.len() as u64, entry + 0x40]);
        let bytes: Vec<u8> = text.bytes().chain([0; 8]).collect();
        let words = bytes.chunks_exact(8);
        let words = words.map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap()));
        self.put(entry + 0x40, &words.collect::<Vec<_>>());
        number << 6 | 0xb
    }

    /// The functions `one/0` with lines 3 and 5, and `two/7` with line 9 of another file.
    fn module(&self, layout: &Layout, start: u64, name: u64, literals: u64) {
        let functions = [start + 0x200, start + 0x300, start + 0x400];
        let lines = start + 0x600;
        self.put(start, &[2, 0, 0, 0, 0, 0, 0, literals, 0, lines]);
        self.put(start + layout.functions, &functions);
        let (one, two) = (self.atom(1, "one"), self.atom(2, "two"));
        self.put(functions[0] + 16, &[name, one, 0]);
        self.put(functions[1] + 16, &[name, two, 7]);
        let (addresses, locations, files) = (start + 0x700, start + 0x780, start + 0x7c0);
        let ranges = [addresses, addresses + 16, addresses + 32];
        self.put(lines, &[files, 4, locations]);
        self.put(lines + 24, &ranges);
        let [first, second, _] = functions;
        self.put(addresses, &[first, first + 0x40, second, second + 0x80]);
        self.put(locations, &[5 << 32 | 3, (1 << 24 | 9) << 32]);
        // "a.y", a list of characters.
        let cells = start + 0x800;
        self.put(files, &[cells + 1]);
        let character = |character: u8| u64::from(character) << 4 | 0xf;
        let [a, dot, y] = *b"a.y";
        self.put(
            cells,
            &[character(a), cells + 17, character(dot), cells + 33],
        );
        self.put(cells + 32, &[character(y), 0x3b]);
    }

    fn load(&self, modules: &[u64]) -> u32 {
        let ranges = modules
            .iter()
            .flat_map(|&start| [start, start + MODULE_BYTES]);
        self.put(RANGES, &ranges.collect::<Vec<_>>());
        self.put(TABLE + 32, &[RANGES, modules.len() as u64, 64, 0]);
        let loads = self.0.borrow().get(&TABLE).copied().unwrap_or_default();
        self.put(TABLE, &[loads + 1]);
        self.put(TABLE + 96, &[1 << 32]);
        generation(|index| self.word(TABLE + u64::from(index) * 8).unwrap())
    }
}

impl Memory for Image {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
        assert!(buffer.len() <= 1 << 20);
        if address >= Self::END {
            let error = ErrorKind::InvalidInput.into();
            return Err(MemoryError { address, error });
        }
        let words = self.0.borrow();
        for (place, at) in buffer.iter_mut().zip(address..) {
            let word = words.get(&(at & !7)).copied().unwrap_or_default();
            *place = word.to_le_bytes()[(at & 7) as usize];
        }
        Ok(())
    }
}

const SHARED: &str = "[beam: shared code]";

fn layout() -> Layout {
    Layout::of_release("25").unwrap()
}

/// Two modules; the second is Elixir's.
fn image() -> (Image, u32) {
    let image = Image::default();
    let lists = image.atom(3, "lists");
    let elixir = image.atom(4, "Elixir.Größe");
    image.module(&layout(), CODE, lists, 1);
    image.module(&layout(), CODE + MODULE_BYTES, elixir, 2);
    let generation = image.load(&[CODE, CODE + MODULE_BYTES]);
    (image, generation)
}

fn read(
    modules: &mut Modules,
    image: &Image,
    address: u64,
    generation: u32,
) -> Result<(String, String, u32, u32), FunctionError> {
    modules.refresh(image, Some(generation))?;
    let found = modules.function(image, address, generation)?;
    assert_eq!(found.is_shared_code, found.name == SHARED);
    Ok((found.name, found.file, found.first_line, found.line))
}

fn modules() -> Modules {
    Modules::new(layout(), TABLE, ATOMS)
}

#[test]
fn addresses_have_names_and_lines() {
    let (image, generation) = image();
    let mut modules = modules();
    let first = CODE + 0x200;
    for (address, expected) in [
        (first, ("lists:one/0", "lists.erl", 3, 3)),
        (first + 0x3f, ("lists:one/0", "lists.erl", 3, 3)),
        (first + 0x40, ("lists:one/0", "lists.erl", 3, 5)),
        (first + 0xff, ("lists:one/0", "lists.erl", 3, 5)),
        (first + 0x17f, ("lists:two/7", "", 0, 0)),
        (first + 0x180, ("lists:two/7", "a.y", 0, 9)),
        (first + 0x1180, ("Größe.two/7", "a.y", 0, 9)),
        // Before and after the functions of a module, and of all modules.
        (CODE + 0x1ff, (SHARED, "", 0, 0)),
        (CODE + 0x400, (SHARED, "", 0, 0)),
        (CODE - 1, (SHARED, "", 0, 0)),
        (CODE + 2 * MODULE_BYTES, (SHARED, "", 0, 0)),
    ] {
        let (name, file, first_line, line) = expected;
        let expected = (name.to_owned(), file.to_owned(), first_line, line);
        let found = read(&mut modules, &image, address, generation);
        assert_eq!(found.unwrap(), expected, "{address:x}");
    }
}

#[test]
fn the_code_between_modules_is_shared() {
    let (image, _) = image();
    let mut modules = modules();
    modules.refresh(&image, None).unwrap();
    let mapping = |start, end| AddressRange { start, end };
    let end = CODE + 2 * MODULE_BYTES;
    for (address, all, expected) in [
        (CODE - 8, mapping(CODE - 16, end), mapping(CODE - 16, CODE)),
        (end + 8, mapping(CODE, end + 64), mapping(end, end + 64)),
        (
            end + 8,
            mapping(end + 4, end + 64),
            mapping(end + 4, end + 64),
        ),
    ] {
        assert_eq!(modules.gap(address, all), expected);
    }
}

#[test]
fn code_that_replaces_other_code_gets_its_own_name() {
    let (image, old) = image();
    let mut modules = modules();
    let address = CODE + 0x210;
    let name = |modules: &mut Modules, generation| {
        read(modules, &image, address, generation).map(|(name, ..)| name)
    };
    assert_eq!(name(&mut modules, old).unwrap(), "lists:one/0");
    // More code changes nothing here, and samples from before the look keep their name.
    let more = image.load(&[CODE, CODE + MODULE_BYTES, CODE + 3 * MODULE_BYTES]);
    assert_eq!(name(&mut modules, more).unwrap(), "lists:one/0");
    assert_eq!(name(&mut modules, old).unwrap(), "lists:one/0");
    let maps = image.atom(5, "maps");
    image.module(&layout(), CODE, maps, 3);
    let new = image.load(&[CODE, CODE + MODULE_BYTES]);
    assert_eq!(modules.refresh(&image, Some(new)).unwrap(), Some(new));
    // What was read before it was replaced is still known.
    assert_eq!(name(&mut modules, more).unwrap(), "lists:one/0");
    assert_eq!(name(&mut modules, new).unwrap(), "maps:one/0");
    // Of either module.
    let found = name(&mut modules, old);
    assert!(matches!(found, Err(FunctionError::Replaced)), "{found:?}");
}

#[test]
fn impossible_sizes_are_refused() {
    let first = CODE + 0x200;
    for (place, word) in [
        (TABLE + 40, u64::MAX),
        (TABLE + 40, 1 << 20),
        (TABLE + 32, u64::MAX - 8),
        (TABLE + 96, 3 << 32),
        (RANGES + 8, u64::MAX),
        (CODE, 1 << 40),
        (CODE + 72, 1),
        (CODE + 96, u64::MAX),
        (first + 16, 0x1f),
        (first + 16, u64::MAX << 6 | 0xb),
        (TEXTS + 0x300 + 24, 0xffff),
        (CODE + 0x608, 3),
        (CODE + 0x618, 0),
        (CODE + 0x618, u64::MAX),
    ] {
        let (image, _) = image();
        image.put(place, &[word]);
        let found = read(&mut modules(), &image, first, 0);
        assert!(found.is_err(), "{place:x}: {found:?}");
    }
    // A list without an end.
    let (image, generation) = image();
    image.put(CODE + 0x808, &[CODE + 0x801]);
    let (_, file, ..) = read(&mut modules(), &image, first + 0x180, generation).unwrap();
    assert_eq!(file.len(), 1024);
}

#[test]
fn releases_that_were_not_examined_are_refused() {
    for release in ["24", "26", "29", ""] {
        assert!(Layout::of_release(release).is_err(), "{release}");
    }
}

/// The emulators that are installed.
fn installed() -> Vec<Vec<u8>> {
    let folders = fs::read_dir("/usr/lib/erlang")
        .into_iter()
        .flatten()
        .flatten();
    let emulators = folders.map(|folder| folder.path().join("bin/beam.smp"));
    let found: Vec<_> = emulators.filter_map(|path| fs::read(path).ok()).collect();
    if found.is_empty() {
        skip("no emulator below /usr/lib/erlang");
    }
    found
}

#[test]
fn an_emulator_of_an_unknown_release_is_refused() {
    for mut emulator in installed() {
        let detect = |file: &[u8]| Beam::detect(&ElfCode::read(file).unwrap(), file);
        let known = detect(&emulator).unwrap().unwrap().release;
        let code = ElfCode::read(&*emulator).unwrap();
        let file = ElfFile::read(&code, &*emulator).unwrap();
        let [release, ..] = file.symbols(SYMBOLS);
        let address = release.unwrap().address;
        let segment = file.elf.loaded(0).find(|it| it.holds(address)).unwrap();
        let place = (segment.file_offset + address - segment.address) as usize;
        assert_eq!(emulator[place..][..known.len()], *known.as_bytes());
        emulator[place..][..2].copy_from_slice(b"99");
        let error = detect(&emulator).unwrap_err();
        assert_eq!(error.version(), Some("99"));
    }
}

proptest! {
    #[test]
    fn damage_is_survived(
        damage in proptest::collection::vec((0usize..400, any::<u64>()), 1..20),
        address in CODE..CODE + 2 * MODULE_BYTES,
    ) {
        let (image, _) = image();
        let places: Vec<u64> = image.0.borrow().keys().copied().collect();
        for (place, word) in damage {
            image.put(places[place % places.len()], &[word]);
        }
        let mut modules = modules();
        for generation in [None, Some(0), None] {
            let _ = modules.refresh(&image, generation);
            let _ = modules.function(&image, address, 0);
        }
    }
}
