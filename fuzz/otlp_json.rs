//! Export requests in OTLP JSON. Whatever is let in is written in both forms of resource attributes, and each is read
//! back as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use profcol_profile::Validation;
use profcol_profile::json::{ResourceAttrEncoding, decode, encode, receive};

fuzz_target!(|data: &[u8]| {
    // Not yet checked, so this says only that reading comes to an end.
    let _ = decode(data);
    let Ok(received) = receive(data, Validation::Reject) else {
        return;
    };
    let model = received.profiles.into_model();
    let plain = encode(&model, ResourceAttrEncoding::Plain);
    assert_eq!(decode(&plain).expect("what was written is read"), model);
    let referring = encode(&model, ResourceAttrEncoding::Dictionary);
    let again = receive(&referring, Validation::Reject).expect("what was written is valid");
    assert_eq!(again.profiles.model().resources, model.resources);
});
