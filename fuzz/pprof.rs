//! pprof files, compressed or not. Decoded profiles are valid OTLP and can be encoded; further round trips change
//! nothing.

#![cfg_attr(fuzzing, no_main)]

use profcol_fuzz::fuzz_target;
use profcol_pprof::{LabelSelection, Limits, read, sets, write};
use profcol_profile::{Profiles, Validation};

/// Far below the defaults, so that a decompression bomb hits this limit instead of the fuzzer's.
const LIMITS: Limits = Limits {
    file_bytes: 1 << 20,
    model_bytes: 8 << 20,
};

fuzz_target!(|data: &[u8]| {
    let Ok(model) = read(data, LIMITS) else {
        return;
    };
    let wire = Profiles::from_model(model.clone()).to_wire();
    if let Err(invalid) = Profiles::from_wire(wire, Validation::Reject) {
        panic!("decoded profile is invalid: {invalid}");
    }
    // More than one if two sample types have the same name.
    for set in sets(&model) {
        let first = write([set], LabelSelection::default()).expect("a single set");
        // Encoding may make a file that was just within the limits larger.
        let again = read(&first, Limits::default()).expect("encoded files can be decoded");
        let second = write(sets(&again), LabelSelection::default()).expect("sets of a single file");
        assert_eq!(second, first);
    }
});
