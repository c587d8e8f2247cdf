//! Export requests in OTLP protobuf. Whatever is let in can be read, and what is written from it is let in again with the
//! same content.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use profcol_profile::{Profiles, Validation};

fuzz_target!(|data: &[u8]| {
    for validation in [Validation::Reject, Validation::Repair] {
        let Ok(received) = Profiles::from_wire(Bytes::copy_from_slice(data), validation) else {
            continue;
        };
        let model = received.profiles.into_model();
        let written = Profiles::from_model(model.clone()).to_wire();
        let again = Profiles::from_wire(written, Validation::Reject)
            .expect("what was let in and written is valid");
        assert_eq!(again.profiles.model(), &model, "after {validation:?}");
    }
});
