//! Records of Parca, of every kind: samples of either layout, stacks, and the ids that a server asks for.

#![no_main]

mod parca_records;

use libfuzzer_sys::fuzz_target;
use parca_records::{LIMIT, check, let_arrow_panic};
use profcol_parca::ipc;
use profcol_parca::v1::{Stacks, read_wanted};

fuzz_target!(init: let_arrow_panic(), |data: &[u8]| {
    let Ok(Some(batch)) = ipc::read(data, LIMIT) else {
        return;
    };
    let mut stacks = Stacks::default();
    if let Ok(wanted) = read_wanted(&batch) {
        assert!(wanted.len() <= batch.num_rows());
    }
    // What is refused must leave nothing behind that the next one stumbles over.
    let _ = stacks.add(&batch);
    check(&batch, &stacks);
});
