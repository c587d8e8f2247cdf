//! Export requests in OTLP protobuf. Accepted input can be read, and encoding it yields a request that is accepted with
//! the same content.

#![cfg_attr(fuzzing, no_main)]

use bytes::Bytes;
use profcol_fuzz::fuzz_target;
use profcol_profile::{Profiles, Validation};

fuzz_target!(|data: &[u8]| {
    for validation in [Validation::Reject, Validation::Repair] {
        let Ok(received) = Profiles::from_wire(Bytes::copy_from_slice(data), validation) else {
            continue;
        };
        let model = received.profiles.into_model();
        let written = Profiles::from_model(model.clone()).to_wire();
        let again = Profiles::from_wire(written, Validation::Reject)
            .expect("re-encoded requests are valid");
        assert_eq!(again.profiles.model(), &model, "after {validation:?}");
    }
});
