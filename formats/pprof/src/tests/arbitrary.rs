//! Files with any content, ids and order that pprof's own tools accept.

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use std::ops::Range;

use prost::Message;

use super::oracle::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};

const STRINGS: i64 = 12;

pub fn file() -> impl Strategy<Value = Vec<u8>> {
    let ids = || btree_set(prop_oneof![1..9u64, 1..=u64::MAX], 1..6).prop_map(Vec::from_iter);
    let tables = (ids(), ids(), ids()).prop_flat_map(|(mappings, functions, locations)| {
        (
            mappings.iter().copied().map(mapping).collect::<Vec<_>>(),
            functions.iter().copied().map(function).collect::<Vec<_>>(),
            locations
                .iter()
                .map(|id| location(*id, mappings.clone(), functions.clone()))
                .collect::<Vec<_>>(),
            samples(locations),
        )
    });
    (tables, strings(), header()).prop_map(|(tables, string_table, header)| {
        let (mapping, function, location, (types, sample)) = tables;
        let file = Profile {
            sample_type: types.into_iter().map(value_type).collect(),
            sample,
            mapping,
            function,
            location,
            string_table,
            ..header
        };
        file.encode_to_vec()
    })
}

fn samples(locations: Vec<u64>) -> impl Strategy<Value = (Vec<(i64, i64)>, Vec<Sample>)> {
    // Excludes the last string, so that no two types are equal.
    let types = btree_set((0..STRINGS - 1, 0..STRINGS - 1), 1..4).prop_map(Vec::from_iter);
    types.prop_shuffle().prop_flat_map(move |types| {
        let samples = vec(sample(locations.clone(), types.len()), 0..8);
        (Just(types), samples)
    })
}

/// Distinct strings, except for the last one, which repeats the second.
fn strings() -> impl Strategy<Value = Vec<String>> {
    vec("[a-f0-9/]{0,6}|\\PC{1,3}", STRINGS as usize - 2).prop_map(|texts| {
        let numbered = (10..).zip(texts).map(|(at, text)| format!("{at}{text}"));
        let mut strings: Vec<String> = numbered.collect();
        strings.insert(0, String::new());
        strings.push(strings[1].clone());
        strings
    })
}

fn string() -> impl Strategy<Value = i64> {
    0..STRINGS
}

fn value_type((r#type, unit): (i64, i64)) -> ValueType {
    ValueType { r#type, unit }
}

/// A memory range: not empty, or unset.
fn range() -> impl Strategy<Value = Range<u64>> {
    prop_oneof![
        Just(0..0),
        any::<(u64, u64)>()
            .prop_filter("an empty range", |(a, b)| a != b)
            .prop_map(|(a, b)| a.min(b)..a.max(b)),
    ]
}

fn mapping(id: u64) -> impl Strategy<Value = Mapping> {
    (
        (range(), any::<u64>()),
        string(),
        string(),
        any::<[bool; 4]>(),
    )
        .prop_map(move |(range, filename, build_id, flags)| Mapping {
            id,
            memory_start: range.0.start,
            memory_limit: range.0.end,
            file_offset: range.1,
            filename,
            build_id,
            has_functions: flags[0],
            has_filenames: flags[1],
            has_line_numbers: flags[2],
            has_inline_frames: flags[3],
        })
}

fn function(id: u64) -> impl Strategy<Value = Function> {
    (1..STRINGS, string(), string(), any::<i64>()).prop_map(
        move |(name, system_name, filename, start_line)| Function {
            id,
            name,
            system_name,
            filename,
            start_line,
        },
    )
}

fn location(id: u64, mappings: Vec<u64>, functions: Vec<u64>) -> impl Strategy<Value = Location> {
    let mapping = prop_oneof![Just(0), prop::sample::select(mappings)];
    let function = prop::sample::select(functions);
    let line = (function, 0..=i64::MAX, 0..3i64).prop_map(|(function_id, line, column)| Line {
        function_id,
        line,
        column,
    });
    (mapping, any::<u64>(), vec(line, 0..3), any::<bool>()).prop_map(
        move |(mapping_id, address, line, is_folded)| Location {
            id,
            mapping_id,
            address,
            line,
            is_folded,
        },
    )
}

fn sample(locations: Vec<u64>, types: usize) -> impl Strategy<Value = Sample> {
    // A key has a single unit, and a number without a unit is not 0.
    let text = (1..4i64, 1..STRINGS).prop_map(|(key, str)| Label {
        key,
        str,
        ..Label::default()
    });
    let number = (4..6i64, any::<i64>()).prop_map(|(key, num)| Label {
        key,
        num,
        num_unit: key + 2,
        ..Label::default()
    });
    let unitless = (1..4i64, 1..i64::MAX).prop_map(|(key, num)| Label {
        key,
        num,
        ..Label::default()
    });
    let label = prop_oneof![text, number, unitless];
    let stack = vec(prop::sample::select(locations), 0..4);
    let values = vec(-(1i64 << 50)..(1 << 50), types);
    (stack, values, vec(label, 0..4)).prop_map(|(location_id, value, label)| Sample {
        location_id,
        value,
        label,
    })
}

fn header() -> impl Strategy<Value = Profile> {
    let times = (0..i64::MAX / 2, 0..i64::MAX / 2, any::<i64>());
    let texts = (string(), string(), string(), 0..STRINGS);
    let period_type = prop::option::of((string(), string()));
    (times, texts, period_type, btree_set(1..STRINGS - 1, 0..3)).prop_map(
        |(times, texts, period_type, comments)| Profile {
            time_nanos: times.0,
            duration_nanos: times.1,
            period: times.2.max(0),
            drop_frames: texts.0,
            keep_frames: texts.1,
            doc_url: texts.2,
            default_sample_type: texts.3,
            period_type: period_type.map(value_type),
            comment: comments.into_iter().collect(),
            ..Profile::default()
        },
    )
}
