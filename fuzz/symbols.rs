//! Names of addresses, of ELF files with symbol tables and DWARF. Whatever is in the file, the answer has a bounded number
//! of frames, and is the same when everything was given up and read again.

#![no_main]

use std::rc::Rc;

use libfuzzer_sys::fuzz_target;
use profcol_symbols::{Style, Symbols, demangle};

/// Addresses that are asked for, spread over what small programs have.
const ADDRESSES: std::ops::Range<u64> = 0x1000..0x3000;

fuzz_target!(|data: &[u8]| {
    let Ok(mut symbols) = Symbols::read(Rc::new(data.to_vec()), || None, 1 << 20) else {
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
