//! Extraction of debuginfo from ELF files. The output has the planned size, is bounded by the file, and extracting from
//! it again yields the same output.

#![cfg_attr(fuzzing, no_main)]

use std::io::Read;

use profcol_debuginfo::{Dwarf, Extraction, Plan};
use profcol_fuzz::fuzz_target;

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
    // Both header tables and the kept ranges: each is in the file once, and may overlap the others.
    assert!(extracted.len() <= 3 * data.len() + 64);
    let again = Plan::strip(&extracted[..]).expect("as valid as the file");
    assert_eq!(again.contents(), contents);
    extract(again, &extracted);
    for dwarf in [Dwarf::All, Dwarf::Lines, Dwarf::None] {
        if let Ok(Some(plan)) = Plan::compressed(data, dwarf, u64::MAX, &|| true) {
            let contents = plan.contents();
            let compressed = extract(plan, data);
            assert!(compressed.len() <= 3 * data.len() + 64);
            let again = Plan::keeping(&compressed[..], dwarf).expect("as valid as the file");
            assert_eq!(again.contents(), contents);
        }
    }
    let whole = Plan::whole(data).expect("already valid");
    assert_eq!(extract(whole, data), data);
});
