//! What the targets `parca` and `padata` have in common: what is read of a record is valid OTLP, and says the same after a
//! way through either layout.

use profcol_parca::ipc;
use profcol_parca::v1::{Stacks, encode_samples, encode_stacks};
use profcol_parca::{Frames, LabelRules, RecordBatch, StackIds, Table, read_samples, to_model, v2};
use profcol_profile::{Model, Profiles, Validation};

/// Far below the defaults, so that a bomb shows by its limit and not by the fuzzer's.
pub const LIMIT: usize = 8 << 20;

/// Arrow's library refuses some records by a panic, of which `ipc::read` makes a refusal. Every other panic ends the run,
/// and so does one of the library's that reaches the target.
pub fn let_arrow_panic() {
    let ends_run = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let file = panic.location().map_or("", |location| location.file());
        if !file.contains("/arrow-") {
            ends_run(panic);
        }
    }));
}

pub fn check(batch: &RecordBatch, stacks: &Stacks) {
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
    let told = table.stacks.iter().map(|&stack| (ids.id(stack), Some(stack)));
    let told: Vec<_> = told.collect();
    let samples = encode_samples(&table, &mut ids).expect("it can be written");
    let told = encode_stacks(&frames, &told).expect("it can be written");
    let both = v2::encode(&table, &frames, &mut ids).expect("it can be written");
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
