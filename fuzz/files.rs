//! Files as `convert` and `diff` read them. Decoded profiles are valid OTLP, and can be written in each format.

#![cfg_attr(fuzzing, no_main)]

mod arrow_panics;

use arrow_panics::let_arrow_panic;
use profcol_files::{Format, read_within, write};
use profcol_fuzz::fuzz_target;
use profcol_profile::{Profiles, Validation};

/// Far below the default, so that a decompression bomb hits this limit instead of the fuzzer's.
const LIMIT: usize = 8 << 20;

const FORMATS: [Format; 4] = [
    Format::Html,
    Format::Speedscope,
    Format::Firefox,
    Format::Folded,
];

fuzz_target!(init: let_arrow_panic(), |data: &[u8]| {
    let Ok(model) = read_within(data, LIMIT) else {
        return;
    };
    let wire = Profiles::from_model(model.clone()).to_wire();
    if let Err(invalid) = Profiles::from_wire(wire, Validation::Reject) {
        panic!("decoded profile is invalid: {invalid}");
    }
    for format in FORMATS {
        // Refused if it has no samples.
        let _ = write(&model, format, "");
    }
});
