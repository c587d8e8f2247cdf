//! Messages from a bus. Nothing of them is read twice: what all properties hold is no longer than the message.

#![no_main]

use libfuzzer_sys::fuzz_target;
use profcol_dbus::{Message, Property};

fuzz_target!(|data: &[u8]| {
    let Ok(message) = Message::read(data) else {
        return;
    };
    let mut told = 0;
    // Where it turns out to be damaged some were told before.
    let _ = message.properties(|name, property| {
        told += name.len();
        told += match property {
            Property::Text(text) => text.len(),
            Property::Bytes(bytes) => bytes.len(),
            Property::Flag(_) => 4,
            Property::Number(_) => 8,
        };
    });
    assert!(told <= data.len());
});
