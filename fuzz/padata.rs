//! Files of records, read up to the first error.

#![cfg_attr(fuzzing, no_main)]

mod arrow_panics;
mod parca_records;

use arrow_panics::let_arrow_panic;
use parca_records::{LIMIT, check};
use profcol_fuzz::fuzz_target;
use profcol_parca::ipc;
use profcol_parca::padata::Reader;
use profcol_parca::v1::Stacks;

fuzz_target!(init: let_arrow_panic(), |data: &[u8]| {
    let Ok(mut file) = Reader::new(data, LIMIT as u32) else {
        return;
    };
    let mut stacks = Stacks::default();
    let mut batches = 0;
    while let Ok(Some(batch)) = file.next_batch() {
        batches += 1;
        if let Some(frame) = &batch.stacks
            && let Ok(Some(record)) = ipc::read(frame, LIMIT)
        {
            let _ = stacks.add(&record);
        }
        if let Ok(Some(samples)) = ipc::read(&batch.samples, LIMIT) {
            check(&samples, &stacks);
        }
    }
    assert!(batches <= file.count());
});
