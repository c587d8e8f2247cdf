//! Demangling of symbol names; and symbolization of addresses, with ELF files that have symbol tables and DWARF and are
//! also their own `.dwo` and common files. For any file, the result has a bounded number of frames, and stays the same
//! after all caches are dropped.

#![cfg_attr(fuzzing, no_main)]

use std::path::Path;
use std::rc::Rc;

use profcol_debuginfo::CommonLink;
use profcol_elf::Source;
use profcol_fuzz::fuzz_target;
use profcol_symbols::{Companions, Style, Symbols, demangle};

/// Addresses to look up, spread over the range of small programs.
const ADDRESSES: std::ops::Range<u64> = 0x1000..0x3000;

struct Itself(Rc<Vec<u8>>);

impl Itself {
    fn source(&self) -> Option<Rc<dyn Source>> {
        Some(self.0.clone())
    }
}

impl Companions for Itself {
    fn separate(&self, _: &dyn Source) -> Option<Rc<dyn Source>> {
        None
    }

    fn common(&self, _: &CommonLink) -> Option<Rc<dyn Source>> {
        self.source()
    }

    fn package(&self) -> Option<Rc<dyn Source>> {
        self.source()
    }

    fn split(&self, _: &Path, _: &Path) -> Option<Rc<dyn Source>> {
        self.source()
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(name) = str::from_utf8(data) {
        for style in [Style::Full, Style::Short] {
            assert!(demangle(name, style).is_none_or(|shown| shown.len() <= 4 << 10));
        }
    }
    let file = Rc::new(data.to_vec());
    let companions = Rc::new(Itself(Rc::clone(&file)));
    let Ok(mut symbols) = Symbols::read(file, companions, 1 << 20) else {
        return;
    };
    for address in ADDRESSES.step_by(0x101) {
        let Ok(frames) = symbols.find(address) else {
            continue;
        };
        assert!(!frames.is_empty() && frames.len() <= 256);
        for frame in &frames {
            demangle(&frame.name, Style::Full);
        }
        symbols.shrink(0);
        assert_eq!(symbols.find(address).as_ref(), Ok(&frames));
    }
});
