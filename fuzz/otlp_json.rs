//! Export requests in OTLP JSON. Accepted input is encoded with both forms of resource attributes, and each decodes to
//! the same.

#![cfg_attr(fuzzing, no_main)]

use profcol_fuzz::fuzz_target;
use profcol_otlp::json::{ResourceAttrEncoding, decode, encode, receive};
use profcol_profile::Validation;

fuzz_target!(|data: &[u8]| {
    // Not validated yet: only checks that decoding terminates.
    let _ = decode(data);
    let Ok(received) = receive(data, Validation::Reject) else {
        return;
    };
    let model = received.profiles.into_model();
    let plain = encode(&model, ResourceAttrEncoding::Plain);
    assert_eq!(
        decode(&plain).expect("encoded requests can be decoded"),
        model
    );
    let referring = encode(&model, ResourceAttrEncoding::Dictionary);
    let again = receive(&referring, Validation::Reject).expect("encoded requests are valid");
    assert_eq!(again.profiles.model().resources, model.resources);
});
