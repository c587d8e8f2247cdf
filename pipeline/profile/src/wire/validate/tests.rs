//! The fast path must not accept what the slow path rejects, and must yield the same state.

#![allow(clippy::unwrap_used, reason = "tests")]

use profcol_profile::testkit::{in_descending_order, models};
use proptest::prelude::*;

use super::Walk;
use crate::proto::Writer;
use crate::wire::fast_path;
use crate::wire::fields::fields;
use crate::wire::rows::{self, RowLists};
use crate::wire::tables::{Request, Tables};
use crate::wire::tags::{
    attribute, dictionary, function, location, profile, resource_profiles, sample, scope_profiles,
};
use crate::wire::window::Window;

/// Whether the fast path accepted the dictionary.
fn check_dictionary(message: &[u8]) -> bool {
    let Some(fast_path) = fast_path::dictionary(message) else {
        return false;
    };
    let tables = Tables::read(message).unwrap();
    let careful = Walk::through_tables(message, false).unwrap();
    assert_eq!(fast_path.keys, careful.keys);
    for table in [
        dictionary::MAPPINGS,
        dictionary::LOCATIONS,
        dictionary::FUNCTIONS,
        dictionary::LINKS,
        dictionary::STRINGS,
        dictionary::ATTRIBUTES,
        dictionary::STACKS,
    ] {
        assert_eq!(fast_path.rows.of(table), Some(tables.len(table)));
    }
    true
}

/// Whether the fast path accepted the sample.
fn check_sample(message: &[u8], walk: &mut Walk) -> bool {
    let mut seen = Window::default();
    let Some(fast_path) = fast_path::sample(message, &walk.keys) else {
        return false;
    };
    let mut lists = RowLists::default();
    let head = rows::sample(message, &mut lists).unwrap();
    assert!(!head.has_old_attributes);
    assert_eq!((fast_path.stack, fast_path.link), (head.stack, head.link));
    let highest = lists.attributes.iter().copied().max();
    assert_eq!(fast_path.attribute, highest.unwrap_or_default());
    let in_range = walk.stacks.check(fast_path.stack).is_ok()
        && walk.links.check(fast_path.link).is_ok()
        && walk.attributes.check(fast_path.attribute).is_ok();
    assert_eq!(walk.unusual_sample(message, &mut seen).is_ok(), in_range);
    assert_eq!(
        (fast_path.seen.start, fast_path.seen.end),
        (seen.start, seen.end)
    );
    true
}

fn samples<'a>(request: &Request<'a>) -> Vec<&'a [u8]> {
    let mut found = Vec::new();
    for resource in request.resources.iter() {
        for scope in fields(resource, resource_profiles::SCOPES) {
            for profile in fields(scope.unwrap(), scope_profiles::PROFILES) {
                let samples = fields(profile.unwrap(), profile::SAMPLES);
                found.extend(samples.map(Result::unwrap));
            }
        }
    }
    found
}

fn damaged(message: &[u8], damage: &[(usize, u8)]) -> Vec<u8> {
    let mut message = message.to_vec();
    for &(at, byte) in damage {
        if !message.is_empty() {
            let at = at % message.len();
            message[at] = byte;
        }
    }
    message
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(2_000)
    })]

    #[test]
    fn accepts_both_field_orders_and_nothing_invalid(
        model in models(),
        damage in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
    ) {
        let ascending = profcol_profile::Profiles::from_model(model).to_wire();
        let descending = in_descending_order(&ascending).unwrap();
        for wire in [&ascending[..], &descending] {
            let request = Request::read(wire).unwrap();
            let mut walk = Walk::through_tables(&request.dictionary, false).unwrap();
            prop_assert!(check_dictionary(&request.dictionary));
            check_dictionary(&damaged(&request.dictionary, &damage));
            for sample in samples(&request) {
                prop_assert!(check_sample(sample, &mut walk));
                check_sample(&damaged(sample, &damage), &mut walk);
            }
        }
    }
}

#[test]
fn colliding_keys_are_distinguished() {
    // Keys 1, 65 and 1 again: the first two share a bit.
    let table = |list: &[u64]| {
        let mut out = Writer::default();
        for row in 0..66 {
            let text = if row == 0 {
                String::new()
            } else {
                row.to_string()
            };
            out.bytes_always(dictionary::STRINGS, text.as_bytes());
        }
        for key in [0, 1, 65, 1] {
            out.nested(dictionary::ATTRIBUTES, 0, |out| {
                out.uint(attribute::KEY, key);
            });
        }
        out.nested(dictionary::LOCATIONS, 0, |_| ());
        out.nested(dictionary::LOCATIONS, 0, |out| {
            out.packed(location::ATTRIBUTES, list.iter().copied());
        });
        out.into_vec()
    };
    for (list, fits) in [(&[1, 2][..], true), (&[1, 2, 3], false), (&[1, 3], false)] {
        assert_eq!(check_dictionary(&table(list)), fits, "{list:?}");
    }
    let empty = table(&[]);
    let mut walk = Walk::through_tables(&empty, false).unwrap();
    for (list, fits) in [(&[1, 2][..], true), (&[1, 2, 3], false), (&[1, 3], false)] {
        let mut out = Writer::default();
        out.packed(sample::ATTRIBUTES, list.iter().copied());
        out.packed(sample::VALUES, [7].into_iter());
        assert_eq!(check_sample(&out.into_vec(), &mut walk), fits, "{list:?}");
    }
}

#[test]
fn keys_compare_by_text() {
    // The key of each attribute, in a string table where every three rows are equal.
    let check = |strings: u64, keys: &[u64], expected: &[u64]| {
        let mut out = Writer::default();
        out.bytes_always(dictionary::STRINGS, b"");
        for row in 1..strings {
            if row % 100 == 0 {
                // Another table between two runs.
                out.nested(dictionary::STACKS, 0, |_| ());
            }
            let text = (row / 3 * 3).to_string();
            out.bytes_always(dictionary::STRINGS, text.as_bytes());
        }
        for &key in keys {
            out.nested(dictionary::ATTRIBUTES, 0, |out| {
                out.uint(attribute::KEY, key)
            });
        }
        let message = out.into_vec();
        let found = fast_path::dictionary(&message).unwrap().keys;
        let found: Vec<u64> = found.into_iter().map(|key| key.get().into()).collect();
        assert_eq!(found, expected, "{keys:?}");
        assert!(check_dictionary(&message));
    };
    check(10, &[0], &[0]);
    check(10, &[0, 3, 6, 9], &[0, 3, 6, 9]);
    check(10, &[0, 5, 3, 4, 6], &[0, 3, 3, 3, 6]);
    check(
        400,
        &[0, 398, 64, 129, 63, 397, 2, 1],
        &[0, 397, 63, 129, 63, 397, 1, 1],
    );
    check(400, &[0, 299, 300, 301, 302], &[0, 299, 300, 300, 300]);
}

#[test]
fn leaves_overlong_encodings_to_the_slow_path() {
    let function = |name: &[u8]| {
        let mut out = Writer::default();
        for _ in 0..300 {
            out.bytes_always(dictionary::STRINGS, b"");
        }
        out.nested(dictionary::FUNCTIONS, 0, |_| ());
        out.nested(dictionary::FUNCTIONS, 0, |out| {
            out.raw(&[function::NAME as u8]);
            out.raw(name);
            out.uint(function::FILENAME, 200);
        });
        out.into_vec()
    };
    for (name, takes) in [
        (&[1][..], true),
        (&[0x81, 0x02], true),
        (&[0xac, 0x02], false),
        (&[0x81, 0x80, 0x80, 0x80, 0x00], false),
        (
            &[0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01],
            false,
        ),
    ] {
        assert_eq!(check_dictionary(&function(name)), takes, "{name:?}");
    }
}
