//! Invariants of all batches: merging, splitting, garbage collection and encoding preserve samples.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod golden;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::profiles::v1development::{
    KeyValueAndUnit, Profile, ProfilesDictionary, ResourceProfiles, Sample, ScopeProfiles,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
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
    fn merging_undecoded_batches_is_equivalent(
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
    fn parts_by_resource_keep_every_sample(model in models(), odd in any::<bool>()) {
        let (whole, wire) = (Profiles::from_model(model.clone()), wire(&model));
        let resources = 0..model.resources.len();
        let (first, second): (Vec<_>, Vec<_>) = resources.partition(|at| (at % 2 == 1) == odd);
        let parts = [whole.part(&first), whole.part(&second)];
        let at_once = whole.parts([first.as_slice(), &second]);
        for (part, same) in parts.iter().zip(&at_once) {
            prop_assert_eq!(observations(part.model()), observations(same.model()));
        }
        for part in parts.iter().filter(|part| part.counts().resources < model.resources.len()) {
            assert_clean(part.model());
        }
        let all = all_observations(parts.iter().map(Profiles::model));
        prop_assert_eq!(all, observations(&model));
        let received = Profiles::from_wire(wire.clone(), Validation::Reject).unwrap().profiles;
        let all: Vec<usize> = (0..model.resources.len()).collect();
        prop_assert_eq!(received.part(&all).to_wire().as_ptr(), wire.as_ptr());
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
    let mut undecoded = Vec::new();
    for (name, wire) in golden::requests() {
        check(&wire, CheckOptions::STRICT).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        batches.push(read(wire.clone()));
        undecoded.push(
            Profiles::from_wire(wire, Validation::Reject)
                .unwrap()
                .profiles,
        );
    }
    let expected = all_observations(&batches);
    let merged = merge(&batches);
    assert_clean(&merged);
    // Not `assert_eq`, which would print everything.
    assert!(observations(&merged) == expected);
    let merged = Profiles::merge(undecoded).into_model();
    assert_clean(&merged);
    assert!(observations(&merged) == expected);
    for bound in [Bound::Samples(1_000), Bound::Bytes(400_000)] {
        let pieces = split(&merged, bound);
        assert!(pieces.oversize.is_none());
        assert_within(&pieces, bound);
        pieces.pieces.iter().for_each(assert_clean);
        assert!(all_observations(&pieces.pieces) == expected);
        assert!(observations(&merge(&pieces.pieces)) == expected);
    }
}

/// A request whose resource and attribute use string indices; bytes differ only in the text.
fn by_index(text: &str) -> Bytes {
    let value = || {
        Some(AnyValue {
            value: Some(any_value::Value::StringValueStrindex(2)),
        })
    };
    let resource = Resource {
        attributes: vec![KeyValue {
            key_strindex: 1,
            value: value(),
            ..KeyValue::default()
        }],
        ..Resource::default()
    };
    let profile = Profile {
        samples: vec![Sample {
            attribute_indices: vec![1],
            values: vec![1],
            ..Sample::default()
        }],
        ..Profile::default()
    };
    let dictionary = ProfilesDictionary {
        string_table: ["", "key", text, "unused"].map(String::from).to_vec(),
        attribute_table: vec![
            KeyValueAndUnit::default(),
            KeyValueAndUnit {
                key_strindex: 1,
                value: value(),
                unit_strindex: 0,
            },
        ],
        ..ProfilesDictionary::default()
    };
    let request = ExportProfilesServiceRequest {
        resource_profiles: vec![ResourceProfiles {
            resource: Some(resource),
            scope_profiles: vec![ScopeProfiles {
                profiles: vec![profile],
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        }],
        dictionary: Some(dictionary),
    };
    request.encode_to_vec().into()
}

#[test]
fn equal_bytes_with_different_strings_stay_separate() {
    let requests = ["one", "two", "one"].map(by_index);
    let receive = |wire: &Bytes| Profiles::from_wire(wire.clone(), Validation::Reject);
    let merged = Profiles::merge(requests.iter().map(|wire| receive(wire).unwrap().profiles));
    assert_eq!(merged.model().resources.len(), 2);
    assert_clean(merged.model());
    let expected = all_observations(&requests.map(read));
    assert_eq!(observations(merged.model()), expected);
}

#[test]
fn arbitrary_models_cover_all_variations() {
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
