//! Pairs of handmade profiles: which become one when batches are merged, and which stay apart.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use bytes::Bytes;

use super::merge;
use crate::{
    Model, OriginalPayload, Profile, Resource, ResourceProfiles, SampleRef, Samples, ScopeProfiles,
};

fn batch(profile: Profile) -> Model {
    Model {
        resources: vec![ResourceProfiles {
            resource: Some(Arc::new(Resource::default())),
            scopes: vec![ScopeProfiles {
                profiles: vec![Arc::new(profile)],
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        }],
        ..Model::default()
    }
}

/// A profile from 100 to 110 with one sample.
fn timed(values: &[i64], timestamps: &[u64]) -> Profile {
    let mut samples = Samples::default();
    samples.push(SampleRef {
        values,
        timestamps,
        ..SampleRef::default()
    });
    Profile {
        samples,
        time_unix_nano: 100,
        duration_nano: 10,
        ..Profile::default()
    }
}

#[test]
fn joins_profiles_only_if_the_meaning_is_unchanged() {
    let first = || timed(&[], &[105]);
    let window = |time_unix_nano, duration_nano| Profile {
        time_unix_nano,
        duration_nano,
        ..timed(&[], &[time_unix_nano])
    };
    let payload = OriginalPayload {
        format: "pprof".into(),
        payload: Bytes::from_static(b"x"),
    };
    let rows = [
        ("equal windows", first(), true),
        ("overlap", window(105, 20), true),
        ("inside", window(102, 1), true),
        ("touch after", window(110, 5), true),
        ("touch before", window(95, 5), true),
        ("gap after", window(111, 5), false),
        ("gap before", window(90, 9), false),
        ("values next to timestamps", timed(&[1], &[105]), false),
        ("aggregated", timed(&[1], &[]), false),
        (
            "id",
            Profile {
                profile_id: Some([1; 16]),
                ..first()
            },
            false,
        ),
        (
            "payload",
            Profile {
                original_payload: Some(payload),
                ..first()
            },
            false,
        ),
        (
            "period",
            Profile {
                period: 7,
                ..first()
            },
            false,
        ),
    ];
    for (name, second, joined) in rows {
        let merged = merge(&[batch(first()), batch(second.clone())]);
        assert_eq!(merged.resources.len(), 1, "{name}");
        assert_eq!(merged.sample_count(), 2, "{name}");
        assert_eq!(merged.profiles().count() == 1, joined, "{name}");
        if joined {
            let profile = merged.profiles().next().unwrap();
            let end = |profile: &Profile| profile.time_unix_nano + profile.duration_nano;
            assert_eq!(
                profile.time_unix_nano,
                second.time_unix_nano.min(100),
                "{name}"
            );
            assert_eq!(end(profile), end(&second).max(110), "{name}");
        }
    }
}

#[test]
fn a_gap_starts_a_new_profile_for_what_follows() {
    let at = |time_unix_nano| {
        batch(Profile {
            time_unix_nano,
            ..timed(&[], &[time_unix_nano])
        })
    };
    let merged = merge(&[at(100), at(200), at(205), at(210)]);
    let counts: Vec<usize> = merged.profiles().map(|p| p.samples.len()).collect();
    assert_eq!(counts, [1, 3]);
}

#[test]
fn keeps_ids_and_payloads() {
    let profile = Profile {
        profile_id: Some([1; 16]),
        original_payload: Some(OriginalPayload {
            format: "pprof".into(),
            payload: Bytes::from_static(b"x"),
        }),
        ..timed(&[3], &[])
    };
    let merged = merge(&[batch(profile.clone()), batch(profile.clone())]);
    assert!(merged.profiles().all(|merged| *merged == profile));
    assert_eq!(merged.profiles().count(), 2);
}
