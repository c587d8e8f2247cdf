//! Parca records of every kind: samples of either layout, stacks, and the ids that a server requests.

#![cfg_attr(fuzzing, no_main)]

mod arrow_panics;
mod parca_records;

use arrow_panics::let_arrow_panic;
use parca_records::{LIMIT, check};
use profcol_fuzz::fuzz_target;
use profcol_parca::ipc;
use profcol_parca::v1::{Stacks, read_stack_request};

fuzz_target!(init: let_arrow_panic(), |data: &[u8]| {
    let Ok(Some(batch)) = ipc::read(data, LIMIT) else {
        return;
    };
    let mut stacks = Stacks::default();
    if let Ok(ids) = read_stack_request(&batch) {
        assert!(ids.len() <= batch.num_rows());
    }
    // A rejected record must not leave state behind that affects the next one.
    let _ = stacks.add(&batch);
    check(&batch, &stacks);
});
