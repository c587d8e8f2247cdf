//! What must hold for every batch: merging, splitting, cleaning and encoding change no sample.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod golden;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use profcol_profile::testkit::{Observation, models, observations};
use profcol_profile::{
    Bound, CheckOptions, Model, Pieces, Profiles, Validation, check, gc, merge, split,
};
use proptest::prelude::*;
use prost::Message;

fn wire(model: &Model) -> Bytes {
    Profiles::from_model(model.clone()).to_wire()
}

fn read(wire: Bytes) -> Model {
    let received = Profiles::from_wire(wire, Validation::Reject);
    received
        .unwrap_or_else(|invalid| panic!("{invalid}"))
        .profiles
        .into_model()
}

fn assert_clean(model: &Model) {
    if let Err(problem) = check(&wire(model), CheckOptions::STRICT) {
        panic!("{problem}");
    }
}

fn all_observations<'a>(batches: impl IntoIterator<Item = &'a Model>) -> Vec<Observation> {
    let mut all: Vec<_> = batches.into_iter().flat_map(observations).collect();
    all.sort_unstable();
    all
}

fn assert_within(pieces: &Pieces, bound: Bound) {
    for piece in &pieces.pieces {
        match bound {
            Bound::Samples(limit) => assert!(piece.sample_count() <= limit.max(1)),
            Bound::Bytes(limit) => assert!(wire(piece).len() <= limit),
        }
    }
}

fn bounds() -> impl Strategy<Value = Bound> {
    prop_oneof![
        (0..8usize).prop_map(Bound::Samples),
        (0..3_000usize).prop_map(Bound::Bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn encoding_keeps_everything(model in models()) {
        let wire = wire(&model);
        prop_assert_eq!(&read(wire.clone()), &model);
        let generated = ExportProfilesServiceRequest::decode(wire.clone()).unwrap();
        prop_assert_eq!(read(generated.encode_to_vec().into()), model);
        check(&wire, CheckOptions::default()).unwrap();
    }

    #[test]
    fn cleaning_keeps_every_sample(model in models()) {
        let clean = gc(&model);
        prop_assert_eq!(observations(&clean), observations(&model));
        assert_clean(&clean);
        prop_assert_eq!(&gc(&clean), &clean);
    }

    #[test]
    fn merging_keeps_every_sample(batches in prop::collection::vec(models(), 0..4)) {
        let merged = merge(&batches);
        prop_assert_eq!(observations(&merged), all_observations(&batches));
        assert_clean(&merged);
    }

    #[test]
    fn merging_undecoded_batches_says_the_same(
        batches in prop::collection::vec((models(), any::<bool>()), 0..4),
    ) {
        let handles = batches.iter().map(|(model, decoded)| match decoded {
            true => Profiles::from_model(model.clone()),
            false => Profiles::from_wire(wire(model), Validation::Reject).unwrap().profiles,
        });
        let merged = Profiles::merge(handles.collect::<Vec<_>>());
        let models = || batches.iter().map(|(model, _)| model);
        prop_assert_eq!(observations(merged.model()), all_observations(models()));
        if batches.len() > 1 {
            assert_clean(merged.model());
            prop_assert_eq!(merged.profile_count(), merge(models()).profiles().count());
        }
    }

    #[test]
    fn splitting_keeps_every_sample(model in models(), bound in bounds()) {
        let pieces = split(&model, bound);
        assert_within(&pieces, bound);
        for piece in &pieces.pieces {
            assert_clean(piece);
        }
        if matches!(bound, Bound::Samples(_)) {
            prop_assert!(pieces.oversize.is_none());
        }
        let all = all_observations(pieces.pieces.iter().chain(&pieces.oversize));
        prop_assert_eq!(all, observations(&model));
    }

    #[test]
    fn a_chain_of_all_keeps_every_sample(
        batches in prop::collection::vec(models(), 1..4),
        first in bounds(),
        second in bounds(),
    ) {
        let Pieces { pieces, oversize } = split(&merge(&batches), first);
        let pieces: Vec<Model> = pieces.into_iter().chain(oversize).map(|piece| read(wire(&piece))).collect();
        let again = split(&gc(&merge(&pieces)), second);
        assert_within(&again, second);
        let all = all_observations(again.pieces.iter().chain(&again.oversize));
        prop_assert_eq!(all, all_observations(&batches));
    }
}

#[test]
fn recorded_requests_survive_every_operation() {
    let mut batches = Vec::new();
    for (name, wire) in golden::requests() {
        check(&wire, CheckOptions::STRICT).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        // The largest hold nothing that the others do not, and take long without optimization.
        if !name.starts_with("large") {
            batches.push(read(wire));
        }
    }
    let expected = all_observations(&batches);
    let merged = merge(&batches);
    assert_clean(&merged);
    assert_eq!(observations(&merged), expected);
    for bound in [Bound::Samples(1_000), Bound::Bytes(100_000)] {
        let pieces = split(&merged, bound);
        assert!(pieces.oversize.is_none());
        assert_within(&pieces, bound);
        pieces.pieces.iter().for_each(assert_clean);
        assert_eq!(all_observations(&pieces.pieces), expected);
        assert_eq!(observations(&merge(&pieces.pieces)), expected);
    }
}

#[test]
fn arbitrary_models_hold_what_matters() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = [0; 6];
    for _ in 0..300 {
        let model = models().new_tree(&mut runner).unwrap().current();
        let tables = &model.dictionary;
        let stacked = |profile: &profcol_profile::Profile| {
            profile
                .samples
                .iter()
                .any(|sample| !tables.stacks.get(sample.stack).is_empty())
        };
        let holds = [
            model.sample_count() > 5,
            model.profiles().any(stacked),
            model
                .profiles()
                .any(|profile| profile.original_payload.is_some()),
            gc(&model).dictionary != model.dictionary,
            merge([&model]).profiles().count() < model.profiles().count(),
            split(&model, Bound::Bytes(300)).oversize.is_some(),
        ];
        for (count, holds) in seen.iter_mut().zip(holds) {
            *count += usize::from(holds);
        }
    }
    assert!(seen.iter().all(|&count| count >= 5), "{seen:?}");
}
