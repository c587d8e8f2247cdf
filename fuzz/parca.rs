//! Records of Parca, alone and in files. What is read of them is valid OTLP, and says the same after a way through either
//! layout.

#![no_main]

use libfuzzer_sys::fuzz_target;
use profcol_parca::ipc::{self, Compression};
use profcol_parca::padata::{MAGIC, Reader};
use profcol_parca::v1::{Stacks, encode_samples, encode_stacks, read_wanted};
use profcol_parca::{Frames, LabelRules, RecordBatch, StackIds, Table, read_samples, to_model, v2};
use profcol_profile::{Model, Profiles, Validation};

/// Far below the defaults, so that a bomb shows by its limit and not by the fuzzer's.
const LIMIT: usize = 8 << 20;

fuzz_target!(|data: &[u8]| {
    let mut stacks = Stacks::default();
    if !data.starts_with(&MAGIC) {
        if let Ok(Some(batch)) = ipc::read(data, LIMIT) {
            let _ = read_wanted(&batch);
            let _ = stacks.add(&batch);
            read(&batch, &stacks);
        }
        return;
    }
    let Ok(mut file) = Reader::new(data, LIMIT as u32) else {
        return;
    };
    while let Ok(Some(batch)) = file.next_batch() {
        if let Some(told) = &batch.stacks
            && let Ok(Some(told)) = ipc::read(told, LIMIT)
        {
            let _ = stacks.add(&told);
        }
        if let Ok(Some(batch)) = ipc::read(&batch.samples, LIMIT) {
            read(&batch, &stacks);
        }
    }
});

fn read(batch: &RecordBatch, stacks: &Stacks) {
    let Ok(samples) = read_samples(batch) else {
        return;
    };
    let Ok(model) = to_model(&samples, stacks) else {
        return;
    };
    let wire = Profiles::from_model(model.clone()).to_wire();
    if let Err(invalid) = Profiles::from_wire(wire, Validation::Reject) {
        panic!("what was read is not valid: {invalid}");
    }
    let total = total(&model);
    let table = Table::new(&model, &LabelRules::default());
    if table.rows() == 0 {
        return;
    }
    let frames = Frames::new(&model);
    let mut ids = StackIds::new(&frames);
    let told: Vec<_> = table
        .stacks
        .iter()
        .map(|&stack| (ids.id(stack), Some(stack)))
        .collect();
    let samples = encode_samples(&table, &mut ids, Compression::Lz4).expect("it can be written");
    let told = encode_stacks(&frames, &told, Compression::None).expect("it can be written");
    let both = v2::encode(&table, &frames, &mut ids, Compression::None).expect("it can be written");
    let mut known = Stacks::default();
    known.add(&again(&told)).expect("it can be read");
    for record in [samples, both] {
        let samples = read_samples(&again(&record)).expect("it can be read");
        let again = to_model(&samples, &known).expect("all stacks were told");
        assert_eq!(self::total(&again), total);
    }
}

fn again(record: &[u8]) -> RecordBatch {
    let batch = ipc::read(record, usize::MAX).expect("what was written is read");
    batch.expect("it has rows")
}

fn total(model: &Model) -> i64 {
    let samples = model.profiles().flat_map(|profile| profile.samples.iter());
    samples
        .flat_map(|sample| sample.values)
        .fold(0, |sum, value| sum.wrapping_add(*value))
}
