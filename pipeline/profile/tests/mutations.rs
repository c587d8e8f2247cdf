//! Damaged requests are either refused or valid, and valid ones can be decoded, changed and encoded without a panic.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod golden;

use bytes::Bytes;
use profcol_profile::testkit::models;
use profcol_profile::{Bound, CheckOptions, Profiles, Validation, check, gc};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Mutation {
    Flip(usize, u8),
    Set(usize, u8),
    Cut(usize),
    Remove(usize, usize),
    Repeat(usize, usize),
    Insert(usize, Vec<u8>),
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let at = any::<usize>();
    let byte = any::<u8>();
    let one = prop_oneof![
        4 => (at, 0..8u8).prop_map(|(at, bit)| Mutation::Flip(at, 1 << bit)),
        4 => (at, byte).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        1 => at.prop_map(Mutation::Cut),
        1 => (at, 1..20usize).prop_map(|(at, len)| Mutation::Remove(at, len)),
        1 => (at, 1..20usize).prop_map(|(at, len)| Mutation::Repeat(at, len)),
        1 => (at, prop::collection::vec(byte, 1..12)).prop_map(|(at, new)| Mutation::Insert(at, new)),
    ];
    prop::collection::vec(one, 1..4)
}

fn apply(mut bytes: Vec<u8>, mutations: &[Mutation]) -> Bytes {
    for mutation in mutations {
        let len = bytes.len();
        if len == 0 {
            break;
        }
        match mutation {
            Mutation::Flip(at, bits) => bytes[at % len] ^= bits,
            Mutation::Set(at, byte) => bytes[at % len] = *byte,
            Mutation::Cut(at) => bytes.truncate(at % len),
            Mutation::Remove(at, count) => {
                let start = at % len;
                bytes.drain(start..(start + count).min(len));
            }
            Mutation::Repeat(at, count) => {
                let start = at % len;
                let part = bytes[start..(start + count).min(len)].to_vec();
                bytes.splice(start..start, part);
            }
            Mutation::Insert(at, new) => {
                let start = at % len;
                bytes.splice(start..start, new.iter().copied());
            }
        }
    }
    bytes.into()
}

/// Whether the request was accepted unrepaired.
fn exercise(wire: &Bytes) -> bool {
    if let Ok(repaired) = Profiles::from_wire(wire.clone(), Validation::Repair) {
        use_up(repaired.profiles);
    }
    match Profiles::from_wire(wire.clone(), Validation::Reject) {
        Err(invalid) => {
            assert!(!invalid.to_string().is_empty());
            false
        }
        Ok(received) => {
            assert!(received.repaired.is_empty());
            use_up(received.profiles);
            true
        }
    }
}

fn use_up(mut profiles: Profiles) {
    let samples = profiles.sample_count();
    assert_eq!(samples, profiles.model().sample_count());
    let clean = Profiles::from_model(gc(profiles.model()));
    check(
        &clean.to_wire(),
        CheckOptions {
            duplicates: true,
            orphans: true,
        },
    )
    .unwrap_or_else(|problem| {
        // Keys and names that are equal or empty by text but not by row are accepted.
        let text = [
            "in a list of attributes",
            "has the same key",
            "must have a name",
        ];
        let text = text.iter().any(|text| problem.to_string().contains(text));
        assert!(text, "{problem}");
    });
    profiles.update_resources(|_| true);
    let pieces = profiles.split(Bound::Bytes(2_000));
    let all = pieces.pieces.into_iter().chain(pieces.oversize);
    assert_eq!(Profiles::merge(all).sample_count(), samples);
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(3_000)
    })]

    #[test]
    fn damaged_models_never_panic(model in models(), mutations in mutations()) {
        let wire = Profiles::from_model(model).to_wire();
        exercise(&apply(wire.to_vec(), &mutations));
    }
}

#[test]
fn damaged_recorded_requests_never_panic() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut accepted, mut refused) = (0, 0);
    for (name, wire) in golden::requests() {
        if !name.starts_with("export") {
            continue;
        }
        for _ in 0..100 {
            let mutations = mutations().new_tree(&mut runner).unwrap().current();
            match exercise(&apply(wire.to_vec(), &mutations)) {
                true => accepted += 1,
                false => refused += 1,
            }
        }
        for cut in (0..wire.len()).step_by(37) {
            exercise(&wire.slice(..cut));
        }
    }
    assert_eq!(accepted > 0, refused > 0, "{accepted} {refused}");
}
