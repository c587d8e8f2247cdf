//! Handmade files: what is read from them, what is rejected as by pprof, and the limits on their size.

use prost::Message;

use super::oracle::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
use crate::{Limits, PprofError, gzip, read};
use profcol_profile::{KeyValue, Model, Value};

/// Two sample types and one sample with a stack of two functions in one location.
fn file() -> Profile {
    let texts = [
        "",
        "samples",
        "count",
        "cpu",
        "nanoseconds",
        "main",
        "a.out",
        "inlined",
        "key",
        "text",
        "bytes",
        "abcdef",
    ];
    Profile {
        sample_type: vec![
            ValueType { r#type: 1, unit: 2 },
            ValueType { r#type: 3, unit: 4 },
        ],
        sample: vec![Sample {
            location_id: vec![7],
            value: vec![2, 20],
            label: vec![Label {
                key: 8,
                str: 9,
                ..Label::default()
            }],
        }],
        mapping: vec![Mapping {
            id: 3,
            memory_start: 0x1000,
            memory_limit: 0x2000,
            filename: 6,
            build_id: 11,
            has_functions: true,
            ..Mapping::default()
        }],
        location: vec![Location {
            id: 7,
            mapping_id: 3,
            address: 0x1234,
            line: [(2, 10), (1, 20)]
                .map(|(function_id, line)| Line {
                    function_id,
                    line,
                    column: 0,
                })
                .into(),
            is_folded: true,
        }],
        function: vec![
            Function {
                id: 1,
                name: 5,
                ..Function::default()
            },
            Function {
                id: 2,
                name: 7,
                ..Function::default()
            },
        ],
        string_table: texts.map(str::to_owned).into(),
        time_nanos: 1_000,
        duration_nanos: 500,
        ..Profile::default()
    }
}

fn model(file: &Profile) -> Model {
    read(&file.encode_to_vec(), Limits::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// The sample types of all profiles.
fn kinds(model: &Model) -> Vec<&str> {
    let strings = &model.dictionary.strings;
    let types = model.profiles().filter_map(|profile| profile.sample_type);
    types
        .map(|sample_type| strings.get(sample_type.kind))
        .collect()
}

fn scope_attributes(model: &Model) -> Vec<KeyValue> {
    let scope = &model.resources[0].scopes[0].scope;
    scope
        .as_ref()
        .map_or_else(Vec::new, |scope| scope.attributes.clone())
}

/// Key, value and unit of the attributes of the first sample.
fn sample_attributes(model: &Model) -> Vec<(&str, &Value, &str)> {
    let tables = &model.dictionary;
    let profile = model.profiles().next().expect("has a profile");
    let sample = profile.samples.get(0).expect("has a sample");
    let rows = sample
        .attributes
        .iter()
        .filter_map(|row| tables.attributes.get(*row));
    rows.map(|row| {
        (
            tables.strings.get(row.key),
            &row.value,
            tables.strings.get(row.unit),
        )
    })
    .collect()
}

#[test]
fn reads_a_profile_per_sample_type_the_default_first() {
    #[track_caller]
    fn check(default_sample_type: i64, kinds_expected: &[&str], attributes: &[KeyValue]) {
        let model = model(&Profile {
            default_sample_type,
            ..file()
        });
        assert_eq!(kinds(&model), kinds_expected);
        assert_eq!(scope_attributes(&model), attributes);
    }
    let swapped = KeyValue::new(
        "pprof.scope.sample_type_order",
        Value::Array([1.into(), 0.into()].into()),
    );
    let default = |name: &str| KeyValue::new("pprof.scope.default_sample_type", name);
    check(0, &["cpu", "samples"], std::slice::from_ref(&swapped));
    check(3, &["cpu", "samples"], &[swapped.clone(), default("cpu")]);
    check(1, &["samples", "cpu"], &[default("samples")]);
    // An unknown sample type.
    check(5, &["cpu", "samples"], &[swapped, default("main")]);
}

#[test]
fn reads_labels_as_attributes() {
    #[track_caller]
    fn check(labels: &[(i64, i64, i64, i64)], expected: &[(&str, Value, &str)]) {
        let mut file = file();
        file.sample[0].label = labels
            .iter()
            .map(|&(key, str, num, num_unit)| Label {
                key,
                str,
                num,
                num_unit,
            })
            .collect();
        let model = model(&file);
        let expected: Vec<_> = expected
            .iter()
            .map(|(key, value, unit)| (*key, value, *unit))
            .collect();
        assert_eq!(sample_attributes(&model), expected, "{labels:?}");
    }
    check(&[], &[]);
    check(&[(8, 9, 0, 0)], &[("key", "text".into(), "")]);
    check(&[(8, 0, 5, 10)], &[("key", 5.into(), "bytes")]);
    check(&[(8, 0, -5, 0)], &[("key", (-5).into(), "")]);
    check(&[(8, 0, 0, 0)], &[("key", 0.into(), "")]);
    check(&[(8, 9, 5, 10)], &[("key", "text".into(), "")]);
    check(
        &[(8, 9, 0, 0), (9, 9, 0, 0), (8, 0, 5, 10), (8, 9, 0, 0)],
        &[
            (
                "key",
                Value::Array(["text".into(), 5.into(), "text".into()].into()),
                "",
            ),
            ("text", "text".into(), ""),
        ],
    );
}

#[test]
fn recognizes_build_ids_by_their_form() {
    #[track_caller]
    fn check(build_id: &str, key: Option<&str>) {
        let mut file = file();
        file.string_table[11] = build_id.to_owned();
        let model = model(&file);
        let tables = &model.dictionary;
        let attributes = tables.mappings.get(1.into()).attributes;
        let rows = attributes
            .iter()
            .filter_map(|row| tables.attributes.get(*row));
        let build_ids = rows.filter(|row| row.value.as_str().is_some()).map(|row| {
            (
                tables.strings.get(row.key),
                row.value.as_str().unwrap_or(""),
            )
        });
        assert_eq!(
            build_ids.collect::<Vec<_>>(),
            Vec::from_iter(key.map(|key| (key, build_id)))
        );
    }
    check(
        "0123456789abcdefABCDEF00",
        Some("process.executable.build_id.gnu"),
    );
    check("q1/w2/e3/r4", Some("process.executable.build_id.go"));
    check("abc", Some("pprof.mapping.build_id"));
    check("1.2.3-debian", Some("pprof.mapping.build_id"));
    check("", None);
}

#[test]
fn rejects_what_pprof_rejects() {
    #[track_caller]
    fn check(change: fn(&mut Profile), expected: &str) {
        let mut file = file();
        change(&mut file);
        let error = read(&file.encode_to_vec(), Limits::default()).expect_err(expected);
        assert_eq!(error.to_string(), format!("malformed profile: {expected}"));
    }
    check(
        |file| file.string_table[0] = "x".to_owned(),
        "the first string is not empty",
    );
    check(
        |file| file.sample[0].location_id.push(8),
        "sample 0: location 8 is not in the file",
    );
    check(
        |file| file.sample[0].value.push(1),
        "sample 0: 3 values for 2 sample types",
    );
    check(
        |file| file.sample_type.clear(),
        "sample 0: 2 values for 0 sample types",
    );
    check(
        |file| file.sample[0].label[0].key = 99,
        "sample 0: string 99 is not in the string table, which has 12 rows",
    );
    check(
        |file| file.sample[0].label[0].str = -1,
        "sample 0: string 18446744073709551615 is not in the string table, which has 12 rows",
    );
    check(
        |file| file.location[0].line[1].function_id = 9,
        "location 0: function 9 is not in the file",
    );
    check(|file| file.location[0].id = 0, "location 0: missing id");
    check(|file| file.function[1].id = 1, "function 1: duplicate id 1");
    check(
        |file| file.mapping.push(file.mapping[0].clone()),
        "mapping 1: duplicate id 3",
    );
    check(
        |file| file.doc_url = 12,
        "string 12 is not in the string table, which has 12 rows",
    );
    check(
        |file| file.sample_type[1].unit = 12,
        "string 12 is not in the string table, which has 12 rows",
    );

    let twice = [file().encode_to_vec(), file().encode_to_vec()].concat();
    let error = read(&twice, Limits::default()).expect_err("two files");
    assert_eq!(
        error.to_string(),
        "malformed profile: the file contains two concatenated profiles"
    );
}

#[test]
fn reads_what_pprof_reads() {
    let mut file = file();
    file.location[0].mapping_id = 99;
    file.mapping[0].memory_limit = 0;
    file.location[0].line[0].line = -5;
    file.function[1].name = 0;
    file.time_nanos = -1;
    let model = model(&file);
    let tables = &model.dictionary;
    let location = tables.locations.get(1.into());
    assert!(!location.location.mapping.is_set());
    assert!(!location.lines[0].function.is_set());
    assert_eq!(location.lines[0].line, 0);
    assert_eq!(tables.mappings.get(1.into()).mapping.memory_start, 0);
    assert_eq!(
        model
            .profiles()
            .next()
            .map(|profile| profile.time_unix_nano),
        Some(0)
    );

    // Unpacked repeated numbers, and invalid UTF-8.
    let unpacked = [
        0x0a, 0, // sample type
        0x12, 6, 8, 1, 8, 1, 16, 5, // sample: locations 1 and 1, value 5
        0x22, 6, 8, 1, 0x22, 2, 8, 1, // location 1 with a line in function 1
        0x2a, 4, 8, 1, 16, 1, // function 1, named by string 1
        0x32, 0, 0x32, 2, b'a', 0xff, // strings
    ];
    let model = read(&unpacked, Limits::default()).expect("valid");
    let profile = model.profiles().next().expect("has a profile");
    assert_eq!(
        profile.samples.get(0).map(|sample| sample.values),
        Some(&[5][..])
    );
    assert_eq!(model.dictionary.stacks.get(1.into()), [1.into(), 1.into()]);
    assert_eq!(model.dictionary.strings.get(1.into()), "a\u{fffd}");
}

#[test]
fn reads_empty_files() {
    let empty = model(&Profile::default());
    assert_eq!(empty.profiles().count(), 0);
    let without_samples = model(&Profile {
        sample: Vec::new(),
        ..file()
    });
    assert_eq!(without_samples.profiles().count(), 2);
    assert_eq!(without_samples.sample_count(), 0);
}

#[test]
fn stays_within_limits() {
    #[track_caller]
    fn check(file: &[u8], limits: Limits, expected: &str) {
        let error = read(file, limits).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let limits = Limits {
        file_bytes: 10_000,
        model_bytes: 100_000,
    };
    let file = file();
    let plain = file.encode_to_vec();
    check(&vec![0; 10_001], limits, "larger than 10000 bytes");
    check(&gzip(&vec![0; 200_000]), limits, "larger than 10000 bytes");
    check(&gzip(&plain)[..20], limits, "failed to decompress");
    assert!(read(&gzip(&plain), limits).is_ok());

    let too_much = "exceeds the memory limit of 100000 bytes";
    let types = Profile {
        sample_type: vec![ValueType::default(); 2_000],
        sample: Vec::new(),
        ..file.clone()
    };
    check(&types.encode_to_vec(), limits, too_much);
    // Each sample type stores the labels in its own columns.
    let mut labels = Profile {
        sample_type: vec![ValueType::default(); 100],
        ..file.clone()
    };
    labels.sample[0].value = vec![0; 100];
    labels.sample[0].label = (0..300)
        .map(|num| Label {
            key: 8,
            num,
            ..Label::default()
        })
        .collect();
    check(&labels.encode_to_vec(), limits, too_much);
    // The same long string in many values.
    let mut texts = file;
    texts.string_table[9] = "x".repeat(2_000);
    texts.comment = vec![9; 200];
    check(&texts.encode_to_vec(), limits, too_much);
    // Rows that are small only in the file: sample types, strings, comments, lines.
    let tight = Limits {
        model_bytes: 50_000,
        ..limits
    };
    for row in [[0x0a, 0], [0x32, 0], [0x68, 0]] {
        check(
            &row.repeat(5_000),
            tight,
            "exceeds the memory limit of 50000 bytes",
        );
    }
    let lines = Profile {
        location: vec![Location {
            id: 1,
            line: vec![Line::default(); 4_900],
            ..Location::default()
        }],
        ..Profile::default()
    };
    check(&lines.encode_to_vec(), limits, too_much);
}

#[test]
fn distinguishes_its_own_errors() {
    assert!(matches!(
        read(b"\x1f\x8b", Limits::default()),
        Err(PprofError::Gzip(_))
    ));
    assert!(matches!(
        read(b"\x0a", Limits::default()),
        Err(PprofError::Malformed(_))
    ));
}
