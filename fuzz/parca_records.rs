//! Common code of the targets `parca` and `padata`: decoded records are valid OTLP, and round-trip through both
//! layouts.

use profcol_parca::ipc;
use profcol_parca::v1::{Stacks, encode_samples, encode_stacks};
use profcol_parca::{Frames, LabelRules, RecordBatch, StackIds, Table, read_samples, to_model, v2};
use profcol_profile::{Model, Profiles, Validation};

/// Far below the defaults, so that a decompression bomb hits this limit instead of the fuzzer's.
pub const LIMIT: usize = 8 << 20;

pub fn check(batch: &RecordBatch, stacks: &Stacks) {
    let Ok(samples) = read_samples(batch) else {
        return;
    };
    let Ok(model) = to_model(&samples, stacks) else {
        return;
    };
    let wire = Profiles::from_model(model.clone()).to_wire();
    if let Err(invalid) = Profiles::from_wire(wire, Validation::Reject) {
        panic!("decoded record is invalid: {invalid}");
    }
    let total = total(&model);
    let table = Table::new(&model, &LabelRules::default());
    if table.rows() == 0 {
        return;
    }
    let frames = Frames::new(&model);
    let mut ids = StackIds::new(&frames);
    let requested = table
        .stacks
        .iter()
        .map(|&stack| (ids.id(stack), Some(stack)));
    let requested: Vec<_> = requested.collect();
    let samples = encode_samples(&table, &mut ids).expect("encodable");
    let stacks = encode_stacks(&frames, &requested).expect("encodable");
    let both = v2::encode(&table, &frames, &mut ids).expect("encodable");
    let mut received = Stacks::default();
    received.add(&again(&stacks)).expect("decodable");
    for record in [samples, both] {
        let samples = read_samples(&again(&record)).expect("decodable");
        let again = to_model(&samples, &received).expect("all stacks were sent");
        assert_eq!(self::total(&again), total);
    }
}

fn again(record: &[u8]) -> RecordBatch {
    let batch = ipc::read(record, usize::MAX).expect("decodable");
    batch.expect("has rows")
}

fn total(model: &Model) -> i64 {
    let samples = model.profiles().flat_map(|profile| profile.samples.iter());
    samples
        .flat_map(|sample| sample.values)
        .fold(0, |sum, value| sum.wrapping_add(*value))
}
