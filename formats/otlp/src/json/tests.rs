//! Handmade JSON, valid and malformed, recorded requests that decode like their protobuf, and arbitrary round trips.

use std::sync::Arc;

use proptest::prelude::*;

use super::{JsonError, ResourceAttrEncoding, decode, encode, receive, value_text};
use profcol_profile::{
    Attribute, Dictionary, EntityRef, Function, Idx, KeyValue, Line, Link, Location, LocationRef,
    Mapping, MappingRef, Model, OriginalPayload, Profile, Profiles, Resource, ResourceProfiles,
    SampleRef, Samples, Scope, ScopeProfiles, Validation, Value, ValueType,
};

// === Values ===

/// The value of the only attribute of the only resource.
#[track_caller]
fn read_value(value: &str) -> Result<Value, JsonError> {
    let body = format!(
        r#"{{"resourceProfiles":[{{"resource":{{"attributes":[{{"key":"k","value":{value}}}]}}}}],
            "dictionary":{{"stringTable":["","a","b"]}}}}"#
    );
    let model = decode(body.as_bytes())?;
    let resource = model.resources[0].resource.as_ref().expect("is present");
    assert_eq!(&*resource.attributes[0].key, "k");
    Ok(resource.attributes[0].value.clone())
}

#[test]
fn reads_values() {
    #[track_caller]
    fn check(value: &str, expected: Value) {
        match read_value(value) {
            Ok(read) => assert_eq!(read, expected, "{value}"),
            Err(error) => panic!("{value}: {error}"),
        }
    }
    check("{}", Value::Empty);
    check("null", Value::Empty);
    check(r#"{"somethingNew":{"a":[1,{}]}}"#, Value::Empty);
    check(r#"{"stringValue":null}"#, Value::Empty);
    check(r#"{"stringValue":""}"#, "".into());
    check(
        r#"{"stringValue":"é\n\u00e9\ud83d\ude00"}"#,
        "é\né😀".into(),
    );
    check(r#"{"string_value":"snake"}"#, "snake".into());
    check(r#"{"stringValueStrindex":2}"#, "b".into());
    check(r#"{"stringValueStrindex":"2"}"#, "b".into());
    check(r#"{"string_value_strindex":1}"#, "a".into());
    check(r#"{"stringValueStrindex":0}"#, "".into());
    check(r#"{"boolValue":false}"#, false.into());
    check(r#"{"boolValue":true}"#, true.into());
    check(r#"{"intValue":"-9223372036854775808"}"#, i64::MIN.into());
    check(r#"{"intValue":9223372036854775807}"#, i64::MAX.into());
    check(r#"{"intValue":1e3}"#, 1000.into());
    check(r#"{"intValue":-7.0}"#, (-7).into());
    check(r#"{"doubleValue":0.1}"#, Value::Double(0.1));
    check(r#"{"doubleValue":-0.0}"#, Value::Double(-0.0));
    check(r#"{"doubleValue":3}"#, Value::Double(3.0));
    check(r#"{"doubleValue":"-2.5e-3"}"#, Value::Double(-0.0025));
    check(r#"{"doubleValue":"NaN"}"#, Value::Double(f64::NAN));
    check(
        r#"{"doubleValue":"Infinity"}"#,
        Value::Double(f64::INFINITY),
    );
    check(
        r#"{"doubleValue":"-Infinity"}"#,
        Value::Double(f64::NEG_INFINITY),
    );
    for base64 in ["+/+8", "-_-8", "-/+8"] {
        let bytes: &[u8] = &[0xfb, 0xff, 0xbc];
        check(
            &format!(r#"{{"bytesValue":"{base64}"}}"#),
            Value::Bytes(bytes.into()),
        );
    }
    for base64 in ["aGk=", "aGk"] {
        let bytes: &[u8] = b"hi";
        check(
            &format!(r#"{{"bytesValue":"{base64}"}}"#),
            Value::Bytes(bytes.into()),
        );
    }
    check(r#"{"arrayValue":{}}"#, Value::Array([].into()));
    check(r#"{"arrayValue":null}"#, Value::Empty);
    check(
        r#"{"arrayValue":{"values":[{"stringValueStrindex":1},{},{"intValue":"1"}]}}"#,
        Value::Array(["a".into(), Value::Empty, 1.into()].into()),
    );
    check(
        r#"{"kvlistValue":{"values":[{"keyStrindex":2,"value":{"boolValue":true}},{"key":"x"}]}}"#,
        Value::Map([KeyValue::new("b", true), KeyValue::new("x", Value::Empty)].into()),
    );
}

#[test]
fn rejects_malformed_values() {
    #[track_caller]
    fn check(value: &str, field: &str, problem: &str) {
        let Err(JsonError::Malformed { path, problem: got }) = read_value(value) else {
            panic!("{value} should be malformed");
        };
        let value_at = "resourceProfiles[0].resource.attributes[0].value";
        assert_eq!(path, format!("{value_at}{field}"), "{value}");
        assert!(got.starts_with(problem), "{value}: {got}");
    }
    check("1", "", "invalid type: integer `1`, expected an object");
    check(
        r#"{"intValue":1.5}"#,
        ".intValue",
        "invalid value: floating point `1.5`, expected a 64-bit integer",
    );
    check(
        r#"{"intValue":"9223372036854775808"}"#,
        ".intValue",
        "invalid value: integer `9223372036854775808`, expected a 64-bit integer",
    );
    check(r#"{"intValue":1e300}"#, ".intValue", "invalid value");
    check(
        r#"{"intValue":""}"#,
        ".intValue",
        "invalid value: string \"\"",
    );
    check(r#"{"intValue":true}"#, ".intValue", "invalid type: boolean");
    check(r#"{"doubleValue":"inf"}"#, ".doubleValue", "invalid value");
    check(r#"{"boolValue":"true"}"#, ".boolValue", "invalid type");
    check(r#"{"bytesValue":"?"}"#, ".bytesValue", "expected base64");
    check(
        r#"{"stringValueStrindex":3}"#,
        ".stringValueStrindex",
        "string 3 is not in the string table, which has 3 rows",
    );
    check(
        r#"{"stringValueStrindex":-1}"#,
        ".stringValueStrindex",
        "invalid value: integer `-1`, expected an index",
    );
    check(
        r#"{"arrayValue":{"values":[{},{"kvlistValue":{"values":[{"keyStrindex":9}]}}]}}"#,
        ".arrayValue.values[1].kvlistValue.values[0].keyStrindex",
        "string 9 is not in the string table",
    );
    check(
        r#"{"arrayValue":{"values":[null]}}"#,
        ".arrayValue.values[0]",
        "invalid type: null, expected an object",
    );
}

// === Bodies ===

#[test]
fn reads_a_whole_request_in_either_spelling() {
    let camel = r#"{
        "resourceProfiles": [{
            "resource": {
                "attributes": [{"key": "host", "value": {"stringValue": "h"}}],
                "droppedAttributesCount": 1,
                "entityRefs": [{"schemaUrl": "s", "type": "host", "idKeys": ["host"], "descriptionKeys": ["d"]}]
            },
            "scopeProfiles": [{
                "scope": {"name": "n", "version": "v", "attributes": [{"key": "k"}], "droppedAttributesCount": 2},
                "profiles": [{
                    "sampleType": {"typeStrindex": 1, "unitStrindex": 2},
                    "samples": [
                        {"stackIndex": 1, "linkIndex": 1, "attributeIndices": [1], "values": ["-1", 2], "timestampsUnixNano": ["18446744073709551615", 3]},
                        {}
                    ],
                    "timeUnixNano": "5", "durationNano": 6, "periodType": {}, "period": "-7",
                    "profileId": "000102030405060708090A0b0c0d0e0f",
                    "droppedAttributesCount": 3,
                    "originalPayloadFormat": "pprof", "originalPayload": "aGk=",
                    "attributeIndices": [1]
                }],
                "schemaUrl": "t"
            }],
            "schemaUrl": "u"
        }],
        "dictionary": {
            "stackTable": [{}, {"locationIndices": [1]}],
            "mappingTable": [{}, {"memoryStart": "1", "memoryLimit": 2, "fileOffset": "3", "filenameStrindex": 1, "attributeIndices": [1]}],
            "locationTable": [{}, {"mappingIndex": 1, "address": "4", "lines": [{"functionIndex": 1, "line": "5", "column": 6}], "attributeIndices": [1]}],
            "functionTable": [{}, {"nameStrindex": 1, "systemNameStrindex": 2, "filenameStrindex": 1, "startLine": "-8"}],
            "linkTable": [{"traceId": "00000000000000000000000000000000", "spanId": ""}, {"traceId": "0102030405060708090a0b0c0d0e0f10", "spanId": "1112131415161718"}],
            "attributeTable": [{"value": {}}, {"keyStrindex": 1, "value": {"intValue": "1"}, "unitStrindex": 2}],
            "stringTable": ["", "a", "b"]
        }
    }"#;

    let mut dictionary = Dictionary::default();
    let a = dictionary.strings.push("a");
    let b = dictionary.strings.push("b");
    let attribute = dictionary.attributes.push(Attribute {
        key: a,
        value: 1.into(),
        unit: b,
    });
    let mapping = dictionary.mappings.push(MappingRef {
        mapping: Mapping {
            memory_start: 1,
            memory_limit: 2,
            file_offset: 3,
            filename: a,
        },
        attributes: &[attribute],
    });
    let function = dictionary.functions.push(Function {
        name: a,
        system_name: b,
        filename: a,
        start_line: -8,
    });
    let location = dictionary.locations.push(LocationRef {
        location: Location {
            mapping,
            address: 4,
        },
        lines: &[Line {
            function,
            line: 5,
            column: 6,
        }],
        attributes: &[attribute],
    });
    let stack = dictionary.stacks.push(&[location]);
    let link = dictionary.links.push(Link {
        trace_id: std::array::from_fn(|at| at as u8 + 1),
        span_id: std::array::from_fn(|at| at as u8 + 0x11),
    });
    let mut samples = Samples::default();
    samples.push(SampleRef {
        stack,
        link,
        attributes: &[attribute],
        values: &[-1, 2],
        timestamps: &[u64::MAX, 3],
    });
    samples.push(SampleRef::default());
    let profile = Profile {
        sample_type: Some(ValueType { kind: a, unit: b }),
        samples,
        time_unix_nano: 5,
        duration_nano: 6,
        period_type: Some(ValueType::default()),
        period: -7,
        profile_id: Some(std::array::from_fn(|at| at as u8)),
        dropped_attributes_count: 3,
        original_payload: Some(OriginalPayload {
            format: "pprof".into(),
            payload: b"hi".as_slice().into(),
        }),
        attributes: vec![attribute],
    };
    let scope = Scope {
        name: "n".into(),
        version: "v".into(),
        attributes: vec![KeyValue::new("k", Value::Empty)],
        dropped_attributes_count: 2,
    };
    let resource = Resource {
        attributes: vec![KeyValue::new("host", "h")],
        dropped_attributes_count: 1,
        entity_refs: vec![EntityRef {
            schema_url: "s".into(),
            kind: "host".into(),
            id_keys: vec!["host".into()],
            description_keys: vec!["d".into()],
        }],
    };
    let expected = Model {
        dictionary: Arc::new(dictionary),
        resources: vec![ResourceProfiles {
            resource: Some(Arc::new(resource)),
            scopes: vec![ScopeProfiles {
                scope: Some(Arc::new(scope)),
                profiles: vec![Arc::new(profile)],
                schema_url: "t".into(),
            }],
            schema_url: "u".into(),
        }],
    };

    assert_eq!(decode(camel.as_bytes()).expect("is valid"), expected);
    let snake = with_snake_case_names(camel);
    assert!(snake.contains("resource_profiles"), "{snake}");
    assert_eq!(decode(snake.as_bytes()).expect("is valid"), expected);
}

fn with_snake_case_names(body: &str) -> String {
    let mut pieces = body.split('"').peekable();
    let mut snake = Vec::new();
    while let Some(piece) = pieces.next() {
        let is_name = pieces.peek().is_some_and(|next| next.starts_with(':'));
        if !is_name {
            snake.push(piece.to_owned());
            continue;
        }
        let mut name = String::new();
        for letter in piece.chars() {
            if letter.is_ascii_uppercase() {
                name.push('_');
            }
            name.push(letter.to_ascii_lowercase());
        }
        snake.push(name);
    }
    snake.join("\"")
}

#[test]
fn reads_bodies_with_missing_fields() {
    #[track_caller]
    fn check(body: &str, resources: usize) {
        let model = decode(body.as_bytes()).unwrap_or_else(|error| panic!("{body}: {error}"));
        assert_eq!(model.resources.len(), resources, "{body}");
        assert_eq!(*model.dictionary, Dictionary::default(), "{body}");
    }
    check("{}", 0);
    check(r#" {"resourceProfiles": null, "dictionary": null} "#, 0);
    check(
        r#"{"resourceProfiles": [], "dictionary": {"stringTable": []}}"#,
        0,
    );
    check(r#"{"resourceProfiles": [{}, {"resource": null}]}"#, 2);
    check(
        r#"{"dictionary": {"stringTable": [""], "linkTable": [{}], "new": 1}, "new": {}}"#,
        0,
    );
}

#[test]
fn reports_the_path_of_an_error() {
    #[track_caller]
    fn check(body: &str, expected: &str) {
        let error = decode(body.as_bytes())
            .expect_err("the body is invalid")
            .to_string();
        assert_eq!(error, expected, "{body}");
    }
    check("", "body: EOF while parsing a value at line 1 column 0");
    check(
        "[]",
        "body: invalid type: sequence, expected an object at line 1 column 0",
    );
    check("{} {}", "body: trailing characters at line 1 column 4");
    check(
        r#"{"resourceProfiles":[{},{"scopeProfiles":[{"profiles":[{},{"samples":[{},{},{},{"stackIndex":"x"}]}]}]}]}"#,
        "resourceProfiles[1].scopeProfiles[0].profiles[1].samples[3].stackIndex: invalid value: \
         string \"x\", expected an index from 0 to 2147483647 at line 1 column 96",
    );
    check(
        "{\"dictionary\":\n{\"stringTable\":[\"a\"]}}",
        "dictionary.stringTable[0]: the first string must be empty at line 2 column 19",
    );
    check(
        r#"{"dictionary":{"stackTable":[{"locationIndices":[1]}]}}"#,
        "dictionary.stackTable[0]: the first row of a table must be its zero value at line 1 column 53",
    );
    check(
        r#"{"dictionary":{"linkTable":[{},{"traceId":"00"}]}}"#,
        "dictionary.linkTable[1].traceId: expected an id of 32 hexadecimal digits, found 2 \
         characters at line 1 column 46",
    );
    check(
        r#"{"dictionary":{"linkTable":[{},{"span_id":"000000000000000g"}]}}"#,
        "dictionary.linkTable[1].spanId: expected an id in hexadecimal digits at line 1 column 60",
    );
}

#[test]
fn validates_json_like_protobuf() {
    #[track_caller]
    fn check(sample: &str, expected: Result<usize, &str>) {
        let body = format!(
            r#"{{"resourceProfiles":[{{"scopeProfiles":[{{"profiles":[{{"samples":[{sample}]}}]}}]}}],
                "dictionary":{{"stackTable":[{{}},{{}}]}}}}"#
        );
        let received = receive(body.as_bytes(), Validation::Reject);
        match (received, expected) {
            (Ok(received), Ok(samples)) => assert_eq!(received.profiles.sample_count(), samples),
            (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected, "{sample}"),
            (Ok(_), Err(error)) => panic!("{sample} should fail: {error}"),
            (Err(error), Ok(_)) => panic!("{sample}: {error}"),
        }
    }
    check(r#"{"stackIndex":1,"values":["1"]},{"values":[2]}"#, Ok(2));
    check(
        r#"{"values":[1]},{"stackIndex":2,"values":[1]}"#,
        Err(
            "resource_profiles[0].scope_profiles[0].profiles[0].samples[1].stack_index 2 out of range (stacks: 2)",
        ),
    );
}

#[test]
fn json_and_protobuf_decode_equally() {
    let directory = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/otlp/profiler"
    );
    for number in 1..=8 {
        let file = |extension| {
            let path = format!("{directory}/export-{number:02}.{extension}");
            std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        let received = Profiles::from_wire(file("pb").into(), Validation::Reject)
            .unwrap_or_else(|error| panic!("export-{number:02}.pb: {error}"));
        let mut binary = received.profiles.into_model();
        // The JSON writer writes it even if the request has none.
        for resource in &mut binary.resources {
            for scope in &mut resource.scopes {
                for profile in &mut scope.profiles {
                    Arc::make_mut(profile).period_type.get_or_insert_default();
                }
            }
        }
        let received = receive(&file("json"), Validation::Reject)
            .unwrap_or_else(|error| panic!("export-{number:02}.json: {error}"));
        let json = received.profiles.into_model();

        assert_eq!(json.resources, binary.resources);
        // It also adds attribute strings to the table.
        let strings = binary.dictionary.strings.iter();
        assert!(
            strings.eq(json
                .dictionary
                .strings
                .iter()
                .take(binary.dictionary.strings.len()))
        );
        let dictionary = Dictionary {
            strings: binary.dictionary.strings.clone(),
            ..Dictionary::clone(&json.dictionary)
        };
        assert_eq!(dictionary, *binary.dictionary);
    }
}

#[test]
fn keeps_errors_short_and_nesting_shallow() {
    let long = "x".repeat(100_000);
    for body in [
        format!(r#"{{"resourceProfiles":"{long}"}}"#),
        format!(r#"{{"{long}":!}}"#),
        "{\"new\":".to_owned() + &"[".repeat(100_000),
        "{\"resourceProfiles\":[{\"resource\":{\"attributes\":[{\"value\":".to_owned()
            + &"{\"arrayValue\":{\"values\":[".repeat(10_000),
    ] {
        let error = decode(body.as_bytes())
            .expect_err("the body is invalid")
            .to_string();
        assert!(error.len() < 4_000, "{} bytes", error.len());
    }
}

#[test]
fn survives_any_cut_and_any_changed_byte() {
    let body = encode(&small_model(), ResourceAttrEncoding::Dictionary);
    for end in 0..body.len() {
        assert!(decode(&body[..end]).is_err(), "cut at {end}");
    }
    for position in 0..body.len() {
        for byte in [b'"', b'{', b']', b'9', 0xff, 0] {
            let mut body = body.clone();
            body[position] = byte;
            drop(decode(&body));
        }
    }
}

#[test]
fn writes_values() {
    #[track_caller]
    fn check(value: Value, expected: &str) {
        assert_eq!(value_text(&value), expected);
        assert_eq!(read_value(expected).expect("round-trips"), value);
    }
    check(Value::Empty, "{}");
    check("".into(), r#"{"stringValue":""}"#);
    check(
        "\"\\\n\u{1}é😀\u{2028}".into(),
        "{\"stringValue\":\"\\\"\\\\\\n\\u0001é😀\u{2028}\"}",
    );
    check(false.into(), r#"{"boolValue":false}"#);
    check(i64::MIN.into(), r#"{"intValue":"-9223372036854775808"}"#);
    check(0.into(), r#"{"intValue":"0"}"#);
    check(Value::Double(0.0), r#"{"doubleValue":0.0}"#);
    check(Value::Double(-0.0), r#"{"doubleValue":-0.0}"#);
    check(Value::Double(f64::NAN), r#"{"doubleValue":"NaN"}"#);
    check(
        Value::Double(f64::INFINITY),
        r#"{"doubleValue":"Infinity"}"#,
    );
    check(
        Value::Double(f64::NEG_INFINITY),
        r#"{"doubleValue":"-Infinity"}"#,
    );
    for number in [f64::MAX, f64::MIN_POSITIVE, 5e-324, 0.1, 1.0 / 3.0, 1e21] {
        let written = value_text(&Value::Double(number));
        let read = read_value(&written).expect("round-trips");
        assert_eq!(read, Value::Double(number), "{written}");
    }
    let bytes: &[u8] = &[0xfb, 0xff, 0xbc, 0];
    check(Value::Bytes(bytes.into()), r#"{"bytesValue":"+/+8AA=="}"#);
    check(
        Value::Array([Value::Empty, 1.into()].into()),
        r#"{"arrayValue":{"values":[{},{"intValue":"1"}]}}"#,
    );
    check(
        Value::Map([KeyValue::new("k", Value::Array([].into()))].into()),
        r#"{"kvlistValue":{"values":[{"key":"k","value":{"arrayValue":{}}}]}}"#,
    );
}

#[test]
fn writes_attributes_as_references_when_asked() {
    let model = small_model();
    let written =
        String::from_utf8(encode(&model, ResourceAttrEncoding::Dictionary)).expect("JSON is UTF-8");
    assert!(
        written.starts_with(
            r#"{"resourceProfiles":[{"resource":{"attributes":[{"keyStrindex":2,"value":{"stringValueStrindex":1}},{"keyStrindex":3,"value":{"stringValue":""}}]}"#
        ),
        "{written}"
    );
    assert!(
        written.contains(r#""stringTable":["","a","host","empty"]"#),
        "{written}"
    );

    let read = decode(written.as_bytes()).expect("round-trips");
    assert_eq!(read.resources, model.resources);
}

fn small_model() -> Model {
    let mut dictionary = Dictionary::default();
    dictionary.strings.push("a");
    let stack = dictionary.stacks.push(&[Idx::UNSET]);
    let mut samples = Samples::default();
    samples.push(SampleRef {
        stack,
        values: &[1],
        ..SampleRef::default()
    });
    let profile = Profile {
        samples,
        ..Profile::default()
    };
    Model {
        dictionary: Arc::new(dictionary),
        resources: vec![ResourceProfiles {
            resource: Some(Arc::new(Resource {
                attributes: vec![KeyValue::new("host", "a"), KeyValue::new("empty", "")],
                ..Resource::default()
            })),
            scopes: vec![ScopeProfiles {
                profiles: vec![Arc::new(profile)],
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        }],
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn round_trips(model in profcol_profile::testkit::models()) {
        let plain = encode(&model, ResourceAttrEncoding::Plain);
        prop_assert_eq!(&decode(&plain).expect("round-trips"), &model);

        let references = encode(&model, ResourceAttrEncoding::Dictionary);
        let read = decode(&references).expect("round-trips");
        prop_assert_eq!(&read.resources, &model.resources);
        let strings = read.dictionary.strings.iter().take(model.dictionary.strings.len());
        prop_assert!(strings.eq(model.dictionary.strings.iter()));
    }
}
