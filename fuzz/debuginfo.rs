//! What is taken out of ELF files. It is as long as was said, bounded by the file, and the same again when it
//! is taken out of itself.

#![no_main]

use std::io::Read;

use libfuzzer_sys::fuzz_target;
use profcol_debuginfo::{Dwarf, Extraction, Plan};

fn extract(plan: Plan, file: &[u8]) -> Vec<u8> {
    let size = plan.size();
    let mut extracted = Vec::new();
    let mut extraction = Extraction::of(plan, file);
    extraction
        .read_to_end(&mut extracted)
        .expect("memory can be read");
    assert_eq!(extracted.len() as u64, size);
    extracted
}

fuzz_target!(|data: &[u8]| {
    let Ok(plan) = Plan::strip(data) else {
        return;
    };
    let contents = plan.contents();
    let extracted = extract(plan, data);
    // Both tables of headers and what is kept: each is in the file once, and may be where the others are.
    assert!(extracted.len() <= 3 * data.len() + 64);
    let again = Plan::strip(&extracted[..]).expect("it is as sound as the file");
    assert_eq!(again.contents(), contents);
    extract(again, &extracted);
    for dwarf in [Dwarf::All, Dwarf::Lines, Dwarf::None] {
        if let Ok(Some(plan)) = Plan::compressed(data, dwarf, u64::MAX, &|| true) {
            let contents = plan.contents();
            let compressed = extract(plan, data);
            assert!(compressed.len() <= 3 * data.len() + 64);
            let again = Plan::keeping(&compressed[..], dwarf).expect("it is as sound as the file");
            assert_eq!(again.contents(), contents);
        }
    }
    let whole = Plan::whole(data).expect("it was sound before");
    assert_eq!(extract(whole, data), data);
});
