//! Every validation rule with its message for the sender, and what repair keeps.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesDictionary,
    ResourceProfiles, Sample, ScopeProfiles, Stack, ValueType,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use profcol_profile::{CheckOptions, Profiles, Reason, Validation, check};
use prost::Message;

fn attribute(key_strindex: i32) -> KeyValueAndUnit {
    KeyValueAndUnit {
        key_strindex,
        value: Some(AnyValue {
            value: Some(Value::StringValueStrindex(2)),
        }),
        unit_strindex: 0,
    }
}

fn sample(stack_index: i32) -> Sample {
    Sample {
        stack_index,
        attribute_indices: vec![1, 2],
        link_index: 1,
        values: vec![],
        timestamps_unix_nano: vec![105],
    }
}

/// Three samples on two stacks, with a row in each table.
fn request() -> ExportProfilesServiceRequest {
    let stack = |location_indices| Stack { location_indices };
    let dictionary = ProfilesDictionary {
        mapping_table: vec![
            Mapping::default(),
            Mapping {
                memory_start: 1,
                memory_limit: 2,
                filename_strindex: 3,
                attribute_indices: vec![1],
                ..Mapping::default()
            },
        ],
        location_table: vec![
            Location::default(),
            Location {
                mapping_index: 1,
                lines: vec![Line {
                    function_index: 1,
                    line: 5,
                    column: 0,
                }],
                attribute_indices: vec![2],
                ..Location::default()
            },
            Location {
                address: 77,
                ..Location::default()
            },
        ],
        function_table: vec![
            Function::default(),
            Function {
                name_strindex: 1,
                ..Function::default()
            },
        ],
        link_table: vec![
            Link::default(),
            Link {
                trace_id: vec![1; 16],
                span_id: vec![2; 8],
            },
        ],
        string_table: ["", "main", "key", "libc"].map(String::from).to_vec(),
        attribute_table: vec![KeyValueAndUnit::default(), attribute(2), attribute(3)],
        stack_table: vec![stack(vec![]), stack(vec![1, 2]), stack(vec![2])],
    };
    let profile = Profile {
        sample_type: Some(ValueType {
            type_strindex: 1,
            unit_strindex: 2,
        }),
        samples: vec![sample(1), sample(2), sample(2)],
        time_unix_nano: 100,
        duration_nano: 10,
        ..Profile::default()
    };
    ExportProfilesServiceRequest {
        resource_profiles: vec![ResourceProfiles {
            resource: Some(Resource {
                attributes: vec![KeyValue {
                    key_strindex: 2,
                    value: Some(AnyValue {
                        value: Some(Value::StringValueStrindex(3)),
                    }),
                    ..KeyValue::default()
                }],
                ..Resource::default()
            }),
            scope_profiles: vec![ScopeProfiles {
                scope: Some(InstrumentationScope::default()),
                profiles: vec![profile],
                schema_url: String::new(),
            }],
            schema_url: String::new(),
        }],
        dictionary: Some(dictionary),
    }
}

struct Edit(ExportProfilesServiceRequest);

impl Edit {
    fn tables(&mut self) -> &mut ProfilesDictionary {
        self.0.dictionary.as_mut().unwrap()
    }

    fn resource(&mut self) -> &mut Resource {
        self.0.resource_profiles[0].resource.as_mut().unwrap()
    }

    fn scope(&mut self) -> &mut ScopeProfiles {
        &mut self.0.resource_profiles[0].scope_profiles[0]
    }

    fn profile(&mut self) -> &mut Profile {
        &mut self.scope().profiles[0]
    }

    /// The second of three; the third uses the same stack.
    fn sample(&mut self) -> &mut Sample {
        &mut self.profile().samples[1]
    }
}

/// An attribute of a resource or scope.
fn named(key: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        ..KeyValue::default()
    }
}

const SAMPLE: &str = "resource_profiles[0].scope_profiles[0].profiles[0].samples[1]";
const PROFILE: &str = "resource_profiles[0].scope_profiles[0].profiles[0]";

/// The edit, the message (with `S` for the sample, `P` for the profile), and how many samples repair keeps.
type Row = (fn(&mut Edit), &'static str, Option<(Reason, usize)>);

const RULES: &[Row] = &[
    // Indices.
    (
        |e| e.sample().stack_index = 91,
        "S.stack_index 91 out of range (stacks: 3)",
        Some((Reason::IndexOutOfRange, 2)),
    ),
    (
        |e| e.sample().stack_index = -1,
        "S.stack_index -1 out of range (stacks: 3)",
        Some((Reason::IndexOutOfRange, 2)),
    ),
    (
        |e| e.sample().link_index = 2,
        "S.link_index 2 out of range (links: 2)",
        Some((Reason::IndexOutOfRange, 2)),
    ),
    (
        |e| e.sample().attribute_indices[1] = 3,
        "S.attribute_indices[1] 3 out of range (attributes: 3)",
        Some((Reason::IndexOutOfRange, 2)),
    ),
    (
        |e| e.profile().attribute_indices = vec![9],
        "P.attribute_indices[0] 9 out of range (attributes: 3)",
        Some((Reason::IndexOutOfRange, 0)),
    ),
    (
        |e| e.profile().sample_type.as_mut().unwrap().unit_strindex = 4,
        "P.sample_type.unit_strindex 4 out of range (strings: 4)",
        Some((Reason::IndexOutOfRange, 0)),
    ),
    (
        |e| {
            e.profile().period_type = Some(ValueType {
                type_strindex: 4,
                unit_strindex: 0,
            })
        },
        "P.period_type.type_strindex 4 out of range (strings: 4)",
        Some((Reason::IndexOutOfRange, 0)),
    ),
    (
        |e| e.tables().stack_table[1].location_indices[1] = 3,
        "dictionary.stack_table[1].location_indices[1] 3 out of range (locations: 3)",
        Some((Reason::IndexOutOfRange, 2)),
    ),
    (
        |e| e.tables().location_table[1].mapping_index = 2,
        "dictionary.location_table[1].mapping_index 2 out of range (mappings: 2)",
        Some((Reason::IndexOutOfRange, 2)),
    ),
    (
        |e| e.tables().location_table[1].lines[0].function_index = 2,
        "dictionary.location_table[1].lines[0].function_index 2 out of range (functions: 2)",
        Some((Reason::IndexOutOfRange, 2)),
    ),
    (
        |e| e.tables().location_table[2].attribute_indices = vec![3],
        "dictionary.location_table[2].attribute_indices[0] 3 out of range (attributes: 3)",
        Some((Reason::IndexOutOfRange, 0)),
    ),
    (
        |e| e.tables().mapping_table[1].filename_strindex = 4,
        "dictionary.mapping_table[1].filename_strindex 4 out of range (strings: 4)",
        Some((Reason::IndexOutOfRange, 2)),
    ),
    (
        |e| e.tables().mapping_table[1].attribute_indices = vec![-7],
        "dictionary.mapping_table[1].attribute_indices[0] -7 out of range (attributes: 3)",
        Some((Reason::IndexOutOfRange, 2)),
    ),
    (
        |e| e.tables().function_table[1].name_strindex = 4,
        "dictionary.function_table[1].name_strindex 4 out of range (strings: 4)",
        Some((Reason::IndexOutOfRange, 2)),
    ),
    (
        |e| e.tables().function_table[1].system_name_strindex = 4,
        "dictionary.function_table[1].system_name_strindex 4 out of range (strings: 4)",
        Some((Reason::IndexOutOfRange, 2)),
    ),
    (
        |e| e.tables().function_table[1].filename_strindex = 4,
        "dictionary.function_table[1].filename_strindex 4 out of range (strings: 4)",
        Some((Reason::IndexOutOfRange, 2)),
    ),
    (
        |e| e.tables().attribute_table[1].key_strindex = 4,
        "dictionary.attribute_table[1].key_strindex 4 out of range (strings: 4)",
        Some((Reason::IndexOutOfRange, 0)),
    ),
    (
        |e| e.tables().attribute_table[2].unit_strindex = 4,
        "dictionary.attribute_table[2].unit_strindex 4 out of range (strings: 4)",
        Some((Reason::IndexOutOfRange, 0)),
    ),
    (
        |e| e.tables().attribute_table[1].value = nested_reference(4),
        "dictionary.attribute_table[1].value.array_value[1].kvlist_value[0].value.string_value_strindex 4 out of range (strings: 4)",
        Some((Reason::IndexOutOfRange, 0)),
    ),
    (
        |e| e.resource().attributes[0].key_strindex = 4,
        "resource_profiles[0].resource.attributes[0].key_strindex 4 out of range (strings: 4)",
        Some((Reason::IndexOutOfRange, 0)),
    ),
    (
        |e| e.resource().attributes[0].value = nested_reference(4),
        "resource_profiles[0].resource.attributes[0].value.array_value[1].kvlist_value[0].value.string_value_strindex 4 out of range (strings: 4)",
        Some((Reason::IndexOutOfRange, 0)),
    ),
    (
        |e| {
            e.scope().scope.as_mut().unwrap().attributes = vec![KeyValue {
                key_strindex: 8,
                ..KeyValue::default()
            }]
        },
        "resource_profiles[0].scope_profiles[0].scope.attributes[0].key_strindex 8 out of range (strings: 4)",
        Some((Reason::IndexOutOfRange, 0)),
    ),
    (
        |e| e.0.dictionary = None,
        "resource_profiles[0].resource.attributes[0].key_strindex 2 out of range (strings: 0)",
        Some((Reason::IndexOutOfRange, 0)),
    ),
    // Row 0: index 0 is ambiguous if the table starts with another value.
    (
        |e| e.tables().string_table[0] = "x".into(),
        "dictionary.string_table[0]: row 0 of a table must be its zero value",
        Some((Reason::RowZero, 0)),
    ),
    (
        |e| e.tables().stack_table[0].location_indices.push(1),
        "dictionary.stack_table[0]: row 0 of a table must be its zero value",
        Some((Reason::RowZero, 3)),
    ),
    (
        |e| e.tables().mapping_table[0].file_offset = 1,
        "dictionary.mapping_table[0]: row 0 of a table must be its zero value",
        Some((Reason::RowZero, 0)),
    ),
    (
        |e| e.tables().location_table[0].lines.push(Line::default()),
        "dictionary.location_table[0]: row 0 of a table must be its zero value",
        Some((Reason::RowZero, 3)),
    ),
    (
        |e| e.tables().function_table[0].start_line = 1,
        "dictionary.function_table[0]: row 0 of a table must be its zero value",
        Some((Reason::RowZero, 3)),
    ),
    (
        |e| e.tables().attribute_table[0] = attribute(0),
        "dictionary.attribute_table[0]: row 0 of a table must be its zero value",
        Some((Reason::RowZero, 3)),
    ),
    (
        |e| e.tables().link_table[0].span_id = vec![1; 8],
        "dictionary.link_table[0]: row 0 of a table must be its zero value",
        Some((Reason::RowZero, 3)),
    ),
    // Content of rows.
    (
        |e| e.tables().attribute_table[2].key_strindex = 2,
        "S0.attribute_indices[1]: has the same key as attribute_indices[0]",
        Some((Reason::DuplicateKey, 0)),
    ),
    (
        |e| {
            e.tables().string_table.push("key".to_owned());
            e.tables().attribute_table[2].key_strindex = 4;
        },
        "S0.attribute_indices[1]: has the same key as attribute_indices[0]",
        Some((Reason::DuplicateKey, 0)),
    ),
    (
        |e| e.resource().attributes.push(named("key")),
        "resource_profiles[0].resource.attributes[1]: has the same key as attributes[0]",
        Some((Reason::DuplicateKey, 0)),
    ),
    (
        |e| e.resource().attributes = (0..50).map(|n| named(&(n % 40).to_string())).collect(),
        "resource_profiles[0].resource.attributes[40]: has the same key as attributes[0]",
        Some((Reason::DuplicateKey, 0)),
    ),
    (
        |e| {
            e.scope().scope.as_mut().unwrap().attributes =
                ["a", "b", "c", "b", "a"].map(named).to_vec()
        },
        "resource_profiles[0].scope_profiles[0].scope.attributes[3]: has the same key as attributes[1]",
        Some((Reason::DuplicateKey, 0)),
    ),
    (
        |e| e.tables().link_table[1].trace_id.truncate(15),
        "dictionary.link_table[1].trace_id: 15 bytes long, must be 16 or empty",
        Some((Reason::IdLength, 0)),
    ),
    (
        |e| e.tables().link_table[1].span_id.push(0),
        "dictionary.link_table[1].span_id: 9 bytes long, must be 8 or empty",
        Some((Reason::IdLength, 0)),
    ),
    (
        |e| e.tables().mapping_table[1].memory_start = 2,
        "dictionary.mapping_table[1]: memory_start 0x2 is not below memory_limit 0x2",
        Some((Reason::MappingRange, 2)),
    ),
    (
        |e| e.tables().location_table[1].lines[0].line = -5,
        "dictionary.location_table[1].lines[0].line: -5 is negative",
        Some((Reason::NegativeLine, 2)),
    ),
    (
        |e| e.tables().function_table[1].name_strindex = 0,
        "dictionary.function_table[1]: must have a name, a system name or a file name",
        Some((Reason::NamelessFunction, 2)),
    ),
    // Profiles and samples.
    (
        |e| e.profile().profile_id = vec![1; 8],
        "P.profile_id: 8 bytes long, must be 16 or empty",
        Some((Reason::IdLength, 0)),
    ),
    (
        |e| e.profile().original_payload = vec![1],
        "P: original_payload and original_payload_format must be given together",
        Some((Reason::OriginalPayload, 0)),
    ),
    (
        |e| e.profile().original_payload_format = "jfr".into(),
        "P: original_payload and original_payload_format must be given together",
        Some((Reason::OriginalPayload, 0)),
    ),
    (
        |e| {
            *e.sample() = Sample {
                stack_index: 1,
                ..Sample::default()
            }
        },
        "S: must have a value or a timestamp",
        Some((Reason::SampleShape, 2)),
    ),
    (
        |e| e.sample().values = vec![1, 2],
        "S: 2 values but 1 timestamps, must be equal",
        Some((Reason::SampleShape, 2)),
    ),
    (
        |e| {
            e.sample().values = vec![1, 2];
            e.sample().timestamps_unix_nano.clear();
        },
        "S: 2 values without timestamps, must be one",
        Some((Reason::SampleShape, 2)),
    ),
    (
        |e| e.sample().timestamps_unix_nano.push(111),
        "S.timestamps_unix_nano: 111 is outside the time range of its profile (100 to 110)",
        Some((Reason::Timestamp, 2)),
    ),
    (
        |e| e.sample().timestamps_unix_nano[0] = 99,
        "S.timestamps_unix_nano: 99 is outside the time range of its profile (100 to 110)",
        Some((Reason::Timestamp, 2)),
    ),
];

fn nested_reference(index: i32) -> Option<AnyValue> {
    let value = |value| AnyValue { value: Some(value) };
    let map = Value::KvlistValue(KeyValueList {
        values: vec![KeyValue {
            key: "k".into(),
            value: Some(value(Value::StringValueStrindex(index))),
            key_strindex: 0,
        }],
    });
    Some(value(Value::ArrayValue(ArrayValue {
        values: vec![value(Value::IntValue(1)), value(map)],
    })))
}

fn message_of(template: &str) -> String {
    let first = SAMPLE.replace("samples[1]", "samples[0]");
    match template {
        short if short.starts_with("S0") => short.replacen("S0", &first, 1),
        short if short.starts_with('S') => short.replacen('S', SAMPLE, 1),
        short if short.starts_with('P') => short.replacen('P', PROFILE, 1),
        whole => whole.into(),
    }
}

#[test]
fn the_base_request_is_valid() {
    let wire = request().encode_to_vec().into();
    let received = Profiles::from_wire(wire, Validation::Reject).unwrap();
    assert_eq!(received.profiles.sample_count(), 3);
}

#[test]
fn every_broken_rule_is_refused_with_its_path() {
    for (break_it, expected, _) in RULES {
        let mut edit = Edit(request());
        break_it(&mut edit);
        let wire = edit.0.encode_to_vec().into();
        match Profiles::from_wire(wire, Validation::Reject) {
            Ok(_) => panic!("not refused: {expected}"),
            Err(invalid) => assert_eq!(invalid.to_string(), message_of(expected)),
        }
    }
}

#[test]
fn repair_drops_the_bad_samples_and_no_other() {
    for (break_it, message, expected) in RULES {
        let Some((reason, kept)) = *expected else {
            continue;
        };
        let mut edit = Edit(request());
        break_it(&mut edit);
        let wire = edit.0.encode_to_vec().into();
        let repaired = Profiles::from_wire(wire, Validation::Repair)
            .unwrap_or_else(|invalid| panic!("{message}: {invalid}"));
        assert_eq!(repaired.profiles.sample_count(), kept, "{message}");
        let dropped: BTreeMap<Reason, usize> = (kept < 3)
            .then_some((reason, 3 - kept))
            .into_iter()
            .collect();
        assert_eq!(repaired.repaired, dropped, "{message}");
        check(&repaired.profiles.to_wire(), CheckOptions::STRICT)
            .unwrap_or_else(|problem| panic!("{message}: {problem}"));
    }
}

/// Found by fuzzing: no sample was dropped, so the bad resource was kept.
#[test]
fn repair_drops_empty_bad_resources_and_scopes() {
    let break_resource: fn(&mut Edit) -> &mut Vec<KeyValue> =
        |edit| &mut edit.resource().attributes;
    let break_scope: fn(&mut Edit) -> &mut Vec<KeyValue> =
        |edit| &mut edit.scope().scope.as_mut().unwrap().attributes;
    for (place, attributes) in [("resource", break_resource), ("scope", break_scope)] {
        let mut empty = Edit(request());
        empty.scope().profiles.clear();
        if place == "resource" {
            empty.0.resource_profiles[0].scope_profiles.clear();
        }
        let mut edit = Edit(request());
        edit.0
            .resource_profiles
            .insert(0, empty.0.resource_profiles.remove(0));
        attributes(&mut edit).extend([named("twice"), named("twice")]);
        let wire = edit.0.encode_to_vec().into();
        let repaired = Profiles::from_wire(wire, Validation::Repair).unwrap();
        assert_eq!(repaired.profiles.sample_count(), 3, "{place}");
        assert!(repaired.repaired.is_empty(), "{place}");
        check(&repaired.profiles.to_wire(), CheckOptions::STRICT)
            .unwrap_or_else(|problem| panic!("{place}: {problem}"));
    }
}

#[test]
fn accepts_variations_of_other_senders() {
    type Row = (&'static str, fn(&mut Edit));
    let rows: &[Row] = &[
        ("zero ids in row 0 of links", |e| {
            e.tables().link_table[0] = Link {
                trace_id: vec![0; 16],
                span_id: vec![0; 8],
            };
        }),
        ("an empty value in row 0 of attributes", |e| {
            e.tables().attribute_table[0].value = Some(AnyValue { value: None });
        }),
        ("nothing at all", |e| {
            e.0 = ExportProfilesServiceRequest::default()
        }),
        ("no samples", |e| e.profile().samples.clear()),
        ("no profiles", |e| e.scope().profiles.clear()),
        ("no table of links, and nothing linked", |e| {
            e.tables().link_table.clear();
            e.profile()
                .samples
                .iter_mut()
                .for_each(|sample| sample.link_index = 0);
        }),
        ("a timestamp at the end", |e| {
            e.sample().timestamps_unix_nano[0] = 110
        }),
        ("an instant profile", |e| {
            e.profile().duration_nano = 0;
            let samples = &mut e.profile().samples;
            samples
                .iter_mut()
                .for_each(|sample| sample.timestamps_unix_nano = vec![100]);
        }),
        ("a profile without a time", |e| {
            e.profile().time_unix_nano = 0
        }),
        ("a value next to each timestamp", |e| {
            e.sample().values = vec![-3]
        }),
        ("an aggregated value", |e| {
            e.sample().values = vec![4];
            e.sample().timestamps_unix_nano.clear();
        }),
    ];
    for (name, edit_it) in rows {
        let mut edit = Edit(request());
        edit_it(&mut edit);
        let received = Profiles::from_wire(edit.0.encode_to_vec().into(), Validation::Reject);
        let profiles = received
            .unwrap_or_else(|invalid| panic!("{name}: {invalid}"))
            .profiles;
        assert_eq!(
            profiles.sample_count(),
            profiles.model().sample_count(),
            "{name}"
        );
    }
}

#[test]
fn finds_equal_keys_in_long_lists() {
    let mut edit = Edit(request());
    for key in 4..40 {
        edit.tables().string_table.push(format!("key{key}"));
        edit.tables().attribute_table.push(attribute(key));
    }
    let long: Vec<i32> = (3..39).rev().collect();
    edit.sample().attribute_indices = long.clone();
    let wire = edit.0.encode_to_vec().into();
    Profiles::from_wire(wire, Validation::Reject).unwrap();
    edit.tables().attribute_table.push(attribute(20));
    edit.sample().attribute_indices.push(39);
    let wire = edit.0.encode_to_vec().into();
    let invalid = Profiles::from_wire(wire, Validation::Reject).err().unwrap();
    assert_eq!(
        invalid.to_string(),
        format!("{SAMPLE}.attribute_indices[36]: has the same key as attribute_indices[19]")
    );
}
