//! pprof files, compressed or not. Whatever is read is valid OTLP and can be written; from there on reading and writing
//! change nothing any more.

#![no_main]

use libfuzzer_sys::fuzz_target;
use profcol_pprof::{LabelSelection, Limits, read, sets, write};
use profcol_profile::{Profiles, Validation};

/// Far below the defaults, so that a bomb shows by its limit and not by the fuzzer's.
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
        panic!("what was read is not valid: {invalid}");
    }
    // More than one where two sample types have the same name.
    for set in sets(&model) {
        let first = write([set], LabelSelection::default()).expect("one set fits into one file");
        // What was within the limits by a hair may be longer as it is written.
        let again = read(&first, Limits::default()).expect("what was written is read");
        let second =
            write(sets(&again), LabelSelection::default()).expect("one file fits into one file");
        assert_eq!(second, first);
    }
});
